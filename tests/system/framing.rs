//! Where a reply ends: lengths that lie, trailers, and clients that know no chunks.

use std::io::ErrorKind;

use crate::support::client::{Client, Ended};
use crate::support::stage::Proxy;
use crate::support::upstream::{Conn, Upstream};
use crate::{FINISH, STREAM, TOKEN, WHOLE, post, request};

const EVENTS: [&str; 3] = [TOKEN, FINISH, "[DONE]"];

fn chat(body: &str) -> String {
    post("/v1/chat/completions", &[], body)
}

#[test]
fn a_length_beside_a_transfer_coding_neither_cuts_nor_holds_a_reply() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let passed = request("GET", "/v1/files/1/content", &[]);
    let expected = EVENTS.map(|data| format!("data: {data}\n\n")).concat();
    let mut conn = None;
    let mut clients = Vec::new();
    for length in [3, 5000] {
        for headers in [
            format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
            format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
        ] {
            for request in [chat(STREAM), passed.clone()] {
                let mut client = proxy.client();
                client.send(request);
                let conn = conn.get_or_insert_with(|| upstream.accept());
                conn.request();
                conn.send(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}\r\n"));
                for data in EVENTS {
                    conn.event(data);
                }
                conn.end_stream();
                let reply = client.reply();
                assert_eq!((reply.header("content-length"), reply.ended), (None, Ended::Complete), "{}", reply.head);
                assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
                assert_eq!(String::from_utf8_lossy(&reply.body), expected);
                // Over, though neither side has closed.
                proxy.idle_scrape();
                clients.push(client);
            }
        }
    }
    assert_eq!(proxy.idle_scrape().outcome("ok"), 8.0);
    assert!(!upstream.is_wanted(), "one connection is enough");
}

#[test]
fn trailers_end_a_reply_in_order_and_its_connection_is_used_again() {
    const REPLY: &str = r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#;
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(chat(WHOLE));
    let mut conn = upstream.accept();
    let begin = |conn: &mut Conn, kind: &str| {
        conn.request();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n"
        ));
    };
    let document = format!("{:x}\r\n{REPLY}\r\n0\r\nx-sum: abc\r\n\r\n", REPLY.len());

    begin(&mut conn, "application/json");
    conn.send(&document);
    assert_eq!((client.reply().body, proxy.outcome(1)), (REPLY.into(), "ok"));

    client.send(request("GET", "/v1/anything", &[]));
    begin(&mut conn, "application/json");
    conn.send(&document);
    assert_eq!((client.reply().body, proxy.outcome(2)), (REPLY.into(), "ok"));

    // Who says that it wants trailers gets them.
    client.send(post("/v1/chat/completions", &[("te", "trailers")], STREAM));
    begin(&mut conn, "text/event-stream");
    for data in EVENTS {
        conn.event(data);
    }
    conn.send("0\r\nx-sum: abc\r\n\r\n");
    client.until(b"\r\n0\r\nx-sum: abc\r\n\r\n").expect("the trailers");
    assert_eq!(proxy.outcome(3), "ok");
    assert!(!upstream.is_wanted(), "one connection is enough");
    let reused: Vec<_> = proxy.finished(3).iter().map(|exchange| exchange.reused).collect();
    assert_eq!(reused, [Some(false), Some(true), Some(true)]);
}

/// A stream that an HTTP/1.0 client has read one event of.
fn old_stream(proxy: &Proxy, upstream: &Upstream) -> (Client, Conn) {
    let mut client = proxy.client();
    client.send(chat(STREAM).replace("HTTP/1.1", "HTTP/1.0"));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("an event");
    (client, conn)
}

fn end_of(client: &mut Client) -> ErrorKind {
    loop {
        if let Err(error) = client.some() {
            return error.kind();
        }
    }
}

#[test]
fn a_client_of_http_1_0_can_tell_a_break_from_the_end() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");

    let (mut client, conn) = old_stream(&proxy, &upstream);
    conn.reset();
    assert_eq!((end_of(&mut client), proxy.outcome(1)), (ErrorKind::ConnectionReset, "reset"));

    let (mut client, conn) = old_stream(&proxy, &upstream);
    drop(conn.close());
    assert_eq!((end_of(&mut client), proxy.outcome(2)), (ErrorKind::ConnectionReset, "truncated"));

    let (mut client, mut conn) = old_stream(&proxy, &upstream);
    conn.event(FINISH);
    conn.end_stream();
    assert_eq!((end_of(&mut client), proxy.outcome(3)), (ErrorKind::UnexpectedEof, "ok"));
}

#[test]
fn a_client_of_http_1_0_can_tell_that_the_shutdown_cut_it_off() {
    let upstream = Upstream::bind();
    let config = crate::support::stage::one_backend(upstream.addr(), "");
    let proxy = Proxy::start(&config.replace("threads = 1", "threads = 1\ndrain_timeout_ms = 100"));
    let (mut client, _conn) = old_stream(&proxy, &upstream);
    assert_eq!(proxy.running.stop(), 1);
    assert_eq!(end_of(&mut client), ErrorKind::ConnectionReset);
}
