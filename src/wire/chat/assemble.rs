//! The events of a stream → the whole reply they are the parts of: the JSON that asking without `stream` would have
//! brought.
//!
//! Invariants:
//! * Reading never fails: a field of the wrong type says nothing, and takes nothing from its neighbours.
//! * Text is put together as it is written, escapes included, so a character whose halves came in two events is whole.
//! * At most [`LARGEST`] bytes are kept, about; what is beyond makes the reply [too large](Assembler::is_too_large).

use std::collections::BTreeMap;

use crate::wire::raw::{items, members};

mod node;

use node::{Members, Room};

/// The largest reply that is put together, in bytes.
pub const LARGEST: usize = 16 << 20;
/// How many choices of a reply are followed, which is the most that `n` may ask for.
const MOST_CHOICES: usize = 128;
/// How many tool calls of a choice are followed: they are looked up one by one.
const MOST_CALLS: usize = 256;
/// What only streams have: the events' own type, and padding against guesses from their lengths.
const OF_STREAMS: [&str; 2] = ["object", "obfuscation"];

/// Puts one reply together. Feed it the data of every event in order, then take its [`json`](Self::json).
///
/// ```
/// use streamgauge::wire::chat::{Assembler, Standing};
///
/// let mut reply = Assembler::new();
/// reply.event(br#"{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"a "}}]}"#);
/// reply.event(br#"{"id":"c","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}"#);
/// assert_eq!(reply.standing(1, true), Standing::Whole);
/// assert!(reply.json().contains(r#""content":"a b""#));
/// ```
#[derive(Debug, Default)]
pub struct Assembler {
    /// What the events say beside their choices; of each, the last that is not null.
    top: Members,
    /// The last token counts, raw. `None` when there were none.
    usage: Option<Box<str>>,
    choices: BTreeMap<u32, Choice>,
    /// The error object, or the event that is one, raw.
    error: Option<Box<str>>,
    done: bool,
    room: Room,
}

/// One choice so far.
#[derive(Debug, Default)]
struct Choice {
    message: Members,
    calls: Vec<Call>,
    /// `None` while none came that is an object.
    logprobs: Option<Members>,
    /// Raw. `None` while none came that is not null.
    finish_reason: Option<Box<str>>,
    others: Members,
}

/// One tool call so far.
#[derive(Debug, Default)]
struct Call {
    /// `None` when its parts name none, as some vendors send whole calls.
    index: Option<u32>,
    parts: Members,
}

/// What can be said of a stream that is over, by the rules that decide outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It came to its end.
    Whole,
    /// It ended in an error object.
    Error,
    /// It broke off.
    Half,
}

impl Assembler {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the data of one event.
    pub fn event(&mut self, data: &[u8]) {
        match data.trim_ascii() {
            b"" => {}
            b"[DONE]" => self.done = true,
            data => self.chunk(&String::from_utf8_lossy(data)),
        }
    }

    /// Whether nothing that may follow matters: the end marker came, or an error, or too much.
    pub fn is_over(&self) -> bool {
        self.done || self.error.is_some() || self.room.is_exceeded()
    }

    /// Whether more came than can be kept.
    pub fn is_too_large(&self) -> bool {
        self.room.is_exceeded()
    }

    /// How many bytes are kept, about.
    pub fn held(&self) -> usize {
        self.room.used()
    }

    /// Whether token counts came.
    pub fn has_usage(&self) -> bool {
        self.usage.is_some()
    }

    /// The error object, or the event that is one, as raw JSON. `None` when none came.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// How the stream stands as the reply to a request for so many choices; `in_order` says that HTTP ended it as it
    /// should.
    pub fn standing(&self, choices: u32, in_order: bool) -> Standing {
        let finished = !self.choices.is_empty() && self.choices.values().all(|choice| choice.finish_reason.is_some());
        let all = self.choices.len() >= (choices as usize).min(MOST_CHOICES);
        if finished && (all || self.done || in_order) {
            Standing::Whole
        } else if self.error.is_some() {
            Standing::Error
        } else if self.done && !self.choices.is_empty() {
            Standing::Whole
        } else {
            Standing::Half
        }
    }

