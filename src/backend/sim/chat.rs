//! Chat completions, `OpenAI`'s: requests read, replies written.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{self, Asked, choices, first_tool, named, parse, words};
use super::dialect::openai_error;
use super::events::{Events, Mark, put};
use super::log::Kind;
use super::reply::{BREAKDOWN, Counts, Reply, Stop, Writer};
use super::schedule::{Planned, UsagePolicy};
use super::text;

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
    #[serde(default)]
    tools: Value,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

/// What a request says of its stream.
#[derive(Deserialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: Option<bool>,
}

/// Reads a request body. The error is a sentence for the client.
pub(super) fn read(body: &[u8]) -> Result<Asked, String> {
    let body: Body = parse(body, "a chat request")?;
    Ok(Asked {
        choices: choices(body.n, 1)?,
        model: named(body.model)?,
        stream: body.stream.unwrap_or(false),
        prompt_tokens: body.messages.iter().map(|message| words(&message.content)).sum(),
        include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        max_tokens: body.max_completion_tokens.or(body.max_tokens),
        tool: first_tool(&body.tools),
        created: asked::now(),
        ..Asked::default()
    })
}

/// Writes a stream: an event for each planned one, and one more where a tool's name comes before its arguments.
pub(super) struct Stream<'a> {
    reply: Reply<'a>,
    /// Everything before the inside of `choices`.
    opening: Vec<u8>,
    finish_reason: &'static str,
}

impl<'a> Stream<'a> {
    pub(super) fn new(reply: Reply<'a>) -> Self {
        let opening = format!(
            r#"data: {{"id":{},"object":"chat.completion.chunk","created":{},"model":{},"system_fingerprint":"fp_sim","choices":["#,
            Value::from(format!("chatcmpl-{}", reply.id)),
            reply.asked.created,
            Value::from(reply.asked.model.as_str()),
        );
        Self { reply, opening: opening.into_bytes(), finish_reason: finish_reason(&reply) }
    }

