//! Metrics: one registry of our own, fed live by [`Series`] and at the end of each exchange by [`Meter::finished`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

mod connections;
mod engine;
mod families;
mod finished;
mod ledger;
mod mirror;
mod models;
mod own_error;
mod series;

use super::exchange::Exchange;
pub use connections::ConnectionMeter;
pub use engine::EngineMeter;
use families::{EngineFamilies, Families};
use ledger::Ledger;
use ledger::NONE;
pub use mirror::MirrorMeter;
use models::{Label, Models};
pub(in crate::measure) use own_error::OwnError;
pub(in crate::measure) use series::Series;

/// What the decoders of all replies may take together, in MiB; replies beyond are not looked into.
const MOST_DECODING_MIB: usize = 512;
/// The label of a model whose name may not be one.
const OTHER: &str = "other";

/// What metrics need to know of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Each backend's name, how many model names it may prove, and the names the configuration gives it.
    pub backends: Vec<(Arc<str>, usize, Vec<String>)>,
    /// The objectives every streamed request is judged by.
    pub objectives: Vec<Objective>,
}

/// One service level objective. A limit left out is met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objective {
    /// The value of the `slo` label.
    pub name: String,
    /// The most TTFT may be, vantage `client`.
    pub ttft: Option<Duration>,
    /// The most TPOT may be; a reply that has no TPOT meets it.
    pub tpot: Option<Duration>,
}

/// Someone who is told every finished exchange.
pub type Listener = Box<dyn Fn(&Exchange) + Send + Sync>;

/// All metrics of one process, and those who want to know of finished exchanges.
pub struct Meter {
    registry: Registry,
    families: Arc<Families>,
    engines: Arc<EngineFamilies>,
    connections: ConnectionMeter,
    ledger: Ledger,
    models: Models,
    objectives: Vec<Objective>,
    series: RwLock<HashMap<SeriesKey, Arc<Series>>>,
    listeners: Vec<Listener>,
    cutting_off: AtomicBool,
    /// Clients' requests in flight.
    at_once: AtomicUsize,
    /// What decoders may still take, in MiB.
    decoding: Arc<Semaphore>,
}

/// Backend, model, operation.
type SeriesKey = (Arc<str>, Arc<str>, &'static str);

impl Meter {
    /// Metrics with nothing in them.
    pub fn new(setup: Setup, listeners: Vec<Listener>) -> Self {
        let registry = Registry::new();
        Self {
            families: Arc::new(Families::new(&registry)),
            engines: Arc::new(EngineFamilies::new(&registry)),
            connections: ConnectionMeter::new(&registry),
            registry,
            ledger: Ledger::new(),
            models: Models::new(setup.backends),
            objectives: setup.objectives,
            series: RwLock::default(),
            listeners,
            cutting_off: AtomicBool::new(false),
            at_once: AtomicUsize::new(0),
            decoding: Arc::new(Semaphore::new(MOST_DECODING_MIB)),
        }
    }

    /// The books of started, running and finished requests.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Requests that go to `backend` and are not over.
    pub fn in_flight(&self, backend: &str) -> i64 {
        self.ledger.in_flight(backend)
    }

    /// A client's request begins. Returns how many are in flight now, it included.
    pub(super) fn enter(&self) -> usize {
        self.at_once.fetch_add(1, Relaxed) + 1
    }

    /// One that began is over.
    pub(super) fn leave(&self) {
        self.at_once.fetch_sub(1, Relaxed);
    }

    /// Room for a decoder of so many MiB, until it is dropped. `None` where those of other replies leave none.
    pub(super) fn room_to_decode(&self, mib: u32) -> Option<OwnedSemaphorePermit> {
        self.decoding.clone().try_acquire_many_owned(mib).ok()
    }

    /// From now on a reply that is dropped was cut off by the shutdown, not by its client.
    pub fn cut_off(&self) {
        self.cutting_off.store(true, Relaxed);
    }

    pub(super) fn is_cutting_off(&self) -> bool {
        self.cutting_off.load(Relaxed)
    }

    /// The metrics of clients' connections.
    pub fn connections(&self) -> &ConnectionMeter {
        &self.connections
    }

    /// The metrics of the engine behind `backend`.
    pub fn engine(&self, backend: &Arc<str>) -> EngineMeter {
        EngineMeter::new(self.engines.clone(), backend.clone())
    }

    /// Everything, in Prometheus' text format 0.0.4.
    pub fn render(&self) -> String {
        let mut families = self.ledger.gather();
        families.extend(self.registry.gather());
        let mut text = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&families, &mut text) {
            tracing::error!(%error, "metrics cannot be rendered");
        }
        text
    }

    pub(super) fn series(&self, backend: &Arc<str>, model: &Arc<str>, operation: &'static str) -> Arc<Series> {
        let key = (backend.clone(), model.clone(), operation);
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let made = || Arc::new(Series::new(self.families.clone(), backend.clone(), model.clone(), operation));
            let mut all = self.series.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(key).or_insert_with(made).clone()
        })
    }

    /// The label of the model that `requested` names; `succeeded` when the backend has just answered 2xx for it.
    pub(super) fn model_label(&self, backend: Option<&Arc<str>>, requested: Option<&str>, succeeded: bool) -> Arc<str> {
        let (Some(backend), Some(name)) = (backend, requested) else { return NONE.into() };
        match self.models.label(backend, name, succeeded) {
            Label::Name(name) => name,
            Label::Unproven => OTHER.into(),
            Label::Overflow => {
                self.families.label_overflow.inc();
                OTHER.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_have_so_much_room_together_and_give_it_back() {
        let meter = Meter::new(Setup::default(), Vec::new());
        let most = u32::try_from(MOST_DECODING_MIB).unwrap();
        let first = meter.room_to_decode(most - 16);
        assert!(first.is_some() && meter.room_to_decode(17).is_none());
        let second = meter.room_to_decode(16);
        assert!(second.is_some() && meter.room_to_decode(1).is_none());
        drop(first);
        assert!(meter.room_to_decode(16).is_some());
    }
}
