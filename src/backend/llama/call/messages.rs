//! The conversation of a request: text, and nothing else.

use serde_json::Value;

use super::field::Field;
use super::{BadCall, Message, REPEATED, crop};

/// Reads `messages`.
pub(super) fn read(messages: &Field<'_>) -> Result<Vec<Message>, BadCall> {
    let conversation = messages.array()?.ok_or_else(|| messages.bad("is missing: it is the conversation to answer"))?;
    if conversation.is_empty() {
        return Err(messages.bad("is empty: it must have at least one message"));
    }
    conversation.iter().enumerate().map(|(at, _)| message(&messages.inner_at(at))).collect()
}

fn message(message: &Field<'_>) -> Result<Message, BadCall> {
    let fields = message.object()?.ok_or_else(|| message.bad("must be an object"))?;
    let field = |name: &str| message.inner(name, fields.get(name));
    let role = field("role");
    let name = role.text()?.ok_or_else(|| role.bad("is missing: it says who speaks"))?;
    if matches!(name, "tool" | "function") {
        return Err(role.bad(format!("is `{name}`: this model calls no tools")));
    }
    for calls in ["tool_calls", "function_call"] {
        let calls = field(calls);
        if calls.value().is_some_and(|value| value.as_array().is_none_or(|calls| !calls.is_empty())) {
            return Err(calls.bad("is not supported: this model calls no tools"));
        }
    }
    let content = field("content");
    let text = match content.value() {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let parts = (0..parts.len()).map(|at| part(&content.inner_at(at))).collect::<Result<Vec<_>, _>>()?;
            parts.join("\n")
        }
        Some(_) => return Err(content.bad("must be a string or an array of text parts")),
        None if name == "assistant" => String::new(),
        None => return Err(content.bad("is missing: it is what the message says")),
    };
    // OpenAI's newer name; templates of Llama models know only the older one.
    let name = if name == "developer" { "system" } else { name };
    Ok(Message { role: name.to_owned(), content: text })
}

fn part<'a>(part: &Field<'a>) -> Result<&'a str, BadCall> {
    let fields = part.object()?.ok_or_else(|| part.bad("must be an object with a type"))?;
    let kind = part.inner("type", fields.get("type"));
    match kind.text()? {
        Some("text") => {}
        Some(other) => return Err(kind.bad(format!("is `{}`: this model reads only text", crop(other, REPEATED)))),
        None => return Err(kind.bad("is missing: it must be `text`")),
    }
    let text = part.inner("text", fields.get("text"));
    text.text()?.ok_or_else(|| text.bad("is missing"))
}
