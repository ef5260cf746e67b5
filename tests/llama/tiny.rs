//! The tiny models of `fixtures`, with a tokenizer beside them.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const MODELS: [&str; 5] = ["gqa_tied", "mha", "nested_theta", "rope_linear", "rope_llama3"];

/// What opens a prompt, and what ends an answer.
pub(crate) const BOS: u32 = 1;
pub(crate) const EOS: u32 = 2;

/// A model's folder as one would download it: its weights, and byte-level BPE with a token for each of [`bytes`] and BOS
/// before every text.
pub(crate) fn model(name: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama/fixtures").join(name);
    for file in std::fs::read_dir(&fixture).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
    folder
}

/// Changes the tokenizer of that folder.
pub(crate) fn change(folder: &TempDir, change: impl FnOnce(&mut Value)) {
    let file = folder.path().join("tokenizer.json");
    let mut tokenizer = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    change(&mut tokenizer);
    std::fs::write(file, tokenizer.to_string()).unwrap();
}

/// A backend of that folder, for the model of its name.
pub(crate) fn backend(name: &str, folder: &TempDir, more: &str) -> String {
    format!(
        "[backend.{name}]\nkind = \"llama\"\nmodel = \"{}\"\ndevice = \"cpu\"\ndtype = \"f32\"\nmax_sequences = 4\n{more}\n\
         [[route]]\nmodel = \"{name}\"\nbackend = \"{name}\"\n",
        folder.path().display()
    )
}

/// The byte of each token but BOS and EOS, with its id: printable ASCII, a line end, and parts of longer characters.
fn bytes() -> impl Iterator<Item = (u32, u8)> {
    let bytes = (b' '..=b'~').chain([b'\n', 0xC2, 0xC3, 0xE2]).chain(0x80..=0x9A);
    std::iter::once(0).chain(3..128).zip(bytes)
}

/// The token of `byte`.
pub(crate) fn token(byte: u8) -> u32 {
    bytes().find(|(_, known)| *known == byte).expect("a token").0
}

/// The tokens of `text`, without BOS.
pub(crate) fn tokens(text: &str) -> Vec<u32> {
    text.bytes().map(token).collect()
}

/// How `logprobs` of a completion name a token.
pub(crate) fn name(token: u32) -> String {
    match token {
        BOS => "<s>".to_owned(),
        EOS => "</s>".to_owned(),
        token => {
            let byte = bytes().find(|(known, _)| *known == token).expect("a token").1;
            if byte.is_ascii() { char::from(byte).to_string() } else { format!("bytes:\\x{byte:02x}") }
        }
    }
}

fn tokenizer() -> Value {
    let vocabulary = bytes().map(|(id, byte)| (character(byte).to_string(), json!(id)));
    let special = [(BOS, "<s>"), (EOS, "</s>")];
    let added = special.map(|(id, content)| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false})
    });
    let vocabulary: serde_json::Map<_, _> =
        vocabulary.chain(special.map(|(id, content)| (content.to_owned(), json!(id)))).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let single = json!([{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    let post = json!({"type": "TemplateProcessing", "single": single, "pair": single,
        "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}}});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": post, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []},
    })
}

/// The character that byte-level BPE writes for `byte`.
fn character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|&before| !printable(before)).count();
    char::from_u32(0x100 + u32::try_from(place).unwrap()).unwrap()
}
