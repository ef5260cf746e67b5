//! What the simulation says: `OpenAI` chat completion events and whole replies, as bytes.
//!
//! Invariant: a token event costs copies of ready-made pieces, no serialiser and, after the first few, no allocation.

use std::io::Write as _;
use std::ops::Range;

use serde_json::{Value, json};

use super::chat::Asked;
use super::log::Kind;
use super::schedule::{Planned, Schedule, UsagePolicy};
use super::text;

/// Writes the events of one stream, each as one SSE event; in a chunked body, each as one chunk.
pub(super) struct EventWriter<'a> {
    asked: &'a Asked,
    schedule: Schedule,
    /// Everything before the inside of `choices`.
    opening: Vec<u8>,
    scratch: Vec<u8>,
    chunked: bool,
    finish_reason: &'static str,
}

impl<'a> EventWriter<'a> {
    pub(super) fn new(id: &str, asked: &'a Asked, schedule: Schedule, chunked: bool) -> Self {
        let opening = format!(
            r#"data: {{"id":{},"object":"chat.completion.chunk","created":{},"model":{},"system_fingerprint":"fp_sim","choices":["#,
            Value::from(format!("chatcmpl-{id}")),
            asked.created,
            Value::from(asked.model.as_str()),
        );
        let finish_reason = asked.finish_reason(&schedule);
        Self {
            asked,
            schedule,
            opening: opening.into_bytes(),
            scratch: Vec::with_capacity(512),
            chunked,
            finish_reason,
        }
    }

