//! How much of this process its clients may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How connections are treated.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest request head, its first line included, in bytes.
    pub header_bytes: usize,
    /// How long a client may take over a request's head or the TLS handshake, and stay idle. In the clear it begins anew
    /// with the byte that shows which HTTP the client speaks.
    pub header_timeout: Duration,
    /// How long a client may accept nothing of what waits for it.
    pub write_timeout: Duration,
    /// After the shutdown signal: how long open requests may take to finish.
    pub drain_timeout: Duration,
    /// Room for connections, shared by all listeners that draw on it.
    pub places: Arc<Places>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(300),
            drain_timeout: Duration::from_secs(30),
            places: Places::new(10_000),
        }
    }
}

/// Room for a number of connections.
#[derive(Debug)]
pub struct Places {
    most: usize,
    taken: AtomicUsize,
}

impl Places {
    /// Room for `most` connections at once.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0) })
    }

    /// A place, held until it is dropped. `None` while all are taken.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let place = Place(self.clone());
        (self.taken.fetch_add(1, Relaxed) < self.most).then_some(place)
    }
}

/// A place that is taken.
pub(super) struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_left_and_a_refusal_takes_none() {
        let places = Places::new(2);
        let (first, second) = (places.take(), places.take());
        assert!(first.is_some() && second.is_some());
        assert!(places.take().is_none() && places.take().is_none());
        drop(first);
        let third = places.take();
        assert!(third.is_some() && places.take().is_none());
        drop((second, third));
        assert_eq!(places.taken.load(Relaxed), 0);
    }
}
