//! Requests that are framed oddly: what could be read in two ways is refused, what can be read in one is read.

use std::io::ErrorKind;

use streamgauge::backend::sim::text;

use crate::support::client::Client;
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::Upstream;
use crate::{STREAM, empty_scrape, refused, with};

const BODY: &str = "{\"a\":1}";

fn post(path: &str, headers: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{headers}\r\n{body}")
}

/// The connection takes no more requests.
fn assert_over(client: &mut Client) {
    let end = client.some().expect_err("an end").kind();
    assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end:?}");
}

/// What two parsers could understand differently lets one smuggle requests past the other (RFC 9112, section 11.2).
#[test]
fn ambiguous_lengths_are_refused_and_reach_no_upstream() {
    let sim = sim();
    let proxy = Proxy::start(&with("", sim.addr()));
    let cases = [
        ("content-length: 7\r\ncontent-length: 8\r\n", BODY),
        ("content-length: 7, 8\r\n", BODY),
        ("content-length: +7\r\n", BODY),
        ("content-length: 0x7\r\n", BODY),
        ("content-length: -1\r\n", BODY),
        ("content-length: 99999999999999999999999\r\n", BODY),
        ("transfer-encoding: gzip\r\n", BODY),
        ("transfer-encoding: chunked, gzip\r\n", "7\r\n{\"a\":1}\r\n0\r\n\r\n"),
        ("transfer-encoding: chunkedd\r\n", "7\r\n{\"a\":1}\r\n0\r\n\r\n"),
        ("content-length : 7\r\n", BODY),
        ("x-a: 1\r\n content-length: 7\r\n", BODY),
    ];
    for path in ["/v1/chat/completions", "/v1/files"] {
        for (headers, body) in cases {
            let mut client = proxy.client();
            let reply = client.ask(post(path, headers, body));
            assert_eq!(reply.status, 400, "{headers:?}: {reply:?}");
            assert_over(&mut client);
        }
    }
    assert_eq!(sim.counts().opened, 0);
    // Counted once the client has its answer.
    let scrape = empty_scrape(&proxy);
    assert_eq!(refused(&scrape, "bad_request"), 2.0 * cases.len() as f64);
    assert_eq!(scrape.sum("requests_started_total", &[]), 0.0, "none was a request");
}

/// A coding beats a length (RFC 9112, section 6.3); the length is not passed on, and the connection is not used again.
#[test]
fn a_length_beside_chunks_is_ignored() {
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with("", upstream.addr()));
    for headers in
        ["content-length: 3\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 300\r\n"]
    {
        let mut client = proxy.client();
        client.send(post("/v1/files", headers, "7\r\n{\"a\":1}\r\n0\r\n\r\n"));
        let mut conn = upstream.accept();
        let head = conn.request_head().expect("a request").to_ascii_lowercase();
        assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"), "{head}");
        assert_eq!(conn.rest_of_chunks(), "7\r\n{\"a\":1}\r\n0\r\n\r\n");
        conn.answer("{}");
        assert_eq!(client.reply().status, 200);
        drop(conn);
    }
}

#[test]
fn chunk_extensions_are_dropped_and_broken_chunks_end_the_request() {
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with("", upstream.addr()));
    let chunked = "transfer-encoding: chunked\r\n";
    let mut client = proxy.client();
    client.send(post("/v1/files", chunked, "3;name=value\r\nabc\r\n4;q=\"x;y\"\r\ndefg\r\n0;last\r\n\r\n"));
    let mut conn = upstream.accept();
    conn.request_head().expect("a request");
    let body = conn.rest_of_chunks();
    assert!(!body.contains("name") && !body.contains("last"), "{body}");
    assert!(body.contains("abc") && body.contains("defg"), "{body}");
    conn.answer("{}");
    assert_eq!(client.reply().status, 200);
    drop(conn);

    for broken in ["xyz\r\nabc\r\n", "3\r\nabcX\r\n0\r\n\r\n", "-1\r\nabc\r\n", "fffffffffffffffff\r\nabc\r\n"] {
        let mut client = proxy.client();
        client.send(post("/v1/chat/completions", chunked, broken));
        let reply = client.reply();
        assert_eq!(reply.status, 400, "{broken:?}");
        assert_over(&mut client);
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.outcome("client_cancel_before_token"), 4.0, "{}", scrape.text);
    assert!(!upstream.is_wanted(), "nothing of them was sent on");
}

