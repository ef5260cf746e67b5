//! What all connections of a simulation share: its configuration, its counters and what it saw of its peers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::http::Request;
use super::peer::{Departure, Left};
use super::{SimConfig, log};

/// Connections and requests of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted so far.
    pub opened: u64,
    /// Connections open now.
    pub open: u64,
    /// Requests read to their last byte so far.
    pub requests: u64,
    /// Requests whose reply is over, well or badly. Their log is complete: an entry is written after the event it tells
    /// of, so a client can be ahead of the log.
    pub finished: u64,
}

/// A connection that its peer ended.
#[derive(Debug, Clone)]
pub struct Departed {
    /// The connection's number, counted from 1.
    pub conn: u64,
    /// The request it abandoned. `None` when none was being answered.
    pub request: Option<Arc<str>>,
    /// In order or by reset.
    pub how: Departure,
    /// When it was noticed.
    pub at: Instant,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// The connection's number, counted from 1.
    pub conn: u64,
    /// The name under which the log knows it.
    pub name: Arc<str>,
    /// The request itself.
    pub request: Request,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) config: SimConfig,
    opened: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    finished: AtomicU64,
    departures: Mutex<Vec<Departed>>,
    received: Mutex<Vec<Received>>,
}

impl State {
    pub(super) fn new(config: SimConfig) -> Self {
        Self {
            config,
            opened: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            departures: Mutex::default(),
            received: Mutex::default(),
        }
    }

    /// Counts a connection in, and out again when the place is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        self.open.fetch_add(1, Ordering::Relaxed);
        Place { conn: self.opened.fetch_add(1, Ordering::Relaxed) + 1, state: Arc::clone(self) }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            opened: self.opened.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            finished: self.finished.load(Ordering::Acquire),
        }
    }

    pub(super) fn departures(&self) -> Vec<Departed> {
        lock(&self.departures).clone()
    }

    pub(super) fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }
}

/// One connection's place in the simulation.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) conn: u64,
    pub(super) state: Arc<State>,
}

impl Place {
    /// Counts a request in; the number names it if nothing else does.
    pub(super) fn request(&self) -> u64 {
        self.state.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a request's reply as over; everything it logged has been delivered.
    pub(super) fn finished(&self) {
        self.state.finished.fetch_add(1, Ordering::Release);
    }

    /// Keeps a request in memory and in the record, where the configuration wants it.
    pub(super) fn keep(&self, name: &Arc<str>, request: &Request) {
        if let Some(record) = &self.state.config.requests {
            record.write(name, request);
        }
        if self.state.config.keep_requests {
            let received = Received { conn: self.conn, name: Arc::clone(name), request: request.clone() };
            lock(&self.state.received).push(received);
        }
    }

    pub(super) fn departed(&self, request: Option<Arc<str>>, left: Left) {
        // Enough for any test; an hour-long load run must not grow for it.
        const MOST: usize = 100_000;
        let mut departures = lock(&self.state.departures);
        if departures.len() < MOST {
            departures.push(Departed { conn: self.conn, request, how: left.how, at: left.at });
        }
    }

    pub(super) fn recorder(&self) -> log::Recorder {
        log::Recorder::new(self.state.config.log.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.state.open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
