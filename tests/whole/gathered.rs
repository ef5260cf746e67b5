//! `measure_non_stream`: the client asks for a whole reply, the upstream is asked for a stream, and what is measured of
//! it is real.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use streamgauge::backend::sim::{End, Framing, Script, SimConfig, Step, text};

use crate::support::client::{Client, Ended, Reply};
use crate::support::eventually;
use crate::support::stage::{Proxy, playing, sim, spawn};
use crate::support::upstream::Upstream;
use crate::{MEASURED, WHOLE, last, post};

const TOKENS: u32 = 12;
const TOKEN: &str = r#"{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

/// A reply without what differs from one to the next by nature.
fn comparable(reply: &Reply) -> Value {
    assert_eq!((reply.status, reply.ended), (200, Ended::Complete), "{reply:?}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("content-length"), Some(&*reply.body.len().to_string()));
    let mut json = reply.json();
    json["created"].take();
    json
}

#[test]
fn the_whole_is_what_the_upstream_would_have_said() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let (mut direct, mut client) = (Client::connect(sim.addr()), proxy.client());
    for (shape, more) in [
        ("", ""),
        ("role_first=1", r#""n":3,"#),
        ("reasoning=5,tokens_per_event=2", ""),
        ("events_per_write=50,hidden=7", r#""stream":false,"max_tokens":4,"#),
        ("usage=always", r#""stream":null,"#),
    ] {
        let sim_header = format!("request=r,ttft_ms=2,itl_ms=0,tokens={TOKENS},{shape}");
        let body = WHOLE.replacen('{', &format!("{{{more}"), 1);
        let request = post(&[("x-sim", &sim_header)], &body);
        let expected = direct.ask(&request);
        let reply = client.ask(&request);
        let asked: Value = serde_json::from_slice(&last(&sim).request.body).expect("JSON");
        assert_eq!((&asked["stream"], &asked["stream_options"]), (&json!(true), &json!({"include_usage": true})));
        assert_eq!(comparable(&reply), comparable(&expected), "{shape}");
        assert_eq!(reply.header("x-request-id"), expected.header("x-request-id"));
    }
}

#[test]
fn what_is_measured_is_real() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let sim_header = format!("ttft_ms=300,itl_ms=4,tokens={TOKENS}");
    let reply = proxy.client().ask(post(&[("x-sim", &sim_header)], WHOLE));
    assert_eq!(reply.json()["choices"][0]["message"]["content"], text(TOKENS));
    let exchange = proxy.finished(1).pop().expect("one");
    assert_eq!((exchange.outcome.label(), exchange.status, exchange.stream), ("ok", Some(200), Some(false)));
    assert_eq!(exchange.token_events, u64::from(TOKENS));
    let marks = &exchange.marks;
    let ttft = marks.ttft_upstream().expect("a TTFT");
    // Late to note what it sent, a busy machine shortens it.
    assert!(ttft >= Duration::from_millis(100) && exchange.tpot().is_some());
    // The client got no token before the last: its view of the first does not exist.
    assert_eq!((marks.ttft_client(), exchange.tgs()), (None, None));
    let decode = marks.last_token.expect("a last token") - marks.first_token.expect("a first");
    assert!(!decode.is_zero() && marks.duration().expect("a duration") >= ttft + decode);

    let scrape = proxy.idle_scrape();
    let ended = [("outcome", "ok"), ("status", "200"), ("stream", "false"), ("model", "m")];
    assert_eq!(scrape.sum("requests_total", &ended), 1.0);
    let ttfts = |vantage| scrape.sum("time_to_first_token_seconds_count", &[("vantage", vantage)]);
    assert_eq!((ttfts("upstream"), ttfts("client")), (1.0, 0.0));
    assert_eq!(scrape.sum("inter_token_latency_seconds_count", &[]), f64::from(TOKENS - 1));
    assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[("source", "usage")]), 1.0);
    assert_eq!(scrape.sum("request_duration_seconds_count", &[("stream", "false")]), 1.0);
    assert_eq!(scrape.sum("dwell_seconds_count", &[]), 0.0);
    assert_eq!(scrape.sum("stream_anomalies_total", &[]), 0.0);
}

