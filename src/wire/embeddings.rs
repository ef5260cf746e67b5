//! Embeddings: one reply → its [`Meaning`].

use super::Meaning;

/// What a whole reply means.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    super::chat::reply(data)
}
