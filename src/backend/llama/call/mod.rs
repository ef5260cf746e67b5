//! What a request asks of the engine: a chat completion, or a legacy completion.
//!
//! Invariant: a request is served as it asks or refused with the field at fault. What would change the answer is never
//! ignored; what would not, is.

use serde_json::Value;

mod completion;
mod field;
mod limits;
mod messages;
mod refused;
mod sampler;

use field::Field;

pub(super) use completion::MAX_TOKENS;
pub(super) use field::crop;
pub(super) use limits::Limits;
pub(super) use sampler::Sampler;

/// What a model can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/chat/completions`: the answer to a conversation.
    Chat,
    /// `/v1/completions`: how a text goes on.
    Completion,
}

/// A request, read and checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// The model's name as the client wrote it.
    pub(super) model: Option<String>,
    /// What the model is given.
    pub(super) input: Input,
    /// `stream: true`.
    pub(super) stream: bool,
    /// `stream_options.include_usage`: a last event with `choices: []` and `usage`.
    pub(super) include_usage: bool,
    /// `stream_options.continuous_usage_stats`: `usage` on every event.
    pub(super) continuous_usage: bool,
    /// `n`, for each prompt: at least 1.
    pub(super) choices: u32,
    /// How tokens are chosen.
    pub(super) sampling: Sampling,
    /// When generation ends.
    pub(super) limits: Limits,
}

/// What the model is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// A conversation to answer; not empty.
    Chat(Vec<Message>),
    /// Texts to go on with.
    Completion {
        /// At least one.
        prompts: Vec<Prompt>,
        /// Each choice begins with its prompt.
        echo: bool,
    },
}

/// A text to go on with, as the client wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Still to be turned into tokens; may be empty.
    Text(String),
    /// Tokens of the vocabulary, at least one.
    Tokens(Vec<u32>),
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

/// The most choices of one request, as with OpenAI; of all its prompts together.
const MOST_CHOICES: u64 = 128;
/// The most tokens with a bias; OpenAI takes 300.
const MOST_BIASES: usize = 1024;
/// How much of what a client wrote an error repeats, in bytes.
pub(super) const REPEATED: usize = 64;

impl Call {
    /// The choices of all prompts together: at least 1.
    pub(super) fn all_choices(&self) -> usize {
        let prompts = match &self.input {
            Input::Chat(_) => 1,
            Input::Completion { prompts, .. } => prompts.len(),
        };
        prompts * self.choices as usize
    }

    /// Reads a request's JSON. `defaults` are the model's own, for what the request leaves out.
    pub(super) fn read(kind: Kind, body: &[u8], defaults: &Sampling, vocab_size: usize) -> Result<Self, BadCall> {
        let whole = |message: String| BadCall { param: None, message };
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| whole(format!("the request body is not valid JSON: {error}")))?;
        let body = body.as_object().ok_or_else(|| whole("the request body must be a JSON object".to_owned()))?;
        let field = |name: &'static str| Field::new(name, body.get(name));
        refused::check(kind, body)?;

        let stream = field("stream").switch()?.unwrap_or(false);
        let stream_options = field("stream_options");
        let options = stream_options.object()?;
        if options.is_some() && !stream {
            return Err(stream_options.bad("only goes with `stream: true`: leave it out, or ask for a stream"));
        }
        let option = |name| stream_options.inner(name, options.and_then(|options| options.get(name))).switch();
        let choices = u32::try_from(field("n").whole(1..=MOST_CHOICES)?.unwrap_or(1)).unwrap_or(1);
        let top_logprobs = match kind {
            Kind::Chat => top_logprobs(&field("logprobs"), &field("top_logprobs"))?,
            Kind::Completion => completion::logprobs(&field("logprobs"))?,
        };
        let (input, max_tokens) = match kind {
            Kind::Chat => (Input::Chat(messages::read(&field("messages"))?), None),
            Kind::Completion => {
                let input = completion::read(&field, choices, top_logprobs.is_some(), vocab_size)?;
                (input, Some(completion::MAX_TOKENS))
            }
        };
        Ok(Self {
            model: field("model").text()?.map(str::to_owned),
            input,
            stream,
            include_usage: option("include_usage")?.unwrap_or(false),
            continuous_usage: option("continuous_usage_stats")?.unwrap_or(false),
            choices,
            sampling: Sampling { top_logprobs, ..sampling(&field, defaults, vocab_size)? },
            limits: limits::read(&field, max_tokens, vocab_size)?,
        })
    }
}

/// All but `top_logprobs`.
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
        top_logprobs: None,
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

/// The item `at` of `list`, `value`, as a token.
fn token_id(list: &Field<'_>, at: usize, value: &Value, vocab_size: usize) -> Result<u32, BadCall> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < vocab_size);
    id.ok_or_else(|| list.inner_at(at).bad(format!("must be a token id, from 0 to {}", vocab_size.saturating_sub(1))))
}

#[cfg(test)]
mod tests;
