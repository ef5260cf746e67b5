//! Llama 2's tokenization, against an independent tokenizer: `tests/llama/tokens/` says which, and how it was asked.

use std::fs;

use candle_core::quantized::gguf_file::Value;
use serde::Deserialize;

use super::super::ModelFiles;
use super::{Arc, encode, fetched, model, tiny, told};

#[derive(Deserialize)]
struct Vocabulary {
    pieces: Vec<String>,
    scores: Vec<f32>,
    types: Vec<u32>,
}

#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    bare: Vec<u32>,
}

/// Llama 2's vocabulary as a GGUF file has it.
fn files(prefix_space: bool) -> ModelFiles {
    let file = fetched("llama2-vocab.json", "scripts/llama-vocab.sh");
    let vocabulary: Vocabulary = serde_json::from_slice(&fs::read(file).unwrap()).expect("the vocabulary's format");
    tiny::gguf(vec![
        ("tokenizer.ggml.model", Value::String("llama".into())),
        ("tokenizer.ggml.tokens", tiny::strings(vocabulary.pieces.iter().map(String::as_str))),
        ("tokenizer.ggml.scores", Value::Array(vocabulary.scores.into_iter().map(Value::F32).collect())),
        ("tokenizer.ggml.token_type", Value::Array(vocabulary.types.into_iter().map(Value::U32).collect())),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
        ("tokenizer.ggml.add_space_prefix", Value::Bool(prefix_space)),
    ])
}

#[test]
fn every_hard_string_has_the_oracles_tokens() {
    let expected: Expected =
        serde_json::from_str(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/llama/tokens/expected.json")))
            .expect("the oracle's format");
    assert!(expected.cases.len() > 60, "only {} strings", expected.cases.len());
    let (with, without) = (Arc::new(tiny::load(&files(true))), Arc::new(tiny::load(&files(false))));
    for Case { text, ids, bare } in expected.cases {
        assert_eq!(encode(model(&with), &text), ids, "{text:?}");
        assert_eq!(encode(model(&without), &text), bare, "{text:?} without a space in front");
        // The one character that stands for a space inside cannot be told from one.
        let text = text.replace('▁', " ");
        assert_eq!(told(&with, &ids).concat(), text);
        assert_eq!(told(&without, &bare).concat(), text);
    }
}

#[test]
fn a_conversation_becomes_metas_tokens() {
    let text = tiny::load(&files(true));
    let prompt = text.prompt(&super::messages(&[("user", "Hi"), ("assistant", "Yo"), ("user", "Hi")])).unwrap();
    let inst = [518, 25580, 29962, 6324, 518, 29914, 25580, 29962];
    let answer = [612, 29877, 29871, 2];
    assert_eq!(prompt, [&[1][..], &inst, &answer, &[1], &inst].concat());
    assert_eq!(text.end_ids(), [2]);
}
