//! The simulated upstream, seen through raw sockets: it is the reference for everything else, so nothing may stand
//! between it and its tests.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use streamgauge::backend::sim::{
    Departure, End, Entry, Framing, Kind, LogSink, Script, Scripts, Sim, SimConfig, SimHandle, Step, text, text_of,
};

#[path = "../support/client.rs"]
mod client;
mod dialects;
mod ends;
mod meaning;
mod requests;
mod script;

use client::{Client, Ended, PATIENCE, chat};

const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two three"}]}"#;
const WHOLE: &str = r#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;

fn sim() -> SimHandle {
    start(SimConfig::default())
}

fn start(config: SimConfig) -> SimHandle {
    Sim::spawn(SimConfig { log: Some(LogSink::memory()), ..config }).expect("a simulation")
}

/// Looks until `ready` finds what it wants.
fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(found) = ready() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never happened: {what}");
}

/// The log, once `requests` replies are over.
fn log_of(sim: &SimHandle, requests: u64) -> Vec<Entry> {
    eventually("the replies are over", || (sim.counts().finished >= requests).then(|| sim.entries()))
}

fn of_kind(entries: &[Entry], kind: Kind) -> Vec<&Entry> {
    entries.iter().filter(|entry| entry.kind == kind).collect()
}

#[test]
fn every_event_is_due_at_its_multiple_and_never_leaves_earlier() {
    let sim = sim();
    let reply =
        Client::connect(sim.addr()).chat("ttft_ms=30,itl_ms=1.5,tokens=40,head_ms=3,tail_ms=7,usage=always", STREAM);
    assert!(reply.is_done());
    let log = log_of(&sim, 1);
    let arrived = of_kind(&log, Kind::Request)[0].at_ns;
    let after = |entry: &Entry| entry.due_ns - arrived;
    assert_eq!(after(of_kind(&log, Kind::Head)[0]), 3_000_000);
    let tokens = of_kind(&log, Kind::Token);
    let expected: Vec<u64> = (0..40).map(|k| 30_000_000 + k * 1_500_000).collect();
    assert_eq!(tokens.iter().map(|entry| after(entry)).collect::<Vec<_>>(), expected);
    for kind in [Kind::Finish, Kind::Usage, Kind::Done] {
        assert_eq!(after(of_kind(&log, kind)[0]), 30_000_000 + 39 * 1_500_000 + 7_000_000);
    }
    for pair in log.windows(2) {
        assert!(pair[0].at_ns <= pair[1].at_ns, "{pair:?}");
    }
    for entry in &log {
        assert!(entry.due_ns <= entry.at_ns && entry.at_ns <= entry.done_ns, "{entry:?}");
    }
    let numbers: Vec<u32> = log.iter().filter_map(|entry| entry.event).collect();
    assert_eq!(numbers, (0..43).collect::<Vec<_>>());
}

#[test]
fn a_whole_reply_is_due_with_the_last_token_of_its_stream() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    client.chat("request=a,ttft_ms=10,itl_ms=2,tokens=7,tokens_per_event=2", WHOLE);
    client.chat("request=b,ttft_ms=10,itl_ms=2,tokens=7,tokens_per_event=2", STREAM);
    let log = log_of(&sim, 2);
    let last = |name: &str, kind| {
        let of = |kind| log.iter().rfind(|entry| &*entry.request == name && entry.kind == kind).expect("an entry");
        of(kind).due_ns - of(Kind::Request).due_ns
    };
    assert_eq!(last("a", Kind::Body), 16_000_000);
    assert_eq!(last("b", Kind::Token), 16_000_000);
}

#[test]
fn text_is_the_same_however_it_is_sent() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    for shape in ["", "role_first=1", "tokens_per_event=7", "events_per_write=8", "role_first=1,tokens_per_event=3"] {
        let sim = format!("ttft_ms=1,itl_ms=0,tokens=200,{shape}");
        let reply = client.chat(&sim, STREAM);
        assert_eq!(reply.text(0, "content"), text(200), "{shape}");
        let whole = client.chat(&sim, WHOLE).json();
        assert_eq!(whole["choices"][0]["message"]["content"], text(200), "{shape}");
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn reasoning_comes_first_and_adds_up() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let shape = "ttft_ms=1,itl_ms=0,tokens=20,tokens_per_event=3,reasoning=7,hidden=5,usage=always";
    let reply = client.chat(shape, STREAM);
    assert_eq!(reply.text(0, "reasoning_content"), text_of(0, 0..7));
    assert_eq!(reply.text(0, "content"), text_of(0, 7..20));
    assert_eq!(of_kind(&log_of(&sim, 1), Kind::Reasoning).len(), 2, "the third event carries both");
    let whole = client.chat(shape, WHOLE).json();
    assert_eq!(whole["choices"][0]["message"]["reasoning_content"], text_of(0, 0..7));
    let usage = &reply.events().last().expect("usage")["usage"].clone();
    assert_eq!(&whole["usage"], usage);
    assert_eq!(usage["completion_tokens"], 25);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 12);
    assert_eq!(usage["prompt_tokens"], 3);
    assert_eq!(usage["total_tokens"], 28);
}

