//! Upstreams that refuse what was asked beyond their clients' words: asked once more without it, and no more for it.

use std::thread;

use streamgauge::measure::Exchange;

use crate::support::client::Reply;
use crate::support::process::Serve;
use crate::support::stage::{Proxy, one_backend};
use crate::support::upstream::{Conn, Upstream};
use crate::{MEASURED, STREAM, USAGE, WHOLE, post};

const REFUSAL: &str = r#"{"error":{"message":"unknown field: stream_options","type":"invalid_request_error"}}"#;
const DOCUMENT: &str =
    r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#;
const EVENT: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}"#;

/// What an upstream does with one request.
#[derive(Clone, Copy)]
enum Act {
    Refuse(u16),
    Stream,
    Document,
}

/// Answers requests in this way, on any connection, and returns their bodies.
fn upstream(acts: &[Act]) -> (std::net::SocketAddr, thread::JoinHandle<Vec<String>>) {
    let listener = Upstream::bind();
    let addr = listener.addr();
    let acts = acts.to_vec();
    let serve = move || {
        let mut conn: Option<Conn> = None;
        let mut bodies = Vec::new();
        for act in acts {
            let request = loop {
                match &mut conn {
                    Some(open) => match open.try_request() {
                        Some(request) => break request,
                        None => conn = None,
                    },
                    None => conn = Some(listener.accept()),
                }
            };
            bodies.push(String::from_utf8(request.body).expect("UTF-8"));
            let conn = conn.as_mut().expect("a connection");
            match act {
                Act::Refuse(status) => conn.send(format!(
                    "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{REFUSAL}",
                    REFUSAL.len()
                )),
                Act::Stream => {
                    conn.begin_stream();
                    conn.event(EVENT);
                    conn.end_stream();
                }
                Act::Document => conn.answer(DOCUMENT),
            }
        }
        bodies
    };
    (addr, thread::spawn(serve))
}

fn has_asked(bodies: &[String]) -> Vec<bool> {
    bodies.iter().map(|body| body.contains("include_usage")).collect()
}

fn statuses(proxy: &Proxy, body: &str, count: usize) -> (Vec<Reply>, Vec<Exchange>) {
    let mut client = proxy.client();
    let replies = (0..count).map(|_| client.ask(post(&[], body))).collect();
    (replies, proxy.finished(count))
}

#[test]
fn a_refusal_of_usage_is_answered_by_asking_without_it() {
    for status in [400, 422] {
        let (addr, served) = upstream(&[Act::Refuse(status), Act::Stream, Act::Stream]);
        let proxy = Proxy::before(addr, USAGE);
        let (replies, exchanges) = statuses(&proxy, STREAM, 2);
        for reply in &replies {
            assert_eq!(
                (reply.status, String::from_utf8_lossy(&reply.body).into_owned()),
                (200, format!("data: {EVENT}\n\n"))
            );
        }
        let bodies = served.join().expect("served");
        assert_eq!(has_asked(&bodies), [true, false, false], "asked once, then never again");
        assert_eq!(bodies[1..], [STREAM, STREAM], "the second time as the client wrote it");
        // One exchange each, with the instants of the attempt that was answered.
        for exchange in &exchanges {
            assert_eq!((exchange.outcome.label(), exchange.status), ("ok", Some(200)));
            let marks = &exchange.marks;
            assert!(marks.sent.is_some() && marks.sent <= marks.head && marks.ttft_upstream().is_some());
        }
        assert_eq!(proxy.idle_scrape().sum("requests_total", &[]), 2.0);
    }
}

#[test]
fn a_refusal_after_an_answer_is_the_clients_own() {
    let (addr, served) = upstream(&[Act::Stream, Act::Refuse(400), Act::Stream]);
    let proxy = Proxy::before(addr, USAGE);
    let (replies, _) = statuses(&proxy, STREAM, 3);
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 400, 200]);
    assert_eq!(replies[1].body, REFUSAL.as_bytes());
    assert_eq!(has_asked(&served.join().expect("served")), [true, true, true]);
}

