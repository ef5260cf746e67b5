//! Compressed replies and requests through the whole proxy: what came passes in its bytes, the observer sees what it
//! says.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/codings.rs"]
mod codings;
#[path = "../support/mod.rs"]
mod support;

mod documents;
mod faults;
mod requests;
mod streams;

use codings::{NAMES, RAW};
use support::upstream::Conn;

/// A chat request that streams, from a client that takes any coding.
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;
/// A chat request for a whole reply.
const WHOLE: &str = r#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;

const ROLE: &str = r#"{"model":"served","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
const TOKEN: &str = r#"{"model":"served","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}"#;

/// Every coding, and chains of them.
fn every_coding() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().chain([RAW, "gzip, br", "br, zstd, deflate"])
}

/// The value of `content-encoding` that goes with a list of [`codings`].
fn header(codings: &str) -> String {
    codings.replace(RAW, "deflate")
}

fn post(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         accept-encoding: gzip, deflate, br, zstd\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An event as it stands in a stream.
fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// Begins a chunked reply of this kind and coding.
fn begin(conn: &mut Conn, kind: &str, coding: &str) {
    conn.send(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n"
    ));
}

/// Sends one chunk in one write.
fn chunk(conn: &mut Conn, bytes: &[u8]) {
    conn.send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat());
}
