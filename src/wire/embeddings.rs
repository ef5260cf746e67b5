//! Embeddings: one reply, however large → its [`Meaning`].
//!
//! What counts stands beside a long list, which [`sieve`] passes over while it comes.

use smallvec::smallvec;

use super::raw::{fields, is_empty, whole_number};
use super::skim::Skimmer;
use super::{Choice, Meaning, Usage, envelope};

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

/// What a reply says that answers with a list.
pub(super) fn listed<'t>(list: Option<&'t str>, model: Option<&'t str>, error: Option<&'t str>) -> Meaning<'t> {
    let there = list.is_some_and(|list| list.starts_with('['));
    let choice = Choice { finished: true, ..Choice::default() };
    Meaning {
        choices: if there { smallvec![choice] } else { smallvec![] },
        model: envelope::model(model),
        error: error.is_some_and(|error| !is_empty(error)),
        ..Meaning::default()
    }
}

/// Usage that knows only a prompt: the first of these that is a count.
pub(super) fn of_input<const N: usize>(counts: [Option<&str>; N]) -> Option<Usage> {
    let input = counts.into_iter().flatten().find_map(whole_number)?;
    Some(Usage { input: Some(input), ..Usage::default() })
}
