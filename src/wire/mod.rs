//! The wire: encoded bytes → bytes ([`encoding`]) → events ([`sse`]), and one file per dialect: event → what it means
//! ([`chat`], [`completion`], [`responses`], [`messages`], [`embeddings`], [`rerank`]). What a stream's events are the
//! parts of is put together in [`assemble`].
//!
//! Invariant: reading never fails. What cannot be understood is reported as such and the next event is read.

use std::borrow::Cow;

use smallvec::SmallVec;

pub mod assemble;
pub mod chat;
pub mod completion;
mod dialect;
pub mod embeddings;
pub mod encoding;
mod envelope;
mod list;
pub mod messages;
pub(crate) mod raw;
pub mod rerank;
pub mod responses;
pub mod skim;
pub mod sse;
mod text;
mod usage;

pub use dialect::{Dialect, EventReader};
pub use text::{Part, Place};

/// What one SSE event, or one whole JSON reply, means: the few questions every dialect answers.
///
/// The default says nothing at all, which is what an event without model output says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meaning<'a> {
    /// What it says of each choice it names, in the order it names them.
    pub choices: SmallVec<[Choice; 2]>,
    /// Token counts as the backend reports them. `None` when absent or `null`.
    pub usage: Option<Usage>,
    /// The model the backend says it served. `None` when absent, `null` or empty.
    pub model: Option<Cow<'a, str>>,
    /// It carries an error object where a reply belongs.
    pub error: bool,
    /// With it, or for it, output was generated that it does not show whole: the reasoning that it carries is a summary, or
    /// some was kept back.
    pub partly_hidden: bool,
    /// It is the dialect's end-of-stream marker (`[DONE]`, `message_stop`).
    pub done: bool,
    /// It is neither JSON this dialect knows nor an end marker. An empty event is not malformed.
    pub malformed: bool,
}

/// What one event says of one choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choice {
    /// The choice's `index`, 0 when the event names none.
    pub index: u32,
    /// It carries non-empty output that is not reasoning: text, refusal, audio, or a tool call's name or arguments.
    pub answer: bool,
    /// It carries non-empty reasoning.
    pub reasoning: bool,
    /// How many tokens it carries, where the event says so (`logprobs`). `None` when it does not.
    pub tokens: Option<u32>,
    /// It carries a finish reason.
    pub finished: bool,
}

impl Choice {
    /// Whether this choice makes the event a token event.
    pub fn has_output(&self) -> bool {
        self.answer || self.reasoning
    }
}

/// Token counts as a backend reports them, in tokens. Each is `None` where the reply does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens in the prompt, all of them (`prompt_tokens`, `input_tokens`).
    pub input: Option<u64>,
    /// Tokens generated, hidden reasoning included (`completion_tokens`, `output_tokens`).
    pub output: Option<u64>,
    /// The part of `output` that is reasoning (`reasoning_tokens` among the details).
    pub reasoning: Option<u64>,
    /// The part of `input` that came from a cache (`cached_tokens` among the details, `cache_read_input_tokens`).
    pub cached: Option<u64>,
}
