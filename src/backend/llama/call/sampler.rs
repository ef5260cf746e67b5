//! Logits → one token.
//!
//! In vLLM's order: logit bias, penalties, what is banned; temperature; `top_k`, `top_p` and `min_p`, each on what the
//! one before left; one draw. Log probabilities are those of the untouched logits.
//!
//! Invariant: exactly one random number per token that is left to chance, spent over the tokens in the order of their
//! ids. So the same seed gives the same tokens whatever else runs, and logits that differ by a rounding error (another
//! batch, another kernel) give the same ones as a rule.

use std::cmp::Ordering;
use std::collections::HashMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::Sampling;

/// Below this a temperature is greedy; so it is in vLLM.
const GREEDY: f32 = 1e-5;

/// Tokens whose logit is lower than the highest by more than this times the temperature are left out: all of them together
/// (128,000 times e⁻³⁰) have less probability than rounding to f32 moves about, and they are most of the vocabulary.
const NEGLIGIBLE: f32 = 30.0;

/// What log probabilities are told at least, as JSON has no infinity; OpenAI and vLLM use the same number.
const LEAST_LOGPROB: f32 = -9999.0;

/// One sequence's way of choosing tokens, with its own random numbers.
pub(in crate::backend::llama) struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
    /// How often each token was chosen; kept only where there is a penalty.
    counts: HashMap<u32, u32>,
    raw: Vec<f32>,
    candidates: Vec<Candidate>,
    ranked: Vec<Candidate>,
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::backend::llama) struct Sampled {
    /// Its id.
    pub(in crate::backend::llama) token: u32,
    /// Its natural logarithmic probability, before temperature and penalties. `None` unless asked for.
    pub(in crate::backend::llama) logprob: Option<f32>,
    /// The likeliest tokens with theirs, likeliest first; as many as were asked for.
    pub(in crate::backend::llama) top: Vec<(u32, f32)>,
}

/// A token that may be chosen.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    /// Its logit, or its share of the probability: more is likelier.
    weight: f32,
}

impl Candidate {
    /// Likeliest first, the lower id first among equals.
    fn rank(self, other: Self) -> Ordering {
        other.weight.total_cmp(&self.weight).then(self.token.cmp(&other.token))
    }
}

impl Sampler {
    /// `seed` decides everything that is left to chance.
    pub(in crate::backend::llama) fn new(sampling: &Sampling, seed: u64) -> Self {
        Self {
            sampling: sampling.clone(),
            random: ChaCha8Rng::seed_from_u64(seed),
            counts: HashMap::new(),
            raw: Vec::new(),
            candidates: Vec::new(),
            ranked: Vec::new(),
        }
    }

    /// Chooses from `logits`, one per token of the vocabulary; never one of `banned` unless nothing else is there.
    ///
    /// `None` where no logit is finite: the model computed nonsense, and any token would be made up.
    pub(in crate::backend::llama) fn sample(&mut self, logits: &mut [f32], banned: &[u32]) -> Option<Sampled> {
        if !logits.iter().any(|logit| logit.is_finite()) {
            return None;
        }
        for logit in &mut *logits {
            if !logit.is_finite() {
                *logit = if *logit == f32::INFINITY { f32::MAX } else { f32::NEG_INFINITY };
            }
        }
        if self.sampling.top_logprobs.is_some() {
            self.raw.clear();
            self.raw.extend_from_slice(logits);
        }
        self.adjust(logits, banned);
        let best = best(logits);
        let token = match best {
            // All that are possible are banned.
            None => (0..).zip(&*logits).map(|(token, _)| token).find(|token| !banned.contains(token)).unwrap_or(0),
            Some(best) if self.sampling.temperature < GREEDY => best.token,
            Some(best) => self.draw(logits, best),
        };
        if self.penalises() {
            *self.counts.entry(token).or_default() += 1;
        }
        let (logprob, top) = match self.sampling.top_logprobs {
            Some(most) => self.logprobs(token, most),
            None => (None, Vec::new()),
        };
        Some(Sampled { token, logprob, top })
    }

    fn penalises(&self) -> bool {
        self.sampling.frequency_penalty != 0.0 || self.sampling.presence_penalty != 0.0
    }

