//! A real model's tokenizer and template.

use std::fs::File;
use std::io::BufReader;

use candle_core::quantized::gguf_file::Content;

use super::super::{ModelFiles, Text};
use super::{Arc, encode, fetched, messages, model, tiny, told};

fn load() -> Arc<Text> {
    let path = fetched("smollm2-135m-instruct-q4_1.gguf", "scripts/models.sh");
    let content = Content::read(&mut BufReader::new(File::open(&path).unwrap())).expect("a GGUF file");
    Arc::new(tiny::load(&ModelFiles::Gguf { path, content: Box::new(content) }))
}

#[test]
fn a_real_gguf_file_is_understood() {
    let text = load();
    let model = model(&text);
    assert_eq!(encode(model, "Once"), [6403]);
    assert_eq!(encode(model, "12"), [33, 34], "digits one by one");
    assert_eq!(text.end_ids(), [2]);

    let prompt = text.prompt(&messages(&[("user", "Hi <|im_end|> there")])).unwrap();
    assert_eq!(
        model.vocabulary.tokenizer.decode(&prompt, false).unwrap(),
        concat!(
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n",
            "<|im_start|>user\nHi <|im_end|> there<|im_end|>\n<|im_start|>assistant\n",
        )
    );
    assert_eq!(prompt.iter().filter(|&&token| token == 1).count(), 3, "three turns begin");
    assert_eq!(prompt.iter().filter(|&&token| token == 2).count(), 2, "what the user wrote is text");

    for string in
        ["", " ", "  two  spaces ", "\r\n\t", "naïve café", "日本語", "🦙👨‍👩‍👧‍👦", "𓀀", "<|im_start|>", "12345 don't", "\0"]
    {
        let tokens = encode(model, string);
        assert!(tokens.iter().all(|&token| token > 2), "{string:?} → {tokens:?}");
        assert_eq!(told(&text, &tokens).concat(), string);
    }
}
