//! What one client may take from the others: nothing.

use std::io::{ErrorKind, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::{Client, PATIENCE, chat};
use crate::support::eventually;
use crate::support::metrics::Scrape;
use crate::support::process::Serve;
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::Upstream;
use crate::{STREAM, TOKEN, empty_scrape, refused, with};

const QUICK: &str = "ttft_ms=1,itl_ms=0,tokens=2";

/// How reading from a connection ends.
fn end_of(client: &mut Client) -> ErrorKind {
    loop {
        if let Err(error) = client.some() {
            return error.kind();
        }
    }
}

#[test]
fn clients_that_never_finish_a_head_are_closed_while_another_is_served() {
    const SLOW: usize = 200;
    let sim = sim();
    let proxy = Proxy::start(&with("header_timeout_ms = 4000", sim.addr()));
    let mut idle = proxy.client();
    assert_eq!(idle.chat(QUICK, STREAM).status, 200);
    let beginnings = ["", "P", "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx", "PRI * HTTP/2.0\r\n\r\nS"];
    let mut slow: Vec<Client> = (0..SLOW).map(|_| proxy.client()).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        client.send(beginnings[number % beginnings.len()]);
    }
    let mut busy = proxy.client();
    let served = eventually("every slow client is closed", || {
        let reply = busy.chat(QUICK, STREAM);
        assert!(reply.status == 200 && reply.is_done(), "{reply:?}");
        // Some go on, a byte at a time.
        for client in slow.iter_mut().skip(2).step_by(8) {
            let _ = client.socket().write(b"a");
        }
        let scrape = proxy.scrape();
        (refused(&scrape, "header_timeout") >= SLOW as f64).then_some(scrape)
    });
    assert_eq!(refused(&served, "header_timeout"), SLOW as f64);
    for client in &mut slow {
        assert!(matches!(end_of(client), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
    }
    // Who was served and asks nothing more is let go, and was not refused.
    assert_eq!(end_of(&mut idle), ErrorKind::UnexpectedEof);
    drop(busy);
    let scrape = empty_scrape(&proxy);
    assert_eq!(scrape.sum("connections_refused_total", &[]), SLOW as f64);
}

#[test]
fn a_head_that_is_too_large_is_answered_and_counted() {
    let sim = sim();
    let proxy = Proxy::start(&with("max_header_bytes = 8192", sim.addr()));
    let padded = |bytes: usize| format!("GET /health HTTP/1.1\r\nhost: a\r\nx-pad: {}\r\n\r\n", "p".repeat(bytes));
    assert_eq!(proxy.client().ask(padded(7_900)).status, 200);
    for bytes in [8_192, 20_000, 300_000] {
        let reply = proxy.client().ask(padded(bytes));
        assert_eq!(reply.status, 431, "{bytes}: {reply:?}");
    }
    // Who is still sending by then can go on, and reads the answer all the same.
    let mut slow = proxy.client();
    let all = padded(200_000);
    for piece in all.as_bytes().chunks(20_000) {
        slow.send(piece);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(slow.reply().status, 431);
    let uri = |bytes: usize| format!("GET /health?{} HTTP/1.1\r\nhost: a\r\n\r\n", "u".repeat(bytes));
    assert_eq!(proxy.client().ask(uri(9_000)).status, 431);
    let scrape = empty_scrape(&proxy);
    assert_eq!(refused(&scrape, "header_too_large"), 5.0);
    assert_eq!(scrape.sum("requests_started_total", &[]), 1.0);

    // As many as can be configured.
    let proxy = Proxy::start(&with("max_header_bytes = 409600", sim.addr()));
    let refusal = |bytes| {
        let head = padded(bytes).replace("GET /health", "POST /v1/chat/completions");
        head.replace("\r\n\r\n", "\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n{")
    };
    let reply = proxy.client().ask(refusal(409_000));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &"invalid_json".into()), "the head was read");
    assert_eq!(proxy.client().ask(refusal(409_600)).status, 431);

    let proxy = Proxy::start(&with("max_header_bytes = 131072", sim.addr()));
    assert_eq!(proxy.client().ask(padded(100_000)).status, 200);
    assert_eq!(proxy.client().ask(uri(70_000)).status, 414);
    assert_eq!(proxy.client().ask("GET /\x01 HTTP/1.1\r\n\r\n").status, 400);
    let scrape = empty_scrape(&proxy);
    assert_eq!((refused(&scrape, "header_too_large"), refused(&scrape, "bad_request")), (1.0, 1.0));
}

#[test]
fn a_body_that_is_too_large_is_refused_whether_announced_or_not() {
    let sim = sim();
    let proxy = Proxy::start(&with("max_body_bytes = 1000", sim.addr()));
    let body = STREAM.replace("one", &"1".repeat(2_000));
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n";
    let announced = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let mut client = proxy.client();
    for request in [&announced, &chunked, &announced] {
        let reply = client.ask(request);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (413, &"request_too_large".into()));
    }
    // One that would go on for ever is not heard out for ever, and takes no memory.
    let mut endless = proxy.client();
    endless.send(format!("{head}transfer-encoding: chunked\r\n\r\n"));
    let piece = format!("{:x}\r\n{}\r\n", 100_000, "x".repeat(100_000));
    for _ in 0..50 {
        endless.send(&piece);
    }
    assert_eq!(endless.reply().status, 413);
    assert_eq!(proxy.idle_scrape().outcome("rejected"), 4.0);
    assert_eq!(sim.counts().requests, 0);
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    const BATCH: usize = 500;
    let sim = sim();
    let serve = Serve::start(&with("", sim.addr()), "json", &[]);
    let open = || Scrape::of(serve.admin).sum("connections", &[]);
    let batch = |number: usize| {
        let mut clients: Vec<_> = (0..BATCH).map(|_| serve.client()).collect();
        for (at, client) in clients.iter_mut().enumerate() {
            match at % 3 {
                0 => {}
                1 => client.send("GET /v1/mod"),
                _ => client.send("GET /health HTTP/1.1\r\nhost: a\r\n\r\n"),
            }
        }
        eventually("the batch is accepted", || (open() == BATCH as f64).then_some(()));
        drop(clients);
        eventually("the batch is gone", || (open() == 0.0).then_some(()));
        println!("batch {number}: {} KiB", serve.resident_kib());
    };
    // Whatever is taken once is taken by then.
    (0..2).for_each(batch);
    let (memory, descriptors) = (serve.resident_kib(), serve.descriptors());
    (2..20).for_each(batch);
    let grown = serve.resident_kib().saturating_sub(memory);
    assert!(grown < 32 << 10, "{grown} KiB more than {memory}");
    // Upstream connections come and go meanwhile.
    assert!(serve.descriptors() <= descriptors + 20, "{} after {descriptors}", serve.descriptors());
    let scrape = Scrape::of(serve.admin);
    scrape.assert_balanced();
    assert_eq!(scrape.sum("connections_refused_total", &[]), 0.0);
    assert_eq!(serve.client().chat(QUICK, STREAM).status, 200);
}

