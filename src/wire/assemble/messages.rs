//! Anthropic's messages: what `message_start` begins, its blocks by their index, and what `message_delta` adds.
//!
//! Invariants:
//! * A block stays as it began, but for what its deltas add; so kinds that are not known here are kept.
//! * Of what is told again, the last that is not null counts, of token counts each by itself.

use std::collections::BTreeMap;

use super::node::{self, Members, Room};
use super::{Parts, Told};
use crate::wire::envelope;
use crate::wire::raw::{fields, is_text, items, members};

mod input;

use input::Input;

/// What nothing but text can be.
const TEXT: [&str; 5] = ["id", "role", "model", "stop_reason", "stop_sequence"];

/// One message so far.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// What it says beside its content and its usage.
    top: Members,
    usage: Members,
    /// By their index, and how many began before them: should two have one index, deltas are the later one's.
    blocks: BTreeMap<(u32, usize), Block>,
    begun: bool,
    /// A stop reason came.
    stopped: bool,
}

/// One content block so far.
#[derive(Debug, Default)]
struct Block {
    members: Members,
    /// `None` while no part of it came.
    input: Option<Input>,
}

impl Parts for Message {
    fn add(&mut self, name: &[u8], event: &str, told: &mut Told) {
        let Told { error: failed, done, room } = told;
        let names = ["type", "index", "message", "content_block", "delta", "error"];
        let Some([kind, index, message, block, delta, error]) = fields(event, names) else {
            if name == b"error" {
                room.replace(failed, event);
            }
            return;
        };
        let kind = envelope::kind(kind, name);
        let index = index.and_then(|index| index.parse().ok()).unwrap_or(0);
        match &*kind {
            "message_start" => self.start(message.unwrap_or(""), room),
            // Some relays put a whole reply into an event.
            "message" => self.start(event, room),
            "content_block_start" => self.begin_block(index, block.unwrap_or(""), room),
            "content_block_delta" => self.continue_block(index, delta.unwrap_or(""), room),
            "message_delta" => {
                members(delta.unwrap_or(""), |key, value| self.say(&key, value, room));
                members(event, |key, value| {
                    if key != "delta" {
                        self.say(&key, value, room);
                    }
                });
            }
            "message_stop" => *done = true,
            _ => {}
        }
        if kind == "error" || envelope::is_error(error) {
            room.replace(failed, event);
        }
    }

    fn has_begun(&self) -> bool {
        self.begun || !self.blocks.is_empty()
    }

    fn is_finished(&self) -> bool {
        self.stopped
    }

    fn has_all(&self, _: u32) -> bool {
        true
    }

    fn has_usage(&self) -> bool {
        !self.usage.is_empty()
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        self.top.write_some(out, |name| name == "id");
        out.push_str(r#""type":"message","#);
        self.top.write_or(out, "role", r#""assistant""#);
        self.top.write_some(out, |name| name == "model");
        out.push_str(r#""content":["#);
        for block in self.blocks.values() {
            block.write(out);
            out.push(',');
        }
        node::close(out, ']');
        out.push(',');
        self.top.write_or(out, "stop_reason", "null");
        self.top.write_or(out, "stop_sequence", "null");
        if self.has_usage() {
            out.push_str(r#""usage":"#);
            self.usage.write(out);
            out.push(',');
        }
        self.top.write_some(out, |name| !TEXT.contains(&name));
        node::close(out, '}');
    }
}

impl Message {
    /// The message begins with these members.
    fn start(&mut self, message: &str, room: &mut Room) {
        self.begun |= members(message, |key, value| match &*key {
            "content" => {
                let mut index = 0;
                items(value, |block| {
                    self.begin_block(index, block, room);
                    index += 1;
                });
            }
            key => self.say(key, value, room),
        });
    }

    fn say(&mut self, key: &str, value: &str, room: &mut Room) {
        match key {
            "usage" => {
                members(value, |key, value| self.usage.last(&key, value, room));
            }
            "type" | "content" => {}
            key if TEXT.contains(&key) && !(value == "null" || value.starts_with('"')) => {}
            key => {
                self.stopped |= key == "stop_reason" && is_text(value);
                self.top.last(key, value, room);
            }
        }
    }

    /// A block begins with these members. Nothing where it is no object.
    fn begin_block(&mut self, index: u32, block: &str, room: &mut Room) {
        let mut began = Block::default();
        let is_object = members(block, |key, value| began.members.last(&key, value, room));
        if is_object && room.take(size_of::<Block>()) {
            self.blocks.insert((index, self.blocks.len()), began);
        }
    }

    fn continue_block(&mut self, index: u32, delta: &str, room: &mut Room) {
        let Some([Some(kind)]) = fields(delta, ["type"]) else { return };
        // What each kind of delta is known to add, and what it adds to.
        let (part, block) = match kind {
            r#""text_delta""# => (Some("text"), r#"{"type":"text"}"#),
            r#""thinking_delta""# => (Some("thinking"), r#"{"type":"thinking"}"#),
            r#""signature_delta""# => (Some("signature"), ""),
            r#""input_json_delta""# => (Some("partial_json"), ""),
            r#""citations_delta""# => (Some("citation"), ""),
            _ => (None, ""),
        };
        if self.block(index).is_none() {
            self.begin_block(index, block, room);
        }
        let Some(block) = self.block(index) else { return };
        members(delta, |key, value| match &*key {
            "type" => {}
            key if part.is_some_and(|part| part != key) => {}
            "partial_json" => block.input.get_or_insert_default().add(value, room),
            "citation" => block.members.append("citations", value, room),
            "signature" if !is_text(value) => {}
            key @ ("text" | "thinking") => block.members.join(key, value, room),
            key if part.is_none() && value.starts_with('"') => block.members.join(key, value, room),
            key => block.members.last(key, value, room),
        });
    }

    fn block(&mut self, index: u32) -> Option<&mut Block> {
        self.blocks.range_mut((index, 0)..=(index, usize::MAX)).next_back().map(|(_, block)| block)
    }
}

impl Block {
    fn write(&self, out: &mut String) {
        out.push('{');
        // Clients are sent an empty part even where the block began with its whole input.
        let Some(input) = self.input.as_ref().filter(|input| !input.is_empty() || !self.members.has("input")) else {
            self.members.write_some(out, |_| true);
            return node::close(out, '}');
        };
        self.members.write_some(out, |name| name != "input");
        out.extend([r#""input":"#, &input.json()]);
        node::close(out, '}');
    }
}

#[cfg(test)]
mod tests;