    /// Appends one event.
    pub(super) fn write(&mut self, event: &Planned, out: &mut Vec<u8>) {
        if !self.chunked {
            self.write_data(event, out);
            return out.extend_from_slice(b"\n\n");
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.write_data(event, &mut scratch);
        scratch.extend_from_slice(b"\n\n");
        write_chunk(&scratch, out);
        self.scratch = scratch;
    }

    fn write_data(&self, event: &Planned, out: &mut Vec<u8>) {
        match event.kind {
            Kind::Done => return out.extend_from_slice(b"data: [DONE]"),
            Kind::Error => {
                let error = error_object("the simulated model broke down, as it was asked to", "server_error", None);
                out.extend_from_slice(b"data: ");
                return put(out, format_args!("{error}"));
            }
            _ => out.extend_from_slice(&self.opening),
        }
        if event.kind == Kind::Usage {
            out.push(b']');
            self.write_usage(self.asked.tokens(&self.schedule), out);
        } else {
            put(out, format_args!(r#"{{"index":{},"delta":{{"#, event.choice));
            self.write_delta(event, out);
            out.extend_from_slice(br#"},"logprobs":null,"finish_reason":"#);
            match event.kind {
                Kind::Finish => put(out, format_args!(r#""{}"}}]"#, self.finish_reason)),
                _ => out.extend_from_slice(b"null}]"),
            }
            match self.schedule.usage {
                UsagePolicy::EveryEvent => self.write_usage(event.tokens.end, out),
                _ if self.asked.wants_usage(&self.schedule) => out.extend_from_slice(br#","usage":null"#),
                _ => {}
            }
        }
        out.push(b'}');
    }

    fn write_delta(&self, event: &Planned, out: &mut Vec<u8>) {
        if event.kind == Kind::Finish {
            return;
        }
        // As OpenAI does, the first event of a choice names the role.
        let first = if self.schedule.role_first { event.kind == Kind::Role } else { event.tokens.start == 0 };
        if first {
            out.extend_from_slice(br#""role":"assistant","#);
        }
        let boundary = self.schedule.reasoning.clamp(event.tokens.start, event.tokens.end);
        let (reasoning, answer) = (event.tokens.start..boundary, boundary..event.tokens.end);
        if !reasoning.is_empty() {
            write_field("reasoning_content", event.choice, reasoning.clone(), out);
        }
        if !answer.is_empty() || reasoning.is_empty() {
            if !reasoning.is_empty() {
                out.push(b',');
            }
            write_field("content", event.choice, answer, out);
        }
    }

    /// The `usage` field with its comma, for `tokens` tokens of each choice.
    fn write_usage(&self, tokens: u32, out: &mut Vec<u8>) {
        put(out, format_args!(r#","usage":{}"#, usage(self.asked, &self.schedule, tokens)));
    }
}

/// A whole reply, padded with a field of its own to about `body_bytes` bytes.
pub(super) fn whole(id: &str, asked: &Asked, schedule: &Schedule, body_bytes: usize) -> Vec<u8> {
    let tokens = asked.tokens(schedule);
    let reasoned = schedule.reasoning.min(tokens);
    let choice = |index| {
        let mut message = json!({
            "role": "assistant",
            "content": text::text_of(index, reasoned..tokens),
            "refusal": null,
        });
        if reasoned > 0 {
            message["reasoning_content"] = text::text_of(index, 0..reasoned).into();
        }
        let finish_reason = asked.finish_reason(schedule);
        json!({"index": index, "message": message, "logprobs": null, "finish_reason": finish_reason})
    };
    let mut reply = json!({
        "id": format!("chatcmpl-{id}"),
        "object": "chat.completion",
        "created": asked.created,
        "model": asked.model,
        "system_fingerprint": "fp_sim",
        "choices": (0..asked.choices).map(choice).collect::<Vec<_>>(),
        "usage": usage(asked, schedule, tokens),
    });
    let length = reply.to_string().len();
    if let Some(missing @ 1..) = body_bytes.checked_sub(length + r#","padding":"""#.len()) {
        reply["padding"] = "x".repeat(missing).into();
    }
    reply.to_string().into_bytes()
}

/// An error reply in `OpenAI`'s shape.
pub(super) fn error_object(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// Appends `data` as one chunk of a chunked body (RFC 9112, section 7.1). Nothing for empty data, which would end it.
pub(super) fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    if !data.is_empty() {
        put(out, format_args!("{:x}\r\n", data.len()));
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

/// The end of a chunked body.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn usage(asked: &Asked, schedule: &Schedule, tokens: u32) -> Value {
    let hidden = u64::from(schedule.hidden_reasoning);
    let reasoning = u64::from(schedule.reasoning.min(tokens)) * u64::from(asked.choices) + hidden;
    let completion = u64::from(tokens) * u64::from(asked.choices) + hidden;
    json!({
        "prompt_tokens": asked.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": asked.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    })
}

fn write_field(name: &str, choice: u32, tokens: Range<u32>, out: &mut Vec<u8>) {
    put(out, format_args!(r#""{name}":""#));
    text::write_escaped(choice, tokens, out);
    out.push(b'"');
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes every write.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked::read(br#"{"model":"m\"x","messages":[{"role":"user","content":"a b c"}],"n":2,"stream":true}"#)
            .expect("valid request")
    }

    fn json_of(event: &Planned, schedule: Schedule) -> Value {
        let asked = asked();
        let mut chunk = Vec::new();
        EventWriter::new("7", &asked, schedule, true).write(event, &mut chunk);
        let chunk = String::from_utf8(chunk).expect("UTF-8");
        let (size, rest) = chunk.split_once("\r\n").expect("chunk size");
        let data = rest.strip_suffix("\r\n").expect("chunk end");
        assert_eq!(usize::from_str_radix(size, 16), Ok(data.len()));
        let data = data.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n")).expect("one event");
        serde_json::from_str(data).expect("JSON")
    }

    fn planned(kind: Kind, tokens: Range<u32>) -> Planned {
        Planned { kind, choice: 1, tokens, due: std::time::Duration::ZERO }
    }

    #[test]
    fn an_event_across_the_end_of_reasoning_carries_both() {
        let schedule = Schedule { reasoning: 3, ..Schedule::default() };
        let event = json_of(&planned(Kind::Token, 2..4), schedule);
        let delta = &event["choices"][0]["delta"];
        assert_eq!(delta["reasoning_content"], text::text_of(1, 2..3));
        assert_eq!(delta["content"], text::text_of(1, 3..4));
        assert_eq!(event["model"], "m\"x");
        assert_eq!(event["choices"][0]["index"], 1);
    }

    #[test]
    fn role_finish_and_usage_events_carry_no_output() {
        let schedule = Schedule { role_first: true, usage: UsagePolicy::Always, ..Schedule::default() };
        let role = json_of(&planned(Kind::Role, 0..0), schedule);
        assert_eq!(role["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
        assert_eq!(role["usage"], Value::Null);
        let finish = json_of(&planned(Kind::Finish, 0..0), schedule);
        assert_eq!(finish["choices"][0]["delta"], json!({}));
        assert_eq!(finish["choices"][0]["finish_reason"], "stop");
        let usage = json_of(&planned(Kind::Usage, 0..0), schedule);
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"]["completion_tokens"], 128);
        assert_eq!(usage["usage"]["prompt_tokens"], 3);
    }

    #[test]
    fn padding_reaches_the_wanted_size() {
        let reply = whole("7", &asked(), &Schedule { tokens: 4, ..Schedule::default() }, 2_000);
        assert_eq!(reply.len(), 2_000);
    }
}
