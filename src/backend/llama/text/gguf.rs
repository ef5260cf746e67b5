//! A GGUF file's tokenizer and chat template, from its metadata.

use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value};
use tokenizers::{AddedToken, Tokenizer};

use super::{Parts, Source, SpecialTokens};
use crate::backend::llama::LoadError;
use crate::backend::llama::call::Sampling;

mod bytelevel;
mod sentencepiece;

/// Kinds of token, as llama.cpp numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Control,
    /// Found in any text before the rest is tokenized.
    UserDefined,
    /// Fills the vocabulary up to the number of rows that the weights have.
    Unused,
    Byte,
}

/// One entry of the vocabulary; its place is its id.
struct Entry<'a> {
    text: &'a str,
    kind: Kind,
}

/// Reads what the metadata of `content` says of text.
pub(super) fn read(path: &Path, content: &Content) -> Result<Parts, LoadError> {
    let metadata = Metadata { path, content };
    let vocabulary = vocabulary(&metadata)?;
    let model = metadata.text("tokenizer.ggml.model").ok_or_else(|| metadata.missing("tokenizer.ggml.model"))?;
    let (mut tokenizer, adds_bos) = match model {
        "llama" => (sentencepiece::build(&metadata, &vocabulary)?, true),
        "gpt2" => bytelevel::build(&metadata, &vocabulary)?,
        other => {
            let problem = format!("its tokenizer is `{other}`; Llama models have `llama` or `gpt2`");
            return Err(metadata.error(problem));
        }
    };
    add(&mut tokenizer, &vocabulary)
        .map_err(|error| metadata.error(format!("its tokenizer cannot be built: {error}")))?;

    let id = |key: &str| metadata.number(key).and_then(|id| u32::try_from(id).ok());
    let text_of = |id: Option<u32>| {
        id.and_then(|id| vocabulary.get(id as usize)).map_or_else(String::new, |entry| entry.text.to_owned())
    };
    let (bos, eos) = (id("tokenizer.ggml.bos_token_id"), id("tokenizer.ggml.eos_token_id"));
    Ok(Parts {
        file: path.to_owned(),
        tokenizer,
        vocab_size: content.tensor_infos.get("token_embd.weight").map(|tensor| tensor.shape.dims()[0]),
        template: metadata
            .text("tokenizer.chat_template")
            .map(|text| Source { text: text.to_owned(), file: path.to_owned() }),
        bos,
        adds_bos: Some(metadata.switch("tokenizer.ggml.add_bos_token").unwrap_or(adds_bos)),
        has_rule: false,
        special: SpecialTokens {
            bos: text_of(bos),
            eos: text_of(eos),
            unk: text_of(id("tokenizer.ggml.unknown_token_id")),
            pad: text_of(id("tokenizer.ggml.padding_token_id")),
        },
        end_ids: eos.into_iter().chain(id("tokenizer.ggml.eot_token_id")).collect(),
        padding: (0..).zip(&vocabulary).filter(|(_, entry)| entry.kind == Kind::Unused).map(|(id, _)| id).collect(),
        defaults: Sampling::default(),
        notes: Vec::new(),
    })
}

fn vocabulary<'a>(metadata: &Metadata<'a>) -> Result<Vec<Entry<'a>>, LoadError> {
    let texts = metadata.texts("tokenizer.ggml.tokens")?;
    let kinds = metadata.array("tokenizer.ggml.token_type").unwrap_or_default();
    let entries = texts.into_iter().enumerate().map(|(id, text)| {
        let kind = match kinds.get(id).and_then(number) {
            // The unknown token is nothing that a text could ask for.
            Some(2 | 3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(6) => Kind::Byte,
            _ => Kind::Text,
        };
        Entry { text, kind }
    });
    Ok(entries.collect())
}

/// Tells `tokenizer` which tokens are found before the rest of a text is looked at.
fn add(tokenizer: &mut Tokenizer, vocabulary: &[Entry<'_>]) -> tokenizers::Result<()> {
    let of = |kind: Kind| vocabulary.iter().filter(move |entry| entry.kind == kind && !entry.text.is_empty());
    let control = of(Kind::Control).map(|entry| AddedToken::from(entry.text, true));
    let user_defined = of(Kind::UserDefined).map(|entry| AddedToken::from(entry.text, false).normalized(false));
    tokenizer.add_tokens(control.chain(user_defined))?;
    Ok(())
}

/// Metadata, read as what it should be.
struct Metadata<'a> {
    path: &'a Path,
    content: &'a Content,
}

impl<'a> Metadata<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        match self.content.metadata.get(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    fn number(&self, key: &str) -> Option<u64> {
        number(self.content.metadata.get(key)?)
    }

    fn switch(&self, key: &str) -> Option<bool> {
        self.content.metadata.get(key)?.to_bool().ok()
    }

    fn array(&self, key: &str) -> Option<&'a [Value]> {
        match self.content.metadata.get(key)? {
            Value::Array(values) => Some(values),
            _ => None,
        }
    }

    fn texts(&self, key: &str) -> Result<Vec<&'a str>, LoadError> {
        let values = self.array(key).ok_or_else(|| self.missing(key))?;
        let text = |value: &'a Value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        };
        let texts: Option<Vec<_>> = values.iter().map(text).collect();
        texts.ok_or_else(|| self.error(format!("`{key}` holds something other than strings: convert the model again")))
    }

    fn missing(&self, key: &str) -> LoadError {
        self.error(format!("its metadata lacks `{key}`: convert the model again, with its tokenizer"))
    }

    fn error(&self, problem: impl Into<String>) -> LoadError {
        LoadError::new("model", self.path, problem)
    }
}

/// Any whole number that is not negative.
fn number(value: &Value) -> Option<u64> {
    match *value {
        Value::U8(number) => Some(number.into()),
        Value::U16(number) => Some(number.into()),
        Value::U32(number) => Some(number.into()),
        Value::U64(number) => Some(number),
        Value::I8(number) => number.try_into().ok(),
        Value::I16(number) => number.try_into().ok(),
        Value::I32(number) => number.try_into().ok(),
        Value::I64(number) => number.try_into().ok(),
        _ => None,
    }
}
