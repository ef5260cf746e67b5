//! Responses, `OpenAI`'s successor to chat completions: requests read, and the objects that replies are made of.
//!
//! A reply is a list of items: reasoning before a message or the call of a function. It repeats most of its request.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::asked::{self, Asked, first_tool, named, parse, words};
use super::reply::{Reply, Stop};
use super::text;

mod stream;

pub(super) use stream::Stream;

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    #[serde(default)]
    input: Value,
    stream: Option<bool>,
    /// The rest, much of which the reply repeats.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Reads a request body. The error is a sentence for the client.
pub(super) fn read(body: &[u8]) -> Result<Asked, String> {
    let body: Body = parse(body, "a responses request")?;
    let given = |name: &str| body.rest.get(name).unwrap_or(&Value::Null);
    let max_tokens = match given("max_output_tokens") {
        Value::Null => None,
        most => Some(most.as_u64().ok_or("max_output_tokens is not a number of tokens")?),
    };
    Ok(Asked {
        model: named(body.model)?,
        stream: body.stream.unwrap_or(false),
        choices: 1,
        prompt_tokens: words(given("instructions")) + words(&body.input),
        // This dialect counts without being asked.
        include_usage: true,
        max_tokens: max_tokens.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        tool: first_tool(given("tools")),
        repeated: body.rest,
        created: asked::now(),
    })
}

/// A part of a reply, which is an item of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Reasoning,
    Message,
    Call,
}

/// How far a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InProgress,
    /// Over after so many tokens.
    Over(u32),
    Failed,
}

/// A whole reply.
pub(super) fn whole(reply: &Reply<'_>) -> Value {
    let mut whole = response(reply, State::Over(reply.tokens()));
    whole["usage"] = usage(reply, reply.tokens());
    whole
}

/// What asking for an earlier response answers, which this simulation has not kept: it says nothing.
pub(super) fn earlier(id: &str, model: &str, status: &str) -> Value {
    let mut response = object(id, model, 0, &Map::new());
    response["status"] = status.into();
    response
}

/// The response object of a reply, without usage.
fn response(reply: &Reply<'_>, state: State) -> Value {
    let asked = reply.asked;
    let mut response = object(&format!("resp_{}", reply.id), &asked.model, asked.created, &asked.repeated);
    let cut = reply.stop() == Stop::Length;
    response["status"] = match state {
        State::InProgress => "in_progress",
        State::Over(_) if cut => "incomplete",
        State::Over(_) => "completed",
        State::Failed => "failed",
    }
    .into();
    match state {
        State::InProgress => {}
        State::Over(tokens) => {
            if cut {
                response["incomplete_details"] = json!({"reason": "max_output_tokens"});
            } else {
                response["completed_at"] = asked.created.into();
            }
            let (reasoning, answer) = reply.split(&(0..tokens));
            let mut items = Vec::new();
            if !reasoning.is_empty() {
                items.push(item(reply, Part::Reasoning, Some(text::text_of(0, reasoning))));
            }
            if !answer.is_empty() {
                let part = if reply.calls() { Part::Call } else { Part::Message };
                items.push(item(reply, part, Some(reply.answer(0, answer))));
            }
            response["output"] = items.into();
        }
        State::Failed => response["error"] = json!({"code": "server_error", "message": super::reply::BREAKDOWN}),
    }
    response
}

/// Every field that a response always has, with what the request gave or the API's defaults.
fn object(id: &str, model: &str, created: u64, given: &Map<String, Value>) -> Value {
    let or = |name: &str, default: Value| given.get(name).filter(|value| !value.is_null()).cloned().unwrap_or(default);
    let mut text = given.get("text").and_then(Value::as_object).cloned().unwrap_or_default();
    text.entry("format").or_insert_with(|| json!({"type": "text"}));
    json!({
        "id": id,
        "object": "response",
        "created_at": created,
        "completed_at": null,
        "status": "in_progress",
        "background": or("background", false.into()),
        "error": null,
        "incomplete_details": null,
        "instructions": or("instructions", Value::Null),
        "max_output_tokens": or("max_output_tokens", Value::Null),
        "max_tool_calls": or("max_tool_calls", Value::Null),
        "model": model,
        "output": [],
        "parallel_tool_calls": or("parallel_tool_calls", true.into()),
        "previous_response_id": or("previous_response_id", Value::Null),
        "prompt_cache_key": or("prompt_cache_key", Value::Null),
        "reasoning": or("reasoning", json!({"effort": null, "summary": null})),
        "safety_identifier": or("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": or("store", true.into()),
        "temperature": or("temperature", 1.0.into()),
        "text": text,
        "tool_choice": or("tool_choice", "auto".into()),
        "tools": or("tools", json!([])),
        "top_logprobs": or("top_logprobs", 0.into()),
        "top_p": or("top_p", 1.0.into()),
        "truncation": or("truncation", "disabled".into()),
        "usage": null,
        "user": or("user", Value::Null),
        "metadata": or("metadata", json!({})),
    })
}

/// One item of the output: as it is added, or done with all its text.
fn item(reply: &Reply<'_>, part: Part, text: Option<String>) -> Value {
    let status = match text {
        None => "in_progress",
        Some(_) if part != Part::Reasoning && reply.stop() == Stop::Length => "incomplete",
        Some(_) => "completed",
    };
    let id = item_id(reply, part);
    match part {
        Part::Call => json!({
            "id": id,
            "type": "function_call",
            "status": status,
            "call_id": format!("call_{}", reply.id),
            "name": reply.tool(),
            "arguments": text.unwrap_or_default(),
        }),
        Part::Message => {
            let content: Vec<Value> = text.map(|text| content(reply, part, &text)).into_iter().collect();
            json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
        }
        Part::Reasoning => {
            let told: Vec<Value> = text.map(|text| content(reply, part, &text)).into_iter().collect();
            if reply.character.summary {
                json!({"id": id, "type": "reasoning", "status": status, "summary": told})
            } else {
                json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": told})
            }
        }
    }
}

/// What an item of text holds.
fn content(reply: &Reply<'_>, part: Part, text: &str) -> Value {
    match part {
        Part::Reasoning if reply.character.summary => json!({"type": "summary_text", "text": text}),
        Part::Reasoning => json!({"type": "reasoning_text", "text": text}),
        _ if reply.refuses() => json!({"type": "refusal", "refusal": text}),
        _ => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
    }
}

fn item_id(reply: &Reply<'_>, part: Part) -> String {
    let prefix = match part {
        Part::Reasoning => "rs",
        Part::Message => "msg",
        Part::Call => "fc",
    };
    format!("{prefix}_{}", reply.id)
}

fn usage(reply: &Reply<'_>, tokens: u32) -> Value {
    let counts = reply.counts(tokens);
    json!({
        "input_tokens": counts.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.prompt + counts.output,
    })
}

#[cfg(test)]
mod tests;
