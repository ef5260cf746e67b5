//! Text → tokens.
//!
//! Invariant: a control token comes from the chat template, never from what somebody wrote into a message.

use std::collections::HashSet;
use std::sync::OnceLock;

use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer};

/// A noncharacter (Unicode: "for internal use") that breaks a control token's text up while a template is rendered.
const MARK: char = '\u{FDD0}';

/// A tokenizer that tells control tokens from their texts.
pub(super) struct Vocabulary {
    pub(super) tokenizer: Tokenizer,
    control: Vec<(AddedToken, u32)>,
    texts: HashSet<String>,
    /// Lengths of the control tokens' texts, longest first.
    lengths: Vec<usize>,
    /// The first bytes of the control tokens' texts.
    starts: Box<[bool; 256]>,
    /// Takes control tokens' texts as text. Made when somebody first writes one into a message.
    plain: OnceLock<Result<Plain, String>>,
}

struct Plain {
    /// For text at the beginning.
    first: Tokenizer,
    /// For text after a control token.
    later: Tokenizer,
}

impl Vocabulary {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        let control: Vec<_> = tokenizer
            .get_added_tokens_decoder()
            .into_iter()
            .filter(|(_, token)| is_control(token) && !token.content.is_empty())
            .map(|(id, token)| (token, id))
            .collect();
        let texts: HashSet<_> = control.iter().map(|(token, _)| token.content.clone()).collect();
        let mut lengths: Vec<_> = texts.iter().map(String::len).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        let mut starts = Box::new([false; 256]);
        for text in &texts {
            starts[usize::from(text.as_bytes()[0])] = true;
        }
        Self { tokenizer, control, texts, lengths, starts, plain: OnceLock::new() }
    }

    /// `text` of a message, its control tokens marked as text.
    pub(super) fn guard(&self, text: &str) -> String {
        let text = text.replace(MARK, "");
        let mut guarded = String::with_capacity(text.len());
        let mut told = 0;
        while let Some((start, found)) = self.find(&text, told) {
            // Marked behind every character, for a token's text may hold that of another.
            guarded.push_str(&text[told..start]);
            for character in found.chars() {
                guarded.extend([character, MARK]);
            }
            told = start + found.len();
        }
        guarded.push_str(&text[told..]);
        guarded
    }

    /// `text` without the marks.
    pub(super) fn unguard(text: &str) -> String {
        text.replace(MARK, "")
    }

    /// The tokens of `text`, whose guarded parts are text whatever they say.
    pub(super) fn encode(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        if !text.contains(MARK) {
            return Ok(self.tokenizer.encode_fast(text, false)?.get_ids().to_vec());
        }
        let plain = self.plain.get_or_init(|| Plain::new(&self.tokenizer, &self.control));
        let plain = plain.as_ref().map_err(String::as_str)?;
        let mut ids = Vec::new();
        let mut told = 0;
        let add = |part: &str, at: usize, ids: &mut Vec<u32>| -> tokenizers::Result<()> {
            let tokenizer = if at == 0 { &plain.first } else { &plain.later };
            let part = part.replace(MARK, "");
            if !part.is_empty() {
                ids.extend_from_slice(tokenizer.encode_fast(part, false)?.get_ids());
            }
            Ok(())
        };
        while let Some((start, found)) = self.find(text, told) {
            let end = start + found.len();
            let Some((token, id)) = self.control.iter().find(|(token, _)| token.content == found) else { break };
            let before = &text[told..start];
            add(if token.lstrip { before.trim_end() } else { before }, told, &mut ids)?;
            ids.push(*id);
            told = if token.rstrip { text.len() - text[end..].trim_start().len() } else { end };
        }
        add(&text[told..], told, &mut ids)?;
        Ok(ids)
    }

    /// The tokens that the tokenizer itself puts before any text.
    pub(super) fn prefix(&self) -> Vec<u32> {
        self.tokenizer.encode_fast("", true).map(|encoding| encoding.get_ids().to_vec()).unwrap_or_default()
    }

    /// The first control token's text in `text` from `from` on, the longest where several begin.
    fn find<'a>(&self, text: &'a str, from: usize) -> Option<(usize, &'a str)> {
        let bytes = text.as_bytes();
        (from..bytes.len()).filter(|&at| self.starts[usize::from(bytes[at])]).find_map(|at| {
            let mut candidates = self.lengths.iter().filter_map(|&len| text.get(at..at + len));
            candidates.find(|&candidate| self.texts.contains(candidate)).map(|found| (at, found))
        })
    }
}

impl Plain {
    fn new(tokenizer: &Tokenizer, control: &[(AddedToken, u32)]) -> Result<Self, String> {
        let mut first = tokenizer.clone();
        first.set_encode_special_tokens(true);
        let control = control.iter().map(|(token, _)| token.clone().special(true));
        first.add_special_tokens(control).map_err(|error| error.to_string())?;
        let mut later = first.clone();
        if let Some(mut pre_tokenizer) = later.get_pre_tokenizer().cloned() {
            only_once(&mut pre_tokenizer);
            later.with_pre_tokenizer(Some(pre_tokenizer));
        }
        Ok(Self { first, later })
    }
}

/// Whether a token steers the model. Fine-tunes often forget to call theirs special.
pub(super) fn is_control(token: &AddedToken) -> bool {
    let looks = [("<|", "|>"), ("<｜", "｜>")];
    token.special || looks.iter().any(|(start, end)| token.content.starts_with(start) && token.content.ends_with(end))
}

/// Drops what a pre-tokenizer does at the beginning of the whole text only.
fn only_once(pre_tokenizer: &mut PreTokenizerWrapper) {
    match pre_tokenizer {
        PreTokenizerWrapper::Metaspace(metaspace) if metaspace.get_prepend_scheme() == PrependScheme::First => {
            metaspace.set_prepend_scheme(PrependScheme::Never);
        }
        PreTokenizerWrapper::Sequence(sequence) => sequence.as_mut().iter_mut().for_each(only_once),
        _ => {}
    }
}