    /// The whole reply.
    pub fn json(&self) -> String {
        let mut out = String::with_capacity(self.room.used() + 256);
        out.push('{');
        self.top.write_some(&mut out, |name| name == "id");
        out.push_str(r#""object":"chat.completion","#);
        self.top.write_some(&mut out, |name| matches!(name, "created" | "model"));
        out.push_str(r#""choices":["#);
        for (at, (index, choice)) in self.choices.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            choice.write(*index, &mut out);
        }
        out.push_str("],");
        if let Some(usage) = &self.usage {
            out.extend([r#""usage":"#, usage, ","]);
        }
        self.top.write_some(&mut out, |name| !matches!(name, "id" | "created" | "model"));
        node::close(&mut out, '}');
        out
    }

    fn chunk(&mut self, text: &str) {
        let mut parts = Vec::new();
        if !members(text, |key, value| parts.push((key, value))) {
            return;
        }
        for (key, value) in parts {
            match &*key {
                "choices" => {
                    items(value, |choice| self.choice(choice));
                }
                "usage" => {
                    if value.starts_with('{') {
                        self.room.replace(&mut self.usage, value);
                    }
                }
                "error" if !is_empty(value) => self.room.replace(&mut self.error, value),
                "error" => {}
                "type" if value == r#""error""# => {
                    if self.error.is_none() {
                        self.room.replace(&mut self.error, text);
                    }
                }
                key if OF_STREAMS.contains(&key) => {}
                key => self.top.last(key, value, &mut self.room),
            }
        }
    }

    fn choice(&mut self, text: &str) {
        let mut parts = Vec::new();
        let mut index = 0;
        let is_object = members(text, |key, value| match &*key {
            "index" => index = value.parse().unwrap_or(0),
            _ => parts.push((key, value)),
        });
        if !is_object || (self.choices.len() >= MOST_CHOICES && !self.choices.contains_key(&index)) {
            return;
        }
        let room = &mut self.room;
        let choice = self.choices.entry(index).or_default();
        // Some relays put a whole reply into an event, so the message speaks where there is no delta.
        let speaks = |name: &str| parts.iter().any(|(key, value)| key == name && value.starts_with('{'));
        let message = if speaks("delta") { "delta" } else { "message" };
        for (key, value) in parts {
            match &*key {
                name if name == message => choice.message(value, room),
                "logprobs" if value.starts_with('{') => {
                    choice.logprobs.get_or_insert_default().merge_all(value, room);
                }
                "delta" | "message" | "logprobs" => {}
                "finish_reason" => {
                    if value.starts_with('"') && value.len() > 2 {
                        room.replace(&mut choice.finish_reason, value);
                    }
                }
                key => choice.others.last(key, value, room),
            }
        }
    }
}

impl Choice {
    fn message(&mut self, text: &str, room: &mut Room) {
        members(text, |key, value| match &*key {
            "tool_calls" => {
                items(value, |call| self.call(call, room));
            }
            key => self.message.merge(key, value, room),
        });
    }

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

    fn write(&self, index: u32, out: &mut String) {
        out.extend([r#"{"index":"#, &index.to_string(), r#","message":{"#]);
        let calls = !self.calls.is_empty() || self.message.has("function_call");
        if self.message.has("role") {
            self.message.write_some(out, |name| name == "role");
        } else {
            out.push_str(r#""role":"assistant","#);
        }
        // An answer without text is empty; one that is a call, or a refusal, has none.
        if self.message.has_text("content") || !(calls || self.message.has_text("refusal")) {
            self.message.write_or(out, "content", r#""""#);
        } else {
            out.push_str(r#""content":null,"#);
        }
        self.message.write_or(out, "refusal", "null");
        if !self.calls.is_empty() {
            out.push_str(r#""tool_calls":["#);
            for call in &self.calls {
                call.parts.write(out);
                out.push(',');
            }
            node::close(out, ']');
            out.push(',');
        }
        self.message.write_some(out, |name| !matches!(name, "role" | "content" | "refusal"));
        node::close(out, '}');
        out.push_str(r#","logprobs":"#);
        match &self.logprobs {
            Some(logprobs) => logprobs.write(out),
            None => out.push_str("null"),
        }
        out.extend([r#","finish_reason":"#, self.finish_reason.as_deref().unwrap_or("null"), ","]);
        self.others.write_some(out, |_| true);
        node::close(out, '}');
    }
}

/// Whether an `error` says nothing: `null`, `false`, `0`, an empty string, list or object.
fn is_empty(text: &str) -> bool {
    let inner = text.strip_prefix(['[', '{']).and_then(|text| text.strip_suffix([']', '}']));
    matches!(text, "null" | "false" | "0" | r#""""#) || inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests;
