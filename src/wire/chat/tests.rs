use proptest::prelude::*;
use smallvec::SmallVec;

use super::walk::Shape;
use super::{ChunkReader, document, reply};
use crate::wire::{Choice, Meaning, Usage};

fn choice(index: u32) -> Choice {
    Choice { index, ..Choice::default() }
}

fn answer(index: u32) -> Choice {
    Choice { answer: true, ..choice(index) }
}

fn reasoning(index: u32) -> Choice {
    Choice { reasoning: true, ..choice(index) }
}

fn finished(choice: Choice) -> Choice {
    Choice { finished: true, ..choice }
}

fn tokens(choice: Choice, tokens: u32) -> Choice {
    Choice { tokens: Some(tokens), ..choice }
}

fn meaning<const N: usize>(choices: [Choice; N]) -> Meaning<'static> {
    Meaning { choices: SmallVec::from_slice(&choices), ..Meaning::default() }
}

fn usage(input: Option<u64>, output: Option<u64>, reasoning: Option<u64>, cached: Option<u64>) -> Meaning<'static> {
    Meaning { usage: Some(Usage { input, output, reasoning, cached }), ..Meaning::default() }
}

/// Asserts what an event means: to a fresh reader, to one that has seen it before, and to the slow reader.
#[track_caller]
fn check(data: impl AsRef<[u8]>, expected: &Meaning<'_>) {
    let data = data.as_ref();
    let mut chunks = ChunkReader::new();
    for round in 1..4 {
        assert_eq!(&chunks.event(data), expected, "round {round}: {}", data.escape_ascii());
    }
    assert_eq!(&reply(data), expected, "slow: {}", data.escape_ascii());
}

