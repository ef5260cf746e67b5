use std::sync::Arc;

use super::*;

mod decoding;
mod hugging_face;
mod llama2;
mod prompts;
mod smollm2;
mod tiny;

fn messages(conversation: &[(&str, &str)]) -> Vec<Message> {
    conversation.iter().map(|&(role, content)| Message { role: role.to_owned(), content: content.to_owned() }).collect()
}

fn model(text: &Text) -> &Model {
    match &text.words {
        Words::Model(model) => model,
        Words::Numbers { .. } => panic!("a stand-in"),
    }
}

/// The tokens of `text`, none of them a control token.
fn encode(model: &Model, text: &str) -> Vec<u32> {
    model.vocabulary.encode(&model.vocabulary.guard(text)).expect("text can be tokenized")
}

/// What a client sees of `tokens`, piece by piece, with the end.
fn told(text: &Arc<Text>, tokens: &[u32]) -> Vec<String> {
    let mut decoder = text.decoder();
    let mut told: Vec<_> = tokens.iter().map(|&token| decoder.push(token)).collect();
    told.push(decoder.finish());
    told
}

/// A file that a script fetches.
fn fetched(name: &str, script: &str) -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("STREAMGAUGE_MODELS").unwrap_or_else(|| {
        let data = set("XDG_DATA_HOME")
            .or_else(|| set("HOME").map(|home| home.join(".local/share")))
            .expect("HOME, XDG_DATA_HOME or STREAMGAUGE_MODELS says where models are");
        data.join("streamgauge/models")
    });
    let file = folder.join(name);
    assert!(file.exists(), "{} is missing: run {script}", file.display());
    file
}

#[test]
fn a_stand_in_makes_tokens_of_bytes_and_text_of_tokens() {
    let text = Arc::new(Text::stand_in(50));
    let expected: Vec<u32> = b"Hi\n\xC3\xA9\n".iter().map(|&byte| (3 + u32::from(byte)) % 50).collect();
    assert_eq!(text.prompt(&messages(&[("user", "Hi"), ("user", "é")])).unwrap(), expected);
    assert_eq!(told(&text, &[0, 35, 36, 1295, u32::MAX]), [" 0", " z", " 10", " zz", " 1z141z3", ""]);
    assert_eq!(text.piece(36), Piece { text: " 10".into(), bytes: b" 10".to_vec() });
    assert!(text.end_ids().is_empty());
    assert_eq!(text.defaults(), &Sampling::default());
    assert!(text.unsayable(99).is_empty());
}
