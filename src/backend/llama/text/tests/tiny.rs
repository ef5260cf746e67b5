//! Tokenizers small enough to see through.

use std::fs;

use candle_core::quantized::gguf_file::{Content, Value, VersionedMagic};
use serde_json::json;
use tempfile::TempDir;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::super::{ModelFiles, Text};
use super::model;

const NORMAL: u32 = 1;
const UNKNOWN: u32 = 2;
pub(super) const CONTROL: u32 = 3;
pub(super) const USER_DEFINED: u32 = 4;
pub(super) const UNUSED: u32 = 5;
const BYTE: u32 = 6;

/// A GGUF file with nothing but `metadata`.
pub(super) fn gguf(metadata: Vec<(&str, Value)>) -> ModelFiles {
    let metadata = metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let content = Content {
        magic: VersionedMagic::GgufV3,
        metadata,
        tensor_infos: std::collections::HashMap::new(),
        tensor_data_offset: 0,
    };
    ModelFiles::Gguf { path: "tiny.gguf".into(), content: Box::new(content) }
}

pub(super) fn strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    Value::Array(texts.into_iter().map(|text| Value::String(text.to_owned())).collect())
}

/// Llama 2's kind. Ids: `<unk>` 0, `<s>` 1, `</s>` 2, bytes from 3 on, pieces from 259 on: first [`PIECES`], then `extra`
/// with their kinds.
pub(super) fn sentencepiece(extra: &[(&str, u32)], more: Vec<(&'static str, Value)>) -> ModelFiles {
    let mut tokens =
        vec![("<unk>".to_owned(), 0.0, UNKNOWN), ("<s>".into(), 0.0, CONTROL), ("</s>".into(), 0.0, CONTROL)];
    tokens.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0, BYTE)));
    tokens.extend((0_u8..).zip(PIECES).map(|(at, piece)| (piece.to_owned(), -f32::from(at), NORMAL)));
    tokens.extend(extra.iter().map(|&(token, kind)| (token.to_owned(), 0.0, kind)));
    let mut metadata = vec![
        ("tokenizer.ggml.model", Value::String("llama".into())),
        ("tokenizer.ggml.tokens", strings(tokens.iter().map(|token| token.0.as_str()))),
        ("tokenizer.ggml.scores", Value::Array(tokens.iter().map(|token| Value::F32(token.1)).collect())),
        ("tokenizer.ggml.token_type", Value::Array(tokens.iter().map(|token| Value::U32(token.2)).collect())),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
    ];
    metadata.extend(more);
    gguf(metadata)
}

pub(super) const PIECES: [&str; 17] =
    ["ll", "He", "llo", "▁Hello", "Hello", "▁▁", "<s", "s>", "▁", "H", "e", "l", "o", "s", "<", ">", "é"];

/// The id of one of [`PIECES`].
pub(super) fn piece(text: &str) -> u32 {
    259 + u32::try_from(PIECES.iter().position(|&piece| piece == text).expect("a piece")).unwrap()
}

/// Byte-level BPE's kind. Ids: 256 byte characters, `Hi`, `Ġa`, `<|endoftext|>` 258, `<|im_start|>` 259, `<|im_end|>` 260.
pub(super) fn bytelevel(more: Vec<(&'static str, Value)>) -> ModelFiles {
    let mut bytes: Vec<_> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    bytes.sort_unstable();
    let rest = ["Hi", "Ġa", "<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    let tokens: Vec<&str> = bytes.iter().map(String::as_str).chain(rest).collect();
    let kinds = (0..tokens.len()).map(|id| Value::I32(if id < 258 { 1 } else { 3 }));
    let mut metadata = vec![
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("smollm".into())),
        ("tokenizer.ggml.token_type", Value::Array(kinds.collect())),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.merges", strings(["H i", "Ġ a"])),
        ("tokenizer.ggml.bos_token_id", Value::U32(259)),
        ("tokenizer.ggml.eos_token_id", Value::U32(258)),
    ];
    // What is said twice replaces what is above.
    metadata.extend(more);
    gguf(metadata)
}

pub(super) fn load(files: &ModelFiles) -> Text {
    Text::load(files).unwrap_or_else(|error| panic!("{error}"))
}

/// A Hugging Face directory with Llama 2's kind of tokenizer, and `files` beside it.
pub(super) fn directory(files: &[(&str, &str)]) -> (TempDir, ModelFiles) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = load(&sentencepiece(&[("<|eot_id|>", CONTROL)], Vec::new()));
    let tokenizer = model(&text).vocabulary.tokenizer.to_string(false).expect("a tokenizer can be written");
    let config = json!({ "vocab_size": 300, "eos_token_id": 2, "bos_token_id": 1 }).to_string();
    fs::write(directory.path().join("tokenizer.json"), tokenizer).unwrap();
    fs::write(directory.path().join("config.json"), config).unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let files = ModelFiles::Directory(directory.path().to_owned());
    (directory, files)
}