    /// Appends an event with one choice, whose delta `delta` appends.
    fn event(&self, event: &Planned, tokens: Range<u32>, out: &mut Events, delta: impl FnOnce(&mut Vec<u8>)) {
        let mark = Mark { kind: event.kind, choice: event.choice, tokens: tokens.end - tokens.start };
        out.push(mark, |out| {
            out.extend_from_slice(&self.opening);
            put(out, format_args!(r#"{{"index":{},"delta":{{"#, event.choice));
            delta(out);
            out.extend_from_slice(br#"},"logprobs":null,"finish_reason":"#);
            match event.kind {
                Kind::Finish => put(out, format_args!(r#""{}"}}]"#, self.finish_reason)),
                _ => out.extend_from_slice(b"null}]"),
            }
            write_usage_beside_choices(&self.reply, self.reply.counts(tokens.end), out);
            out.push(b'}');
        });
    }
}

impl Writer for Stream<'_> {
    fn write(&mut self, planned: &Planned, out: &mut Events) {
        let mark = Mark { kind: planned.kind, choice: planned.choice, tokens: 0 };
        match planned.kind {
            Kind::Role | Kind::Token | Kind::Reasoning => self.write_output(planned, out),
            Kind::Finish => self.event(planned, planned.tokens.clone(), out, |_| {}),
            Kind::Usage => out.push(mark, |out| {
                out.extend_from_slice(&self.opening);
                write_last_usage(self.reply.counts(self.reply.tokens()), out);
            }),
            Kind::Done => out.push(mark, write_done),
            Kind::Error => out.push(mark, write_error),
            _ => {}
        }
    }
}

impl Stream<'_> {
    fn write_output(&self, event: &Planned, out: &mut Events) {
        let reply = &self.reply;
        // As OpenAI does, the first event of a choice names the role.
        let first = if reply.schedule().role_first { event.kind == Kind::Role } else { event.tokens.start == 0 };
        let (reasoning, answer) = reply.split(&event.tokens);
        if !reply.calls() {
            return self.event(event, event.tokens.clone(), out, |out| {
                write_role(first, out);
                if !reasoning.is_empty() {
                    write_reasoning(event.choice, reasoning.clone(), out);
                }
                if !answer.is_empty() || reasoning.is_empty() {
                    if !reasoning.is_empty() {
                        out.push(b',');
                    }
                    let field = if reply.refuses() && event.kind != Kind::Role { "refusal" } else { "content" };
                    put(out, format_args!(r#""{field}":""#));
                    reply.write_answer(event.choice, answer, out);
                    out.push(b'"');
                }
            });
        }
        if event.kind == Kind::Role {
            return self.event(event, 0..0, out, |out| out.extend_from_slice(br#""role":"assistant","content":null"#));
        }
        if !reasoning.is_empty() {
            let part = Planned { kind: Kind::Reasoning, ..event.clone() };
            self.event(&part, reasoning.clone(), out, |out| {
                write_role(first, out);
                write_reasoning(event.choice, reasoning.clone(), out);
            });
        }
        if answer.is_empty() {
            return;
        }
        if answer.start == reply.schedule().reasoning {
            self.event(event, answer.start..answer.start, out, |out| {
                write_role(first && reasoning.is_empty(), out);
                let name = Value::from(reply.tool());
                let id = Value::from(call_id(reply, event.choice));
                put(
                    out,
                    format_args!(
                        r#""content":null,"tool_calls":[{{"index":0,"id":{id},"type":"function","function":{{"name":{name},"arguments":""}}}}]"#
                    ),
                );
            });
        }
        self.event(event, answer.clone(), out, |out| {
            out.extend_from_slice(br#""tool_calls":[{"index":0,"function":{"arguments":""#);
            reply.write_answer(event.choice, answer, out);
            out.extend_from_slice(br#""}}]"#);
        });
    }
}

/// A whole reply.
pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let tokens = reply.tokens();
    let choice = |index| {
        let (reasoning, answer) = reply.split(&(0..tokens));
        let said = reply.answer(index, answer.clone());
        let mut message = match (reply.calls(), reply.refuses()) {
            (true, _) if answer.is_empty() => json!({"role": "assistant", "content": null, "refusal": null}),
            (true, _) => json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                {"id": call_id(reply, index), "type": "function", "function": {"name": reply.tool(), "arguments": said}},
            ]}),
            (false, true) => json!({"role": "assistant", "content": null, "refusal": said}),
            (false, false) => json!({"role": "assistant", "content": said, "refusal": null}),
        };
        if !reasoning.is_empty() {
            message["reasoning_content"] = text::text_of(index, reasoning).into();
        }
        json!({"index": index, "message": message, "logprobs": null, "finish_reason": finish_reason(reply)})
    };
    json!({
        "id": format!("chatcmpl-{}", reply.id),
        "object": "chat.completion",
        "created": reply.asked.created,
        "model": reply.asked.model,
        "system_fingerprint": "fp_sim",
        "choices": (0..reply.asked.choices).map(choice).collect::<Vec<_>>(),
        "usage": usage(reply.counts(tokens)),
    })
}

/// Token counts, as chat and text completions have them.
pub(super) fn usage(counts: Counts) -> Value {
    json!({
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.output,
        "total_tokens": counts.prompt + counts.output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning},
    })
}

/// Appends what an event with choices says of usage after them; `counts` are those so far.
pub(super) fn write_usage_beside_choices(reply: &Reply<'_>, counts: Counts, out: &mut Vec<u8>) {
    match reply.schedule().usage {
        UsagePolicy::EveryEvent => put(out, format_args!(r#","usage":{}"#, usage(counts))),
        _ if reply.asked.wants_usage(reply.schedule()) => out.extend_from_slice(br#","usage":null"#),
        _ => {}
    }
}

/// Appends the rest of the event that has no choices and all token counts.
pub(super) fn write_last_usage(counts: Counts, out: &mut Vec<u8>) {
    put(out, format_args!(r#"],"usage":{}}}"#, usage(counts)));
}

/// Appends the event that ends a stream.
pub(super) fn write_done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: [DONE]");
}

/// Appends an error as an event.
pub(super) fn write_error(out: &mut Vec<u8>) {
    put(out, format_args!("data: {}", openai_error(BREAKDOWN, "server_error", None)));
}

/// The finish reason of every choice, as chat and text completions call it.
pub(super) fn finish_reason(reply: &Reply<'_>) -> &'static str {
    match reply.stop() {
        Stop::End | Stop::Refusal => "stop",
        Stop::Length => "length",
        Stop::Tool => "tool_calls",
    }
}

fn call_id(reply: &Reply<'_>, choice: u32) -> String {
    format!("call_{}_{choice}", reply.id)
}

fn write_role(first: bool, out: &mut Vec<u8>) {
    if first {
        out.extend_from_slice(br#""role":"assistant","#);
    }
}

fn write_reasoning(choice: u32, tokens: Range<u32>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#""reasoning_content":""#);
    text::write_escaped(choice, tokens, out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::dialect::Dialect;
    use crate::backend::sim::dialect::testing::{Replied, replied};
    use crate::backend::sim::text::text_of;

    fn reply(more: &Value, sim: &str) -> Replied {
        let mut body = json!({"model": "m\"x", "stream": true, "messages": [{"role": "user", "content": "a b c"}]});
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        replied(Dialect::Chat, &body, sim)
    }

    fn joined(replied: &Replied, choice: u32, pick: impl Fn(&Value) -> &Value) -> String {
        let events = replied.events();
        let deltas = events.iter().filter(|event| event["choices"][0]["index"] == choice);
        deltas.filter_map(|event| pick(&event["choices"][0]["delta"]).as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn a_stream_has_these_bytes() {
        let opening = r#"data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":7,"model":"m\"x","system_fingerprint":"fp_sim","choices":["#;
        let usage = r#"{"completion_tokens":3,"completion_tokens_details":{"reasoning_tokens":1},"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":0},"total_tokens":6}"#;
        assert_eq!(
            reply(&json!({}), "tokens=3,reasoning=1,tokens_per_event=2,usage=always").stream,
            [
                r#"@{"index":0,"delta":{"role":"assistant","reasoning_content":"川","content":" current"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
                r#"@{"index":0,"delta":{"content":" strong"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
                r#"@{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
                r#"@],"usage":$}"#,
                "data: [DONE]",
                "",
            ]
            .join("\n\n")
            .replace('@', opening)
            .replace('$', usage)
        );
    }

    #[test]
    fn role_finish_and_usage_events_carry_no_output() {
        let replied = reply(&json!({"n": 2}), "tokens=1,role_first=1,usage=always");
        assert_eq!(replied.logged(), "Role Role Token(1) Token(1) Finish Finish Usage Done");
        let events = replied.events();
        let delta = |event: usize| &events[event]["choices"][0]["delta"];
        assert_eq!((delta(0), delta(4)), (&json!({"role": "assistant", "content": ""}), &json!({})));
        assert_eq!((&events[0]["usage"], &events[4]["choices"][0]["finish_reason"]), (&Value::Null, &json!("stop")));
        assert_eq!((&events[6]["choices"], &events[6]["usage"]["completion_tokens"]), (&json!([]), &json!(2)));
    }

    #[test]
    fn a_tool_is_called_by_name_and_its_arguments_are_json_when_joined() {
        let tools = json!({"n": 2, "tools": [{"type": "function", "function": {"name": "find"}}]});
        let replied = reply(&tools, "tokens=5,reasoning=1,tokens_per_event=2,tool=1");
        let names = "Reasoning(1) Token Token(1) Reasoning(1) Token Token(1)";
        assert_eq!(replied.logged(), format!("{names} Token(2) Token(2) Token(1) Token(1) Finish Finish Done"));
        assert!(replied.stream.contains(
            r#""delta":{"content":null,"tool_calls":[{"index":0,"id":"call_7_1","type":"function","function":{"name":"find","arguments":""}}]}"#
        ));
        for choice in 0..2 {
            let arguments = joined(&replied, choice, |delta| &delta["tool_calls"][0]["function"]["arguments"]);
            let read: Value = serde_json::from_str(&arguments).expect("JSON");
            assert_eq!(read, json!({"text": text_of(choice, 1..5)}));
            let message = &replied.whole["choices"][choice as usize]["message"];
            assert_eq!(message["tool_calls"][0]["function"], json!({"name": "find", "arguments": arguments}));
            assert_eq!(message["reasoning_content"], joined(&replied, choice, |delta| &delta["reasoning_content"]));
            assert_eq!(replied.whole["choices"][choice as usize]["finish_reason"], "tool_calls");
        }
        assert_eq!(replied.events()[10]["choices"][0]["finish_reason"], "tool_calls");
        let unnamed = reply(&json!({}), "tokens=1,tool=1").events();
        let delta = &unnamed[0]["choices"][0]["delta"];
        assert_eq!(
            (&delta["role"], &delta["tool_calls"][0]["function"]["name"]),
            (&json!("assistant"), &json!("lookup"))
        );
    }

    #[test]
    fn a_refusal_is_no_content() {
        let replied = reply(&json!({}), "tokens=3,refusal=1");
        assert_eq!(joined(&replied, 0, |delta| &delta["refusal"]), text_of(0, 0..3));
        assert_eq!(joined(&replied, 0, |delta| &delta["content"]), "");
        let choice = &replied.whole["choices"][0];
        assert_eq!(choice["message"], json!({"role": "assistant", "content": null, "refusal": text_of(0, 0..3)}));
        assert_eq!(choice["finish_reason"], "stop");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for body in ["", "{", "[]", "{}", r#"{"model":"m","n":0}"#, r#"{"model":"m","n":129}"#] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
