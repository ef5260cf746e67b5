//! Compressed replies that cannot be decoded, or not to their end: they pass, and what was measured before is kept.

use std::thread::sleep;
use std::time::Duration;

use streamgauge::measure::Exchange;

use super::codings::{NAMES, encoded};
use super::{FINISH, STREAM, TOKEN, begin, chunk, event, every_coding, header, post};
use crate::support::client::{Ended, Reply};
use crate::support::stage::Proxy;
use crate::support::upstream::Upstream;

/// Answers with these chunks, in order, and returns what the client got and what was measured.
fn play(proxy: &Proxy, upstream: &Upstream, number: usize, coding: &str, chunks: &[Vec<u8>]) -> (Reply, Exchange) {
    let mut client = proxy.client();
    client.send(post(STREAM));
    let mut conn = upstream.accept();
    conn.request();
    begin(&mut conn, "text/event-stream", coding);
    let mut reply = client.head();
    for bytes in chunks.iter().filter(|bytes| !bytes.is_empty()) {
        chunk(&mut conn, bytes);
        // Each is a read of its own.
        client.chunk(&mut reply.body).expect("a chunk");
    }
    conn.end_stream();
    let reply = client.rest(reply);
    conn.close();
    (reply, proxy.finished(number)[number - 1].clone())
}

fn anomalies(exchange: &Exchange) -> Vec<(&'static str, u32)> {
    exchange.anomalies.seen().map(|(kind, count)| (kind.label(), count)).collect()
}

const UNDECODABLE: [(&str, u32); 1] = [("content_encoding", 1)];

#[test]
fn garbage_passes_and_counts_once() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let garbage = vec![b"\xff\xfe neither this nor that".to_vec(); 3];
    let mut count = 0;
    for coding in NAMES {
        count += 1;
        let (reply, exchange) = play(&proxy, &upstream, count, coding, &garbage);
        assert!(reply.body == garbage.concat() && reply.ended == Ended::Complete, "{coding}");
        assert_eq!((exchange.outcome.label(), anomalies(&exchange)), ("ok", UNDECODABLE.to_vec()), "{coding}");
        assert_eq!((exchange.token_events, exchange.output, exchange.stall), (0, None, None), "{coding}");
        assert!(exchange.marks.first_event.is_none() && exchange.marks.first_token.is_none(), "{coding}");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("stream_anomalies_total", &[("kind", "content_encoding")]), f64::from(5_u8));
    assert!(!scrape.text.contains("first_token_seconds"), "{}", scrape.text);
}

#[test]
fn what_was_measured_before_the_damage_is_kept() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let events = [TOKEN, TOKEN, TOKEN, TOKEN, FINISH, "[DONE]"].map(event);
    let mut count = 0;
    for coding in NAMES {
        count += 1;
        let mut chunks = encoded(coding, &events);
        // Behind the third event; an unfinished block cannot go on so in any coding.
        chunks.truncate(3);
        chunks.extend(vec![vec![0xFF; 4096]; 2]);
        let (reply, exchange) = play(&proxy, &upstream, count, coding, &chunks);
        assert!(reply.body == chunks.concat() && reply.ended == Ended::Complete, "{coding}");
        assert_eq!((exchange.outcome.label(), anomalies(&exchange)), ("ok", UNDECODABLE.to_vec()), "{coding}");
        assert_eq!((exchange.token_events, exchange.marks.first_token.is_some()), (3, true), "{coding}");
        // How many more there were, and when the last came, is unknown.
        assert_eq!((exchange.output, exchange.tpot(), exchange.stall), (None, None, None), "{coding}");
        assert!(exchange.marks.last_token.is_none(), "{coding}");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("inter_token_latency_seconds_count", &[]), 2.0 * f64::from(5_u8));
}

