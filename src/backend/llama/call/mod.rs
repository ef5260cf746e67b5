//! What a chat completion request asks of the engine.
//!
//! Invariant: a request is served as it asks or refused with the field at fault. What would change the answer is never
//! ignored; what would not, is.

use serde_json::Value;

mod field;
mod messages;
mod refused;
mod sampler;

use field::Field;

pub(super) use field::crop;
pub(super) use sampler::Sampler;

/// A chat completion request, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// The model's name as the client wrote it.
    pub(super) model: Option<String>,
    /// The conversation; not empty.
    pub(super) messages: Vec<Message>,
    /// `stream: true`.
    pub(super) stream: bool,
    /// `stream_options.include_usage`: a last event with `choices: []` and `usage`.
    pub(super) include_usage: bool,
    /// `stream_options.continuous_usage_stats`: `usage` on every event.
    pub(super) continuous_usage: bool,
    /// `n`, at least 1.
    pub(super) choices: u32,
    /// How tokens are chosen.
    pub(super) sampling: Sampling,
    /// When generation ends.
    pub(super) limits: Limits,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// `system`, `user`, `assistant`, …
    pub(super) role: String,
    /// Its text; text parts are joined by line ends, as vLLM and llama.cpp do.
    pub(super) content: String,
}

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sampling {
    /// 0 is greedy.
    pub(super) temperature: f32,
    /// Nucleus: 1 keeps all.
    pub(super) top_p: f32,
    /// `None` keeps all.
    pub(super) top_k: Option<usize>,
    /// 0 keeps all.
    pub(super) min_p: f32,
    /// `None` draws one.
    pub(super) seed: Option<u64>,
    /// Per occurrence in the output.
    pub(super) frequency_penalty: f32,
    /// Once for what occurred in the output.
    pub(super) presence_penalty: f32,
    /// Added to logits, by token; each token once.
    pub(super) logit_bias: Vec<(u32, f32)>,
    /// How many alternatives are told with each token; `None` without `logprobs`.
    pub(super) top_logprobs: Option<usize>,
}

/// When generation ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// At most so many output tokens. `None` leaves it to the context.
    pub(super) max_tokens: Option<usize>,
    /// No end before so many.
    pub(super) min_tokens: usize,
    /// The model's own end does not end it.
    pub(super) ignore_eos: bool,
    /// Strings that end it; they are not part of the output.
    pub(super) stop: Vec<String>,
    /// Tokens that end it, besides the model's own; sorted, each once.
    pub(super) stop_ids: Vec<u32>,
}

/// A request that cannot be served as it asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend) struct BadCall {
    /// The field at fault, as OpenAI's `param`.
    pub(in crate::backend) param: Option<String>,
    /// What is wrong and what to do.
    pub(in crate::backend) message: String,
}

impl Default for Sampling {
    /// What OpenAI documents for what a request leaves out.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            min_p: 0.0,
            seed: None,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            top_logprobs: None,
        }
    }
}

impl BadCall {
    fn new(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), message: message.into() }
    }
}

/// The most choices of one request, as with OpenAI.
const MOST_CHOICES: u64 = 128;
/// The most stop strings; OpenAI takes 4.
const MOST_STOPS: usize = 16;
/// The longest stop string, in bytes, and all of a request's together: they are looked for at every token.
const LONGEST_STOP: usize = 1024;
const LONGEST_STOPS: usize = 4096;
/// The most tokens that may end an answer besides the model's own.
const MOST_STOP_IDS: usize = 256;
/// The most tokens with a bias; OpenAI takes 300.
const MOST_BIASES: usize = 1024;
/// How much of what a client wrote an error repeats, in bytes.
pub(super) const REPEATED: usize = 64;

impl Call {
    /// Reads a request's JSON. `defaults` are the model's own, for what the request leaves out.
    pub(super) fn read(body: &[u8], defaults: &Sampling, vocab_size: usize) -> Result<Self, BadCall> {
        let whole = |message: String| BadCall { param: None, message };
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| whole(format!("the request body is not valid JSON: {error}")))?;
        let body = body.as_object().ok_or_else(|| whole("the request body must be a JSON object".to_owned()))?;
        let field = |name: &'static str| Field::new(name, body.get(name));
        refused::check(body)?;

