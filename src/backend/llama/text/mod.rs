//! Text ↔ tokens: the tokenizer, the chat template, and output text as it grows.

use std::path::PathBuf;
use std::sync::Arc;

use tokenizers::Tokenizer;

use super::call::{BadCall, Message, Sampling};
use super::error::LoadError;
use super::model::ModelFiles;

mod date;
mod decode;
mod directory;
mod gguf;
mod pieces;
mod stop;
mod template;
mod vocabulary;

pub(super) use decode::Decoder;
pub(super) use stop::StopMatcher;

use pieces::Pieces;
use template::{SpecialTokens, Template};
use vocabulary::{Vocabulary, is_control};

/// What turns a model's text into tokens and back.
pub(super) struct Text {
    words: Words,
    end_ids: Vec<u32>,
    defaults: Sampling,
    notes: Vec<String>,
}

enum Words {
    Model(Box<Model>),
    /// A token is its number.
    Numbers {
        vocab_size: usize,
    },
}

struct Model {
    vocabulary: Vocabulary,
    pieces: Pieces,
    template: Template,
    /// The token that must open a conversation.
    bos: Option<u32>,
    /// The token that is put before raw text. `None` where the tokenizer itself does what is to be done.
    raw_bos: Option<u32>,
    /// Tokens that only fill the vocabulary up; sorted.
    padding: Vec<u32>,
}

/// One token's own text, for `logprobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// As text; U+FFFD where it is no whole character.
    pub(super) text: String,
    /// As bytes.
    pub(super) bytes: Vec<u8>,
}

/// What a model's files say of its text.
struct Parts {
    /// Where the tokenizer is from, for errors.
    file: PathBuf,
    tokenizer: Tokenizer,
    /// How many tokens the weights know; `None` where the files do not say.
    vocab_size: Option<usize>,
    template: Option<Source>,
    bos: Option<u32>,
    /// Whether a prompt opens with `bos` where the template writes none. `None` leaves it to the tokenizer.
    adds_bos: Option<bool>,
    /// Whether the tokenizer itself knows what to put around a text.
    has_rule: bool,
    special: SpecialTokens,
    end_ids: Vec<u32>,
    /// Tokens that only fill the vocabulary up; sorted.
    padding: Vec<u32>,
    defaults: Sampling,
    /// What the files ask for and do not get.
    notes: Vec<String>,
}

/// A chat template's text.
struct Source {
    text: String,
    file: PathBuf,
}

/// Control tokens that end an answer, whatever else the files say.
const END_TOKENS: [&str; 3] = ["<|im_end|>", "<|eot_id|>", "<|end_of_text|>"];

impl Text {
    /// Reads tokenizer, chat template, end tokens and sampling defaults.
    pub(super) fn load(files: &ModelFiles) -> Result<Self, LoadError> {
        let parts = match files {
            ModelFiles::Directory(directory) => directory::read(directory)?,
            ModelFiles::Gguf { path, content } => gguf::read(path, content)?,
        };
        Self::new(parts)
    }

