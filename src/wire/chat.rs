//! Chat completions: one event of a stream, or one whole reply → its [`Meaning`].
//!
//! Two readers answer the same questions. `document` is the truth: any JSON, any order, tolerant field by field.
//! `walk` is the fast way: it knows the one shape that nearly every chunk of a stream has, and gives up in doubt.
//!
//! Invariants:
//! * Whenever `walk` answers, `document` would answer the same; a property test holds them against each other.
//! * A field of the wrong type says nothing, and takes nothing from its neighbours.

use crate::wire::Meaning;

mod document;
mod scan;
mod strip;
mod text;
mod walk;

pub use strip::{Stripped, UsageStripper};
pub use text::{output_text, prompt_text};

/// Reads the events of one stream. One per stream: it remembers what the stream's chunks look like, so that the bytes
/// which repeat from chunk to chunk are compared and not read again.
///
/// ```
/// use streamgauge::wire::chat::ChunkReader;
///
/// let mut chunks = ChunkReader::new();
/// let meaning = chunks.event(br#"{"model":"llama-2","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#);
/// assert!(meaning.choices[0].answer);
/// assert_eq!(meaning.model.as_deref(), Some("llama-2"));
/// assert!(chunks.event(b"[DONE]").done);
/// ```
#[derive(Debug, Default)]
pub struct ChunkReader {
    shape: walk::Shape,
}

impl ChunkReader {
    /// A reader that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What an event's `data` means. It is malformed when it is neither a JSON object, nor `[DONE]`, nor empty.
    ///
    /// The common chunk costs no allocation: strings are scanned where they lie, the model's name is lent from `data`,
    /// one choice fits into `Meaning`, and the remembered bytes live in buffers that are reused.
    #[inline]
    pub fn event<'a>(&mut self, data: &'a [u8]) -> Meaning<'a> {
        self.shape.read(data).unwrap_or_else(|| reply(data))
    }
}

/// What a whole JSON reply means (`choices[].message` where a chunk has `delta`), or a bare error object.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    document::read(data)
}

#[cfg(test)]
mod tests;