        let stream = field("stream").switch()?.unwrap_or(false);
        let stream_options = field("stream_options");
        let options = stream_options.object()?;
        if options.is_some() && !stream {
            return Err(stream_options.bad("only goes with `stream: true`: leave it out, or ask for a stream"));
        }
        let option = |name| stream_options.inner(name, options.and_then(|options| options.get(name))).switch();
        Ok(Self {
            model: field("model").text()?.map(str::to_owned),
            messages: messages::read(&field("messages"))?,
            stream,
            include_usage: option("include_usage")?.unwrap_or(false),
            continuous_usage: option("continuous_usage_stats")?.unwrap_or(false),
            choices: u32::try_from(field("n").whole(1..=MOST_CHOICES)?.unwrap_or(1)).unwrap_or(1),
            sampling: sampling(&field, defaults, vocab_size)?,
            limits: limits(&field, vocab_size)?,
        })
    }
}

fn sampling<'a>(
    field: &impl Fn(&'static str) -> Field<'a>,
    defaults: &Sampling,
    vocab_size: usize,
) -> Result<Sampling, BadCall> {
    let top_k = field("top_k");
    let top_k = match top_k.signed()? {
        None => defaults.top_k,
        Some(-1 | 0) => None,
        Some(most) => {
            Some(usize::try_from(most).map_err(|_| top_k.bad("must be positive, or -1 or 0 for all tokens"))?)
        }
    };
    Ok(Sampling {
        temperature: field("temperature").number(0.0..=2.0)?.unwrap_or(defaults.temperature),
        top_p: field("top_p").number(0.0..=1.0)?.unwrap_or(defaults.top_p),
        top_k,
        min_p: field("min_p").number(0.0..=1.0)?.unwrap_or(defaults.min_p),
        seed: field("seed").signed()?.map(i64::cast_unsigned).or(defaults.seed),
        frequency_penalty: field("frequency_penalty").number(-2.0..=2.0)?.unwrap_or(defaults.frequency_penalty),
        presence_penalty: field("presence_penalty").number(-2.0..=2.0)?.unwrap_or(defaults.presence_penalty),
        logit_bias: logit_bias(&field("logit_bias"), vocab_size)?.unwrap_or_else(|| defaults.logit_bias.clone()),
        top_logprobs: top_logprobs(&field("logprobs"), &field("top_logprobs"))?,
    })
}

fn logit_bias(field: &Field<'_>, vocab_size: usize) -> Result<Option<Vec<(u32, f32)>>, BadCall> {
    let Some(biases) = field.object()? else { return Ok(None) };
    if biases.len() > MOST_BIASES {
        return Err(field.bad(format!("has {} tokens; leave all but {MOST_BIASES} out", biases.len())));
    }
    let biases = biases.iter().map(|(id, bias)| {
        // One way to write each id, so that no token is named twice.
        let is_token = |&token: &u32| (token as usize) < vocab_size && token.to_string() == *id;
        let token = id.parse().ok().filter(is_token).ok_or_else(|| {
            let last = vocab_size.saturating_sub(1);
            field.bad(format!("has the key `{}`: keys are token ids, from 0 to {last}", crop(id, REPEATED)))
        })?;
        let bias = field.inner(id, Some(bias));
        Ok((token, bias.number(-100.0..=100.0)?.ok_or_else(|| bias.bad("must be a number"))?))
    });
    biases.collect::<Result<_, _>>().map(Some)
}

fn top_logprobs(logprobs: &Field<'_>, top: &Field<'_>) -> Result<Option<usize>, BadCall> {
    const MOST: u64 = 20;
    let most = top.whole(0..=MOST)?;
    match (logprobs.switch()?.unwrap_or(false), most) {
        (true, most) => Ok(Some(usize::try_from(most.unwrap_or(0)).unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(top.bad("only goes with `logprobs: true`")),
    }
}

fn limits<'a>(field: &impl Fn(&'static str) -> Field<'a>, vocab_size: usize) -> Result<Limits, BadCall> {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let older = field("max_tokens").whole(1..=u64::MAX)?;
    let max_tokens = field("max_completion_tokens").whole(1..=u64::MAX)?.or(older).map(count);
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
    let id = |(at, value): (usize, &Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < vocab_size);
        id.ok_or_else(|| {
            field.inner_at(at).bad(format!("must be a token id, from 0 to {}", vocab_size.saturating_sub(1)))
        })
    };
    let mut ids: Vec<u32> = field.array()?.unwrap_or_default().iter().enumerate().map(id).collect::<Result<_, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > MOST_STOP_IDS {
        return Err(field.bad(format!("has {} different tokens; leave all but {MOST_STOP_IDS} out", ids.len())));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests;
