//! Any JSON document of the chat dialect → its [`Meaning`], by `serde_json`.
//!
//! Invariant: every field is taken out as raw text and read on its own, so that one of the wrong type is absent and
//! the others stand. Of a repeated key the last counts, as in the parsers of JavaScript and Python.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::wire::members::items;
use crate::wire::{Choice, Meaning, Usage};

/// How deep text is looked for in content that vendors nest; the known forms need three.
pub(super) const NESTING: u8 = 4;

/// Reads one document. Bytes that are no UTF-8 become U+FFFD, as the SSE standard decodes them, and cost a copy.
pub(super) fn read(data: &[u8]) -> Meaning<'_> {
    if let Ok(text) = str::from_utf8(data) {
        return document(text);
    }
    let lossy = String::from_utf8_lossy(data);
    let meaning = document(&lossy);
    let model = meaning.model.map(|model| Cow::Owned(model.into_owned()));
    Meaning { model, ..meaning }
}

fn document(text: &str) -> Meaning<'_> {
    let Some([choices, usage, model, error, kind]) = fields(text, ["choices", "usage", "model", "error", "type"])
    else {
        return Meaning { malformed: true, ..Meaning::default() };
    };
    let mut meaning = Meaning {
        usage: usage.and_then(read_usage),
        model: model.and_then(string).filter(|model| !model.is_empty()),
        error: error.is_some_and(|error| !is_empty(error)) || kind == Some(r#""error""#),
        ..Meaning::default()
    };
    if let Some(choices) = choices {
        each_item(choices, |choice| meaning.choices.extend(read_choice(choice)));
    }
    meaning
}

/// `None` for a choice that is no object.
fn read_choice(text: &str) -> Option<Choice> {
    let [index, delta, message, finish_reason, logprobs] =
        fields(text, ["index", "delta", "message", "finish_reason", "logprobs"])?;
    // Some relays put a whole reply into an event, so the message answers where there is no delta.
    let (answer, reasoning) = [delta, message].into_iter().flatten().find_map(output).unwrap_or_default();
    Some(Choice {
        index: index.and_then(whole_number).and_then(|index| u32::try_from(index).ok()).unwrap_or(0),
        answer,
        reasoning,
        tokens: logprobs.and_then(logprob_tokens),
        finished: finish_reason.is_some_and(is_text),
    })
}

/// Whether a delta or message carries answer and reasoning output. `None` when it is no object.
fn output(text: &str) -> Option<(bool, bool)> {
    let [content, reasoning_content, reasoning, refusal, audio, tool_calls, function_call] =
        fields(text, ["content", "reasoning_content", "reasoning", "refusal", "audio", "tool_calls", "function_call"])?;
    let (mut answer, mut thought) = content.map(|content| content_output(content, NESTING)).unwrap_or_default();
    answer |= refusal.is_some_and(is_text);
    answer |= audio.is_some_and(|audio| any_text(audio, ["data", "transcript"]));
    answer |= function_call.is_some_and(is_call);
    if let Some(calls) = tool_calls {
        each_item(calls, |call| {
            let kinds = fields(call, ["function", "custom"]).into_iter().flatten();
            answer |= kinds.flatten().any(is_call);
        });
    }
    thought |= [reasoning_content, reasoning].into_iter().flatten().any(|part| {
        let (text, thought) = content_output(part, NESTING);
        text || thought
    });
    Some((answer, thought))
}

/// Whether `content` carries answer and reasoning text: a string, one part, or a list of strings and parts
/// (`{"type":"text","text":…}`, Mistral's `{"type":"thinking","thinking":[…]}`).
fn content_output(text: &str, nesting: u8) -> (bool, bool) {
    let mut found = (is_text(text), false);
    if nesting == 0 {
        return found;
    }
    let mut merge = |(answer, reasoning)| {
        found.0 |= answer;
        found.1 |= reasoning;
    };
    match text.as_bytes().first() {
        Some(b'[') => each_item(text, |part| merge(content_output(part, nesting - 1))),
        Some(b'{') => {
            let [text, content, refusal, thinking, reasoning] =
                fields(text, ["text", "content", "refusal", "thinking", "reasoning"]).unwrap_or_default();
            for part in [text, content, refusal].into_iter().flatten() {
                merge(content_output(part, nesting - 1));
            }
            for part in [thinking, reasoning].into_iter().flatten() {
                let (text, thought) = content_output(part, nesting - 1);
                merge((false, text || thought));
            }
        }
        _ => {}
    }
    found
}

