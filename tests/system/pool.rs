//! Upstream connections: reused where they can be, never where that could repeat a request or mix replies.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::support::Rng;
use crate::support::client::{Client, Ended};
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::{Conn, Upstream};
use crate::{FINISH, STREAM, TOKEN, WHOLE, post, request};

const REPLY: &str = r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;

fn chat() -> String {
    post("/v1/chat/completions", &[], WHOLE)
}

/// A request that travels on `conn` and is answered in order.
fn served(client: &mut Client, conn: &mut Conn) {
    client.send(chat());
    assert_eq!(conn.request().body, WHOLE.as_bytes());
    conn.answer(REPLY);
    assert_eq!(client.reply().body, REPLY.as_bytes());
}

/// A request that travels on a connection of its own.
fn served_anew(client: &mut Client, upstream: &Upstream) -> Conn {
    client.send(chat());
    let mut conn = upstream.accept();
    assert_eq!(conn.request().body, WHOLE.as_bytes());
    conn.answer(REPLY);
    assert_eq!(client.reply().body, REPLY.as_bytes());
    conn
}

#[test]
fn connections_are_reused_across_clients_and_operations() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    for _ in 0..10 {
        let mut client = proxy.client();
        for (headers, body) in
            [("ttft_ms=1,itl_ms=0,tokens=3", STREAM), ("ttft_ms=1,tokens=3", WHOLE), ("ttft_ms=0,status=429", STREAM)]
        {
            client.ask(post("/v1/chat/completions", &[("x-sim", headers)], body));
        }
        client.ask(request("GET", "/v1/models", &[]));
        client.send(request("HEAD", "/", &[]));
        client.head();
    }
    assert_eq!((sim.counts().requests, sim.counts().opened), (50, 1));
    let reused = proxy.finished(50).iter().filter(|exchange| exchange.reused == Some(true)).count();
    assert_eq!(reused, 49);
}

#[test]
fn an_upstream_that_closes_idle_connections_fails_no_request() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let mut conn = served_anew(&mut client, &upstream);
    let mut rng = Rng::new(6);
    let mut fresh = 1;
    for _ in 0..200 {
        match rng.below(6) {
            0 | 1 => {
                let _closed = conn.close();
                conn = served_anew(&mut client, &upstream);
                fresh += 1;
            }
            2 => {
                conn.reset();
                conn = served_anew(&mut client, &upstream);
                fresh += 1;
            }
            3 => {
                // Some servers say why before they close.
                conn.send("HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                let _closed = conn.close();
                conn = served_anew(&mut client, &upstream);
                fresh += 1;
            }
            _ => served(&mut client, &mut conn),
        }
    }
    assert!((60..200).contains(&fresh), "{fresh} connections");
    assert!(!upstream.is_wanted(), "no connection too many");
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.outcome("ok"), 201.0);
    assert_eq!(scrape.sum("requests_total", &[]), 201.0);
}

#[test]
fn a_request_handed_to_a_dying_connection_ends_one_way_or_the_other() {
    const ROUNDS: usize = 300;
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let large = format!(r#"{{"model":"m","pad":"{}"}}"#, "p".repeat(600_000));
    let over = AtomicBool::new(false);
    let (answered, statuses) = thread::scope(|scope| {
        // Closes right after each reply, while the next request is on its way.
        let answering = scope.spawn(|| {
            let mut answered = 0;
            while let Some(mut conn) = upstream.accept_unless(&over) {
                if conn.try_request().is_some() {
                    conn.answer(REPLY);
                    answered += 1;
                }
            }
            answered
        });
        let mut client = proxy.client();
        let ask =
            |round| client.ask(post("/v1/chat/completions", &[], if round % 2 == 0 { WHOLE } else { &large })).status;
        let statuses: Vec<_> = (0..ROUNDS).map(ask).collect();
        over.store(true, Relaxed);
        (answering.join().expect("no panic"), statuses)
    });
    let served = statuses.iter().filter(|status| **status == 200).count();
    println!("{served} of {ROUNDS} were served");
    // Written before the end was seen, a request may have been read: that one is not repeated.
    assert!(statuses.iter().all(|status| [200, 502].contains(status)), "{statuses:?}");
    assert_eq!(served, answered, "each was answered once");
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("ok"), scrape.outcome("reset")), (served as f64, (ROUNDS - served) as f64));
}

#[test]
fn a_request_that_may_have_been_seen_is_never_repeated() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    // On a new connection and on a reused one, closed and reset.
    for round in 0..4 {
        let mut conn = if round < 2 {
            client.send(chat());
            upstream.accept()
        } else {
            let conn = served_anew(&mut client, &upstream);
            client.send(chat());
            conn
        };
        conn.request();
        if round % 2 == 0 {
            drop(conn.close());
        } else {
            conn.reset();
        }
        let reply = client.reply();
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["code"].as_str()), (502, Some("upstream_closed")), "{error}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("not repeated"), "{message}");
        assert!(!upstream.is_wanted(), "it came again");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("reset"), scrape.outcome("ok")), (4.0, 2.0));
}

#[test]
fn a_connection_comes_back_only_when_the_body_has_ended() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let (mut streaming, mut other) = (proxy.client(), proxy.client());
    streaming.send(post("/v1/chat/completions", &[], STREAM));
    let mut first = upstream.accept();
    first.request();
    first.begin_stream();
    for data in [TOKEN, FINISH, "[DONE]"] {
        first.event(data);
    }
    streaming.until(b"[DONE]").expect("the end marker");
    // The answer is whole, its body is not: the next request must not share the connection.
    let mut second = served_anew(&mut other, &upstream);
    first.end_stream();
    streaming.until(b"0\r\n\r\n").expect("the last chunk");
    // Both are free now, and the one used last comes first.
    served(&mut other, &mut first);
    drop(first.close());
    served(&mut other, &mut second);
    assert!(!upstream.is_wanted());
}

#[test]
fn a_reply_that_was_left_takes_its_connection_with_it() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    for whole in [false, true] {
        let mut client = proxy.client();
        client.send(chat());
        let mut conn = upstream.accept();
        conn.request();
        if whole {
            conn.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half\":");
            client.until(b"half").expect("half a reply");
        } else {
            conn.begin_stream();
            conn.event(TOKEN);
            client.until(TOKEN.as_bytes()).expect("an event");
        }
        drop(client);
        conn.closed_by_peer();
    }
    served_anew(&mut proxy.client(), &upstream);
}

#[test]
fn a_reply_cut_short_ends_abruptly_and_its_connection_is_not_used_again() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    for round in 0..4 {
        let mut client = proxy.client();
        client.send(chat());
        let mut conn = upstream.accept();
        conn.request();
        if round < 2 {
            conn.begin_stream();
            conn.event(TOKEN);
        } else {
            conn.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"half\":");
        }
        let head = client.head();
        if round % 2 == 0 {
            drop(conn.close());
        } else {
            conn.reset();
        }
        assert_ne!(client.rest(head).ended, Ended::Complete, "round {round}");
    }
    served_anew(&mut proxy.client(), &upstream);
    let outcomes: Vec<_> = proxy.finished(5).iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!(outcomes, ["truncated", "reset", "truncated", "reset", "ok"]);
}

#[test]
fn a_connection_that_the_upstream_closed_is_let_go_without_a_request() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    let conn = served_anew(&mut client, &upstream);
    conn.close().closed_by_peer();
}