#[test]
fn what_cannot_be_a_stream_is_asked_for_as_it_was_written() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let mut client = proxy.client();
    let options = r#""stream_options":{"include_usage":true},"#;
    for more in [r#""audio":{"voice":"x"},"#, options, r#""stream":"#] {
        let body = if more.ends_with(':') {
            WHOLE.replacen('{', r#"{"stream":true,"#, 1)
        } else {
            WHOLE.replacen('{', &format!("{{{more}"), 1)
        };
        client.ask(post(&[("x-sim", "ttft_ms=1,tokens=1")], &body));
        assert_eq!(last(&sim).request.body, body);
    }
}

/// Plays this stream to a client that wants the whole.
fn played(script: Script, more: &str) -> (Reply, Proxy) {
    let sim = playing(script);
    let proxy = Proxy::before(sim.addr(), &format!("{MEASURED}\n{more}"));
    let reply = proxy.client().ask(post(&[], WHOLE));
    proxy.finished(1);
    (reply, proxy)
}

fn stream(events: &[&str]) -> Vec<u8> {
    events.iter().flat_map(|data| ["data: ", data, "\n\n"]).collect::<String>().into_bytes()
}

#[test]
fn a_stream_that_does_not_end_well_is_a_status() {
    let busy = r#"{"error":{"message":"overloaded, come back","type":"server_error","param":null,"code":"busy"}}"#;
    let cases = [
        (stream(&[TOKEN, busy]), End::Complete, 502, "inband_error", "overloaded, come back"),
        (stream(&[TOKEN, busy]), End::Silence, 502, "inband_error", "overloaded, come back"),
        (busy.as_bytes().to_vec(), End::Fin, 502, "inband_error", "overloaded, come back"),
        (stream(&[TOKEN]), End::Complete, 502, "truncated", "its stream ended before the answer did"),
        (stream(&[TOKEN]), End::Fin, 502, "truncated", "closed the connection before the end"),
        (stream(&["[DONE]"]), End::Complete, 502, "unconfirmed", "its stream ended before the answer did"),
        (Vec::new(), End::Complete, 502, "truncated", "its stream ended before the answer did"),
        (stream(&[TOKEN]), End::Silence, 504, "timeout", "the upstream sent nothing for 200 ms"),
    ];
    for (body, end, status, outcome, says) in cases {
        let headers =
            vec![("content-type".to_owned(), "text/event-stream".to_owned()), ("etag".to_owned(), "x".to_owned())];
        let script = Script { end, headers, ..Script::sending(body) };
        let (reply, proxy) = played(script, "idle_timeout_ms = 200");
        assert_eq!((reply.status, proxy.outcome(1)), (status, outcome), "{reply:?}");
        let error = &reply.json()["error"];
        assert!(error["message"].as_str().expect("a message").contains(says), "{error}");
        for member in ["message", "type", "param", "code"] {
            assert!(error.as_object().expect("an object").contains_key(member));
        }
        if outcome == "inband_error" {
            assert_eq!((&error["code"], &error["type"]), (&json!("busy"), &json!("server_error")));
        } else {
            assert!(
                error["message"].as_str().expect("a message").contains("upstream \"up\" (http://127.0.0.1:"),
                "{error}"
            );
        }
        assert_eq!((reply.header("content-type"), reply.header("etag")), (Some("application/json"), None));
        let ended = [("outcome", outcome), ("status", &*status.to_string()), ("stream", "false")];
        assert_eq!(proxy.idle_scrape().sum("requests_total", &ended), 1.0);
    }
}

