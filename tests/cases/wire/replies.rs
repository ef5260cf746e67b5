//! Replies that must arrive as they were sent, whatever they are called and however odd they are.

use std::time::Duration;

use streamgauge::backend::sim::{End, Framing, Script, Step};
use streamgauge::measure::intervals::{OutputTokens, Source};
use streamgauge::measure::{Anomaly, Outcome};

use super::hand::{Hand, STREAM_HEAD};
use super::net::{Ended, Proxy, asking, chat, sim};

const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn typed(content_type: &str, body: &str) -> Script {
    Script { headers: vec![("Content-Type".into(), content_type.into())], ..Script::sending(body.to_owned()) }
}

#[test]
fn a_429_with_retry_after_is_verbatim() {
    let body = r#"{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
    let headers = [
        ("Content-Type", "application/json"),
        ("Retry-After", "17"),
        ("x-request-id", "req_abc"),
        ("X-Oneapi-Request-Id", "2026-abc"),
        ("x-ratelimit-remaining-requests", "0"),
    ];
    let sim = sim(Script {
        status: 429,
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        framing: Framing::Length,
        ..Script::sending(body)
    });
    let proxy = Proxy::before(sim.addr());
    let reply = proxy.client().stream("m");
    assert_eq!((reply.status, reply.body.as_slice()), (429, body.as_bytes()));
    for (name, value) in headers {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, exchange.status), (Outcome::Upstream4xx, Some(429)));
    assert_eq!((proxy.counted(), exchange.output), ((0, 0), None));
}

#[test]
fn event_stream_labels_in_any_case_and_with_any_charset() {
    let body = [TOKEN, TOKEN, STOP, DONE].concat();
    let labels = [
        "text/event-stream",
        "text/event-stream; charset=utf-8",
        "text/event-stream;charset=UTF-8",
        "Text/Event-Stream ; Charset=\"utf-8\"",
        "TEXT/EVENT-STREAM",
    ];
    for label in labels {
        let sim = sim(typed(label, &body));
        let proxy = Proxy::before(sim.addr());
        let reply = proxy.client().stream("m");
        assert_eq!((reply.header("content-type"), reply.body.as_slice()), (Some(label), body.as_bytes()));
        let exchange = proxy.exchange();
        assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (1, 1)), "{label}");
        assert_eq!(exchange.anomalies.seen().count(), 0, "{label}");
        assert!(exchange.marks.first_token_written >= exchange.marks.first_token, "{label}");
    }
}

#[test]
fn sse_labelled_application_json() {
    let body = [TOKEN, TOKEN, STOP, DONE].concat();
    let sim = sim(typed("application/json", &body));
    let proxy = Proxy::before(sim.addr());
    let reply = proxy.client().stream("m");
    assert_eq!((reply.header("content-type"), reply.body.as_slice()), (Some("application/json"), body.as_bytes()));
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (1, 1)));
    assert_eq!(exchange.anomalies.count(Anomaly::MislabelledStream), 1);
}

#[test]
fn a_stream_wanted_and_application_json_given() {
    let body = r#"{"choices":[{"index":0,"message":{"content":"a b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let sim = sim(Script { framing: Framing::Length, ..typed("application/json", body) });
    let proxy = Proxy::before(sim.addr());
    let reply = proxy.client().stream("m");
    assert_eq!((reply.status, reply.body.as_slice(), reply.ended), (200, body.as_bytes(), Ended::Clean));
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (0, 0)));
    assert_eq!(exchange.output, Some(OutputTokens { count: 2, source: Source::Usage }));
    assert_eq!(exchange.anomalies.count(Anomaly::JsonForStream), 1);
}

#[test]
fn a_bare_json_error_after_keep_alive_comments() {
    let ping = Step { repeat: 3, ..Step { wait: Duration::from_millis(5), ..Step::send(": PING\n\n") } };
    let error = r#"{"error":{"message":"upstream timed out","type":"one_api_error","param":"","code":null}}"#;
    let script = Script { steps: vec![ping, Step::send(error)], ..Script::default() };
    let sent = script.bytes();
    let sim = sim(script);
    let proxy = Proxy::before(sim.addr());
    let reply = proxy.client().stream("m");
    assert_eq!((reply.body, reply.ended), (sent, Ended::Clean));
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, proxy.counted()), (Outcome::InbandError, (0, 0)));
    assert_eq!(exchange.anomalies.count(Anomaly::StrayJson), 1);
}

