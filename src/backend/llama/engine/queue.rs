//! Where requests wait for a slot: bounded, and refusing at once when full.
//!
//! Invariant: what was accepted is admitted, found cancelled, or told that the engine failed.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::job::{Job, Output};

/// Whether the engine serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend::llama) enum State {
    /// It loads or warms up.
    Loading,
    /// It serves.
    Ready,
    /// It has failed, or was stopped, and will not serve again.
    Down(String),
}

/// A request that was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend::llama) enum Rejected {
    /// Every place is taken.
    Full {
        /// Choices that wait.
        waiting: usize,
        /// When one of them will have been served, by what was seen lately.
        retry_after: Duration,
    },
    /// The engine still loads.
    Loading,
    /// The engine has failed.
    Down(String),
}

/// The way into the engine.
pub(in crate::backend::llama) struct Queue {
    inside: Mutex<Inside>,
    changed: Condvar,
    /// Slots and places to wait, together.
    room: usize,
    slots: usize,
}

struct Inside {
    state: State,
    waiting: VecDeque<Job>,
    /// Choices in a slot.
    running: usize,
    /// How long a choice holds its slot, averaged over the last ones. `None` before the first.
    holding: Option<Duration>,
}

impl Queue {
    /// A queue before `slots` slots in which `places` more choices may wait.
    pub(in crate::backend::llama) fn new(slots: usize, places: usize) -> Self {
        let inside = Inside { state: State::Loading, waiting: VecDeque::new(), running: 0, holding: None };
        Self { inside: Mutex::new(inside), changed: Condvar::new(), room: slots + places, slots }
    }

    /// How many choices one request may have at most.
    pub(in crate::backend::llama) fn room(&self) -> usize {
        self.room
    }

    /// Whether the engine serves.
    pub(in crate::backend::llama) fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Whether `choices` more would find room. Nothing is reserved.
    pub(in crate::backend::llama) fn check(&self, choices: usize) -> Result<(), Rejected> {
        let mut inside = self.lock();
        inside.forget_cancelled();
        self.accepts(&inside, choices)
    }

    /// Accepts all choices of a request, or none.
    pub(in crate::backend::llama) fn submit(&self, jobs: Vec<Job>) -> Result<(), Rejected> {
        let mut inside = self.lock();
        inside.forget_cancelled();
        self.accepts(&inside, jobs.len())?;
        inside.waiting.extend(jobs);
        self.changed.notify_all();
        Ok(())
    }

    /// Serves from now on.
    pub(super) fn open(&self) {
        let mut inside = self.lock();
        if inside.state == State::Loading {
            inside.state = State::Ready;
        }
    }

    /// Takes what may be admitted now, at most `free` choices. With `idle`, waits until there is something; `None` when
    /// the queue is closed.
    pub(super) fn take(&self, free: usize, idle: bool) -> Option<Vec<Job>> {
        let mut inside = self.lock();
        loop {
            if matches!(inside.state, State::Down(_)) {
                return None;
            }
            inside.forget_cancelled();
            if !inside.waiting.is_empty() || !idle {
                let count = inside.waiting.len().min(free);
                let taken: Vec<_> = inside.waiting.drain(..count).collect();
                inside.running += taken.len();
                return Some(taken);
            }
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A slot is free again, after `held`.
    pub(super) fn release(&self, held: Duration) {
        let mut inside = self.lock();
        inside.running -= 1;
        inside.holding = Some(inside.holding.map_or(held, |before| (before * 7 + held) / 8));
    }

    /// How many choices wait.
    pub(in crate::backend::llama) fn waiting(&self) -> usize {
        let mut inside = self.lock();
        inside.forget_cancelled();
        inside.waiting.len()
    }

    /// Accepts nothing any more; everyone who waits is told `why`.
    pub(in crate::backend::llama) fn close(&self, why: &str) {
        let mut inside = self.lock();
        if !matches!(inside.state, State::Down(_)) {
            inside.state = State::Down(why.to_owned());
        }
        for job in inside.waiting.drain(..) {
            job.tell(Output::Failed { problem: why.to_owned() });
        }
        self.changed.notify_all();
    }

    fn accepts(&self, inside: &Inside, choices: usize) -> Result<(), Rejected> {
        match &inside.state {
            State::Loading => return Err(Rejected::Loading),
            State::Down(why) => return Err(Rejected::Down(why.clone())),
            State::Ready => {}
        }
        let waiting = inside.waiting.len();
        if inside.running + waiting + choices <= self.room {
            return Ok(());
        }
        let rounds = (waiting + choices).div_ceil(self.slots);
        let each = inside.holding.unwrap_or(Duration::from_secs(1));
        let retry_after = each.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        Err(Rejected::Full { waiting, retry_after })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Who has left makes room at once.
    fn forget_cancelled(&mut self) {
        self.waiting.retain(|job| !job.is_cancelled());
    }
}

/// When a slot was taken, to tell how long it was held.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenancy(Instant);

impl Tenancy {
    pub(super) fn begin(at: Instant) -> Self {
        Self(at)
    }

    pub(super) fn held(self, until: Instant) -> Duration {
        until.saturating_duration_since(self.0)
    }
}
