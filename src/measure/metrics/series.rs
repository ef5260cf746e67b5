//! The metrics of one (backend, model, operation), looked up once and then at hand for every event.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{Counter, Histogram, HistogramVec, IntCounter};

use super::families::Families;
use super::finished::stream_label;
use crate::measure::intervals::{Phase, Source};
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
    timestamps: OnceLock<IntCounter>,
    durations: [OnceLock<Histogram>; 3],
    phases: [OnceLock<Histogram>; Phase::COUNT],
    output_tokens: [OnceLock<Histogram>; 3],
    prompt_tokens: [OnceLock<Histogram>; 3],
    tokens: [OnceLock<Counter>; 7],
}

/// The kinds of tokens that are counted, with their labels: type and source.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tokens {
    Input,
    InputByTokenizer,
    Output,
    OutputByTokenizer,
    OutputByEvents,
    Reasoning,
    Cached,
}

impl Tokens {
    fn labels(self) -> [&'static str; 2] {
        let (kind, source) = match self {
            Self::Input => ("input", Source::Usage),
            Self::InputByTokenizer => ("input", Source::Tokenizer),
            Self::Output => ("output", Source::Usage),
            Self::OutputByTokenizer => ("output", Source::Tokenizer),
            Self::OutputByEvents => ("output", Source::Events),
            Self::Reasoning => ("reasoning", Source::Usage),
            Self::Cached => ("cached", Source::Usage),
        };
        [kind, source.label()]
    }
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
            timestamps: OnceLock::new(),
            durations: Default::default(),
            phases: Default::default(),
            output_tokens: Default::default(),
            prompt_tokens: Default::default(),
            tokens: Default::default(),
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

    /// Events by where their instant comes from: an engine's own, or read after their read returned.
    pub(super) fn timestamps(&self, engine: bool) -> &IntCounter {
        // A backend is one or the other, so one cell serves.
        let source = if engine { "engine" } else { "user" };
        self.timestamps.get_or_init(|| self.families.timestamps.with_label_values(&[source]))
    }

    /// Durations of requests that asked for a stream, for none, or for nothing that is known.
    pub(super) fn duration(&self, stream: Option<bool>) -> &Histogram {
        let cell = &self.durations[stream.map_or(2, usize::from)];
        self.labelled(cell, &self.families.duration, stream_label(stream))
    }

    /// Time spent in one phase.
    pub(super) fn phase(&self, phase: Phase) -> &Histogram {
        self.labelled(&self.phases[phase as usize], &self.families.phase, phase.label())
    }

    /// Output tokens of a request.
    pub(super) fn output_tokens(&self, source: Source) -> &Histogram {
        self.labelled(&self.output_tokens[source as usize], &self.families.output_tokens, source.label())
    }

    /// Prompt tokens of a request.
    pub(super) fn prompt_tokens(&self, source: Source) -> &Histogram {
        self.labelled(&self.prompt_tokens[source as usize], &self.families.prompt_tokens, source.label())
    }

    /// All tokens of a kind.
    pub(super) fn tokens(&self, tokens: Tokens) -> &Counter {
        self.tokens[tokens as usize].get_or_init(|| {
            let ([backend, model, operation], [kind, source]) = (self.base(), tokens.labels());
            self.families.tokens.with_label_values(&[backend, model, operation, kind, source])
        })
    }

    fn labelled<'a>(&self, cell: &'a OnceLock<Histogram>, family: &HistogramVec, value: &str) -> &'a Histogram {
        cell.get_or_init(|| {
            let [backend, model, operation] = self.base();
            family.with_label_values(&[backend, model, operation, value])
        })
    }
}
