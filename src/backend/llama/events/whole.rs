//! A whole reply: one document.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Count, Identity, Wording, chat};
use crate::backend::llama::engine::{Reason, Told};
use crate::backend::llama::text::Text;

/// One choice of a whole reply, as it grows.
#[derive(Debug, Default)]
pub(in crate::backend::llama) struct WholeChoice {
    /// Its text.
    pub(in crate::backend::llama) content: String,
    /// Its tokens' probabilities.
    pub(in crate::backend::llama) logprobs: Vec<Told>,
    /// Why it is over, and how many tokens it has.
    pub(in crate::backend::llama) finished: Option<(Reason, usize)>,
}

/// The whole reply; `told` says whether probabilities are.
pub(in crate::backend::llama) fn whole(
    identity: &Identity,
    text: &Text,
    wording: &mut Wording,
    choices: &[WholeChoice],
    prompt: usize,
    told: bool,
) -> Bytes {
    let completion = choices.iter().filter_map(|choice| choice.finished).map(|(_, tokens)| tokens).sum();
    let choice = |(index, choice): (u32, &WholeChoice)| {
        let (mut said, logprobs) = match wording.continuation(index) {
            None => (chat::message(&choice.content), told.then(|| chat::logprobs(text, &choice.logprobs))),
            Some(one) => {
                let said = json!({"text": one.text(&choice.content)});
                (said, told.then(|| one.logprobs(text, &choice.logprobs)))
            }
        };
        said["index"] = index.into();
        said["logprobs"] = logprobs.into();
        said["finish_reason"] = choice.finished.map(|(reason, _)| reason.label()).into();
        said
    };
    let choices: Vec<Value> = (0..).zip(choices).map(choice).collect();
    let Identity { id, created, model, fingerprint } = identity;
    let reply = json!({
        "id": id,
        "object": wording.whole_object(),
        "created": created,
        "model": model,
        "system_fingerprint": fingerprint,
        "choices": choices,
        "usage": Count { prompt, completion }.json(),
    });
    Bytes::from(reply.to_string())
}