#[test]
fn a_reset_names_the_upstream() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), MEASURED);
    let mut client = proxy.client();
    client.send(post(&[], WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    eventually("the token is read", || (proxy.scrape().sum("token_events_total", &[]) == 1.0).then_some(()));
    conn.reset();
    let reply = client.reply();
    assert_eq!((reply.status, proxy.outcome(1)), (502, "reset"));
    assert!(
        reply.json()["error"]["message"].as_str().expect("a message").contains("broke the connection"),
        "{reply:?}"
    );
}

#[test]
fn a_stream_that_has_said_everything_is_whole_however_it_ends() {
    let told = stream(&[TOKEN, FINISH]);
    let ends = [
        (stream(&[TOKEN, FINISH, "[DONE]"]), End::Complete, "ok", "stop"),
        (stream(&[TOKEN, FINISH, "[DONE]"]), End::Silence, "ok", "stop"),
        (told.clone(), End::Complete, "ok", "stop"),
        (told.clone(), End::Fin, "ok", "stop"),
        (told, End::Silence, "ok", "stop"),
        (stream(&[TOKEN, "[DONE]"]), End::Complete, "unconfirmed", ""),
    ];
    for (body, end, outcome, reason) in ends {
        let (reply, proxy) = played(Script { end, ..Script::sending(body) }, "idle_timeout_ms = 300");
        assert_eq!((reply.status, proxy.outcome(1)), (200, outcome), "{end:?} {reply:?}");
        let choice = &reply.json()["choices"][0];
        assert_eq!(choice["message"]["content"], "a");
        assert_eq!(choice["finish_reason"].as_str().unwrap_or(""), reason);
    }
}

#[test]
fn a_client_need_not_wait_for_an_upstream_that_forgets_to_end() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), MEASURED);
    let mut client = proxy.client();
    client.send(post(&[], WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    for event in [TOKEN, FINISH, "[DONE]"] {
        conn.event(event);
    }
    assert_eq!(client.reply().json()["choices"][0]["message"]["content"], "a");
    assert_eq!(proxy.outcome(1), "ok");
    conn.closed_by_peer();
}

#[test]
fn a_stream_that_ends_leaves_its_connection_for_the_next() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.ask(post(&[("x-sim", "ttft_ms=1,itl_ms=0,tokens=2")], WHOLE)).status, 200);
    }
    assert_eq!(sim.counts().opened, 1);
}

