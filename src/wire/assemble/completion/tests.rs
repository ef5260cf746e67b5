use serde_json::{Value, json};

use crate::wire::Dialect;
use crate::wire::assemble::{Assembler, LARGEST, Standing};

fn fed<'a>(events: impl IntoIterator<Item = &'a str>) -> Assembler {
    let mut reply = Assembler::of(Dialect::Completion).unwrap();
    events.into_iter().for_each(|event| reply.event(b"", event.as_bytes()));
    reply
}

fn assembled<'a>(events: impl IntoIterator<Item = &'a str>) -> Value {
    let reply = fed(events);
    serde_json::from_str(&reply.json()).unwrap_or_else(|error| panic!("{error}: {}", reply.json()))
}

#[test]
fn a_stream_as_openai_sends_it() {
    let reply = fed([
        r#"{"id":"cmpl-1","object":"text_completion","created":7,"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":null}],"model":"m-1","system_fingerprint":"fp","usage":null}"#,
        r#"{"id":"cmpl-1","object":"text_completion","created":7,"choices":[{"text":" the \"ri","index":0,"logprobs":null,"finish_reason":null}],"model":"m-1","system_fingerprint":"fp","usage":null,"obfuscation":"xyz"}"#,
        r#"{"id":"cmpl-1","object":"text_completion","created":7,"choices":[{"text":"ver\"","index":0,"logprobs":null,"finish_reason":"length"}],"model":"m-1","system_fingerprint":"fp","usage":null}"#,
        r#"{"id":"cmpl-1","object":"text_completion","created":7,"choices":[],"model":"m-1","usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}"#,
        "[DONE]",
    ]);
    assert_eq!((reply.standing(1, true), reply.has_usage()), (Standing::Whole, true));
    assert_eq!(
        reply.json(),
        r#"{"id":"cmpl-1","object":"text_completion","created":7,"model":"m-1","choices":[{"text":" the \"river\"","index":0,"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8},"system_fingerprint":"fp"}"#
    );
}

#[test]
fn choices_of_several_prompts_and_what_vendors_add() {
    let reply = assembled([
        r#"{"choices":[{"index":1,"text":"y","stop_reason":null,"prompt_logprobs":null,"token_ids":[5]}]}"#,
        r#"{"choices":[{"index":0,"text":"x"},{"index":1,"text":"z","finish_reason":"stop","stop_reason":"END","token_ids":[6,7]}]}"#,
        r#"{"choices":[{"index":0,"text":"","finish_reason":"length","stop_reason":2,"token_ids":null}],"kv_transfer_params":{"a":1}}"#,
    ]);
    let expected = json!({
        "object": "text_completion",
        "choices": [
            {"text": "x", "index": 0, "logprobs": null, "finish_reason": "length", "stop_reason": 2, "token_ids": null},
            {"text": "yz", "index": 1, "logprobs": null, "finish_reason": "stop", "stop_reason": "END",
             "prompt_logprobs": null, "token_ids": [5, 6, 7]},
        ],
        "kv_transfer_params": {"a": 1},
    });
    assert_eq!(reply, expected);
}

#[test]
fn reasoning_is_joined() {
    let reply = assembled([
        r#"{"choices":[{"index":0,"text":"","reasoning":"h","reasoning_content":null}]}"#,
        r#"{"choices":[{"index":0,"text":"a","reasoning":"m"}]}"#,
        r#"{"choices":[{"index":0,"text":"b","reasoning":null,"finish_reason":"stop"}]}"#,
    ]);
    let expected = json!({"text": "ab", "index": 0, "reasoning": "hm", "reasoning_content": null, "logprobs": null,
        "finish_reason": "stop"});
    assert_eq!(reply["choices"][0], expected);
}

#[test]
fn logprobs_are_continued_list_by_list_with_the_digits_they_have() {
    let part = |token: &str, logprob: &str, top: &str, offset: u32| {
        format!(
            r#"{{"choices":[{{"index":0,"text":"{token}","logprobs":{{"tokens":["{token}"],"token_logprobs":[{logprob}],"top_logprobs":{top},"text_offset":[{offset}]}}}}]}}"#
        )
    };
    // Echoed, a prompt's first token has no probability.
    let events = [
        part("one", "null", "null", 0),
        part(" two", "-0.10000000000000001", r#"[{" two":-0.10000000000000001}]"#, 3),
        part(" t", "-1e-7", r#"[{" t":-1e-7," u":-3.0}]"#, 7),
    ];
    let reply = fed(events.iter().map(String::as_str));
    let expected = r#""text":"one two t","index":0,"logprobs":{"tokens":["one"," two"," t"],"token_logprobs":[null,-0.10000000000000001,-1e-7],"top_logprobs":[{" two":-0.10000000000000001},{" t":-1e-7," u":-3.0}],"text_offset":[0,3,7]}"#;
    assert!(reply.json().contains(expected), "{}", reply.json());
}

#[test]
fn the_halves_of_a_character_are_joined() {
    let reply = assembled([r#"{"choices":[{"text":"a\ud83c"}]}"#, r#"{"choices":[{"text":"\udf0a\n"}]}"#]);
    assert_eq!(reply["choices"][0]["text"], "a🌊\n");
}

#[test]
fn a_text_is_text_whatever_comes() {
    for text in ["7", "null", "{}", "[]", "true"] {
        let odd = format!(r#"{{"choices":[{{"text":{text}}}]}}"#);
        assert_eq!(assembled([&*odd])["choices"][0]["text"], "", "{text}");
        let reply = assembled([r#"{"choices":[{"text":"a"}]}"#, &*odd, r#"{"choices":[{"text":"b"}]}"#]);
        assert_eq!(reply["choices"][0]["text"], "ab", "{text}");
    }
    assert_eq!(assembled(["7", "{", "[DONE]"]), json!({"object": "text_completion", "choices": []}));
}

#[test]
fn how_a_stream_stands() {
    let finish = |index: u32| format!(r#"{{"choices":[{{"index":{index},"text":"","finish_reason":"stop"}}]}}"#);
    let word = r#"{"choices":[{"index":0,"text":"a","finish_reason":null}]}"#;
    let error = r#"{"error":{"message":"busy"}}"#;
    let (first, second) = (finish(0), finish(1));
    for (events, choices, in_order, expected) in [
        (&[word, &first][..], 1, false, Standing::Whole),
        (&[word, &first], 2, false, Standing::Half),
        (&[&first, &second], 2, false, Standing::Whole),
        (&[word, "[DONE]"], 1, false, Standing::Whole),
        (&[word, error], 1, true, Standing::Error),
        (&[word], 1, true, Standing::Half),
        (&[], 1, true, Standing::Half),
    ] {
        let reply = fed(events.iter().copied());
        assert_eq!(reply.standing(choices, in_order), expected, "{events:?}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let event = format!(r#"{{"choices":[{{"text":"{}"}}]}}"#, "x".repeat(1 << 20));
    let reply = fed((0..15).map(|_| &*event));
    assert!(!reply.is_too_large());
    let reply = fed((0..17).map(|_| &*event));
    assert!(reply.is_too_large() && reply.is_over() && reply.json().len() <= LARGEST + 1024);
}
