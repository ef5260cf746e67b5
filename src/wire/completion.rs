//! Text completions: one reply → its [`Meaning`].

use super::Meaning;

/// What a whole reply means.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    super::chat::reply(data)
}

/// What an event means.
pub fn event(data: &[u8]) -> Meaning<'_> {
    reply(data)
}
