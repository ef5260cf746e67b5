//! The message of a chat completion's choice.
//!
//! Invariant: `content` is absent only where something else answers.

use std::borrow::Cow;

use super::choices::Output;
use super::node::{self, Members, Room};
use crate::wire::raw::{items, members};

/// How many tool calls of a choice are followed: they are looked up one by one.
const MOST_CALLS: usize = 256;

/// One message so far.
#[derive(Debug, Default)]
pub(super) struct Message {
    members: Members,
    calls: Vec<Call>,
}

/// One tool call so far.
#[derive(Debug, Default)]
struct Call {
    /// `None` when its parts name none, as some vendors send whole calls.
    index: Option<u32>,
    parts: Members,
}

impl Output for Message {
    const OBJECT: &'static str = "chat.completion";
    const MEMBERS: &'static [&'static str] = &["delta", "message"];

    fn add(&mut self, parts: &[(Cow<'_, str>, &str)], room: &mut Room) {
        // Some relays put a whole reply into an event, so the message speaks where there is no delta.
        let speaks = |name: &str| parts.iter().any(|(key, value)| key == name && value.starts_with('{'));
        let message = if speaks("delta") { "delta" } else { "message" };
        for (_, value) in parts.iter().filter(|(key, _)| key == message) {
            members(value, |key, value| match &*key {
                "tool_calls" => {
                    items(value, |call| self.call(call, room));
                }
                key => self.members.merge(key, value, room),
            });
        }
    }

    fn write(&self, index: u32, out: &mut String) {
        out.extend([r#""index":"#, &index.to_string(), r#","message":{"#]);
        let calls = !self.calls.is_empty() || self.members.has("function_call");
        if self.members.has("role") {
            self.members.write_some(out, |name| name == "role");
        } else {
            out.push_str(r#""role":"assistant","#);
        }
        // An answer without text is empty; one that is a call, or a refusal, has none.
        if self.members.has_text("content") || !(calls || self.members.has_text("refusal")) {
            self.members.write_or(out, "content", r#""""#);
        } else {
            out.push_str(r#""content":null,"#);
        }
        self.members.write_or(out, "refusal", "null");
        if !self.calls.is_empty() {
            out.push_str(r#""tool_calls":["#);
            for call in &self.calls {
                call.parts.write(out);
                out.push(',');
            }
            node::close(out, ']');
            out.push(',');
        }
        self.members.write_some(out, |name| !matches!(name, "role" | "content" | "refusal"));
        node::close(out, '}');
        out.push(',');
    }
}

impl Message {
    fn call(&mut self, text: &str, room: &mut Room) {
        let (mut index, mut id) = (None, None);
        let is_object = members(text, |key, value| match &*key {
            "index" => index = value.parse().ok(),
            "id" if value.len() > 2 => id = Some(value),
            _ => {}
        });
        if !is_object {
            return;
        }
        let known = match index {
            Some(_) => self.calls.iter().position(|call| call.index == index),
            None => {
                self.calls.len().checked_sub(1).filter(|last| id.is_none_or(|id| self.calls[*last].parts.is("id", id)))
            }
        };
        let at = match known {
            Some(at) => at,
            None if self.calls.len() < MOST_CALLS && room.take(size_of::<Call>()) => {
                self.calls.push(Call { index, parts: Members::default() });
                self.calls.len() - 1
            }
            None => return,
        };
        let parts = &mut self.calls[at].parts;
        members(text, |key, value| {
            if key != "index" {
                parts.merge(&key, value, room);
            }
        });
    }
}

#[cfg(test)]
mod tests;
