//! `deflate`: zlib's format, as the name means (RFC 1950), or bare deflate data (RFC 1951), as some servers send.
//!
//! Bytes behind the end are passed over, as clients do.

use flate2::{Decompress, FlushDecompress, Status};

use super::{Format, Undecodable};

/// Deflate data of either kind.
pub(super) struct Deflate {
    /// `None` before the first byte, which tells the kind, and behind the end.
    inflate: Option<Decompress>,
    over: bool,
}

impl Deflate {
    pub(super) fn new() -> Self {
        Self { inflate: None, over: false }
    }
}

impl Format for Deflate {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), Undecodable> {
        if self.over {
            return Ok((input.len(), 0));
        }
        let inflate = self.inflate.get_or_insert_with(|| {
            // zlib's first byte names the method 8. Bare data begin so only with a stored block whose padding is not
            // zero, which no encoder writes.
            let zlib = input.first().is_some_and(|first| first & 0x0F == 8);
            Decompress::new(zlib)
        });
        let (read, written, ended) = inflated(inflate, input, output)?;
        if ended {
            self.over = true;
            self.inflate = None;
        }
        Ok((read, written))
    }

    fn is_whole(&self) -> bool {
        self.inflate.is_none()
    }
}

/// One step of `inflate`: bytes read, bytes written, and whether its data have ended.
pub(super) fn inflated(
    inflate: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<(usize, usize, bool), Undecodable> {
    let before = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None).map_err(|_| Undecodable::Damaged)?;
    let passed = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(usize::MAX);
    let (read, written) = (passed(inflate.total_in(), before.0), passed(inflate.total_out(), before.1));
    Ok((read, written, status == Status::StreamEnd))
}
