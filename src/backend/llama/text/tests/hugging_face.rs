//! A model's directory, as Hugging Face lays it out.

use std::fs;

use super::tiny::{self, piece};
use super::{Sampling, Text, messages};

#[test]
fn a_directory_says_how_it_wants_to_be_asked() {
    let settings = r#"{"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","unk_token":null,"add_bos_token":true,
        "chat_template":"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}"#;
    let generation =
        r#"{"bos_token_id":1,"eos_token_id":[2,5],"do_sample":true,"temperature":0.6,"top_p":0.9,"top_k":0}"#;
    let (_directory, files) =
        tiny::directory(&[("tokenizer_config.json", settings), ("generation_config.json", generation)]);
    let text = tiny::load(&files);
    assert_eq!(text.prompt(&messages(&[("user", "Hello")])).unwrap(), [1, piece("▁Hello"), 2]);
    assert_eq!(text.end_ids(), [2, 5, 276], "its own, and <|eot_id|>");
    assert_eq!(text.defaults(), &Sampling { temperature: 0.6, top_p: 0.9, ..Sampling::default() });
}

#[test]
fn what_is_left_out_has_defaults() {
    let (_directory, files) = tiny::directory(&[]);
    let text = tiny::load(&files);
    let prompt = text.prompt(&messages(&[("user", "Hello")])).unwrap();
    // The tokenizer adds no BOS, and nothing says that it should; Llama 2's format writes one.
    assert_eq!(prompt[0], 1);
    assert_eq!(prompt.iter().filter(|&&token| token == 1).count(), 1);
    assert_eq!(text.end_ids(), [2, 276]);
    let greedy = r#"{"do_sample":false,"temperature":0.6}"#;
    let (_directory, files) = tiny::directory(&[("generation_config.json", greedy)]);
    let text = tiny::load(&files);
    assert_eq!(
        text.defaults(),
        &Sampling { temperature: 0.0, ..Sampling::default() },
        "greedy, and nothing of the rest"
    );
    assert!(text.notes().is_empty());
}

