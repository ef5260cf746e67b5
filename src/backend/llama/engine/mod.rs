//! The engine: one named thread that owns the device and runs step after step.
//!
//! Each step packs what is due into one forward: the next token of every sequence that decodes, and a part of the
//! prompts that are still to be read. What comes of it is sampled at once; the instant of a token is the one at which
//! it was sampled, after the device was done.
//!
//! Invariants: a sequence whose reply nobody reads any more is gone before the next step begins. When the engine ends,
//! for whatever reason, every request it holds is told.

mod job;
mod pace;
mod queue;
mod run;
mod schedule;
mod sequence;

pub(super) use job::{Job, Output, Reason, Token, Told};
pub(super) use queue::{Queue, Rejected, State};
pub(super) use run::{Engine, said};

use std::time::Duration;

/// One step of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Sequences that took part.
    pub sequences: usize,
    /// Prompt tokens among what was computed.
    pub prefill_tokens: usize,
    /// How long it took, sampling included.
    pub took: Duration,
    /// K/V slots in use after it.
    pub slots: usize,
    /// Requests that wait for a slot after it.
    pub waiting: usize,
}

/// Is told every step.
pub type StepListener = Box<dyn FnMut(Step) + Send>;

#[cfg(test)]
mod tests;
