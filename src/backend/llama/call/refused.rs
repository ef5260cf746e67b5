//! Fields that would change the answer and are not served: named, not ignored.

use serde_json::{Map, Value};

use super::field::Field;
use super::{BadCall, Kind};

/// When a field asks for nothing.
enum Harmless {
    /// `null`, and nothing else.
    Absent,
    /// Empty arrays and objects, empty strings.
    Empty,
    /// `false`
    Off,
    /// `true`
    On,
    /// One of these numbers.
    Number(&'static [f64]),
    /// One of these strings.
    Text(&'static [&'static str]),
}

const TOOLS: &str = "is not supported: this model calls no tools";
const SHAPE: &str =
    "is not supported: the output cannot be held to a form; leave it out and say in the prompt what you need";
const PENALTY: &str = "is not supported: use `frequency_penalty` or `presence_penalty`";
const TEXT: &str = "is not supported: this model reads and writes only text";
const PROMPT: &str = "is not supported: the prompt is made by the model's own chat template";
const BIAS: &str = "is not supported: use `logit_bias` with token ids";
const TOKENS: &str = "is not supported: give the prompt as token ids to decide on each of them";
const IDS: &str = "is not supported: tokens are told as text";
const SEARCH: &str = "is not supported: tokens are drawn one by one, with temperature, top_p, top_k and min_p";

/// Whatever is asked: fields of OpenAI's API first, then those that vLLM and llama.cpp add.
///
/// Not here, as they change nothing of the answer: hints to models that think before they answer (`reasoning_effort`,
/// `include_reasoning`), which these do not; what only tunes another field of this list (`dry_base`, `mirostat_tau`,
/// `guided_whitespace_pattern`); what only concerns speed or bookkeeping (`prediction`, `cache_prompt`, `user`).
const REFUSED: &[(&str, Harmless, &str)] = &[
    ("tools", Harmless::Empty, TOOLS),
    ("functions", Harmless::Empty, TOOLS),
    ("tool_choice", Harmless::Text(&["none", "auto"]), TOOLS),
    ("function_call", Harmless::Text(&["none", "auto"]), TOOLS),
    ("modalities", Harmless::Text(&["text"]), TEXT),
    ("audio", Harmless::Absent, TEXT),
    ("web_search_options", Harmless::Absent, "is not supported: this model searches nothing"),
    ("repetition_penalty", Harmless::Number(&[1.0]), PENALTY),
    ("repeat_penalty", Harmless::Number(&[1.0]), PENALTY),
    ("dry_multiplier", Harmless::Number(&[0.0]), PENALTY),
    ("guided_json", Harmless::Absent, SHAPE),
    ("guided_json_object", Harmless::Off, SHAPE),
    ("guided_regex", Harmless::Empty, SHAPE),
    ("guided_choice", Harmless::Empty, SHAPE),
    ("guided_grammar", Harmless::Empty, SHAPE),
    ("guided_decoding", Harmless::Empty, SHAPE),
    ("structural_tag", Harmless::Empty, SHAPE),
    ("structured_outputs", Harmless::Empty, SHAPE),
    ("grammar", Harmless::Empty, SHAPE),
    ("json_schema", Harmless::Empty, SHAPE),
    ("n_indent", Harmless::Number(&[0.0]), SHAPE),
    ("use_beam_search", Harmless::Off, SEARCH),
    ("mirostat", Harmless::Number(&[0.0]), SEARCH),
    ("typical_p", Harmless::Number(&[1.0]), SEARCH),
    ("typ_p", Harmless::Number(&[1.0]), SEARCH),
    ("tfs_z", Harmless::Number(&[1.0]), SEARCH),
    ("top_n_sigma", Harmless::Number(&[-1.0, 0.0]), SEARCH),
    ("dynatemp_range", Harmless::Number(&[0.0]), SEARCH),
    ("xtc_probability", Harmless::Number(&[0.0]), SEARCH),
    ("min_keep", Harmless::Number(&[0.0, 1.0]), SEARCH),
    ("samplers", Harmless::Empty, SEARCH),
    ("logits_processors", Harmless::Empty, SEARCH),
    ("bad_words", Harmless::Empty, BIAS),
    ("allowed_token_ids", Harmless::Absent, BIAS),
    ("n_predict", Harmless::Number(&[-1.0]), "is not supported: use `max_tokens`"),
    ("t_max_predict_ms", Harmless::Number(&[-1.0, 0.0]), "is not supported: use `max_tokens`"),
    ("include_stop_str_in_output", Harmless::Off, "is not supported: a stop string is never part of the answer"),
    ("skip_special_tokens", Harmless::On, "is not supported: control tokens are never part of the answer"),
    ("return_tokens_as_token_ids", Harmless::Off, IDS),
    ("return_token_ids", Harmless::Off, IDS),
    ("return_tokens", Harmless::Off, IDS),
    ("n_probs", Harmless::Number(&[0.0]), "is not supported: use `logprobs`"),
    ("post_sampling_probs", Harmless::Off, "is not supported: log probabilities are those before sampling"),
    ("prompt_logprobs", Harmless::Absent, "is not supported: only output tokens have log probabilities"),
    ("lora", Harmless::Empty, "is not supported: this model has no adapters"),
];

