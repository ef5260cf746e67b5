use proptest::prelude::*;

use super::super::document;
use super::Shape;

/// Chunks as servers send them; `@` stands for the token.
const COMMON: &[&str] = &[
    r#"{"id":"chatcmpl-9","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"@"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"xY"}"#,
    r#"{"choices":[{"delta":{"content":"@"},"finish_reason":null,"index":2}],"created":1.5,"id":"x","model":"long-name","object":"o"}"#,
    r#"{"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "@", "reasoning_content": null}, "stop_reason": null}]}"#,
    r#"{"id":"x","model":"m","choices":[{"index":1,"delta":{"content":null,"reasoning_content":"@"},"finish_reason":"stop"}]}"#,
    r#"{"choices":[{"index":0,"delta":{"reasoning":"@","content":"@"}}],"model":"m"}"#,
    r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"@"}}]},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"@","arguments":""},"index":0}],"role":"assistant"}}]}"#,
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
        r",",
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
        r#""function":{"name":"b"}"#,
        r#""function":null"#,
        r#""name":"""#,
        r#""arguments":{"a":1}"#,
        r#""arguments":null"#,
        r#""custom":{"input":"x"}"#,
        r#""input":"b""#,
        r#""tool_calls":null"#,
        r#""tool_calls":[]"#,
        r#""cont\u0065nt":null"#,
        r#""err\u006fr":"x""#,
        r#""mod\u0065l":"other""#,
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
