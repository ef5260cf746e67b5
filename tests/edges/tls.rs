//! Clients under TLS.

use std::io::ErrorKind;
use std::net::TcpStream;

use streamgauge::backend::sim::text;

use crate::secure::{Files, Pair};
use crate::support::client::{Client, Ended, chat};
use crate::support::eventually;
use crate::support::process::ConfigFile;
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::Upstream;
use crate::{FINISH, STREAM, TOKEN, empty_scrape, refused, with};

#[test]
fn a_stream_under_tls_is_passed_and_measured() {
    const TOKENS: u32 = 40;
    let (sim, pair) = (sim(), Pair::new());
    let files = Files::new(&pair);
    let proxy = Proxy::start(&with(&files.config(), sim.addr()));
    let mut client = pair.try_client(proxy.running.listen()).expect("a handshake");
    for round in 1..3_u32 {
        let reply = client.chat(&format!("ttft_ms=5,itl_ms=1,tokens={TOKENS}"), STREAM);
        assert_eq!((reply.text(0, "content"), reply.is_done()), (text(TOKENS), true));
        let exchange = proxy.finished(round as usize).remove(round as usize - 1);
        assert_eq!(exchange.outcome.label(), "ok");
        let marks = &exchange.marks;
        assert!(marks.ttft_client() >= marks.ttft_upstream() && marks.ttft_upstream().is_some(), "{marks:?}");
        assert!(exchange.tgs().is_some(), "the last token was seen written");
        let scrape = proxy.idle_scrape();
        let events = scrape.sum("timestamps_total", &[]);
        assert!(events >= f64::from(round * TOKENS), "{}", scrape.text);
        assert_eq!(scrape.sum("dwell_seconds_count", &[]), events, "every event was seen written, once");
    }
    drop(client);
    assert_eq!(empty_scrape(&proxy).sum("connections_refused_total", &[]), 0.0);
}

#[test]
fn a_break_under_tls_is_no_end_and_loses_nothing() {
    let (upstream, pair) = (Upstream::bind(), Pair::new());
    let files = Files::new(&pair);
    let proxy = Proxy::start(&with(&files.config(), upstream.addr()));
    let mut client = pair.try_client(proxy.running.listen()).expect("a handshake");
    client.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    conn.event(TOKEN);
    conn.reset();
    client.until(TOKEN.as_bytes()).expect("what came before the break");
    assert!(client.until(b"\r\n0\r\n\r\n").is_err(), "no end in order");
    assert_eq!(proxy.outcome(1), "reset");

    // A client that leaves half-way.
    let mut client = pair.try_client(proxy.running.listen()).expect("a handshake");
    client.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    drop(client);
    conn.closed_by_peer();
    assert_eq!(proxy.outcome(2), "client_cancel");
    empty_scrape(&proxy);
}

#[test]
fn a_client_of_http_1_0_under_tls_can_tell_a_break_from_the_end() {
    let (upstream, pair) = (Upstream::bind(), Pair::new());
    let files = Files::new(&pair);
    let proxy = Proxy::start(&with(&files.config(), upstream.addr()));
    for broken in [true, false] {
        let mut client = pair.try_client(proxy.running.listen()).expect("a handshake");
        client.send(chat("", STREAM).replace("HTTP/1.1", "HTTP/1.0"));
        let mut conn = upstream.accept();
        conn.request();
        conn.begin_stream();
        conn.event(TOKEN);
        client.until(TOKEN.as_bytes()).expect("a token");
        if broken {
            conn.reset();
        } else {
            conn.event(FINISH);
            conn.end_stream();
        }
        let end = loop {
            if let Err(error) = client.some() {
                break error;
            }
        };
        // Where TLS itself ends in order (RFC 8446, section 6.1), reading ends without a complaint.
        let orderly = end.kind() == ErrorKind::UnexpectedEof && !end.to_string().contains("close_notify");
        assert_eq!(orderly, !broken, "{end}");
    }
    assert_eq!(proxy.finished(2).iter().map(|exchange| exchange.outcome.label()).collect::<Vec<_>>(), ["reset", "ok"]);
}

