//! What a chat completion says of its choices.
//!
//! Shapes: OpenAI's API reference, "The chat completion chunk object" and "The chat completion object".

use serde_json::{Value, json};

use super::finite;
use crate::backend::llama::engine::Told;
use crate::backend::llama::text::Text;

/// A choice begins: its role, and no output.
pub(super) const ROLE: &str = r#""delta":{"role":"assistant","content":""}"#;

/// A choice is over.
pub(super) const NOTHING: &str = r#""delta":{}"#;

/// Text of a choice.
pub(super) fn content(text: &str) -> String {
    format!(r#""delta":{{"content":{}}}"#, Value::from(text))
}

/// A choice of a whole reply, but for its index and finish reason.
pub(super) fn message(text: &str) -> Value {
    json!({"message": {"role": "assistant", "content": text, "refusal": null}})
}

/// `logprobs` as it stands in a choice.
pub(super) fn logprobs(text: &Text, told: &[Told]) -> Value {
    let one = |token: u32, logprob: f32| {
        let piece = text.piece(token);
        json!({"token": piece.text, "logprob": finite(logprob), "bytes": piece.bytes})
    };
    let entry = |told: &Told| {
        let mut entry = one(told.token, told.logprob);
        entry["top_logprobs"] = told.top.iter().map(|&(token, logprob)| one(token, logprob)).collect();
        entry
    };
    json!({"content": told.iter().map(entry).collect::<Vec<_>>(), "refusal": null})
}
