//! What OpenAI's two kinds of completions share: choices by their index, and what is said beside them.
//!
//! Invariants:
//! * Of what is said again in every event, the last that is not null counts.
//! * No choice is left out: one that cannot be followed makes the reply too large.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use super::node::{self, Members, Room};
use super::{MOST_CHOICES, Parts, Told};
use crate::wire::raw::{items, members};

/// What only streams have: the events' own type, and padding against guesses from their lengths.
const OF_STREAMS: [&str; 2] = ["object", "obfuscation"];

/// The output of one choice: a message, or text.
pub(super) trait Output: Debug + Default + Send {
    /// The type of the whole reply.
    const OBJECT: &'static str;
    /// The members of a choice that hold output.
    const MEMBERS: &'static [&'static str];

    /// Adds what an event's choice, given by its members, says.
    fn add(&mut self, parts: &[(Cow<'_, str>, &str)], room: &mut Room);

    /// Writes it and the choice's index, with a comma behind.
    fn write(&self, index: u32, out: &mut String);
}

/// One reply so far.
#[derive(Debug, Default)]
pub(super) struct Choices<O> {
    /// What the events say beside their choices; of each, the last that is not null.
    top: Members,
    /// The last token counts, raw. `None` when there were none.
    usage: Option<Box<str>>,
    choices: BTreeMap<u32, Choice<O>>,
}

/// One choice so far.
#[derive(Debug, Default)]
struct Choice<O> {
    output: O,
    /// `None` while none came that is an object.
    logprobs: Option<Members>,
    /// Raw. `None` while none came that is not null.
    finish_reason: Option<Box<str>>,
    others: Members,
}

impl<O: Output> Parts for Choices<O> {
    fn add(&mut self, _: &[u8], event: &str, told: &mut Told) {
        let mut parts = Vec::new();
        if !members(event, |key, value| parts.push((key, value))) {
            return;
        }
        let Told { error, room, .. } = told;
        for (key, value) in parts {
            match &*key {
                "choices" => {
                    items(value, |choice| self.choice(choice, room));
                }
                "usage" => {
                    if value.starts_with('{') {
                        room.replace(&mut self.usage, value);
                    }
                }
                "error" if !node::is_empty(value) => room.replace(error, value),
                "error" => {}
                "type" if value == r#""error""# => {
                    if error.is_none() {
                        room.replace(error, event);
                    }
                }
                key if OF_STREAMS.contains(&key) => {}
                key => self.top.last(key, value, room),
            }
        }
    }

    fn has_begun(&self) -> bool {
        !self.choices.is_empty()
    }

    fn is_finished(&self) -> bool {
        self.has_begun() && self.choices.values().all(|choice| choice.finish_reason.is_some())
    }

    fn has_all(&self, choices: u32) -> bool {
        self.choices.len() >= choices as usize
    }

    fn has_usage(&self) -> bool {
        self.usage.is_some()
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        self.top.write_some(out, |name| name == "id");
        out.extend([r#""object":""#, O::OBJECT, r#"","#]);
        self.top.write_some(out, |name| matches!(name, "created" | "model"));
        out.push_str(r#""choices":["#);
        for (index, choice) in &self.choices {
            choice.write(*index, out);
            out.push(',');
        }
        node::close(out, ']');
        out.push(',');
        if let Some(usage) = &self.usage {
            out.extend([r#""usage":"#, usage, ","]);
        }
        self.top.write_some(out, |name| !matches!(name, "id" | "created" | "model"));
        node::close(out, '}');
    }
}

impl<O: Output> Choices<O> {
    fn choice(&mut self, text: &str, room: &mut Room) {
        let mut parts = Vec::new();
        let mut index = 0;
        let is_object = members(text, |key, value| match &*key {
            "index" => index = value.parse().unwrap_or(0),
            _ => parts.push((key, value)),
        });
        if !is_object {
            return;
        }
        if self.choices.len() >= MOST_CHOICES && !self.choices.contains_key(&index) {
            return room.exceed();
        }
        let choice = self.choices.entry(index).or_default();
        choice.output.add(&parts, room);
        for (key, value) in parts {
            match &*key {
                key if O::MEMBERS.contains(&key) => {}
                "logprobs" => {
                    if value.starts_with('{') {
                        choice.logprobs.get_or_insert_default().merge_all(value, room);
                    }
                }
                "finish_reason" => {
                    if value.starts_with('"') && value.len() > 2 {
                        room.replace(&mut choice.finish_reason, value);
                    }
                }
                // vLLM's, of which each event has its own.
                key @ "token_ids" => choice.others.merge(key, value, room),
                key => choice.others.last(key, value, room),
            }
        }
    }
}

impl<O: Output> Choice<O> {
    fn write(&self, index: u32, out: &mut String) {
        out.push('{');
        self.output.write(index, out);
        out.push_str(r#""logprobs":"#);
        match &self.logprobs {
            Some(logprobs) => logprobs.write(out),
            None => out.push_str("null"),
        }
        out.extend([r#","finish_reason":"#, self.finish_reason.as_deref().unwrap_or("null"), ","]);
        self.others.write_some(out, |_| true);
        node::close(out, '}');
    }
}
