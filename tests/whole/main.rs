//! Requests that ask for more than their clients wrote: usage (`include_usage`), and a stream in place of a whole reply
//! (`measure_non_stream`). What the client gets must be what it would have got.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/mod.rs"]
mod support;

mod choices;
mod dialects;
mod gathered;
mod refused;
mod replies;
mod usage;

use streamgauge::backend::sim::{Received, SimHandle};

/// A chat request that streams and says nothing of usage.
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;
/// A chat request for a whole reply.
const WHOLE: &str = r#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;

/// What `[backend.up]` says to ask for usage, and for streams.
const USAGE: &str = "include_usage = true";
const MEASURED: &str = "measure_non_stream = true";

/// A chat completion with these headers and this body.
fn post(headers: &[(&str, &str)], body: &str) -> String {
    post_to("/v1/chat/completions", headers, body)
}

fn post_to(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n");
    let length = body.len().to_string();
    let json = [("content-type", "application/json"), ("content-length", &*length)];
    for (name, value) in headers.iter().chain(&json) {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n" + body
}

/// The last request that the simulation read.
fn last(sim: &SimHandle) -> Received {
    sim.received().pop().expect("a request")
}

/// A body of the simulation's, without the second in which it was made.
fn timeless(body: &[u8]) -> String {
    let mut text = String::from_utf8(body.to_vec()).expect("UTF-8");
    let mut from = 0;
    while let Some(at) = text[from..].find("\"created\":") {
        let start = from + at + "\"created\":".len();
        let end = start + text[start..].bytes().take_while(u8::is_ascii_digit).count();
        text.replace_range(start..end, "0");
        from = start;
    }
    text
}
