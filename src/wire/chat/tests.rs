use smallvec::SmallVec;

use super::{ChunkReader, reply};
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
        r#""content":"\ud83d""#,
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
