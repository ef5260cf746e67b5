//! What a request asks for, whatever its dialect: the few things that a simulation heeds.

use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::schedule::{Schedule, UsagePolicy};

/// A request for output tokens, read.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) stream: bool,
    /// How many choices the reply has, at least 1.
    pub(super) choices: u32,
    /// Words in the prompt: deterministic, and no tokenizer's business.
    pub(super) prompt_tokens: u64,
    /// Whether a stream is to end with the token counts.
    pub(super) include_usage: bool,
    /// The most tokens of each choice. `None` when the request sets no limit.
    pub(super) max_tokens: Option<u32>,
    /// The name of the first tool that has one. `None` when none is offered.
    pub(super) tool: Option<String>,
    /// What a reply repeats of its request; empty in dialects whose replies repeat nothing.
    pub(super) repeated: Map<String, Value>,
    /// Seconds since 1970, for the field of that name.
    pub(super) created: u64,
}

impl Asked {
    /// Tokens of each choice: as scheduled, unless the request allows fewer.
    pub(super) fn tokens(&self, schedule: &Schedule) -> u32 {
        self.max_tokens.map_or(schedule.tokens, |most| most.min(schedule.tokens))
    }

    /// Whether a stream reports the token counts.
    pub(super) fn wants_usage(&self, schedule: &Schedule) -> bool {
        match schedule.usage {
            UsagePolicy::Asked => self.include_usage,
            UsagePolicy::Always | UsagePolicy::EveryEvent => true,
            UsagePolicy::Never => false,
        }
    }
}

/// Reads a request body of the kind that `what` names. The error is a sentence for the client.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the request body is not {what}: {error}"))
}

/// The model that a request names. The error is a sentence for the client.
pub(super) fn named(model: Option<String>) -> Result<String, String> {
    model.ok_or_else(|| "the request names no model".into())
}

/// How many choices a request wants: `n` for each of `prompts`. The error is a sentence for the client.
pub(super) fn choices(n: Option<u32>, prompts: usize) -> Result<u32, String> {
    const MOST: u32 = 128;
    let n = n.unwrap_or(1);
    let all = u32::try_from(prompts).unwrap_or(u32::MAX).saturating_mul(n);
    match all {
        1..=MOST => Ok(all),
        _ if prompts == 1 => Err(format!("n must be between 1 and {MOST}")),
        _ => Err(format!("n times the number of prompts must be between 1 and {MOST}")),
    }
}

/// The current time, in seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The name of the first tool that has one, in a request's `tools`.
pub(super) fn first_tool(tools: &Value) -> Option<String> {
    let name = |tool: &Value| tool["function"]["name"].as_str().or(tool["name"].as_str()).map(str::to_owned);
    tools.as_array()?.iter().find_map(name)
}

/// The prompts in a value that holds one or many: a string, a list of tokens, or a list of those.
pub(super) fn prompts(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(many) if many.iter().any(|one| !one.is_number()) => many.iter().collect(),
        Value::Array(tokens) if tokens.is_empty() => Vec::new(),
        Value::Null => Vec::new(),
        one => vec![one],
    }
}

/// Whitespace-separated words in a text, or in everything that is text below a list or a part; a number is a token.
pub(super) fn words(content: &Value) -> u64 {
    match content {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Number(_) => 1,
        Value::Array(parts) => parts.iter().map(words).sum(),
        Value::Object(part) => ["text", "content", "output"].iter().filter_map(|key| part.get(*key)).map(words).sum(),
        Value::Null | Value::Bool(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_counted_wherever_they_are_text() {
        for (content, expected) in [
            (json!("be  brief\n"), 2),
            (json!([{"type": "text", "text": "one two three"}, {"type": "image_url", "image_url": {"url": "a b"}}]), 3),
            (json!([{"role": "user", "content": [{"type": "input_text", "text": "a b"}]}, {"output": "c"}]), 3),
            (json!([[1, 2, 3], [4]]), 4),
            (json!(null), 0),
        ] {
            assert_eq!(words(&content), expected, "{content}");
        }
    }

    #[test]
    fn one_prompt_or_many_are_told_apart() {
        for (value, expected) in [
            (json!("a b"), 1),
            (json!(["a", "b"]), 2),
            (json!([1, 2, 3]), 1),
            (json!([[1], [2, 3]]), 2),
            (json!([]), 0),
            (json!(null), 0),
        ] {
            assert_eq!(prompts(&value).len(), expected, "{value}");
        }
    }

    #[test]
    fn the_first_tool_with_a_name_counts() {
        assert_eq!(first_tool(&json!([{"type": "function", "function": {"name": "f"}}])), Some("f".into()));
        assert_eq!(first_tool(&json!([{"type": "web_search"}, {"name": "g"}])), Some("g".into()));
        assert_eq!(first_tool(&json!(null)), None);
    }
}
