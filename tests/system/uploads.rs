//! Requests that are passed through while they come: how slow they may be, and what the client can read.

use std::thread;
use std::time::Duration;

use streamgauge::backend::sim::text;
use streamgauge::measure::intervals::Phase;

use crate::support::stage::{Proxy, sim};
use crate::support::upstream::Upstream;
use crate::{FINISH, STREAM, TOKEN, post, request};

#[test]
fn a_slow_upload_is_no_late_answer() {
    const PIECE: &str = "0123456789";
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "head_timeout_ms = 1000");
    let mut client = proxy.client();
    client.send(request("POST", "/v1/files", &[("content-length", "40")]) + PIECE);
    let mut conn = upstream.accept();
    // In all, and once at a stretch, longer than the upstream has for its head.
    for pause in [500, 500, 1400] {
        thread::sleep(Duration::from_millis(pause));
        client.send(PIECE);
    }
    assert_eq!(conn.request().body, PIECE.repeat(4).as_bytes());
    conn.answer("{}");
    let reply = client.reply();
    assert_eq!((reply.status, proxy.outcome(1)), (200, "ok"), "{reply:?}");

    // Once it has everything, the upstream can be late.
    client.send(post("/v1/files", &[], PIECE));
    conn.request();
    let reply = client.reply();
    assert_eq!((reply.status, proxy.outcome(2)), (504, "timeout"), "{reply:?}");
}

#[test]
fn an_answer_may_come_before_the_upload_has_ended() {
    const HALF: usize = 500_000;
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    for round in 0..3 {
        let chunked = round == 2;
        let framing = if chunked { ("transfer-encoding", "chunked") } else { ("content-length", "1000000") };
        client.send(request("POST", "/v1/files", &[framing]));
        let mut half = "x".repeat(HALF);
        if chunked {
            half = format!("{HALF:x}\r\n{half}\r\n");
        }
        client.send(&half);
        let mut conn = upstream.accept();
        conn.request_head().expect("a request");
        if round == 0 {
            conn.send("HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno");
        } else {
            conn.answer("no");
        }
        let reply = client.reply();
        assert_eq!((reply.status, &*reply.body), (if round == 0 { 413 } else { 200 }, &b"no"[..]));
        let exchange = proxy.finished(round + 1).remove(round);
        assert_eq!(exchange.outcome.label(), if round == 0 { "upstream_4xx" } else { "ok" });
        assert_eq!(exchange.marks.sent, None, "the last byte was not sent");
        // Over unread bytes: a reset. Who goes on sending is heard out all the same, and may ask again.
        drop(conn);
        client.send(half);
        if chunked {
            client.send("0\r\n\r\n");
        }
    }
    client.send(request("GET", "/v1/files", &[]));
    let mut conn = upstream.accept();
    conn.request();
    conn.answer("again");
    assert_eq!(client.reply().body, b"again");
    assert_eq!(proxy.outcome(4), "ok");
}

#[test]
fn an_answer_before_the_whole_request_was_written_was_not_waited_for() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    // More than the buffers on the way hold, of which the upstream reads next to nothing.
    let body = STREAM.replace("one two three", &"x".repeat(20_000_000));
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", &[], &body));
    let mut conn = upstream.accept();
    conn.request_head().expect("a request");
    conn.begin_stream();
    for data in [TOKEN, FINISH, "[DONE]"] {
        conn.event(data);
    }
    conn.end_stream();
    assert!(client.reply().is_done());
    let exchange = proxy.finished(1).remove(0);
    assert_eq!((exchange.outcome.label(), exchange.anomalies.seen().next()), ("ok", None));
    let marks = &exchange.marks;
    assert_eq!((marks.sent, marks.ttft_upstream(), marks.to_headers()), (None, None, None));
    assert!(marks.ttft_client().is_some());
    let phases: Vec<_> = marks.phases(&exchange.connect).collect();
    let names: Vec<_> = phases.iter().map(|(phase, _)| *phase).collect();
    let expected = [Phase::ReadBody, Phase::Connect, Phase::Send, Phase::FirstToken, Phase::Decode, Phase::Tail];
    assert_eq!(names, expected);
    let sum: Duration = phases.iter().map(|(_, time)| *time).sum();
    assert_eq!(Some(sum), marks.duration(), "{phases:?}");
    drop(conn);
}

#[test]
fn a_client_that_sends_everything_first_reads_that_the_upstream_is_gone() {
    let upload = post("/v1/files", &[], &"x".repeat(4_000_000));
    let gone = Upstream::bind().addr();
    let proxy = Proxy::before(gone, "");
    let mut client = proxy.client();
    for _ in 0..3 {
        let reply = client.ask(&upload);
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (502, Some("upstream_connect")));
    }

    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    for _ in 0..3 {
        let mut client = proxy.client();
        thread::scope(|scope| {
            let asking = scope.spawn(|| client.ask(&upload));
            // It hangs up in the middle.
            drop(upstream.accept());
            let reply = asking.join().expect("an answer");
            assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (502, Some("upstream_closed")));
        });
    }
    assert_eq!(proxy.idle_scrape().outcome("reset"), 3.0);
}

#[test]
fn who_waits_to_be_told_is_not_told_to_send_what_nobody_wants() {
    let gone = Upstream::bind().addr();
    let proxy = Proxy::before(gone, "");
    let mut client = proxy.client();
    client.send(request("POST", "/v1/files", &[("content-length", "10"), ("expect", "100-continue")]));
    assert_eq!(client.reply().status, 502, "and no 100 before it");

    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    let expect = [("expect", "100-continue"), ("x-sim", "ttft_ms=1,itl_ms=0,tokens=2")];
    let whole = post("/v1/chat/completions", &expect, STREAM);
    let (head, body) = whole.split_at(whole.len() - STREAM.len());
    client.send(head);
    assert_eq!(client.reply().status, 100);
    client.send(body);
    assert_eq!(client.reply().text(0, "content"), text(2));
}
