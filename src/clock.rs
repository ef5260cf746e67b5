//! Instants: where they come from and how they compare with other programs' clocks.
//!
//! Invariant: every instant of an exchange is monotonic; wall-clock time is only ever printed.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// When a read from a socket happened, and which read it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadStamp {
    /// The instant at which the read returned its bytes.
    pub at: Instant,
    /// The read's number on its connection; frames with equal numbers arrived in one read.
    pub number: u64,
}

/// A body that knows which read brought the frame it yielded last.
pub trait Stamped {
    /// The read that brought the last byte of the last frame. `None` before the first frame.
    fn stamp(&self) -> Option<ReadStamp>;

    /// What an engine in this process has told of its work. `None` for what comes from a socket.
    fn engine(&self) -> Option<EngineReport> {
        None
    }

    /// Whether what the last frame says only repeats the request's prompt, and so is no output.
    fn only_echoes(&self) -> bool {
        false
    }
}

/// What only an engine in this process can tell of a reply so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// The request left the queue. `None` while it waits.
    pub admitted: Option<Instant>,
    /// Its prompt was in the K/V cache. `None` before.
    pub prefilled: Option<Instant>,
    /// Tokens of the prompt. `None` where no engine has counted them.
    pub prompt_tokens: Option<u64>,
    /// Output tokens of all choices.
    pub output_tokens: u64,
}

/// One instant read on both clocks: Rust's opaque one and the system's `CLOCK_MONOTONIC`.
struct Anchor {
    instant: Instant,
    monotonic_ns: u64,
}

fn anchor() -> &'static Anchor {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    ANCHOR.get_or_init(|| {
        // Between the two outer readings lies the inner one; the tightest of several bracketings bounds the error.
        let bracket = || {
            let before = Instant::now();
            let inner = clock_gettime(ClockId::Monotonic);
            (before.elapsed(), before, inner)
        };
        let (width, before, inner) = (0..64).map(|_| bracket()).min_by_key(|b| b.0).unwrap_or_else(bracket);
        let seconds = u64::try_from(inner.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(inner.tv_nsec).unwrap_or(0);
        Anchor { instant: before + width / 2, monotonic_ns: seconds * 1_000_000_000 + nanos }
    })
}

/// `at` on the system's `CLOCK_MONOTONIC`, in nanoseconds since boot, as other programs on this machine read it.
pub fn monotonic_ns(at: Instant) -> u64 {
    let anchor = anchor();
    match at.checked_duration_since(anchor.instant) {
        Some(later) => anchor.monotonic_ns.saturating_add(nanos(later)),
        None => anchor.monotonic_ns.saturating_sub(nanos(anchor.instant.saturating_duration_since(at))),
    }
}

/// The instant that the system's `CLOCK_MONOTONIC` calls `ns`: [`monotonic_ns`] backwards.
pub fn from_monotonic_ns(ns: u64) -> Instant {
    let anchor = anchor();
    match ns.checked_sub(anchor.monotonic_ns) {
        Some(later) => anchor.instant + Duration::from_nanos(later),
        None => {
            let earlier = Duration::from_nanos(anchor.monotonic_ns - ns);
            anchor.instant.checked_sub(earlier).unwrap_or(anchor.instant)
        }
    }
}

/// In 64 bits throughout, since this is done for every read and write: they hold 584 years.
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_round_trips_and_keeps_distances() {
        let now = Instant::now();
        let later = now + Duration::from_micros(1_234);
        assert_eq!(monotonic_ns(later) - monotonic_ns(now), 1_234_000);
        assert_eq!(from_monotonic_ns(monotonic_ns(now)), now);
        let before = now.checked_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(from_monotonic_ns(monotonic_ns(before)), before);
    }

    #[test]
    fn monotonic_ns_agrees_with_the_system_clock() {
        let before = clock_gettime(ClockId::Monotonic);
        let ours = monotonic_ns(Instant::now());
        let after = clock_gettime(ClockId::Monotonic);
        let ns = |t: rustix::time::Timespec| t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs();
        // The anchor's own error is its bracket's width, well under this slack on any machine.
        assert!(ns(before) <= ours + 100_000 && ours <= ns(after) + 100_000);
    }
}
