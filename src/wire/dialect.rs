//! The dialects in which models are spoken to, and one reader for each, behind one face.

use super::chat::{self, ChunkReader};
use super::skim::Skimmer;
use super::sse::Event;
use super::{Meaning, Place, completion, embeddings, messages, rerank, responses};

/// How requests to a model and its replies are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's text completions, which came before them.
    Completion,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// OpenAI's embeddings.
    Embeddings,
    /// Documents ranked by a query, as Jina, Cohere and vLLM write it.
    Rerank,
}

impl Dialect {
    /// What a whole JSON reply means.
    pub fn reply(self, data: &[u8]) -> Meaning<'_> {
        match self {
            Self::Chat => chat::reply(data),
            Self::Completion => completion::reply(data),
            Self::Responses => responses::reply(data),
            Self::Messages => messages::reply(data),
            Self::Embeddings => embeddings::reply(data),
            Self::Rerank => rerank::reply(data),
        }
    }

    /// What keeps of a whole reply, while it comes, what [`Dialect::reply`] looks at. `None` where that is all of it.
    pub fn sieve(self) -> Option<Skimmer> {
        match self {
            Self::Chat | Self::Completion | Self::Responses | Self::Messages => None,
            Self::Embeddings => Some(embeddings::sieve()),
            Self::Rerank => Some(rerank::sieve()),
        }
    }

    /// Gives `each` the text of an event, or of a whole reply. Returns whether that is all of its output.
    pub fn output_text(self, data: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
        match self {
            Self::Chat => chat::output_text(data, each),
            Self::Completion => completion::output_text(data, each),
            Self::Responses => responses::output_text(data, each),
            Self::Messages => messages::output_text(data, each),
            Self::Embeddings | Self::Rerank => false,
        }
    }

    /// Gives `each` the text of a request's prompt. Returns whether that is all of it.
    pub fn prompt_text(self, body: &[u8], each: &mut dyn FnMut(Place, &str)) -> bool {
        match self {
            Self::Chat => chat::prompt_text(body, each),
            Self::Completion => completion::prompt_text(body, each),
            Self::Responses => responses::prompt_text(body, each),
            Self::Messages => messages::prompt_text(body, each),
            Self::Embeddings | Self::Rerank => false,
        }
    }
}

/// Reads the events of one stream, in order. One per stream: what an event means may rest on those before it.
#[derive(Debug)]
pub struct EventReader(Reader);

#[derive(Debug)]
enum Reader {
    Chat(ChunkReader),
    Completion,
    Responses(responses::EventReader),
    Messages(messages::EventReader),
    /// A dialect without streams: its events are read as whole replies.
    Whole(Dialect),
}

impl EventReader {
    /// A reader that has seen nothing yet.
    pub fn new(dialect: Dialect) -> Self {
        Self(match dialect {
            Dialect::Chat => Reader::Chat(ChunkReader::new()),
            Dialect::Completion => Reader::Completion,
            Dialect::Responses => Reader::Responses(responses::EventReader::default()),
            Dialect::Messages => Reader::Messages(messages::EventReader::default()),
            Dialect::Embeddings | Dialect::Rerank => Reader::Whole(dialect),
        })
    }

    /// What an event means.
    #[inline]
    pub fn event<'a>(&mut self, event: Event<'a>) -> Meaning<'a> {
        match &mut self.0 {
            Reader::Chat(chunks) => chunks.event(event.data),
            Reader::Completion => completion::reply(event.data),
            Reader::Responses(events) => events.event(event),
            Reader::Messages(events) => events.event(event),
            Reader::Whole(dialect) => dialect.reply(event.data),
        }
    }

    /// What an event of this name means whose data was too large to be kept. `None` where that may be anything.
    pub fn oversized(&self, name: &[u8]) -> Option<Meaning<'static>> {
        match &self.0 {
            Reader::Responses(events) => events.oversized(name),
            Reader::Chat(_) | Reader::Completion | Reader::Messages(_) | Reader::Whole(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