#[test]
fn an_upstream_that_ends_late_keeps_its_connection() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), MEASURED);
    let mut client = proxy.client();
    client.send(post(&[], WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    for event in [TOKEN, FINISH, usage, "[DONE]"] {
        conn.event(event);
    }
    assert_eq!(client.reply().status, 200);
    std::thread::sleep(Duration::from_millis(100));
    conn.end_stream();
    // Long enough for the end to be read, which nobody is told of.
    std::thread::sleep(Duration::from_millis(300));
    client.send(post(&[], WHOLE));
    conn.request();
    conn.answer("{}");
    assert_eq!(client.reply().body, b"{}");
}

#[test]
fn what_is_too_large_to_be_put_together_is_a_502() {
    for kind in ["text/event-stream", "application/json"] {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let step = Step { repeat: 17, ..Step::send("x".repeat(1 << 20).into_bytes()) };
        let first = Step::send(&b"data: "[..usize::from(kind.starts_with("text")) * 6]);
        let (reply, _) = played(Script { headers, steps: vec![first, step], ..Script::default() }, "");
        assert_eq!(reply.status, 502, "{kind}");
        let error = &reply.json()["error"];
        assert!(error["message"].as_str().expect("a message").contains("larger than 16777216 bytes"), "{error}");
    }
}

#[test]
fn a_stream_that_broke_after_its_finish_says_nothing_of_its_models_usage() {
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    let sim = playing(Script { headers, end: End::Fin, ..Script::sending(stream(&[TOKEN, FINISH])) });
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let mut client = proxy.client();
    for _ in 0..2 {
        assert_eq!(client.ask(post(&[], WHOLE)).json()["choices"][0]["message"]["content"], "a");
        assert_ne!(last(&sim).request.body, WHOLE);
    }
}

#[test]
fn a_whole_reply_is_asked_for_as_such_while_others_fill_the_room() {
    // A document, so that nothing need be parsed.
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let large = Script { headers, ..Script::sending(vec![b'{'; 15 << 20]) };
    let mut config = SimConfig::default();
    config.scripts.named.insert("large".to_owned(), large);
    let sim = spawn(config);
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let mut client = proxy.client();
    let mut asks_for_a_stream = || {
        let reply = client.ask(post(&[("x-sim", "ttft_ms=1,itl_ms=0,tokens=2")], WHOLE));
        assert_eq!(reply.json()["choices"][0]["message"]["content"], text(2));
        sim.received()
            .iter()
            .rev()
            .find(|received| received.request.header("x-sim") != Some("script=large"))
            .is_some_and(|received| received.request.body != WHOLE)
    };
    assert!(asks_for_a_stream());
    // Wholes that their clients do not take are held.
    let slow: Vec<_> = (0..14)
        .map(|_| {
            let mut slow = proxy.client();
            slow.send(post(&[("x-sim", "script=large")], WHOLE));
            slow
        })
        .collect();
    eventually("there is no room", || (!asks_for_a_stream()).then_some(()));
    drop(slow);
    eventually("there is room again", || asks_for_a_stream().then_some(()));
}

#[test]
fn text_is_handed_on_in_its_own_words() {
    for kind in ["text/plain", "application/json"] {
        for (body, outcome) in [
            ("error: overloaded", "unconfirmed"),
            ("rate limited, come back", "unconfirmed"),
            ("d", "unconfirmed"),
            ("data", "unconfirmed"),
            // Events by their look, of which none came.
            ("id: card 7 is unknown", "truncated"),
            ("retry: later\n\n", "truncated"),
            (":-(", "truncated"),
        ] {
            let headers = vec![("content-type".to_owned(), kind.to_owned())];
            let steps = vec![Step::send(body.as_bytes()).cut_every(2, Duration::from_micros(50))];
            let (reply, proxy) = played(Script { headers, steps, ..Script::default() }, "");
            assert_eq!((reply.status, &*reply.body, reply.ended), (200, body.as_bytes(), Ended::Complete), "{body}");
            assert_eq!((reply.header("content-type"), proxy.outcome(1)), (Some(kind), outcome), "{body}");
        }
    }
}

#[test]
fn an_error_too_long_to_be_looked_at_is_one_all_the_same() {
    let error = format!(r#"{{"error":{{"message":"{}"}}}}"#, "x".repeat(3 << 19));
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    let script = Script { headers, end: End::Silence, ..Script::sending(stream(&[&error])) };
    let (reply, proxy) = played(script, "");
    assert_eq!((reply.status, proxy.outcome(1)), (502, "inband_error"));
}

#[test]
fn what_is_no_stream_is_handed_on() {
    const DOCUMENT: &str =
        r#" {"id":"c", "choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":null}"#;
    for (status, kind, framing, body, outcome) in [
        (200, "application/json", Framing::Length, DOCUMENT, "ok"),
        (200, "application/json", Framing::Chunked, DOCUMENT, "ok"),
        (200, "application/json; charset=utf-8", Framing::Close, DOCUMENT, "ok"),
        (429, "application/json", Framing::Length, r#"{"error":{"message":"slow down"}}"#, "upstream_4xx"),
        (500, "text/plain", Framing::Chunked, "oops", "upstream_5xx"),
        (429, "text/event-stream", Framing::Chunked, "data: {}\n\n", "upstream_4xx"),
        (200, "application/json", Framing::Length, "", "unconfirmed"),
        (204, "application/json", Framing::Length, "", "unconfirmed"),
    ] {
        let headers = vec![("content-type".to_owned(), kind.to_owned()), ("retry-after".to_owned(), "7".to_owned())];
        let (reply, proxy) = played(Script { status, headers, framing, ..Script::sending(body.as_bytes()) }, "");
        assert_eq!((reply.status, &*reply.body, reply.ended), (status, body.as_bytes(), Ended::Complete), "{kind}");
        assert_eq!((reply.header("content-type"), reply.header("retry-after")), (Some(kind), Some("7")));
        assert_eq!(proxy.outcome(1), outcome, "{body}");
    }
    // Half of one is none.
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let script = Script { headers, end: End::Fin, ..Script::sending(&DOCUMENT.as_bytes()[..20]) };
    let (reply, proxy) = played(script, "");
    assert_eq!((reply.status, proxy.outcome(1)), (502, "truncated"));
}

#[test]
fn a_stream_under_another_name_or_compressed_is_put_together() {
    let body = stream(&[TOKEN, FINISH, "[DONE]"]);
    for before in ["", "\n \n", "\u{feff}", ": ping\n\n"] {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let steps = vec![Step::send([before.as_bytes(), &body].concat()).cut_every(3, Duration::from_micros(50))];
        let (reply, proxy) = played(Script { headers, steps, ..Script::default() }, "");
        assert_eq!(reply.json()["choices"][0]["message"]["content"], "a", "{before:?}");
        assert_eq!(proxy.outcome(1), "ok");
    }
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&body).expect("written");
    let zipped = encoder.finish().expect("finished");
    for (coding, status, outcome) in [("gzip", 200, "ok"), ("x-unheard-of", 502, "truncated")] {
        let headers = [("content-type", "text/event-stream"), ("content-encoding", coding), ("x-mine", "1")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let (reply, proxy) = played(Script { headers, ..Script::sending(zipped.clone()) }, "");
        assert_eq!((reply.status, proxy.outcome(1)), (status, outcome), "{reply:?}");
        assert_eq!(reply.header("content-encoding"), None);
        if status == 200 {
            assert_eq!(reply.json()["choices"][0]["message"]["content"], "a");
            assert_eq!(reply.header("x-mine"), Some("1"));
        }
    }
}

#[test]
fn a_client_that_leaves_takes_its_upstream_along() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), MEASURED);
    for (count, name, how, outcome) in [
        (1, "early", "ttft_ms=600000", "client_cancel_before_token"),
        (2, "late", "ttft_ms=1,itl_ms=600000,tokens=2", "client_cancel"),
    ] {
        let mut client = proxy.client();
        client.send(post(&[("x-sim", &format!("request={name},{how}"))], WHOLE));
        eventually("it is under way", || {
            let tokens = proxy.scrape().sum("token_events_total", &[]);
            (sim.counts().requests == count && (name == "early" || tokens == 1.0)).then_some(())
        });
        drop(client);
        eventually("the upstream is let go", || {
            sim.departures().into_iter().find(|departed| departed.request.as_deref() == Some(name))
        });
        assert_eq!(proxy.outcome(usize::try_from(count).expect("few")), outcome, "{name}");
    }
    proxy.idle_scrape();
}

#[test]
fn an_event_timeout_is_a_504() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), &format!("{MEASURED}\nevent_timeout_ms = 150"));
    let mut client = proxy.client();
    client.send(post(&[], WHOLE));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    let reply = client.reply();
    assert_eq!((reply.status, proxy.outcome(1)), (504, "timeout"));
    assert!(reply.json()["error"]["message"].as_str().expect("a message").contains("event_timeout_ms"), "{reply:?}");
}

#[test]
fn a_client_of_http_1_0_gets_the_whole() {
    let sim = playing(Script::sending(stream(&[TOKEN, FINISH, "[DONE]"])));
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let mut client = proxy.client();
    client.send(post(&[], WHOLE).replace("HTTP/1.1", "HTTP/1.0"));
    assert_eq!(client.reply().json()["choices"][0]["message"]["content"], "a");
    assert_eq!(proxy.outcome(1), "ok");
}
