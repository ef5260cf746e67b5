//! Streams as upstreams send them, and the whole reply each is the parts of, written by hand.

use serde_json::{Value, json};
use streamgauge::backend::sim::{Script, SimConfig};

use crate::support::stage::{Proxy, spawn};
use crate::{MEASURED, WHOLE, post};

fn chunk(delta: &str, finish: &str) -> String {
    chunk_of(0, delta, finish)
}

fn chunk_of(index: u32, delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m-1\",\
         \"choices\":[{{\"index\":{index},\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
    )
}

fn word(text: &str) -> String {
    chunk(&format!(r#"{{"content":"{text}"}}"#), "null")
}

fn role() -> String {
    chunk(r#"{"role":"assistant","content":""}"#, "null")
}

fn stop() -> String {
    chunk("{}", r#""stop""#)
}

const DONE: &str = "data: [DONE]\n\n";
const USAGE: &str = "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n";

/// A reply with this message of its only choice, and nothing said of usage.
fn reply(message: impl Into<Value>, finish: &str) -> Value {
    json!({
        "id": "c1", "object": "chat.completion", "created": 7, "model": "m-1",
        "choices": [{"index": 0, "message": message.into(), "logprobs": null, "finish_reason": finish}],
    })
}

fn says(content: &str) -> Value {
    json!({"role": "assistant", "content": content, "refusal": null})
}

fn with(mut reply: Value, key: &str, value: Value) -> Value {
    reply[key] = value;
    reply
}

fn counted(reply: Value) -> Value {
    with(reply, "usage", json!({"prompt_tokens": 9, "completion_tokens": 3}))
}

/// Events one after the other, and what they make.
#[allow(clippy::too_many_lines)] // one table, in one place, is the point
fn cases() -> Vec<(&'static str, String, Value)> {
    let two = || [role(), word("hel"), word("lo"), stop(), DONE.to_owned()].concat();
    let call = |call: &str| chunk(&format!(r#"{{"tool_calls":[{{"index":0,{call}}}]}}"#), "null");
    let filter =
        r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0}]}"#;
    let both = |index: u32, text: &str| chunk_of(index, &format!(r#"{{"content":"{text}"}}"#), "null");
    vec![
        ("plain", two(), reply(says("hello"), "stop")),
        ("crlf", two().replace('\n', "\r\n"), reply(says("hello"), "stop")),
        ("cr", two().replace('\n', "\r"), reply(says("hello"), "stop")),
        ("no_space", two().replace("data: ", "data:"), reply(says("hello"), "stop")),
        ("mark", format!("\u{feff}{}", two()), reply(says("hello"), "stop")),
        ("two_lines", two().replace(",\"choices\"", ",\ndata: \"choices\""), reply(says("hello"), "stop")),
        (
            "fields",
            two().replace("data: {", "id: 1\nevent: message\nretry: 3\n: c\ndata: {"),
            reply(says("hello"), "stop"),
        ),
        (
            "wide",
            [&*word("a\u{2028}b"), &word("\u{85}水"), &word("🌊"), &stop(), DONE].concat(),
            reply(says("a\u{2028}b\u{85}水🌊"), "stop"),
        ),
        (
            "escapes",
            [&*word(r#"\"\\n\u00e9"#), &word(r"\ud83c"), &word(r"\udf0a"), &stop()].concat(),
            reply(says("\"\\né🌊"), "stop"),
        ),
        (
            "usage",
            [&*role(), &word("a b"), &word("c"), &stop(), USAGE, DONE].concat(),
            counted(reply(says("a bc"), "stop")),
        ),
        (
            "filter",
            [&*format!("data: {filter}\n\n"), &word("a"), &stop()].concat(),
            with(reply(says("a"), "stop"), "prompt_filter_results", json!([{"prompt_index": 0}])),
        ),
        (
            "junk",
            [
                "data: [PING]\n\n",
                ": x\n\n",
                "data:\n\n",
                &word("a"),
                "data: 42\n\nnot a field\n\n",
                &word("b"),
                &stop(),
                DONE,
            ]
            .concat(),
            reply(says("ab"), "stop"),
        ),
        ("nothing", [role(), stop(), USAGE.to_owned()].concat(), counted(reply(says(""), "stop"))),
        ("length", [word("a"), chunk(r#"{"content":"b"}"#, r#""length""#)].concat(), reply(says("ab"), "length")),
        ("unterminated", [&*word("a"), stop().trim_end()].concat(), reply(says("a"), "stop")),
        (
            "reasoning",
            [
                &*role(),
                &chunk(r#"{"reasoning_content":"h","content":null}"#, "null"),
                &chunk(r#"{"reasoning_content":"m"}"#, "null"),
                &word("a"),
                &stop(),
                DONE,
            ]
            .concat(),
            reply(json!({"role": "assistant", "content": "a", "refusal": null, "reasoning_content": "hm"}), "stop"),
        ),
        (
            "tools",
            [
                &*chunk(r#"{"role":"assistant","content":null}"#, "null"),
                &call(r#""id":"call_1","type":"function","function":{"name":"level","arguments":""}"#),
                &call(r#""function":{"arguments":"{\"river\":"}"#),
                &call(r#""function":{"arguments":"\"Rhine\"}"}"#),
                &chunk("{}", r#""tool_calls""#),
                DONE,
            ]
            .concat(),
            reply(
                json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "level", "arguments": "{\"river\":\"Rhine\"}"}},
                ]}),
                "tool_calls",
            ),
        ),
        (
            "refusal",
            [
                &*chunk(r#"{"role":"assistant","content":null,"refusal":"I"}"#, "null"),
                &chunk(r#"{"refusal":" won't"}"#, "null"),
                &stop(),
            ]
            .concat(),
            reply(json!({"role": "assistant", "content": null, "refusal": "I won't"}), "stop"),
        ),
        (
            "two_choices",
            [
                both(1, "x"),
                both(0, "a"),
                both(1, "y"),
                chunk_of(1, "{}", r#""stop""#),
                both(0, "b"),
                chunk_of(0, "{}", r#""length""#),
            ]
            .concat(),
            json!({
                "id": "c1", "object": "chat.completion", "created": 7, "model": "m-1",
                "choices": [
                    {"index": 0, "message": says("ab"), "logprobs": null, "finish_reason": "length"},
                    {"index": 1, "message": says("xy"), "logprobs": null, "finish_reason": "stop"},
                ],
            }),
        ),
        ("large", [word(&"x".repeat(3 << 20)), stop()].concat(), reply(says(&"x".repeat(3 << 20)), "stop")),
    ]
}

#[test]
fn every_stream_becomes_the_reply_that_it_is_the_parts_of() {
    let mut config = SimConfig::default();
    for (name, stream, _) in cases() {
        config.scripts.named.insert(name.to_owned(), Script::sending(stream.into_bytes()));
    }
    let sim = spawn(config);
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let mut client = proxy.client();
    for (name, _, expected) in cases() {
        // A model each: one whose streams lack usage is not asked for another.
        let got =
            client.ask(post(&[("x-sim", &format!("script={name}"))], &WHOLE.replace("\"m\"", &format!("{name:?}"))));
        assert_eq!(got.status, 200, "{name}: {}", String::from_utf8_lossy(&got.body));
        assert!(got.json() == expected, "{name}: {}\n{expected}", String::from_utf8_lossy(&got.body));
    }
}
