//! The metrics a case is measured by, and how to read counts from them.

use std::sync::{Arc, Mutex};

use streamgauge::measure::{Exchange, Meter, Setup};

use super::expected::Reference;

/// A meter and the exchanges it tells of.
pub(super) struct Bench {
    pub(super) meter: Arc<Meter>,
    pub(super) backend: Arc<str>,
    pub(super) exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let exchanges: Arc<Mutex<Vec<Exchange>>> = Arc::default();
        let kept = exchanges.clone();
        let listener = Box::new(move |exchange: &Exchange| kept.lock().unwrap().push(exchange.clone()));
        let backend: Arc<str> = "upstream".into();
        let setup = Setup { backends: vec![(backend.clone(), 8, vec!["m".into()])], objectives: Vec::new() };
        Self { meter: Arc::new(Meter::new(setup, vec![listener])), backend, exchanges }
    }

    /// What the metrics say.
    pub(super) fn counts(&self) -> Counts {
        let text = self.meter.render();
        let itl = |timing| sample(&text, "streamgauge_inter_token_latency_seconds_count", timing);
        Counts {
            ttft: sample(&text, "streamgauge_time_to_first_token_seconds_count", r#"vantage="upstream""#),
            exact: itl(r#"timing="exact""#),
            coalesced: itl(r#"timing="coalesced""#),
            token_events: sample(&text, "streamgauge_token_events_total", ""),
            events: sample(&text, "streamgauge_events_per_read_sum", ""),
            reads: sample(&text, "streamgauge_events_per_read_count", ""),
        }
    }
}

/// Counts as the metrics have them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    ttft: u64,
    pub(super) exact: u64,
    pub(super) coalesced: u64,
    token_events: u64,
    events: u64,
    /// Reads that completed at least one event.
    reads: u64,
}

impl Counts {
    pub(super) fn add(&mut self, ttft: u64, reference: &Reference) {
        self.ttft += ttft;
        self.exact += reference.exact;
        self.coalesced += reference.coalesced;
        self.token_events += reference.token_events;
        self.events += reference.events;
        self.reads += reference.reads;
    }
}

fn sample(text: &str, name: &str, label: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.map_or(0, |value| value.parse().expect("a whole number"))
}
