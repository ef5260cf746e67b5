//! What a legacy completion says of its choices.
//!
//! Shape: OpenAI's API reference, "The completion object", which a stream's events have too. What it leaves open is as
//! vLLM has it, but for tokens that are no whole characters: those are written as OpenAI did (`bytes:\xe2\x80`), as this
//! shape has no other place for their bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::finite;
use crate::backend::llama::engine::Told;
use crate::backend::llama::text::{Decoder, Text};

/// A choice as far as it has been told.
pub(in crate::backend::llama) struct Continuation {
    /// Its prompt, until that has been told. `None` where it was not asked for, too.
    pub(super) echo: Option<Arc<str>>,
    /// Goes over the tokens again, to find where in the text each begins.
    pub(super) decoder: Decoder,
    /// Characters before the next token's text.
    pub(super) offset: usize,
}

impl Continuation {
    /// `text`, behind the prompt where that comes first.
    pub(super) fn text(&mut self, text: &str) -> Value {
        match self.echo.take() {
            Some(prompt) => [&*prompt, text].concat().into(),
            None => text.into(),
        }
    }

    /// `logprobs` as it stands in a choice. What a stop string took out has its place behind the text.
    pub(super) fn logprobs(&mut self, text: &Text, told: &[Told]) -> Value {
        let (mut tokens, mut token_logprobs) = (Vec::new(), Vec::new());
        let (mut top_logprobs, mut text_offset) = (Vec::new(), Vec::new());
        for told in told {
            // The likeliest, and the chosen one where it is none of those. Where two read the same, the likelier stays.
            let mut top = Map::new();
            for &(token, logprob) in told.top.iter().chain([&(told.token, told.logprob)]) {
                top.entry(name(text, token)).or_insert_with(|| finite(logprob).into());
            }
            tokens.push(name(text, told.token));
            token_logprobs.push(finite(told.logprob));
            top_logprobs.push(top);
            text_offset.push(self.offset);
            self.offset += self.decoder.push(told.token).chars().count();
        }
        json!({
            "tokens": tokens,
            "token_logprobs": token_logprobs,
            "top_logprobs": top_logprobs,
            "text_offset": text_offset,
        })
    }
}

/// A token as it is named.
fn name(text: &Text, token: u32) -> String {
    let piece = text.piece(token);
    String::from_utf8(piece.bytes).unwrap_or_else(|error| {
        let mut name = "bytes:".to_owned();
        for byte in error.as_bytes() {
            // Writing to a string cannot fail.
            let _ = write!(name, "\\x{byte:02x}");
        }
        name
    })
}
