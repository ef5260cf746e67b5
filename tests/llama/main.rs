//! The Llama backend behind the whole proxy: what it answers, what it refuses, what it counts.

#![allow(clippy::float_cmp)] // what is compared are counts: whole numbers in Prometheus' f64

#[path = "../support/mod.rs"]
mod support;

mod api;
mod completions;
mod loading;
mod real;
mod slots;
mod tiny;

use std::path::PathBuf;

use support::client::Client;
use support::stage::{Proxy, SERVER};

/// A model's shape with a context of 512 tokens and a vocabulary of 128.
fn shape() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/llama/fixtures/gqa_tied")
}

/// A backend of random weights without a tokenizer: a prompt's bytes are its tokens, and output tokens are their
/// numbers.
fn dummy(more: &str) -> String {
    format!(
        "[backend.dummy]\nkind = \"llama\"\nmodel = \"{}\"\nload = \"dummy\"\ndevice = \"cpu\"\n{more}\n\
         [[route]]\nmodel = \"llama-2-*\"\nbackend = \"dummy\"\n",
        shape().display()
    )
}

/// Starts a proxy and waits until its models are loaded and warm.
fn start(config: &str) -> Proxy {
    let proxy = Proxy::start(&format!("{SERVER}{config}"));
    let load = proxy.running.loading();
    load(&mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    support::eventually("it is ready", || {
        (Client::connect(proxy.running.admin()).get("/readyz").status == 200).then_some(())
    });
    proxy
}

/// A chat completion request as it goes over the wire.
fn post(body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A request's body: one user message and more fields, such as `"stream":true`.
fn chat(model: &str, content: &str, more: &str) -> String {
    let content = serde_json::Value::from(content);
    let comma = if more.is_empty() { "" } else { "," };
    format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":{content}}}]{comma}{more}}}"#)
}