#[test]
fn handshakes_that_fail_or_never_end_are_counted() {
    let (sim, pair) = (sim(), Pair::new());
    let files = Files::new(&pair);
    let keys = format!("{}\nheader_timeout_ms = 4000\nmax_connections = 3", files.config());
    let proxy = Proxy::start(&with(&keys, sim.addr()));
    let addr = proxy.running.listen();
    // One that speaks in the clear, one that trusts somebody else, one that only looks.
    let mut clear = Client::connect(addr);
    clear.send("GET / HTTP/1.1\r\n\r\n");
    assert!(clear.until(b"HTTP/1.1 ").is_err(), "TLS says that this is none");
    assert!(Pair::new().try_client(addr).is_err());
    drop(TcpStream::connect(addr).expect("connected"));
    let scrape = empty_scrape(&proxy);
    assert_eq!((refused(&scrape, "tls"), scrape.sum("connections_refused_total", &[])), (2.0, 2.0));

    // No place: closed without a word.
    let mut silent: Vec<_> = (0..3).map(|_| Client::connect(addr)).collect();
    eventually("they have their places", || (proxy.scrape().sum("connections", &[]) == 3.0).then_some(()));
    let closed = Client::connect(addr).some().expect_err("no place").kind();
    assert!(matches!(closed, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
    for client in &mut silent {
        assert_eq!(client.some().expect_err("no hello came").kind(), ErrorKind::UnexpectedEof);
    }
    let scrape = empty_scrape(&proxy);
    assert_eq!((refused(&scrape, "limit"), refused(&scrape, "header_timeout")), (1.0, 3.0));
    assert_eq!(scrape.sum("requests_started_total", &[]), 0.0);
}

#[test]
fn a_changed_certificate_is_shown_to_new_clients_while_old_ones_are_served() {
    let (upstream, before, after) = (Upstream::bind(), Pair::new(), Pair::new());
    let files = Files::new(&before);
    let proxy = Proxy::start(&with(&files.config(), upstream.addr()));
    let addr = proxy.running.listen();
    let mut old = before.try_client(addr).expect("a handshake");
    old.send(chat("", STREAM));
    let mut running = upstream.accept();
    running.request();
    running.begin_stream();
    running.event(TOKEN);
    old.until(TOKEN.as_bytes()).expect("an event");
    files.write(&after.cert, &after.key);
    let mut new = eventually("the new certificate is shown", || after.try_client(addr).ok());
    assert!(before.try_client(addr).is_err());
    new.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.answer("{}");
    assert_eq!(new.reply().status, 200);
    assert_eq!(proxy.finished(1).len(), 1, "the stream is not over");
    running.event(FINISH);
    running.end_stream();
    old.until(b"\r\n0\r\n\r\n").expect("the stream goes on to its end");
    drop((old, new));
    empty_scrape(&proxy);
}

#[test]
fn a_certificate_that_cannot_be_read_just_now_holds_nobody_up() {
    let (sim, pair) = (sim(), Pair::new());
    let files = Files::new(&pair);
    let proxy = Proxy::start(&with(&files.config(), sim.addr()));
    // Reading a pipe waits until somebody writes to it, as reading from a server of files may wait for that.
    let (pipe, cert) = (files.path("pipe"), files.path("cert.pem"));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    std::fs::rename(&pipe, &cert).expect("replaced");
    // Opening it for writing waits until somebody reads from it.
    let read = std::thread::spawn(move || std::fs::File::options().write(true).open(cert).expect("opened"));
    eventually("it is being read", || read.is_finished().then_some(()));
    for _ in 0..3 {
        let mut client = pair.try_client(proxy.running.listen()).expect("a handshake");
        assert_eq!(client.chat("ttft_ms=1,itl_ms=0,tokens=2", STREAM).status, 200);
        proxy.scrape();
    }
    drop(read.join().expect("a writer"));
    proxy.running.stop();
}

#[test]
fn a_pair_that_cannot_be_used_is_named_with_its_line() {
    let pair = Pair::new();
    let files = Files::new(&pair);
    let upstream = Upstream::bind();
    let says = |expected: &str| {
        let config = ConfigFile::new(&with(&files.config(), upstream.addr()));
        let output = config.refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert!(said.contains("gauge.toml:6: server.tls."), "{said}");
    };
    files.write(&pair.cert, &Pair::new().key);
    says("server.tls.key: ");
    says("does not belong to the certificate in cert");
    files.write("nothing", &pair.key);
    says("holds no certificate");
    files.write(&pair.cert, &pair.cert);
    says("holds no private key");
    std::fs::remove_file(files.path("key.pem")).expect("removed");
    says("server.tls.key: ");
}

#[test]
fn replies_of_known_length_and_refusals_keep_a_connection_under_tls() {
    let (upstream, pair) = (Upstream::bind(), Pair::new());
    let files = Files::new(&pair);
    let proxy = Proxy::start(&with(&files.config(), upstream.addr()));
    let mut client = pair.try_client(proxy.running.listen()).expect("a handshake");
    let mut conn = None;
    for _ in 0..3 {
        client.send(chat("", &STREAM.replace("\"stream\":true,", "")));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        conn.request();
        conn.answer(r#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}"#);
        let reply = client.reply();
        assert_eq!((reply.status, reply.ended), (200, Ended::Complete));
        assert_eq!(client.chat("", "{").status, 400);
    }
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("ok"), scrape.outcome("rejected")), (3.0, 3.0));
}
