//! What the engine is asked, and what it answers.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::backend::llama::call::Sampler;
use crate::backend::llama::text::{Decoder, StopMatcher};

/// One choice of one request.
pub(in crate::backend::llama) struct Job {
    /// The prompt's tokens, at least one, fewer than the context holds.
    pub(in crate::backend::llama) prompt: Arc<[u32]>,
    /// Its `index`.
    pub(in crate::backend::llama) choice: u32,
    /// Chooses its tokens.
    pub(in crate::backend::llama) sampler: Sampler,
    /// Turns them into text.
    pub(in crate::backend::llama) decoder: Decoder,
    /// Looks for its stop strings.
    pub(in crate::backend::llama) stop: StopMatcher,
    /// Tokens that end it, in order; they are not output.
    pub(in crate::backend::llama) end_ids: Arc<[u32]>,
    /// Tokens that it may never produce.
    pub(in crate::backend::llama) banned: Arc<[u32]>,
    /// Tokens that it may not produce before `min_tokens`: those, and the ones that end it.
    pub(in crate::backend::llama) banned_at_first: Arc<[u32]>,
    /// At most so many output tokens, at least 1.
    pub(in crate::backend::llama) max_tokens: usize,
    /// No end before so many.
    pub(in crate::backend::llama) min_tokens: usize,
    /// Each token's probability is to be told.
    pub(in crate::backend::llama) logprobs: bool,
    /// Where its output goes. It has room for all of it, so the engine never waits for a reader.
    pub(in crate::backend::llama) output: mpsc::Sender<Output>,
}

impl Job {
    /// How many answers a choice may give at most: each token one, and what stands around them.
    pub(in crate::backend::llama) fn most_outputs(max_tokens: usize) -> usize {
        max_tokens + 8
    }

    /// Nobody reads its reply any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.output.is_closed()
    }

    /// Tells `output`. A reader that has gone needs none.
    pub(super) fn tell(&self, output: Output) {
        let told = self.output.try_send(output);
        debug_assert!(!matches!(told, Err(mpsc::error::TrySendError::Full(_))), "a reply has too little room");
    }
}

/// What the engine answers.
#[derive(Debug)]
pub(in crate::backend::llama) enum Output {
    /// A choice has a slot.
    Admitted {
        /// Which.
        choice: u32,
        /// When.
        at: Instant,
    },
    /// A choice's prompt is in the K/V cache.
    Prefilled {
        /// When the device was done.
        at: Instant,
    },
    /// Text has grown.
    Token(Token),
    /// A choice is over.
    Finished {
        /// Which.
        choice: u32,
        /// When.
        at: Instant,
        /// Why.
        reason: Reason,
        /// How many tokens it has.
        tokens: usize,
        /// The probabilities of tokens whose text never came whole.
        logprobs: Vec<Told>,
    },
    /// The engine has failed.
    Failed {
        /// What happened.
        problem: String,
    },
}

/// Whole text of one choice, as soon as it was whole.
#[derive(Debug)]
pub(in crate::backend::llama) struct Token {
    /// Which choice.
    pub(in crate::backend::llama) choice: u32,
    /// When its last token was sampled.
    pub(in crate::backend::llama) at: Instant,
    /// The text, not empty.
    pub(in crate::backend::llama) text: String,
    /// How many tokens the choice has by now.
    pub(in crate::backend::llama) tokens: usize,
    /// The probabilities of the tokens since the last text, if they were asked for.
    pub(in crate::backend::llama) logprobs: Vec<Told>,
}

/// A token with its probability.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::backend::llama) struct Told {
    /// Its id.
    pub(in crate::backend::llama) token: u32,
    /// The natural logarithm of its probability.
    pub(in crate::backend::llama) logprob: f32,
    /// The likeliest tokens with theirs.
    pub(in crate::backend::llama) top: Vec<(u32, f32)>,
}

/// Why a choice is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::backend::llama) enum Reason {
    /// The model ended it, or a stop string or stop token did.
    Stop,
    /// `max_tokens` or the context is full.
    Length,
}

impl Reason {
    /// OpenAI's `finish_reason`.
    pub(in crate::backend::llama) fn label(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}
