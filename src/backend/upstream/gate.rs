//! A waker that stays silent while its own task is being polled.
//!
//! The connection and the body it feeds run inside one task. Each of them wakes the other through the channel between
//! them, which would reschedule the task it already runs in: one wasted poll per frame. A [`Gate`] notes such a
//! wake-up instead, and the poll loop goes round once more.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Forwards wake-ups to the task polled last, except while [`Gate::enter`] holds them back.
#[derive(Default)]
pub(super) struct Gate {
    inside: AtomicBool,
    noted: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Gate {
    /// Begins a poll by the task of `cx`: from now on wake-ups are noted, not forwarded.
    pub(super) fn enter(&self, cx: &Context<'_>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !task.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *task = Some(cx.waker().clone());
        }
        drop(task);
        self.inside.store(true, SeqCst);
        self.noted.store(false, SeqCst);
    }

    /// Whether something was woken since [`Gate::enter`] or the last call; it wants one more round.
    pub(super) fn take_noted(&self) -> bool {
        self.noted.swap(false, SeqCst)
    }

    /// Ends the poll: wake-ups are forwarded again. Returns whether one was noted that nobody took.
    pub(super) fn leave(&self) -> bool {
        self.inside.store(false, SeqCst);
        self.take_noted()
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Noted first: whichever thread this is, either `leave` sees the note or we see that it has left.
        self.noted.store(true, SeqCst);
        if self.inside.load(SeqCst) {
            return;
        }
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn wakes_are_noted_inside_and_forwarded_outside() {
        let count = Arc::new(Count::default());
        let outer = Waker::from(count.clone());
        let gate = Arc::new(Gate::default());
        let inner = Waker::from(gate.clone());

        gate.enter(&Context::from_waker(&outer));
        inner.wake_by_ref();
        assert!(gate.take_noted() && !gate.take_noted());
        inner.wake_by_ref();
        assert!(gate.leave());
        assert_eq!(count.0.load(SeqCst), 0);

        inner.wake_by_ref();
        assert_eq!(count.0.load(SeqCst), 1);
        gate.enter(&Context::from_waker(&outer));
        assert!(!gate.leave(), "a forwarded wake-up is not noted again");
    }
}
