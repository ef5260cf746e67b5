//! What a request asks for beyond what its client wrote, to be measured: usage, and a stream in place of a whole reply.
//!
//! Invariants:
//! * What the client wrote is never overridden, and a request whose body something vouches for never altered.
//! * A model that refuses what only we asked for is asked again as the client wrote it; one that does so again and again
//!   is no longer asked, for a while.
//! * A stream is asked for in place of a whole reply only where its usage comes unasked or can be asked for too: the
//!   whole reply would have had it. Nor is one asked for where more choices are than can be put together.
//! * What is learned of a model in one dialect says nothing of it in another.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName};
use hyper::{StatusCode, http};

use super::content_of;
use super::headers::SIGNATURE;
use super::request::ModelRequest;
use super::splice::{Splice, says};
use crate::config::OpenAi;
use crate::measure::Content;
use crate::wire::Dialect;
use crate::wire::assemble::MOST_CHOICES;
use crate::wire::chat::UsageStripper;

mod memory;

use memory::{ENOUGH, Memory};

/// What vouches for a request's body, or ties it to an earlier one: a signature, digests (RFC 9530, RFC 3230, RFC 1864),
/// and the key of a request that may be sent again, by which upstreams compare bodies.
const VOUCHING: [HeaderName; 5] = [
    SIGNATURE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("idempotency-key"),
];

/// What one backend is asked for, and how its models take it.
#[derive(Debug, Default)]
pub(super) struct Asking {
    include_usage: bool,
    measure_non_stream: bool,
    chat: Memories,
    completion: Memories,
    messages: Memories,
    /// It was said that signed requests are left alone.
    signed_said: AtomicBool,
}

/// How models take what is asked of one dialect's requests.
#[derive(Debug, Default)]
struct Memories {
    /// Usage where the client asked for a stream.
    usage: Memory,
    /// A stream where it did not.
    stream: Memory,
}

/// What is asked of one request beyond its own words.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) splices: Vec<Splice>,
    pub(super) what: What,
}

/// Which thing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Usage in a stream.
    Usage,
    /// A stream in place of a whole reply, with usage where that must be asked for.
    Stream,
}

impl Asking {
    /// As the configuration says.
    pub(super) fn new(config: &OpenAi) -> Self {
        Self { include_usage: config.include_usage, measure_non_stream: config.measure_non_stream, ..Self::default() }
    }

    /// What to ask beyond this request, which came with these headers. `None` for nothing. `backend` is named where it
    /// is said that the request must not be altered.
    pub(super) fn beyond(&self, wanted: &ModelRequest, model: &str, headers: &HeaderMap, backend: &str) -> Option<Ask> {
        let (what, asks) =
            if wanted.stream { (What::Usage, self.include_usage) } else { (What::Stream, self.measure_non_stream) };
        // What came encoded would go out larger by far.
        let memories = self.memories(wanted.dialect).filter(|_| asks && !wanted.is_encoded())?;
        let now = Instant::now();
        let body = wanted.text();
        let usage = is_usage_asked(wanted.dialect);
        let splices = match what {
            What::Usage if !usage => return None,
            _ if usage && memories.usage.refuses(model, now) => return None,
            What::Usage => vec![Splice::usage(body)?],
            What::Stream if memories.stream.refuses(model, now) => return None,
            // More could not be put together.
            What::Stream if wanted.choices as usize > MOST_CHOICES => return None,
            What::Stream if is_never_a_stream(wanted.dialect, body) => return None,
            What::Stream if usage => vec![Splice::stream(body)?, Splice::usage(body)?],
            What::Stream => vec![Splice::stream(body)?],
        };
        if let Some(vouching) = VOUCHING.iter().find(|name| headers.contains_key(*name)) {
            if !self.signed_said.swap(true, Relaxed) {
                tracing::warn!(
                    backend,
                    "a request whose body a header vouches for ({vouching}) is not altered: neither usage nor a stream is \
                     asked for in its place"
                );
            }
            return None;
        }
        Some(Ask { splices, what })
    }

    /// The model answered a request that asked for more than its client wrote.
    pub(super) fn took(&self, dialect: Dialect, what: What, model: &str) {
        if let Some(memory) = self.memory(dialect, what) {
            memory.took(model);
        }
    }

    /// The model answered only without what was asked beyond its client's words.
    pub(super) fn refused(&self, dialect: Dialect, what: What, model: &str, status: StatusCode, backend: &str) {
        if !self.memory(dialect, what).is_some_and(|memory| memory.refused(model, 1, Instant::now())) {
            return;
        }
        let (key, consequence) = match what {
            What::Usage => ("include_usage", "its usage is no longer asked for where clients do not"),
            What::Stream => ("measure_non_stream", "its whole replies are no longer measured as streams"),
        };
        tracing::warn!(
            backend,
            model,
            %status,
            key,
            "the model refuses what was asked beyond the request: for an hour {consequence}"
        );
    }

    /// A stream that was to become a whole reply came without usage, which the whole might have had. That tells
    /// something of the model where usage was asked for.
    pub(super) fn without_usage(&self, dialect: Dialect, model: &str, backend: &str) {
        let memory = self.memory(dialect, What::Stream).filter(|_| is_usage_asked(dialect));
        if memory.is_some_and(|memory| memory.refused(model, ENOUGH, Instant::now())) {
            tracing::warn!(
                backend,
                model,
                key = "measure_non_stream",
                "the model's streams come without the usage that was asked for, and so did one whole reply made of them: \
                 for an hour its whole replies are no longer measured as streams"
            );
        }
    }

    /// `None` for a dialect of which nothing is asked.
    fn memories(&self, dialect: Dialect) -> Option<&Memories> {
        match dialect {
            Dialect::Chat => Some(&self.chat),
            Dialect::Completion => Some(&self.completion),
            Dialect::Messages => Some(&self.messages),
            // Streams of responses always tell usage; the others have none.
            Dialect::Responses | Dialect::Embeddings | Dialect::Rerank => None,
        }
    }

    fn memory(&self, dialect: Dialect, what: What) -> Option<&Memory> {
        let memories = self.memories(dialect)?;
        Some(match what {
            What::Usage => &memories.usage,
            What::Stream => &memories.stream,
        })
    }
}

/// Whether streams tell usage only where it is asked for.
fn is_usage_asked(dialect: Dialect) -> bool {
    dialect != Dialect::Messages
}

/// Whether a request asks for what a stream cannot bring, or brings in another form than the whole reply.
fn is_never_a_stream(dialect: Dialect, body: &str) -> bool {
    // vLLM tells a prompt's probabilities in whole replies only.
    let of_prompt = || says(body, "prompt_logprobs");
    match dialect {
        // Streams of audio come in another format.
        Dialect::Chat => says(body, "audio") || of_prompt(),
        // Which text is best shows when all of them are there.
        Dialect::Completion => says(body, "best_of") || of_prompt(),
        Dialect::Messages | Dialect::Responses | Dialect::Embeddings | Dialect::Rerank => false,
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
