//! Clients of HTTP/2 that take nothing, or say nothing: what they hold comes back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http2::{Client, aside, empty_scrape, text_of, within};
use crate::secure::{Files, Pair, name};
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::Upstream;
use crate::{refused, with};

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://localhost{path}")).body(Full::default()).expect("a request")
}

#[tokio::test]
async fn whole_replies_that_are_never_taken_are_reset_in_time_and_alone() {
    const MOST: usize = 4;
    let upstream = Arc::new(Upstream::bind());
    // The last piece in HTTP's hands but for a byte; and far more than it takes.
    for (window, bytes) in [(1, 300), (65_535, 1_000_000)] {
        let keys = format!("write_timeout_ms = 700\nmax_in_flight = {MOST}");
        let proxy = Proxy::start(&with(&keys, upstream.addr()));
        let socket = TcpStream::connect(proxy.running.listen()).await.expect("connected");
        let client = Client::with_window(socket, window).await;
        let (mut replies, mut sending) = (Vec::new(), Vec::new());
        for _ in 0..MOST {
            let upstream = upstream.clone();
            sending.push(tokio::task::spawn_blocking(move || {
                let mut conn = upstream.accept();
                conn.request();
                conn.send(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n"));
                conn.try_send("x".repeat(bytes));
                conn
            }));
            replies.push(within("a head", client.ask(get("/v1/files/a"))).await);
        }
        within("the end of patience", async {
            while refused(&proxy.scrape(), "write_timeout") < MOST as f64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        for reply in replies {
            assert!(within("its end", reply.into_body().collect()).await.is_err());
        }
        let scrape = aside({
            let proxy = Arc::new(proxy);
            move || (proxy.idle_scrape(), proxy)
        });
        let (scrape, proxy) = scrape.await;
        assert_eq!((scrape.sum("requests_total", &[]), scrape.sum("connections", &[])), (MOST as f64, 1.0));
        assert_eq!(refused(&scrape, "write_timeout"), MOST as f64);
        let refusal = Request::post("http://localhost/v1/chat/completions").header("content-type", "application/json");
        let refusal = refusal.body(Full::from("{")).expect("a request");
        let refusal = within("a head", client.ask(refusal)).await;
        assert!(text_of(refusal.into_body()).await.contains("invalid_json"), "the connection goes on");
        for conn in sending {
            drop(within("the upstream's end", conn).await);
        }
        drop((client, proxy));
    }
}

#[tokio::test]
async fn a_large_reply_comes_whole_through_a_small_window() {
    let upstream = Arc::new(Upstream::bind());
    let proxy = Proxy::start(&with("", upstream.addr()));
    for (window, bytes) in [(1, 300), (1_000, 200_000), (1 << 20, 3_000_000)] {
        let socket = TcpStream::connect(proxy.running.listen()).await.expect("connected");
        let client = Client::with_window(socket, window).await;
        let body: String = ('a'..='w').cycle().take(bytes).collect();
        let (sent, upstream) = (body.clone(), upstream.clone());
        let sending = tokio::task::spawn_blocking(move || {
            let mut conn = upstream.accept();
            conn.request();
            conn.send(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n{sent}"));
            conn
        });
        let reply = within("a head", client.ask(get("/v1/files/a"))).await;
        assert!(text_of(reply.into_body()).await == body, "{bytes} bytes, in order");
        drop(sending.await.expect("sent"));
    }
}

#[tokio::test]
async fn who_shakes_hands_and_says_nothing_is_let_go() {
    let (sim, pair) = (sim(), Pair::new());
    let files = Files::new(&pair);
    let proxy = Proxy::start(&with(&format!("{}\nheader_timeout_ms = 500", files.config()), sim.addr()));
    let socket = TcpStream::connect(proxy.running.listen()).await.expect("connected");
    let mut socket = TlsConnector::from(pair.trusted(&["h2"])).connect(name(), socket).await.expect("a handshake");
    // Whether its end is in order or not.
    let _ = within("the connection's end", socket.read_to_end(&mut Vec::new())).await;
    let scrape = empty_scrape(&proxy).await;
    assert_eq!((refused(&scrape, "header_timeout"), scrape.sum("connections_refused_total", &[])), (1.0, 1.0));
}

#[tokio::test]
async fn who_does_not_answer_when_it_is_told_to_go_is_let_go() {
    let sim = sim();
    let proxy = Proxy::start(&with("header_timeout_ms = 500", sim.addr()));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // HPACK (RFC 7541): GET, http, and two literals.
    let head = b"\0\0\x16\x01\x05\0\0\0\x01\x82\x86\x04\x07/health\x41\x09localhost";
    for (request, unused) in [(&head[..], 0.0), (&[], 1.0)] {
        let mut socket = TcpStream::connect(proxy.running.listen()).await.expect("connected");
        socket.write_all(&[preface, request].concat()).await.expect("sent");
        let mut read = Vec::new();
        // The ping that comes before the last GOAWAY gets no answer.
        let _ = within("the connection's end", socket.read_to_end(&mut read)).await;
        let answered = read.windows(15).any(|part| part == br#"{"status":"ok"}"#);
        assert_eq!(answered, unused == 0.0, "{}", read.escape_ascii());
        assert_eq!(empty_scrape(&proxy).await.sum("connections_refused_total", &[]), unused);
    }
}
