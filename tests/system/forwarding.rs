//! What reaches the upstream, and what comes back.

use std::collections::BTreeSet;

use streamgauge::backend::sim::{Framing, Received, Script, SimHandle, Step};
use streamgauge::measure::Listener;

use crate::support::client::Ended;
use crate::support::stage::{Proxy, SERVER, backend, one_backend, playing, sim};
use crate::{STREAM, WHOLE, post, request};

/// The last request that the simulation read.
fn last(sim: &SimHandle) -> Received {
    sim.received().pop().expect("a request")
}

fn names(received: &Received) -> BTreeSet<String> {
    received.request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

#[test]
fn a_request_body_is_forwarded_byte_for_byte() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let odd = " \n{ \"messages\" : [{\"role\":\"user\",\"content\":\"caf\\u00e9 \u{2028}\u{1f680} \\ud83d\\ude80\"}],\t\
               \"x\":1.0e+00,\"model\":\"m\", \"n\" : 1 ,\"x\":{\"model\":7} }\r\n ";
    let large = format!(r#"{{"model":"m","pad":"{}"}}"#, "p".repeat(300_000));
    let mut client = proxy.client();
    for body in [STREAM, WHOLE, odd, &large] {
        let reply = client.ask(post("/v1/chat/completions", &[("x-sim", "ttft_ms=1,itl_ms=0,tokens=2")], body));
        assert_eq!(reply.status, 200, "{reply:?}");
        let received = last(&sim).request;
        assert!(received.body == body, "the body changed: {:?}", String::from_utf8_lossy(&received.body));
        assert_eq!(received.header("content-length"), Some(&*body.len().to_string()));
    }
}

#[test]
fn a_chunked_request_body_arrives_whole() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    let head =
        [("transfer-encoding", "chunked"), ("content-type", "application/json"), ("x-sim", "ttft_ms=1,tokens=1")];
    client.send(request("POST", "/v1/chat/completions", &head));
    for piece in WHOLE.as_bytes().chunks(7) {
        client.send(format!("{:x};ext=1\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reply().status, 200);
    assert_eq!(last(&sim).request.body, WHOLE);
}

#[test]
fn a_client_that_expects_to_be_told_is_told_to_continue() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    let whole = post("/v1/chat/completions", &[("expect", "100-continue"), ("x-sim", "ttft_ms=1,tokens=1")], WHOLE);
    let (head, body) = whole.split_at(whole.len() - WHOLE.len());
    client.send(head);
    assert_eq!(client.reply().status, 100);
    client.send(body);
    assert_eq!(client.reply().status, 200);
    assert!(!names(&last(&sim)).contains("expect"));
}

#[test]
fn an_alias_is_spliced_into_place() {
    let sim = sim();
    let route = "[[route]]\nmodel = \"claude\"\nbackend = \"up\"\nupstream_model = \"claude-3-5 \\\"q\\\"\"\n";
    let proxy = Proxy::start(&format!("{SERVER}{}{route}", backend("up", sim.addr(), "")));
    let body = |model: &str| format!(r#"{{"messages":[{{"model":"no"}}], "model" : {model} , "x":1.0e0}}"#);
    let mut client = proxy.client();
    for asked in [r#""claude""#, r#""CLAUDE""#, r#""cl\u0061ude""#, r#""anthropic/claude""#] {
        let sim_header = [("x-sim", "ttft_ms=1,tokens=1")];
        assert_eq!(client.ask(post("/v1/chat/completions", &sim_header, &body(asked))).status, 200);
        assert_eq!(last(&sim).request.body, body(r#""claude-3-5 \"q\"""#));
    }
    assert_eq!(proxy.finished(4)[1].model.as_ref(), "claude", "the configuration's spelling labels it");
}

#[test]
fn a_signed_request_is_never_altered() {
    let sim = sim();
    let alias = "[[route]]\nmodel = \"claude\"\nbackend = \"up\"\nupstream_model = \"other\"\n";
    let plain = "[[route]]\nmodel = \"*\"\nbackend = \"up\"\n";
    let proxy = Proxy::start(&format!("{SERVER}{}{alias}{plain}", backend("up", sim.addr(), "")));
    let mut client = proxy.client();
    let signed = [("x-tt-sign", "sig"), ("X-Tt-Date", "20260101"), ("x-sim", "ttft_ms=1,tokens=1")];

    let reply = client.ask(post("/v1/chat/completions", &signed, r#"{"model":"claude"}"#));
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, error["code"].as_str()), (400, Some("signed_request")));
    assert!(error["message"].as_str().is_some_and(|message| message.contains("x-tt-sign")), "{error}");
    assert_eq!(sim.counts().requests, 0, "nothing was sent");

    // Where the alias changes nothing, nor where there is none, is there anything to refuse.
    for body in [r#"{"model":"other"}"#, r#"{ "model":"m" }"#] {
        assert_eq!(client.ask(post("/v1/chat/completions", &signed, body)).status, 200);
        let received = last(&sim);
        assert_eq!(received.request.body, body);
        assert_eq!(received.request.header("x-tt-sign"), Some("sig"));
    }
}

#[test]
fn hop_by_hop_headers_stay_here_and_all_others_pass() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let headers = [
        ("connection", "x-mine, keep-alive"),
        ("x-mine", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("proxy-authorization", "Basic x"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("x-streamgauge-tag", "experiment 7"),
        ("X-Vendor-Thing", "a b  c"),
        ("x-vendor-thing", "again"),
        ("x-stainless-lang", "python"),
        ("accept-encoding", "gzip, br"),
        ("user-agent", "tests/1"),
        ("openai-organization", "org"),
        ("x-sim", "ttft_ms=1,tokens=1"),
    ];
    assert_eq!(proxy.client().ask(post("/v1/chat/completions", &headers, WHOLE)).status, 200);
    let received = last(&sim);
    let expected = [
        "accept-encoding",
        "content-length",
        "content-type",
        "host",
        "openai-organization",
        "user-agent",
        "via",
        "x-sim",
        "x-stainless-lang",
        "x-vendor-thing",
    ];
    assert_eq!(names(&received), expected.map(str::to_owned).into());
    assert_eq!(received.request.header("host"), Some(&*sim.addr().to_string()));
    let vendor = received.request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-vendor-thing"));
    assert_eq!(vendor.map(|(_, value)| &value[..]).collect::<Vec<_>>(), [&b"a b  c"[..], b"again"]);
    assert_eq!(proxy.finished(1)[0].tag.as_deref(), Some("experiment 7"));
}

/// The way back is through a second proxy, which knows nothing of the first.
#[test]
fn a_request_that_comes_back_is_refused_and_not_sent_round_for_ever() {
    // An address that no other test binds, so that the port stays free until the proxy takes it.
    let placeholder = std::net::TcpListener::bind("127.7.7.7:0").unwrap();
    let address = placeholder.local_addr().unwrap();
    drop(placeholder);
    let second = Proxy::before(address, "");
    let behind = one_backend(second.running.listen(), "").replacen("127.0.0.1:0", &address.to_string(), 1);
    let first = Proxy::start(&behind);
    for request in [post("/v1/chat/completions", &[], WHOLE), "GET /v1/files HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()] {
        let reply = first.client().ask(&request);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (508, &"proxy_loop".into()));
    }
    assert_eq!(first.finished(4).len(), 4, "each request came once, and once more from behind");
    assert_eq!(second.finished(2).len(), 2);
}

#[test]
fn a_configured_key_replaces_the_clients_and_else_the_clients_passes() {
    let sim = sim();
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-configured\n").expect("written");
    let with_key = format!("api_key = {{ file = {:?} }}", key.display().to_string());
    let sent = [("authorization", "Bearer sk-client"), ("x-api-key", "sk-client"), ("api-key", "sk-client")];
    let unset = "api_key = { env = \"STREAMGAUGE_TEST_UNSET\" }";
    for (more, authorization, others) in
        [(&*with_key, "Bearer sk-configured", None), (unset, sent[0].1, Some("sk-client"))]
    {
        let proxy = Proxy::before(sim.addr(), more);
        let mut client = proxy.client();
        for request in [post("/v1/chat/completions", &sent, WHOLE), post("/v1/embeddings", &sent, "{}")] {
            client.ask(request.replace("host:", "x-sim: ttft_ms=0,tokens=1\r\nhost:"));
            let received = last(&sim).request;
            assert_eq!(received.header("authorization"), Some(authorization));
            assert_eq!((received.header("x-api-key"), received.header("api-key")), (others, others));
        }
    }
}

#[test]
fn base_urls_and_paths_are_forgiven() {
    let sim = sim();
    for (path, asked, expected) in [
        ("", "/v1/chat/completions", "/v1/chat/completions"),
        ("", "/chat/completions", "/v1/chat/completions"),
        ("", "//api/v1/v1//chat/completions/?a=b&c", "/v1/chat/completions?a=b&c"),
        ("/api", "/api/v1/chat/completions", "/api/v1/chat/completions"),
        ("/api/v1", "/chat/completions?", "/api/v1/chat/completions?"),
        ("/v4", "/v1/chat/completions", "/v4/chat/completions"),
        ("/api", "/embeddings?x=%2F%20y", "/api/v1/embeddings?x=%2F%20y"),
        ("", "/api/v1/v1/models/org%2Fb", "/api/v1/models/org%2Fb"),
        ("", "/v1/files/a%20b/content?q=1", "/v1/files/a%20b/content?q=1"),
        ("/api", "/api/me", "/api/me"),
    ] {
        let config = format!(
            "{SERVER}[backend.up]\nkind = \"openai\"\nbase_url = \"http://{}{path}/\"\n[[route]]\nmodel = \"*\"\nbackend = \"up\"\n",
            sim.addr()
        );
        let proxy = Proxy::start(&config);
        proxy.client().ask(post(asked, &[("x-sim", "ttft_ms=1,tokens=1")], WHOLE));
        assert_eq!(last(&sim).request.target, expected, "{asked} below {path}");
    }
}

#[test]
fn probes_pass_counted_and_unmeasured() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    client.send(request("HEAD", "/", &[]));
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("15")));
    let health = client.ask(request("GET", "/health", &[]));
    assert_eq!((health.status, &*health.body), (200, &br#"{"status":"ok"}"#[..]));
    let options = client.ask(request("OPTIONS", "/v1/chat/completions", &[]));
    assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, POST, OPTIONS")));
    let methods: Vec<String> = sim.received().into_iter().map(|received| received.request.method).collect();
    assert_eq!(methods, ["HEAD", "GET", "OPTIONS"]);

    for exchange in proxy.finished(3) {
        assert_eq!((exchange.outcome.label(), exchange.measured), ("ok", false));
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.outcome("ok"), 3.0);
    assert!(!scrape.text.contains("request_duration_seconds"), "{}", scrape.text);
}

#[test]
fn what_the_upstream_refuses_passes_verbatim() {
    for (status, label) in [(302, "upstream_3xx"), (401, "upstream_4xx"), (429, "upstream_4xx"), (529, "upstream_5xx")]
    {
        let body = "{\"error\": {\"message\":\"caf\u{e9}\", \"odd\":  [1.0e0]}}\n";
        let headers = [
            ("content-type", "application/problem+json"),
            ("Retry-After", "17"),
            ("x-request-id", "req_1"),
            ("location", "/elsewhere"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("keep-alive", "timeout=3"),
        ];
        let script = Script {
            status,
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            framing: Framing::Length,
            steps: vec![Step::send(body.as_bytes().to_vec())],
            ..Script::default()
        };
        let sim = playing(script);
        let proxy = Proxy::before(sim.addr(), "");
        let reply = proxy.client().ask(post("/v1/chat/completions", &[], STREAM));
        assert_eq!((reply.status, &*reply.body), (status, body.as_bytes()));
        for (name, value) in &headers[..5] {
            assert_eq!(reply.header(name), Some(*value));
        }
        assert_eq!(reply.header("keep-alive"), None);
        assert_eq!(proxy.outcome(1), label);
        let scrape = proxy.idle_scrape();
        assert_eq!(scrape.sum("requests_total", &[("outcome", label), ("status", &status.to_string())]), 1.0);
        assert!(!scrape.text.contains("time_to_first_token_seconds"), "{}", scrape.text);
    }
}

#[test]
fn who_is_told_of_finished_requests_cannot_harm_them() {
    let sim = sim();
    let panics: Listener = Box::new(|_| panic!("a listener's own fault"));
    let proxy = Proxy::with_listeners(&one_backend(sim.addr(), ""), vec![panics]);
    let mut client = proxy.client();
    for (body, status) in [(STREAM, 200), (WHOLE, 200), ("{", 400)] {
        let reply = client.ask(post("/v1/chat/completions", &[("x-sim", "ttft_ms=1,itl_ms=0,tokens=3")], body));
        assert_eq!((reply.status, reply.ended), (status, Ended::Complete));
    }
    assert_eq!(proxy.finished(3).len(), 3, "the next listener is told all the same");
    assert_eq!(proxy.idle_scrape().sum("requests_total", &[]), 3.0);
}
