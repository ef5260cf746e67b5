//! What an engine in this process does: its steps and its slots.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::families::EngineFamilies;

/// The metrics of one backend's engine. Nothing is there before the first step.
pub struct EngineMeter {
    families: Arc<EngineFamilies>,
    backend: Arc<str>,
    handles: Option<Handles>,
}

struct Handles {
    step: Histogram,
    batch: Histogram,
    prefill: IntCounter,
    slots: IntGauge,
    waiting: IntGauge,
}

impl EngineMeter {
    pub(super) fn new(families: Arc<EngineFamilies>, backend: Arc<str>) -> Self {
        Self { families, backend, handles: None }
    }

    /// A step ran `sequences` sequences, `prefill_tokens` prompt tokens among what it computed, and took `took`.
    pub fn step(&mut self, sequences: usize, prefill_tokens: usize, took: Duration) {
        let handles = self.handles();
        handles.step.observe(took.as_secs_f64());
        handles.batch.observe(sequences as f64);
        handles.prefill.inc_by(prefill_tokens as u64);
    }

    /// So many K/V slots are in use, and so many choices wait for one.
    pub fn occupied(&mut self, slots: usize, waiting: usize) {
        let handles = self.handles();
        handles.slots.set(i64::try_from(slots).unwrap_or(i64::MAX));
        handles.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    fn handles(&mut self) -> &Handles {
        let Self { families, backend, handles } = self;
        handles.get_or_insert_with(|| {
            let label = [&**backend];
            Handles {
                step: families.step.with_label_values(&label),
                batch: families.batch.with_label_values(&label),
                prefill: families.prefill.with_label_values(&label),
                slots: families.slots.with_label_values(&label),
                waiting: families.waiting.with_label_values(&label),
            }
        })
    }
}