#[test]
fn a_request_that_is_refused_either_way_teaches_nothing() {
    let (addr, served) = upstream(&[Act::Refuse(400), Act::Refuse(422), Act::Stream]);
    let proxy = Proxy::before(addr, USAGE);
    let (replies, exchanges) = statuses(&proxy, STREAM, 2);
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [422, 200]);
    assert_eq!(exchanges[0].outcome.label(), "upstream_4xx");
    assert_eq!(has_asked(&served.join().expect("served")), [true, false, true]);
}

#[test]
fn what_one_model_refuses_another_is_still_asked() {
    let (addr, served) = upstream(&[Act::Refuse(400), Act::Stream, Act::Stream, Act::Stream]);
    let proxy = Proxy::before(addr, USAGE);
    let mut client = proxy.client();
    for model in ["m", "other", "m"] {
        assert_eq!(client.ask(post(&[], &STREAM.replace("\"m\"", &format!("{model:?}")))).status, 200);
    }
    assert_eq!(has_asked(&served.join().expect("served")), [true, false, true, false]);
}

#[test]
fn other_errors_are_passed_on_at_once() {
    let (addr, served) = upstream(&[Act::Refuse(429), Act::Refuse(500), Act::Refuse(404)]);
    let proxy = Proxy::before(addr, USAGE);
    let (replies, _) = statuses(&proxy, STREAM, 3);
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [429, 500, 404]);
    assert_eq!(has_asked(&served.join().expect("served")), [true, true, true]);
}

#[test]
fn a_refusal_of_a_stream_is_answered_by_asking_for_the_whole() {
    let (addr, served) = upstream(&[Act::Refuse(400), Act::Document, Act::Document]);
    let proxy = Proxy::before(addr, MEASURED);
    let (replies, exchanges) = statuses(&proxy, WHOLE, 2);
    for reply in &replies {
        assert_eq!((reply.status, &*reply.body), (200, DOCUMENT.as_bytes()));
    }
    let bodies = served.join().expect("served");
    assert!(
        bodies[0].starts_with(r#"{"stream":true,"stream_options":{"include_usage":true},"model""#),
        "{}",
        bodies[0]
    );
    assert_eq!(bodies[1..], [WHOLE, WHOLE]);
    assert!(exchanges.iter().all(|exchange| exchange.outcome.label() == "ok"));
}

#[test]
fn where_usage_is_refused_a_stream_is_asked_for_without_it() {
    let (addr, served) = upstream(&[Act::Refuse(400), Act::Stream, Act::Stream]);
    let proxy = Proxy::before(addr, &format!("{USAGE}\n{MEASURED}"));
    let mut client = proxy.client();
    assert_eq!(client.ask(post(&[], STREAM)).status, 200);
    let reply = client.ask(post(&[], WHOLE));
    assert_eq!(reply.json()["choices"][0]["message"]["content"], "a");
    let bodies = served.join().expect("served");
    assert_eq!(bodies[2], WHOLE.replacen('{', r#"{"stream":true,"#, 1));
}

#[test]
fn a_refusal_and_a_signature_are_told_once() {
    let (addr, served) = upstream(&[Act::Refuse(400), Act::Stream, Act::Stream, Act::Stream, Act::Stream]);
    let serve = Serve::start(&one_backend(addr, USAGE), "json", &[]);
    let mut client = serve.client();
    for headers in [&[][..], &[], &[("x-tt-sign", "s")], &[("x-tt-sign", "s")]] {
        let model = if headers.is_empty() { "m" } else { "signed" };
        assert_eq!(client.ask(post(headers, &STREAM.replace("\"m\"", &format!("{model:?}")))).status, 200);
    }
    served.join().expect("served");
    serve.signal("TERM");
    let (_, lines) = serve.ended();
    let told = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!((told("refuses what was asked"), told("a signed request")), (1, 1), "{lines:#?}");
    assert_eq!(told("does not act on it yet"), 0, "{lines:#?}");
}
