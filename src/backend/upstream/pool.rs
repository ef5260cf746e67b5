//! Idle connections to one upstream, kept by one thread.
//!
//! Invariant: a connection comes back only when its last reply truly ended, and leaves only when it is alive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::link::Link;

/// How long an unused connection is kept. Below the 60 s after which common servers close theirs.
const IDLE_LIMIT: Duration = Duration::from_secs(50);
/// How long a connection is used at all, so that a moved name is looked up again.
const AGE_LIMIT: Duration = Duration::from_secs(600);
/// How many are kept; more than this many streams at once is a burst.
const MOST: usize = 256;

/// Handles share one pool.
#[derive(Clone, Default)]
pub(super) struct Pool(Arc<Mutex<Idle>>);

#[allow(clippy::vec_box)] // a link is a kilobyte, and moves at every step of a request
type Idle = Vec<Box<Link>>;

impl Pool {
    /// Takes the connection used last, if one is alive; dead ones on the way are dropped.
    pub(super) fn take(&self, now: Instant) -> Option<Box<Link>> {
        let mut idle = self.lock();
        while let Some(mut link) = idle.pop() {
            if link.is_alive(now, IDLE_LIMIT, AGE_LIMIT) {
                return Some(link);
            }
        }
        None
    }

    /// Takes back a connection whose reply has ended; one that cannot carry another request is dropped.
    pub(super) fn put(&self, mut link: Box<Link>, now: Instant) {
        if link.settle(now) {
            let mut idle = self.lock();
            if idle.len() < MOST {
                idle.push(link);
            }
        }
    }

    /// Drops connections that are too old or were closed by the upstream.
    pub(super) fn sweep(&self, now: Instant) {
        self.lock().retain_mut(|link| link.is_alive(now, IDLE_LIMIT, AGE_LIMIT));
    }

    /// How many connections wait for a request.
    pub(super) fn idle(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
