//! Text completions: one event of a stream, or one whole reply, which look alike → its [`Meaning`].
//!
//! Who asks for an `echo` gets the prompt first, in the same field as the output and mostly in one event with the first of
//! it. No event says where the prompt ends, so the echo's event is a token event, and the TTFT of an upstream that echoes at
//! once is the echo's. Its `logprobs`, which list the prompt's tokens, divide no ITL: no token event of its choice comes
//! before it. Its text is not counted as output (`measure` is told that an echo was asked for); usage leaves it out.
//!
//! Invariant: a field of the wrong type says nothing, and takes nothing from its neighbours.

use super::raw::{self, count, each_item, fields, is_empty, is_text};
use super::text::{Part, Place, Taken};
use super::{Choice, Meaning, envelope};

/// What an event means, a whole reply or a bare error object. It is malformed when it is neither a JSON object, nor
/// `[DONE]`, nor empty.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    envelope::read(data, |text| envelope::of_choices(text, read_choice))
}

/// `None` for a choice that is no object.
fn read_choice(text: &str) -> Option<Choice> {
    let [index, text, reasoning, reasoning_content, finish_reason, logprobs] =
        fields(text, ["index", "text", "reasoning", "reasoning_content", "finish_reason", "logprobs"])?;
    Some(Choice {
        index: index.and_then(raw::index).unwrap_or(0),
        answer: text.is_some_and(is_text),
        reasoning: [reasoning, reasoning_content].into_iter().flatten().any(is_text),
        tokens: logprobs.and_then(logprob_tokens),
        finished: finish_reason.is_some_and(is_text),
    })
}

/// How many tokens `logprobs` lists, in this dialect's form or in chat's. `None` when it lists none.
fn logprob_tokens(text: &str) -> Option<u32> {
    let lists = fields(text, ["tokens", "content"])?;
    lists.into_iter().flatten().find_map(count)
}

/// Gives `each` the text of an event, or of a whole reply. Returns whether that is all of its output: a string whose escapes
/// are no text is not.
pub fn output_text(data: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut taken = Taken::new(each);
    if let Some([Some(choices)]) = fields(&text, ["choices"]) {
        each_item(choices, |choice| {
            let names = ["index", "text", "reasoning_content", "reasoning"];
            let [index, text, reasoning_content, reasoning] = fields(choice, names).unwrap_or_default();
            taken.place = index.and_then(raw::index).unwrap_or(0);
            // One text under both its names, as some servers send it for old and new clients.
            let reasoning = reasoning_content.filter(|text| is_text(text)).or(reasoning);
            for (text, part) in [(reasoning, Part::Reasoning), (text, Part::Content)] {
                if let Some(text) = text {
                    taken.string(text, part);
                }
            }
        });
    }
    !taken.unread
}

/// Gives `each` the text of a request's prompts, each in a place of its own. Returns whether that is all of them: prompts
/// given as numbers of tokens are no text, and a suffix is written around in the model's own way.
pub fn prompt_text(body: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
    let text = String::from_utf8_lossy(body);
    let mut taken = Taken::new(each);
    let Some([Some(prompt), suffix]) = fields(&text, ["prompt", "suffix"]) else { return false };
    taken.foreign = suffix.is_some_and(|suffix| !is_empty(suffix));
    let mut one = |prompt: &str| {
        taken.foreign |= !prompt.starts_with('"');
        taken.string(prompt, Part::Content);
        taken.place = taken.place.saturating_add(1);
    };
    if prompt.starts_with('[') {
        each_item(prompt, one);
    } else {
        one(prompt);
    }
    !taken.unread && !taken.foreign
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::text::written;

    #[test]
    fn texts_are_taken_where_they_belong() {
        let two = r#"{"choices":[{"index":1,"text":"b","reasoning":"r","reasoning_content":"r"},{"text":"a\u00e9"}]}"#;
        let expected = ["1 Reasoning r", "1 Content b", "0 Content aé"].map(str::to_owned);
        assert_eq!(written(output_text, two), (expected.to_vec(), true));
        assert_eq!(written(output_text, "[DONE]"), (vec![], true));
        assert_eq!(written(output_text, r#"{"choices":[{"text":"\ud83d"}]}"#), (vec![], false));
    }

    #[test]
    fn a_prompt_is_one_text_or_several() {
        for (body, expected) in [
            (r#"{"prompt":"a"}"#, vec!["0 Content a"]),
            (r#"{"prompt":["a","b"],"suffix":null}"#, vec!["0 Content a", "1 Content b"]),
            (r#"{"prompt":["a"],"suffix":""}"#, vec!["0 Content a"]),
        ] {
            assert_eq!(written(prompt_text, body), (expected.into_iter().map(str::to_owned).collect(), true), "{body}");
        }
        for body in [
            r#"{"prompt":[1,2,3]}"#,
            r#"{"prompt":[[1,2],[3]]}"#,
            r#"{"prompt":["a",7]}"#,
            r#"{"prompt":"a","suffix":"z"}"#,
            r#"{"prompt":null}"#,
            "{}",
            "{",
        ] {
            assert!(!written(prompt_text, body).1, "{body}");
        }
    }
}
