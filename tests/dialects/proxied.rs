//! The other dialects through the whole proxy, over real sockets: what its clients get and what its metrics say.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

use std::time::Duration;

use streamgauge::measure::Exchange;

use super::named;
use crate::support::metrics::Scrape;
use crate::support::stage::Proxy;
use crate::support::upstream::Upstream;

/// One limit that is never met, as pieces come two milliseconds apart; for each time one that always is, and for both.
const OBJECTIVES: &str = "[[slo]]\nname = \"never\"\nttft_ms = 1\ntpot_ms = 600000\n\
    [[slo]]\nname = \"ttft\"\nttft_ms = 600000\n[[slo]]\nname = \"tpot\"\ntpot_ms = 600000\n\
    [[slo]]\nname = \"both\"\nttft_ms = 600000\ntpot_ms = 600000\n";

/// What the proxy measured of one request to `path`, which was answered so, event by event.
fn measured(path: &str, content_type: &str, pieces: &[String]) -> (Exchange, Scrape) {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), OBJECTIVES);
    let mut client = proxy.client();
    let request = r#"{"model":"m","stream":true}"#;
    client.send(format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{request}",
        request.len()
    ));
    let mut conn = upstream.accept();
    assert_eq!(conn.request().body, request.as_bytes());
    let body = pieces.concat();
    conn.send(format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n", body.len()));
    let sending = std::thread::spawn({
        let pieces = pieces.to_vec();
        move || {
            for piece in pieces {
                conn.send(piece);
                std::thread::sleep(Duration::from_millis(2));
            }
            conn
        }
    });
    let reply = client.reply();
    assert!(reply.body == body.as_bytes(), "the client got other bytes");
    let _conn = sending.join().expect("sent");
    let exchange = proxy.finished(1).remove(0);
    (exchange, proxy.idle_scrape())
}

fn events(data: &[&str]) -> Vec<String> {
    data.iter().map(|data| named(data)).collect()
}

#[test]
fn messages() {
    let word = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#;
    let start = r#"{"type":"message_start","message":{"model":"served","usage":{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":1}}}"#;
    let redacted = r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking"}}"#;
    for (more, tpot) in [(r#"{"type":"ping"}"#, 1.0), (redacted, 0.0)] {
        let pieces = events(&[start, more, word, word, word, end, r#"{"type":"message_stop"}"#]);
        let (exchange, scrape) = measured("/v1/messages", "text/event-stream", &pieces);
        assert_eq!((exchange.outcome.label(), exchange.token_events), ("ok", 3));
        assert_eq!(exchange.model_served.as_deref(), Some("served"));
        let labels = |kind| [("operation", "messages"), ("type", kind), ("source", "usage")];
        let tokens = ["input", "cached", "output"].map(|kind| scrape.sum("tokens_total", &labels(kind)));
        assert_eq!(tokens, [9.0, 4.0, 7.0]);
        // The rate is what usage says; the time per token is not known of tokens that no event shows.
        assert_eq!(scrape.sum("output_tokens_per_second_count", &[("source", "usage")]), 1.0);
        assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[]), tpot);
        assert_eq!(scrape.sum("inter_token_latency_seconds_count", &[]), 2.0);
    }
}

#[test]
fn a_tpot_that_nobody_knows_neither_meets_a_limit_nor_misses_it() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":5}}}"#;
    let word = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word"}}"#;
    let redacted = r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking"}}"#;
    let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#;
    let one = end.replace('7', "1");
    let [whole, hidden, one_token] =
        [vec![start, word, word, end], vec![start, redacted, word, word, end], vec![start, word, &one]];
    for (data, judged) in [(whole, 1.0), (hidden, 0.0), (one_token, 1.0)] {
        let pieces = events(&data);
        let (_, scrape) = measured("/v1/messages", "text/event-stream", &pieces);
        let of = |slo, met| scrape.sum("slo_requests_total", &[("slo", slo), ("met", met)]);
        for (slo, met, missed) in
            [("never", 0.0, 1.0), ("ttft", 1.0, 0.0), ("tpot", judged, 0.0), ("both", judged, 0.0)]
        {
            assert_eq!([of(slo, "true"), of(slo, "false")], [met, missed], "{slo} of {data:?}");
        }
    }
}

#[test]
fn responses() {
    let word = r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"word"}"#;
    let said = r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"wordword"}"#;
    let end = r#"{"type":"response.completed","response":{"model":"served","status":"completed","output":[],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3}}}}"#;
    let summary = r#"{"type":"response.reasoning_summary_text.delta","summary_index":0,"delta":"hm"}"#;
    let ping = r#"{"type":"keepalive"}"#;
    for (more, output, tpot, itl) in [(ping, 4, 1.0, 1.0), (summary, 4, 0.0, 2.0)] {
        let pieces = events(&[more, word, word, said, end]);
        let (exchange, scrape) = measured("/v1/responses", "text/event-stream", &pieces);
        assert_eq!(exchange.outcome.label(), "ok");
        assert_eq!(exchange.output.map(|output| output.count), Some(output));
        let labels = |kind| [("operation", "responses"), ("type", kind), ("source", "usage")];
        let tokens = ["input", "cached", "reasoning"].map(|kind| scrape.sum("tokens_total", &labels(kind)));
        assert_eq!(tokens, [5.0, 4.0, 3.0]);
        assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[]), tpot);
        assert_eq!(scrape.sum("inter_token_latency_seconds_count", &[]), itl);
    }
}

#[test]
fn completions() {
    let word = "data: {\"choices\":[{\"index\":0,\"text\":\"word\",\"finish_reason\":null}]}\n\n".to_owned();
    let end = "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n".to_owned();
    let pieces = [word.clone(), word, end, "data: [DONE]\n\n".to_owned()];
    let (exchange, scrape) = measured("/v1/completions", "text/event-stream", &pieces);
    assert_eq!((exchange.outcome.label(), exchange.token_events), ("ok", 2));
    let labels = [("operation", "completion"), ("type", "output"), ("source", "events")];
    assert_eq!(scrape.sum("tokens_total", &labels), 2.0);
}

#[test]
fn embeddings_and_rankings_larger_than_an_observer_keeps() {
    let numbers = "0.0123456789,".repeat(200_000);
    for (path, list, operation) in [("/v1/embeddings", "data", "embeddings"), ("/v1/rerank", "results", "rerank")] {
        let document = format!(r#"{{"{list}":[[{numbers}1]],"usage":{{"prompt_tokens":8,"total_tokens":8}}}}"#);
        assert!(document.len() > 2 * 1024 * 1024);
        let (exchange, scrape) = measured(path, "application/json", &[document]);
        assert_eq!((exchange.outcome.label(), exchange.output), ("ok", None), "{path}");
        let labels = [("operation", operation), ("type", "input"), ("source", "usage")];
        assert_eq!(scrape.sum("tokens_total", &labels), 8.0, "{path}");
        // It was asked for as a stream, and came as a document: nothing else is odd.
        assert_eq!(scrape.sum("stream_anomalies_total", &[]), 1.0, "{path}");
        assert_eq!(scrape.sum("stream_anomalies_total", &[("kind", "json_for_stream")]), 1.0, "{path}");
    }
}
