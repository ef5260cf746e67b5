//! Replies in motion: they arrive as they were sent, broken ones broken, and a slow client holds nobody up.

use std::time::Duration;

use streamgauge::backend::sim::{End, Framing, Script, SimConfig, Step, text};

use crate::support::client::Ended;
use crate::support::eventually;
use crate::support::stage::{Proxy, playing, sim, spawn};
use crate::support::upstream::Upstream;
use crate::{STREAM, TOKEN, post};

#[test]
fn a_stream_comes_back_byte_for_byte_and_its_break_is_a_break() {
    let events =
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"caf\xc3\xa9\"}}]}\r\n\r\n: ping\n\ndata: x\n";
    let steps = || vec![Step::send(&events[..]).cut_every(5, Duration::from_micros(200))];
    for (end, framing, ended) in [
        (End::Complete, Framing::Chunked, Ended::Complete),
        (End::Fin, Framing::Chunked, Ended::Fin),
        (End::Fin, Framing::Close, Ended::Fin),
    ] {
        let sim = playing(Script { steps: steps(), end, framing, ..Script::default() });
        let proxy = Proxy::before(sim.addr(), "");
        let reply = proxy.client().ask(post("/v1/chat/completions", &[], STREAM));
        assert_eq!(reply.body, events, "{framing:?} {end:?}");
        assert_eq!(reply.ended, ended, "{framing:?} {end:?}");
        assert_eq!(proxy.outcome(1), "truncated");
    }
}

#[test]
fn what_came_before_a_break_arrives_before_it() {
    const ERROR: &str = r#"{"error":{"message":"overloaded"}}"#;
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    let mut wrong = Vec::new();
    for round in 0..30 {
        let mut client = proxy.client();
        client.send(post("/v1/chat/completions", &[], STREAM));
        let mut conn = upstream.accept();
        conn.request();
        // Head, two events and the break, all at hand at once.
        let (framing, events) = match round % 3 {
            // An error event would end this one in order: what has no length has no other end.
            0 => ("\r\n", format!("data: {TOKEN}\n\ndata: {TOKEN}\n\n")),
            1 => ("content-length: 5000\r\n\r\n", format!("data: {TOKEN}\n\ndata: {ERROR}\n\n")),
            _ => ("transfer-encoding: chunked\r\n\r\n", String::new()),
        };
        conn.send(format!("{stream}{framing}{events}"));
        drop(conn.close());
        let reply = client.reply();
        if reply.ended != Ended::Fin || reply.body != events.as_bytes() {
            wrong.push((round, reply));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let outcomes: Vec<_> = proxy.finished(30).iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!(outcomes[..3], ["truncated", "inband_error", "truncated"]);
}

#[test]
fn a_client_of_http_1_0_gets_the_stream_without_chunks() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let sim_header = [("x-sim", "ttft_ms=1,itl_ms=1,tokens=5")];
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", &sim_header, STREAM).replace("HTTP/1.1", "HTTP/1.0"));
    let mut reply = client.head();
    assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None));
    while let Ok(bytes) = client.some() {
        reply.body.extend(bytes);
    }
    assert!(reply.is_done(), "{reply:?}");
    assert_eq!(reply.text(0, "content"), text(5));
    assert_eq!(proxy.outcome(1), "ok");
}

#[test]
fn a_slow_client_holds_nobody_else_up_and_memory_is_bounded() {
    // 40 MB towards a client that reads nothing yet.
    let event = format!("data: {}\n\n", "x".repeat(63 * 1024));
    let step = Step { repeat: 640, ..Step::send(event.into_bytes()) };
    let script = Script { steps: vec![step], ..Script::default() };
    let mut config = SimConfig::default();
    config.scripts.named.insert("flood".to_owned(), script.clone());
    let sim = spawn(config);
    let proxy = Proxy::before(sim.addr(), "");
    let mut slow = proxy.client();
    slow.send(post("/v1/chat/completions", &[("x-sim", "script=flood")], STREAM));
    let head = slow.head();
    let mut quick = proxy.client();
    for _ in 0..20 {
        let reply = quick.ask(post("/v1/chat/completions", &[("x-sim", "ttft_ms=1,itl_ms=1,tokens=5")], STREAM));
        assert_eq!(reply.text(0, "content"), text(5));
    }
    // The simulation may book an end after its client has seen it; the flood waits for its own.
    eventually("the quick ones are over, and the flood is not", || (sim.counts().finished == 20).then_some(()));
    let reply = slow.rest(head);
    assert!(reply.body == script.bytes() && reply.ended == Ended::Complete, "{} bytes", reply.body.len());
    eventually("the flood is over", || (sim.counts().finished == 21).then_some(()));
}
