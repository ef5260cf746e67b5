//! The client's side of the proxy: what clients may take, TLS, HTTP/2, Unix sockets, and odd framing.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod bodyless;
mod corners;
mod credentials;
mod http2;
mod limits;
mod secure;
mod shapes;
mod tls;
mod unix;
mod unread;

use std::net::SocketAddr;

use support::metrics::Scrape;
use support::stage::{Proxy, SERVER, TO_UP, backend};

/// A chat request that streams.
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;
/// The data of an event with output, and of one that finishes.
const TOKEN: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

/// A configuration with one backend, and more keys under `[server]`.
fn with(server: &str, upstream: SocketAddr) -> String {
    // A client in the test's own thread cannot answer while the proxy waits for it to go.
    format!("{SERVER}drain_timeout_ms = 1000\n{server}\n{}{TO_UP}", backend("up", upstream, ""))
}

/// How many clients were turned away for this reason.
fn refused(scrape: &Scrape, reason: &str) -> f64 {
    scrape.sum("connections_refused_total", &[("reason", reason)])
}

/// A scrape in which no connection is open any more.
fn empty_scrape(proxy: &Proxy) -> Scrape {
    support::eventually("no connection is open", || {
        let scrape = proxy.idle_scrape();
        (scrape.sum("connections", &[]) == 0.0).then_some(scrape)
    })
}

/// A POST of JSON.
fn post(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let length = body.len().to_string();
    let json = [("content-type", "application/json"), ("content-length", &*length)];
    request("POST", path, &[headers, &json].concat()) + body
}

/// A request's head.
fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}
