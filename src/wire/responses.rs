//! OpenAI's responses: one event of a stream, or one whole reply → its [`Meaning`].

use super::Meaning;
use super::sse::Event;

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub struct EventReader {}

impl EventReader {
    /// What an event means.
    pub fn event<'a>(&mut self, event: Event<'a>) -> Meaning<'a> {
        reply(event.data)
    }
}

/// What a whole reply means.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    super::chat::reply(data)
}
