//! Content codings (RFC 9110, section 8.4.1) undone: fed encoded bytes → decoded bytes.
//!
//! Invariants:
//! * All that the bytes fed so far decode to is out when [`Decoder::feed`] returns, however they are cut: what an encoder
//!   has flushed is seen with the read that brought it.
//! * Memory is bounded by the codings' windows: 16 MiB for brotli, 8 MiB for zstd, 32 KiB for the others, each.
//! * Work is bounded: what comes out, of all codings together, is at most 64 times what was fed and 2 MiB; of a decoder
//!   [`within`](Decoder::within) a bound it is at most that for each coding, whatever was fed: one byte may make all of it.

mod brotli;
mod deflate;
mod gzip;
mod zstd;

use thiserror::Error;

/// More codings than this, one on another, are not undone.
const MOST_CODINGS: usize = 4;
/// How many bytes one fed byte may become in the long run, those between two codings counted too. Events of a model
/// flushed one by one become 30 times as many at most; deflate itself reaches 1,032.
pub const MOST_RATIO: u64 = 64;
/// What may be more than that, in bytes: a document of one letter, or what was compressed before and comes at once.
const ALLOWANCE: u64 = 2 * 1024 * 1024;
/// Decoded bytes come in pieces of at most this size.
const PIECE: usize = 8 * 1024;

/// How many bytes a body of so many encoded ones may become: 64 times as many, and 2 MiB.
pub fn in_proportion(encoded: usize) -> usize {
    usize::try_from((encoded as u64).saturating_mul(MOST_RATIO).saturating_add(ALLOWANCE)).unwrap_or(usize::MAX)
}

/// One content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `gzip` or `x-gzip` (RFC 1952), of any number of members.
    Gzip,
    /// `deflate`: zlib's format (RFC 1950), or what some send instead, deflate's own (RFC 1951).
    Deflate,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878), of any number of frames, with a window of 8 MiB at most (RFC 9659).
    Zstd,
}

impl Coding {
    fn named(name: &str) -> Option<Self> {
        let known = [
            ("gzip", Self::Gzip),
            ("x-gzip", Self::Gzip),
            ("deflate", Self::Deflate),
            ("br", Self::Brotli),
            ("zstd", Self::Zstd),
        ];
        known.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, coding)| coding)
    }
}

/// The codings of one body, in the order they were applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Codings([Option<Coding>; MOST_CODINGS]);

impl Codings {
    /// Reads the values of `content-encoding`, each a list. `None` where they name a coding that is not known here, or
    /// more than four.
    ///
    /// ```
    /// use streamgauge::wire::encoding::Codings;
    ///
    /// assert!(Codings::named(["identity"]).is_some_and(|codings| codings.is_empty()));
    /// assert!(Codings::named(["gzip, br"]).is_some_and(|codings| !codings.is_empty()));
    /// assert_eq!(Codings::named(["compress"]), None);
    /// ```
    pub fn named<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut codings = Self::default();
        let mut free = codings.0.iter_mut();
        let names = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
        for name in names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity")) {
            *free.next()? = Some(Coding::named(name)?);
        }
        Some(codings)
    }

    /// What undoing them may take, in MiB: their windows.
    pub fn memory_mib(&self) -> u32 {
        let window = |coding: &Coding| match coding {
            Coding::Gzip | Coding::Deflate => 1,
            Coding::Brotli => 16,
            Coding::Zstd => 8,
        };
        self.0.iter().flatten().map(window).sum()
    }

    /// Whether nothing was applied.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

/// Why bytes cannot be decoded any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Undecodable {
    /// They are not what their coding allows, or their checksum is wrong.
    #[error("the bytes are not what their content coding allows")]
    Damaged,
    /// They become out of proportion more.
    #[error("the bytes become more than {MOST_RATIO} times as many")]
    Bomb,
}

/// Undoes the codings of one body.
pub struct Decoder {
    /// The last coding applied comes first.
    steps: Vec<Step>,
    /// Bytes that may still come out: what was fed times the ratio, and the allowance, which fills up again; or all
    /// there are.
    budget: u64,
    /// Whether what is fed brings more to come out.
    grows: bool,
}

/// One coding being undone.
struct Step {
    format: Box<dyn Format>,
    piece: Box<[u8; PIECE]>,
}

/// A format that is read piece by piece.
trait Format: Send {
    /// Decodes from `input` into `output`, and says how many bytes of each were used. It stops only when the input is
    /// used up and nothing decoded is held back, or when `output` is full.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), Undecodable>;

    /// Whether what was read is whole: at the end of a stream, or not begun.
    fn is_whole(&self) -> bool;
}

impl Decoder {
    /// A decoder that has read nothing yet. `None` when there is no memory for one.
    pub fn new(codings: Codings) -> Option<Self> {
        Some(Self { steps: steps(codings)?, budget: ALLOWANCE, grows: true })
    }

    /// A decoder out of which at most `most` bytes come, whatever they are decoded from; what would be more is a
    /// [bomb](Undecodable::Bomb). Of several codings so many may come of each, together. `None` when there is no memory
    /// for one.
    pub fn within(codings: Codings, most: usize) -> Option<Self> {
        let steps = steps(codings)?;
        let budget = (most as u64).saturating_mul(steps.len() as u64);
        Some(Self { steps, budget, grows: false })
    }

    /// Decodes `bytes`; what they become is given to `sink` piece by piece.
    ///
    /// # Errors
    /// See [`Undecodable`]; what could be decoded before was given. A decoder that has failed is not to be fed again.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), Undecodable> {
        if self.grows {
            self.budget = self.budget.min(ALLOWANCE).saturating_add(MOST_RATIO.saturating_mul(bytes.len() as u64));
        }
        undo(&mut self.steps, bytes, &mut self.budget, sink)
    }

    /// Whether what was fed is whole, by what its codings say.
    pub fn is_whole(&self) -> bool {
        self.steps.iter().all(|step| step.format.is_whole())
    }
}

/// What undoes these codings, one after the other. `None` when there is no memory for it.
fn steps(codings: Codings) -> Option<Vec<Step>> {
    let format = |coding| -> Option<Box<dyn Format>> {
        Some(match coding {
            Coding::Gzip => Box::new(gzip::Gzip::new()),
            Coding::Deflate => Box::new(deflate::Deflate::new()),
            Coding::Brotli => Box::new(brotli::Brotli::new()),
            Coding::Zstd => Box::new(zstd::Zstd::new()?),
        })
    };
    let step = |coding| Some(Step { format: format(coding)?, piece: Box::new([0; PIECE]) });
    codings.0.into_iter().flatten().rev().map(step).collect()
}

fn undo(
    steps: &mut [Step],
    mut bytes: &[u8],
    budget: &mut u64,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), Undecodable> {
    let Some((Step { format, piece }, behind)) = steps.split_first_mut() else {
        sink(bytes);
        return Ok(());
    };
    let mut held_back = false;
    while !bytes.is_empty() || held_back {
        let (read, written) = format.step(bytes, &mut piece[..])?;
        *budget = budget.checked_sub(written as u64).ok_or(Undecodable::Bomb)?;
        if written > 0 {
            undo(behind, &piece[..written], budget, sink)?;
        }
        bytes = &bytes[read..];
        held_back = written == piece.len();
        if read == 0 && written == 0 && !bytes.is_empty() {
            return Err(Undecodable::Damaged);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
