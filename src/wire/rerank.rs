//! Documents ranked by a query: one reply, however large → its [`Meaning`].
//!
//! Jina, vLLM and others list `results` and count in `usage`; some list `data`. Cohere counts in `meta`. Text Embeddings
//! Inference answers with the list itself, and counts nothing.

use super::list::{listed, of_input};
use super::raw::{fields, items};
use super::skim::Skimmer;
use super::{Meaning, envelope};

/// What a whole reply means: its list, of whatever length, is an answer without output.
pub fn reply(data: &[u8]) -> Meaning<'_> {
    envelope::read(data, |text| {
        if items(text, |_| {}) {
            return listed(Some(text), None, None);
        }
        let names = ["results", "data", "usage", "meta", "model", "error"];
        let Some([results, data, counts, meta, model, error]) = fields(text, names) else {
            return envelope::malformed();
        };
        let counts = counts.and_then(|counts| fields(counts, ["prompt_tokens", "total_tokens"])).unwrap_or_default();
        let tokens = meta.and_then(|meta| fields(meta, ["tokens"])).and_then(|[tokens]| tokens);
        let [read] = tokens.and_then(|tokens| fields(tokens, ["input_tokens"])).unwrap_or_default();
        Meaning { usage: of_input([counts[0], counts[1], read]), ..listed(results.or(data), model, error) }
    })
}

/// Keeps what [`reply`] looks at of a reply that comes in pieces.
pub fn sieve() -> Skimmer {
    Skimmer::new(&["usage", "meta", "model", "error"], &["results", "data"]).or_list()
}
