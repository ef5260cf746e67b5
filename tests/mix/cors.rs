//! What pages of listed origins may do, and that nobody else's answers change.

use std::net::SocketAddr;

use crate::support::client::Reply;
use crate::support::stage::{Proxy, TO_UP, backend, sim};
use crate::support::upstream::Upstream;
use crate::{chat, post, request, two_threads};

const CORS: &str = "cors = [\"https://chat.example\", \"http://localhost:3000\"]";
const LISTED: (&str, &str) = ("origin", "https://chat.example");
const FOREIGN: (&str, &str) = ("origin", "https://evil.example");

fn start(upstream: SocketAddr) -> Proxy {
    Proxy::start(&format!("{}{}{TO_UP}", two_threads(CORS), backend("up", upstream, "")))
}

/// The headers of CORS in a reply, and `vary`, as they stand.
fn cors_headers(reply: &Reply) -> Vec<String> {
    let lines = reply.head.lines().skip(1).map(str::to_ascii_lowercase);
    let mut found: Vec<_> =
        lines.filter(|line| line.starts_with("access-control-") || line.starts_with("vary")).collect();
    found.sort();
    found
}

const ALLOWED: [&str; 3] =
    ["access-control-allow-origin: https://chat.example", "access-control-expose-headers: *", "vary: origin"];

#[test]
fn a_preflight_of_a_listed_origin_is_answered_here() {
    let sim = sim();
    let proxy = start(sim.addr());
    let mut client = proxy.client();
    let asks = [
        LISTED,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-streamgauge-tag"),
    ];
    let reply = client.ask(request("OPTIONS", "/v1/chat/completions", &asks));
    assert_eq!((reply.status, reply.header("content-length")), (204, None));
    let mut expected = vec![
        "access-control-allow-headers: authorization,content-type,x-streamgauge-tag",
        "access-control-allow-methods: get, head, post, put, patch, delete",
        "access-control-allow-origin: https://chat.example",
        "access-control-max-age: 600",
        "vary: origin, access-control-request-method, access-control-request-headers",
    ];
    assert_eq!(cors_headers(&reply), expected);

    let private = [&asks[..], &[("access-control-request-private-network", "true")]].concat();
    let reply = client.ask(request("OPTIONS", "/anything", &private));
    expected.insert(3, "access-control-allow-private-network: true");
    assert_eq!(cors_headers(&reply), expected);

    assert_eq!(sim.counts().requests, 0, "neither went upstream");
    let scrape = proxy.idle_scrape();
    let counted = [("operation", "other"), ("outcome", "ok"), ("status", "204"), ("backend", "none")];
    assert_eq!(scrape.sum("requests_total", &counted), 2.0);
    assert_eq!(scrape.sum("requests_started_total", &[("operation", "other")]), 2.0);
}

#[test]
fn every_answer_to_a_listed_origin_can_be_read_by_its_page() {
    let sim = sim();
    let proxy = start(sim.addr());
    let mut client = proxy.client();
    let stream = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"a"}]}"#;
    let at_once = ("x-sim", "ttft_ms=1,itl_ms=1,tokens=3");
    for (request, status) in [
        (chat("m", &[LISTED]), 200),
        (post("/v1/chat/completions", &[LISTED, at_once], stream), 200),
        (post("/v1/chat/completions", &[LISTED, ("x-sim", "ttft_ms=1,status=429")], stream), 429),
        (post("/v1/chat/completions", &[LISTED], "no json"), 400),
        (request("GET", "/v1/models", &[LISTED]), 200),
        (request("TRACE", "/", &[LISTED]), 405),
        // No preflight, as it asks for no method: the upstream answers.
        (request("OPTIONS", "/v1/chat/completions", &[LISTED]), 204),
        (request("GET", "/nowhere", &[LISTED]), 404),
    ] {
        let reply = client.ask(request.clone());
        assert_eq!((reply.status, cors_headers(&reply)), (status, ALLOWED.map(str::to_owned).to_vec()), "{request}");
    }
    proxy.idle_scrape();
}

/// Asks over a client with these headers; the upstream answers with those and `body`.
fn through(proxy: &Proxy, upstream: &Upstream, headers: &[(&str, &str)], theirs: &str) -> Reply {
    let mut client = proxy.client();
    client.send(chat("m", &[headers, &[("connection", "close")]].concat()));
    let mut conn = upstream.accept();
    conn.request();
    conn.send(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{theirs}content-length: 4\r\n\r\nbody"));
    let reply = client.reply();
    assert_eq!(reply.body, b"body");
    reply
}

#[test]
fn what_the_upstream_says_of_cors_is_replaced_for_listed_origins_and_passes_for_others() {
    const THEIRS: &str = "access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\n\
                          access-control-x: 1\r\nvary: accept-encoding\r\n";
    let theirs = [
        "access-control-allow-credentials: true",
        "access-control-allow-origin: *",
        "access-control-x: 1",
        "vary: accept-encoding",
    ];
    let upstream = Upstream::bind();
    let proxy = start(upstream.addr());
    let reply = through(&proxy, &upstream, &[LISTED], THEIRS);
    assert_eq!(
        cors_headers(&reply),
        [ALLOWED[0], ALLOWED[1], "vary: accept-encoding", "vary: origin"],
        "theirs are replaced, vary is kept"
    );
    for varies in ["vary: Accept-Encoding, Origin\r\n", "vary: *\r\n"] {
        let reply = through(&proxy, &upstream, &[LISTED], varies);
        assert_eq!(cors_headers(&reply), [ALLOWED[0], ALLOWED[1], varies.trim_end().to_ascii_lowercase().as_str()]);
    }
    assert_eq!(cors_headers(&through(&proxy, &upstream, &[FOREIGN], THEIRS)), theirs);
    assert_eq!(cors_headers(&through(&proxy, &upstream, &[], THEIRS)), theirs);

    let closed = Proxy::before(upstream.addr(), "");
    assert_eq!(cors_headers(&through(&closed, &upstream, &[LISTED], THEIRS)), theirs, "cors is empty");
}

#[test]
fn a_preflight_of_an_origin_that_is_not_listed_goes_on_as_any_request() {
    let upstream = Upstream::bind();
    let proxy = start(upstream.addr());
    for origin in [FOREIGN, ("origin", "null"), ("origin", "https://chat.example.evil.example")] {
        let mut client = proxy.client();
        client.send(request("OPTIONS", "/v1/chat/completions", &[origin, ("access-control-request-method", "POST")]));
        let mut conn = upstream.accept();
        assert!(conn.request().head.starts_with("OPTIONS /v1/chat/completions HTTP/1.1\r\n"));
        conn.send("HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let reply = client.reply();
        assert_eq!((reply.status, cors_headers(&reply)), (403, Vec::new()));
    }
}
