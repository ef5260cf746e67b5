//! What clients are told by us, each in the shape that its dialect's SDKs read.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::post;
use crate::support::client::Reply;
use crate::support::stage::{Proxy, SERVER, TO_UP, backend, sim};

/// Where each dialect asks, and whether its errors are Anthropic's.
const PATHS: [(&str, bool); 9] = [
    ("/v1/messages?beta=true", true),
    ("/messages", true),
    ("/v1/messages/count_tokens", true),
    ("/v1/responses", false),
    ("/v1/responses/input_tokens", false),
    ("/v1/completions", false),
    ("/v1/chat/completions", false),
    ("/v1/embeddings", false),
    ("/v1/rerank", false),
];

/// Checks the shape, and that the sentence contains `says`. `kind` is Anthropic's type, `code` OpenAI's code.
fn assert_told(reply: &Reply, anthropic: bool, status: u16, (kind, code): (&str, &str), says: &str) {
    assert_eq!((reply.status, reply.header("content-type")), (status, Some("application/json")), "{reply:?}");
    let told = reply.json();
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let error = &told["error"];
    if anthropic {
        assert_eq!((keys(&told), keys(error)), (set(&["error", "type"]), set(&["message", "type"])), "{told}");
        assert_eq!((&told["type"], &error["type"]), (&"error".into(), &kind.into()), "{told}");
    } else {
        assert_eq!((keys(&told), keys(error)), (set(&["error"]), set(&["code", "message", "param", "type"])), "{told}");
        assert_eq!(error["code"], code, "{told}");
    }
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains(says), "{says:?} is not in: {message}");
}

/// Asks at every path and checks what is told.
fn told_everywhere(proxy: &Proxy, body: &str, status: u16, names: (&str, &str), says: &str) {
    for (path, anthropic) in PATHS {
        let reply = proxy.client().ask(post(path, &[], body));
        assert_told(&reply, anthropic, status, names, says);
    }
}

const ASKED: &str = r#"{"model":"m","max_tokens":1}"#;

#[test]
fn what_cannot_be_read_or_routed_is_told_in_the_dialect_of_the_request() {
    let sim = sim();
    let up = backend("up", sim.addr(), "");
    let route = "[[route]]\nmodel = \"known-*\"\nbackend = \"up\"\n";
    let proxy = Proxy::start(&format!("{SERVER}max_body_bytes = 1000\n{up}{route}"));
    told_everywhere(&proxy, ASKED, 404, ("not_found_error", "model_not_found"), "no route takes the model \"m\"");
    told_everywhere(&proxy, "{\"model\":", 400, ("invalid_request_error", "invalid_json"), "cannot be read as a JSON");
    let large = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "x".repeat(1000));
    told_everywhere(&proxy, &large, 413, ("request_too_large", "request_too_large"), "max_body_bytes");
    // What names no model needs a route for all.
    let nowhere = proxy.client().ask(post("/v1/messages/batches", &[], ASKED));
    assert_told(&nowhere, true, 404, ("not_found_error", ""), "no route with model = \"*\"");
    assert_eq!(sim.counts().requests, 0);
    assert_eq!(proxy.idle_scrape().outcome("rejected"), 28.0);
}

#[test]
fn an_upstream_that_is_not_there_is_told_in_the_dialect_of_the_request() {
    let gone = sim().addr();
    let proxy = Proxy::before(gone, "");
    for (path, anthropic) in PATHS {
        let reply = proxy.client().ask(post(path, &[], ASKED));
        assert_told(&reply, anthropic, 502, ("api_error", "upstream_connect"), "check that it runs");
    }
    assert_eq!(proxy.idle_scrape().outcome("connect_error"), PATHS.len() as f64);
}

#[test]
fn what_a_model_in_this_process_does_not_answer_is_told_in_the_dialect_of_the_request() {
    let shape = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/llama/fixtures/gqa_tied");
    let own = format!("[backend.own]\nkind = \"llama\"\nmodel = {shape:?}\ndevice = \"cpu\"\nload = \"dummy\"\n");
    let proxy = Proxy::start(&format!("{SERVER}{own}{}", TO_UP.replace("\"up\"", "\"own\"")));
    for (path, anthropic) in [
        ("/v1/messages?beta=true", true),
        ("/v1/messages/count_tokens", true),
        ("/v1/responses", false),
        ("/v1/responses/input_tokens", false),
        ("/v1/embeddings", false),
        ("/v1/rerank", false),
    ] {
        let reply = proxy.client().ask(post(path, &[], ASKED));
        let names = ("api_error", "backend_not_available");
        assert_told(&reply, anthropic, 501, names, "is a model in this process");
    }
    assert_eq!(proxy.idle_scrape().outcome("rejected"), 6.0);
}
