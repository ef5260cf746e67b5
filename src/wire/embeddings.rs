//! Embeddings: one reply, however large → its [`Meaning`].
//!
//! What counts stands beside a long list, which [`sieve`] passes over while it comes.

use super::list::{listed, of_input};
use super::raw::fields;
use super::skim::Skimmer;
use super::{Meaning, envelope};

/// What a whole reply means: its list, of whatever length, is an answer without output.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    envelope::read(data, |text| {
        let Some([list, counts, model, error]) = fields(text, ["data", "usage", "model", "error"]) else {
            return envelope::malformed();
        };
        let [prompt, total] =
            counts.and_then(|counts| fields(counts, ["prompt_tokens", "total_tokens"])).unwrap_or_default();
        Meaning { usage: of_input([prompt, total]), ..listed(list, model, error) }
    })
}

/// Keeps what [`reply`] looks at of a reply that comes in pieces.
pub fn sieve() -> Skimmer {
    Skimmer::new(&["usage", "model", "error"], &["data"])
}
