//! Waiting for an absolute deadline, finer than the runtime's timer wheel.
//!
//! Invariant: it never returns early. How late it is depends on the machine; the log tells.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::clock::monotonic_ns;

/// Waits on one kernel timer (`timerfd_create(2)`), made at the first wait. Where descriptors have run out it falls
/// back to the runtime's timer and its grain of one millisecond.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    timer: Option<AsyncFd<OwnedFd>>,
}

impl Pacer {
    /// Returns at `deadline` or as soon after it as the machine allows; at once when it has passed.
    pub(super) async fn until(&mut self, deadline: Instant) {
        if deadline <= Instant::now() {
            return;
        }
        if self.timer.is_none() {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            self.timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok().and_then(watched);
        }
        let fine = match &self.timer {
            Some(timer) => wait(timer, deadline).await.is_ok(),
            None => false,
        };
        if !fine {
            tokio::time::sleep_until(deadline.into()).await;
        }
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for types that lie about their descriptor; an OwnedFd cannot"
)]
fn watched(timer: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::new(timer).ok()
}

async fn wait(timer: &AsyncFd<OwnedFd>, deadline: Instant) -> std::io::Result<()> {
    const SECOND: u64 = 1_000_000_000;
    let ns = monotonic_ns(deadline);
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let it_value = Timespec { tv_sec: part(ns / SECOND), tv_nsec: part(ns % SECOND) };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    // Two things end a turn early: readiness left over from an abandoned wait, and the fraction of a microsecond by
    // which the two clocks' readings differ. Setting the timer also takes back its expiry, so that none is ever read.
    while Instant::now() < deadline {
        timerfd_settime(timer.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        timer.readable().await?.clear_ready();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn never_early_not_even_after_an_abandoned_wait() {
        let mut pacer = Pacer::default();
        for round in 0..50 {
            let start = Instant::now();
            if round % 2 == 0 {
                let abandoned = pacer.until(start + Duration::from_micros(300));
                let _ = tokio::time::timeout(Duration::ZERO, abandoned).await;
            }
            let deadline = start + Duration::from_micros(700);
            pacer.until(deadline).await;
            assert!(Instant::now() >= deadline);
        }
        pacer.until(Instant::now()).await;
    }
}
