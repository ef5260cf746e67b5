//! Messages, Anthropic's: requests read, replies written.
//!
//! A reply is a list of blocks, thinking before text or the use of a tool. `message_delta` carries both the stop reason
//! and the token counts: it is logged as the finish, or as the usage where the finish reason is left out.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{self, Asked, first_tool, named, parse, words};
use super::events::{Events, Mark, put};
use super::log::Kind;
use super::reply::{BREAKDOWN, Reply, Stop, Writer};
use super::schedule::Planned;
use super::text;

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    #[serde(default)]
    system: Value,
    #[serde(default)]
    messages: Vec<Message>,
    stream: Option<bool>,
    max_tokens: Option<u32>,
    #[serde(default)]
    tools: Value,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
}

/// Reads a request body. The error is a sentence for the client.
pub(super) fn read(body: &[u8]) -> Result<Asked, String> {
    let body: Body = parse(body, "a messages request")?;
    let said: u64 = body.messages.iter().map(|message| words(&message.content)).sum();
    Ok(Asked {
        model: named(body.model)?,
        stream: body.stream.unwrap_or(false),
        choices: 1,
        prompt_tokens: words(&body.system) + said,
        // This dialect counts without being asked.
        include_usage: true,
        max_tokens: body.max_tokens,
        tool: first_tool(&body.tools),
        created: asked::now(),
        ..Asked::default()
    })
}

/// Answers how many tokens a request body has, and says it beside. The error is a sentence for the client.
pub(super) fn count_tokens(body: &[u8]) -> Result<(Value, u64), String> {
    let tokens = read(body)?.prompt_tokens;
    Ok((json!({ "input_tokens": tokens }), tokens))
}

/// Writes a stream.
pub(super) struct Stream<'a> {
    reply: Reply<'a>,
    begun: bool,
    stopped: bool,
    /// How many blocks have been opened.
    blocks: u32,
    open: Option<Block>,
    /// The open block's deltas up to what they carry.
    opening: Vec<u8>,
}

/// A kind of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

/// Stands for what only the real API could sign.
const SIGNATURE: &str = "c2lnbmVkIGJ5IGEgc2ltdWxhdGlvbg==";

impl<'a> Stream<'a> {
    pub(super) fn new(reply: Reply<'a>) -> Self {
        Self { reply, begun: false, stopped: false, blocks: 0, open: None, opening: Vec::new() }
    }

    fn begin(&mut self, out: &mut Events) {
        if !std::mem::replace(&mut self.begun, true) {
            let mut message = message(&self.reply, &[], None);
            message["usage"] = self.usage(1, 0);
            push(out, Kind::Role, "message_start", &json!({ "message": message }));
        }
    }

    /// Opens a block of this kind unless it is open.
    fn open(&mut self, block: Block, out: &mut Events) {
        if self.open == Some(block) {
            return;
        }
        self.close(out);
        let empty = match block {
            Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Block::Text => json!({"type": "text", "text": ""}),
            Block::ToolUse => tool_use(&self.reply, &json!({})),
        };
        // The name of a tool is output.
        let kind = if block == Block::ToolUse { Kind::Token } else { Kind::Part };
        push(out, kind, "content_block_start", &json!({"index": self.blocks, "content_block": empty}));
        if self.blocks == 0 {
            push(out, Kind::Part, "ping", &json!({}));
        }
        let (kind, field) = match block {
            Block::Thinking => ("thinking_delta", "thinking"),
            Block::Text => ("text_delta", "text"),
            Block::ToolUse => ("input_json_delta", "partial_json"),
        };
        self.opening.clear();
        put(
            &mut self.opening,
            format_args!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{},\"delta\":{{\"type\":\"{kind}\",\"{field}\":\"",
                self.blocks
            ),
        );
        self.blocks += 1;
        self.open = Some(block);
    }

    fn close(&mut self, out: &mut Events) {
        let Some(block) = self.open.take() else { return };
        let index = self.blocks - 1;
        if block == Block::Thinking {
            let delta = json!({"type": "signature_delta", "signature": SIGNATURE});
            push(out, Kind::Part, "content_block_delta", &json!({"index": index, "delta": delta}));
        }
        push(out, Kind::Part, "content_block_stop", &json!({ "index": index }));
    }

    fn delta(&self, kind: Kind, tokens: &Range<u32>, out: &mut Events, write: impl FnOnce(&mut Vec<u8>)) {
        out.push(Mark { kind, choice: 0, tokens: tokens.end - tokens.start }, |out| {
            out.extend_from_slice(&self.opening);
            write(out);
            out.extend_from_slice(br#""}}"#);
        });
    }

    /// The event that carries the stop reason, if any, and the counts, if they are wanted.
    fn stop(&mut self, kind: Kind, reason: Option<&str>, tokens: u32, out: &mut Events) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        let mut fields = json!({"delta": {"stop_reason": reason, "stop_sequence": null}});
        if self.reply.asked.wants_usage(self.reply.schedule()) {
            let counts = self.reply.counts(tokens);
            fields["usage"] = output_usage(counts.output, counts.reasoning);
        }
        push(out, kind, "message_delta", &fields);
    }

    /// The counts at the beginning; null where they are never told.
    fn usage(&self, output: u64, thinking: u64) -> Value {
        if self.reply.asked.wants_usage(self.reply.schedule()) {
            usage(self.reply.asked.prompt_tokens, output, thinking)
        } else {
            Value::Null
        }
    }
}

