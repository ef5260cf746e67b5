//! The engine's answers in OpenAI's words: stream events, and the whole reply.
//!
//! Pure. Shapes: OpenAI's API reference, "The chat completion chunk object" and "The chat completion object".

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::engine::{Reason, Token, Told};
use super::text::Text;

/// What every event of a reply repeats.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// `chatcmpl-…`
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
}

impl Events {
    pub(super) fn new(identity: &Identity, text: Arc<Text>) -> Self {
        let Identity { id, created, model, fingerprint } = identity;
        let model = Value::from(model.as_str());
        let head = format!(
            r#"data: {{"id":"{id}","object":"chat.completion.chunk","created":{created},"model":{model},"system_fingerprint":"{fingerprint}","choices":["#
        );
        Self { head, text }
    }

    /// A choice begins: its role, and no output.
    pub(super) fn role(&self, choice: u32, usage: Usage) -> Bytes {
        let delta = r#"{"role":"assistant","content":""}"#;
        self.choice(choice, delta, None, "null", usage)
    }

    /// Text of a choice.
    pub(super) fn token(&self, token: &Token, usage: Usage) -> Bytes {
        let delta = format!(r#"{{"content":{}}}"#, Value::from(token.text.as_str()));
        let logprobs = (!token.logprobs.is_empty()).then(|| self.logprobs(&token.logprobs));
        self.choice(token.choice, &delta, logprobs, "null", usage)
    }

    /// A choice is over.
    pub(super) fn finish(&self, choice: u32, reason: Reason, told: &[Told], usage: Usage) -> Bytes {
        let logprobs = (!told.is_empty()).then(|| self.logprobs(told));
        self.choice(choice, "{}", logprobs, &format!(r#""{}""#, reason.label()), usage)
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

    /// `logprobs` as it stands in a choice.
    fn logprobs(&self, told: &[Told]) -> Value {
        logprobs(&self.text, told)
    }

    fn choice(&self, index: u32, delta: &str, logprobs: Option<Value>, finish: &str, usage: Usage) -> Bytes {
        let mut event = String::with_capacity(self.head.len() + delta.len() + 96);
        event.push_str(&self.head);
        let logprobs = logprobs.map_or_else(|| "null".to_owned(), |value| value.to_string());
        // Writing to a string cannot fail.
        let _ = write!(event, r#"{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish}}}]"#);
        let _ = match usage {
            Usage::Absent => Ok(()),
            Usage::Later => write!(event, r#","usage":null"#),
            Usage::Now(count) => write!(event, r#","usage":{}"#, count.json()),
        };
        event.push_str("}\n\n");
        Bytes::from(event)
    }
}

/// One choice of a whole reply, as it grows.
#[derive(Debug, Default)]
pub(super) struct WholeChoice {
    /// Its text.
    pub(super) content: String,
    /// Its tokens' probabilities.
    pub(super) logprobs: Vec<Told>,
    /// Why it is over, and how many tokens it has.
    pub(super) finished: Option<(Reason, usize)>,
}

/// The whole reply.
pub(super) fn whole(identity: &Identity, text: &Text, choices: &[WholeChoice], prompt: usize, told: bool) -> Bytes {
    let completion = choices.iter().filter_map(|choice| choice.finished).map(|(_, tokens)| tokens).sum();
    let choice = |(index, choice): (usize, &WholeChoice)| {
        json!({
            "index": index,
            "message": {"role": "assistant", "content": choice.content, "refusal": null},
            "logprobs": if told { logprobs(text, &choice.logprobs) } else { Value::Null },
            "finish_reason": choice.finished.map(|(reason, _)| reason.label()),
        })
    };
    let choices: Vec<Value> = choices.iter().enumerate().map(choice).collect();
    let Identity { id, created, model, fingerprint } = identity;
    let reply = json!({
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "system_fingerprint": fingerprint,
        "choices": choices,
        "usage": Count { prompt, completion }.json(),
    });
    Bytes::from(reply.to_string())
}

fn logprobs(text: &Text, told: &[Told]) -> Value {
    let one = |token: u32, logprob: f32| {
        let piece = text.piece(token);
        // JSON has no infinity: what cannot happen is told as OpenAI tells it.
        let logprob = if logprob.is_finite() { logprob } else { -9999.0 };
        json!({"token": piece.text, "logprob": logprob, "bytes": piece.bytes})
    };
    let entry = |told: &Told| {
        let mut entry = one(told.token, told.logprob);
        entry["top_logprobs"] = told.top.iter().map(|&(token, logprob)| one(token, logprob)).collect();
        entry
    };
    json!({"content": told.iter().map(entry).collect::<Vec<_>>(), "refusal": null})
}
