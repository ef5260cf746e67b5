use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::raw::fields;
use crate::wire::{Dialect, Meaning, Usage};

const WHOLE: [&str; 2] = ["usage", "error"];
const OUTLINE: [&str; 2] = ["data", "results"];

fn skimmed(pieces: &[&[u8]]) -> Option<String> {
    let mut skimmer = Skimmer::new(&WHOLE, &OUTLINE);
    for piece in pieces {
        skimmer.feed(piece);
    }
    skimmer.finish().map(|left| String::from_utf8(left).unwrap())
}

/// What is left of a document, which must be the same however it is cut in two, and byte by byte.
#[track_caller]
fn left(document: &str) -> Option<String> {
    let document = document.as_bytes();
    let whole = skimmed(&[document]);
    for cut in 0..=document.len() {
        let (head, tail) = document.split_at(cut);
        assert_eq!(skimmed(&[head, tail]), whole, "cut at {cut}: {}", document.escape_ascii());
    }
    let bytes: Vec<&[u8]> = document.chunks(1).collect();
    assert_eq!(skimmed(&bytes), whole, "{}", document.escape_ascii());
    whole
}

#[test]
fn small_members_are_kept_and_large_ones_are_there() {
    let document = r#" { "object" : "list", "data" : [ {"embedding":[0.1, -2e-3],"}":"]\"{"} ] ,
        "usage":{ "prompt_tokens": 3 , "x":"a\\" }, "model":"m", "error" : null }"#;
    let expected = r#"{"usage":{ "prompt_tokens": 3 , "x":"a\\" },"error":null,"data":[]}"#;
    assert_eq!(left(document).as_deref(), Some(expected));
    assert_eq!(left(r#"{"data":{"a":[{}]},"results":"text"}"#).as_deref(), Some(r#"{"data":{},"results":"text"}"#));
    assert_eq!(left("{}").as_deref(), Some("{}"));
    assert_eq!(left("\n{ }\r\n").as_deref(), Some("{}"));
}

#[test]
fn keys_count_by_what_they_say_and_only_in_the_outermost_object() {
    assert_eq!(left(r#"{"us\u0061ge":1,"usag":2}"#).as_deref(), Some(r#"{"usage":1}"#));
    assert_eq!(left(r#"{"x":{"usage":1},"y":[{"data":[1]}]}"#).as_deref(), Some("{}"));
    assert_eq!(left(r#"{"usage":1,"data":[1],"usage":2,"data":7}"#).as_deref(), Some(r#"{"usage":2,"data":7}"#));
    let long = format!(r#"{{"{}":1,"usage":2}}"#, "usage".repeat(20));
    assert_eq!(left(&long).as_deref(), Some(r#"{"usage":2}"#));
}

#[test]
fn what_is_no_whole_object_is_none() {
    for document in
        ["", " ", "{", r#"{"usage":1"#, r#"{"usage":"1}"#, "[]", "7", "{} {}", "{}]", "]", "{]]]}", r#"{"a":1]}"#]
    {
        assert_eq!(left(document), None, "{document}");
    }
}

#[test]
fn a_list_is_taken_where_it_may_be_one() {
    for (document, whole) in [
        ("[]", true),
        (" [ {\"a\":[1]} , \"]\\\"\" , [[]] ]\n", true),
        ("[[]", false),
        ("[}", false),
        ("[}}]", false),
        ("[] []", false),
        ("[]]", false),
        ("]", false),
    ] {
        let document = document.as_bytes();
        for cut in 0..=document.len() {
            let mut skimmer = Skimmer::new(&WHOLE, &OUTLINE).or_list();
            skimmer.feed(&document[..cut]);
            skimmer.feed(&document[cut..]);
            let left = skimmer.finish();
            assert_eq!(left.as_deref(), whole.then_some(&b"[]"[..]), "cut at {cut}: {}", document.escape_ascii());
        }
    }
    let mut object = Skimmer::new(&WHOLE, &OUTLINE).or_list();
    object.feed(br#"{"usage":1,"data":[1]}"#);
    assert_eq!(object.finish().as_deref(), Some(&br#"{"usage":1,"data":[]}"#[..]));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut skimmer = Skimmer::new(&WHOLE, &OUTLINE);
    let mebibyte = vec![b'x'; 1 << 20];
    for name in ["usage", "data", "other"] {
        skimmer.feed(if name == "usage" { b"{\"" } else { b",\"" });
        skimmer.feed(name.as_bytes());
        skimmer.feed(b"\":{\"");
        skimmer.feed(&mebibyte);
        skimmer.feed(b"\":[");
        skimmer.feed(b"1".repeat(1 << 20).as_slice());
        skimmer.feed(b"],\"");
        skimmer.feed(&mebibyte);
        skimmer.feed(b"\":1}");
        assert!(skimmer.at_hand.capacity() <= 2 * LARGEST, "{name}");
    }
    skimmer.feed(b",\"");
    skimmer.feed(&mebibyte);
    skimmer.feed(b"\":1,\"error\":7}");
    assert!(skimmer.at_hand.capacity() <= 2 * LARGEST);
    assert_eq!(skimmer.finish().as_deref(), Some(&br#"{"error":7,"data":{}}"#[..]));
}

#[test]
fn what_is_left_means_what_the_document_means() {
    let usage = |input| Some(Usage { input: Some(input), ..Usage::default() });
    let list = r#"[{"index":0,"embedding":[0.1,0.2],"relevance_score":0.9}]"#;
    for (dialect, document, expected) in [
        (Dialect::Embeddings, format!(r#"{{"data":{list},"usage":{{"prompt_tokens":3,"total_tokens":4}}}}"#), usage(3)),
        (Dialect::Embeddings, format!(r#"{{"data":{list},"usage":{{"total_tokens":4}}}}"#), usage(4)),
        (Dialect::Rerank, format!(r#"{{"results":{list},"usage":{{"total_tokens":4}}}}"#), usage(4)),
        (Dialect::Rerank, format!(r#"{{"results":{list},"meta":{{"tokens":{{"input_tokens":5}}}}}}"#), usage(5)),
        (Dialect::Rerank, format!(r#"{{"data":{list},"usage":null}}"#), None),
        (Dialect::Rerank, list.to_owned(), None),
    ] {
        let whole = dialect.reply(document.as_bytes());
        assert_eq!((whole.usage, whole.choices.len()), (expected, 1), "{document}");
        assert!(whole.choices[0].finished && !whole.choices[0].has_output());
        let mut skimmer = dialect.sieve().unwrap();
        document.as_bytes().chunks(7).for_each(|piece| skimmer.feed(piece));
        assert_eq!(dialect.reply(&skimmer.finish().unwrap()), whole, "{document}");
    }
    let error = br#"{"error":{"message":"no"},"data":null}"#;
    for dialect in [Dialect::Embeddings, Dialect::Rerank] {
        assert_eq!(dialect.reply(error), Meaning { error: true, ..Meaning::default() });
    }
}

/// A JSON string, some of it written with escapes.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-z{}\\[\\]:, é]{0,6}",
        Just(r#"\""#.to_owned()),
        Just(r"\\".to_owned()),
        Just(r"\n".to_owned()),
        Just(r"\u007b".to_owned()),
    ];
    vec(part, 0..4).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

pub(in crate::wire) fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        text(),
        any::<i32>().prop_map(|number| number.to_string()),
        any::<f32>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
        prop_oneof![Just("null".to_owned()), Just("true".to_owned()), Just(r#"{"prompt_tokens":3}"#.to_owned())],
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let member = (text(), inner.clone()).prop_map(|(key, value)| format!("{key} :\n{value}"));
        prop_oneof![
            vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            vec(member, 0..4).prop_map(|members| format!("{{ {} }}", members.join(","))),
        ]
    })
}

fn document() -> impl Strategy<Value = String> {
    let names = WHOLE.into_iter().chain(OUTLINE).map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    let spelled = Just(r#""\u0064at\u0061""#.to_owned());
    let key = prop_oneof![4 => proptest::sample::select(names), 1 => spelled, 2 => text()];
    let member = (key, value(), " {0,2}").prop_map(|(key, value, space)| format!("{space}{key}{space}:{space}{value}"));
    (vec(member, 0..6), "[ \n]{0,2}").prop_map(|(members, space)| format!("{space}{{{}}}{space}", members.join(",")))
}

proptest! {
    /// Every member that is kept says what the full parser reads, however the document is cut.
    #[test]
    fn a_skimmed_document_says_what_the_whole_one_says(document in document()) {
        let left = left(&document).expect("a whole object");
        let (whole, kept) = (fields(&document, WHOLE).unwrap(), fields(&left, WHOLE).unwrap());
        prop_assert_eq!(whole, kept);
        let kinds = |text: &str| fields(text, OUTLINE).unwrap().map(|value| value.map(|value| value.as_bytes()[0]));
        prop_assert_eq!(kinds(&document), kinds(&left));
    }
}
