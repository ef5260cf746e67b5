//! The proxy's own way to its upstreams: through proxies, to one of several addresses, and by HTTP/2.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod http2;
mod proxies;
mod refusals;
mod server;
mod tinyproxy;

use support::client::Reply;

/// A chat request that streams.
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;
/// A chat request for a whole reply.
const WHOLE: &str = r#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;

/// A chat request.
fn chat(headers: &[(&str, &str)], body: &str) -> String {
    let mut head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n".to_owned();
    let length = body.len().to_string();
    for (name, value) in headers.iter().chain(&[("content-type", "application/json"), ("content-length", &*length)]) {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n" + body
}

/// Checks that no reply could be passed on, and that the one sentence about it contains `says`.
fn assert_told(reply: &Reply, status: u16, code: &str, says: &[&str]) {
    let body = reply.json();
    assert_eq!((reply.status, body["error"]["code"].as_str()), (status, Some(code)), "{body}");
    let message = body["error"]["message"].as_str().expect("a message");
    for part in says {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}
