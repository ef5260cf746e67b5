//! When generation ends: lengths, stop strings and stop tokens.

use serde_json::Value;

use super::field::Field;
use super::{BadCall, token_id};

/// The most stop strings; OpenAI takes 4.
const MOST_STOPS: usize = 16;
/// The longest stop string, in bytes, and all of a request's together: they are looked for at every token.
const LONGEST_STOP: usize = 1024;
const LONGEST_STOPS: usize = 4096;
/// The most tokens that may end an answer besides the model's own.
const MOST_STOP_IDS: usize = 256;

/// When generation ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::backend::llama) struct Limits {
    /// At most so many output tokens. `None` leaves it to the context.
    pub(in crate::backend::llama) max_tokens: Option<usize>,
    /// No end before so many.
    pub(in crate::backend::llama) min_tokens: usize,
    /// The model's own end does not end it.
    pub(in crate::backend::llama) ignore_eos: bool,
    /// Strings that end it; they are not part of the output.
    pub(in crate::backend::llama) stop: Vec<String>,
    /// Tokens that end it, besides the model's own; sorted, each once.
    pub(in crate::backend::llama) stop_ids: Vec<u32>,
}

/// Reads them; `default` is `max_tokens` where the request does not say.
pub(super) fn read<'a>(
    field: &impl Fn(&'static str) -> Field<'a>,
    default: Option<usize>,
    vocab_size: usize,
) -> Result<Limits, BadCall> {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let older = field("max_tokens").whole(1..=u64::MAX)?;
    let max_tokens = field("max_completion_tokens").whole(1..=u64::MAX)?.or(older).map(count).or(default);
    let min = field("min_tokens");
    let min_tokens = min.whole(0..=u64::MAX)?.map_or(0, count);
    if let Some(most) = max_tokens.filter(|&most| most < min_tokens) {
        return Err(min.bad(format!("is {min_tokens}, more than the {most} tokens that are allowed")));
    }
    Ok(Limits {
        max_tokens,
        min_tokens,
        ignore_eos: field("ignore_eos").switch()?.unwrap_or(false),
        stop: stop(&field("stop"))?,
        stop_ids: stop_ids(&field("stop_token_ids"), vocab_size)?,
    })
}

fn stop(field: &Field<'_>) -> Result<Vec<String>, BadCall> {
    let kind = "must be a string or an array of strings";
    let strings: Vec<&str> = match field.value() {
        None => Vec::new(),
        Some(Value::String(string)) => vec![string],
        Some(Value::Array(strings)) => {
            strings.iter().map(|string| string.as_str().ok_or_else(|| field.bad(kind))).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(field.bad(kind)),
    };
    if strings.len() > MOST_STOPS {
        return Err(field.bad(format!("has {} strings; at most {MOST_STOPS} are looked for", strings.len())));
    }
    if strings.contains(&"") {
        return Err(field.bad("has an empty string, which would end every answer at once: leave it out"));
    }
    if let Some(long) = strings.iter().map(|string| string.len()).find(|&length| length > LONGEST_STOP) {
        return Err(field.bad(format!("has a string of {long} bytes; shorten it to at most {LONGEST_STOP}")));
    }
    let together: usize = strings.iter().map(|string| string.len()).sum();
    if together > LONGEST_STOPS {
        let problem =
            format!("has {together} bytes in all its strings; shorten them to at most {LONGEST_STOPS} together");
        return Err(field.bad(problem));
    }
    Ok(strings.into_iter().map(str::to_owned).collect())
}

fn stop_ids(field: &Field<'_>, vocab_size: usize) -> Result<Vec<u32>, BadCall> {
    let id = |(at, value): (usize, &Value)| token_id(field, at, value, vocab_size);
    let mut ids: Vec<u32> = field.array()?.unwrap_or_default().iter().enumerate().map(id).collect::<Result<_, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > MOST_STOP_IDS {
        return Err(field.bad(format!("has {} different tokens; leave all but {MOST_STOP_IDS} out", ids.len())));
    }
    Ok(ids)
}