/// A chunk whose only choice has this delta.
fn delta(delta: &str) -> String {
    format!(r#"{{"id":"x","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

#[test]
fn output_of_every_kind() {
    for text in ["content", "refusal"] {
        check(delta(&format!(r#"{{"{text}":"a"}}"#)), &meaning([answer(0)]));
    }
    for text in ["reasoning_content", "reasoning"] {
        check(delta(&format!(r#"{{"{text}":"a"}}"#)), &meaning([reasoning(0)]));
    }
    for call in [
        r#""tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]"#,
        r#""tool_calls":[{"index":0,"function":{"arguments":"{\""}}]"#,
        r#""tool_calls":[{"index":0,"function":null},{"index":1,"function":{"arguments":{"a":1}}}]"#,
        r#""tool_calls":[{"index":0,"type":"custom","custom":{"input":"x"}}]"#,
        r#""tool_calls":[{"index":0,"type":"custom","custom":{"name":"x","input":""}}]"#,
        r#""function_call":{"name":"f"}"#,
        r#""function_call":{"arguments":"{"}"#,
        r#""audio":{"id":"a","data":"AAAA"}"#,
        r#""audio":{"id":"a","transcript":"hi","data":""}"#,
        r#""content":[{"type":"text","text":"a"}]"#,
        r#""content":["a"]"#,
        r#""content":{"type":"text","text":"a"}"#,
        r#""content":" ""#,
        r#""content":"\u0000""#,
        r#""content":"\"""#,
    ] {
        check(delta(&format!("{{{call}}}")), &meaning([answer(0)]));
    }
    for thought in [
        r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"a"}]}]"#,
        r#""reasoning":[{"type":"text","text":"a"}]"#,
        r#""reasoning_content":{"text":"a"}"#,
        r#""content":"","reasoning_content":"a""#,
        r#""content":null,"reasoning":"a""#,
    ] {
        check(delta(&format!("{{{thought}}}")), &meaning([reasoning(0)]));
    }
    let both = Choice { answer: true, ..reasoning(0) };
    check(delta(r#"{"content":"a","reasoning_content":"b"}"#), &meaning([both]));
    check(delta(r#"{"reasoning_content":"b","content":"a"}"#), &meaning([both]));
}

#[test]
fn no_output() {
    for nothing in [
        r#""role":"assistant""#,
        r#""role":"assistant","content":"""#,
        r#""role":"assistant","content":null,"refusal":null,"tool_calls":null,"audio":null,"function_call":null"#,
        r#""content":"","reasoning_content":"","reasoning":null"#,
        r#""content":[]"#,
        r#""content":[{"type":"text","text":""},{"type":"text"},null,"",7]"#,
        r#""content":{}"#,
        r#""content":7"#,
        r#""content":true"#,
        r#""tool_calls":[]"#,
        r#""tool_calls":[{"index":0,"id":"c","function":{"name":"","arguments":""}},null,"x"]"#,
        r#""tool_calls":{"function":7}"#,
        r#""function_call":{"name":"","arguments":null}"#,
        r#""audio":{"id":"a","data":"","expires_at":7}"#,
        r#""audio":"x""#,
        r#""refusal":["x"]"#,
        "",
    ] {
        check(delta(&format!("{{{nothing}}}")), &meaning([choice(0)]));
    }
    for no_object in ["null", "[]", r#""content""#, "7"] {
        check(delta(no_object), &meaning([choice(0)]));
    }
    for no_choice in
        ["{}", r#"{"choices":[]}"#, r#"{"choices":null}"#, r#"{"choices":{}}"#, r#"{"choices":[null,"x",[]]}"#]
    {
        check(no_choice, &meaning([]));
    }
}

#[test]
fn choices_and_their_indices() {
    check(r#"{"choices":[{"delta":{"content":"a"}}]}"#, &meaning([answer(0)]));
    check(r#"{"choices":[{"delta":{"content":"a"},"index":3}]}"#, &meaning([answer(3)]));
    for odd in ["-1", "1.5", r#""2""#, "null", "4294967296", "[]"] {
        check(format!(r#"{{"choices":[{{"index":{odd},"delta":{{"content":"a"}}}}]}}"#), &meaning([answer(0)]));
    }
    check(r#"{"choices":[{"index":1.0,"delta":{}}]}"#, &meaning([choice(1)]));
    let two = r#"{"choices":[{"index":1,"delta":{"content":"a"}},{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    check(two, &meaning([answer(1), finished(choice(0))]));
}

#[test]
fn finish_reasons() {
    let chunk = |delta: &str, reason: &str| {
        format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{reason}}}]}}"#)
    };
    check(chunk("{}", r#""stop""#), &meaning([finished(choice(0))]));
    check(chunk(r#"{"content":"a"}"#, r#""length""#), &meaning([finished(answer(0))]));
    for none in ["null", r#""""#, "false", "7", "{}"] {
        check(chunk("{}", none), &meaning([choice(0)]));
    }
}

#[test]
fn tokens_by_logprobs() {
    let chunk = |logprobs: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"ab"}},"logprobs":{logprobs},"finish_reason":null}}]}}"#
        )
    };
    let token = r#"{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}"#;
    check(chunk(&format!(r#"{{"content":[{token}],"refusal":null}}"#)), &meaning([tokens(answer(0), 1)]));
    check(chunk(&format!(r#"{{"content":[{token},{token},{token}]}}"#)), &meaning([tokens(answer(0), 3)]));
    check(chunk(&format!(r#"{{"content":null,"refusal":[{token},{token}]}}"#)), &meaning([tokens(answer(0), 2)]));
    check(chunk(&format!(r#"{{"content":[],"refusal":[{token}]}}"#)), &meaning([tokens(answer(0), 1)]));
    for none in ["null", "{}", r#"{"content":null}"#, r#"{"content":[]}"#, r#"{"content":{}}"#, "7", "[]"] {
        check(chunk(none), &meaning([answer(0)]));
    }
}

#[test]
fn usage_as_reported() {
    let full = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,
        "prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5}}}"#;
    check(full, &usage(Some(9), Some(12), Some(5), Some(4)));
    let chunk = |usage: &str| format!(r#"{{"choices":[],"usage":{usage}}}"#);
    check(chunk(r#"{"prompt_tokens":9,"completion_tokens":0}"#), &usage(Some(9), Some(0), None, None));
    check(chunk(r#"{"prompt_tokens":9.0,"completion_tokens":1e2}"#), &usage(Some(9), Some(100), None, None));
    check(chunk(r#"{"prompt_tokens":9,"completion_tokens":-1}"#), &usage(Some(9), None, None, None));
    check(chunk(r#"{"prompt_tokens":1.5,"completion_tokens":2}"#), &usage(None, Some(2), None, None));
    check(chunk(r#"{"prompt_tokens":"9","completion_tokens":2}"#), &usage(None, Some(2), None, None));
    check(chunk(r#"{"prompt_tokens":1e999,"completion_tokens":2}"#), &usage(None, Some(2), None, None));
    check(
        chunk(r#"{"prompt_tokens":9,"prompt_cache_hit_tokens":3,"prompt_tokens_details":null}"#),
        &usage(Some(9), None, None, Some(3)),
    );
    check(
        chunk(r#"{"prompt_cache_hit_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}"#),
        &usage(None, None, None, Some(2)),
    );
    for none in ["null", "{}", r#"{"prompt_tokens":null}"#, r#"{"total_tokens":9}"#, r#""x""#, "7", "[]", "false"] {
        check(chunk(none), &meaning([]));
    }
    let odd_but_text = r#"{"usage":"x","model":7,"choices":[{"index":"x","delta":{"content":"a","tool_calls":7}}]}"#;
    check(odd_but_text, &meaning([answer(0)]));
    let with_text = r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    check(with_text, &Meaning { choices: meaning([answer(0)]).choices, ..usage(Some(1), Some(1), None, None) });
}

#[test]
fn models() {
    let served = |model: &'static str| Meaning { model: Some(model.into()), ..meaning([answer(0)]) };
    let chunk = |model: &str| format!(r#"{{"model":{model},"choices":[{{"delta":{{"content":"a"}}}}]}}"#);
    check(chunk(r#""gpt-4o""#), &served("gpt-4o"));
    check(chunk(r#""a\"b\u00e9""#), &served("a\"b\u{e9}"));
    check(chunk("\"mod\u{e8}le\""), &served("mod\u{e8}le"));
    for none in ["null", r#""""#, "7", "{}"] {
        check(chunk(none), &meaning([answer(0)]));
    }
    check(r#"{"choices":[{"delta":{"content":"a"}}],"model":"late"}"#, &served("late"));
}

#[test]
fn errors() {
    let error = Meaning { error: true, ..Meaning::default() };
    for object in [
        r#"{"error":{"message":"no quota","type":"x","param":null,"code":403}}"#,
        r#"{"error":"no quota"}"#,
        r#"{"error":true}"#,
        r#"{"error":{"code":null}}"#,
        r#"{"type":"error","message":"x"}"#,
        "{\n  \"error\": {\"message\": \"x\"}\n}",
    ] {
        check(object, &error);
    }
    for none in ["null", "false", r#""""#, "{}", "[]", "{ }", "0"] {
        check(format!(r#"{{"error":{none}}}"#), &meaning([]));
    }
    let with_text = r#"{"choices":[{"delta":{"content":"a"}}],"error":{"message":"x"}}"#;
    check(with_text, &Meaning { error: true, ..meaning([answer(0)]) });
    check(r#"{"choices":[{"delta":{"content":"a"}}],"type":"chunk","error":null}"#, &meaning([answer(0)]));
}

#[test]
fn what_is_no_chunk() {
    for done in ["[DONE]", " [DONE]\r\n", "\t[DONE] "] {
        check(done, &Meaning { done: true, ..Meaning::default() });
    }
    for empty in ["", " ", "\n\n"] {
        check(empty, &Meaning::default());
    }
    for malformed in [
        "[done]",
        "DONE",
        "[DONE",
        "[]",
        "7",
        "null",
        "\"[DONE]\"",
        "hello",
        "{",
        "{\"a\":1",
        "{}{}",
        "{} x",
        "{'a':1}",
        "{\"a\":1,}",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]",
        "{\"choices\":[{\"delta\":{\"content\":\"a\n\"}}]}",
        "\u{feff}{}",
        "{\"choices\":[{\"delta\":{\"content\":\"\\x\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}},]}",
        "\0",
    ] {
        check(malformed, &Meaning { malformed: true, ..Meaning::default() });
    }
}

#[test]
fn order_space_repetition_and_unknown_fields() {
    check(
        "\n { \"x\" : [ { \"choices\" : 1 } ] , \"choices\" : [ { \"delta\" : { \"content\" : \"a\" } , \"index\" : 2 } ] } \r\n",
        &meaning([answer(2)]),
    );
    check(r#"{"x":-1.5e-3,"y":-0.5,"z":true,"choices":[{"delta":{"content":"a","x":false}}]}"#, &meaning([answer(0)]));
    check(r#"{"choi\u0063es":[{"d\u0065lta":{"content":"a"}}]}"#, &meaning([answer(0)]));
    // Of a repeated key the last counts.
    check(r#"{"choices":[{"delta":{"content":"a"}}],"choices":[]}"#, &meaning([]));
    check(r#"{"choices":[{"delta":{"content":"a"}}],"error":1,"error":null}"#, &meaning([answer(0)]));
    check(r#"{"choices":[{"delta":{"content":"a","content":null}}]}"#, &meaning([choice(0)]));
    check(r#"{"choices":[{"delta":{"content":"a"},"delta":{}}]}"#, &meaning([choice(0)]));
    check(
        r#"{"choices":[{"delta":{"content":"a","content":""},"finish_reason":"x","finish_reason":null}]}"#,
        &meaning([choice(0)]),
    );
    let deep = format!(r#"{{"x":{}{},"choices":[{{"delta":{{"content":"a"}}}}]}}"#, "[".repeat(5000), "]".repeat(5000));
    check(deep, &meaning([answer(0)]));
    let nested = format!(r#"{{"choices":[{{"delta":{{"content":{}"a"{}}}}}]}}"#, "[".repeat(5000), "]".repeat(5000));
    check(nested, &meaning([choice(0)]));
}

#[test]
fn broken_utf8_is_still_text() {
    check(b"{\"choices\":[{\"delta\":{\"content\":\"\xf0\x9f\"}}]}", &meaning([answer(0)]));
    check(b"{\"choices\":[{\"delta\":{\"content\":[\"\xff\"]}}]}", &meaning([answer(0)]));
    let named = Meaning { model: Some("m\u{fffd}".into()), ..meaning([answer(0)]) };
    check(b"{\"model\":\"m\xff\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}", &named);
    check(b"{\"model\":\"m\",\"\xff\":\"\xc3\"}", &Meaning { model: Some("m".into()), ..meaning([]) });
}

#[test]
fn whole_replies() {
    let reply = r#"{"id":"x","object":"chat.completion","model":"m","choices":[
        {"index":0,"message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"},
        {"index":1,"message":{"role":"assistant","content":null,"reasoning_content":"hm",
            "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}"#;
    let both = Choice { answer: true, ..reasoning(1) };
    let expected = Meaning {
        choices: meaning([finished(answer(0)), finished(both)]).choices,
        model: Some("m".into()),
        ..usage(Some(9), Some(12), None, None)
    };
    check(reply, &expected);
    check(r#"{"choices":[{"message":{"content":"a"}}]}"#, &meaning([answer(0)]));
    check(r#"{"choices":[{"delta":null,"message":{"content":"a"}}]}"#, &meaning([answer(0)]));
    check(r#"{"choices":[{"delta":{},"message":{"content":"a"}}]}"#, &meaning([choice(0)]));
}

/// Chunks as servers send them; `@` stands for the token.
const COMMON: &[&str] = &[
    r#"{"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"@"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"xY"}"#,
    r#"{"choices":[{"delta":{"content":"@"},"finish_reason":null,"index":2}],"created":1.5,"id":"x","model":"long-name","object":"o"}"#,
    r#"{"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "@", "reasoning_content": null}, "stop_reason": null}]}"#,
    r#"{"id":"x","model":"m","choices":[{"index":1,"delta":{"content":null,"reasoning_content":"@"},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"index":0,"delta":{"reasoning":"@","content":"@"}}],"model":"m"}"#,
    r#"{"choices":[{"index":0,"finish_reason":null,"delta":{"content":"@","refusal":""}}],"error":null}"#,
];

const TOKENS: &[&str] =
    &["a", "", " the", "\\n", "\\\"", "\\\\", "\\u00e9", "caf\u{e9}", "a token that is longer than eight", "}]}"];

#[test]
fn common_chunks_take_the_fast_way() {
    for shape in COMMON {
        let mut chunks = Shape::default();
        for token in TOKENS.iter().cycle().take(3 * TOKENS.len()) {
            let chunk = shape.replace('@', token);
            assert_eq!(chunks.read(chunk.as_bytes()), Some(document::read(chunk.as_bytes())), "{chunk}");
        }
    }
}

#[derive(Debug, Clone)]
enum Change {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, &'static str),
    Drop(prop::sample::Index, usize),
    Repeat(prop::sample::Index, prop::sample::Index, usize),
    Cut(prop::sample::Index),
}

impl Change {
    fn apply(&self, chunk: &mut Vec<u8>) {
        if chunk.is_empty() {
            return;
        }
        let len = chunk.len();
        match self {
            Self::Set(at, byte) => chunk[at.index(len)] = *byte,
            Self::Insert(at, text) => {
                let at = at.index(len);
                chunk.splice(at..at, text.bytes());
            }
            Self::Drop(at, count) => {
                let at = at.index(len);
                chunk.drain(at..(at + count).min(len));
            }
            Self::Repeat(from, to, count) => {
                let (from, to) = (from.index(len), to.index(len));
                let piece = chunk[from..(from + count).min(len)].to_vec();
                chunk.splice(to..to, piece);
            }
            Self::Cut(at) => chunk.truncate(at.index(len)),
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<prop::sample::Index>;
    let byte = prop_oneof![prop::sample::select(br#"{}[]",:\ 0-.eu"#.to_vec()), any::<u8>()];
    let text = prop::sample::select(vec![
        ",",
        r#""""#,
        r"\",
        r"\u00",
        r#","content":"""#,
        r#","content":null"#,
        r#""content":"b","#,
        r#","delta":{}"#,
        r#""choices":[],"#,
        r#","choices":[]"#,
        r#","error":{"a":1}"#,
        r#","error":null"#,
        r#","usage":{"prompt_tokens":1}"#,
        r#","model":null"#,
        r#","model":"other""#,
        r#","type":"error""#,
        r#"},{"index":1"#,
        r#"}],"x":[{"#,
        r#","index":7"#,
        r#","tool_calls":[{"function":{"name":"f"}}]"#,
        r#","message":{"content":"b"}"#,
        r#","finish_reason":"stop""#,
        " ",
        "\n",
        r#","x":01"#,
        r#","x":1e5"#,
        r#","x":-"#,
        r#","x":1."#,
        r#","x":tru"#,
        r#","x":{}"#,
        "\u{e9}",
        "1",
    ]);
    let change = prop_oneof![
        3 => (at(), byte).prop_map(|(at, byte)| Change::Set(at, byte)),
        3 => (at(), text).prop_map(|(at, text)| Change::Insert(at, text)),
        2 => (at(), 1_usize..30).prop_map(|(at, count)| Change::Drop(at, count)),
        2 => (at(), at(), 1_usize..60).prop_map(|(from, to, count)| Change::Repeat(from, to, count)),
        1 => at().prop_map(Change::Cut),
    ];
    prop_oneof![1 => Just(Vec::new()), 2 => prop::collection::vec(change, 1..3)]
}

/// Insertions that keep the JSON valid, at every place where a member ends: random ones seldom do.
#[test]
fn a_second_member_anywhere_never_fools_the_fast_way() {
    let members = [
        r#""content":"b""#,
        r#""content":"""#,
        r#""content":null"#,
        r#""reasoning":"b""#,
        r#""refusal":"""#,
        r#""delta":{}"#,
        r#""delta":{"content":"b"}"#,
        r#""delta":null"#,
        r#""choices":[]"#,
        r#""choices":null"#,
        r#""choices":[{"delta":{"content":""}}]"#,
        r#""error":{"a":1}"#,
        r#""error":null"#,
        r#""error":"x""#,
        r#""usage":{"prompt_tokens":1}"#,
        r#""usage":null"#,
        r#""model":null"#,
        r#""model":"""#,
        r#""model":"other""#,
        r#""type":"error""#,
        r#""index":7"#,
        r#""index":null"#,
        r#""finish_reason":"stop""#,
        r#""finish_reason":null"#,
        r#""finish_reason":"""#,
        r#""tool_calls":[{"function":{"name":"f"}}]"#,
        r#""message":{"content":"b"}"#,
        r#""message":null"#,
        r#""logprobs":{"content":[{}]}"#,
        r#""audio":{"data":"x"}"#,
    ];
    let mut answered = 0;
    for shape in COMMON {
        let chunk = shape.replace('@', "tok");
        let places = chunk.match_indices(['{', ',', '}']).flat_map(|(at, _)| {
            let alone = members.iter().flat_map(move |m| [(at, format!(",{m}")), (at + 1, format!("{m},"))]);
            let again = members.iter().map(move |m| (at, format!(r#",{m},"content":"","error":null"#)));
            alone.chain(again)
        });
        for (at, insert) in places {
            let mut changed = chunk.clone();
            changed.insert_str(at, &insert);
            let truth = document::read(changed.as_bytes());
            let mut chunks = Shape::default();
            for before in [&chunk, &changed] {
                chunks.read(before.as_bytes());
                if let Some(fast) = chunks.read(changed.as_bytes()) {
                    assert_eq!(fast, truth, "{changed}");
                    answered += usize::from(!truth.malformed);
                }
            }
        }
    }
    assert!(answered > 1000, "the fast way must be put to the test, not only give up: {answered}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_fast_way_never_differs_from_the_slow_one(
        shape in prop::sample::select(COMMON.to_vec()),
        stream in prop::collection::vec((prop::sample::select(TOKENS.to_vec()), changes()), 1..6),
    ) {
        let mut chunks = Shape::default();
        for (token, changes) in stream {
            let mut chunk = shape.replace('@', token).into_bytes();
            for change in &changes {
change.apply(&mut chunk);
}
            if let Some(fast) = chunks.read(&chunk) {
                prop_assert_eq!(fast, document::read(&chunk), "{}", chunk.escape_ascii());
            }
        }
    }
}