    /// Bias, penalties and bans.
    fn adjust(&self, logits: &mut [f32], banned: &[u32]) {
        for &(token, bias) in &self.sampling.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        for (&token, &count) in &self.counts {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit -= self.sampling.frequency_penalty * count as f32 + self.sampling.presence_penalty;
            }
        }
        for &token in banned {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    /// Draws one of the tokens that the filters leave; `best` is the likeliest.
    fn draw(&mut self, logits: &[f32], best: Candidate) -> u32 {
        // Spent even where nothing is left to chance, so that the next token does not depend on it.
        let random = unit(self.random.next_u64());
        self.candidates.clear();
        let least = best.weight - NEGLIGIBLE * self.sampling.temperature;
        let possible = |one: &Candidate| one.weight >= least && one.weight > f32::NEG_INFINITY;
        let all = (0..).zip(logits).map(|(token, &weight)| Candidate { token, weight });
        self.candidates.extend(all.filter(possible));
        if let Some(most) = self.sampling.top_k {
            self.keep_most(most.max(1));
        }
        for one in &mut self.candidates {
            // Never NaN: the difference of two finite numbers, at most 0.
            one.weight = ((one.weight - best.weight) / self.sampling.temperature).exp();
        }
        if self.sampling.top_p < 1.0 {
            self.keep_nucleus(self.sampling.top_p);
        }
        if self.sampling.min_p > 0.0 {
            let least = self.sampling.min_p;
            self.candidates.retain(|one| one.weight >= least);
        }
        let total: f64 = self.candidates.iter().map(|one| f64::from(one.weight)).sum();
        let mut left = random * total;
        for one in &self.candidates {
            left -= f64::from(one.weight);
            if left < 0.0 {
                return one.token;
            }
        }
        // Rounding may leave a little: the likeliest is never wrong.
        best.token
    }

    /// Keeps the `most` likeliest candidates.
    fn keep_most(&mut self, most: usize) {
        if most < self.candidates.len() {
            self.ranked.clone_from(&self.candidates);
            let (_, last, _) = self.ranked.select_nth_unstable_by(most - 1, |a, b| a.rank(*b));
            let last = *last;
            self.candidates.retain(|one| one.rank(last) != Ordering::Greater);
        }
    }

    /// Keeps the fewest likeliest candidates that together have at least `share` of the probability.
    fn keep_nucleus(&mut self, share: f32) {
        let total: f64 = self.candidates.iter().map(|one| f64::from(one.weight)).sum();
        // Together, those below this have less than 1 - share, so the nucleus does without them. Sorting what is left is
        // cheap unless the distribution is flat. (A little less, so that rounding cannot leave nobody.)
        let below = 0.999 * f64::from(1.0 - share) * total / self.candidates.len() as f64;
        self.ranked.clear();
        self.ranked.extend(self.candidates.iter().filter(|one| f64::from(one.weight) >= below));
        self.ranked.sort_unstable_by(|a, b| a.rank(*b));
        let mut sum = 0.0;
        let last = self.ranked.iter().find(|one| {
            sum += f64::from(one.weight);
            sum >= f64::from(share) * total
        });
        if let Some(&last) = last {
            self.candidates.retain(|one| one.rank(last) != Ordering::Greater);
        }
    }

    /// Natural log probabilities of `token` and of the `most` likeliest, from the untouched logits.
    fn logprobs(&mut self, token: u32, most: usize) -> (Option<f32>, Vec<(u32, f32)>) {
        let highest = self.raw.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = self.raw.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
        #[expect(clippy::cast_possible_truncation, reason = "told in f32")]
        let logprob = |logit: f32| {
            let logprob = (f64::from(logit - highest) - sum.ln()) as f32;
            // Never NaN: the highest is finite.
            logprob.max(LEAST_LOGPROB)
        };
        let mut top = Vec::new();
        let most = most.min(self.raw.len());
        if most > 0 {
            self.ranked.clear();
            self.ranked.extend((0..).zip(&self.raw).map(|(token, &weight)| Candidate { token, weight }));
            self.ranked.select_nth_unstable_by(most - 1, |a, b| a.rank(*b));
            self.ranked.truncate(most);
            self.ranked.sort_unstable_by(|a, b| a.rank(*b));
            top.extend(self.ranked.iter().map(|one| (one.token, logprob(one.weight))));
        }
        (self.raw.get(token as usize).map(|&logit| logprob(logit)), top)
    }
}

/// The likeliest token, the lowest id among equals. `None` where none is possible.
fn best(logits: &[f32]) -> Option<Candidate> {
    // Side by side, for the compiler to use vector registers: one after the other, this would take as long as drawing.
    let (rows, rest) = logits.as_chunks::<16>();
    let mut highest = [f32::NEG_INFINITY; 16];
    for row in rows {
        for (highest, &logit) in highest.iter_mut().zip(row) {
            *highest = if logit > *highest { logit } else { *highest };
        }
    }
    let weight = highest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    #[expect(clippy::float_cmp, reason = "one of them is this very number")]
    let first = (0..).zip(logits).find(|&(_, &logit)| logit == weight);
    first.filter(|_| weight > f32::NEG_INFINITY).map(|(token, _)| Candidate { token, weight })
}

/// Random bits → a number from 0 to 1, 1 left out.
fn unit(bits: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (bits >> 11) as f64 / STEPS
}

#[cfg(test)]
mod tests;