#[test]
fn what_is_not_applied_is_noted() {
    let notes = |generation| {
        let (_directory, files) = tiny::directory(&[("generation_config.json", generation)]);
        tiny::load(&files).notes().to_vec()
    };
    let note = "generation_config.json asks for repetition_penalty 1.1, which is not applied";
    assert_eq!(notes(r#"{"repetition_penalty":1.1}"#), [note]);
    assert_eq!(notes(r#"{"do_sample":false,"repetition_penalty":1.1}"#), [note]);
    assert!(notes(r#"{"repetition_penalty":1.0}"#).is_empty());
    assert!(notes(r#"{"repetition_penalty":null}"#).is_empty());
}

/// The tokenizer has 277 tokens, the last of them a control token; the weights may have more rows.
#[test]
fn rows_that_are_no_token_are_unsayable() {
    let (directory, files) = tiny::directory(&[]);
    let text = tiny::load(&files);
    assert!(text.unsayable(277).is_empty());
    assert_eq!(text.unsayable(280), [277, 278, 279]);
    // A gap, and an end that no tokenizer knows.
    let file = directory.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().expect("a vocabulary");
    let last = vocabulary.remove("é").expect("the last piece");
    assert_eq!(last, piece("é"));
    fs::write(&file, tokenizer.to_string()).unwrap();
    fs::write(directory.path().join("generation_config.json"), r#"{"eos_token_id":278}"#).unwrap();
    assert_eq!(tiny::load(&files).unsayable(280), [piece("é"), 277, 279]);
}

#[test]
fn the_template_is_where_it_may_be() {
    let named = r#"{"chat_template":[{"name":"tool_use","template":"tools"},{"name":"default","template":"Hello"}]}"#;
    let (directory, files) = tiny::directory(&[("tokenizer_config.json", named)]);
    assert_eq!(tiny::load(&files).prompt(&messages(&[("user", "")])).unwrap(), [piece("▁Hello")]);
    fs::write(directory.path().join("chat_template.jinja"), "Hello Hello").unwrap();
    assert_eq!(tiny::load(&files).prompt(&messages(&[("user", "")])).unwrap(), [piece("▁Hello"); 2]);
}

#[test]
fn a_tokenizers_own_bos_truncation_and_padding() {
    let (directory, files) =
        tiny::directory(&[("tokenizer_config.json", r#"{"bos_token":"<s>","chat_template":"Hello Hello"}"#)]);
    let file = directory.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    tokenizer["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    });
    tokenizer["truncation"] =
        serde_json::json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
    tokenizer["padding"] = serde_json::json!({
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<unk>",
    });
    fs::write(&file, tokenizer.to_string()).unwrap();
    let text = tiny::load(&files);
    assert_eq!(text.prompt(&messages(&[("user", "")])).unwrap(), [1, piece("▁Hello"), piece("▁Hello")]);
}

/// Newer conversions put the first space in front of the text, not of each part between control tokens.
#[test]
fn the_space_in_front_comes_where_the_tokenizer_puts_it() {
    let template = r#"{"chat_template":"{{ messages[0].content }}Hello</s>Hello"}"#;
    let (directory, files) = tiny::directory(&[("tokenizer_config.json", template)]);
    let file = directory.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    tokenizer["normalizer"] = serde_json::Value::Null;
    tokenizer["pre_tokenizer"] =
        serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    fs::write(&file, tokenizer.to_string()).unwrap();
    let text = tiny::load(&files);
    let prompt = |content| text.prompt(&messages(&[("user", content)])).unwrap();
    assert_eq!(prompt(""), [piece("▁Hello"), 2, piece("Hello")]);
    // The same where the other way is gone, for what the user wrote.
    let marked = prompt("Hello</s> ");
    assert_eq!(marked[0], piece("▁Hello"));
    assert_eq!(marked[marked.len() - 3..], [piece("▁Hello"), 2, piece("Hello")]);
}

#[test]
fn broken_directories_are_named() {
    let error = |files: &_| Text::load(files).err().expect("broken").to_string();
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    for (name, text, parts) in [
        ("tokenizer.json", "{}", ["tokenizer.json: not a tokenizer", "download it again"]),
        ("tokenizer.json", lfs, ["tokenizer.json: not a tokenizer", "run `git lfs pull`"]),
        ("tokenizer_config.json", "<html>", ["tokenizer_config.json: not the JSON", "it is a web page"]),
        ("generation_config.json", r#"{"eos_token_id":"x"}"#, ["generation_config.json: not the JSON", "download"]),
        ("config.json", r#"{"vocab_size":276}"#, ["the tokenizer has token 276", "vocabulary ends at 275"]),
        (
            "chat_template.jinja",
            "{% if %}",
            ["chat_template.jinja: the chat template does not compile", "chat_template:1"],
        ),
    ] {
        let (_directory, files) = tiny::directory(&[(name, text)]);
        let error = error(&files);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }

    let (directory, files) = tiny::directory(&[]);
    fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    assert!(error(&files).contains("tokenizer.json: no such file: download"), "{}", error(&files));
    fs::write(directory.path().join("tokenizer.model"), "").unwrap();
    assert!(error(&files).contains("AutoTokenizer"), "{}", error(&files));
}

#[test]
fn a_decoder_that_is_not_known_is_refused() {
    let (directory, files) = tiny::directory(&[]);
    let file = directory.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (decoder, part) in [
        (serde_json::json!(null), "it has no decoder"),
        (serde_json::json!({"type": "WordPiece", "prefix": "##", "cleanup": true}), "WordPiece"),
    ] {
        tokenizer["decoder"] = decoder;
        fs::write(&file, tokenizer.to_string()).unwrap();
        let error = Text::load(&files).err().expect("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}
