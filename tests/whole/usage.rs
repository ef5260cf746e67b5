//! `include_usage`: asked for in the client's place, measured, and taken out of what the client gets.

use std::time::Duration;

use streamgauge::backend::sim::{End, Framing, Script, Step};

use crate::support::client::{Client, Ended};
use crate::support::metrics::Scrape;
use crate::support::stage::{Proxy, playing, sim};
use crate::support::upstream::Upstream;
use crate::{STREAM, USAGE, WHOLE, last, post, timeless};

const TOKENS: u64 = 12;

fn asked_of(sim: &str) -> [(&'static str, String); 1] {
    [("x-sim", format!("request=r,ttft_ms=2,itl_ms=1,tokens={TOKENS},{sim}"))]
}

/// Asks `client` for a stream of that character.
fn stream(client: &mut Client, sim: &str, body: &str) -> crate::support::client::Reply {
    let headers = asked_of(sim);
    client.ask(post(&[("x-sim", &*headers[0].1)], body))
}

#[test]
fn a_client_that_did_not_ask_gets_what_it_would_have_got_and_usage_is_measured() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), USAGE);
    let (mut direct, mut client) = (Client::connect(sim.addr()), proxy.client());
    let shapes =
        ["role_first=1", "tokens_per_event=3", "events_per_write=5", "events_per_write=50", "reasoning=4", "no_done=1"];
    for (count, shape) in (1..).zip(shapes) {
        let expected = stream(&mut direct, shape, STREAM);
        let reply = stream(&mut client, shape, STREAM);
        let received = last(&sim).request.body;
        let wanted = STREAM.replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
        assert_eq!(received, wanted);
        assert_eq!(timeless(&reply.body), timeless(&expected.body), "{shape}");
        assert!(!timeless(&reply.body).contains("usage"));
        assert_eq!((reply.status, reply.ended), (200, Ended::Complete));
        let exchange = proxy.finished(count).pop().expect("one");
        assert_eq!(exchange.usage.and_then(|usage| usage.output), Some(TOKENS), "{shape}");
        assert_eq!(exchange.output.map(|output| output.source.label()), Some("usage"));
        assert_eq!(exchange.outcome.label(), "ok");
        assert!(exchange.marks.ttft_client().is_some() && exchange.tgs().is_some(), "{shape}");
    }
}

#[test]
fn clients_that_say_something_of_usage_are_left_alone() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), USAGE);
    let mut client = proxy.client();
    let with = |options: &str| STREAM.replacen('{', &format!("{{\"stream_options\":{options},"), 1);
    let asks = with(r#"{"include_usage":true}"#);
    let reply = stream(&mut client, "", &asks);
    assert_eq!(last(&sim).request.body, asks);
    let events = reply.events();
    assert_eq!(events.last().expect("events")["usage"]["completion_tokens"], TOKENS);
    assert!(events[0].as_object().expect("an object").contains_key("usage"), "nulls stay too");

    for body in [with(r#"{"include_usage":false}"#), with("7"), WHOLE.to_owned()] {
        stream(&mut client, "", &body);
        assert_eq!(last(&sim).request.body, body);
    }
    // Off, nothing is asked.
    let proxy = Proxy::before(sim.addr(), "");
    stream(&mut proxy.client(), "", STREAM);
    assert_eq!(last(&sim).request.body, STREAM);
}

#[test]
fn usage_that_always_comes_with_choices_stays() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), USAGE);
    let reply = stream(&mut proxy.client(), "usage=each", STREAM);
    let events = reply.events();
    assert!(events.iter().all(|event| event["usage"].is_object() && !event["choices"][0].is_null()), "{events:?}");
    assert!(reply.is_done());
}

#[test]
fn a_request_that_something_vouches_for_is_not_altered() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), &format!("{USAGE}\n{}", crate::MEASURED));
    let mut client = proxy.client();
    let vouching = ["x-tt-sign", "digest", "content-digest", "content-md5", "idempotency-key"];
    for (name, body) in vouching.into_iter().flat_map(|name| [(name, STREAM), (name, WHOLE)]) {
        let headers = [(name, "abc"), ("x-sim", "ttft_ms=1,tokens=2"), ("accept-encoding", "gzip")];
        let reply = client.ask(post(&headers, body));
        assert_eq!(reply.status, 200);
        let received = last(&sim).request;
        assert_eq!(received.body, body);
        assert_eq!(received.header("accept-encoding"), Some("gzip"));
    }
}

#[test]
fn compression_is_not_asked_for_where_usage_is() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), USAGE);
    let mut client = proxy.client();
    for (body, expected) in [(STREAM, None), (WHOLE, Some("gzip, br"))] {
        client.ask(post(&[("accept-encoding", "gzip, br"), ("x-sim", "ttft_ms=1,tokens=2")], body));
        assert_eq!(last(&sim).request.header("accept-encoding"), expected);
    }
}

