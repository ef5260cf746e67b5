//! The last exchanges and the last minutes, in memory: what the live page shows.
//!
//! A [`Recent`] listens to the same finished fact as the metrics. It keeps the last exchanges one by one, and per backend
//! sliding percentiles.
//!
//! Invariant: memory is bounded, whatever the traffic and whoever looks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

mod histogram;
mod window;

use super::exchange::Exchange;
use super::metrics::Listener;
use window::Window;
pub use window::{SLOT, SLOTS, Summary, WINDOW, WindowNow};

/// The most exchanges kept one by one.
const MOST_ROWS: usize = 512;
/// The most bytes their tracks take together. The newest is always kept.
const MOST_TRACK_BYTES: usize = 4 << 20;

/// One finished exchange and its number, counted from 1.
#[derive(Debug, Clone)]
pub struct Row {
    /// Grows by one with every finished exchange.
    pub number: u64,
    /// The fact itself.
    pub exchange: Arc<Exchange>,
}

/// The last exchanges, and per backend the last minutes.
pub struct Recent {
    state: Mutex<State>,
}

struct State {
    rows: VecDeque<Row>,
    track_bytes: usize,
    /// The number of the last row.
    last: u64,
    windows: Vec<(Arc<str>, Window)>,
}

impl Recent {
    /// Nothing yet, at `now`, of these backends.
    pub fn new(backends: impl IntoIterator<Item = Arc<str>>, now: Instant) -> Self {
        let windows = backends.into_iter().map(|name| (name, Window::new(now))).collect();
        let state = State { rows: VecDeque::new(), track_bytes: 0, last: 0, windows };
        Self { state: Mutex::new(state) }
    }

    /// What is to be told every finished exchange.
    pub fn listener(self: &Arc<Self>) -> Listener {
        let recent = self.clone();
        Box::new(move |exchange| recent.finished(exchange))
    }

    fn finished(&self, exchange: &Exchange) {
        let row = Arc::new(exchange.clone());
        let mut state = self.lock();
        let state = &mut *state;
        if let (Some(backend), Some(end)) = (&exchange.backend, exchange.marks.end)
            && let Some((_, window)) = state.windows.iter_mut().find(|(name, _)| name == backend)
        {
            window.add(exchange, end);
        }
        state.last += 1;
        state.track_bytes += row.track.size();
        state.rows.push_back(Row { number: state.last, exchange: row });
        while state.rows.len() > 1 && (state.rows.len() > MOST_ROWS || state.track_bytes > MOST_TRACK_BYTES) {
            if let Some(oldest) = state.rows.pop_front() {
                state.track_bytes -= oldest.exchange.track.size();
            }
        }
    }

    /// The newest exchanges after number `seen`, oldest first: at most `rows`, with at most `track_bytes` of tracks beyond
    /// the newest. Also the number of the newest there is; what lies between and was not returned is left out.
    pub fn after(&self, seen: u64, rows: usize, track_bytes: usize) -> (Vec<Row>, u64) {
        let state = self.lock();
        let mut room = track_bytes;
        let newest = state.rows.iter().rev().take_while(|row| row.number > seen).take(rows);
        let fits = newest.enumerate().take_while(|(index, row)| {
            let size = row.exchange.track.size();
            let fits = *index == 0 || size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let mut found: Vec<Row> = fits.map(|(_, row)| row.clone()).collect();
        found.reverse();
        (found, state.last)
    }

    /// Each backend's last minutes, seen at `now`.
    pub fn windows(&self, now: Instant) -> Vec<(Arc<str>, WindowNow)> {
        self.lock().windows.iter_mut().map(|(name, window)| (name.clone(), window.at(now))).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
