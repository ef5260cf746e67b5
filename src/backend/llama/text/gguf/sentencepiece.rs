//! SentencePiece BPE, Llama 2's kind, as Hugging Face's converter writes it.
//!
//! A SentencePiece vocabulary holds scores where BPE has merges: of all neighbours that together are a piece, those are
//! joined first whose piece scores highest.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::{DecoderWrapper, NormalizerWrapper, Tokenizer};

use super::{Entry, Kind, Metadata};
use crate::backend::llama::LoadError;

/// What SentencePiece writes for a space.
const SPACE: &str = "▁";

/// Builds the tokenizer of `vocabulary`.
pub(super) fn build(metadata: &Metadata<'_>, vocabulary: &[Entry<'_>]) -> Result<Tokenizer, LoadError> {
    let key = "tokenizer.ggml.scores";
    let scores = metadata.array(key).ok_or_else(|| metadata.missing(key))?;
    if scores.len() != vocabulary.len() {
        let problem =
            format!("it has {} tokens but {} scores: convert the model again", vocabulary.len(), scores.len());
        return Err(metadata.error(problem));
    }
    let scores: Vec<f32> = scores.iter().map(score).collect();
    let unknown = vocabulary
        .get(usize::try_from(metadata.number("tokenizer.ggml.unknown_token_id").unwrap_or(0)).unwrap_or(usize::MAX))
        .map(|entry| entry.text);
    let prefix_space = metadata.switch("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    assemble(vocabulary, &scores, unknown, prefix_space)
        .map_err(|error| metadata.error(format!("its tokenizer cannot be built: {error}")))
}

fn assemble(
    vocabulary: &[Entry<'_>],
    scores: &[f32],
    unknown: Option<&str>,
    prefix_space: bool,
) -> tokenizers::Result<Tokenizer> {
    let ids: Vocab = (0..).zip(vocabulary).map(|(id, entry)| (entry.text.to_owned(), id)).collect();
    let has_bytes = vocabulary.iter().any(|entry| entry.kind == Kind::Byte);
    let mut bpe =
        BPE::builder().vocab_and_merges(ids, merges(vocabulary, scores)).fuse_unk(true).byte_fallback(has_bytes);
    if let Some(unknown) = unknown {
        bpe = bpe.unk_token(unknown.to_owned());
    }
    let mut tokenizer = Tokenizer::new(bpe.build()?);

    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    let mut decoders: Vec<DecoderWrapper> =
        vec![Replace::new(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if prefix_space {
        normalizers.push(Prepend::new(SPACE.to_owned()).into());
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    normalizers.push(Replace::new(" ", SPACE)?.into());
    tokenizer.with_normalizer(Some(Normalizers::new(normalizers)))?;
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok(tokenizer)
}

/// Every way of joining two pieces into one, the best piece first; control and byte tokens are never joined from text.
fn merges(vocabulary: &[Entry<'_>], scores: &[f32]) -> Vec<(String, String)> {
    let pieces: HashMap<&str, usize> = vocabulary
        .iter()
        .enumerate()
        .filter(|(_, entry)| matches!(entry.kind, Kind::Text | Kind::UserDefined))
        .map(|(id, entry)| (entry.text, id))
        .collect();
    let mut merges = Vec::new();
    for (&piece, &id) in &pieces {
        let len = piece.chars().count();
        for (left_len, (at, _)) in piece.char_indices().enumerate().skip(1) {
            let (left, right) = piece.split_at(at);
            if pieces.contains_key(left) && pieces.contains_key(right) {
                merges.push((scores[id], left_len, len - left_len, id, (left, right)));
            }
        }
    }
    // Of equal scores the longer left half first, which comes to what SentencePiece does: the leftmost first. (Runs of
    // spaces all score the same.) The id makes the order the same every time.
    merges.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)).then(a.3.cmp(&b.3)));
    merges.into_iter().map(|(.., (left, right))| (left.to_owned(), right.to_owned())).collect()
}

fn score(value: &Value) -> f32 {
    value.to_f32().unwrap_or(f32::NEG_INFINITY)
}
