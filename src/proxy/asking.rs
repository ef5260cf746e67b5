//! What a request asks for beyond what its client wrote, to be measured: usage, and a stream in place of a whole reply.
//!
//! Invariants:
//! * What the client wrote is never overridden, and a signed request never altered.
//! * A model that refuses what only we asked for is asked again as the client wrote it, and then no more for it. Once it
//!   has answered, a refusal is the client's own affair.
//! * At most [`MOST_MODELS`] models are remembered, of those that have answered; the others are asked as if for the first
//!   time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use http::header::CONTENT_LENGTH;
use hyper::{StatusCode, http};

use super::content_of;
use super::request::ChatRequest;
use super::splice::{Splice, says};
use crate::config::OpenAi;
use crate::measure::Content;
use crate::wire::chat::UsageStripper;

/// How many models of a backend are remembered, for each thing asked.
const MOST_MODELS: usize = 256;
/// The longest name that is remembered, in bytes.
const LONGEST_NAME: usize = 256;

/// What one backend is asked for, and how its models take it.
#[derive(Debug, Default)]
pub(super) struct Asking {
    include_usage: bool,
    measure_non_stream: bool,
    /// Usage where the client asked for a stream.
    usage: Memory,
    /// A stream where it did not.
    stream: Memory,
    /// It was said that signed requests are left alone.
    signed_said: AtomicBool,
}

/// What is asked of one request beyond its own words.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) splices: Vec<Splice>,
    pub(super) what: What,
    /// The model has answered before when asked so: a refusal has another reason.
    pub(super) accepted_before: bool,
}

/// Which thing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Usage in a stream.
    Usage,
    /// A stream in place of a whole reply, with usage.
    Stream,
}

impl Asking {
    /// As the configuration says.
    pub(super) fn new(config: &OpenAi) -> Self {
        Self { include_usage: config.include_usage, measure_non_stream: config.measure_non_stream, ..Self::default() }
    }

    /// What to ask beyond this request. `None` for nothing. `signed` says that it must not be altered; `backend` is named
    /// where that is said.
    pub(super) fn beyond(&self, chat: &ChatRequest, model: &str, signed: bool, backend: &str) -> Option<Ask> {
        let (what, memory) = if chat.stream { (What::Usage, &self.usage) } else { (What::Stream, &self.stream) };
        let wanted = if chat.stream { self.include_usage } else { self.measure_non_stream };
        if !wanted {
            return None;
        }
        let state = memory.of(model);
        if state == State::Refuses {
            return None;
        }
        let body = chat.text();
        let splices = match what {
            What::Usage => vec![Splice::usage(body)?],
            // Streams of audio come in another format than whole replies.
            What::Stream if says(body, "audio") => return None,
            What::Stream => {
                let usage = (self.usage.of(model) != State::Refuses).then(|| Splice::usage(body)).flatten();
                std::iter::once(Splice::stream(body)?).chain(usage).collect()
            }
        };
        if signed {
            if !self.signed_said.swap(true, Relaxed) {
                tracing::warn!(
                    backend,
                    "a signed request (x-tt-sign) is not altered: neither usage nor a stream is asked for in its place"
                );
            }
            return None;
        }
        Some(Ask { splices, what, accepted_before: state == State::Accepts })
    }

    /// The model answered a request that asked for more than its client wrote.
    pub(super) fn accepted(&self, ask: &Ask, model: &str) {
        if !ask.accepted_before {
            self.memory(ask.what).learn(model, State::Accepts);
        }
    }

    /// The model answered only without what was asked beyond its client's words.
    pub(super) fn refused(&self, what: What, model: &str, status: StatusCode, backend: &str) {
        if !self.memory(what).learn(model, State::Refuses) {
            return;
        }
        let (key, consequence) = match what {
            What::Usage => ("include_usage", "its usage is no longer asked for where clients do not"),
            What::Stream => ("measure_non_stream", "its whole replies are no longer measured as streams"),
        };
        tracing::warn!(backend, model, %status, key, "the model refuses what was asked beyond the request: {consequence}");
    }

    fn memory(&self, what: What) -> &Memory {
        match what {
            What::Usage => &self.usage,
            What::Stream => &self.stream,
        }
    }
}

/// Whether a status may mean that the upstream does not take what was asked.
pub(super) fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY)
}

/// Takes usage that only we asked for out of the reply with this head, whose announced length then goes. `None` for one
/// that is no stream, or cannot be looked into.
pub(super) fn stripper(head: &mut http::response::Parts) -> Option<UsageStripper> {
    let announced = head.headers.contains_key(CONTENT_LENGTH);
    match content_of(&head.headers) {
        _ if !head.status.is_success() => None,
        Content::Events => {
            head.headers.remove(CONTENT_LENGTH);
            Some(UsageStripper::new())
        }
        // A length announces a document; to take it away on suspicion would change what is none.
        Content::Unlabelled if !announced => Some(UsageStripper::unlabelled()),
        Content::Unlabelled | Content::Encoded { .. } | Content::Opaque => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Accepts,
    Refuses,
}

/// How a backend's models take one thing that is asked of them.
#[derive(Debug, Default)]
struct Memory(Mutex<HashMap<Box<str>, State>>);

impl Memory {
    fn of(&self, model: &str) -> State {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(model).copied().unwrap_or(State::Unknown)
    }

    /// Remembers the first answer of a model. Returns whether this is it.
    fn learn(&self, model: &str, state: State) -> bool {
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() >= MOST_MODELS || model.len() > LONGEST_NAME || models.contains_key(model) {
            return false;
        }
        models.insert(model.into(), state);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_keeps_first_answers_and_is_bounded() {
        let memory = Memory::default();
        assert!(memory.learn("m", State::Accepts) && !memory.learn("m", State::Refuses));
        assert_eq!((memory.of("m"), memory.of("n")), (State::Accepts, State::Unknown));
        assert!(!memory.learn(&"x".repeat(LONGEST_NAME + 1), State::Refuses));
        for number in 0..2 * MOST_MODELS {
            memory.learn(&number.to_string(), State::Refuses);
        }
        assert_eq!(memory.0.lock().unwrap().len(), MOST_MODELS);
    }
}