/// What only a completion could be asked for, and how a chat's prompt is made.
const REFUSED_OF_CHATS: &[(&str, Harmless, &str)] = &[
    ("best_of", Harmless::Number(&[1.0]), "is not supported: ask for `n` answers and choose among them"),
    ("echo", Harmless::Off, PROMPT),
    ("suffix", Harmless::Empty, PROMPT),
    ("chat_template", Harmless::Absent, PROMPT),
    ("chat_template_kwargs", Harmless::Empty, PROMPT),
    ("documents", Harmless::Empty, PROMPT),
    ("add_generation_prompt", Harmless::On, PROMPT),
    ("add_special_tokens", Harmless::Off, PROMPT),
    ("continue_final_message", Harmless::Off, PROMPT),
    ("truncate_prompt_tokens", Harmless::Absent, PROMPT),
];

/// What only a chat could be asked for, and how a completion's prompt is read. The chat template's fields concern none.
const REFUSED_OF_COMPLETIONS: &[(&str, Harmless, &str)] = &[
    ("messages", Harmless::Absent, "is not supported: ask `/v1/chat/completions`, or give a `prompt`"),
    ("top_logprobs", Harmless::Number(&[0.0]), "is not supported: `logprobs` is the number of alternatives"),
    ("suffix", Harmless::Empty, "is not supported: this model only goes on from a prompt"),
    ("prompt_embeds", Harmless::Absent, "is not supported: this model reads only text and tokens"),
    ("add_special_tokens", Harmless::On, TOKENS),
    ("truncate_prompt_tokens", Harmless::Absent, TOKENS),
];

/// Refuses what is asked for and not served.
pub(super) fn check(kind: Kind, body: &Map<String, Value>) -> Result<(), BadCall> {
    let own = match kind {
        Kind::Chat => REFUSED_OF_CHATS,
        Kind::Completion => REFUSED_OF_COMPLETIONS,
    };
    for (name, harmless, problem) in REFUSED.iter().chain(own) {
        let field = Field::new(*name, body.get(*name));
        if field.value().is_some_and(|value| !harmless.allows(value)) {
            return Err(field.bad(problem));
        }
    }
    let format = Field::new("response_format", body.get("response_format"));
    if let Some(fields) = format.object()? {
        match format.inner("type", fields.get("type")).text()? {
            Some("text") => {}
            Some(_) => return Err(format.bad(SHAPE)),
            None => return Err(format.bad("must have a `type`, and that must be `text`")),
        }
    }
    Ok(())
}

impl Harmless {
    fn allows(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Empty, Value::Array(items)) => items.is_empty(),
            (Self::Empty, Value::Object(fields)) => fields.is_empty(),
            (Self::Empty, Value::String(text)) => text.is_empty(),
            (Self::Off, value) => *value == Value::Bool(false),
            (Self::On, value) => *value == Value::Bool(true),
            (Self::Number(harmless), value) => value.as_f64().is_some_and(|number| harmless.contains(&number)),
            (Self::Text(harmless), Value::String(text)) => harmless.contains(&text.as_str()),
            (Self::Text(_), Value::Array(texts)) => texts.iter().all(|text| self.allows(text)),
            (Self::Absent | Self::Empty | Self::Text(_), _) => false,
        }
    }
}