#[test]
fn equal_lengths_are_one_and_empty_lines_before_a_request_are_none() {
    let sim = sim();
    let proxy = Proxy::start(&with("", sim.addr()));
    let mut client = proxy.client();
    let sim = "x-sim: ttft_ms=0,itl_ms=0,tokens=2\r\n";
    let length = format!("content-length: {}\r\n", STREAM.len());
    let doubled = post("/v1/chat/completions", &format!("{sim}{length}{length}"), STREAM);
    assert_eq!(client.ask(&doubled).text(0, "content"), text(2));
    let chunked = format!("{sim}Transfer-Encoding: Chunked\r\n");
    let body = format!("{:X}\r\n{STREAM}\r\n0\r\n\r\n", STREAM.len());
    let after_lines = format!("\r\n\r\n{}", post("/v1/chat/completions", &chunked, &body));
    assert_eq!(client.ask(&after_lines).text(0, "content"), text(2));
}

#[test]
fn trailers_of_a_request_end_it() {
    let sim = sim();
    let proxy = Proxy::start(&with("", sim.addr()));
    let mut client = proxy.client();
    let headers = "x-sim: ttft_ms=0,itl_ms=0,tokens=2\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n";
    let body = format!("{:x}\r\n{STREAM}\r\n0\r\nx-sum: abc\r\n\r\n", STREAM.len());
    // Twice, to see that nothing of the first is taken for the second.
    for _ in 0..2 {
        assert_eq!(client.ask(post("/v1/chat/completions", headers, &body)).text(0, "content"), text(2));
    }
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with("", upstream.addr()));
    let mut client = proxy.client();
    let mut conn = None;
    for _ in 0..2 {
        client.send(post(
            "/v1/files",
            "trailer: x-sum\r\ntransfer-encoding: chunked\r\n",
            "3\r\nabc\r\n0\r\nx-sum: abc\r\n\r\n",
        ));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        let head = conn.request_head().expect("a request");
        assert!(head.contains("trailer: x-sum\r\n"), "{head}");
        assert_eq!(conn.rest_of_chunks(), "3\r\nabc\r\n0\r\nx-sum: abc\r\n\r\n");
        conn.answer("{}");
        assert_eq!(client.reply().status, 200);
    }
    assert_eq!(proxy.idle_scrape().outcome("ok"), 2.0);
}

#[test]
fn who_expects_to_be_told_is_refused_before_sending() {
    let sim = sim();
    let proxy = Proxy::start(&with("max_body_bytes = 100", sim.addr()));
    for path in ["/v1/chat/completions", "/v1/files"] {
        let mut client = proxy.client();
        let reply = client.ask(post(path, "expect: 100-continue\r\ncontent-length: 101\r\n", ""));
        assert_eq!(reply.status, 413, "and no 100 before it: {reply:?}");
        assert_over(&mut client);
    }
    // Without a body there is nothing to be told.
    let mut client = proxy.client();
    let get = "GET /health HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n\r\n";
    assert_eq!((client.ask(get).status, client.ask(get).status), (200, 200));
}

#[test]
fn http_1_0_is_served_with_and_without_keep_alive() {
    let sim = sim();
    let proxy = Proxy::start(&with("", sim.addr()));
    let mut client = proxy.client();
    let reply = client.ask("GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n");
    assert_eq!((reply.status, reply.header("connection")), (200, Some("keep-alive")));
    let reply = client.ask("GET /health HTTP/1.0\r\n\r\n");
    assert_eq!(reply.status, 200);
    assert_over(&mut client);
    // It knows no chunks (RFC 9112, section 6.1): such a body cannot be told from what follows.
    let mut client = proxy.client();
    let chunked = post("/v1/files", "transfer-encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n");
    let reply = client.ask(chunked.replace("HTTP/1.1", "HTTP/1.0"));
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_over(&mut client);
    let mut client = proxy.client();
    assert_eq!(client.ask("GET / HTTP/3.0\r\n\r\n").status, 400);
}
