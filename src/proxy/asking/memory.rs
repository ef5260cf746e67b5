//! Which models do not take one thing that is asked of them beyond the request.
//!
//! Invariants:
//! * A refusal may be one request's own affair, so several in a row decide, a success between them undoes them, and after
//!   [`FORGOTTEN`] a model is asked again.
//! * At most [`MOST_MODELS`] models are remembered, and those told least lately go first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many models of a backend are remembered, for each thing asked.
const MOST_MODELS: usize = 256;
/// The longest name that is remembered, in bytes.
const LONGEST_NAME: usize = 256;
/// How many refusals in a row mean that a model refuses.
pub(super) const ENOUGH: u8 = 3;
/// How long after the last refusal a model is asked as if for the first time.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// How a backend's models take one thing that is asked of them; of those that take it nothing is kept.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<Box<str>, Refusals>>);

#[derive(Debug, Clone, Copy)]
struct Refusals {
    /// In a row.
    count: u8,
    last: Instant,
}

impl Memory {
    /// Whether the model is known to refuse.
    pub(super) fn refuses(&self, model: &str, now: Instant) -> bool {
        self.lock().get(model).is_some_and(|known| known.count >= ENOUGH && !known.is_forgotten(now))
    }

    /// The model took it.
    pub(super) fn took(&self, model: &str) {
        self.lock().remove(model);
    }

    /// The model refused so many times. Returns whether it is known to refuse from now on, and was not before.
    pub(super) fn refused(&self, model: &str, times: u8, now: Instant) -> bool {
        if model.len() > LONGEST_NAME {
            return false;
        }
        let mut models = self.lock();
        if models.len() >= MOST_MODELS && !models.contains_key(model) {
            let oldest = models.iter().min_by_key(|(_, known)| known.last).map(|(model, _)| model.clone());
            oldest.and_then(|model| models.remove(&model));
        }
        let known = models.entry(model.into()).or_insert(Refusals { count: 0, last: now });
        if known.is_forgotten(now) {
            known.count = 0;
        }
        let before = known.count;
        *known = Refusals { count: before.saturating_add(times), last: now };
        before < ENOUGH && known.count >= ENOUGH
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Refusals>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Refusals {
    fn is_forgotten(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= FORGOTTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_decide_and_a_success_undoes_them() {
        let (memory, now) = (Memory::default(), Instant::now());
        assert!(!memory.refused("m", 1, now) && !memory.refused("m", 1, now));
        memory.took("m");
        assert!(!memory.refused("m", 1, now) && !memory.refused("m", 1, now) && !memory.refuses("m", now));
        assert!(memory.refused("m", 1, now) && memory.refuses("m", now) && !memory.refuses("n", now));
        assert!(!memory.refused("m", 1, now), "it is new once");
        assert!(memory.refused("n", ENOUGH, now) && memory.refuses("n", now));
    }

    #[test]
    fn a_refusal_is_forgotten() {
        let (memory, now) = (Memory::default(), Instant::now());
        memory.refused("m", ENOUGH, now);
        let later = now + FORGOTTEN;
        assert!(memory.refuses("m", now + FORGOTTEN / 2) && !memory.refuses("m", later));
        assert!(!memory.refused("m", 1, later) && !memory.refuses("m", later), "it begins anew");
    }

    #[test]
    fn the_oldest_goes_where_there_are_too_many() {
        let (memory, now) = (Memory::default(), Instant::now());
        memory.refused("first", ENOUGH, now);
        for number in 1..=MOST_MODELS {
            memory.refused(&number.to_string(), ENOUGH, now + Duration::from_secs(1));
        }
        assert_eq!(memory.lock().len(), MOST_MODELS);
        assert!(!memory.refuses("first", now) && memory.refuses("1", now) && memory.refuses("256", now));
        assert!(!memory.refused(&"x".repeat(LONGEST_NAME + 1), ENOUGH, now));
    }
}