#[test]
fn an_alias_and_usage_are_asked_for_at_once() {
    let sim = sim();
    let server = crate::support::stage::SERVER;
    let backend = crate::support::stage::backend("up", sim.addr(), USAGE);
    let route = "[[route]]\nmodel = \"m\"\nbackend = \"up\"\nupstream_model = \"other\"\n";
    let proxy = Proxy::start(&format!("{server}{backend}{route}"));
    let odd = r#" {"stream_options" : {} , "model":"m","stream":true}"#;
    proxy.client().ask(post(&[("x-sim", "ttft_ms=1,tokens=2")], odd));
    assert_eq!(
        last(&sim).request.body,
        r#" {"stream_options" : {"include_usage":true} , "model":"other","stream":true}"#
    );
}

/// A stream with usage, and what a client gets of it that did not ask.
const WITH: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\n: ping\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n\
    id: 3\ndata: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
const WITHOUT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\r\n\r\n: ping\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

#[test]
fn however_the_stream_is_framed_and_cut() {
    let cuts = [None, Some(1), Some(7), Some(64)];
    for framing in [Framing::Chunked, Framing::Length, Framing::Close] {
        for cut in cuts {
            let step = Step::send(WITH.as_bytes());
            let step = cut.map_or(step.clone(), |cut| step.cut_every(cut, Duration::from_micros(100)));
            let sim = playing(Script { steps: vec![step], framing, ..Script::default() });
            let proxy = Proxy::before(sim.addr(), USAGE);
            let mut client = proxy.client();
            let reply = client.ask(post(&[], STREAM));
            assert_eq!(String::from_utf8_lossy(&reply.body), WITHOUT, "{framing:?} {cut:?}");
            assert_eq!(reply.ended, Ended::Complete, "{framing:?} {cut:?}");
            assert_eq!(reply.header("content-length"), None);
            // The connection can carry another.
            assert_eq!(client.ask(post(&[], STREAM)).body, WITHOUT.as_bytes());
            for exchange in proxy.finished(2) {
                assert_eq!((exchange.outcome.label(), exchange.token_events), ("ok", 1));
                assert_eq!(exchange.usage.and_then(|usage| usage.input), Some(4));
            }
        }
    }
}

#[test]
fn a_client_of_http_1_0_gets_it_too() {
    let sim = playing(Script::sending(WITH.as_bytes()));
    let proxy = Proxy::before(sim.addr(), USAGE);
    let mut client = proxy.client();
    client.send(post(&[], STREAM).replace("HTTP/1.1", "HTTP/1.0"));
    let mut reply = client.head();
    while let Ok(bytes) = client.some() {
        reply.body.extend(bytes);
    }
    assert_eq!(String::from_utf8_lossy(&reply.body), WITHOUT);
    assert_eq!(proxy.outcome(1), "ok");
}

#[test]
fn what_is_held_back_comes_before_the_break() {
    let half = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}";
    let whole = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
    for (end, outcomes) in [(End::Fin, ["truncated", "truncated"]), (End::Rst, ["reset", "truncated"])] {
        // The half comes later, so that the reset does not overtake it.
        let steps = vec![
            Step::send(whole.as_bytes()),
            Step { wait: Duration::from_millis(5), ..Step::send(half.as_bytes()) },
            Step::wait(Duration::from_millis(200)),
        ];
        let sim = playing(Script { steps, end, ..Script::default() });
        let proxy = Proxy::before(sim.addr(), USAGE);
        let reply = proxy.client().ask(post(&[], STREAM));
        assert_eq!(String::from_utf8_lossy(&reply.body), format!("{whole}{half}"), "{end:?}");
        assert_eq!(reply.ended, Ended::Fin, "{end:?}");
        assert!(outcomes.contains(&proxy.outcome(1)), "{}", proxy.outcome(1));
    }
}

#[test]
fn silence_ends_it_with_what_was_held() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), &format!("{USAGE}\nidle_timeout_ms = 150"));
    let mut client = proxy.client();
    client.send(post(&[], STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.send("4\r\ndata\r\n");
    let reply = client.reply();
    assert_eq!((&*reply.body, reply.ended), (&b"data"[..], Ended::Fin));
    assert_eq!(proxy.outcome(1), "timeout");
}

#[test]
fn trailers_come_after_what_was_held() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), USAGE);
    let mut client = proxy.client();
    client.send(post(&[], STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.send("4\r\ndata\r\n0\r\nx-late: 1\r\n\r\n");
    let reply = client.reply();
    assert_eq!((&*reply.body, reply.ended), (&b"data"[..], Ended::Complete));
    assert_eq!(proxy.outcome(1), "truncated");
}

#[test]
fn a_client_that_leaves_takes_its_upstream_along() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), USAGE);
    let mut client = proxy.client();
    client.send(post(&[], STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    let mut body = Vec::new();
    client.head();
    conn.event(r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null}"#);
    assert!(client.chunk(&mut body).expect("a chunk"));
    assert_eq!(body, b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n");
    conn.send("4\r\ndata\r\n");
    drop(client);
    conn.closed_by_peer();
    assert_eq!(proxy.outcome(1), "client_cancel");
}

#[test]
fn a_slow_client_gets_every_byte() {
    let event = |usage: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]{usage}}}\n\n", "x".repeat(40_000))
    };
    let step = Step { repeat: 300, ..Step::send(event(",\"usage\":null").into_bytes()) };
    let sim = playing(Script { steps: vec![step], ..Script::default() });
    let proxy = Proxy::before(sim.addr(), USAGE);
    let mut client = proxy.client();
    client.send(post(&[], STREAM));
    let head = client.head();
    // Long enough for every buffer between to be full.
    std::thread::sleep(Duration::from_millis(300));
    let reply = client.rest(head);
    assert!(reply.body == event("").repeat(300).as_bytes(), "{} bytes", reply.body.len());
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("dwell_seconds_count", &[]), 300.0);
    assert_eq!(scrape.sum("token_events_total", &[]), 300.0);
}

