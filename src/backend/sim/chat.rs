//! What a chat completion request asks for: the few fields a simulation heeds.

use std::time::SystemTime;

use serde::Deserialize;
use serde_json::Value;

use super::schedule::{Schedule, UsagePolicy};

/// A request, read.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) choices: u32,
    /// Words in the messages: deterministic, and no tokenizer's business.
    pub(super) prompt_tokens: u64,
    include_usage: bool,
    max_tokens: Option<u32>,
    /// Seconds since 1970, for the field of that name.
    pub(super) created: u64,
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    #[serde(default)]
    messages: Vec<Message>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    n: Option<u32>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

impl Asked {
    /// Reads a request body. The error is a sentence for the client.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        const MOST_CHOICES: u32 = 128;
        let body: Body =
            serde_json::from_slice(body).map_err(|error| format!("the request body is not a chat request: {error}"))?;
        let choices = body.n.unwrap_or(1);
        if !(1..=MOST_CHOICES).contains(&choices) {
            return Err(format!("n must be between 1 and {MOST_CHOICES}"));
        }
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            model: body.model.ok_or("the request names no model")?,
            stream: body.stream.unwrap_or(false),
            choices,
            prompt_tokens: body.messages.iter().map(|message| words(&message.content)).sum(),
            include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
            max_tokens: body.max_completion_tokens.or(body.max_tokens),
            created: since_1970.as_secs(),
        })
    }

    /// Tokens of each choice: as scheduled, unless the request allows fewer.
    pub(super) fn tokens(&self, schedule: &Schedule) -> u32 {
        self.max_tokens.map_or(schedule.tokens, |most| most.min(schedule.tokens))
    }

    pub(super) fn finish_reason(&self, schedule: &Schedule) -> &'static str {
        if self.max_tokens.is_some_and(|most| most < schedule.tokens) { "length" } else { "stop" }
    }

    /// Whether a stream ends with the token counts.
    pub(super) fn wants_usage(&self, schedule: &Schedule) -> bool {
        match schedule.usage {
            UsagePolicy::Asked => self.include_usage,
            UsagePolicy::Always | UsagePolicy::EveryEvent => true,
            UsagePolicy::Never => false,
        }
    }
}

/// Whitespace-separated words in a message's content: a string, or an array of parts with a `text` each.
fn words(content: &Value) -> u64 {
    match content {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")).map(words).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_counted_in_strings_and_parts() {
        let body = br#"{"model":"m","messages":[{"role":"system","content":"be  brief\n"},
            {"role":"user","content":[{"type":"text","text":"one two three"},{"type":"image_url","image_url":{}}]},
            {"role":"assistant","content":null,"tool_calls":[]}]}"#;
        assert_eq!(Asked::read(body).expect("valid").prompt_tokens, 5);
    }

    #[test]
    fn the_smaller_limit_ends_a_reply() {
        let schedule = Schedule { tokens: 10, ..Schedule::default() };
        let read = |body: &str| Asked::read(body.as_bytes()).expect("valid");
        let short = read(r#"{"model":"m","max_tokens":4}"#);
        assert_eq!((short.tokens(&schedule), short.finish_reason(&schedule)), (4, "length"));
        let long = read(r#"{"model":"m","max_completion_tokens":10}"#);
        assert_eq!((long.tokens(&schedule), long.finish_reason(&schedule)), (10, "stop"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for body in ["", "{", "[]", "{}", r#"{"model":"m","n":0}"#, r#"{"model":"m","n":129}"#] {
            assert!(Asked::read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
