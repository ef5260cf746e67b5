use proptest::prelude::*;
use serde_json::{Value, json};

use crate::wire::Dialect;
use crate::wire::assemble::{Assembler, LARGEST, Standing};

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":1,"service_tier":"standard"}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn fed<'a>(events: impl IntoIterator<Item = &'a str>) -> Assembler {
    let mut reply = Assembler::of(Dialect::Messages).unwrap();
    events.into_iter().for_each(|event| reply.event(b"", event.as_bytes()));
    reply
}

fn assembled<'a>(events: impl IntoIterator<Item = &'a str>) -> Value {
    let reply = fed(events);
    serde_json::from_str(&reply.json()).unwrap_or_else(|error| panic!("{error}: {}", reply.json()))
}

fn ended(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":15}}}}"#
    )
}

/// A block that begins so, and the deltas that continue it.
fn block(index: u32, began: &str, deltas: &[&str]) -> Vec<String> {
    let start = format!(r#"{{"type":"content_block_start","index":{index},"content_block":{began}}}"#);
    let delta = |delta: &&str| format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#);
    let stop = format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    [start].into_iter().chain(deltas.iter().map(delta)).chain([stop]).collect()
}

/// The content of a message with these blocks.
fn content(blocks: &[Vec<String>]) -> Value {
    let end = ended("end_turn");
    let blocks = blocks.iter().flatten().map(String::as_str);
    assembled([START].into_iter().chain(blocks).chain([&*end, STOP]))["content"].take()
}

fn text(text: &str) -> String {
    json!({"type": "text_delta", "text": text}).to_string()
}

fn json_part(part: &str) -> String {
    json!({"type": "input_json_delta", "partial_json": part}).to_string()
}

#[test]
fn a_stream_as_anthropic_sends_it() {
    let block = block(0, r#"{"type":"text","text":""}"#, &[&text("Hi \"y"), &text("ou\"")]);
    let end = ended("end_turn");
    let events = [START, &block[0], r#"{"type": "ping"}"#, &block[1], &block[2], &block[3], &end, STOP];
    let reply = fed(events);
    assert_eq!((reply.standing(1, false), reply.has_usage(), reply.is_over()), (Standing::Whole, true, true));
    assert_eq!(
        reply.json(),
        r#"{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"Hi \"you\""}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":15,"service_tier":"standard"}}"#
    );
}

#[test]
fn thinking_keeps_its_signature() {
    let thinking = block(
        0,
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        &[
            r#"{"type":"thinking_delta","thinking":"The river"}"#,
            r#"{"type":"thinking_delta","thinking":" rises."}"#,
            r#"{"type":"signature_delta","signature":"EqQB+/=="}"#,
        ],
    );
    let redacted = block(1, r#"{"type":"redacted_thinking","data":"EmwK"}"#, &[]);
    let answer = block(2, r#"{"type":"text","text":""}"#, &[&text("Yes.")]);
    let expected = json!([
        {"type": "thinking", "thinking": "The river rises.", "signature": "EqQB+/=="},
        {"type": "redacted_thinking", "data": "EmwK"},
        {"type": "text", "text": "Yes."},
    ]);
    assert_eq!(content(&[thinking, redacted, answer]), expected);
}

#[test]
fn a_tools_input_is_put_together() {
    let tool = |name: &str| format!(r#"{{"type":"tool_use","id":"toolu_{name}","name":"{name}","input":{{}}}}"#);
    let parts = ["", r#"{"river": "Rh"#, r#"ine", "at": {"km""#, r#": 1.50, "says": "\"wet\"\n"}}"#].map(json_part);
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    let level = block(1, &tool("level"), &parts);
    let flow = block(2, &tool("flow"), &[&json_part("")]);
    let none = block(3, &tool("none"), &[]);
    let whole = block(4, r#"{"type":"tool_use","id":"t","name":"n","input":{"a":[1]}}"#, &[]);
    let said = block(0, r#"{"type":"text","text":""}"#, &[&text("I look.")]);
    let server = block(
        5,
        r#"{"type":"server_tool_use","id":"srv","name":"web_search","input":{}}"#,
        &[&json_part(r#"{"query":"#), &json_part(r#""rhine"}"#)],
    );
    let found = block(
        6,
        r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":[{"type":"web_search_result","title":"t"}]}"#,
        &[],
    );
    let failed = block(
        7,
        r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":{"type":"web_search_tool_result_error","error_code":"unavailable"}}"#,
        &[],
    );
    let mcp = block(
        8,
        r#"{"type":"mcp_tool_use","id":"mcp","name":"n","server_name":"s","input":{}}"#,
        &[&json_part(r#"{"a":true}"#)],
    );
    let expected = json!([
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_level", "name": "level",
         "input": {"river": "Rhine", "at": {"km": 1.5, "says": "\"wet\"\n"}}},
        {"type": "tool_use", "id": "toolu_flow", "name": "flow", "input": {}},
        {"type": "tool_use", "id": "toolu_none", "name": "none", "input": {}},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"a": [1]}},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "rhine"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"type": "web_search_result", "title": "t"}]},
        {"type": "web_search_tool_result", "tool_use_id": "srv",
         "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}},
        {"type": "mcp_tool_use", "id": "mcp", "name": "n", "server_name": "s", "input": {"a": true}},
    ]);
    assert_eq!(content(&[said, level, flow, none, whole, server, found, failed, mcp]), expected);
}

#[test]
fn an_input_that_came_whole_is_kept_where_no_text_follows() {
    let whole = r#"{"type":"tool_use","id":"t","name":"n","input":{"a":[1]}}"#;
    let empty = r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#;
    let none = r#"{"type":"tool_use","id":"t","name":"n"}"#;
    for (began, parts, expected) in [
        (whole, &[][..], json!({"a": [1]})),
        (whole, &[""], json!({"a": [1]})),
        (whole, &["", ""], json!({"a": [1]})),
        (whole, &["", r#"{"b":2}"#], json!({"b": 2})),
        (empty, &[""], json!({})),
        (none, &[""], json!({})),
    ] {
        let parts: Vec<String> = parts.iter().map(|part| json_part(part)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(content(&[block(0, began, &parts)])[0]["input"], expected, "{began} {parts:?}");
    }
}

#[test]
fn an_input_that_breaks_off_at_the_limit_is_json_all_the_same() {
    let tool = block(0, r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#, &[&json_part(r#"{"a":1,"b":"ha"#)]);
    let end = ended("max_tokens");
    let reply = assembled([START].into_iter().chain(tool.iter().map(String::as_str)).chain([&*end, STOP]));
    assert_eq!((&reply["stop_reason"], &reply["content"][0]["input"]), (&json!("max_tokens"), &json!({"a": 1})));
}

#[test]
fn citations_become_a_list() {
    let cite = |title: &str| {
        format!(r#"{{"type":"citations_delta","citation":{{"type":"page_location","document_title":"{title}"}}}}"#)
    };
    let (first, second) = (cite("a"), cite("b"));
    let cited =
        json!([{"type": "page_location", "document_title": "a"}, {"type": "page_location", "document_title": "b"}]);
    for began in [
        r#"{"type":"text","text":""}"#,
        r#"{"type":"text","text":"","citations":null}"#,
        r#"{"type":"text","text":"","citations":[]}"#,
    ] {
        let block = block(0, began, &[&text("so"), &first, &text(" it is"), &second]);
        assert_eq!(content(&[block]), json!([{"type": "text", "text": "so it is", "citations": cited}]), "{began}");
    }
    let block = block(0, r#"{"type":"text","text":"a","citations":[1]}"#, &[&first]);
    assert_eq!(content(&[block])[0]["citations"].as_array().map(Vec::len), Some(2));
}

#[test]
fn kinds_that_are_not_known_are_kept_and_their_text_is_joined() {
    let odd = block(
        0,
        r#"{"type":"hologram","shape":{"a":[1]},"beam":null,"lit":1}"#,
        &[
            r#"{"type":"beam_delta","beam":"ab","lit":2}"#,
            r#"{"type":"beam_delta","beam":"cd","lit":null}"#,
            r#"{"beam":"no type"}"#,
        ],
    );
    assert_eq!(content(&[odd]), json!([{"type": "hologram", "shape": {"a": [1]}, "beam": "abcd", "lit": 2}]));
}

#[test]
fn the_halves_of_a_character_are_joined() {
    let said = block(
        0,
        r#"{"type":"text","text":""}"#,
        &[r#"{"type":"text_delta","text":"\ud83c"}"#, r#"{"type":"text_delta","text":"\udf0a"}"#],
    );
    let tool = block(
        1,
        r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#,
        &[
            r#"{"type":"input_json_delta","partial_json":"{\"a\":\"\ud83c"}"#,
            r#"{"type":"input_json_delta","partial_json":"\udf0a\"}"}"#,
        ],
    );
    let content = content(&[said, tool]);
    assert_eq!((&content[0]["text"], &content[1]["input"]["a"]), (&json!("🌊"), &json!("🌊")));
}

#[test]
fn why_it_ended_is_told() {
    for (delta, expected) in [
        (r#"{"stop_reason":"max_tokens","stop_sequence":null}"#, json!(["max_tokens", null])),
        (r#"{"stop_reason":"stop_sequence","stop_sequence":"\n\nEND"}"#, json!(["stop_sequence", "\n\nEND"])),
        (r#"{"stop_reason":"refusal","stop_sequence":null}"#, json!(["refusal", null])),
        (r#"{"stop_reason":7,"stop_sequence":[]}"#, json!([null, null])),
    ] {
        let end = format!(r#"{{"type":"message_delta","delta":{delta},"usage":{{"output_tokens":2}}}}"#);
        let reply = assembled([START, &end, STOP]);
        assert_eq!(json!([reply["stop_reason"], reply["stop_sequence"]]), expected, "{delta}");
        assert_eq!(reply["content"], json!([]));
    }
}

#[test]
fn what_the_end_adds_is_merged_over_what_was_begun_with() {
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","container":{"id":"c"}},"usage":{"input_tokens":null,"cache_read_input_tokens":7,"output_tokens":3,"server_tool_use":{"web_search_requests":1}},"context_management":{"applied_edits":[]}}"#;
    let expected = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [],
        "stop_reason": "end_turn", "stop_sequence": null, "container": {"id": "c"},
        "usage": {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 7, "output_tokens": 3,
            "service_tier": "standard", "server_tool_use": {"web_search_requests": 1}},
        "context_management": {"applied_edits": []},
    });
    assert_eq!(assembled([START, end, STOP]), expected);
}

#[test]
fn a_stream_of_which_parts_are_missing_makes_what_it_can() {
    let delta =
        |index: u32, delta: &str| format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#);
    let events = [
        delta(0, r#"{"type":"thinking_delta","thinking":"h"}"#),
        delta(1, &text("a")),
        delta(1, &text("b")),
        delta(2, &json_part("{}")),
    ];
    let expected = json!({
        "type": "message", "role": "assistant",
        "content": [{"type": "thinking", "thinking": "h"}, {"type": "text", "text": "ab"}],
        "stop_reason": null, "stop_sequence": null,
    });
    assert_eq!(assembled(events.iter().map(String::as_str)), expected);
    // Two blocks of one index are two blocks.
    let twice = [
        block(0, r#"{"type":"text","text":""}"#, &[&text("a")]),
        block(0, r#"{"type":"text","text":""}"#, &[&text("b")]),
    ];
    assert_eq!(content(&twice), json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]));
    let whole = r#"{"type":"message","id":"x","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"stop_reason":"end_turn"}"#;
    let reply = fed([whole]);
    assert_eq!(reply.standing(1, true), Standing::Whole);
    assert_eq!(assembled([whole])["content"][1]["text"], "b");
}

#[test]
fn an_events_name_tells_its_type_where_its_data_does_not() {
    let mut reply = fed([]);
    reply.event(b"message_start", br#"{"message":{"id":"x"}}"#);
    reply.event(b"content_block_delta", br#"{"index":0,"delta":{"type":"text_delta","text":"a"}}"#);
    reply.event(b"message_delta", br#"{"type":"ping","delta":{"stop_reason":"end_turn"}}"#);
    assert_eq!(reply.standing(1, true), Standing::Half);
    reply.event(b"message_stop", b"{}");
    assert_eq!((reply.standing(1, true), reply.json().contains(r#""text":"a""#)), (Standing::Whole, true));
    for data in [r#"{"message":"busy"}"#, "busy"] {
        let mut reply = fed([START]);
        reply.event(b"error", data.as_bytes());
        assert_eq!((reply.standing(1, true), reply.error()), (Standing::Error, Some(data)));
    }
}

#[test]
fn a_field_of_the_wrong_type_says_nothing() {
    for delta in [
        "7",
        "null",
        "[]",
        r#"{"type":"text_delta","text":7}"#,
        r#"{"type":"text_delta","text":{"a":1},"other":1}"#,
        r#"{"type":"citations_delta"}"#,
        r#"{"type":"input_json_delta","text":"x"}"#,
        r#"{"type":7,"lit":null}"#,
    ] {
        let block = block(0, r#"{"type":"text","text":"a"}"#, &[delta, &text("b")]);
        let said = content(&[block]);
        assert_eq!((&said[0]["type"], &said[0]["text"]), (&json!("text"), &json!("ab")), "{delta}");
    }
    for event in ["7", "[]", "{", r#"{"type":7}"#, r#"{"type":"content_block_start","content_block":[]}"#, "{}"] {
        assert_eq!(fed([event]).standing(1, true), Standing::Half, "{event}");
    }
}

#[test]
fn how_a_stream_stands() {
    let end = ended("end_turn");
    let word = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    for (events, in_order, expected) in [
        (&[START, word, &end, STOP][..], true, Standing::Whole),
        (&[START, word, &end], false, Standing::Whole),
        (&[START, word, &end, error], true, Standing::Whole),
        (&[START, word, STOP], false, Standing::Whole),
        (&[START, word, "[DONE]"], false, Standing::Whole),
        (&[START, word, error], true, Standing::Error),
        (&[error], true, Standing::Error),
        (&[r#"{"error":{"message":"m"}}"#], true, Standing::Error),
        (&[r#"{"type":"ping","error":null}"#, r#"{"type":"x","error":{}}"#], true, Standing::Half),
        (&[START, word], true, Standing::Half),
        (&[START], true, Standing::Half),
        (&[STOP], true, Standing::Half),
        (&[], true, Standing::Half),
    ] {
        assert_eq!(fed(events.iter().copied()).standing(1, in_order), expected, "{events:?}");
    }
    assert_eq!(fed([error]).error(), Some(error));
}

#[test]
fn what_is_kept_is_bounded() {
    let event = format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{}"}}}}"#,
        "x".repeat(1 << 20)
    );
    assert!(!fed((0..15).map(|_| &*event)).is_too_large());
    let reply = fed((0..17).map(|_| &*event));
    assert!(reply.is_too_large() && reply.is_over() && reply.json().len() <= LARGEST + 1024);
    // What is said again and again, and counts once, never exceeds it; what is many does in the end.
    let padding = "x".repeat(1 << 16);
    let event = format!(
        r#"{{"type":"message_delta","delta":{{"x":{{"y":"{padding}"}}}},"usage":{{"x":"{padding}"}},"z":"{padding}"}}"#
    );
    let reply = fed((0..600).map(|_| &*event));
    assert!(!reply.is_too_large() && reply.json().len() < 4 * padding.len());
    let mut reply = fed([]);
    let event = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text"}}"#;
    let most = (0..300_000).find(|_| {
        reply.event(b"", event.as_bytes());
        reply.is_too_large()
    });
    assert!(most.is_some());
}

proptest! {
    /// Whatever comes, nothing panics and what is made is JSON with what whole replies must have.
    #[test]
    fn anything_makes_a_reply(events in prop::collection::vec(event(), 0..8)) {
        let reply = assembled(events.iter().map(String::as_str));
        prop_assert_eq!(&reply["type"], "message");
        prop_assert!(reply["content"].as_array().is_some_and(|blocks| blocks.iter().all(Value::is_object)));
        prop_assert!(reply["stop_reason"].is_null() || reply["stop_reason"].is_string());
    }
}

fn event() -> impl Strategy<Value = String> {
    let value = || {
        prop::sample::select(vec![
            "null",
            "7",
            r#""a""#,
            r#""{\"a\":""#,
            "[]",
            "{}",
            r#"[{"type":"text"}]"#,
            r#"{"type":"text","text":7}"#,
            r#"{"type":"text_delta","text":"a"}"#,
            r#"{"type":"input_json_delta","partial_json":"{"}"#,
            r#"{"type":"citations_delta","citation":1}"#,
            r#"{"type":"x_delta","input":"a","citations":"b"}"#,
            r#"{"content":[{"input":1}],"usage":{"a":1},"stop_reason":"x"}"#,
        ])
    };
    let kind = prop::sample::select(vec![
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "message",
        "error",
        "x",
    ]);
    (kind, 0..3, value(), value(), value(), value()).prop_map(|(kind, index, message, block, delta, usage)| {
        format!(
            r#"{{"type":"{kind}","index":{index},"message":{message},"content_block":{block},"delta":{delta},"usage":{usage},"content":{message}}}"#
        )
    })
}
