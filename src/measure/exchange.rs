//! The finished fact: everything known about one request once it is over.
//!
//! Made in one place and read by everyone (metrics, the log, what else keeps it), so that they cannot disagree.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::anomaly::Anomalies;
use super::intervals::{OutputTokens, Source};
use super::outcome::Outcome;
use super::timeline::Marks;
use super::track::Track;
use crate::transport::ConnectPhases;
use crate::wire::Usage;

/// One finished exchange.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// When it was over, by the wall clock: to be printed, not to be computed with.
    pub ended: SystemTime,
    /// Its operation, as the `operation` label says it.
    pub operation: &'static str,
    /// The backend it went to. `None` when it ended before it was routed.
    pub backend: Option<Arc<str>>,
    /// The `model` label: a configured or proven name, `other`, or `none`.
    pub model: Arc<str>,
    /// The model the client asked for. `None` when its request was not read or named none.
    pub model_requested: Option<Box<str>>,
    /// The model the backend said it served. `None` when it did not say.
    pub model_served: Option<Box<str>>,
    /// Whether a stream was asked for. `None` when the request was not read.
    pub stream: Option<bool>,
    /// Whether its content was looked at; an unmeasured path is only counted.
    pub measured: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The status the client was given. `None` when it left before.
    pub status: Option<u16>,
    /// Its instants.
    pub marks: Marks,
    /// What opening the upstream connection took.
    pub connect: ConnectPhases,
    /// Whether the upstream connection had been used before. `None` when there was none.
    pub reused: Option<bool>,
    /// The last usage the backend reported.
    pub usage: Option<Usage>,
    /// Tokens in the prompt's messages, by the backend's tokenizer and without the chat template. `None` where usage gives
    /// them, and where nothing could count them.
    pub prompt_counted: Option<u64>,
    /// N with its source.
    pub output: Option<OutputTokens>,
    /// Output was generated that no event showed whole, so that N counts other tokens than those of the events, or the time
    /// between the events is not that of N's tokens alone.
    pub partly_hidden: bool,
    /// Token events seen.
    pub token_events: u64,
    /// Choices that appeared.
    pub choices: usize,
    /// The longest inter-token latency. `None` without one, or when one is unknown.
    pub stall: Option<Duration>,
    /// The token events one by one.
    pub track: Track,
    /// What looked wrong.
    pub anomalies: Anomalies,
    /// Names the experiment it belongs to (`x-streamgauge-tag`).
    pub tag: Option<Box<str>>,
}

impl Exchange {
    /// TPOT by its definition. See [`Marks::tpot`].
    pub fn tpot(&self) -> Option<Duration> {
        self.marks.tpot(self.output, self.choices, self.partly_hidden)
    }

    /// TGS by its definition, in tokens per second. See [`Marks::tgs`].
    pub fn tgs(&self) -> Option<f64> {
        self.marks.tgs(self.output, self.choices)
    }

    /// Tokens in the prompt, as the backend reported them, else as its tokenizer counted them.
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.prompt().map(|(count, _)| count)
    }

    /// [`Exchange::prompt_tokens`] with their source.
    pub fn prompt(&self) -> Option<(u64, Source)> {
        let reported = self.usage.and_then(|usage| usage.input).map(|count| (count, Source::Usage));
        reported.or(self.prompt_counted.map(|count| (count, Source::Tokenizer)))
    }
}
