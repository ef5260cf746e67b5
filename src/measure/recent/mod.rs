//! The last exchanges and the last minutes, in memory: what the live page shows.
//!
//! A [`Recent`] listens to the same finished fact as the metrics. It keeps the last exchanges one by one, and per backend
//! sliding percentiles.
//!
//! Invariant: memory is bounded, whatever the traffic and whoever looks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

mod histogram;
mod window;

use super::exchange::Exchange;
use super::metrics::Listener;
pub use window::{SLOT, SLOTS, Shown, Summary, WINDOW, WindowNow};
use window::{Sample, Window};

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
///
/// Those who serve wait for a row being added, for numbers being counted, and at most twice a second for the merging of a
/// backend's histograms.
pub struct Recent {
    rows: Mutex<Rows>,
    windows: Vec<(Arc<str>, Mutex<Window>)>,
    /// What was last said of the windows, and when: many may ask at once.
    said: Mutex<Option<(Instant, Windows)>>,
}

/// Each backend's last minutes.
pub type Windows = Arc<[(Arc<str>, WindowNow)]>;

/// For so long an answer about the last minutes holds.
const FRESH: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Rows {
    kept: VecDeque<Row>,
    track_bytes: usize,
    /// The number of the last row.
    last: u64,
}

impl Recent {
    /// Nothing yet, at `now`, of these backends.
    pub fn new(backends: impl IntoIterator<Item = Arc<str>>, now: Instant) -> Self {
        let windows = backends.into_iter().map(|name| (name, Mutex::new(Window::new(now)))).collect();
        Self { rows: Mutex::default(), windows, said: Mutex::new(None) }
    }

    /// What is to be told every finished exchange.
    pub fn listener(self: &Arc<Self>) -> Listener {
        let recent = self.clone();
        Box::new(move |exchange| recent.finished(exchange))
    }

    fn finished(&self, exchange: &Exchange) {
        if let (Some(backend), Some(end)) = (&exchange.backend, exchange.marks.end)
            && let Some((_, window)) = self.windows.iter().find(|(name, _)| name == backend)
            && exchange.measured
        {
            // The work is done before the lock is taken.
            let sample = Sample::of(exchange);
            lock(window).add(&sample, end);
        }
        let exchange = Arc::new(exchange.clone());
        let mut rows = lock(&self.rows);
        let rows = &mut *rows;
        rows.last += 1;
        rows.track_bytes += exchange.track.size();
        rows.kept.push_back(Row { number: rows.last, exchange });
        while rows.kept.len() > 1 && (rows.kept.len() > MOST_ROWS || rows.track_bytes > MOST_TRACK_BYTES) {
            if let Some(oldest) = rows.kept.pop_front() {
                rows.track_bytes -= oldest.exchange.track.size();
            }
        }
    }

    /// The newest exchanges after number `seen`, oldest first: at most `rows`, with at most `track_bytes` of tracks beyond
    /// the newest. Also the number of the newest there is; what lies between and was not returned is left out.
    pub fn after(&self, seen: u64, rows: usize, track_bytes: usize) -> (Vec<Row>, u64) {
        let all = lock(&self.rows);
        let mut room = track_bytes;
        let newest = all.kept.iter().rev().take_while(|row| row.number > seen).take(rows);
        let fits = newest.enumerate().take_while(|(index, row)| {
            let size = row.exchange.track.size();
            let fits = *index == 0 || size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let mut found: Vec<Row> = fits.map(|(_, row)| row.clone()).collect();
        found.reverse();
        (found, all.last)
    }

    /// Each backend's last minutes, seen at `now` or just before.
    pub fn windows(&self, now: Instant) -> Windows {
        let mut said = lock(&self.said);
        if let Some((at, windows)) = &*said
            && now.saturating_duration_since(*at) < FRESH
            && now >= *at
        {
            return windows.clone();
        }
        let windows: Windows = self.windows.iter().map(|(name, window)| (name.clone(), lock(window).at(now))).collect();
        *said = Some((now, windows.clone()));
        windows
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
