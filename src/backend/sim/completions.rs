//! Text completions, the legacy of chat completions: requests read, replies written.
//!
//! A reply has `n` choices for each prompt. The dialect knows no reasoning, no tools and no refusal: all is text.

use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{self, Asked, choices, named, parse, prompts, words};
use super::chat::{
    StreamOptions, finish_reason, usage, write_done, write_error, write_last_usage, write_usage_beside_choices,
};
use super::events::{Events, Mark, put};
use super::log::Kind;
use super::reply::{Counts, Reply, Writer};
use super::schedule::Planned;
use super::text;

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    #[serde(default)]
    prompt: Value,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    n: Option<u32>,
}

/// Reads a request body. The error is a sentence for the client.
pub(super) fn read(body: &[u8]) -> Result<Asked, String> {
    let body: Body = parse(body, "a completion request")?;
    Ok(Asked {
        model: named(body.model)?,
        stream: body.stream.unwrap_or(false),
        // Without a prompt it is completed from nothing.
        choices: choices(body.n, prompts(&body.prompt).len().max(1))?,
        prompt_tokens: words(&body.prompt),
        include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        max_tokens: body.max_tokens,
        created: asked::now(),
        ..Asked::default()
    })
}

/// Writes a stream.
pub(super) struct Stream<'a> {
    reply: Reply<'a>,
    /// Everything before the inside of `choices`.
    opening: Vec<u8>,
    finish_reason: &'static str,
}

impl<'a> Stream<'a> {
    pub(super) fn new(reply: Reply<'a>) -> Self {
        let opening = format!(
            r#"data: {{"id":{},"object":"text_completion","created":{},"model":{},"system_fingerprint":"fp_sim","choices":["#,
            Value::from(format!("cmpl-{}", reply.id)),
            reply.asked.created,
            Value::from(reply.asked.model.as_str()),
        );
        Self { reply, opening: opening.into_bytes(), finish_reason: finish_reason(&reply) }
    }
}

impl Writer for Stream<'_> {
    fn write(&mut self, planned: &Planned, out: &mut Events) {
        let mark = |kind, tokens| Mark { kind, choice: planned.choice, tokens };
        let choice = |finish: Option<&str>, out: &mut Vec<u8>| {
            out.extend_from_slice(&self.opening);
            out.extend_from_slice(br#"{"text":""#);
            if finish.is_none() {
                text::write_escaped(planned.choice, planned.tokens.clone(), out);
            }
            put(out, format_args!(r#"","index":{},"logprobs":null,"finish_reason":"#, planned.choice));
            match finish {
                Some(reason) => put(out, format_args!(r#""{reason}"}}]"#)),
                None => out.extend_from_slice(b"null}]"),
            }
            write_usage_beside_choices(&self.reply, counts(&self.reply, planned.tokens.end), out);
            out.push(b'}');
        };
        match planned.kind {
            Kind::Token | Kind::Reasoning => {
                let tokens = planned.tokens.end - planned.tokens.start;
                out.push(mark(Kind::Token, tokens), |out| choice(None, out));
            }
            Kind::Finish => out.push(mark(Kind::Finish, 0), |out| choice(Some(self.finish_reason), out)),
            Kind::Usage => out.push(mark(Kind::Usage, 0), |out| {
                out.extend_from_slice(&self.opening);
                write_last_usage(counts(&self.reply, self.reply.tokens()), out);
            }),
            Kind::Done => out.push(mark(Kind::Done, 0), write_done),
            Kind::Error => out.push(mark(Kind::Error, 0), write_error),
            _ => {}
        }
    }
}

/// A whole reply.
pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let tokens = reply.tokens();
    let choice = |index| {
        let text = text::text_of(index, 0..tokens);
        json!({"text": text, "index": index, "logprobs": null, "finish_reason": finish_reason(reply)})
    };
    json!({
        "id": format!("cmpl-{}", reply.id),
        "object": "text_completion",
        "created": reply.asked.created,
        "model": reply.asked.model,
        "system_fingerprint": "fp_sim",
        "choices": (0..reply.asked.choices).map(choice).collect::<Vec<_>>(),
        "usage": usage(counts(reply, tokens)),
    })
}

/// The counts when each choice has `tokens` tokens: what would be reasoning elsewhere is text here, unless it is hidden.
fn counts(reply: &Reply<'_>, tokens: u32) -> Counts {
    Counts { reasoning: u64::from(reply.schedule().hidden_reasoning), ..reply.counts(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::dialect::Dialect;
    use crate::backend::sim::dialect::testing::replied;

    #[test]
    fn a_stream_has_these_bytes() {
        let body = json!({"model": "m", "stream": true, "prompt": "a b", "max_tokens": 2, "stream_options": {"include_usage": true}});
        let replied = replied(Dialect::Completions, &body, "tokens=3,role_first=1,reasoning=1");
        let opening = r#"data: {"id":"cmpl-7","object":"text_completion","created":7,"model":"m","system_fingerprint":"fp_sim","choices":["#;
        assert_eq!(
            replied.stream,
            [
                r#"@{"text":"川","index":0,"logprobs":null,"finish_reason":null}],"usage":null}"#,
                r#"@{"text":" current","index":0,"logprobs":null,"finish_reason":null}],"usage":null}"#,
                r#"@{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"usage":null}"#,
                r#"@],"usage":{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":0},"prompt_tokens":2,"prompt_tokens_details":{"cached_tokens":0},"total_tokens":4}}"#,
                "data: [DONE]",
                "",
            ]
            .join("\n\n")
            .replace('@', opening)
        );
        assert_eq!(replied.logged(), "Token(1) Token(1) Finish Usage Done");
    }

    #[test]
    fn each_prompt_has_its_choices_and_the_whole_is_the_stream_joined() {
        for (prompt, choices) in [(json!(["a", "b"]), 4), (json!([1, 2, 3]), 2), (json!([[1], [2], [3]]), 6)] {
            let body = json!({"model": "m", "prompt": prompt, "n": 2});
            let replied = replied(Dialect::Completions, &body, "tokens=5,tokens_per_event=2");
            let events = replied.events();
            assert_eq!(replied.whole["choices"].as_array().map(Vec::len), Some(choices));
            for whole in replied.whole["choices"].as_array().expect("choices") {
                let ours = events.iter().filter(|event| event["choices"][0]["index"] == whole["index"]);
                let text: String = ours.filter_map(|event| event["choices"][0]["text"].as_str()).collect();
                assert_eq!((&whole["text"], &whole["finish_reason"]), (&json!(text), &json!("stop")));
            }
            assert_eq!(replied.whole["usage"]["completion_tokens"], choices * 5);
        }
        assert!(read(json!({"model": "m", "n": 70, "prompt": ["a", "b"]}).to_string().as_bytes()).is_err());
    }
}