/// Whether a function or custom tool is named or given arguments; some vendors send those as an object.
fn is_call(text: &str) -> bool {
    fields(text, ["name", "arguments", "input"]).is_some_and(|[name, arguments, input]| {
        let given = |value: &str| is_text(value) || (value.starts_with(['{', '[']) && !is_empty(value));
        name.is_some_and(is_text) || arguments.is_some_and(given) || input.is_some_and(given)
    })
}

/// How many tokens `logprobs` lists. `None` when it lists none.
fn logprob_tokens(text: &str) -> Option<u32> {
    let lists = fields(text, ["content", "refusal"])?;
    lists.into_iter().flatten().find_map(|list| {
        let mut tokens = 0;
        each_item(list, |_| tokens += 1);
        (tokens > 0).then_some(tokens)
    })
}

/// `None` when it names no count at all.
fn read_usage(text: &str) -> Option<Usage> {
    let [input, output, cache_hit, input_details, output_details] = fields(
        text,
        [
            "prompt_tokens",
            "completion_tokens",
            "prompt_cache_hit_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
        ],
    )?;
    let detail = |details: Option<&str>, name| {
        let [value] = fields(details?, [name])?;
        whole_number(value?)
    };
    let usage = Usage {
        input: input.and_then(whole_number),
        output: output.and_then(whole_number),
        reasoning: detail(output_details, "reasoning_tokens"),
        cached: detail(input_details, "cached_tokens").or_else(|| cache_hit.and_then(whole_number)),
    };
    (usage != Usage::default()).then_some(usage)
}

/// A count, however it is written (`7`, `7.0`, `7e0`). `None` when negative, fractional, too large or no number.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    /// Above this, a float no longer holds every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Ok(count) = text.parse() {
        return Some(count);
    }
    let count: f64 = serde_json::from_str(text).ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and between 0 and 2^53")]
    let whole = (count.fract() == 0.0 && (0.0..=EXACT).contains(&count)).then_some(count as u64);
    whole
}

/// A string's text, lent where it holds no escapes. `None` when it is no string.
pub(super) fn string(text: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str(text).ok().map(|Text(text)| text)
}

/// Whether this is a non-empty string.
pub(super) fn is_text(text: &str) -> bool {
    text.starts_with('"') && text.len() > 2
}

fn any_text<const N: usize>(text: &str, names: [&'static str; N]) -> bool {
    fields(text, names).is_some_and(|values| values.into_iter().flatten().any(is_text))
}

/// Whether a value says nothing: `false`, `0`, an empty string, list or object. (`null` is absent already.)
pub(super) fn is_empty(text: &str) -> bool {
    let inner = text.strip_prefix(['[', '{']).and_then(|text| text.strip_suffix([']', '}']));
    matches!(text, "false" | "0" | r#""""#) || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// The raw text of an object's fields of these names, each `None` when absent or `null`. `None` when it is no object,
/// or no JSON.
pub(super) fn fields<'a, const N: usize>(text: &'a str, names: [&'static str; N]) -> Option<[Option<&'a str>; N]> {
    let mut json = serde_json::Deserializer::from_str(text);
    let values = Fields { names }.deserialize(&mut json).ok()?;
    json.end().ok()?;
    Some(values.map(|value| value.filter(|text| *text != "null")))
}

/// The raw text of each item of a list. Nothing when it is no list.
pub(super) fn each_item<'a>(text: &'a str, each: impl FnMut(&'a str)) {
    // What is read here was cut out of a document known to be valid, so that the only error is another type.
    let _ = items(text, each);
}

/// A string or a key, lent where it holds no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Fields<const N: usize> {
    names: [&'static str; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Fields<N> {
    type Value = [Option<&'de str>; N];

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Fields<N> {
    type Value = [Option<&'de str>; N];

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut values = [None; N];
        while let Some(Text(key)) = map.next_key()? {
            match self.names.iter().position(|name| *name == key) {
                Some(at) => values[at] = Some(map.next_value::<&RawValue>()?.get()),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(values)
    }
}
