//! Requests that ask how many tokens another would have: they go where that one goes, and are not measured.

use std::collections::BTreeMap;

use crate::support::stage::{Proxy, backend, sim};
use crate::support::upstream::Upstream;
use crate::{AT_ONCE, post, two_threads};

/// What is asked, and what of it stands below `/v1` upstream.
const ASKED: [(&str, &str, &str); 3] = [
    ("/v1/messages/count_tokens?beta=true", "/messages/count_tokens?beta=true", r#"{"model": "m", "messages":[]}"#),
    ("/messages/count_tokens/", "/messages/count_tokens", r#"{"messages":[],"model":"m"}"#),
    ("/v1/responses/input_tokens", "/responses/input_tokens", r#"{"input":"one","model":"m"}"#),
];

#[test]
fn a_count_is_asked_of_the_backend_that_has_the_model() {
    let (a, b) = (Upstream::bind(), Upstream::bind());
    let asking = "include_usage = true\nmeasure_non_stream = true";
    let backends = two_threads("") + &backend("a", a.addr(), "") + &backend("b", b.addr(), asking);
    let routes = "[[route]]\nmodel = \"m\"\nbackend = \"b\"\nupstream_model = \"of-b\"\n\
                  mirror = { backend = \"a\", share = 1 }\n[[route]]\nmodel = \"*\"\nbackend = \"a\"\n";
    let proxy = Proxy::start(&(backends + routes));
    let (mut client, mut to_b) = (proxy.client(), None);
    for (number, (path, upstream, body)) in (1..).zip(ASKED) {
        client.send(post(path, &[], body));
        let conn = to_b.get_or_insert_with(|| b.accept());
        let read = conn.request();
        assert!(read.head.starts_with(&format!("POST /v1{upstream} HTTP/1.1\r\n")), "{}", read.head);
        assert_eq!(String::from_utf8_lossy(&read.body), body.replace("\"m\"", "\"of-b\""));
        conn.answer(r#"{"input_tokens":3}"#);
        let reply = client.reply();
        assert_eq!((reply.status, &*reply.body), (200, &br#"{"input_tokens":3}"#[..]));
        let exchange = proxy.finished(number).pop().expect("one");
        assert_eq!((exchange.operation, exchange.backend.as_deref()), ("other", Some("b")));
        assert_eq!((exchange.measured, exchange.outcome.label()), (false, "ok"));
    }
    assert!(!a.is_wanted(), "a count is not mirrored");

    // Another model's is another backend's.
    let body = r#"{"model":"n","messages":[]}"#;
    client.send(post(ASKED[0].0, &[], body));
    let mut to_a = a.accept();
    assert_eq!(to_a.request().body, body.as_bytes());
    to_a.answer("{}");
    assert_eq!(client.reply().status, 200);
    // One that is signed cannot be changed.
    let signed = client.ask(post(ASKED[0].0, &[("x-tt-sign", "s")], ASKED[0].2));
    assert_eq!((signed.status, signed.json()["type"].as_str()), (400, Some("error")));
    proxy.idle_scrape();
}

#[test]
fn a_count_goes_where_its_conversation_is() {
    const CONVERSATIONS: usize = 24;
    let (a, b) = (sim(), sim());
    let to = "[{ name = \"a\" }, { name = \"b\" }]";
    let route = format!("[[route]]\nmodel = \"*\"\nbackend = {to}\nsticky = true\n");
    let proxy = Proxy::start(&(two_threads("") + &backend("a", a.addr(), "") + &backend("b", b.addr(), "") + &route));
    for number in 0..CONVERSATIONS {
        let tag = number.to_string();
        let headers = [("x-sim", AT_ONCE), ("x-streamgauge-tag", &*tag)];
        let body = format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"{tag}"}}]}}"#);
        let before = [a.counts().requests, b.counts().requests];
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            assert_eq!(proxy.client().ask(post(path, &headers, &body)).status, 200);
        }
        let now = [a.counts().requests, b.counts().requests];
        assert!(now == [before[0] + 2, before[1]] || now == [before[0], before[1] + 2], "{before:?}, then {now:?}");
    }
    let mut homes = BTreeMap::new();
    for exchange in proxy.finished(2 * CONVERSATIONS) {
        *homes.entry(exchange.backend.expect("routed")).or_insert(0) += 1;
    }
    assert_eq!(homes.len(), 2, "one in 2^23 runs: {homes:?}");
}
