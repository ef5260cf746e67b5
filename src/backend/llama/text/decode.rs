//! One sequence's output, token by token.
//!
//! Invariant: what comes out of [`Decoder::push`] and [`Decoder::finish`] together is what decoding all tokens at once
//! gives, and nothing but an incomplete character is ever held back.

use std::sync::Arc;

use super::pieces::{Leading, Mended};
use super::{Text, Words};

/// One sequence's output, token by token. A clone goes on from the same place.
#[derive(Clone)]
pub(in crate::backend::llama) struct Decoder {
    text: Arc<Text>,
    /// The bytes of an incomplete character.
    pending: Vec<u8>,
    leading: Leading,
}

impl Decoder {
    pub(super) fn new(text: Arc<Text>) -> Self {
        let leading = match &text.words {
            Words::Model(model) => model.pieces.leading,
            Words::Numbers { .. } => Leading::Kept,
        };
        Self { text, pending: Vec::new(), leading }
    }

    /// The text that `token` completes; empty while a character is incomplete. Nothing more than that is held back.
    /// Control tokens have none.
    pub(in crate::backend::llama) fn push(&mut self, token: u32) -> String {
        let (pieces, bytes) = match &self.text.words {
            Words::Model(model) => (&model.pieces, model.pieces.output(token)),
            Words::Numbers { .. } => return self.text.piece(token).text,
        };
        let Some(bytes) = bytes else { return String::new() };
        if self.leading == Leading::FirstToken {
            self.leading = Leading::Kept;
            self.pending.extend(bytes.iter().filter(|&&byte| byte != b' '));
        } else {
            self.pending.extend_from_slice(bytes);
        }
        let text = take(&mut self.pending, pieces.mended);
        self.strip(text)
    }

    /// What was held back, at the end: an incomplete character becomes U+FFFD.
    pub(in crate::backend::llama) fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        match &self.text.words {
            Words::Model(model) if !rest.is_empty() => model.pieces.mended.mend(rest.len()),
            _ => String::new(),
        }
    }

    /// Drops what a tokenizer puts in front of the first word.
    fn strip(&mut self, mut text: String) -> String {
        if let Leading::Stripped { character, most } = self.leading
            && !text.is_empty()
        {
            let extra: usize =
                text.chars().take(most).take_while(|&found| found == character).map(char::len_utf8).sum();
            let (stripped, whole) = (extra / character.len_utf8(), extra == text.len());
            text.drain(..extra);
            let left = most - stripped;
            self.leading = if whole && left > 0 { Leading::Stripped { character, most: left } } else { Leading::Kept };
        }
        text
    }
}

/// Takes whole characters from the front; leaves one that is not whole yet. What can never become a character is mended.
fn take(pending: &mut Vec<u8>, mended: Mended) -> String {
    let mut text = String::new();
    loop {
        let error = match std::str::from_utf8(pending) {
            Ok(whole) => {
                text.push_str(whole);
                pending.clear();
                return text;
            }
            Err(error) => error,
        };
        let (whole, bad) = (error.valid_up_to(), error.error_len());
        text.push_str(&String::from_utf8_lossy(&pending[..whole]));
        if let Some(bad) = bad {
            text.push_str(&mended.mend(bad));
        }
        pending.drain(..whole + bad.unwrap_or(0));
        if bad.is_none() {
            return text;
        }
    }
}