#[test]
fn an_end_that_is_missing_takes_nothing_from_what_came() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let finished = [TOKEN, TOKEN, FINISH, "[DONE]"].map(event);
    let mut count = 0;
    for codings in every_coding() {
        for (events, outcome) in [(&finished[..], "ok"), (&finished[..2], "truncated")] {
            count += 1;
            let mut chunks = encoded(codings, events);
            chunks.pop();
            let (reply, exchange) = play(&proxy, &upstream, count, &header(codings), &chunks);
            assert!(reply.body == chunks.concat() && reply.ended == Ended::Complete, "{codings}");
            assert_eq!((exchange.outcome.label(), anomalies(&exchange)), (outcome, UNDECODABLE.to_vec()), "{codings}");
            assert_eq!(exchange.output.map(|output| output.count), Some(2), "{codings}");
            assert!(exchange.tpot().is_some(), "{codings}");
        }
    }
}

#[test]
fn a_connection_that_breaks_is_no_fault_of_the_coding() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(post(STREAM));
    let mut conn = upstream.accept();
    conn.request();
    begin(&mut conn, "text/event-stream", "br");
    let mut reply = client.head();
    for part in encoded("br", &[event(TOKEN), event(TOKEN)]).iter().take(2) {
        chunk(&mut conn, part);
        client.chunk(&mut reply.body).expect("a chunk");
    }
    conn.close();
    assert_eq!(client.rest(reply).ended, Ended::Fin);
    let exchange = &proxy.finished(1)[0];
    assert_eq!((exchange.outcome.label(), anomalies(exchange)), ("truncated", vec![]));
    assert_eq!(exchange.token_events, 2);
}

#[test]
fn a_bomb_passes_undecoded() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let bomb = format!(": {}\n\n", "0".repeat(16 << 20));
    for (count, codings) in ["br", "zstd", "gzip, gzip"].into_iter().enumerate() {
        let chunks = encoded(codings, &[event(TOKEN), bomb.clone(), event(TOKEN)]);
        let (reply, exchange) = play(&proxy, &upstream, count + 1, codings, &chunks);
        assert!(reply.body == chunks.concat(), "{codings}");
        assert_eq!((exchange.outcome.label(), anomalies(&exchange)), ("ok", UNDECODABLE.to_vec()), "{codings}");
        assert_eq!(exchange.token_events, 1, "{codings}");
    }
}

#[test]
fn what_cannot_be_read_is_not_taken_for_silence() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "event_timeout_ms = 100");
    let mut client = proxy.client();
    client.send(post(STREAM));
    let mut conn = upstream.accept();
    conn.request();
    begin(&mut conn, "text/event-stream", "gzip");
    let mut reply = client.head();
    // An event and the damage in one, so that no slow machine puts a silence between them.
    let first = [encoded("gzip", &[event(TOKEN)]).remove(0), vec![0xFF; 64]].concat();
    for bytes in [first].into_iter().chain(vec![vec![0xFF; 64]; 8]) {
        chunk(&mut conn, &bytes);
        client.chunk(&mut reply.body).expect("a chunk");
        sleep(Duration::from_millis(50));
    }
    conn.end_stream();
    assert_eq!(client.rest(reply).ended, Ended::Complete);
    assert_eq!(proxy.outcome(1), "ok");
}

#[test]
fn errors_and_unmeasured_paths_are_not_decoded() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let moderations = "POST /v1/moderations HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
                      content-length: 2\r\n\r\n{}";
    let mut conn = None;
    for (request, status) in [(post(STREAM), "429 Too Many Requests"), (moderations.to_owned(), "200 OK")] {
        client.send(request);
        let conn = conn.get_or_insert_with(|| upstream.accept());
        conn.request();
        conn.send(format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n!!!!"
        ));
        assert_eq!(client.reply().body, b"!!!!");
    }
    let scrape = proxy.idle_scrape();
    assert!(!scrape.text.contains("content_encoding"), "{}", scrape.text);
    assert_eq!((scrape.outcome("ok"), scrape.outcome("upstream_4xx")), (1.0, 1.0));
}
