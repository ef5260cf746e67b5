use proptest::prelude::*;
use serde_json::{Value, json};

use crate::wire::Dialect;
use crate::wire::assemble::{Assembler, LARGEST, MOST_CHOICES, Standing};

fn empty() -> Assembler {
    Assembler::of(Dialect::Chat).unwrap()
}

fn assembled<'a>(events: impl IntoIterator<Item = &'a str>) -> Value {
    let mut reply = empty();
    events.into_iter().for_each(|event| reply.event(b"", event.as_bytes()));
    serde_json::from_str(&reply.json()).unwrap_or_else(|error| panic!("{error}: {}", reply.json()))
}

/// The one choice of a reply made of these deltas and a last event without any.
fn choice(deltas: &[&str]) -> Value {
    let events: Vec<_> = deltas
        .iter()
        .map(|delta| format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#))
        .chain([r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#.to_owned()])
        .collect();
    assembled(events.iter().map(String::as_str))["choices"][0].take()
}

fn message(deltas: &[&str]) -> Value {
    choice(deltas)["message"].take()
}

#[test]
fn a_stream_as_openai_sends_it() {
    let reply = assembled([
        r#"{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m-1","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"xyz"}"#,
        r#"{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m-1","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Hi \"y"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x"}"#,
        r#"{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m-1","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"ou\""},"logprobs":null,"finish_reason":null}],"usage":null}"#,
        r#"{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m-1","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
        r#"{"id":"c1","object":"chat.completion.chunk","created":7,"model":"m-1","service_tier":"default","system_fingerprint":"fp","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}"#,
        "[DONE]",
    ]);
    let expected = json!({
        "id": "c1", "object": "chat.completion", "created": 7, "model": "m-1",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Hi \"you\"", "refusal": null},
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
        "service_tier": "default", "system_fingerprint": "fp",
    });
    assert_eq!(reply, expected);
}

#[test]
fn members_come_in_the_order_of_the_api() {
    let mut reply = empty();
    reply.event(b"", br#"{"x":1,"model":"m","choices":[{"finish_reason":"stop","delta":{"content":"a","z":1,"role":"assistant"}}],"usage":{},"created":1,"id":"c"}"#);
    assert_eq!(
        reply.json(),
        r#"{"id":"c","object":"chat.completion","model":"m","created":1,"choices":[{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"z":1},"logprobs":null,"finish_reason":"stop"}],"usage":{},"x":1}"#
    );
    assert_eq!(empty().json(), r#"{"object":"chat.completion","choices":[]}"#);
}

#[test]
fn tool_calls_are_merged_by_index() {
    let message = message(&[
        r#"{"role":"assistant","content":null}"#,
        r#"{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"level","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"flow","arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":"","type":"function","function":{"arguments":"{\"river\":"}},{"index":1,"function":{"arguments":"}"}}]}"#,
        r#"{"tool_calls":[{"index":0,"id":null,"function":{"name":null,"arguments":"\"Rhine\"}"}}]}"#,
    ]);
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let calls = [call("call_a", "level", r#"{"river":"Rhine"}"#), call("call_b", "flow", "{}")];
    assert_eq!(message, json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": calls}));
}

#[test]
fn tool_calls_without_an_index_are_told_apart_by_their_ids() {
    let message = message(&[
        r#"{"content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}}]}"#,
        r#"{"tool_calls":[{"id":"b","type":"function","function":{"name":"y","arguments":"{"}}]}"#,
        r#"{"tool_calls":[{"id":"b","function":{"arguments":"}"}}]}"#,
        r#"{"tool_calls":[{"function":{"arguments":" "}}]}"#,
    ]);
    assert_eq!(message["content"], Value::Null);
    assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(2));
    assert_eq!(message["tool_calls"][1]["function"], json!({"name": "y", "arguments": "{} "}));
}

#[test]
fn content_is_absent_only_where_something_else_answers() {
    assert_eq!(message(&["{}"])["content"], "");
    assert_eq!(message(&[r#"{"content":null}"#])["content"], Value::Null);
    let call = r#"{"function_call":{"name":"f","arguments":"{}"}}"#;
    assert_eq!(message(&[r#"{"content":""}"#, call])["content"], Value::Null);
    assert_eq!(message(&[call])["function_call"], json!({"name": "f", "arguments": "{}"}));
    assert_eq!(message(&[r#"{"content":"a"}"#, call])["content"], "a");
    let refused = message(&[r#"{"refusal":"I "}"#, r#"{"refusal":"won't"}"#]);
    assert_eq!(refused, json!({"role": "assistant", "content": null, "refusal": "I won't"}));
}

#[test]
fn reasoning_audio_annotations_and_what_vendors_add() {
    let choice = choice(&[
        r#"{"role":"assistant","reasoning_content":"h","reasoning":null}"#,
        r#"{"role":"assistant","reasoning_content":"m","reasoning":"r","audio":{"id":"a","data":"AA","expires_at":1}}"#,
        r#"{"content":"x","audio":{"data":"BB","transcript":"t","expires_at":2},"annotations":[{"n":1}],"extra":{"a":{"b":"c"}}}"#,
        r#"{"annotations":[{"n":2}],"extra":{"a":{"b":"d","n":1.50}},"flag":true}"#,
    ]);
    let expected = json!({
        "role": "assistant", "content": "x", "refusal": null, "reasoning_content": "hm", "reasoning": "r",
        "audio": {"id": "a", "data": "AABB", "transcript": "t", "expires_at": 2},
        "annotations": [{"n": 1}, {"n": 2}], "extra": {"a": {"b": "cd", "n": 1.5}}, "flag": true,
    });
    assert_eq!(choice["message"], expected);
}

#[test]
fn choices_are_sorted_and_keep_what_else_they_say() {
    let reply = assembled([
        r#"{"choices":[{"index":1,"delta":{"content":"y"},"stop_reason":null},{"index":0,"delta":{"content":"x"}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"z"},"finish_reason":"stop","stop_reason":"END","content_filter_results":{"hate":{}}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
    ]);
    let message = |text: &str| json!({"role": "assistant", "content": text, "refusal": null});
    let expected = json!([
        {"index": 0, "message": message("x"), "logprobs": null, "finish_reason": "length"},
        {"index": 1, "message": message("yz"), "logprobs": null, "finish_reason": "stop", "stop_reason": "END",
         "content_filter_results": {"hate": {}}},
    ]);
    assert_eq!(reply["choices"], expected);
}

#[test]
fn logprobs_are_continued_with_the_digits_they_have() {
    let mut reply = empty();
    for number in ["-0.10000000000000001", "-1e-7"] {
        let event = format!(
            r#"{{"choices":[{{"delta":{{"content":"a"}},"logprobs":{{"content":[{{"logprob":{number}}}],"refusal":null}}}}]}}"#
        );
        reply.event(b"", event.as_bytes());
    }
    let expected = r#""logprobs":{"content":[{"logprob":-0.10000000000000001},{"logprob":-1e-7}],"refusal":null}"#;
    assert!(reply.json().contains(expected), "{}", reply.json());
}

#[test]
fn the_halves_of_a_character_are_joined() {
    assert_eq!(message(&[r#"{"content":"\ud83c"}"#, r#"{"content":"\udf0a"}"#])["content"], "🌊");
}

#[test]
fn the_last_that_is_not_null_counts() {
    let reply = assembled([
        r#"{"choices":[],"model":null,"a":null,"b":1,"usage":{"n":1},"prompt_filter_results":[{}]}"#,
        r#"{"model":"m","b":2,"usage":{"n":2}}"#,
        r#"{"model":null,"b":null,"usage":null}"#,
    ]);
    let expected = json!({"object": "chat.completion", "model": "m", "choices": [], "usage": {"n": 2}, "a": null, "b": 2,
        "prompt_filter_results": [{}]});
    assert_eq!(reply, expected);
}

#[test]
fn a_whole_reply_inside_an_event_is_taken() {
    let reply =
        assembled([r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#]);
    assert_eq!(reply["choices"][0]["message"]["content"], "a");
    // Where both stand, the delta is the part that is new.
    assert_eq!(
        assembled([r#"{"choices":[{"delta":{"content":"b"},"message":{"content":"ab"}}]}"#])["choices"][0]["message"]["content"],
        "b"
    );
}

#[test]
fn a_field_of_the_wrong_type_says_nothing() {
    for delta in [
        r#"{"content":7}"#,
        r#"{"content":{"a":1}}"#,
        r#"{"content":[]}"#,
        r#"{"tool_calls":"x"}"#,
        r#"{"tool_calls":[7,null,"x",[]]}"#,
        r#"{"role":7}"#,
        r#"{"refusal":false}"#,
        "7",
        "[]",
        "null",
    ] {
        let message = message(&[r#"{"role":"assistant","content":"a","refusal":null}"#, delta, r#"{"content":"b"}"#]);
        assert_eq!(message["content"], "ab", "{delta}");
        assert_eq!(message["role"], "assistant", "{delta}");
        assert_eq!(message["refusal"], Value::Null, "{delta}");
    }
    assert_eq!(message(&[r#"{"content":7}"#, r#"{"content":"b"}"#])["content"], "b");
    for event in
        [r#"{"choices":7}"#, r#"{"choices":[7]}"#, "7", "{", r#"{"choices":[{"delta":{"content":"x"}}"#, "keep-alive"]
    {
        assert_eq!(assembled([event]), json!({"object": "chat.completion", "choices": []}), "{event}");
    }
}

#[test]
fn content_in_parts_stays_in_parts() {
    let message = message(&[
        r#"{"content":[{"type":"thinking","thinking":[]}]}"#,
        r#"{"content":[{"type":"text","text":"a"}]}"#,
        r#"{"content":"b"}"#,
    ]);
    assert_eq!(message["content"], json!([{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, "b"]));
}

#[test]
fn how_a_stream_stands() {
    let finish = |index: u32| format!(r#"{{"choices":[{{"index":{index},"delta":{{}},"finish_reason":"stop"}}]}}"#);
    let word = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
    let error = r#"{"error":{"message":"busy"}}"#;
    let (first, second) = (finish(0), finish(1));
    for (events, choices, in_order, expected) in [
        (&[word, &first][..], 1, false, Standing::Whole),
        (&[word, &first, error], 1, false, Standing::Whole),
        (&[word, &first], 2, true, Standing::Whole),
        (&[word, &first], 2, false, Standing::Half),
        (&[&first, &second], 2, false, Standing::Whole),
        (&[word, "[DONE]"], 1, false, Standing::Whole),
        (&[word, error, "[DONE]"], 1, true, Standing::Error),
        (&[word], 1, true, Standing::Half),
        (&[r#"{"type":"error","message":"m"}"#], 1, true, Standing::Error),
        (&[r#"{"error":null,"type":"x"}"#, r#"{"error":{}}"#, r#"{"error":false}"#], 1, true, Standing::Half),
        (&[], 1, true, Standing::Half),
        (&["[DONE]"], 1, true, Standing::Half),
        (&[r#"{"choices":[],"usage":{}}"#, "[DONE]"], 1, true, Standing::Half),
    ] {
        let mut reply = empty();
        for event in events {
            reply.event(b"", event.as_bytes());
        }
        assert_eq!(reply.standing(choices, in_order), expected, "{events:?}");
    }
    let mut reply = empty();
    reply.event(b"", error.as_bytes());
    assert_eq!((reply.error(), reply.is_over()), (Some(r#"{"message":"busy"}"#), true));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut reply = empty();
    let event = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "x".repeat(1 << 20));
    (0..15).for_each(|_| reply.event(b"", event.as_bytes()));
    assert!(!reply.is_too_large());
    (0..2).for_each(|_| reply.event(b"", event.as_bytes()));
    assert!(reply.is_too_large() && reply.is_over() && reply.json().len() <= LARGEST + 1024);
    // What is said again and again, and counts once, never exceeds it; nor does what is many.
    let mut reply = empty();
    let padding = "x".repeat(1 << 16);
    for number in 0..1_200 {
        let event = format!(
            r#"{{"x":"{padding}","usage":{{"x":"{padding}"}},"k{number}":null,"choices":[{{"index":{},"delta":{{"role":"assistant","content":null,"y":null,"tool_calls":[{{"index":{number}}}]}}}}]}}"#,
            number % MOST_CHOICES
        );
        reply.event(b"", event.as_bytes());
    }
    assert!(!reply.is_too_large() && reply.json().len() < 4 * padding.len());
    // A choice too many is never left out in silence.
    let mut reply = empty();
    let choice = |number: usize| format!(r#"{{"choices":[{{"index":{number},"delta":{{}}}}]}}"#);
    (0..MOST_CHOICES).for_each(|number| reply.event(b"", choice(number).as_bytes()));
    assert!(!reply.is_too_large());
    reply.event(b"", choice(MOST_CHOICES).as_bytes());
    assert!(reply.is_too_large() && reply.is_over());
    let mut reply = empty();
    let deep = r#"{"a":"#.repeat(100_000) + "1" + &"}".repeat(100_000);
    reply.event(b"", format!(r#"{{"choices":[{{"delta":{{"deep":{deep}}}}}]}}"#).as_bytes());
    assert!(reply.json().len() > 100_000);
}

proptest! {
    /// Whatever comes, nothing panics and what is made is JSON with what whole replies must have.
    #[test]
    fn anything_makes_a_reply(events in prop::collection::vec(event(), 0..6)) {
        let reply = assembled(events.iter().map(String::as_str));
        prop_assert_eq!(&reply["object"], "chat.completion");
        for choice in reply["choices"].as_array().expect("a list") {
            let message = &choice["message"];
            prop_assert!(message["role"].is_string());
            let content = &message["content"];
            prop_assert!(content.is_null() || content.is_string() || content.is_array());
        }
    }

    #[test]
    fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut reply = empty();
        reply.event(b"", &bytes);
        prop_assert!(serde_json::from_str::<Value>(&reply.json()).is_ok());
    }
}

fn event() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null"),
        Just("7"),
        Just("-1.5e3"),
        Just("true"),
        Just(r#""a""#),
        Just(r#""""#),
        Just("[]"),
        Just("{}"),
    ];
    let value = scalar.prop_map(str::to_owned).prop_recursive(5, 40, 5, |inner| {
        let key = prop_oneof![
            Just("choices"),
            Just("index"),
            Just("delta"),
            Just("message"),
            Just("content"),
            Just("role"),
            Just("id"),
            Just("tool_calls"),
            Just("function"),
            Just("arguments"),
            Just("name"),
            Just("logprobs"),
            Just("usage"),
            Just("finish_reason"),
            Just("refusal"),
            Just("audio"),
            Just("x,"),
            Just("model"),
        ];
        let member = (key, inner.clone()).prop_map(|(key, value)| format!(r#""{key}":{value}"#));
        prop_oneof![
            prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(","))),
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
        ]
    });
    value.prop_map(|value| format!(r#"{{"choices":[{{"delta":{value}}},{value}],"x":{value}}}"#))
}
