//! The engine's answers in OpenAI's words: stream events, and the whole reply (`whole`).
//!
//! Pure. What differs between a chat completion and a legacy one is in files of their own.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::engine::{Reason, Token, Told};
use super::text::Text;

mod chat;
mod completion;
mod whole;
mod wording;

pub(super) use whole::{WholeChoice, whole};
pub(super) use wording::Wording;

/// What every event of a reply repeats.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// `chatcmpl-…` or `cmpl-…`
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    /// The model's name as the client wrote it.
    pub(super) model: String,
    /// Changes with what may change the output.
    pub(super) fingerprint: String,
}

/// Token counts of a reply so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Output tokens of all choices.
    pub(super) completion: usize,
}

impl Count {
    fn json(self) -> Value {
        let Self { prompt, completion } = self;
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
    }
}

/// What an event says of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// Nothing: it was not asked for.
    Absent,
    /// `null`: it comes at the end.
    Later,
    /// This.
    Now(Count),
}

/// Writes stream events.
pub(super) struct Events {
    /// Up to the opening bracket of `choices`.
    head: String,
    text: Arc<Text>,
    wording: Wording,
}

impl Events {
    pub(super) fn new(identity: &Identity, text: Arc<Text>, wording: Wording) -> Self {
        let Identity { id, created, model, fingerprint } = identity;
        let (object, model) = (wording.event_object(), Value::from(model.as_str()));
        let head = format!(
            r#"data: {{"id":"{id}","object":"{object}","created":{created},"model":{model},"system_fingerprint":"{fingerprint}","choices":["#
        );
        Self { head, text, wording }
    }

    /// A choice begins. `None` in a completion, whose events say nothing but text.
    pub(super) fn begin(&self, choice: u32, usage: Usage) -> Option<Bytes> {
        match self.wording {
            Wording::Chat => Some(self.choice(choice, chat::ROLE, None, "null", usage)),
            Wording::Completion(_) => None,
        }
    }

    /// Text of a choice.
    pub(super) fn token(&mut self, token: &Token, usage: Usage) -> Bytes {
        let said = match self.wording.continuation(token.choice) {
            None => chat::content(&token.text),
            Some(choice) => format!(r#""text":{}"#, choice.text(&token.text)),
        };
        let logprobs = self.logprobs(token.choice, &token.logprobs);
        self.choice(token.choice, &said, logprobs, "null", usage)
    }

    /// A choice is over.
    pub(super) fn finish(&mut self, choice: u32, reason: Reason, told: &[Told], usage: Usage) -> Bytes {
        let said = match self.wording.continuation(choice) {
            None => chat::NOTHING.to_owned(),
            Some(choice) => format!(r#""text":{}"#, choice.text("")),
        };
        let logprobs = self.logprobs(choice, told);
        self.choice(choice, &said, logprobs, &format!(r#""{}""#, reason.label()), usage)
    }

    /// Whether a choice's prompt is still to be told: its end would say nothing else then.
    pub(super) fn owes_echo(&mut self, choice: u32) -> bool {
        self.wording.continuation(choice).is_some_and(|choice| choice.echo.is_some())
    }

    /// The reply's usage, in an event of its own.
    pub(super) fn usage(&self, count: Count) -> Bytes {
        let Self { head, .. } = self;
        Bytes::from(format!("{head}],\"usage\":{}}}\n\n", count.json()))
    }

    /// The end marker.
    pub(super) fn done() -> Bytes {
        Bytes::from_static(b"data: [DONE]\n\n")
    }

    /// The engine has failed in the middle of the reply.
    pub(super) fn failed(problem: &str) -> Bytes {
        let error = json!({"message": problem, "type": "server_error", "param": null, "code": "engine_failed"});
        Bytes::from(format!("data: {}\n\n", json!({"error": error})))
    }

    /// `logprobs` as it stands in a choice. `None` where there is nothing to tell.
    fn logprobs(&mut self, choice: u32, told: &[Told]) -> Option<Value> {
        if told.is_empty() {
            return None;
        }
        Some(match self.wording.continuation(choice) {
            None => chat::logprobs(&self.text, told),
            Some(choice) => choice.logprobs(&self.text, told),
        })
    }

    /// `said` is what the choice's members say of its output.
    fn choice(&self, index: u32, said: &str, logprobs: Option<Value>, finish: &str, usage: Usage) -> Bytes {
        let mut event = String::with_capacity(self.head.len() + said.len() + 96);
        event.push_str(&self.head);
        let logprobs = logprobs.map_or_else(|| "null".to_owned(), |value| value.to_string());
        // Writing to a string cannot fail.
        let _ = write!(event, r#"{{"index":{index},{said},"logprobs":{logprobs},"finish_reason":{finish}}}]"#);
        let _ = match usage {
            Usage::Absent => Ok(()),
            Usage::Later => write!(event, r#","usage":null"#),
            Usage::Now(count) => write!(event, r#","usage":{}"#, count.json()),
        };
        event.push_str("}\n\n");
        Bytes::from(event)
    }
}

/// A log probability as JSON has it, which knows no infinity: what cannot happen is told as OpenAI tells it.
fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}
