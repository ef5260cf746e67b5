//! Replies of which something cannot be looked at: they pass, and what was not seen is not reported.

use serde_json::json;
use streamgauge::measure::CAP;

use crate::support::client::Ended;
use crate::support::metrics::Scrape;
use crate::support::stage::{Proxy, one_backend};
use crate::support::upstream::{Conn, Upstream};
use crate::{FINISH, STREAM, TOKEN, WHOLE, post};

/// What compress(1) begins with, a coding that is not read, and what would mislead whoever took it for text.
const ZIPPED: &[u8] = b"\x1f\x9d\x90data: [DONE]\n\n";

fn begin_zipped(conn: &mut Conn, kind: &str) {
    conn.send(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: compress\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
    conn.send(format!("{:x}\r\n", ZIPPED.len()));
    conn.send(ZIPPED);
    conn.send("\r\n");
}

fn anomalies(scrape: &Scrape, kind: &str) -> f64 {
    scrape.sum("stream_anomalies_total", &[("kind", kind)])
}

#[test]
fn a_reply_of_an_unknown_coding_is_ok_and_left_midway_it_is_a_cancel() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let kinds = [(STREAM, "text/event-stream"), (WHOLE, "application/json")];
    for (count, (body, kind)) in kinds.into_iter().enumerate() {
        let mut client = proxy.client();
        client.send(post("/v1/chat/completions", &[("accept-encoding", "gzip")], body));
        let mut conn = upstream.accept();
        assert!(conn.request().head.contains("accept-encoding: gzip\r\n"));
        begin_zipped(&mut conn, kind);
        conn.send("0\r\nx-last: 1\r\n\r\n");
        let reply = client.reply();
        assert_eq!(
            (reply.header("content-encoding"), &*reply.body, reply.ended),
            (Some("compress"), ZIPPED, Ended::Complete)
        );
        assert_eq!(proxy.outcome(2 * count + 1), "ok", "{kind}");

        client.send(post("/v1/chat/completions", &[], body));
        conn.request();
        begin_zipped(&mut conn, kind);
        client.until(ZIPPED).expect("what is there");
        drop(client);
        conn.closed_by_peer();
        assert_eq!(proxy.outcome(2 * count + 2), "client_cancel", "{kind}");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(anomalies(&scrape, "content_encoding"), 4.0);
    assert!(!scrape.text.contains("first_token_seconds"), "{}", scrape.text);
}

#[test]
fn a_document_too_large_to_keep_is_ok_and_said() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", &[], WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    let document = json!({"choices": [{"message": {"content": "x".repeat(CAP)}}]}).to_string();
    conn.answer(&document);
    assert!(client.reply().body == document.as_bytes());
    assert_eq!(proxy.outcome(1), "ok");
    assert_eq!(anomalies(&proxy.idle_scrape(), "oversized_reply"), 1.0);
}

#[test]
fn a_whole_reply_that_confirms_nothing_is_not_ok() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let mut conn = None;
    let bodies = ["<html>welcome to the hotel</html>", r#"{"choices":[]}"#, "{", " \n ", ""];
    for (count, body) in bodies.into_iter().enumerate() {
        client.send(post("/v1/chat/completions", &[], WHOLE));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        conn.request();
        conn.answer(body);
        assert_eq!(client.reply().body, body.as_bytes());
        assert_eq!(proxy.outcome(count + 1), "unconfirmed", "{body:?}");
    }
}

#[test]
fn an_event_too_large_to_read_hides_only_what_it_could_have_been() {
    let upstream = Upstream::bind();
    let slo = "[[slo]]\nname = \"generous\"\nttft_ms = 600000\ntpot_ms = 600000\n";
    let proxy = Proxy::start(&(one_backend(upstream.addr(), "") + slo));
    let large = TOKEN.replace("\"a\"", &format!("{:?}", "x".repeat(CAP)));
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3}}"#;
    let mut client = proxy.client();
    let mut conn = None;
    // How often each was observed by then: client TTFT, SLO, TGS.
    for (events, expected) in [
        ([&*large, TOKEN, TOKEN], [0.0, 0.0, 1.0]),
        ([TOKEN, TOKEN, &*large], [1.0, 1.0, 1.0]),
        ([TOKEN, TOKEN, TOKEN], [2.0, 2.0, 2.0]),
    ] {
        client.send(post("/v1/chat/completions", &[], STREAM));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        conn.request();
        conn.begin_stream();
        for event in events.into_iter().chain([FINISH, usage, "[DONE]"]) {
            conn.event(event);
        }
        conn.end_stream();
        assert_eq!(client.reply().ended, Ended::Complete);
        let scrape = proxy.idle_scrape();
        let seen = [
            scrape.sum("time_to_first_token_seconds_count", &[("vantage", "client")]),
            scrape.sum("slo_requests_total", &[]),
            scrape.sum("output_tokens_per_second_count", &[]),
        ];
        assert_eq!(seen, expected);
    }
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("ok"), anomalies(&scrape, "oversized_event")), (3.0, 2.0));
    assert_eq!(scrape.sum("slo_requests_total", &[("met", "true")]), 2.0);
}

#[test]
fn a_whole_reply_has_tokens_and_a_duration_and_no_times_of_a_stream() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let mut conn = None;
    let mut tokens = 0.0;
    for (message, shown) in [(json!({"content": "a"}), 6.0), (json!({"content": "a", "reasoning_content": "hm"}), 10.0)]
    {
        client.send(post("/v1/chat/completions", &[], WHOLE));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        conn.request();
        let usage = json!({"prompt_tokens": 7, "completion_tokens": 10,
                           "completion_tokens_details": {"reasoning_tokens": 4}});
        let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
        conn.answer(&json!({"choices": choices, "usage": usage}).to_string());
        assert_eq!(client.reply().status, 200);
        tokens += shown;
        let source = [("source", "usage")];
        assert_eq!(proxy.idle_scrape().sum("output_tokens_sum", &source), tokens, "{message}");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("tokens_total", &[("type", "output")]), 20.0);
    assert_eq!(scrape.sum("prompt_tokens_count", &[]), 2.0);
    assert_eq!(scrape.sum("request_duration_seconds_count", &[("stream", "false")]), 2.0);
    for name in ["time_to_headers_seconds", "time_to_first_event_seconds", "first_token_seconds", "stall_seconds"] {
        assert!(!scrape.text.contains(name), "{name}: {}", scrape.text);
    }
}
