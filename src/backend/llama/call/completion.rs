//! What only a legacy completion asks: prompts, as text or as tokens, repeated or not.
//!
//! Source: OpenAI's API reference, "Create completion".

use serde_json::Value;

use super::field::Field;
use super::{BadCall, Input, MOST_CHOICES, Prompt, token_id};

/// `max_tokens` where a completion does not say.
pub(in crate::backend::llama) const MAX_TOKENS: usize = 16;

/// Reads what the model is to go on with. `choices` is `n`, for each prompt; `has_logprobs` says that they were asked for.
pub(super) fn read<'a>(
    field: &impl Fn(&'static str) -> Field<'a>,
    choices: u32,
    has_logprobs: bool,
    vocab_size: usize,
) -> Result<Input, BadCall> {
    best_of(&field("best_of"), choices)?;
    let prompts = prompts(&field("prompt"), vocab_size)?;
    let all = prompts.len() as u64 * u64::from(choices);
    if all > MOST_CHOICES {
        let problem = format!(
            "is {choices} for each of {} prompts, which makes {all} choices: ask for at most {MOST_CHOICES} in a request",
            prompts.len()
        );
        return Err(field("n").bad(problem));
    }
    let echo = field("echo");
    let repeats = echo.switch()?.unwrap_or(false);
    if repeats && has_logprobs {
        let problem = "does not go with `logprobs`, as those of the prompt are not computed: leave one of them out";
        return Err(echo.bad(problem));
    }
    Ok(Input::Completion { prompts, echo: repeats })
}

/// Reads `logprobs`: how many alternatives are told with each token.
pub(super) fn logprobs(logprobs: &Field<'_>) -> Result<Option<usize>, BadCall> {
    const MOST: u64 = 5;
    Ok(logprobs.whole(0..=MOST)?.and_then(|most| usize::try_from(most).ok()))
}

/// As many as are told: more would have to be ranked, fewer contradict `n`.
fn best_of(best_of: &Field<'_>, choices: u32) -> Result<(), BadCall> {
    match best_of.whole(1..=u64::MAX)? {
        Some(candidates) if candidates > u64::from(choices) => {
            Err(best_of.bad(format!("is {candidates}, more than `n`: ask for `n` answers and choose among them")))
        }
        Some(candidates) if candidates < u64::from(choices) => {
            Err(best_of.bad(format!("is {candidates}, less than the {choices} answers of `n`: leave it out")))
        }
        _ => Ok(()),
    }
}

fn prompts(field: &Field<'_>, vocab_size: usize) -> Result<Vec<Prompt>, BadCall> {
    let items = match field.value() {
        Some(Value::String(text)) => return Ok(vec![Prompt::Text(text.clone())]),
        Some(Value::Array(items)) => items,
        Some(_) => {
            return Err(field.bad("must be a string, an array of strings, an array of token ids, or an array of those"));
        }
        None => return Err(field.bad("is missing: it is the text to go on with")),
    };
    match items.first() {
        None => return Err(field.bad("is empty: it must have at least one string or token")),
        Some(Value::Number(_)) => return Ok(vec![tokens(field, items, vocab_size)?]),
        Some(_) => {}
    }
    if items.len() as u64 > MOST_CHOICES {
        return Err(field.bad(format!("has {} prompts; send at most {MOST_CHOICES} in a request", items.len())));
    }
    let one = |(at, item): (usize, &Value)| {
        let field = field.inner_at(at);
        match item {
            Value::String(text) => Ok(Prompt::Text(text.clone())),
            Value::Array(ids) => tokens(&field, ids, vocab_size),
            _ => Err(field.bad("must be a string or an array of token ids")),
        }
    };
    items.iter().enumerate().map(one).collect()
}

fn tokens(field: &Field<'_>, ids: &[Value], vocab_size: usize) -> Result<Prompt, BadCall> {
    if ids.is_empty() {
        return Err(field.bad("is empty: it must have at least one token"));
    }
    let ids = ids.iter().enumerate().map(|(at, id)| token_id(field, at, id, vocab_size));
    ids.collect::<Result<_, _>>().map(Prompt::Tokens)
}

#[cfg(test)]
mod tests;