#[test]
fn comments_pass_while_an_event_waits_for_its_end() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), USAGE);
    let mut client = proxy.client();
    client.send(post(&[], STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    let head = client.head();
    conn.send("7\r\n: ping\n\r\n");
    let mut body = Vec::new();
    assert!(client.chunk(&mut body).expect("a chunk"));
    assert_eq!(body, b": ping\n");
    // Of the event nothing is of use before its blank line; then all of it comes.
    conn.send("9\r\n\ndata: {}\r\n");
    assert!(client.chunk(&mut body).expect("a chunk"));
    assert_eq!(body, b": ping\n\n");
    conn.send("2\r\n\n\n\r\n0\r\n\r\n");
    let reply = client.rest(head);
    assert_eq!(reply.body, b"data: {}\n\n");
}

#[test]
fn replies_that_are_no_streams_pass_as_they_are() {
    const DOCUMENT: &str = r#"{"choices":[],"usage":{"prompt_tokens":1}}"#;
    for (kind, framing) in
        [("application/json", Framing::Length), ("application/json", Framing::Chunked), ("text/html", Framing::Length)]
    {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let sim = playing(Script { headers, framing, ..Script::sending(DOCUMENT.as_bytes()) });
        let proxy = Proxy::before(sim.addr(), USAGE);
        let reply = proxy.client().ask(post(&[], STREAM));
        assert_eq!(reply.body, DOCUMENT.as_bytes());
        let length = (framing == Framing::Length).then(|| DOCUMENT.len().to_string());
        assert_eq!(reply.header("content-length"), length.as_deref());
    }
    // An error stream passes whole, usage and all.
    let sim = playing(Script { status: 429, ..Script::sending(WITH.as_bytes()) });
    let proxy = Proxy::before(sim.addr(), USAGE);
    let reply = proxy.client().ask(post(&[], STREAM));
    assert_eq!((reply.status, &*reply.body), (429, WITH.as_bytes()));
}

#[test]
fn a_stream_under_another_name_is_stripped_and_a_compressed_one_is_not() {
    let with = |name: &str, value: &str| {
        let headers = vec![(name.to_owned(), value.to_owned())];
        playing(Script { headers, ..Script::sending(WITH.as_bytes()) })
    };
    let sim = with("content-type", "application/json");
    let reply = Proxy::before(sim.addr(), USAGE).client().ask(post(&[], STREAM));
    assert_eq!(String::from_utf8_lossy(&reply.body), WITHOUT);
    let sim = with("content-encoding", "gzip");
    let reply = Proxy::before(sim.addr(), USAGE).client().ask(post(&[], STREAM));
    assert_eq!(reply.body, WITH.as_bytes());
}

#[test]
fn dwell_counts_the_events_that_went_on() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), USAGE);
    let mut client = proxy.client();
    let count = |scrape: &Scrape, name: &str| scrape.sum(name, &[]);
    for (requests, shape) in (1..).zip(["role_first=1", "events_per_write=4,role_first=1"]) {
        stream(&mut client, shape, STREAM);
        let requests = f64::from(requests);
        let scrape = proxy.idle_scrape();
        // The role, the tokens, the finish, the end marker; usage was seen, and did not go on.
        let on = TOKENS as f64 + 3.0;
        assert_eq!(count(&scrape, "dwell_seconds_count"), requests * on, "{shape}");
        assert_eq!(count(&scrape, "events_per_read_sum"), requests * (on + 1.0), "{shape}");
        assert_eq!(scrape.sum("time_to_first_token_seconds_count", &[("vantage", "client")]), requests);
    }
    // All in one frame.
    let sim = playing(Script::sending(WITH.as_bytes()));
    let proxy = Proxy::before(sim.addr(), USAGE);
    assert_eq!(proxy.client().ask(post(&[], STREAM)).body, WITHOUT.as_bytes());
    let scrape = proxy.idle_scrape();
    assert_eq!((count(&scrape, "dwell_seconds_count"), count(&scrape, "events_per_read_sum")), (3.0, 4.0));
}
