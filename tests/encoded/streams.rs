//! Streams that are flushed event by event: every mark stands where it would without compression.

use std::thread::sleep;
use std::time::{Duration, Instant};

use streamgauge::measure::Exchange;

use super::codings::encoded;
use super::{FINISH, ROLE, STREAM, TOKEN, USAGE, begin, chunk, event, every_coding, header, post};
use crate::support::client::{Client, Ended};
use crate::support::stage::Proxy;
use crate::support::upstream::{Conn, Upstream};

/// Between the moment a part was sent and the moment the client had it.
type Passage = (Instant, Instant);

/// Sends `parts` one after another, each when the client has the one before, and says when each passed.
fn in_step(client: &mut Client, conn: &mut Conn, parts: &[Vec<u8>]) -> Vec<Passage> {
    let mut passages = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let (before, mut got) = (Instant::now(), Vec::new());
        chunk(conn, part);
        client.chunk(&mut got).expect("a chunk");
        assert!(got == *part, "what came is passed on as it came");
        passages.push((before, Instant::now()));
        // Longer than the client's read takes, so that gaps differ from the time of passage.
        sleep(Duration::from_millis(10));
    }
    passages
}

/// Plays events, encoded or as they are, and returns what was measured and when each event passed.
fn play(
    proxy: &Proxy,
    upstream: &Upstream,
    number: usize,
    codings: &str,
    events: &[String],
) -> (Exchange, Vec<Passage>) {
    let mut client = proxy.client();
    client.send(post(STREAM));
    let mut conn = upstream.accept();
    conn.request();
    let parts = if codings == "identity" {
        events.iter().map(|event| event.as_bytes().to_vec()).collect()
    } else {
        encoded(codings, events)
    };
    begin(&mut conn, "text/event-stream", &header(codings));
    let head = client.head();
    assert_eq!(head.header("content-encoding"), Some(&*header(codings)));
    let passages = in_step(&mut client, &mut conn, &parts);
    conn.end_stream();
    assert!(!client.chunk(&mut Vec::new()).expect("the last chunk"), "{codings}");
    conn.close();
    (proxy.finished(number)[number - 1].clone(), passages)
}

fn events() -> Vec<String> {
    [ROLE, TOKEN, TOKEN, TOKEN, FINISH, USAGE, "[DONE]"].map(event).to_vec()
}

#[test]
fn every_mark_stands_where_it_would_without_compression() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    for (count, codings) in ["identity"].into_iter().chain(every_coding()).enumerate() {
        let (exchange, passages) = play(&proxy, &upstream, count + 1, codings, &events());
        let within = |mark: Option<Instant>, event: usize| {
            let (sent, received) = passages[event];
            mark.is_some_and(|mark| sent <= mark && mark <= received)
        };
        let marks = exchange.marks;
        assert!(within(marks.first_event, 0), "{codings}");
        assert!(within(marks.first_token, 1), "{codings}");
        assert!(within(marks.first_answer, 1), "{codings}");
        assert!(within(marks.last_token, 3), "{codings}");
        assert!(within(marks.finish, 4), "{codings}");
        // The client may have it before we know that it was written.
        assert!(marks.first_token_written >= Some(passages[1].0), "{codings}");
        assert!(marks.last_token_written >= Some(passages[3].0), "{codings}");
        let ticks: Vec<_> = exchange.track.ticks().collect();
        assert_eq!(ticks.len(), 3, "{codings}");
        for (tick, event) in ticks.iter().zip(1..) {
            // Kept in whole microseconds.
            let (at, slack) = (marks.accepted + tick.at, Duration::from_micros(1));
            assert!(passages[event].0 <= at + slack && at <= passages[event].1, "{codings}");
            assert!(!tick.coalesced, "{codings}");
        }
        let output = exchange.output.expect("counted");
        assert_eq!((output.count, output.source.label()), (9, "usage"), "{codings}");
        assert_eq!(exchange.model_served.as_deref(), Some("served"), "{codings}");
        assert_eq!(exchange.outcome.label(), "ok", "{codings}");
        assert_eq!(exchange.anomalies.seen().count(), 0, "{codings}");
    }
    let scrape = proxy.idle_scrape();
    let replies = (every_coding().count() + 1) as f64;
    assert_eq!(scrape.sum("inter_token_latency_seconds_count", &[("timing", "exact")]), 2.0 * replies);
    assert_eq!(scrape.sum("token_events_total", &[]), 3.0 * replies);
    assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[("source", "usage")]), replies);
    assert_eq!(scrape.sum("time_to_first_token_seconds_count", &[("vantage", "client")]), replies);
}

#[test]
fn events_of_one_flush_share_their_read() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let flushes = [event(ROLE) + &event(TOKEN), event(TOKEN) + &event(TOKEN), event(FINISH) + &event("[DONE]")];
    let mut replies = 0;
    for codings in every_coding() {
        replies += 1;
        let (exchange, passages) = play(&proxy, &upstream, replies, codings, &flushes);
        let coalesced: Vec<_> = exchange.track.ticks().map(|tick| tick.coalesced).collect();
        assert_eq!(coalesced, [false, true, true], "{codings}");
        let last = exchange.marks.last_token.expect("tokens");
        assert!(passages[1].0 <= last && last <= passages[1].1, "{codings}");
        let output = exchange.output.expect("counted");
        assert_eq!((output.count, output.source.label()), (3, "events"), "{codings}");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("inter_token_latency_seconds_count", &[("timing", "coalesced")]), 2.0 * replies as f64);
}

#[test]
fn a_stream_in_any_pieces_says_the_same() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut replies = 0;
    for codings in every_coding() {
        let bytes = encoded(codings, &events()).concat();
        for pieces in [1, 7, 64, bytes.len()] {
            replies += 1;
            let mut client = proxy.client();
            client.send(post(STREAM));
            let mut conn = upstream.accept();
            conn.request();
            begin(&mut conn, "text/event-stream", &header(codings));
            bytes.chunks(pieces).for_each(|piece| chunk(&mut conn, piece));
            conn.end_stream();
            let reply = client.reply();
            assert!(reply.body == bytes && reply.ended == Ended::Complete, "{codings} by {pieces}");
            let exchange = &proxy.finished(replies)[replies - 1];
            let seen = (exchange.outcome.label(), exchange.token_events, exchange.prompt_tokens());
            assert_eq!(seen, ("ok", 3, Some(7)), "{codings} by {pieces}");
            assert_eq!(exchange.anomalies.seen().count(), 0, "{codings} by {pieces}");
        }
    }
}
