//! What a reply says, whatever the dialect that says it.
//!
//! Invariant: a token event costs copies of ready-made pieces, no serialiser and, after the first few, no allocation.

use std::ops::Range;

use serde_json::Value;

use super::asked::Asked;
use super::character::{Character, Says};
use super::events::Events;
use super::schedule::{Planned, Schedule};
use super::text;

/// A reply to be given: who asked, for what, and the character that answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply<'a> {
    /// The request's name, of which the dialects make their ids.
    pub(super) id: &'a str,
    pub(super) asked: &'a Asked,
    pub(super) character: &'a Character,
}

/// Writes a stream's events as one dialect has them.
pub(super) trait Writer: Send {
    /// Appends the events that `planned` becomes, none or many, in order.
    fn write(&mut self, planned: &Planned, out: &mut Events);
}

/// Why a reply stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is over.
    End,
    /// The request allowed no more tokens.
    Length,
    /// A tool is to be called.
    Tool,
    /// The model refused.
    Refusal,
}

/// Token counts of a whole reply, all its choices together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) prompt: u64,
    /// Reasoning included, shown or hidden.
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

/// What every simulated breakdown says.
pub(super) const BREAKDOWN: &str = "the simulated model broke down, as it was asked to";

impl<'a> Reply<'a> {
    pub(super) fn schedule(&self) -> &'a Schedule {
        &self.character.schedule
    }

    /// Tokens of each choice, but for those that are hidden.
    pub(super) fn tokens(&self) -> u32 {
        self.asked.tokens(self.schedule())
    }

    /// Parts tokens at the end of reasoning; either part may be empty.
    pub(super) fn split(&self, tokens: &Range<u32>) -> (Range<u32>, Range<u32>) {
        let boundary = self.schedule().reasoning.clamp(tokens.start, tokens.end);
        (tokens.start..boundary, boundary..tokens.end)
    }

    /// Whether what follows the reasoning is a call of a tool.
    pub(super) fn calls(&self) -> bool {
        self.character.says == Says::Tool && self.schedule().reasoning < self.schedule().tokens
    }

    pub(super) fn refuses(&self) -> bool {
        self.character.says == Says::Refusal
    }

    /// The tool that is called.
    pub(super) fn tool(&self) -> &'a str {
        self.asked.tool.as_deref().unwrap_or("lookup")
    }

    pub(super) fn stop(&self) -> Stop {
        match self.character.says {
            _ if self.tokens() < self.schedule().tokens => Stop::Length,
            Says::Refusal => Stop::Refusal,
            Says::Tool if self.calls() => Stop::Tool,
            Says::Tool | Says::Text => Stop::End,
        }
    }

    /// The counts when each choice has `tokens` tokens.
    pub(super) fn counts(&self, tokens: u32) -> Counts {
        let (choices, hidden) = (u64::from(self.asked.choices), u64::from(self.schedule().hidden_reasoning));
        Counts {
            prompt: self.asked.prompt_tokens,
            output: u64::from(tokens) * choices + hidden,
            reasoning: u64::from(self.schedule().reasoning.min(tokens)) * choices + hidden,
        }
    }

    /// Appends what a choice answers in these tokens, text or a tool's arguments, as the inside of a JSON string.
    pub(super) fn write_answer(&self, choice: u32, tokens: Range<u32>, out: &mut Vec<u8>) {
        if self.calls() {
            let all = self.schedule().reasoning..self.schedule().tokens;
            text::write_arguments(choice, tokens, &all, out);
        } else {
            text::write_escaped(choice, tokens, out);
        }
    }

    /// What a choice answers in these tokens.
    pub(super) fn answer(&self, choice: u32, tokens: Range<u32>) -> String {
        let mut json = b"\"".to_vec();
        self.write_answer(choice, tokens, &mut json);
        json.push(b'"');
        serde_json::from_slice(&json).expect("a JSON string")
    }
}

/// A whole reply as bytes, padded with a field of its own to about `body_bytes` bytes.
pub(super) fn padded(mut reply: Value, body_bytes: usize) -> Vec<u8> {
    let length = reply.to_string().len();
    if let Some(missing @ 1..) = body_bytes.checked_sub(length + r#","padding":"""#.len()) {
        reply["padding"] = "x".repeat(missing).into();
    }
    reply.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_smaller_limit_ends_a_reply() {
        let character = Character::new(Schedule { tokens: 10, ..Schedule::default() });
        for (max_tokens, expected) in
            [(Some(4), (4, Stop::Length)), (Some(10), (10, Stop::End)), (None, (10, Stop::End))]
        {
            let asked = Asked { max_tokens, ..Asked::default() };
            let reply = Reply { id: "1", asked: &asked, character: &character };
            assert_eq!((reply.tokens(), reply.stop()), expected);
        }
    }

    #[test]
    fn arguments_are_json_once_they_are_whole() {
        let mut character = Character::new(Schedule { tokens: 9, reasoning: 2, ..Schedule::default() });
        character.says = Says::Tool;
        let asked = Asked::default();
        let reply = Reply { id: "1", asked: &asked, character: &character };
        let pieces: String = (2..9).map(|token| reply.answer(1, token..token + 1)).collect();
        assert_eq!(pieces, reply.answer(1, 2..9));
        let read: Value = serde_json::from_str(&pieces).expect("JSON");
        assert_eq!(read, json!({"text": text::text_of(1, 2..9)}));
    }

    #[test]
    fn padding_reaches_the_wanted_size() {
        assert_eq!(padded(json!({"a": 1}), 2_000).len(), 2_000);
        assert_eq!(padded(json!({"a": 1}), 10), br#"{"a":1}"#);
    }
}
