//! `br`: one brotli stream (RFC 7932), with a window of 16 MiB at most.
//!
//! Bytes behind the end are passed over, as clients do.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::{Format, Undecodable};

/// One stream.
pub(super) struct Brotli {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    begun: bool,
    over: bool,
}

impl Brotli {
    pub(super) fn new() -> Self {
        let memory = StandardAlloc::default;
        // Strict: the larger windows of another format, which a stream could claim, are no part of `br`.
        Self { state: BrotliState::new_strict(memory(), memory(), memory()), begun: false, over: false }
    }
}

impl Format for Brotli {
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), Undecodable> {
        if self.over {
            return Ok((input.len(), 0));
        }
        self.begun = true;
        let (mut left, mut read) = (input.len(), 0);
        let (mut free, mut written, mut total) = (output.len(), 0, 0);
        let state = &mut self.state;
        match BrotliDecompressStream(&mut left, &mut read, input, &mut free, &mut written, output, &mut total, state) {
            BrotliResult::ResultFailure => return Err(Undecodable::Damaged),
            BrotliResult::ResultSuccess => self.over = true,
            BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
        }
        Ok((read, written))
    }

    fn is_whole(&self) -> bool {
        self.over || !self.begun
    }
}