impl Writer for Stream<'_> {
    fn write(&mut self, planned: &Planned, out: &mut Events) {
        self.begin(out);
        match planned.kind {
            Kind::Token | Kind::Reasoning => {
                let (reasoning, answer) = self.reply.split(&planned.tokens);
                if !reasoning.is_empty() {
                    self.open(Block::Thinking, out);
                    self.delta(Kind::Reasoning, &reasoning, out, |out| text::write_escaped(0, reasoning.clone(), out));
                }
                if !answer.is_empty() {
                    self.open(if self.reply.calls() { Block::ToolUse } else { Block::Text }, out);
                    self.delta(Kind::Token, &answer, out, |out| self.reply.write_answer(0, answer.clone(), out));
                }
            }
            Kind::Part => self.close(out),
            Kind::Finish => self.stop(Kind::Finish, Some(stop_reason(&self.reply)), planned.tokens.end, out),
            Kind::Usage => self.stop(Kind::Usage, None, planned.tokens.end, out),
            Kind::Done => push(out, Kind::Done, "message_stop", &json!({})),
            Kind::Error => {
                let error = json!({"type": "overloaded_error", "message": BREAKDOWN});
                push(out, Kind::Error, "error", &json!({ "error": error }));
            }
            _ => {}
        }
    }
}

/// A whole reply.
pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let (reasoning, answer) = reply.split(&(0..reply.tokens()));
    let mut content = Vec::new();
    if !reasoning.is_empty() {
        let thinking = text::text_of(0, reasoning);
        content.push(json!({"type": "thinking", "thinking": thinking, "signature": SIGNATURE}));
    }
    if !answer.is_empty() {
        let said = reply.answer(0, answer);
        content.push(if reply.calls() {
            // Cut arguments are no JSON, and a reply that is none must not be given.
            tool_use(reply, &serde_json::from_str(&said).unwrap_or_else(|_| json!({})))
        } else {
            json!({"type": "text", "text": said})
        });
    }
    let counts = reply.counts(reply.tokens());
    let mut message = message(reply, &content, Some(stop_reason(reply)));
    message["usage"] = usage(counts.prompt, counts.output, counts.reasoning);
    message
}

/// An error in Anthropic's shape, for a reply of this status.
pub(super) fn error(status: u16, message: &str, request_id: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})
}

fn message(reply: &Reply<'_>, content: &[Value], stop_reason: Option<&str>) -> Value {
    json!({
        "id": format!("msg_{}", reply.id),
        "type": "message",
        "role": "assistant",
        "model": reply.asked.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
    })
}

fn tool_use(reply: &Reply<'_>, input: &Value) -> Value {
    json!({"type": "tool_use", "id": format!("toolu_{}", reply.id), "name": reply.tool(), "input": input})
}

fn stop_reason(reply: &Reply<'_>) -> &'static str {
    match reply.stop() {
        Stop::End => "end_turn",
        Stop::Length => "max_tokens",
        Stop::Tool => "tool_use",
        Stop::Refusal => "refusal",
    }
}

fn usage(input: u64, output: u64, thinking: u64) -> Value {
    let mut usage = output_usage(output, thinking);
    usage["input_tokens"] = input.into();
    usage["cache_creation_input_tokens"] = 0.into();
    usage["cache_read_input_tokens"] = 0.into();
    usage
}

fn output_usage(output: u64, thinking: u64) -> Value {
    match thinking {
        0 => json!({ "output_tokens": output }),
        _ => json!({"output_tokens": output, "output_tokens_details": {"thinking_tokens": thinking}}),
    }
}

/// Appends an event that carries no tokens: its name, and its fields after its type.
fn push(out: &mut Events, kind: Kind, name: &str, fields: &Value) {
    let fields = fields.to_string();
    let comma = if fields == "{}" { "" } else { "," };
    out.push(Mark { kind, choice: 0, tokens: 0 }, |out| {
        put(out, format_args!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{}", &fields[1..]));
    });
}

#[cfg(test)]
mod tests;