#[test]
fn sixty_four_events_in_one_read() {
    let many = TOKEN.repeat(64);
    let sim = sim(Script { steps: vec![Step::send(many.clone())], end: End::Silence, ..Script::default() });
    let proxy = Proxy::with(&[("up", "*", sim.addr())], |openai| openai.idle_timeout = Duration::from_millis(100));
    let reply = proxy.client().stream("m");
    assert_eq!(reply.body, many.as_bytes());
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, exchange.token_events), (Outcome::Timeout, 64));
    assert_eq!(exchange.output, Some(OutputTokens { count: 64, source: Source::Events }));
    assert_eq!(proxy.counted(), (1, 63));
    assert_eq!(proxy.metric("streamgauge_inter_token_latency_seconds_count", r#"timing="coalesced""#), 63);
    assert_eq!(proxy.metric("streamgauge_events_per_read_count", ""), 1);
    assert_eq!(proxy.metric("streamgauge_events_per_read_sum", ""), 64);
}

#[test]
fn every_cut_of_every_write_arrives_identical() {
    // Odd line ends, a BOM, comments and multi-byte text, in writes of a few bytes each.
    let text = "\u{feff}: ping\r\n\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"水位\"}}]}\r\n\r\nretry: 5\r\rdata: {\"choices\":[{\"delta\":{\"content\":\"🌊\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]";
    for cut in [1, 2, 3, 7] {
        let sim = sim(Script {
            steps: vec![Step::send(text).cut_every(cut, Duration::from_micros(50))],
            ..Script::default()
        });
        let proxy = Proxy::before(sim.addr());
        let reply = proxy.client().stream("m");
        assert_eq!((reply.body.as_slice(), reply.ended), (text.as_bytes(), Ended::Clean));
        let exchange = proxy.exchange();
        assert_eq!((exchange.outcome, proxy.counted()), (Outcome::Ok, (1, 1)));
        assert_eq!(exchange.anomalies.count(Anomaly::UnterminatedEvent), 1);
    }
}

const MIB: usize = 1024 * 1024;

#[test]
fn a_3_mib_line_is_forwarded() {
    let line = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(3 * MIB));
    let body = [TOKEN, TOKEN, &line, TOKEN, TOKEN, STOP, DONE].concat();
    let sim = sim(Script::sending(body.clone()));
    let proxy = Proxy::before(sim.addr());
    let reply = proxy.client().stream("m");
    assert!(reply.body == body.as_bytes(), "the client got other bytes");
    let exchange = proxy.exchange();
    assert_eq!((exchange.outcome, proxy.counted(), exchange.output), (Outcome::Ok, (1, 2), None));
    assert_eq!(exchange.anomalies.count(Anomaly::OversizedEvent), 1);
}

#[test]
fn an_endless_line_takes_no_memory() {
    // Far more than all buffers on its way, so that only a proxy that keeps the line would grow.
    const LINE: usize = 96 * MIB;
    const PIECE: usize = 64 * 1024;
    let hand = Hand::new();
    let proxy = Proxy::before(hand.address());
    let mut client = proxy.client();
    client.send(chat("", &asking("m", true)));
    let mut answering = hand.request();
    answering.send(STREAM_HEAD);
    answering.chunk(b"data: ");
    client.head();
    client.body_until("data: ");
    let before = resident();
    let upstream = std::thread::spawn(move || {
        let piece = vec![b'x'; PIECE];
        for _ in 0..LINE / PIECE {
            answering.chunk(&piece);
        }
        answering.chunk([b"\n\n", STOP.as_bytes(), DONE.as_bytes()].concat().as_slice());
        answering.send("0\r\n\r\n");
        answering
    });
    let (mut got, mut most, mut last) = (0, before, Vec::new());
    while !last.ends_with(DONE.as_bytes()) {
        last.clear();
        client.piece(&mut last);
        got += last.len();
        if got % MIB < last.len() {
            most = most.max(resident());
        }
    }
    assert_eq!(got, LINE + 2 + STOP.len() + DONE.len());
    let grown = most.saturating_sub(before) / MIB;
    assert!(grown < 32, "a line of {} MiB made the process grow by {grown} MiB", LINE / MIB);
    drop(client);
    assert_eq!(proxy.exchange().outcome, Outcome::Ok);
    drop(upstream.join().expect("the upstream"));
}

/// This process's resident memory, in bytes.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a size") * 1024
}
