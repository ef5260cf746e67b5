//! Every way in which a body is cut.

use std::fmt;
use std::ops::Range;

/// Above this many bytes a body is cut around its line ends only.
const CUT_EVERYWHERE: usize = 64 * 1024;

/// One way of cutting a body.
pub(crate) struct Replay {
    /// Reads, each a list of frames.
    pub(super) reads: Vec<Vec<Range<usize>>>,
    pub(super) pace: Pace,
}

impl Replay {
    /// The body whole, cut in two everywhere, and cut into single bytes: as reads, and as frames of one read.
    pub(super) fn all_of(body: &[u8]) -> Vec<Self> {
        let length = body.len();
        let cuts = cuts(body);
        // One byte at a time; where that is too much, every cut at once.
        let crumbs = pieces(cuts.iter().copied().chain([length]));
        let halves = cuts.iter().map(|cut| pieces([*cut, length]));
        let mut replays = vec![Self { reads: one_each(pieces([length])), pace: Pace::Patient }];
        for frames in halves.chain([crumbs]) {
            let reads = one_each(frames.clone());
            replays.push(Self { reads: reads.clone(), pace: Pace::Hasty });
            replays.push(Self { reads, pace: Pace::Patient });
            replays.push(Self { reads: vec![frames], pace: Pace::Patient });
        }
        replays
    }

    /// Reads that end at these offsets.
    pub(crate) fn reads(ends: impl IntoIterator<Item = usize>, pace: Pace) -> Self {
        Self { reads: one_each(pieces(ends)), pace }
    }

    /// The offset behind each read's last byte.
    pub(super) fn ends(&self) -> Vec<usize> {
        self.reads.iter().map(|frames| frames.last().expect("a frame").end).collect()
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads, {:?}", self.reads.len(), self.pace)?;
        if self.reads.len() <= 4 { write!(f, ", {:?}", self.reads) } else { Ok(()) }
    }
}

/// Whether the body has to wait between two reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Between two reads nothing is at hand.
    Patient,
    /// The next read's bytes are at hand at once, and the last frame says that none follows.
    Hasty,
}

/// The pieces of a body that end at these offsets.
fn pieces(ends: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut start = 0;
    ends.into_iter().map(|end| std::mem::replace(&mut start, end)..end).collect()
}

/// Each piece in a read of its own.
fn one_each(pieces: Vec<Range<usize>>) -> Vec<Vec<Range<usize>>> {
    pieces.into_iter().map(|piece| std::iter::once(piece).collect()).collect()
}

/// Where the body is cut in two.
fn cuts(body: &[u8]) -> Vec<usize> {
    if body.len() <= CUT_EVERYWHERE {
        return (1..body.len()).collect();
    }
    let line_ends = (0..body.len()).filter(|at| matches!(body[*at], b'\r' | b'\n'));
    let around = line_ends.flat_map(|at| at.saturating_sub(1)..=at + 2);
    let mut cuts: Vec<_> = around.filter(|cut| (1..body.len()).contains(cut)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}
