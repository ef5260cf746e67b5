//! Upstreams that refuse what was asked beyond their clients' words: asked once more without it, and after some such
//! refusals no more for it.

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
            let open = conn.as_mut().expect("a connection");
            match act {
                Act::Refuse(status) => {
                    refuse(open, status, "close");
                    conn = None;
                }
                Act::Stream => {
                    open.begin_stream();
                    open.event(EVENT);
                    open.end_stream();
                }
                Act::Document => open.answer(DOCUMENT),
            }
        }
        bodies
    };
    (addr, thread::spawn(serve))
}

fn refuse(conn: &mut Conn, status: u16, connection: &str) {
    let length = REFUSAL.len();
    conn.send(format!(
        "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nconnection: {connection}\r\n\
         content-length: {length}\r\n\r\n{REFUSAL}"
    ));
}

/// Refusals in a row that are answered well when asked again, as many as make a model known to refuse, and what follows.
fn refusing(status: u16, answer: Act, then: &[Act]) -> Vec<Act> {
    [[Act::Refuse(status), answer]; 3].concat().into_iter().chain(then.iter().copied()).collect()
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
        let (addr, served) = upstream(&refusing(status, Act::Stream, &[Act::Stream]));
        let proxy = Proxy::before(addr, USAGE);
        let (replies, exchanges) = statuses(&proxy, STREAM, 4);
        for reply in &replies {
            assert_eq!(
                (reply.status, String::from_utf8_lossy(&reply.body).into_owned()),
                (200, format!("data: {EVENT}\n\n"))
            );
        }
        let bodies = served.join().expect("served");
        assert_eq!(
            has_asked(&bodies),
            [true, false, true, false, true, false, false],
            "asked three times, then no more"
        );
        for at in [1, 3, 5, 6] {
            assert_eq!(bodies[at], STREAM, "the second time as the client wrote it");
        }
        // One exchange each, with the instants of the attempt that was answered.
        for exchange in &exchanges {
            assert_eq!((exchange.outcome.label(), exchange.status), ("ok", Some(200)));
            let marks = &exchange.marks;
            assert!(marks.sent.is_some() && marks.sent <= marks.head && marks.ttft_upstream().is_some());
        }
        assert_eq!(proxy.idle_scrape().sum("requests_total", &[]), 4.0);
    }
}

#[test]
fn refusals_of_single_requests_fail_none_and_decide_nothing() {
    let acts = [[Act::Stream, Act::Refuse(400), Act::Stream]; 4].concat();
    let (addr, served) = upstream(&acts);
    let proxy = Proxy::before(addr, USAGE);
    let (replies, _) = statuses(&proxy, STREAM, 8);
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(has_asked(&served.join().expect("served")), [true, true, false].repeat(4));
}

#[test]
fn a_refusal_stands_where_the_second_attempt_finds_nobody() {
    let listener = Upstream::bind();
    let proxy = Proxy::before(listener.addr(), USAGE);
    let mut client = proxy.client();
    client.send(post(&[], STREAM));
    let mut conn = listener.accept();
    conn.request();
    drop(listener);
    refuse(&mut conn, 400, "keep-alive");
    let reply = client.reply();
    assert_eq!((reply.status, &*reply.body), (400, REFUSAL.as_bytes()));
    let exchange = proxy.finished(1).pop().expect("one");
    assert_eq!((exchange.outcome.label(), exchange.status), ("upstream_4xx", Some(400)));
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
    let (addr, served) = upstream(&refusing(400, Act::Stream, &[Act::Stream, Act::Stream]));
    let proxy = Proxy::before(addr, USAGE);
    let mut client = proxy.client();
    for model in ["m", "m", "m", "other", "m"] {
        assert_eq!(client.ask(post(&[], &STREAM.replace("\"m\"", &format!("{model:?}")))).status, 200);
    }
    assert_eq!(has_asked(&served.join().expect("served"))[6..], [true, false]);
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
    let (addr, served) = upstream(&refusing(400, Act::Document, &[Act::Document]));
    let proxy = Proxy::before(addr, MEASURED);
    let (replies, exchanges) = statuses(&proxy, WHOLE, 4);
    for reply in &replies {
        assert_eq!((reply.status, &*reply.body), (200, DOCUMENT.as_bytes()));
    }
    let bodies = served.join().expect("served");
    for at in [0, 2, 4] {
        let asked = r#"{"stream":true,"stream_options":{"include_usage":true},"model""#;
        assert!(bodies[at].starts_with(asked), "{}", bodies[at]);
    }
    for at in [1, 3, 5, 6] {
        assert_eq!(bodies[at], WHOLE);
    }
    assert!(exchanges.iter().all(|exchange| exchange.outcome.label() == "ok"));
}

#[test]
fn where_usage_is_refused_a_whole_reply_is_asked_for_as_it_was_written() {
    let (addr, served) = upstream(&refusing(400, Act::Stream, &[Act::Document]));
    let proxy = Proxy::before(addr, &format!("{USAGE}\n{MEASURED}"));
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.ask(post(&[], STREAM)).status, 200);
    }
    let reply = client.ask(post(&[], WHOLE));
    assert_eq!(reply.body, DOCUMENT.as_bytes());
    assert_eq!(served.join().expect("served")[6], WHOLE);
}

#[test]
fn a_model_whose_streams_lack_usage_is_asked_for_one_only_once() {
    let (addr, served) = upstream(&[Act::Stream, Act::Document, Act::Stream]);
    let proxy = Proxy::before(addr, MEASURED);
    let mut client = proxy.client();
    for model in ["m", "m", "other"] {
        let reply = client.ask(post(&[], &WHOLE.replace("\"m\"", &format!("{model:?}"))));
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "a");
    }
    assert_eq!(has_asked(&served.join().expect("served")), [true, false, true]);
}

#[test]
fn a_refusal_and_a_signature_are_told_once() {
    let (addr, served) = upstream(&refusing(400, Act::Stream, &[Act::Stream, Act::Stream, Act::Stream]));
    let serve = Serve::start(&one_backend(addr, USAGE), "json", &[]);
    let mut client = serve.client();
    for headers in [&[][..], &[], &[], &[], &[("x-tt-sign", "s")], &[("x-tt-sign", "s")]] {
        let model = if headers.is_empty() { "m" } else { "signed" };
        assert_eq!(client.ask(post(headers, &STREAM.replace("\"m\"", &format!("{model:?}")))).status, 200);
    }
    served.join().expect("served");
    serve.signal("TERM");
    let (_, lines) = serve.ended();
    let told = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!((told("refuses what was asked"), told("a header vouches for")), (1, 1), "{lines:#?}");
    assert_eq!(told("does not act on it yet"), 0, "{lines:#?}");
}
