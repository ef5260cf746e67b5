//! The books: started = Σ outcomes + in flight, at every scrape.
//!
//! Each step of a request changes two of the three families. A scrape waits until no step is half done and then reads
//! all three, so that the sum holds however busy the proxy is.

use std::sync::{PoisonError, RwLock};

use prometheus::Registry;
use prometheus::core::Collector;
use prometheus::proto::{Metric, MetricFamily};

use super::families::LedgerFamilies;

/// The label value of a request that has no backend, model or status yet.
pub(super) const NONE: &str = "none";

/// Where a request ends up in the books.
pub(super) struct Entry<'a> {
    pub(super) backend: &'a str,
    pub(super) model: &'a str,
    pub(super) operation: &'static str,
    pub(super) outcome: &'static str,
    pub(super) status: &'a str,
    pub(super) stream: &'static str,
}

/// Keeps the books.
pub(in crate::measure) struct Ledger {
    registry: Registry,
    families: LedgerFamilies,
    /// Held for reading by steps, for writing by scrapes.
    half_done: RwLock<()>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        let registry = Registry::new();
        let families = LedgerFamilies::new(&registry);
        Self { registry, families, half_done: RwLock::new(()) }
    }

    /// A request begins.
    pub(in crate::measure) fn started(&self, operation: &'static str) {
        self.step(|families| {
            families.started.with_label_values(&[operation]).inc();
            families.in_flight.with_label_values(&[NONE, operation]).inc();
        });
    }

    /// It is known which backend it goes to.
    pub(in crate::measure) fn routed(&self, operation: &'static str, backend: &str) {
        self.step(|families| {
            families.in_flight.with_label_values(&[NONE, operation]).dec();
            families.in_flight.with_label_values(&[backend, operation]).inc();
        });
    }

    /// It is over.
    pub(super) fn ended(&self, entry: &Entry<'_>) {
        let Entry { backend, model, operation, outcome, status, stream } = *entry;
        self.step(|families| {
            families.in_flight.with_label_values(&[backend, operation]).dec();
            families.requests.with_label_values(&[backend, model, operation, outcome, status, stream]).inc();
        });
    }

    /// Requests that go to `backend` and are not over.
    pub(super) fn in_flight(&self, backend: &str) -> i64 {
        let families = self.families.in_flight.collect();
        let names = |metric: &Metric| metric.get_label().iter().any(|l| l.name() == "backend" && l.value() == backend);
        let all = families.iter().flat_map(MetricFamily::get_metric);
        #[allow(clippy::cast_possible_truncation)] // a small whole number
        all.filter(|metric| names(metric)).map(|metric| metric.get_gauge().get_value() as i64).sum()
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let _none_half_done = self.half_done.write().unwrap_or_else(PoisonError::into_inner);
        self.registry.gather()
    }

    fn step(&self, step: impl FnOnce(&LedgerFamilies)) {
        let _half_done = self.half_done.read().unwrap_or_else(PoisonError::into_inner);
        step(&self.families);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_with_an_operations_name_has_only_its_own_requests_in_flight() {
        let ledger = Ledger::new();
        ledger.started("chat");
        assert_eq!((ledger.in_flight("chat"), ledger.in_flight(NONE)), (0, 1));
        ledger.routed("chat", "chat");
        ledger.started("chat");
        ledger.routed("chat", "other");
        assert_eq!((ledger.in_flight("chat"), ledger.in_flight("other"), ledger.in_flight(NONE)), (1, 1, 0));
    }
}
