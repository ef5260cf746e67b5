//! How far loading has come, for everyone who waits for it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::LoadError;
use super::loaded::Loaded;

/// What the engine's thread tells of its start.
#[derive(Default)]
pub(super) struct Loading {
    loaded: Mutex<Option<Result<Arc<Loaded>, Arc<LoadError>>>>,
    changed: Condvar,
    abandoned: AtomicBool,
}

impl Loading {
    /// Nobody wants the model any more. What is told after this finds it; what was told before can be looked up.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, SeqCst);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(SeqCst)
    }

    pub(super) fn tell(&self, loaded: Result<Arc<Loaded>, Arc<LoadError>>) {
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        self.changed.notify_all();
    }

    pub(super) fn now(&self) -> Option<Result<Arc<Loaded>, Arc<LoadError>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn loaded(&self) -> Option<Arc<Loaded>> {
        self.now()?.ok()
    }

    pub(super) fn wait(&self) -> Result<Arc<Loaded>, Arc<LoadError>> {
        let guard = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let told = self.changed.wait_while(guard, |told| told.is_none()).unwrap_or_else(PoisonError::into_inner);
        match &*told {
            Some(told) => told.clone(),
            None => unreachable!("waited for it"),
        }
    }
}
