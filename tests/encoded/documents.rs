//! Whole replies, compressed.

use serde_json::json;
use streamgauge::measure::CAP;

use super::codings::encoded;
use super::{STREAM, WHOLE, begin, chunk, event, every_coding, header, post};
use crate::support::stage::Proxy;
use crate::support::upstream::Upstream;

fn document(content: &str) -> String {
    let choices = json!([{"index": 0, "message": {"content": content}, "finish_reason": "stop"}]);
    json!({"model": "served", "choices": choices, "usage": {"prompt_tokens": 7, "completion_tokens": 10}}).to_string()
}

#[test]
fn a_whole_reply_is_read_in_any_coding() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let mut conn = None;
    for (count, codings) in every_coding().enumerate() {
        client.send(post(WHOLE));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        conn.request();
        // Long enough to be decoded in pieces.
        let body = encoded(codings, &[document(&"word ".repeat(9000))]).concat();
        let (length, coding) = (body.len(), header(codings));
        conn.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {coding}\r\n\
             content-length: {length}\r\n\r\n"
        ));
        conn.send(&body);
        assert!(client.reply().body == body, "{codings}");
        let exchange = &proxy.finished(count + 1)[count];
        let output = exchange.output.expect("counted");
        assert_eq!(
            (exchange.outcome.label(), exchange.prompt_tokens(), output.count),
            ("ok", Some(7), 10),
            "{codings}"
        );
        assert_eq!(exchange.model_served.as_deref(), Some("served"), "{codings}");
        assert_eq!(exchange.anomalies.seen().count(), 0, "{codings}");
    }
}

#[test]
fn the_first_decoded_byte_tells_events_from_a_document() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let events = event(r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#);
    for (count, (body, kind)) in
        [(events, "mislabelled_stream"), (document("a"), "json_for_stream")].into_iter().enumerate()
    {
        let mut client = proxy.client();
        client.send(post(STREAM));
        let mut conn = upstream.accept();
        conn.request();
        begin(&mut conn, "text/plain", "gzip");
        for part in encoded("gzip", &[body]) {
            chunk(&mut conn, &part);
        }
        conn.end_stream();
        client.reply();
        let exchange = &proxy.finished(count + 1)[count];
        let seen: Vec<_> = exchange.anomalies.seen().map(|(kind, count)| (kind.label(), count)).collect();
        assert_eq!((exchange.outcome.label(), seen), ("ok", vec![(kind, 1)]));
    }
}

#[test]
fn a_document_is_too_large_by_what_it_becomes() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let body = encoded("gzip", &[document(&"x".repeat(CAP))]).concat();
    assert!(body.len() < CAP / 100);
    let mut client = proxy.client();
    client.send(post(WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    begin(&mut conn, "application/json", "gzip");
    chunk(&mut conn, &body);
    conn.end_stream();
    assert!(client.reply().body == body);
    let exchange = &proxy.finished(1)[0];
    let seen: Vec<_> = exchange.anomalies.seen().map(|(kind, count)| (kind.label(), count)).collect();
    assert_eq!((exchange.outcome.label(), seen), ("ok", vec![("oversized_reply", 1)]));
}
