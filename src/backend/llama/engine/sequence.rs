//! One choice in a slot: how far it has come, and what a sampled token does to it.

use std::time::Instant;

use super::job::{Job, Output, Reason, Token, Told};
use super::queue::Tenancy;
use crate::backend::llama::model::Work;

/// A choice that runs.
pub(super) struct Sequence {
    pub(super) slot: usize,
    pub(super) tenancy: Tenancy,
    job: Job,
    /// Prompt tokens in the K/V cache.
    read: usize,
    /// The token sampled last, which the next step adds. `None` while the prompt is read.
    last: Option<u32>,
    /// Output tokens.
    tokens: usize,
    /// Probabilities whose text is not whole yet.
    logprobs: Vec<Told>,
}

impl Sequence {
    pub(super) fn begin(job: Job, slot: usize, at: Instant) -> Self {
        job.tell(Output::Admitted { choice: job.choice, at });
        Self { slot, tenancy: Tenancy::begin(at), job, read: 0, last: None, tokens: 0, logprobs: Vec::new() }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.job.is_cancelled()
    }

    /// Prompt tokens still to be read. `None` when it decodes.
    pub(super) fn remaining(&self) -> Option<usize> {
        self.last.is_none().then(|| self.job.prompt.len() - self.read)
    }

    /// Positions in the K/V cache.
    pub(super) fn cached(&self) -> usize {
        self.read + self.tokens.saturating_sub(1)
    }

    /// What it adds to the next step: its last token, or `part` tokens of its prompt.
    pub(super) fn work(&self, part: usize) -> Work<'_> {
        match &self.last {
            Some(token) => Work {
                slot: self.slot,
                position: self.cached(),
                tokens: std::slice::from_ref(token),
                wants_logits: true,
            },
            None => {
                let end = self.read + part;
                Work {
                    slot: self.slot,
                    position: self.read,
                    tokens: &self.job.prompt[self.read..end],
                    wants_logits: end == self.job.prompt.len(),
                }
            }
        }
    }

    /// `part` more tokens of the prompt are in the K/V cache since `at`.
    pub(super) fn has_read(&mut self, part: usize, at: Instant) {
        self.read += part;
        if self.read == self.job.prompt.len() {
            self.job.tell(Output::Prefilled { at });
        }
    }

    /// Chooses the next token and tells what has become of the text. Returns the last word of a choice that is over,
    /// which is to be told once its slot is free.
    pub(super) fn sample(&mut self, logits: &mut [f32]) -> Option<Output> {
        let job = &mut self.job;
        let may_end = self.tokens >= job.min_tokens;
        let banned = if may_end { &job.banned } else { &job.banned_at_first };
        let Some(sampled) = job.sampler.sample(logits, banned) else {
            return Some(Output::Failed { problem: "the model's logits are not numbers".to_owned() });
        };
        let at = Instant::now();
        if may_end && job.end_ids.binary_search(&sampled.token).is_ok() {
            return Some(self.finish(Reason::Stop, at));
        }
        self.last = Some(sampled.token);
        self.tokens += 1;
        if let Some(logprob) = sampled.logprob.filter(|_| job.logprobs) {
            self.logprobs.push(Told { token: sampled.token, logprob, top: sampled.top });
        }
        let text = job.decoder.push(sampled.token);
        if may_end {
            let found = job.stop.push(&text);
            self.tell(found.text, at);
            if found.stopped {
                // What was held back belongs to the stop string.
                return Some(self.finished(Reason::Stop, at));
            }
        } else {
            // Before `min_tokens` a stop string is text like any other.
            self.tell(text, at);
        }
        (self.tokens >= self.job.max_tokens).then(|| self.finish(Reason::Length, at))
    }

    /// Tells the last word.
    pub(super) fn end(&self, last: Output) {
        self.job.tell(last);
    }

    /// Tells that the engine has failed.
    pub(super) fn fail(&self, problem: &str) {
        self.job.tell(Output::Failed { problem: problem.to_owned() });
    }

    /// Tells what was held back; the end is to be told.
    fn finish(&mut self, reason: Reason, at: Instant) -> Output {
        let held = self.job.decoder.finish();
        let found = self.job.stop.push(&held);
        let mut text = found.text;
        let reason = if found.stopped { Reason::Stop } else { reason };
        if !found.stopped {
            text.push_str(&self.job.stop.finish());
        }
        self.tell(text, at);
        self.finished(reason, at)
    }

    fn finished(&mut self, reason: Reason, at: Instant) -> Output {
        let logprobs = std::mem::take(&mut self.logprobs);
        Output::Finished { choice: self.job.choice, at, reason, tokens: self.tokens, logprobs }
    }

    fn tell(&mut self, text: String, at: Instant) {
        if text.is_empty() {
            return;
        }
        let logprobs = std::mem::take(&mut self.logprobs);
        self.job.tell(Output::Token(Token { choice: self.job.choice, at, text, tokens: self.tokens, logprobs }));
    }
}
