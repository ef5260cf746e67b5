//! Where requests go when there is a choice: weights, conversations, names given by hand, mirrors; and which web pages
//! may ask.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/mod.rs"]
mod support;

mod by_hand;
mod cors;
mod counts;
mod mirror;
mod once;
mod weights;

use support::stage::SERVER;

/// A reply as soon as can be.
const AT_ONCE: &str = "ttft_ms=0,itl_ms=0,tokens=1";

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

/// A chat request of this model, for a reply at once.
fn chat(model: &str, headers: &[(&str, &str)]) -> String {
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"one two"}}]}}"#);
    post("/v1/chat/completions", &[&[("x-sim", AT_ONCE)], headers].concat(), &body)
}

/// [`SERVER`], with two threads and more keys.
fn two_threads(more: &str) -> String {
    format!("{}{more}\n", SERVER.replace("threads = 1", "threads = 2"))
}

/// Fails unless `count` of `all` is within six standard deviations of a share: one correct run in 10^8 fails.
fn assert_share(count: f64, all: u64, share: f64) {
    let (mean, deviation) = (all as f64 * share, (all as f64 * share * (1.0 - share)).sqrt());
    assert!((count - mean).abs() <= 6.0 * deviation, "{count} of {all}, expected {mean}");
    println!("{count} of {all}, expected {mean}");
}
