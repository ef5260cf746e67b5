//! N by the tokenizer: of every kind of output, where usage is absent, and where it is not.

use std::time::Duration;

use serde_json::{Value, json};
use streamgauge::measure::CAP;

use super::codings::encoded;
use super::{STREAM, Stage, content, delta, finish, output, prompt};
use crate::support::client::Ended;

fn usage(usage: &Value) -> Value {
    json!({"choices": [], "usage": usage})
}

#[test]
fn words_are_counted_across_events_whatever_carries_them() {
    let mut stage = Stage::new();
    let call = |call: Value| delta(0, &json!({"tool_calls": [call]}));
    let cases: Vec<(&str, Vec<Value>, u64)> = vec![
        ("split words", vec![content("hel"), content("lo wor"), content("ld")], 2),
        ("more than the file's own limit", vec![content("a b c d e "), content("f g h i j")], 10),
        ("a control token's name", vec![content("a[BOS]b"), content(" c")], 2),
        (
            "reasoning and answer",
            vec![
                delta(0, &json!({"reasoning_content": "let me"})),
                delta(0, &json!({"reasoning": " think"})),
                content("yes"),
            ],
            4,
        ),
        ("a refusal", vec![delta(0, &json!({"refusal": "I can"})), delta(0, &json!({"refusal": "not do it"}))], 4),
        (
            "two tool calls, told in turns",
            vec![
                call(
                    json!({"index": 0, "id": "x", "type": "function", "function": {"name": "look up", "arguments": ""}}),
                ),
                call(json!({"index": 1, "function": {"name": "sum", "arguments": "{\"a\": "}})),
                call(json!({"index": 0, "function": {"arguments": "{\"b\":"}})),
                call(json!({"index": 1, "function": {"arguments": "1}"}})),
            ],
            // look, up; sum; {"a":, 1}; {"b":
            6,
        ),
        ("the old function call", vec![delta(0, &json!({"function_call": {"name": "f", "arguments": "a b"}}))], 3),
        (
            "parts",
            vec![delta(0, &json!({"content": [{"type": "text", "text": "a b"}, {"type": "text", "text": " c"}]}))],
            3,
        ),
        ("nothing but blanks", vec![content("  "), content("\n")], 0),
    ];
    for (name, mut events, words) in cases {
        let carrying = events.len() as u64;
        events.insert(0, delta(0, &json!({"role": "assistant", "content": ""})));
        events.push(finish(0));
        let exchange = stage.stream(STREAM, &events);
        assert_eq!(output(&exchange), Some((words, "tokenizer")), "{name}");
        assert_eq!((exchange.token_events, exchange.outcome.label()), (carrying, "ok"), "{name}");
        assert_eq!(exchange.anomalies.seen().count(), 0, "{name}");
    }
}

#[test]
fn tpot_and_rate_stand_under_the_tokenizers_name() {
    let mut stage = Stage::new();
    let exchange = stage.stream(STREAM, &[content("one two "), content("three four five"), finish(0)]);
    let marks = exchange.marks;
    let decode = marks.last_token.expect("tokens") - marks.first_token.expect("tokens");
    assert!(!decode.is_zero());
    assert_eq!(exchange.tpot(), Some(Duration::from_secs_f64(decode.as_secs_f64() / 4.0)));
    let scrape = stage.proxy.idle_scrape();
    let by = |source| {
        let names = ["time_per_output_token_seconds_count", "output_tokens_per_second_count", "output_tokens_sum"];
        names.map(|name| scrape.sum(name, &[("source", source)]))
    };
    assert_eq!((by("tokenizer"), by("usage"), by("events")), ([1.0, 1.0, 5.0], [0.0; 3], [0.0; 3]));
    assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[("prompt", "<=32")]), 1.0);
    assert_eq!(scrape.sum("tokens_total", &[("type", "output"), ("source", "tokenizer")]), 5.0);
    assert_eq!(scrape.sum("tokens_total", &[("type", "output")]), 5.0, "no other source counts them, too");
}