#[test]
fn a_client_that_accepts_nothing_is_cut_off_and_its_upstream_let_go() {
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with("write_timeout_ms = 1000", upstream.addr()));
    let mut client = proxy.client();
    client.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    let large = TOKEN.replace("\"a\"", &format!("{:?}", "x".repeat(60_000)));
    let start = Instant::now();
    // Once the client is gone, its upstream's connection is.
    while start.elapsed() < PATIENCE && conn.try_send(format!("{:x}\r\ndata: {large}\n\n\r\n", large.len() + 8)) {}
    let exchange = proxy.finished(1).remove(0);
    assert_eq!(exchange.outcome.label(), "client_cancel");
    assert!(exchange.token_events > 1, "{exchange:?}");
    let scrape = empty_scrape(&proxy);
    assert_eq!(refused(&scrape, "write_timeout"), 1.0);
    assert_eq!(end_of(&mut client), ErrorKind::ConnectionReset);
    drop(conn);
}

#[test]
fn a_slow_client_that_goes_on_reading_is_not_cut_off() {
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with("write_timeout_ms = 2000", upstream.addr()));
    let mut client = proxy.client();
    client.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    let large = TOKEN.replace("\"a\"", &format!("{:?}", "x".repeat(60_000)));
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            // Far more than the sockets hold, at the pace the client reads.
            for _ in 0..2_000 {
                conn.event(&large);
            }
            conn.event(crate::FINISH);
            conn.end_stream();
            conn
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(4) {
            let mut read = 0;
            while read < 1_000_000 {
                read += client.some().expect("it goes on").len();
            }
            thread::sleep(Duration::from_millis(100));
        }
        while !client.some().expect("it goes on").ends_with(b"\r\n0\r\n\r\n") {}
        drop(sending.join().expect("all was sent"));
    });
    assert_eq!(proxy.outcome(1), "ok");
    assert_eq!(refused(&proxy.idle_scrape(), "write_timeout"), 0.0);
}

#[test]
fn beyond_the_limit_of_connections_a_client_is_told_to_try_again() {
    let sim = sim();
    let proxy = Proxy::start(&with("max_connections = 2", sim.addr()));
    let mut first = proxy.client();
    let mut second = proxy.client();
    for client in [&mut first, &mut second] {
        assert_eq!(client.chat(QUICK, STREAM).status, 200);
    }
    // Whether it has sent something already or not.
    for asks in [false, true] {
        let mut third = proxy.client();
        if asks {
            third.send(chat(QUICK, STREAM));
        }
        let reply = third.reply();
        assert_eq!(
            (reply.status, reply.header("retry-after"), reply.header("connection")),
            (503, Some("1"), Some("close"))
        );
        assert_eq!(reply.json()["error"]["code"], "too_many_connections");
        assert_eq!(end_of(&mut third), ErrorKind::UnexpectedEof);
    }
    assert_eq!(second.chat(QUICK, STREAM).status, 200, "who has a place keeps it");
    let scrape = proxy.scrape();
    assert_eq!((refused(&scrape, "limit"), scrape.sum("connections", &[])), (2.0, 2.0));
    drop(first);
    eventually("a place is free", || (proxy.client().chat(QUICK, STREAM).status == 200).then_some(()));
    drop(second);
    empty_scrape(&proxy);
}

#[test]
fn beyond_the_limit_of_requests_a_client_is_told_to_try_again() {
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with("max_in_flight = 1", upstream.addr()));
    let mut running = proxy.client();
    running.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    running.until(TOKEN.as_bytes()).expect("a token");
    let mut other = proxy.client();
    for request in [chat("", STREAM), "GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n".to_owned()] {
        let reply = other.ask(&request);
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
        let error = &reply.json()["error"];
        assert_eq!((&error["type"], &error["code"]), (&"server_error".into(), &"too_many_requests_in_flight".into()));
    }
    conn.event(crate::FINISH);
    conn.end_stream();
    running.until(b"\r\n0\r\n\r\n").expect("the end");
    assert_eq!(proxy.finished(3).iter().filter(|exchange| exchange.outcome.label() == "rejected").count(), 2);
    other.send(chat("", STREAM));
    conn.request();
    conn.answer("{}");
    assert_eq!(other.reply().status, 200, "there is room again");
    assert_eq!(proxy.idle_scrape().outcome("rejected"), 2.0);
}
