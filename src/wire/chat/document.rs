//! Any JSON document of the chat dialect → its [`Meaning`], by `serde_json`.
//!
//! Invariant: every field is taken out as raw text and read on its own, so that one of the wrong type is absent and
//! the others stand. Of a repeated key the last counts, as in the parsers of JavaScript and Python.

use crate::wire::raw::{self, count, each_item, fields, is_empty, is_text};
use crate::wire::{Choice, Meaning, envelope};

/// How deep text is looked for in content that vendors nest; the known forms need three.
pub(super) const NESTING: u8 = 4;

/// Reads one document, `[DONE]`, or nothing.
pub(super) fn read(data: &[u8]) -> Meaning<'_> {
    envelope::read(data, |text| envelope::of_choices(text, read_choice))
}

/// `None` for a choice that is no object.
fn read_choice(text: &str) -> Option<Choice> {
    let [index, delta, message, finish_reason, logprobs] =
        fields(text, ["index", "delta", "message", "finish_reason", "logprobs"])?;
    // Some relays put a whole reply into an event, so the message answers where there is no delta.
    let (answer, reasoning) = [delta, message].into_iter().flatten().find_map(output).unwrap_or_default();
    Some(Choice {
        index: index.and_then(raw::index).unwrap_or(0),
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
    lists.into_iter().flatten().find_map(count)
}

fn any_text<const N: usize>(text: &str, names: [&'static str; N]) -> bool {
    fields(text, names).is_some_and(|values| values.into_iter().flatten().any(is_text))
}
