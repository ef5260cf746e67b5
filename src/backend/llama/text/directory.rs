//! A Hugging Face directory's tokenizer, chat template and generation settings.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::Tokenizer;

use super::{Parts, Source, SpecialTokens};
use crate::backend::llama::LoadError;
use crate::backend::llama::call::Sampling;

/// Reads what `directory` says of text.
pub(super) fn read(directory: &Path) -> Result<Parts, LoadError> {
    let config: Config = json(&directory.join("config.json"))?.unwrap_or_default();
    let generation: Generation = json(&directory.join("generation_config.json"))?.unwrap_or_default();
    let settings_file = directory.join("tokenizer_config.json");
    let settings: Settings = json(&settings_file)?.unwrap_or_default();

    let file = directory.join("tokenizer.json");
    let tokenizer = tokenizer(directory, &file)?;

    let template_file = directory.join("chat_template.jinja");
    let template = match read_text(&template_file)? {
        Some(text) => Some(Source { text, file: template_file }),
        None => settings.chat_template.and_then(Templates::default).map(|text| Source { text, file: settings_file }),
    };

    let text_of = |token: Option<Token>| token.map(Token::into_text);
    let bos_text = text_of(settings.bos_token);
    let bos = match &bos_text {
        Some(text) => tokenizer.token_to_id(text),
        None => generation.bos_token_id.or(config.bos_token_id),
    };
    let eos_text = text_of(settings.eos_token);
    let mut end_ids = generation.eos_token_id.clone().or(config.eos_token_id).map_or_else(Vec::new, Ids::into_vec);
    end_ids.extend(eos_text.as_deref().and_then(|text| tokenizer.token_to_id(text)));
    let named = |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id)).unwrap_or_default();
    let special = SpecialTokens {
        eos: eos_text.unwrap_or_else(|| named(end_ids.first().copied())),
        bos: bos_text.unwrap_or_else(|| named(bos)),
        unk: text_of(settings.unk_token).unwrap_or_default(),
        pad: text_of(settings.pad_token).unwrap_or_default(),
    };
    Ok(Parts {
        file,
        tokenizer,
        vocab_size: config.vocab_size,
        template,
        bos,
        adds_bos: settings.add_bos_token,
        has_rule: true,
        special,
        end_ids,
        padding: Vec::new(),
        defaults: generation.sampling(),
        notes: generation.notes(),
    })
}

fn tokenizer(directory: &Path, file: &Path) -> Result<Tokenizer, LoadError> {
    let Some(text) = read_text(file)? else {
        let problem = if directory.join("tokenizer.model").exists() {
            format!(
                "there is only tokenizer.model: convert it with `python3 -c \"from transformers import AutoTokenizer; \
                 d = '{}'; AutoTokenizer.from_pretrained(d).save_pretrained(d)\"`",
                directory.display()
            )
        } else {
            "no such file: download the model's tokenizer.json beside its weights".to_owned()
        };
        return Err(LoadError::new("model", file, problem));
    };
    Tokenizer::from_bytes(text.as_bytes())
        .map_err(|error| LoadError::new("model", file, format!("not a tokenizer: {error}; {}", again(&text))))
}

/// A file's text. `None` where there is no such file.
fn read_text(file: &Path) -> Result<Option<String>, LoadError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LoadError::new("model", file, format!("cannot be read: {error}"))),
    }
}

fn json<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, LoadError> {
    let Some(text) = read_text(file)? else { return Ok(None) };
    let read = serde_json::from_str(&text);
    read.map(Some).map_err(|error| {
        LoadError::new("model", file, format!("not the JSON that it should be: {error}; {}", again(&text)))
    })
}

/// What to do about a file that is not what its name says.
fn again(text: &str) -> &'static str {
    if text.starts_with("version https://git-lfs") {
        "it is a Git LFS pointer: run `git lfs pull` in its directory"
    } else if text.trim_start().starts_with('<') {
        "it is a web page: ask for access to the model where it is gated, log in, and download it again"
    } else {
        "download it again"
    }
}

#[derive(Default, Deserialize)]
struct Config {
    vocab_size: Option<usize>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<Ids>,
}

/// `generation_config.json`, as far as the sampler goes.
#[derive(Default, Deserialize)]
struct Generation {
    bos_token_id: Option<u32>,
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<usize>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl Generation {
    fn sampling(&self) -> Sampling {
        let openai = Sampling::default();
        if self.do_sample == Some(false) {
            // What else it says of sampling is not meant for this.
            return Sampling { temperature: 0.0, ..openai };
        }
        Sampling {
            temperature: self.temperature.unwrap_or(openai.temperature),
            top_p: self.top_p.unwrap_or(openai.top_p),
            top_k: self.top_k.filter(|&most| most > 0),
            min_p: self.min_p.unwrap_or(openai.min_p),
            ..openai
        }
    }

    /// What it asks for and does not get.
    fn notes(&self) -> Vec<String> {
        #[expect(clippy::float_cmp, reason = "what means none is written as 1")]
        let penalty = self.repetition_penalty.filter(|&penalty| penalty != 1.0);
        let note =
            |penalty| format!("generation_config.json asks for repetition_penalty {penalty}, which is not applied");
        penalty.map(note).into_iter().collect()
    }
}

/// `tokenizer_config.json`
#[derive(Default, Deserialize)]
struct Settings {
    chat_template: Option<Templates>,
    add_bos_token: Option<bool>,
    bos_token: Option<Token>,
    eos_token: Option<Token>,
    unk_token: Option<Token>,
    pad_token: Option<Token>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl Templates {
    /// The one that is not for tools or documents.
    fn default(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Named(mut templates) => {
                let default = templates.iter().position(|named| named.name == "default").unwrap_or(0);
                (!templates.is_empty()).then(|| templates.swap_remove(default).template)
            }
        }
    }
}

/// A special token, written as its text or with how it is matched.
#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Added { content: String },
    Other(Value),
}

impl Token {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) | Self::Added { content: text } => text,
            Self::Other(other) => other.as_str().unwrap_or_default().to_owned(),
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}
