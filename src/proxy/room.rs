//! Room for what is put together or unpacked here: what all threads hold of it at once is bounded.
//!
//! Invariants:
//! * All [`Share`]s together hold at most [`MOST`] bytes, about; each counts until it is dropped.
//! * A share is only begun where [`KEPT_TO_GROW`] bytes are left for those that have begun.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all shares hold together, in bytes.
pub(super) const MOST: usize = 512 << 20;
/// What of it only shares that have begun may take.
const KEPT_TO_GROW: usize = MOST / 4;
/// What is handed out at once, in bytes: most need no more.
const UNIT: usize = 64 << 10;

/// The room.
#[derive(Debug)]
pub(super) struct Room(Arc<Semaphore>);

/// What one of them has of it.
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Semaphore>,
    held: OwnedSemaphorePermit,
}

/// Bytes that are counted as long as anyone has them.
struct Counted {
    bytes: Bytes,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Room {
    /// With nothing in it.
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST / UNIT)))
    }

    /// A share for one more. `None` where those of others leave none.
    pub(super) fn begin(&self) -> Option<Share> {
        if self.0.available_permits() <= KEPT_TO_GROW / UNIT {
            return None;
        }
        let held = self.0.clone().try_acquire_owned().ok()?;
        Some(Share { room: self.0.clone(), held })
    }
}

impl Share {
    /// The same bytes, for which the share counts as long as anyone has them or a part of them.
    pub(super) fn kept_for(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Counted { bytes, _share: self.clone() })
    }

    /// Makes it hold so many bytes at least. Returns whether there was room.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let missing = bytes.div_ceil(UNIT).saturating_sub(self.held.num_permits());
        if missing == 0 {
            return true;
        }
        let Some(more) =
            u32::try_from(missing).ok().and_then(|more| self.room.clone().try_acquire_many_owned(more).ok())
        else {
            return false;
        };
        self.held.merge(more);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_bounded_together_and_those_begun_may_grow() {
        let room = Room::new();
        let mut first = room.begin().unwrap();
        assert!(first.hold(UNIT) && first.held.num_permits() == 1);
        assert!(first.hold(MOST - KEPT_TO_GROW) && room.begin().is_none(), "what is left is for those that have begun");
        assert!(first.hold(MOST) && !first.hold(MOST + 1));
        drop(first);
        let mut second = room.begin().unwrap();
        assert!(!second.hold(MOST + 1) && !second.hold(usize::MAX) && second.hold(MOST));
    }
}
