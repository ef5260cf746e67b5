//! The metrics of one (backend, model, operation), looked up once and then at hand for every event.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter};

use super::families::Families;
use crate::measure::timeline::Gap;

/// Handles made at their first use: a histogram that was never observed does not appear.
pub(in crate::measure) struct Series {
    pub(super) families: Arc<Families>,
    pub(super) backend: Arc<str>,
    pub(super) model: Arc<str>,
    pub(super) operation: &'static str,
    ttft_upstream: OnceLock<Histogram>,
    ttft_client: OnceLock<Histogram>,
    itl_exact: OnceLock<Histogram>,
    itl_coalesced: OnceLock<Histogram>,
    token_events: OnceLock<IntCounter>,
    dwell: OnceLock<Histogram>,
    events_per_read: OnceLock<Histogram>,
    user_timestamps: OnceLock<IntCounter>,
}

impl Series {
    pub(super) fn new(families: Arc<Families>, backend: Arc<str>, model: Arc<str>, operation: &'static str) -> Self {
        Self {
            families,
            backend,
            model,
            operation,
            ttft_upstream: OnceLock::new(),
            ttft_client: OnceLock::new(),
            itl_exact: OnceLock::new(),
            itl_coalesced: OnceLock::new(),
            token_events: OnceLock::new(),
            dwell: OnceLock::new(),
            events_per_read: OnceLock::new(),
            user_timestamps: OnceLock::new(),
        }
    }

    /// The base labels' values.
    pub(super) fn base(&self) -> [&str; 3] {
        [&self.backend, &self.model, self.operation]
    }

    /// TTFT as the upstream is seen.
    pub(in crate::measure) fn ttft_upstream(&self, ttft: Duration) {
        self.labelled(&self.ttft_upstream, &self.families.ttft, "upstream").observe(ttft.as_secs_f64());
    }

    /// TTFT as the client sees it.
    pub(in crate::measure) fn ttft_client(&self, ttft: Duration) {
        self.labelled(&self.ttft_client, &self.families.ttft, "client").observe(ttft.as_secs_f64());
    }

    /// One gap: as many ITLs as the later event carries tokens.
    pub(in crate::measure) fn gap(&self, gap: Gap) {
        let itl = if gap.exact {
            self.labelled(&self.itl_exact, &self.families.itl, "exact")
        } else {
            self.labelled(&self.itl_coalesced, &self.families.itl, "coalesced")
        };
        let each = gap.time.as_secs_f64() / f64::from(gap.tokens);
        for _ in 0..gap.tokens {
            itl.observe(each);
        }
    }

    /// Token events, as they come.
    pub(in crate::measure) fn token_events(&self, count: u32) {
        let counter = || self.families.token_events.with_label_values(&self.base());
        self.token_events.get_or_init(counter).inc_by(u64::from(count));
    }

    /// Time between an event's read and its write.
    pub(super) fn dwell(&self) -> &Histogram {
        let made = || self.families.dwell.with_label_values(&[&*self.backend, self.operation]);
        self.dwell.get_or_init(made)
    }

    /// Events that one read brought.
    pub(super) fn events_per_read(&self) -> &Histogram {
        let made = || self.families.events_per_read.with_label_values(&[&*self.backend, self.operation]);
        self.events_per_read.get_or_init(made)
    }

    /// Events whose instant was read after their read returned.
    pub(super) fn user_timestamps(&self) -> &IntCounter {
        self.user_timestamps.get_or_init(|| self.families.timestamps.with_label_values(&["user"]))
    }

    fn labelled<'a>(&self, cell: &'a OnceLock<Histogram>, family: &HistogramVec, value: &str) -> &'a Histogram {
        cell.get_or_init(|| {
            let [backend, model, operation] = self.base();
            family.with_label_values(&[backend, model, operation, value])
        })
    }
}
