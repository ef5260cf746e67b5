//! Clients that leave: the upstream is let go at once, and the books say when they left.

use std::time::{Duration, Instant};

use streamgauge::backend::sim::SimHandle;

use crate::support::client::{Client, PATIENCE};
use crate::support::eventually;
use crate::support::stage::{Proxy, SERVER, TO_UP, sim};
use crate::support::tls::Certificate;
use crate::support::upstream::Upstream;
use crate::{FINISH, STREAM, TOKEN, WHOLE, post, request};

fn chat(sim: &str) -> String {
    post("/v1/chat/completions", &[("x-sim", sim)], STREAM)
}

/// Drops the client and waits until the simulation misses it; says how long that took.
fn leave(client: Client, sim: &SimHandle, name: &str) {
    let left = Instant::now();
    drop(client);
    let departed = eventually("the upstream connection is closed", || {
        sim.departures().into_iter().find(|departed| departed.request.as_deref() == Some(name))
    });
    println!("{name}: the upstream connection was closed {:?} after its client's", departed.at.duration_since(left));
}

#[test]
fn a_client_that_leaves_before_the_first_token_closes_the_upstream() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    for (count, (name, how)) in [
        ("before_head", "head_ms=600000,ttft_ms=600000"),
        ("after_head", "ttft_ms=600000"),
        ("after_role", "ttft_ms=600000,role_first=1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = proxy.client();
        client.send(chat(&format!("request={name},{how}")));
        if name == "before_head" {
            eventually("the request arrives", || (sim.counts().requests == 1).then_some(()));
        } else {
            client.until(b"\r\n\r\n").expect("a head");
        }
        leave(client, &sim, name);
        assert_eq!(proxy.outcome(count + 1), "client_cancel_before_token", "{name}");
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.outcome("client_cancel_before_token"), 3.0);
    assert!(!scrape.text.contains("time_to_first_token_seconds"), "{}", scrape.text);
}

/// Its end can be read together with its request, before the request's handling is first polled.
#[test]
fn a_client_that_leaves_at_once_is_counted() {
    const EACH: usize = 50;
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let requests = [request("GET", "/v1/models", &[]), request("DELETE", "/v1/files/f", &[]), chat("tokens=1")];
    for asking in &requests {
        for _ in 0..EACH {
            proxy.client().send(asking);
        }
    }
    let all = EACH * requests.len();
    let scrape = eventually("every request is counted", || {
        let scrape = proxy.scrape();
        scrape.assert_balanced();
        (scrape.sum("requests_total", &[]) == all as f64).then_some(scrape)
    });
    assert!(scrape.is_idle(), "{}", scrape.text);
}

#[test]
fn a_client_that_leaves_mid_stream_keeps_what_was_measured() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    client.send(chat("request=midstream,ttft_ms=1,itl_ms=5,tokens=100000"));
    for _ in 0..3 {
        client.until(b"data: ").expect("an event");
    }
    leave(client, &sim, "midstream");
    assert_eq!(proxy.outcome(1), "client_cancel");
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("time_to_first_token_seconds_count", &[("vantage", "upstream")]), 1.0);
    assert!(scrape.sum("token_events_total", &[]) >= 2.0, "{}", scrape.text);
}

#[test]
fn a_client_that_has_heard_the_end_may_leave() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    for (count, last) in ["[DONE]", FINISH].into_iter().enumerate() {
        let mut client = proxy.client();
        client.send(post("/v1/chat/completions", &[], STREAM));
        let mut conn = upstream.accept();
        conn.request();
        conn.begin_stream();
        conn.event(TOKEN);
        conn.event(FINISH);
        if last == "[DONE]" {
            conn.event(last);
        }
        client.until(last.as_bytes()).expect("the end");
        drop(client);
        conn.closed_by_peer();
        assert_eq!(proxy.outcome(count + 1), "ok", "{last}");
    }
}

#[test]
fn a_client_that_leaves_during_its_upload_sends_nothing_upstream() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let chunked = request("POST", "/v1/chat/completions", &[("transfer-encoding", "chunked")]) + "5\r\n{\"mod\r\n";
    let whole = post("/v1/chat/completions", &[], STREAM);
    let half = &whole[..whole.len() - 9];
    for (count, sent) in [half, &*chunked].into_iter().enumerate() {
        let mut client = proxy.client();
        client.send(sent);
        eventually("the upload begins", || (proxy.scrape().sum("in_flight_requests", &[]) == 1.0).then_some(()));
        drop(client);
        assert_eq!(proxy.outcome(count + 1), "client_cancel_before_token");
    }
    assert_eq!(sim.counts().opened, 0);
    proxy.idle_scrape();
}

#[test]
fn a_client_that_leaves_during_a_passed_upload_closes_the_upstream() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(request("POST", "/v1/files", &[("content-length", "1000000")]) + "half");
    let conn = upstream.accept();
    drop(client);
    assert_eq!(proxy.outcome(1), "client_cancel_before_token");
    drop(conn);
    proxy.idle_scrape();
}

#[test]
fn a_client_that_leaves_while_a_connection_is_opened_ends_that() {
    let silent = Upstream::bind();
    let certificate = Certificate::new();
    let ca = certificate.file.display().to_string();
    let base_url = format!("https://localhost:{}", silent.addr().port());
    let up = format!("[backend.up]\nkind = \"openai\"\nbase_url = {base_url:?}\nca_file = {ca:?}\n");
    let proxy = Proxy::start(&format!("{SERVER}{up}connect_timeout_ms = 600000\n{TO_UP}"));
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", &[], STREAM));
    let mut conn = silent.accept();
    conn.client_hello();
    let left = Instant::now();
    drop(client);
    conn.closed_by_peer();
    assert!(left.elapsed() < PATIENCE);
    println!("the connection being opened was closed {:?} after its client's", left.elapsed());
    assert_eq!(proxy.outcome(1), "client_cancel_before_token");
    assert_eq!(proxy.idle_scrape().sum("requests_total", &[("status", "none"), ("stream", "true")]), 1.0);
}

#[test]
fn a_client_that_leaves_a_whole_reply_cancels_it() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", &[("x-sim", "request=whole,ttft_ms=600000")], WHOLE));
    eventually("the request arrives", || (sim.counts().requests == 1).then_some(()));
    leave(client, &sim, "whole");
    assert_eq!(proxy.outcome(1), "client_cancel_before_token");
}

#[test]
fn what_a_client_left_unread_was_not_delivered() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", &[], STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    // More than all buffers on the way can hold, as they say by accepting nothing for a second.
    let large = TOKEN.replace("\"a\"", &format!("{:?}", "x".repeat(60_000)));
    while conn.try_event(&large, Duration::from_secs(1)) {}
    drop(client);
    let exchange = proxy.finished(1).remove(0);
    assert_eq!(exchange.outcome.label(), "client_cancel");
    assert!(exchange.token_events > 2 && exchange.output.is_some(), "{exchange:?}");
    assert_eq!(exchange.anomalies.seen().collect::<Vec<_>>(), []);
    assert!(exchange.marks.ttft_client().is_some() && exchange.tgs().is_none(), "{exchange:?}");
    let scrape = proxy.idle_scrape();
    assert!(!scrape.text.contains("output_tokens_per_second"), "{}", scrape.text);
}
