//! What clients are told when there is no reply to pass on.

use std::collections::BTreeSet;
use std::time::Duration;

use streamgauge::backend::sim::{Script, SimConfig, Step};

use crate::support::client::{Client, Ended, Reply};
use crate::support::stage::{Proxy, SERVER, TO_UP, backend, playing, sim, spawn};
use crate::support::tls::Certificate;
use crate::support::upstream::Upstream;
use crate::{STREAM, WHOLE, post, request};

/// Checks `OpenAI`'s error shape, and that the one sentence contains `says`: the guilty side and the next step.
fn assert_told(reply: &Reply, status: u16, code: &str, says: &[&str]) {
    assert_eq!((reply.status, reply.header("content-type")), (status, Some("application/json")), "{reply:?}");
    let body = reply.json();
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
    let error = body["error"].as_object().expect("an error object");
    let keys: BTreeSet<&str> = error.keys().map(String::as_str).collect();
    assert_eq!(keys, ["code", "message", "param", "type"].into());
    assert_eq!(error["code"], code, "{body}");
    assert!(error["type"].is_string(), "{body}");
    let message = error["message"].as_str().expect("a message");
    assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
    for part in says {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

fn chat(body: &str) -> String {
    post("/v1/chat/completions", &[], body)
}

/// Asks one proxy once and checks the answer, the outcome and the metrics.
fn refused(proxy: &Proxy, request: &str, status: u16, code: &str, outcome: &str, says: &[&str]) {
    let before = proxy.idle_scrape().outcome(outcome);
    assert_told(&proxy.client().ask(request), status, code, says);
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.outcome(outcome), before + 1.0, "{code}");
    let labels = [("outcome", outcome), ("status", &*status.to_string())];
    assert!(scrape.sum("requests_total", &labels) >= 1.0, "{code}");
}

#[test]
fn what_is_no_chat_request_never_reaches_the_upstream() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    for body in ["", "{", "[1]", r#"{"model":"m"} x"#, "model=m"] {
        refused(
            &proxy,
            &chat(body),
            400,
            "invalid_json",
            "rejected",
            &["cannot be read as a JSON object", "nothing was sent upstream"],
        );
    }
    refused(&proxy, &chat(r#"{"model":7}"#), 400, "invalid_json", "rejected", &["model must be a string"]);
    let packed = post("/v1/chat/completions", &[("content-encoding", "compress")], WHOLE);
    refused(
        &proxy,
        &packed,
        415,
        "compressed_request",
        "rejected",
        &["compressed", "gzip", "without content-encoding"],
    );
    assert_eq!(sim.counts().opened, 0);
}

#[test]
fn a_body_over_the_limit_is_refused_announced_or_not() {
    let sim = sim();
    let config = format!("{SERVER}max_body_bytes = 1000\n{}{TO_UP}", backend("up", sim.addr(), ""));
    let proxy = Proxy::start(&config);
    let says = ["larger than 1000 bytes", "max_body_bytes"];
    let body = |length: usize| format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(length - 20));
    assert_eq!(body(1000).len(), 1000);

    refused(&proxy, &chat(&body(1001)), 413, "request_too_large", "rejected", &says);
    let announced = request("POST", "/v1/chat/completions", &[("content-length", "100000000000")]);
    refused(&proxy, &announced, 413, "request_too_large", "rejected", &says);

    let chunked = [("transfer-encoding", "chunked"), ("content-type", "application/json")];
    let unannounced =
        format!("{}3e9\r\n{}\r\n0\r\n\r\n", request("POST", "/v1/chat/completions", &chunked), body(1001));
    refused(&proxy, &unannounced, 413, "request_too_large", "rejected", &says);
    assert_eq!(sim.counts().opened, 0);

    assert_eq!(proxy.client().ask(chat(&body(1000))).status, 200, "the limit itself is allowed");
}

#[test]
fn a_client_that_sends_everything_first_reads_why_it_was_refused() {
    let sim = sim();
    let route = "[[route]]\nmodel = \"m\"\nbackend = \"up\"\n";
    let config = format!("{SERVER}max_body_bytes = 100000\n{}{route}", backend("up", sim.addr(), ""));
    let proxy = Proxy::start(&config);
    let large = format!(r#"{{"model":"m","x":"{}"}}"#, "x".repeat(4_000_000));
    for _ in 0..3 {
        assert_told(&proxy.client().ask(chat(&large)), 413, "request_too_large", &["max_body_bytes"]);
        let packed = post("/v1/chat/completions", &[("content-encoding", "compress")], &large);
        assert_told(&proxy.client().ask(packed), 415, "compressed_request", &["content-encoding"]);
        assert_told(&proxy.client().ask(post("/v1/files", &[], &large)), 404, "path_not_found", &["\"*\""]);
    }
    assert_eq!(sim.counts().opened, 0);
    assert_eq!(proxy.idle_scrape().outcome("rejected"), 9.0);
}

#[test]
fn a_model_without_a_route_is_told_which_there_are() {
    let sim = sim();
    let routes = "[[route]]\nmodel = \"claude\"\nbackend = \"up\"\n[[route]]\nmodel = \"gpt-*\"\nbackend = \"up\"\n";
    let proxy = Proxy::start(&format!("{SERVER}{}{routes}", backend("up", sim.addr(), "")));
    let says = ["\"nobody\"", "claude, gpt-*"];
    refused(&proxy, &chat(r#"{"model":"nobody"}"#), 404, "model_not_found", "rejected", &says);
    refused(&proxy, &chat("{}"), 404, "model_not_found", "rejected", &["claude, gpt-*"]);
    refused(&proxy, &request("GET", "/v1/files", &[]), 404, "path_not_found", "rejected", &["\"*\""]);
    assert_eq!(sim.counts().opened, 0);
}

#[test]
fn an_upstream_that_is_down_is_named() {
    let gone = Upstream::bind().addr();
    let proxy = Proxy::before(gone, "");
    let says = ["upstream \"up\"", &*format!("http://{gone}"), "connection failed", "check that it runs"];
    refused(&proxy, &chat(STREAM), 502, "upstream_connect", "connect_error", &says);
    refused(&proxy, &request("GET", "/health", &[]), 502, "upstream_connect", "connect_error", &says);
}

#[test]
fn an_upstream_that_is_late_is_named() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "head_timeout_ms = 80");
    let late = post("/v1/chat/completions", &[("x-sim", "ttft_ms=600000,tokens=1")], WHOLE);
    let says = ["upstream \"up\"", "did not answer within 80 ms", "head_timeout_ms"];
    refused(&proxy, &late, 504, "upstream_timeout", "timeout", &says);
    crate::support::eventually("its connection is closed", || (sim.counts().open == 0).then_some(()));
}

#[test]
fn a_name_that_cannot_be_looked_up_is_told_apart() {
    // Longer than a label may be, so that no resolver need be asked.
    let host = "x".repeat(64);
    let up = format!("[backend.up]\nkind = \"openai\"\nbase_url = \"http://{host}.example\"\n");
    let proxy = Proxy::start(&format!("{SERVER}{up}{TO_UP}"));
    let says = ["could not be looked up", "base_url", "name service"];
    refused(&proxy, &chat(WHOLE), 502, "upstream_dns", "connect_error", &says);
}

#[test]
fn a_certificate_that_is_not_trusted_is_told_apart() {
    let (theirs, other) = (Certificate::new(), Certificate::new());
    let sim = spawn(SimConfig { tls: Some(theirs.server.clone()), ..SimConfig::default() });
    let up = |host: &str, ca: &Certificate| {
        let port = sim.addr().port();
        let ca = ca.file.display().to_string();
        format!(
            "{SERVER}[backend.up]\nkind = \"openai\"\nbase_url = \"https://{host}:{port}\"\nca_file = {ca:?}\n{TO_UP}"
        )
    };
    let says = ["upstream \"up\"", "TLS handshake failed", "ca_file"];
    refused(&Proxy::start(&up("localhost", &other)), &chat(WHOLE), 502, "upstream_tls", "connect_error", &says);
    // The right authority, and a name that the certificate does not bear.
    refused(&Proxy::start(&up("127.0.0.1", &theirs)), &chat(WHOLE), 502, "upstream_tls", "connect_error", &says);

    let proxy = Proxy::start(&up("localhost", &theirs));
    let quick = post("/v1/chat/completions", &[("x-sim", "ttft_ms=1,itl_ms=1,tokens=4")], STREAM);
    assert!(proxy.client().ask(quick).is_done());
    let exchange = proxy.finished(1).remove(0);
    assert!(exchange.connect.tls.is_some() && exchange.connect.connect.is_some(), "{:?}", exchange.connect);
}

#[test]
fn a_handshake_that_takes_too_long_is_named() {
    let silent = Upstream::bind();
    let certificate = Certificate::new();
    let ca = certificate.file.display().to_string();
    let config = format!(
        "{SERVER}[backend.up]\nkind = \"openai\"\nbase_url = \"https://localhost:{}\"\nca_file = {ca:?}\n\
         connect_timeout_ms = 2000\n{TO_UP}",
        silent.addr().port()
    );
    let says = ["the TLS handshake took longer than 2000 ms", "connect_timeout_ms"];
    refused(&Proxy::start(&config), &chat(WHOLE), 502, "upstream_connect_timeout", "connect_error", &says);
}

#[test]
fn an_answer_that_is_no_http_is_told_apart() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(chat(WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    conn.send("220 mail.example ESMTP\r\n\r\n");
    assert_told(&client.reply(), 502, "upstream_protocol", &["upstream \"up\"", "not valid HTTP", "base_url"]);
    assert_eq!(proxy.outcome(1), "reset");
}

#[test]
fn a_broken_chunked_body_is_the_clients_fault() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client: Client = proxy.client();
    client.send(request("POST", "/v1/chat/completions", &[("transfer-encoding", "chunked")]) + "zz\r\n");
    assert_told(&client.reply(), 400, "incomplete_request", &["the client's request body", "send it whole"]);
    assert_eq!(sim.counts().opened, 0);
    proxy.idle_scrape();
}

#[test]
fn what_is_refused_is_measured_like_any_other() {
    let sim = sim();
    let route = "[[route]]\nmodel = \"m\"\nbackend = \"up\"\n";
    let config = format!("{SERVER}max_body_bytes = 1000\n{}{route}", backend("up", sim.addr(), ""));
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    for (count, (request, status)) in [
        (chat(&"x".repeat(1001)), 413),
        (post("/v1/chat/completions", &[("content-encoding", "compress")], WHOLE), 415),
        (chat(r#"{"model":"nobody"}"#), 404),
        (chat("{"), 400),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(client.ask(request).status, status);
        let scrape = proxy.idle_scrape();
        let count = count as f64 + 1.0;
        assert_eq!((scrape.outcome("rejected"), scrape.sum("request_duration_seconds_count", &[])), (count, count));
    }
}

#[test]
fn who_wants_a_tunnel_is_told_what_this_is() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let connect = "CONNECT api.example:443 HTTP/1.1\r\nhost: api.example:443\r\n\r\n";
    refused(&proxy, connect, 405, "no_tunnel", "rejected", &["no forward proxy", "base URL"]);
    assert_eq!(sim.counts().opened, 0);
}

#[test]
fn a_method_that_would_repeat_the_key_is_refused() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let trace = "TRACE /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n";
    refused(&proxy, trace, 405, "no_trace", "rejected", &["TRACE", "another method"]);
    assert_eq!(sim.counts().opened, 0);
}

#[test]
fn an_upstream_that_never_comes_to_the_point_is_given_up() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let flood = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut conn = upstream.accept();
            conn.request();
            let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            // Bounded: 25 MB, far more than anybody should read.
            (0..1000).take_while(|_| conn.try_send(&interim)).count()
        });
        let reply = proxy.client().ask(chat(STREAM));
        assert_told(&reply, 502, "upstream_protocol", &["without a final answer", "base_url"]);
        flood.join().unwrap()
    });
    assert!(flood < 1000, "all of it was taken");
    assert_eq!(proxy.outcome(1), "reset");
}

#[test]
fn comments_that_flow_without_a_pause_are_no_events() {
    let pings = Step { repeat: 200_000, ..Step::send(": ping\n\n".repeat(200)) };
    let sim = playing(Script { steps: vec![pings], ..Script::default() });
    let proxy = Proxy::before(sim.addr(), "event_timeout_ms = 200");
    assert_eq!(proxy.client().ask(chat(STREAM)).ended, Ended::Fin);
    assert_eq!(proxy.outcome(1), "timeout");
}

#[test]
fn a_stream_that_brings_no_event_is_late_whatever_it_is_called() {
    for kind in ["text/event-stream", "application/json"] {
        let pings = Step { wait: Duration::from_millis(20), repeat: 500, ..Step::send(": ping\n\n") };
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let sim = playing(Script { headers, steps: vec![pings], ..Script::default() });
        let proxy = Proxy::before(sim.addr(), "event_timeout_ms = 300");
        let reply = proxy.client().ask(chat(STREAM));
        assert_eq!((reply.status, reply.ended), (200, Ended::Fin), "{kind}");
        assert_eq!(proxy.outcome(1), "timeout", "{kind}");
        crate::support::eventually("its connection is closed", || (sim.counts().open == 0).then_some(()));
    }
}
