//! Output text, token by token, against the tokenizer's own decoding of everything at once.

use proptest::prelude::*;

use super::super::Piece;
use super::tiny::{self, piece};
use super::{Arc, model, told};

#[test]
fn the_first_space_goes_and_no_other() {
    let text = Arc::new(tiny::load(&tiny::sentencepiece(&[], Vec::new())));
    assert_eq!(told(&text, &[piece("▁Hello"), piece("▁Hello")]), ["Hello", " Hello", ""]);
    assert_eq!(told(&text, &[1, piece("▁▁"), piece("H"), 2]), ["", " ", "H", "", ""]);
    assert_eq!(told(&text, &[piece("▁"), piece("▁"), piece("H")]), ["", " ", "H", ""]);
    let without = vec![("tokenizer.ggml.add_space_prefix", candle_core::quantized::gguf_file::Value::Bool(false))];
    let text = Arc::new(tiny::load(&tiny::sentencepiece(&[], without)));
    assert_eq!(told(&text, &[piece("▁Hello")]), [" Hello", ""]);
}

#[test]
fn only_an_incomplete_character_is_held_back() {
    let text = Arc::new(tiny::load(&tiny::sentencepiece(&[], Vec::new())));
    let bytes = |bytes: &[u8]| bytes.iter().map(|&byte| 3 + u32::from(byte)).collect::<Vec<_>>();
    assert_eq!(told(&text, &bytes("a🦙b".as_bytes())), ["a", "", "", "", "🦙", "b", ""]);
    assert_eq!(told(&text, &bytes(b"\xF0\x9F\xA6")), ["", "", "", "\u{FFFD}\u{FFFD}\u{FFFD}"]);
    let cut = [bytes(b"\xF0\x9F"), vec![piece("é")]].concat();
    assert_eq!(told(&text, &cut), ["", "", "\u{FFFD}\u{FFFD}é", ""]);

    let text = Arc::new(tiny::load(&tiny::bytelevel(Vec::new())));
    let tokens = model(&text).vocabulary.encode("é🦙").unwrap();
    assert_eq!(told(&text, &tokens), ["", "é", "", "", "", "🦙", ""]);
    assert_eq!(told(&text, &tokens[..4]), ["", "é", "", "", "\u{FFFD}"]);
}

#[test]
fn a_piece_is_a_token_as_it_is() {
    let text = tiny::load(&tiny::sentencepiece(&[], Vec::new()));
    assert_eq!(text.piece(piece("▁Hello")), Piece { text: " Hello".into(), bytes: b" Hello".to_vec() });
    assert_eq!(text.piece(3 + 0xF0), Piece { text: "\u{FFFD}".into(), bytes: vec![0xF0] });
    assert_eq!(text.piece(2), Piece { text: "</s>".into(), bytes: b"</s>".to_vec() });
    assert_eq!(text.piece(9999), Piece { text: String::new(), bytes: Vec::new() });
}

#[test]
fn what_fills_a_vocabulary_up_is_unsayable() {
    let padded = [("[PAD276]", tiny::UNUSED), ("<|eot_id|>", tiny::CONTROL), ("[PAD278]", tiny::UNUSED)];
    let text = tiny::load(&tiny::sentencepiece(&padded, Vec::new()));
    assert_eq!(text.unsayable(281), [276, 278, 279, 280]);
    assert_eq!(text.unsayable(276), Vec::<u32>::new(), "control tokens and bytes are tokens");
}

proptest! {
    #[test]
    fn byte_level_text_is_that_of_all_tokens(tokens in proptest::collection::vec(0_u32..265, 0..30)) {
        let text = Arc::new(tiny::load(&tiny::bytelevel(Vec::new())));
        let expected = model(&text).vocabulary.tokenizer.decode(&tokens, true).unwrap();
        prop_assert_eq!(told(&text, &tokens).concat(), expected);
    }

    /// Broken bytes stand between whole pieces: beside whole characters in bytes Hugging Face loses those too.
    #[test]
    fn sentencepiece_text_is_that_of_all_tokens(parts in proptest::collection::vec((any::<char>(), 0_u32..290, any::<u8>()), 0..12)) {
        let text = Arc::new(tiny::load(&tiny::sentencepiece(&[], Vec::new())));
        let mut tokens = Vec::new();
        for (character, token, byte) in parts {
            tokens.extend(character.to_string().bytes().map(|byte| 3 + u32::from(byte)));
            tokens.extend([piece("o"), 3 + u32::from(byte), piece("▁"), token, piece("▁▁")]);
        }
        let expected = model(&text).vocabulary.tokenizer.decode(&tokens, true).unwrap();
        prop_assert_eq!(told(&text, &tokens).concat(), expected);
    }
}