    fn new(parts: Parts) -> Result<Self, LoadError> {
        let Parts { file, mut tokenizer, vocab_size, template, bos, adds_bos, has_rule, special, .. } = parts;
        let Parts { mut end_ids, padding, defaults, notes, .. } = parts;
        // What a tokenizer was trained with must not shorten or pad prompts.
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|error| LoadError::new("model", &file, format!("the tokenizer cannot be used: {error}")))?;
        let pieces = Pieces::new(&tokenizer)
            .map_err(|problem| LoadError::new("model", &file, format!("the tokenizer cannot be used: {problem}")))?;
        if let Some(vocab_size) = vocab_size.filter(|&size| size < pieces.len()) {
            let problem = format!(
                "the tokenizer has token {}, but the model's vocabulary ends at {}: fetch the tokenizer that belongs \
                 to these weights",
                pieces.len() - 1,
                vocab_size.saturating_sub(1)
            );
            return Err(LoadError::new("model", file, problem));
        }
        // Found now rather than by the first prompt, which opens with it.
        let known = pieces.len().max(vocab_size.unwrap_or(0));
        if let Some(id) = bos.filter(|&id| id as usize >= known) {
            let problem = format!(
                "BOS is token {id}, and the vocabulary ends at {}: the file is damaged, or of another model",
                known.saturating_sub(1)
            );
            return Err(LoadError::new("model", file, problem));
        }
        let (source, template_file) = match template {
            Some(Source { text, file }) => (Some(text), file),
            None => (None, file),
        };
        let template = Template::new(source.as_deref(), special).map_err(|problem| {
            LoadError::new("model", template_file, format!("the chat template does not compile: {problem}"))
        })?;
        for (id, token) in tokenizer.get_added_tokens_decoder() {
            if is_control(&token) && END_TOKENS.contains(&token.content.as_str()) {
                end_ids.push(id);
            }
        }
        end_ids.sort_unstable();
        end_ids.dedup();
        let vocabulary = Vocabulary::new(tokenizer);
        let bos = bos.filter(|&bos| adds_bos.unwrap_or_else(|| vocabulary.prefix().first() == Some(&bos)));
        let raw_bos = bos.filter(|_| !has_rule);
        let model = Model { vocabulary, pieces, template, bos, raw_bos, padding };
        Ok(Self { words: Words::Model(Box::new(model)), end_ids, defaults, notes })
    }

    /// For random weights without a tokenizer: a token is a byte of the prompt, and its number as output.
    pub(super) fn stand_in(vocab_size: usize) -> Self {
        let words = Words::Numbers { vocab_size };
        Self { words, end_ids: Vec::new(), defaults: Sampling::default(), notes: Vec::new() }
    }

    /// The prompt for `messages`: rendered by the chat template, tokenized, BOS exactly once where the model wants one.
    pub(super) fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, BadCall> {
        let model = match &self.words {
            Words::Model(model) => model,
            Words::Numbers { vocab_size } => {
                let lines = messages.iter().flat_map(|message| message.content.bytes().chain([b'\n']));
                return Ok(numbers(lines, *vocab_size));
            }
        };
        let guarded: Vec<_> = messages
            .iter()
            .map(|Message { role, content }| Message {
                role: model.vocabulary.guard(role),
                content: model.vocabulary.guard(content),
            })
            .collect();
        let refuse = |message: String| BadCall { param: Some("messages".to_owned()), message };
        let prompt = model
            .template
            .render(&guarded)
            .map_err(|bad| BadCall { message: Vocabulary::unguard(&bad.message), ..bad })?;
        let mut tokens = model
            .vocabulary
            .encode(&prompt)
            .map_err(|error| refuse(format!("the messages cannot be turned into tokens: {error}")))?;
        if let Some(bos) = model.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        if tokens.is_empty() {
            return Err(refuse("the messages come to no token at all: say something".to_owned()));
        }
        Ok(tokens)
    }

    /// The tokens of `text` as it is, with what the tokenizer puts around a text: BOS, as a rule. Control tokens written
    /// in it are control tokens: this is how they are given. It is what `tokenizer(text)` is in transformers.
    ///
    /// The error follows the name of the field that `text` stands in.
    pub(super) fn raw(&self, text: &str) -> Result<Vec<u32>, String> {
        let tokens = match &self.words {
            Words::Model(model) => {
                let encoding = model.vocabulary.tokenizer.encode_fast(text, true);
                let encoding = encoding.map_err(|error| format!("cannot be turned into tokens: {error}"))?;
                model.raw_bos.iter().chain(encoding.get_ids()).copied().collect()
            }
            Words::Numbers { vocab_size } => numbers(text.bytes(), *vocab_size),
        };
        if tokens.is_empty() {
            return Err("comes to no token at all: say something".to_owned());
        }
        Ok(tokens)
    }

    /// The tokens with which the model ends its output.
    pub(super) fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// How the model's makers sample from it (`generation_config.json`); OpenAI's defaults for what they leave out.
    pub(super) fn defaults(&self) -> &Sampling {
        &self.defaults
    }

    /// What the model's files ask for and do not get, for whoever loads it.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Which of the first `vocab_size` ids are no token at all, sorted: weights often have more rows than the tokenizer
    /// has tokens, and what they make of the rest must not be sampled. Tokens that end the output are never among them.
    pub(super) fn unsayable(&self, vocab_size: usize) -> Vec<u32> {
        let Words::Model(model) = &self.words else { return Vec::new() };
        let ids = 0..u32::try_from(vocab_size).unwrap_or(u32::MAX);
        let none = |id: &u32| !model.pieces.is_token(*id) || model.padding.binary_search(id).is_ok();
        ids.filter(none).filter(|id| !self.end_ids.contains(id)).collect()
    }

    /// The most bytes of text that one token stands for.
    pub(super) fn longest_piece(&self) -> usize {
        match &self.words {
            Words::Model(model) => model.pieces.longest(),
            Words::Numbers { .. } => 1,
        }
    }

    /// One token's own text.
    pub(super) fn piece(&self, token: u32) -> Piece {
        let bytes = match &self.words {
            Words::Model(model) => model.pieces.bytes(token).to_vec(),
            Words::Numbers { .. } => number(token).into_bytes(),
        };
        Piece { text: String::from_utf8_lossy(&bytes).into_owned(), bytes }
    }

    /// Turns one sequence's tokens into text as they come.
    pub(super) fn decoder(self: &Arc<Self>) -> Decoder {
        Decoder::new(Arc::clone(self))
    }
}

/// Each byte as a token; the first three tokens are left out, as control tokens usually are there.
fn numbers(bytes: impl Iterator<Item = u8>, vocab_size: usize) -> Vec<u32> {
    let token = |byte: u8| u32::try_from((3 + usize::from(byte)) % vocab_size.max(1)).unwrap_or_default();
    bytes.map(token).collect()
}

/// A token's number in base 36, behind a space.
fn number(token: u32) -> String {
    let mut digits = Vec::new();
    let mut rest = token;
    loop {
        digits.push(char::from_digit(rest % 36, 36).unwrap_or_default());
        rest /= 36;
        if rest == 0 {
            break;
        }
    }
    std::iter::once(' ').chain(digits.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests;
