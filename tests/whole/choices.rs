//! Replies of very many choices: none is lost, whether the whole is made of a stream or not.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::support::client::Ended;
use crate::support::stage::Proxy;
use crate::support::upstream::Upstream;
use crate::{MEASURED, post_to};

/// The most choices that are put together.
const MOST: usize = 128;

/// A text completion of so many prompts.
fn of_prompts(prompts: usize) -> String {
    json!({"model": "m", "prompt": vec!["one"; prompts]}).to_string()
}

/// The choices of its reply.
fn choices(count: usize) -> Value {
    (0..count).map(|index| json!({"text": "a", "index": index, "logprobs": null, "finish_reason": "stop"})).collect()
}

/// The stream of so many choices, one event each.
fn stream(chat: bool, count: usize) -> String {
    let output = if chat { r#""delta":{"content":"a"}"# } else { r#""text":"a""# };
    let mut events = String::new();
    for index in 0..count {
        let choice = format!(r#"{{{output},"index":{index},"logprobs":null,"finish_reason":"stop"}}"#);
        writeln!(events, "data: {{\"choices\":[{choice}]}}\n").expect("text");
    }
    events + "data: {\"choices\":[],\"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"
}

/// The head of a stream and all of it.
fn streamed(stream: &str) -> String {
    let length = stream.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{stream}")
}

#[test]
fn more_choices_than_are_put_together_are_asked_for_as_the_client_wrote_it() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), MEASURED);
    let mut client = proxy.client();
    let many = of_prompts(MOST + 1);
    client.send(post_to("/v1/completions", &[], &many));
    let mut conn = upstream.accept();
    assert_eq!(String::from_utf8_lossy(&conn.request().body), many);
    let whole = json!({"choices": choices(MOST + 1)}).to_string();
    conn.answer(&whole);
    let reply = client.reply();
    assert_eq!((reply.status, String::from_utf8_lossy(&reply.body)), (200, whole.into()));
    // As many as can be are.
    client.send(post_to("/v1/completions", &[], &of_prompts(MOST)));
    assert!(conn.request().body.starts_with(br#"{"stream":true,"#));
    conn.send(streamed(&stream(false, MOST)));
    let reply = client.reply();
    assert_eq!((reply.status, reply.ended, &reply.json()["choices"]), (200, Ended::Complete, &choices(MOST)));
}

#[test]
fn a_reply_of_more_choices_than_were_asked_for_is_never_short() {
    for (path, body) in [
        ("/v1/completions", r#"{"model":"m","prompt":"one"}"#),
        ("/v1/chat/completions", r#"{"model":"m","n":"129","messages":[]}"#),
    ] {
        let upstream = Upstream::bind();
        let proxy = Proxy::before(upstream.addr(), MEASURED);
        let mut client = proxy.client();
        client.send(post_to(path, &[], body));
        let mut conn = upstream.accept();
        assert!(conn.request().body.starts_with(br#"{"stream":true,"#));
        conn.send(streamed(&stream(path.contains("chat"), MOST + 1)));
        let reply = client.reply();
        let error = &reply.json()["error"];
        assert_eq!(reply.status, 502, "{path}");
        assert!(error["message"].as_str().expect("a message").contains("more than 128 choices"), "{error}");
        proxy.idle_scrape();
    }
}
