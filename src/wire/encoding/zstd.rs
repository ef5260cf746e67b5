//! `zstd`: frames (RFC 8878), none with a window above 8 MiB (RFC 9659, section 3).

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::{Format, Undecodable};

/// The largest window, as a power of two: 8 MiB.
const WINDOW_LOG: u32 = 23;

/// The frames of one stream.
pub(super) struct Zstd {
    decoder: Decoder<'static>,
    whole: bool,
}

impl Zstd {
    /// `None` when there is no memory for it.
    pub(super) fn new() -> Option<Self> {
        let mut decoder = Decoder::new().ok()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
        Some(Self { decoder, whole: true })
    }
}

impl Format for Zstd {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), Undecodable> {
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
        // Zero at the end of a frame that is all out.
        let left = self.decoder.run(&mut from, &mut to).map_err(|_| Undecodable::Damaged)?;
        if !input.is_empty() || to.pos() > 0 {
            self.whole = left == 0;
        }
        Ok((from.pos(), to.pos()))
    }

    fn is_whole(&self) -> bool {
        self.whole
    }
}
