use super::*;
use crate::backend::sim::dialect::Dialect;
use crate::backend::sim::dialect::testing::{Replied, replied};
use crate::backend::sim::text::text_of;

fn reply(sim: &str) -> Replied {
    let body = json!({
        "model": "m", "stream": true, "max_tokens": 100,
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "a"}]}]}],
        "tools": [{"name": "find", "input_schema": {}}],
    });
    replied(Dialect::Messages, &body, sim)
}

/// The blocks that a client puts together from a stream.
fn gathered(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut json = String::new();
    for event in events {
        match event["type"].as_str() {
            Some("content_block_start") => {
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
            }
            Some("content_block_delta") => {
                assert_eq!(event["index"], blocks.len() - 1);
                let (delta, block) = (&event["delta"], blocks.last_mut().expect("an open block"));
                for field in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[field].as_str() {
                        block[field] = format!("{}{more}", block[field].as_str().unwrap_or_default()).into();
                    }
                }
                json += delta["partial_json"].as_str().unwrap_or_default();
            }
            Some("content_block_stop") if !json.is_empty() => {
                blocks.last_mut().expect("an open block")["input"] = serde_json::from_str(&json).expect("JSON");
            }
            _ => {}
        }
    }
    blocks
}

#[test]
fn a_stream_has_these_bytes() {
    let replied = reply("tokens=3,reasoning=1,tokens_per_event=2,hidden=4");
    assert_eq!(
        replied.stream,
        [
            "event: message_start\n\
             data: {\"type\":\"message_start\",\"message\":{\"content\":[],\"id\":\"msg_7\",\"model\":\"m\",\"role\":\"assistant\",\
             \"stop_reason\":null,\"stop_sequence\":null,\"type\":\"message\",\"usage\":{\"cache_creation_input_tokens\":0,\
             \"cache_read_input_tokens\":0,\"input_tokens\":3,\"output_tokens\":1}}}",
            "event: content_block_start\n\
             data: {\"type\":\"content_block_start\",\"content_block\":{\"signature\":\"\",\"thinking\":\"\",\"type\":\"thinking\"},\"index\":0}",
            "event: ping\n\
             data: {\"type\":\"ping\"}",
            "event: content_block_delta\n\
             data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"川\"}}",
            "event: content_block_delta\n\
             data: {\"type\":\"content_block_delta\",\"delta\":{\"signature\":\"c2lnbmVkIGJ5IGEgc2ltdWxhdGlvbg==\",\"type\":\"signature_delta\"},\"index\":0}",
            "event: content_block_stop\n\
             data: {\"type\":\"content_block_stop\",\"index\":0}",
            "event: content_block_start\n\
             data: {\"type\":\"content_block_start\",\"content_block\":{\"text\":\"\",\"type\":\"text\"},\"index\":1}",
            "event: content_block_delta\n\
             data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\" current\"}}",
            "event: content_block_delta\n\
             data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\" strong\"}}",
            "event: content_block_stop\n\
             data: {\"type\":\"content_block_stop\",\"index\":1}",
            "event: message_delta\n\
             data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\
             \"usage\":{\"output_tokens\":7,\"output_tokens_details\":{\"thinking_tokens\":5}}}",
            "event: message_stop\n\
             data: {\"type\":\"message_stop\"}",
            "",
        ]
        .join("\n\n")
    );
    assert_eq!(replied.logged(), "Role Part Part Reasoning(1) Part Part Part Token(1) Token(1) Part Finish Done");
}

#[test]
fn a_whole_reply_is_its_stream_put_together() {
    for (sim, stop) in [
        ("tokens=3", "end_turn"),
        ("tokens=5,reasoning=2,tokens_per_event=3,role_first=1", "end_turn"),
        ("tokens=120", "max_tokens"),
        ("tokens=4,reasoning=9", "end_turn"),
        ("tokens=0", "end_turn"),
        ("tokens=6,tool=1", "tool_use"),
        ("tokens=6,reasoning=1,tool=1", "tool_use"),
        ("tokens=3,refusal=1", "refusal"),
    ] {
        let replied = reply(sim);
        let events = replied.events();
        assert_eq!(json!(gathered(&events)), replied.whole["content"], "{sim}");
        let delta = events.iter().find(|event| event["type"] == "message_delta").expect("a stop");
        assert_eq!(
            (&delta["delta"]["stop_reason"], &replied.whole["stop_reason"]),
            (&json!(stop), &json!(stop)),
            "{sim}"
        );
        assert_eq!(delta["usage"]["output_tokens"], replied.whole["usage"]["output_tokens"], "{sim}");
        assert_eq!(replied.whole["usage"]["input_tokens"], 3);
    }
    let called = reply("tokens=3,reasoning=1,tool=1");
    assert_eq!(called.logged(), "Role Part Part Reasoning(1) Part Part Token Token(1) Token(1) Part Finish Done");
    let call = &reply("tokens=6,reasoning=1,tool=1").whole["content"][1];
    assert_eq!((&call["name"], &call["input"]), (&json!("find"), &json!({"text": text_of(0, 1..6)})));
}

#[test]
fn what_is_left_out_is_left_out() {
    let last = |sim| reply(sim).logged().split(' ').skip(3).collect::<Vec<_>>().join(" ");
    assert_eq!(last("tokens=1"), "Token(1) Part Finish Done");
    assert_eq!(last("tokens=1,no_done=1"), "Token(1) Part Finish");
    assert_eq!(last("tokens=1,no_finish=1"), "Token(1) Part Usage Done");
    assert_eq!(last("tokens=1,no_finish=1,usage=never"), "Token(1) Part Done");
    assert_eq!(last("tokens=2,error_after=1"), "Token(1) Error");
    assert_eq!(last("tokens=1,end=truncate"), "Token(1)");
    let unfinished = reply("tokens=2,no_finish=1").events();
    let delta = unfinished.iter().find(|event| event["type"] == "message_delta").expect("usage");
    assert_eq!((&delta["delta"]["stop_reason"], &delta["usage"]["output_tokens"]), (&Value::Null, &json!(2)));
    assert!(!reply("tokens=2,usage=never").stream.contains("output_tokens"));
    let error = reply("error_after=0").events().pop();
    assert_eq!(error, Some(json!({"type": "error", "error": {"type": "overloaded_error", "message": BREAKDOWN}})));
}

#[test]
fn errors_have_the_types_of_their_statuses() {
    for (status, kind) in [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ] {
        let expected = json!({"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "r"});
        assert_eq!(error(status, "no", "r"), expected);
    }
}
