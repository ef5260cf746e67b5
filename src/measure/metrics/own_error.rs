//! Our own error, as one exchange sees it: dwell, and how many events each read brought.
//!
//! Both are observed for every event and say something only in numbers, so they are collected here without a locked
//! instruction and told in batches.
//!
//! Invariant: what was collected is told at the latest when this is dropped.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Histogram;
use prometheus::local::LocalHistogram;

use super::series::Series;
use crate::measure::timeline::ReadSummary;

/// Reads between two tellings: half a second of a stream of 64 tokens a second.
const BATCH: u32 = 32;

/// What one exchange adds to the metrics about ourselves.
pub(in crate::measure) struct OwnError {
    series: Arc<Series>,
    /// Made when first observed, so that a histogram without observations does not appear.
    dwell: Option<LocalHistogram>,
    events_per_read: Option<LocalHistogram>,
    events: u64,
    reads: u32,
    /// An engine in this process made the events: there was no read, and their instants are its own.
    engine: bool,
}

impl OwnError {
    pub(in crate::measure) fn new(series: Arc<Series>, engine: bool) -> Self {
        Self { series, dwell: None, events_per_read: None, events: 0, reads: 0, engine }
    }

    /// The time `events` events of one frame spent here.
    pub(in crate::measure) fn dwell(&mut self, dwell: Duration, events: u32) {
        let histogram = local(&mut self.dwell, || self.series.dwell());
        for _ in 0..events {
            histogram.observe(dwell.as_secs_f64());
        }
    }

    /// What one read brought.
    pub(in crate::measure) fn read(&mut self, read: ReadSummary) {
        if !self.engine {
            local(&mut self.events_per_read, || self.series.events_per_read()).observe(f64::from(read.events));
        }
        self.events += u64::from(read.events);
        self.reads += 1;
        if self.reads == BATCH {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.reads = 0;
        for histogram in [&self.dwell, &self.events_per_read].into_iter().flatten() {
            histogram.flush();
        }
        if self.events > 0 {
            self.series.timestamps(self.engine).inc_by(std::mem::take(&mut self.events));
        }
    }
}

impl Drop for OwnError {
    fn drop(&mut self) {
        self.tell();
    }
}

fn local<'a>(slot: &'a mut Option<LocalHistogram>, shared: impl FnOnce() -> &'a Histogram) -> &'a LocalHistogram {
    slot.get_or_insert_with(|| shared().local())
}
