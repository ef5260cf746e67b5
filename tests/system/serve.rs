//! `streamgauge serve` as a process: how it stops, and what it writes.

use std::net::TcpStream;

use serde_json::Value;
use streamgauge::backend::sim::{Script, Step};

use crate::support::client::{Client, Ended};
use crate::support::eventually;
use crate::support::metrics::Scrape;
use crate::support::process::Serve;
use crate::support::stage::{TO_UP, backend, one_backend, playing, sim};
use crate::support::upstream::{Conn, Upstream};
use crate::{FINISH, STREAM, TOKEN, WHOLE, post, request};

/// Two threads: a stop must reach both.
fn config(upstream: std::net::SocketAddr, drain_timeout_ms: u32) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 2\ndrain_timeout_ms = {drain_timeout_ms}\n{}{TO_UP}",
        backend("up", upstream, "")
    )
}

/// A stream that has brought one token and goes on.
fn streaming(serve: &Serve, upstream: &Upstream) -> (Client, Conn) {
    let mut client = serve.client();
    client.send(post("/v1/chat/completions", &[], STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    (client, conn)
}

fn refuses_connections(serve: &Serve) {
    eventually("new connections are refused", || TcpStream::connect(serve.listen).is_err().then_some(()));
}

fn outcomes(lines: &[String]) -> Vec<String> {
    let values = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let access = values.filter(|value| value["target"] == "streamgauge::access");
    access.map(|value| value["outcome"].as_str().expect("an outcome").to_owned()).collect()
}

#[test]
fn a_signal_lets_streams_finish_and_refuses_new_ones() {
    for signal in ["TERM", "INT"] {
        let upstream = Upstream::bind();
        let serve = Serve::start(&config(upstream.addr(), 60_000), "json", &[]);
        let mut admin = Client::connect(serve.admin);
        assert_eq!(admin.get("/readyz").status, 200);
        // A connection without a request must not hold the stop up.
        let idle = serve.client();
        let streams: Vec<_> = (0..4).map(|_| streaming(&serve, &upstream)).collect();
        serve.signal(signal);
        refuses_connections(&serve);
        drop(idle);
        assert_eq!(Client::connect(serve.admin).get("/readyz").status, 503);
        assert_eq!(Client::connect(serve.admin).get("/healthz").status, 200);
        let scrape = Scrape::of(serve.admin);
        scrape.assert_balanced();
        assert_eq!(scrape.sum("in_flight_requests", &[("backend", "up")]), 4.0);
        for (mut client, mut conn) in streams {
            conn.event(FINISH);
            conn.event("[DONE]");
            conn.end_stream();
            client.until(b"data: [DONE]\n\n\r\n0\r\n\r\n").expect("the rest of the stream");
        }
        let (status, lines) = serve.ended();
        assert_eq!(status.code(), Some(0), "{lines:#?}");
        assert_eq!(outcomes(&lines), ["ok"; 4]);
    }
}

#[test]
fn after_drain_timeout_streams_are_cut_off_as_internal() {
    let upstream = Upstream::bind();
    let serve = Serve::start(&config(upstream.addr(), 200), "json", &[]);
    let mut streams: Vec<_> = (0..4).map(|_| streaming(&serve, &upstream)).collect();
    // One that still waits for its head.
    let mut waiting = serve.client();
    waiting.send(post("/v1/chat/completions", &[], WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    serve.signal("TERM");
    let (status, lines) = serve.ended();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert_eq!(outcomes(&lines), ["internal"; 5]);
    assert!(lines.iter().any(|line| line.contains("\"connections\":") && line.contains("cut off")), "{lines:#?}");
    for (client, _) in &mut streams {
        client.until(b"0\r\n\r\n").expect_err("no clean end");
    }
    waiting.some().expect_err("no answer");
    for (_, conn) in streams {
        conn.closed_by_peer();
    }
}

#[test]
fn a_finished_stream_that_is_still_open_at_the_cut_off_is_ok() {
    let upstream = Upstream::bind();
    let serve = Serve::start(&config(upstream.addr(), 300), "json", &[]);
    let (mut finished, mut conn) = streaming(&serve, &upstream);
    conn.event(FINISH);
    conn.event("[DONE]");
    finished.until(b"[DONE]\n\n").expect("the end marker");
    let unfinished = streaming(&serve, &upstream);
    serve.signal("TERM");
    let (status, lines) = serve.ended();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    let mut outcomes = outcomes(&lines);
    outcomes.sort();
    assert_eq!(outcomes, ["internal", "ok"]);
    drop(unfinished);
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    for signals in [["TERM", "TERM"], ["TERM", "INT"], ["INT", "INT"]] {
        let upstream = Upstream::bind();
        let serve = Serve::start(&config(upstream.addr(), 600_000), "json", &[]);
        let _stream = streaming(&serve, &upstream);
        serve.signal(signals[0]);
        refuses_connections(&serve);
        serve.signal(signals[1]);
        assert_eq!(serve.ended().0.code(), Some(1), "{signals:?}");
    }
}

#[test]
fn a_prompt_sent_as_a_name_is_not_logged_whole() {
    const MARK: &str = "end-of-the-prompt-4d0c";
    let prompt = "\u{e9}".repeat(200) + MARK;
    let body = serde_json::json!({"model": prompt, "messages": []}).to_string();
    let reply =
        serde_json::json!({"model": prompt, "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]});
    let upstream = Upstream::bind();
    let serve = Serve::start(&config(upstream.addr(), 0), "json", &[("STREAMGAUGE_LOG", "debug")]);
    let mut client = serve.client();
    // Header values need not be UTF-8; such a tag is none.
    let tag = "t".repeat(300) + MARK;
    client.send(post("/v1/chat/completions", &[("x-streamgauge-tag", &tag)], &body));
    let mut conn = upstream.accept();
    assert_eq!(conn.request().body, body.as_bytes());
    conn.answer(&reply.to_string());
    assert_eq!(client.reply().status, 200);
    let line = eventually("it is logged", || serve.access_log().pop());
    let cropped = "\u{e9}".repeat(128);
    assert_eq!((line["model"].as_str(), line["model_served"].as_str()), (Some(&*cropped), Some(&*cropped)));
    assert_eq!(line["tag"].as_str(), Some(&*"t".repeat(256)));
    assert!(!Scrape::of(serve.admin).text.contains(MARK));
    serve.signal("TERM");
    let lines = serve.ended().1;
    assert!(lines.iter().all(|line| !line.contains(MARK)), "{lines:#?}");
}

#[test]
fn the_log_tells_of_every_request_and_of_no_content_or_key() {
    const PROMPT: &str = "prompt-marker-6f1e";
    const COMPLETION: &str = "completion-marker-93ab";
    const CLIENT_KEY: &str = "sk-client-marker-77c0";
    const CONFIGURED_KEY: &str = "sk-configured-marker-15d2";
    let whole = format!(r#"{{"choices":[{{"message":{{"content":"{COMPLETION}"}},"finish_reason":"stop"}}]}}"#);
    let stream = format!("data: {}\n\n", TOKEN.replace(r#""a""#, &format!("{COMPLETION:?}")));
    for format in ["json", "text"] {
        let upstream = playing(Script { steps: vec![Step::send(stream.clone().into_bytes())], ..Script::default() });
        let other = sim();
        let routes = "[[route]]\nmodel = \"other\"\nbackend = \"other\"\n";
        let with_key = backend("up", upstream.addr(), "api_key = { env = \"MARKED_KEY\" }");
        let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n";
        let config = format!("{server}{with_key}{}{routes}{TO_UP}", backend("other", other.addr(), ""));
        let debug = ("STREAMGAUGE_LOG", "debug");
        let serve = Serve::start(&config, format, &[("MARKED_KEY", CONFIGURED_KEY), debug]);
        let mut client = serve.client();
        let key = [("authorization", format!("Bearer {CLIENT_KEY}")), ("x-streamgauge-tag", "tag 1".to_owned())];
        let headers: Vec<_> = key.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = |model: &str, more: &str| {
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{PROMPT}"}}]{more}}}"#)
        };
        for body in [
            body("m", r#","stream":true"#),
            body("m", ""),
            body("other", ""),
            body("line\\nbreak", ""),
            body("m", ",,"),
            format!(r#"{{"model":"m","messages":"{PROMPT}""#),
            whole.clone(),
        ] {
            client.ask(post("/v1/chat/completions", &headers, &body));
        }
        let wrong_host = request("GET", &format!("/v1/{PROMPT}?key={CLIENT_KEY}"), &headers);
        client.ask(wrong_host.replace("host: 127.0.0.1", "host: example.com"));
        let metrics = Scrape::of(serve.admin).text;
        serve.signal("TERM");
        let (status, lines) = serve.ended();
        assert!(status.success());

        let access: Vec<_> = lines.iter().filter(|line| line.contains("streamgauge::access")).collect();
        assert_eq!(access.len(), 8, "one line a request: {lines:#?}");
        for secret in [PROMPT, COMPLETION, CLIENT_KEY, CONFIGURED_KEY] {
            assert!(!metrics.contains(secret));
            for line in &lines {
                assert!(!line.contains(secret), "{secret} in {line}");
            }
        }
        assert!(access[0].contains("tag 1") && access[0].contains("truncated"), "{}", access[0]);
        if format == "json" {
            let line: Value = serde_json::from_str(access[2]).expect("JSON");
            assert_eq!((&line["outcome"], &line["status"]), (&Value::from("ok"), &Value::from(200)));
            assert_eq!((&line["backend"], &line["model"]), (&Value::from("other"), &Value::from("other")));
            assert_eq!((&line["operation"], &line["stream"]), (&Value::from("chat"), &Value::from(false)));
            assert!(line["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{line}");
        } else {
            assert!(access[2].contains("outcome=\"ok\"") && access[2].contains("status=200"), "{}", access[2]);
        }
    }
}

#[test]
fn an_unset_key_is_a_warning_and_the_clients_own_key_passes() {
    let sim = sim();
    let base_url = format!("http://{}/api", sim.addr());
    // Without a backend in the file, there is the one that the environment describes.
    let config = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n";
    let serve = Serve::start(config, "text", &[("TAOTOKEN_BASE_URL", &base_url)]);
    let key = [("authorization", "Bearer sk-own"), ("x-sim", "ttft_ms=1,tokens=1")];
    assert_eq!(serve.client().ask(post("/chat/completions", &key, WHOLE)).status, 200);
    let received = sim.received().remove(0).request;
    assert_eq!(
        (received.header("authorization"), &*received.target),
        (Some("Bearer sk-own"), "/api/v1/chat/completions")
    );
    let warned = serve.output();
    let warned = warned.iter().any(|line| line.contains("WARN") && line.contains("TAOTOKEN_API_KEY is not set"));
    assert!(warned, "{:#?}", serve.output());
}

#[test]
fn the_admin_listener_answers_for_itself_alone() {
    let sim = sim();
    let serve = Serve::start(&one_backend(sim.addr(), ""), "text", &[]);
    let mut admin = Client::connect(serve.admin);
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/chat/completions", 404)] {
        assert_eq!(admin.get(path).status, status, "{path}");
    }
    assert_eq!(admin.ask(post("/metrics", &[], "{}")).status, 405);
    assert_eq!(admin.ask(request("GET", "/metrics", &[("connection", "close")])).ended, Ended::Complete);
    assert_eq!(sim.counts().opened, 0);
    assert_eq!(serve.client().ask(request("GET", "/metrics", &[])).status, 404, "the upstream's own answer");
    assert_eq!(sim.counts().requests, 1);
}
