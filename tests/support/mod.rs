//! What tests against real sockets share: a client, upstreams, the proxy in this process or in one of its own, and
//! what its metrics say.

// Each test program uses its own part of this.
#![allow(dead_code)]

pub(crate) mod client;
pub(crate) mod metrics;
pub(crate) mod process;
pub(crate) mod stage;
pub(crate) mod tls;
pub(crate) mod upstream;

use std::time::Instant;

use client::PATIENCE;

/// Looks until `ready` finds what it wants.
pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(found) = ready() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never happened: {what}");
}

/// Pseudo-random numbers, the same in every run (xorshift64*).
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}