#[test]
fn usage_comes_when_asked_and_is_null_before() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let asking = STREAM.replace("true", r#"true,"stream_options":{"include_usage":true},"max_tokens":3"#);
    let events = client.chat("ttft_ms=1,itl_ms=0", &asking).events();
    let (usage, before) = events.split_last().expect("events");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 3);
    assert_eq!(before.len(), 4);
    assert!(before.iter().all(|event| event.get("usage") == Some(&Value::Null)));
    assert_eq!(before[3]["choices"][0]["finish_reason"], "length");

    let silent = client.chat("ttft_ms=1,itl_ms=0,tokens=3", STREAM).events();
    assert!(silent.iter().all(|event| event.get("usage").is_none()));
    let never = client.chat("ttft_ms=1,itl_ms=0,tokens=3,usage=never", &asking).events();
    assert!(never.iter().all(|event| event.get("usage").is_none()));
    let each = client.chat("ttft_ms=1,itl_ms=0,tokens=3,usage=each", STREAM).events();
    let counts: Vec<_> = each.iter().map(|event| event["usage"]["completion_tokens"].as_u64()).collect();
    assert_eq!(counts, [Some(1), Some(2), Some(3), Some(3), Some(3)]);
}

#[test]
fn choices_interleave_and_each_says_its_own() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let two = STREAM.replace("true", "true,\"n\":2");
    let reply = client.chat("ttft_ms=1,itl_ms=1,tokens=4,usage=always,role_first=1", &two);
    let order: Vec<_> = reply.events().iter().filter_map(|event| event["choices"][0]["index"].as_u64()).collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(reply.text(0, "content"), text(4));
    assert_eq!(reply.text(1, "content"), text_of(1, 0..4));
    assert_eq!(reply.events().last().expect("usage")["usage"]["completion_tokens"], 8);
    let whole = client.chat("ttft_ms=1,itl_ms=1,tokens=4", &WHOLE.replace("\"m\"", "\"m\",\"n\":2")).json();
    assert_eq!(whole["choices"][1]["message"]["content"], text_of(1, 0..4));
}

#[test]
fn events_of_one_write_share_its_instants() {
    let sim = sim();
    Client::connect(sim.addr()).chat("ttft_ms=1,itl_ms=1,tokens=10,events_per_write=4", STREAM);
    let log = log_of(&sim, 1);
    let writes: Vec<usize> = of_kind(&log, Kind::Token).chunk_by(|a, b| a.at_ns == b.at_ns).map(<[_]>::len).collect();
    assert_eq!(writes, [4, 4, 2]);
}

#[test]
fn a_blast_arrives_whole() {
    let sim = sim();
    let reply = Client::connect(sim.addr()).chat("ttft_ms=0,itl_ms=0,tokens=20000,events_per_write=8", STREAM);
    assert_eq!(reply.data().len(), 20_002);
    assert_eq!(reply.text(0, "content"), text(20_000));
}

#[test]
fn one_connection_serves_many_requests() {
    let sim = start(SimConfig { keep_requests: true, ..SimConfig::default() });
    let mut client = Client::connect(sim.addr());
    client.chat("ttft_ms=1,itl_ms=0,tokens=2", STREAM);
    client.chat("ttft_ms=1,itl_ms=0,tokens=2", WHOLE);
    client.send(
        "POST /api/v1/chat/completions HTTP/1.1\r\nhost: sim\r\nTransfer-Encoding: chunked\r\nx-sim: request=c,ttft_ms=1\r\n\r\n",
    );
    let (first, second) = WHOLE.split_at(10);
    client.send(format!("{:x}\r\n{first}\r\n", first.len()));
    client.send(format!("{:X};ext=1\r\n{second}\r\n0\r\ntrailer: x\r\n\r\n", second.len()));
    assert_eq!(client.reply().status, 200);
    // Two at once: the second waits in the simulation's buffer.
    client.send(chat("ttft_ms=1,itl_ms=0,tokens=2", STREAM).repeat(2));
    assert!(client.reply().is_done());
    assert!(client.reply().is_done());
    assert_eq!((sim.counts().opened, sim.counts().requests), (1, 5));
    let third = &sim.received()[2];
    assert_eq!((&*third.name, &*third.request.body), ("c", WHOLE.as_bytes()));
    drop(client);
    eventually("the connection is counted out", || (sim.counts().open == 0).then_some(()));
}