#[test]
fn usage_wins_in_what_it_says() {
    let mut stage = Stage::new();
    let said = |fields: Value| [content("a b"), content(" c"), finish(0), usage(&fields)];
    let full = stage.stream(STREAM, &said(json!({"prompt_tokens": 7, "completion_tokens": 9})));
    assert_eq!((output(&full), prompt(&full)), (Some((9, "usage")), Some((7, "usage"))));
    let half = stage.stream(STREAM, &said(json!({"prompt_tokens": 7})));
    assert_eq!((output(&half), prompt(&half)), (Some((3, "tokenizer")), Some((7, "usage"))));
    let half = stage.stream(STREAM, &said(json!({"completion_tokens": 9})));
    assert_eq!((output(&half), prompt(&half)), (Some((9, "usage")), Some((3, "tokenizer"))));
    let wild = stage.stream(STREAM, &said(json!({"prompt_tokens": 7, "completion_tokens": 4_000_000_000_000_000_u64})));
    assert_eq!(output(&wild), Some((3, "tokenizer")), "a count that cannot be believed is none");
}

#[test]
fn choices_are_counted_apart_and_summed() {
    let mut stage = Stage::new();
    let request = STREAM.replace("\"model\"", "\"n\":2,\"model\"");
    let one = |index, text: &str| delta(index, &json!({"content": text}));
    let events = [one(0, "a b"), one(1, "c"), one(0, "b c"), one(1, " d"), finish(0), finish(1)];
    let exchange = stage.stream(&request, &events);
    // a, bb, c; c, d.
    assert_eq!((output(&exchange), exchange.choices, exchange.tpot()), (Some((5, "tokenizer")), 2, None));
}

#[test]
fn a_whole_reply_is_counted_too() {
    let mut stage = Stage::new();
    let message = json!({"role": "assistant", "content": "four words are here", "reasoning_content": "hm hm"});
    let document = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let exchange = stage.whole(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#, &document);
    assert_eq!((output(&exchange), prompt(&exchange)), (Some((6, "tokenizer")), Some((1, "tokenizer"))));
    assert_eq!((exchange.tpot(), exchange.outcome.label()), (None, "ok"));
}

#[test]
fn what_is_no_text_leaves_the_events_to_count() {
    let mut stage = Stage::new();
    let audio = delta(0, &json!({"audio": {"data": "AAAA"}}));
    let unknown = delta(0, &json!({"audio": {"transcript": "hm"}}));
    for odd in [audio, unknown] {
        let exchange = stage.stream(STREAM, &[content("a b c d"), odd, content("e"), finish(0)]);
        assert_eq!(output(&exchange), Some((3, "events")));
        assert_eq!(prompt(&exchange), Some((3, "tokenizer")));
        assert_eq!(exchange.anomalies.seen().count(), 0);
    }
}

#[test]
fn more_text_than_is_kept_leaves_the_events_to_count() {
    let mut stage = Stage::new();
    let piece = "word ".repeat(CAP / 10);
    let fits = stage.stream(STREAM, &[content(&piece), finish(0)]);
    assert_eq!(output(&fits), Some((CAP as u64 / 10, "tokenizer")));
    let exceeds = stage.stream(STREAM, &[content(&piece), content(&piece), content(&piece), finish(0)]);
    assert_eq!(output(&exceeds), Some((3, "events")));
}

#[test]
fn what_was_seen_before_a_client_left_is_counted() {
    let mut stage = Stage::new();
    let conn = stage.ask(STREAM);
    conn.begin_stream();
    conn.event(&content("a b c").to_string());
    let head = stage.client.head();
    assert_eq!((head.status, head.ended), (200, Ended::Complete));
    stage.client.chunk(&mut Vec::new()).expect("a chunk");
    stage.client = stage.proxy.client();
    let exchange = stage.told();
    assert_eq!((exchange.outcome.label(), output(&exchange)), ("client_cancel", Some((3, "tokenizer"))));
}

#[test]
fn a_compressed_reply_is_counted_like_any() {
    let mut stage = Stage::new();
    let events = [content("one two"), content(" three"), finish(0)].map(|event| format!("data: {event}\n\n"));
    let conn = stage.ask(STREAM);
    conn.send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: zstd\r\n\
         transfer-encoding: chunked\r\n\r\n",
    );
    for part in encoded("zstd", &events) {
        conn.send([format!("{:x}\r\n", part.len()).as_bytes(), &part[..], b"\r\n"].concat());
    }
    conn.end_stream();
    stage.client.reply();
    assert_eq!(output(&stage.told()), Some((3, "tokenizer")));
}
