//! The events of a stream → the whole reply they are the parts of: the JSON that asking without `stream` would have
//! brought.
//!
//! Invariants:
//! * Reading never fails: a field of the wrong type says nothing, and takes nothing from its neighbours.
//! * Text is put together as it is written, escapes included, so a character whose halves came in two events is whole.
//! * At most [`LARGEST`] bytes are kept, about, of at most [`MOST_CHOICES`] choices; what is beyond makes the reply
//!   [too large](Assembler::is_too_large).

use std::fmt::Debug;

use super::Dialect;

mod chat;
mod choices;
mod completion;
mod messages;
mod node;

use choices::Choices;
use node::Room;

/// The largest reply that is put together, in bytes.
pub const LARGEST: usize = 16 << 20;
/// The most choices of a reply that are put together. `n` may ask for no more, but a text completion has so many for each of
/// its prompts, of which vendors take thousands.
pub const MOST_CHOICES: usize = 128;

/// Puts one reply together. Feed it the data of every event in order, then take its [`json`](Self::json).
///
/// ```
/// use streamgauge::wire::Dialect;
/// use streamgauge::wire::assemble::{Assembler, Standing};
///
/// let mut reply = Assembler::of(Dialect::Chat).unwrap();
/// reply.event(b"", br#"{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"a "}}]}"#);
/// reply.event(b"", br#"{"id":"c","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}"#);
/// assert_eq!(reply.standing(1, true), Standing::Whole);
/// assert!(reply.json().contains(r#""content":"a b""#));
/// ```
#[derive(Debug)]
pub struct Assembler {
    parts: Box<dyn Parts>,
    told: Told,
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

/// The parts of a reply of one dialect.
trait Parts: Debug + Send {
    /// Adds what an event of this name says.
    fn add(&mut self, name: &[u8], event: &str, told: &mut Told);

    /// Whether anything of the reply came.
    fn has_begun(&self) -> bool;

    /// Whether all that has begun has said why it ended.
    fn is_finished(&self) -> bool;

    /// Whether so many choices have begun.
    fn has_all(&self, choices: u32) -> bool;

    /// Whether token counts came.
    fn has_usage(&self) -> bool;

    /// Writes the whole reply.
    fn write(&self, out: &mut String);
}

/// What every dialect's streams may tell.
#[derive(Debug, Default)]
struct Told {
    /// The error object, or the event that is one, raw.
    error: Option<Box<str>>,
    /// The end marker came.
    done: bool,
    room: Room,
}

impl Assembler {
    /// For a reply of this dialect, of which nothing has come yet. `None` for one whose whole replies are not made of
    /// streams.
    pub fn of(dialect: Dialect) -> Option<Self> {
        let parts: Box<dyn Parts> = match dialect {
            Dialect::Chat => Box::<Choices<chat::Message>>::default(),
            Dialect::Completion => Box::<Choices<completion::Text>>::default(),
            Dialect::Messages => Box::<messages::Message>::default(),
            Dialect::Responses | Dialect::Embeddings | Dialect::Rerank => return None,
        };
        Some(Self { parts, told: Told::default() })
    }

    /// Adds the data of one event; `name` is empty where it has none.
    pub fn event(&mut self, name: &[u8], data: &[u8]) {
        match data.trim_ascii() {
            b"" => {}
            b"[DONE]" => self.told.done = true,
            data => self.parts.add(name, &String::from_utf8_lossy(data), &mut self.told),
        }
    }

    /// Whether nothing that may follow matters: the end marker came, or an error, or too much.
    pub fn is_over(&self) -> bool {
        self.told.done || self.told.error.is_some() || self.told.room.is_exceeded()
    }

    /// Whether more came than can be kept.
    pub fn is_too_large(&self) -> bool {
        self.told.room.is_exceeded()
    }

    /// How many bytes are kept, about.
    pub fn held(&self) -> usize {
        self.told.room.used()
    }

    /// Whether token counts came.
    pub fn has_usage(&self) -> bool {
        self.parts.has_usage()
    }

    /// The error object, or the event that is one, as raw JSON. `None` when none came.
    pub fn error(&self) -> Option<&str> {
        self.told.error.as_deref()
    }

    /// How the stream stands as the reply to a request for so many choices; `in_order` says that HTTP ended it as it
    /// should.
    pub fn standing(&self, choices: u32, in_order: bool) -> Standing {
        let Told { error, done, .. } = &self.told;
        let ended = || self.parts.has_all(choices) || *done || in_order;
        if self.parts.is_finished() && ended() {
            Standing::Whole
        } else if error.is_some() {
            Standing::Error
        } else if *done && self.parts.has_begun() {
            Standing::Whole
        } else {
            Standing::Half
        }
    }

    /// The whole reply.
    pub fn json(&self) -> String {
        let mut out = String::with_capacity(self.held() + 256);
        self.parts.write(&mut out);
        out
    }
}