#[test]
fn a_client_that_expects_to_be_told_is_told_to_continue() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let request = chat("ttft_ms=1,itl_ms=0,tokens=2", WHOLE)
        .replace("host: 127.0.0.1", "host: 127.0.0.1\r\nExpect: 100-continue");
    let (head, body) = request.split_at(request.len() - WHOLE.len());
    client.send(head);
    assert_eq!(client.reply().status, 100);
    client.send(body);
    assert_eq!(client.reply().status, 200);
}

#[test]
fn other_endpoints_answer_and_mistakes_are_named() {
    let sim = start(SimConfig { models: vec!["a".into(), "org/b".into()], ..SimConfig::default() });
    let mut client = Client::connect(sim.addr());
    let models = client.get("/api/v1/v1//models/?x=1").json();
    assert_eq!(models["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(client.get("/v1/models/org/b").json()["id"], "org/b");
    assert_eq!(client.get("/v1/models/c").json()["error"]["code"], "model_not_found");
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/health").status, 200);
    client.send("HEAD / HTTP/1.1\r\n\r\n");
    assert!(client.until(b"\r\n\r\n").is_ok_and(|head| head.starts_with(b"HTTP/1.1 200 OK\r\n")));
    assert_eq!(client.get("/v1/nothing").status, 404);
    assert_eq!(client.get("/v1/chat/completions").status, 405);
    for (sim, body, expected) in [
        ("", "{", "the request body is not a chat request: "),
        ("", "{}", "the request names no model"),
        ("wat=1", WHOLE, "x-sim: wat: no such key"),
        ("script=x", WHOLE, "the simulation knows no script `x`"),
        ("", r#"{"model":"script:y"}"#, "the simulation knows no script `y`"),
    ] {
        let reply = client.chat(sim, body);
        let message = reply.json()["error"]["message"].as_str().map(str::to_owned).expect("a message");
        assert!(reply.status == 400 && message.starts_with(expected), "{message}");
    }
    let limited = client.chat("ttft_ms=1,status=429", STREAM);
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("1")));
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    assert_eq!(client.chat("ttft_ms=1,status=302", STREAM).header("location"), Some("/elsewhere"));
    assert_eq!(client.chat("ttft_ms=1,body_bytes=1024", WHOLE).body.len(), 1024);
    assert_eq!(sim.counts().opened, 1);

    for nonsense in
        ["nonsense\r\n\r\n", "POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"]
    {
        let mut client = Client::connect(sim.addr());
        client.send(nonsense);
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{nonsense}");
        assert_eq!(client.some().expect_err("closed").kind(), ErrorKind::UnexpectedEof);
    }
    client.send("GET / HTTP/1.1\r\nConnection: TE, Close\r\n\r\n");
    assert_eq!(client.reply().header("connection"), Some("close"));
    assert_eq!(client.some().expect_err("closed").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn http_1_0_ends_a_stream_with_the_connection() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    client.send(chat("ttft_ms=1,itl_ms=1,tokens=5", STREAM).replace("HTTP/1.1", "HTTP/1.0"));
    let reply = client.reply();
    assert_eq!(reply.header("transfer-encoding"), None);
    assert!(reply.is_done());
    assert_eq!(reply.text(0, "content"), text(5));
}

#[test]
fn tls_carries_the_same_stream_and_a_cut_is_no_close_notify() {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(issued.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![issued.cert.der().clone()], key))
        .expect("a server configuration");
    let sim = start(SimConfig { tls: Some(Arc::new(server)), ..SimConfig::default() });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(issued.cert.der().clone()).expect("a root");
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connect = || {
        let socket = TcpStream::connect(sim.addr()).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("read timeout");
        let name = "localhost".try_into().expect("a name");
        let tls = rustls::ClientConnection::new(Arc::new(trusting.clone()), name).expect("a connection");
        Client::over(rustls::StreamOwned::new(tls, socket))
    };
    let mut client = connect();
    for _ in 0..2 {
        let reply = client.chat("ttft_ms=1,itl_ms=1,tokens=30", STREAM);
        assert!(reply.is_done());
        assert_eq!(reply.text(0, "content"), text(30));
    }
    assert_eq!(sim.counts().opened, 1);
    // rustls tells the two apart: an end without `close_notify` is an error, UnexpectedEof.
    let reply = client.chat("ttft_ms=1,itl_ms=1,tokens=3,end=fin", STREAM);
    assert_eq!((reply.ended, reply.events().len()), (Ended::Fin, 3));
    assert_eq!(connect().chat("ttft_ms=1,itl_ms=1,tokens=3,end=rst", STREAM).ended, Ended::Reset);
    let mut waiting = connect();
    waiting.send(chat("request=tls,ttft_ms=3600000", STREAM));
    waiting.until(b"\r\n\r\n").expect("a head");
    drop(waiting);
    eventually("the departure is seen through TLS", || {
        sim.departures().iter().any(|left| left.request.as_deref() == Some("tls")).then_some(())
    });
}
