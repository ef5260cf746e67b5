//! The whole proxy against real sockets: what it forwards, what it refuses, what it counts, and how it ends.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod config_errors;
mod conservation;
mod demo;
mod errors;
mod forwarding;
mod framing;
mod labels;
mod live;
mod models;
mod pool;
mod serve;
mod streams;
mod unreadable;
mod uploads;
mod web_pages;

/// A chat request that streams.
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;
/// A chat request for a whole reply.
const WHOLE: &str = r#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;

/// The data of an event with output, and of one that finishes.
const TOKEN: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

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
