//! Token → bytes, as a tokenizer's own decoder has it, worked out once.

use serde::Deserialize;
use tokenizers::Tokenizer;

/// Every token's bytes.
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<usize>,
    /// Control tokens: they have a text, but none that is output.
    control: Vec<bool>,
    /// Ids that the tokenizer leaves out; sorted.
    gaps: Vec<u32>,
    pub(super) leading: Leading,
    pub(super) mended: Mended,
}

/// What happens to the space in front of the first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leading {
    /// Nothing.
    Kept,
    /// At most so many of one character are dropped.
    Stripped { character: char, most: usize },
    /// The first token loses all its spaces (`Metaspace`).
    FirstToken,
}

/// How bytes that are no text are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mended {
    /// One U+FFFD for each byte, as SentencePiece does. (Hugging Face's `ByteFallback` also sacrifices whole characters
    /// that such bytes follow, which nobody can do who has told them already.)
    EachByte,
    /// One U+FFFD for each longest beginning of a character, as [`String::from_utf8_lossy`] does.
    EachBeginning,
}

impl Mended {
    /// Stands for `bytes` bytes, the beginning of a character that never came.
    pub(super) fn mend(self, bytes: usize) -> String {
        "\u{FFFD}".repeat(if self == Self::EachByte { bytes } else { 1 })
    }
}

impl Pieces {
    /// Works out the bytes of every token of `tokenizer`. The error says what its decoder has that is not known here.
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Self, String> {
        let decoder = tokenizer.get_decoder().ok_or("it has no decoder, so its tokens cannot be turned into text")?;
        let decoder = serde_json::to_value(decoder).map_err(|error| error.to_string())?;
        let decoder: Step = serde_json::from_value(decoder)
            .map_err(|error| format!("its decoder is not one that Llama models have: {error}"))?;
        let mut steps = Vec::new();
        decoder.flatten(&mut steps);

        let mut leading = Leading::Kept;
        let mut mended = Mended::EachByte;
        for step in &steps {
            match *step {
                Step::Strip { content, start, stop: 0 } => {
                    leading = Leading::Stripped { character: content, most: start };
                }
                Step::Strip { .. } => {
                    return Err("its decoder strips the end of the text, which is not known yet".into());
                }
                Step::Metaspace { prepend_scheme: Scheme::Always | Scheme::First, .. } => leading = Leading::FirstToken,
                Step::ByteLevel => mended = Mended::EachBeginning,
                _ => {}
            }
        }

        let vocabulary = tokenizer.get_vocab(true);
        let most = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        let added = tokenizer.get_added_tokens_decoder();
        let ends = Vec::with_capacity(most);
        let mut pieces =
            Self { bytes: Vec::new(), ends, control: vec![false; most], gaps: Vec::new(), leading, mended };
        for id in 0..most {
            #[expect(clippy::cast_possible_truncation, reason = "token ids are u32")]
            let id = id as u32;
            if let Some(token) = tokenizer.id_to_token(id) {
                pieces.control[id as usize] = added.get(&id).is_some_and(|token| token.special);
                pieces.bytes.extend(steps.iter().fold(Form::Text(token), |token, step| step.apply(token)).bytes());
            } else {
                pieces.gaps.push(id);
            }
            pieces.ends.push(pieces.bytes.len());
        }
        Ok(pieces)
    }

    /// What a token adds to the output. `None` for control tokens and ids that are no token.
    pub(super) fn output(&self, token: u32) -> Option<&[u8]> {
        let is_output = self.control.get(token as usize).is_some_and(|control| !control);
        is_output.then(|| self.bytes(token))
    }

    /// A token's own bytes; empty for ids that are no token.
    pub(super) fn bytes(&self, token: u32) -> &[u8] {
        let token = token as usize;
        let start = token.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        match (start, self.ends.get(token)) {
            (Some(start), Some(&end)) => &self.bytes[start..end],
            _ => &[],
        }
    }

    /// Whether the tokenizer has such a token.
    pub(super) fn is_token(&self, token: u32) -> bool {
        (token as usize) < self.len() && self.gaps.binary_search(&token).is_err()
    }

    /// The most bytes of any token.
    pub(super) fn longest(&self) -> usize {
        let starts = std::iter::once(&0).chain(&self.ends);
        self.ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or(0)
    }

    /// One more than the highest id.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// A step of a decoder, as `tokenizer.json` writes it.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Step {
    Sequence { decoders: Vec<Step> },
    Replace { pattern: Pattern, content: String },
    ByteFallback,
    Fuse,
    Strip { content: char, start: usize, stop: usize },
    ByteLevel,
    Metaspace { replacement: char, prepend_scheme: Scheme },
}

#[derive(Deserialize)]
enum Pattern {
    String(String),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scheme {
    Always,
    First,
    Never,
}

/// A token on its way through the steps.
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl Form {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Step {
    fn flatten(self, steps: &mut Vec<Self>) {
        match self {
            Self::Sequence { decoders } => decoders.into_iter().for_each(|step| step.flatten(steps)),
            step => steps.push(step),
        }
    }

    fn apply(&self, token: Form) -> Form {
        let Form::Text(token) = token else { return token };
        match self {
            Self::Replace { pattern: Pattern::String(pattern), content } => Form::Text(token.replace(pattern, content)),
            Self::ByteFallback => match byte_token(&token) {
                Some(byte) => Form::Bytes(vec![byte]),
                None => Form::Text(token),
            },
            Self::ByteLevel => match token.chars().map(byte_of).collect() {
                Some(bytes) => Form::Bytes(bytes),
                None => Form::Text(token),
            },
            Self::Metaspace { replacement, .. } => Form::Text(token.replace(*replacement, " ")),
            Self::Sequence { .. } | Self::Fuse | Self::Strip { .. } => Form::Text(token),
        }
    }
}

/// `<0x0A>` → 10.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte that byte-level BPE writes as `character` (GPT-2's table: printable Latin-1 stands for itself, the others are
/// numbered from U+0100 on).
fn byte_of(character: char) -> Option<u8> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match u32::from(character) {
        code @ 0..=0xFF => u8::try_from(code).ok().filter(|&byte| printable(byte)),
        code => (0..=255).filter(|&byte| !printable(byte)).nth(code as usize - 0x100),
    }
}
