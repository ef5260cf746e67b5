//! HTTP/2 to the upstream: many streams on one connection, each measured as if it were alone.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Either, Full};
use hyper::Request;
use streamgauge::backend::sim::{SimConfig, text};
use streamgauge::backend::upstream::{self, Reply as Answer, RequestBody};
use streamgauge::clock::{ReadStamp, Stamped};
use streamgauge::config::OpenAi;
use streamgauge::measure::Exchange;

use crate::server::{Plan, Seen, Server, Setup};
use crate::support::client::{Client, Ended, PATIENCE, Reply};
use crate::support::eventually;
use crate::support::stage::{Proxy, SERVER, TO_UP, one_backend, spawn};
use crate::support::tls::Certificate;
use crate::support::upstream::Upstream;
use crate::{STREAM, WHOLE, assert_told, chat};

const QUICK: Plan = Plan { ttft: 1, itl: 1, tokens: 3, size: 1, head: 0, end: 0 };

fn before(server: &Server, more: &str) -> Proxy {
    Proxy::start(&one_backend(server.addr, &format!("http2 = true\n{more}")))
}

/// A certificate whose server offers these protocols.
fn offering(protocols: &[&[u8]]) -> (Certificate, Arc<rustls::ServerConfig>) {
    let certificate = Certificate::new();
    let mut server = (*certificate.server).clone();
    server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    (certificate, server.into())
}

fn secure(port: u16, certificate: &Certificate, more: &str) -> String {
    let ca = certificate.file.display().to_string();
    format!(
        "{SERVER}[backend.up]\nbase_url = \"https://localhost:{port}\"\nca_file = {ca:?}\nhttp2 = true\n{more}{TO_UP}"
    )
}

fn request(name: &str, plan: Plan, body: &str) -> String {
    chat(&[("x-name", name), ("x-plan", &plan.header()), ("x-streamgauge-tag", name)], body)
}

fn ask(proxy: &Proxy, name: &str, plan: Plan) -> Reply {
    proxy.client().ask(request(name, plan, STREAM))
}

/// A stream of which one event has come: its client, the reply so far, and what the server saw of it.
fn begun(proxy: &Proxy, server: &Server, name: &str, plan: Plan) -> (Client, Reply, Seen) {
    let mut client = proxy.client();
    client.send(request(name, plan, STREAM));
    let mut head = client.head();
    assert!(head.status == 200 && client.chunk(&mut head.body).expect("an event"));
    (client, head, server.named(name).expect("its request was read"))
}

fn assert_whole(reply: &Reply, plan: Plan) {
    assert_eq!((reply.status, reply.ended), (200, Ended::Complete));
    assert!(reply.body == plan.bytes().as_bytes(), "{} bytes", reply.body.len());
}

fn tagged<'a>(finished: &'a [Exchange], name: &str) -> &'a Exchange {
    finished.iter().find(|exchange| exchange.tag.as_deref() == Some(name)).expect("an exchange of this name")
}

/// Asks for `count` streams of different timing at once, and holds each one's marks against the server's instants: their
/// order always, their distance where the machine was not too busy.
fn streams_are_measured_one_by_one(proxy: &Proxy, server: &Server, count: usize) {
    let plan = |number: usize| Plan { ttft: 1000 + number as u64 * 3, itl: 100, tokens: 6, size: 1, head: 0, end: 0 };
    // Some requests are larger than what a server takes without being asked to wait (64 KiB).
    let body = |number: usize| {
        let padding = "x".repeat(if number.is_multiple_of(10) { 200_000 } else { number * 10 });
        STREAM.replace("one two three", &padding)
    };
    thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || {
                let reply = proxy.client().ask(request(&number.to_string(), plan(number), &body(number)));
                assert_whole(&reply, plan(number));
            });
        }
    });
    let finished = proxy.finished(count);
    let (mut ttft_errors, mut decode_errors) = (Vec::new(), Vec::new());
    let relative = |measured: Duration, truth: Duration| measured.abs_diff(truth).as_secs_f64() / truth.as_secs_f64();
    for number in 0..count {
        let (name, seen) = (number.to_string(), server.named(&number.to_string()).expect("seen"));
        assert!(seen.body == body(number), "{name}");
        let exchange = tagged(&finished, &name);
        assert_eq!((exchange.outcome.label(), exchange.token_events), ("ok", 6));
        let marks = &exchange.marks;
        let (first, last) = (marks.first_token.expect("a token"), marks.last_token.expect("a token"));
        assert!(first >= seen.tokens[0] && last >= seen.tokens[5], "{name}: marked before it was sent");
        let (sent, head) = (marks.sent.expect("sent"), marks.head.expect("a head"));
        assert!(marks.accepted < sent && sent < head && head <= first && first < last, "{name}");
        ttft_errors.push(relative(marks.ttft_upstream().expect("a TTFT"), seen.tokens[0] - seen.read));
        decode_errors.push(relative(last - first, seen.tokens[5] - seen.tokens[0]));
    }
    for (what, mut errors) in [("TTFT", ttft_errors), ("decode", decode_errors)] {
        errors.sort_by(f64::total_cmp);
        // A busy machine makes most of them late, on either side; a mark taken elsewhere would be off in all.
        assert!(errors[count / 20] < 0.2, "{what} is off by these parts of itself: {errors:?}");
    }
    assert_eq!(proxy.idle_scrape().outcome("ok"), count as f64);
}

#[test]
fn a_hundred_streams_share_one_connection_and_each_is_measured() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    streams_are_measured_one_by_one(&proxy, &server, 100);
    assert_eq!(server.opened(), 1, "opened once, though all came at the same time");
    let finished = proxy.finished(100);
    let first: Vec<_> = finished.iter().filter(|exchange| exchange.reused == Some(false)).collect();
    let phases = first[0].connect;
    assert!(first.len() == 1 && phases.connect.is_some() && phases.dns.is_none() && phases.tls.is_none());
    assert_whole(&ask(&proxy, "more", QUICK), QUICK);
    assert_eq!((server.opened(), proxy.finished(101)[100].reused), (1, Some(true)));
}

#[test]
fn over_tls_the_protocol_is_agreed_on_and_each_stream_is_measured() {
    let (certificate, tls) = offering(&[b"h2", b"http/1.1"]);
    let server = Server::start(Setup { tls: Some(tls), ..Setup::default() });
    let proxy = Proxy::start(&secure(server.addr.port(), &certificate, ""));
    streams_are_measured_one_by_one(&proxy, &server, 40);
    assert_eq!(server.opened(), 1);
    let opener = proxy.finished(40).into_iter().find(|exchange| exchange.reused == Some(false)).expect("one opened it");
    assert!(opener.connect.tls.is_some(), "{:?}", opener.connect);
}

#[test]
fn a_request_is_named_as_http_2_wants_it() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let sent = [
        ("x-plan", "tokens=1"),
        ("connection", "x-mine"),
        ("x-mine", "1"),
        ("te", "trailers, deflate"),
        ("keep-alive", "timeout=5"),
        ("authorization", "Bearer mine"),
    ];
    assert_eq!(proxy.client().ask(chat(&sent, WHOLE)).status, 200);
    let seen = server.seen().remove(0);
    assert_eq!(seen.uri.to_string(), format!("http://{}/v1/chat/completions", server.addr));
    for gone in ["host", "connection", "x-mine", "te", "keep-alive", "transfer-encoding"] {
        assert_eq!(seen.headers.get(gone), None, "{gone}");
    }
    assert_eq!(seen.headers["authorization"], "Bearer mine");
    assert_eq!(seen.body, WHOLE.as_bytes());
    assert_eq!(seen.headers["content-length"], WHOLE.len().to_string());
}

#[test]
fn other_streams_do_not_move_the_instant_a_request_was_sent() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let late = Plan { head: 400, ttft: 401, ..QUICK };
    let mut client = proxy.client();
    client.send(request("late", late, STREAM));
    eventually("its request is read", || server.named("late"));
    // These are written between its request and its head.
    for number in 0..20 {
        assert_whole(&ask(&proxy, &number.to_string(), QUICK), QUICK);
    }
    assert_whole(&client.reply(), late);
    let finished = proxy.finished(21);
    let sent = tagged(&finished, "late").marks.sent.expect("it was sent");
    for number in 0..20 {
        let marks = &tagged(&finished, &number.to_string()).marks;
        // One thread does all of it, one thing after the other.
        assert!(sent < marks.accepted && marks.sent > Some(marks.accepted) && marks.first_token > marks.sent);
    }
}

#[test]
fn a_client_that_does_not_read_holds_no_other_stream_up() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let flood = Plan { ttft: 0, itl: 0, tokens: 500, size: 60_000, head: 0, end: 0 };
    let (mut slow, head, _) = begun(&proxy, &server, "slow", flood);
    for number in 0..20 {
        assert_whole(&ask(&proxy, &number.to_string(), QUICK), QUICK);
    }
    let handed_over = server.named("slow").expect("seen").tokens.len();
    assert!(handed_over < 500, "30 MB were taken from the server");
    assert_whole(&slow.rest(head), flood);
    assert_eq!(server.opened(), 1);
}

#[test]
fn a_client_that_pauses_is_no_silence_of_the_servers() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "idle_timeout_ms = 1500");
    let flood = Plan { ttft: 0, itl: 0, tokens: 500, size: 60_000, head: 0, end: 0 };
    let (mut slow, head, _) = begun(&proxy, &server, "slow", flood);
    // The server has sent what it may, and waits for the client as we do.
    thread::sleep(Duration::from_secs(4));
    assert!(server.named("slow").expect("seen").tokens.len() < 500);
    assert_whole(&slow.rest(head), flood);
    assert_eq!(proxy.outcome(1), "ok");
}

#[test]
fn a_stream_that_is_reset_takes_no_other_with_it() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let long = Plan { ttft: 10, itl: 20, tokens: 30, size: 1, head: 0, end: 0 };
    let others: Vec<_> = (0..4).map(|number| begun(&proxy, &server, &number.to_string(), long)).collect();
    let reply = ask(&proxy, "reset", Plan { itl: 50, end: 1, ..QUICK });
    assert_eq!((reply.status, reply.ended), (200, Ended::Fin));
    assert_eq!(reply.body, QUICK.event().repeat(3).as_bytes());
    let reply = ask(&proxy, "reset early", Plan { end: 3, ..QUICK });
    let says = ["upstream \"up\"", "it reset the stream without an answer: ", "internal error", "not repeated"];
    assert_told(&reply, 502, "upstream_closed", &says);
    for (mut client, head, _) in others {
        assert_whole(&client.rest(head), long);
    }
    for exchange in &proxy.finished(6) {
        let reset = exchange.tag.as_deref().expect("a tag").starts_with("reset");
        assert_eq!(exchange.outcome.label(), if reset { "reset" } else { "ok" });
    }
    assert_eq!(server.seen().len(), 6, "nothing is asked twice");
    assert_eq!(server.opened(), 1);
}

#[test]
fn a_stream_that_ends_in_order_without_a_finish_ends_so_towards_the_client() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    // The end comes by itself, a while after the last event.
    let reply = ask(&proxy, "half", Plan { itl: 50, end: 4, ..QUICK });
    assert_eq!((reply.ended, reply.body), (Ended::Complete, QUICK.event().repeat(3).into_bytes()));
    assert_eq!(proxy.outcome(1), "truncated");
}

#[test]
fn a_connection_that_takes_no_more_is_replaced_and_its_streams_end_in_order() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let long = Plan { ttft: 10, itl: 30, tokens: 20, size: 1, head: 0, end: 0 };
    let (mut client, head, seen) = begun(&proxy, &server, "before", long);
    server.go_away();
    // Those that meet the old connection just before its end is read are on it still.
    let anew = eventually("a new connection is opened", || {
        assert_whole(&ask(&proxy, "after", QUICK), QUICK);
        server.seen().iter().find(|after| after.connection != seen.connection).cloned()
    });
    assert_eq!((anew.connection, server.opened()), (2, 2));
    assert_whole(&client.rest(head), long);
    assert!(proxy.idle_scrape().outcome("ok") >= 2.0);
}

/// One thread's way to a server.
fn alone(server: &Server) -> (tokio::runtime::Runtime, upstream::Upstream) {
    let mut config = OpenAi::new(format!("http://{}", server.addr).parse().expect("a URL"));
    config.http2 = true;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    (runtime, upstream::Upstream::new(&config).expect("an upstream"))
}

async fn head_of(upstream: &upstream::Upstream, name: &str, plan: Plan) -> Answer {
    let request = Request::builder().uri("/").header("x-plan", plan.header()).header("x-name", name);
    let body: RequestBody = Either::Left(Full::default());
    upstream.send(request.body(body).expect("a request")).await.unwrap_or_else(|failure| panic!("{name}: {failure}"))
}

#[test]
fn a_frame_keeps_the_instant_of_its_own_read_though_others_are_read_before_it_is_handed_on() {
    let server = Server::start(Setup::default());
    let (runtime, upstream) = alone(&server);
    runtime.block_on(async {
        let mut early = head_of(&upstream, "early", QUICK).await.body;
        while server.named("early").is_none_or(|seen| !seen.over) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One comes after the other on the same connection: with the first of these, all of that one has been read.
        for name in ["between", "late"] {
            let mut other = head_of(&upstream, name, QUICK).await;
            let before: Vec<ReadStamp> = stamps(&mut other.body).await;
            if name == "late" {
                let stamps = stamps(&mut early).await;
                assert!(stamps.len() >= 3 && stamps.is_sorted_by_key(|stamp| stamp.number), "{stamps:?}");
                assert!(stamps.iter().all(|stamp| stamp.at < other.head_at), "{stamps:?} {before:?}");
            }
        }
    });
    assert_eq!(server.opened(), 1);
}

/// Reads a body to its end; the stamp of each frame.
async fn stamps(body: &mut upstream::ReplyBody) -> Vec<ReadStamp> {
    let mut stamps = Vec::new();
    while let Some(frame) = body.frame().await {
        assert!(frame.expect("a frame").is_data());
        stamps.push(body.stamp().expect("a stamp"));
    }
    stamps
}

#[test]
fn a_burst_on_an_idle_connection_keeps_to_what_the_server_takes() {
    let server = Server::start(Setup { most_streams: Some(2), ..Setup::default() });
    let (runtime, upstream) = alone(&server);
    let silent = Plan { end: 2, ..QUICK };
    runtime.block_on(async {
        let first = head_of(&upstream, "first", QUICK).await;
        assert_eq!(first.body.collect().await.expect("a body").to_bytes(), QUICK.bytes());
        let ask = |name| head_of(&upstream, name, silent);
        let burst = async { tokio::join!(ask("a"), ask("b"), ask("c"), ask("d"), ask("e")) };
        let heads = tokio::time::timeout(PATIENCE, Box::pin(burst)).await.expect("none waits for another's end");
        // Two find the one there is, two open one, and one waits for that.
        let heads = [&heads.0, &heads.1, &heads.2, &heads.3, &heads.4];
        let count = |wanted: fn(&Answer) -> bool| heads.iter().filter(|answer| wanted(answer)).count();
        assert_eq!(count(|answer| answer.phases.connect.is_none()), 2);
        assert_eq!(count(|answer| !answer.reused), 2);
    });
    assert_eq!(server.opened(), 3);
}

#[test]
fn an_end_that_nobody_has_read_yet_is_read_before_the_next_request() {
    let server = Server::start(Setup::default());
    let (runtime, upstream) = alone(&server);
    for round in 0..6 {
        runtime.block_on(async {
            let reply = head_of(&upstream, &format!("round {round}"), QUICK).await;
            assert_eq!(reply.body.collect().await.expect("a body").to_bytes(), QUICK.bytes());
        });
        server.cut();
        // Nothing runs here meanwhile: the end waits in the socket.
        eventually("the connection is closed", || (server.closed() == round + 1).then_some(()));
    }
    assert_eq!(server.opened(), 6);
}

#[test]
fn a_connection_cut_off_ends_every_stream_on_it_and_the_next_request_opens_another() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let silent = Plan { end: 2, ..QUICK };
    let streams: Vec<_> = (0..3).map(|number| begun(&proxy, &server, &number.to_string(), silent)).collect();
    server.cut();
    for (mut client, head, _) in streams {
        assert_eq!(client.rest(head).ended, Ended::Fin);
    }
    assert_whole(&ask(&proxy, "after", QUICK), QUICK);
    let outcomes: Vec<_> = proxy.finished(4).iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!((outcomes, server.opened()), (vec!["truncated", "truncated", "truncated", "ok"], 2));
}

#[test]
fn a_client_that_leaves_ends_its_stream_alone() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let silent = Plan { end: 2, ..QUICK };
    let (client, _, _) = begun(&proxy, &server, "left", silent);
    drop(client);
    eventually("its stream is reset", || server.named("left").filter(|seen| seen.over));
    // Before the head, too.
    let mut client = proxy.client();
    client.send(request("early", Plan { head: 3_600_000, ..QUICK }, STREAM));
    eventually("its request is read", || server.named("early"));
    drop(client);
    eventually("its stream is reset", || server.named("early").filter(|seen| seen.over));
    assert_whole(&ask(&proxy, "after", QUICK), QUICK);
    assert_eq!(server.opened(), 1);
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("client_cancel"), scrape.outcome("client_cancel_before_token")), (1.0, 1.0));
}

#[test]
fn silence_is_each_streams_own() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "idle_timeout_ms = 1000\nhead_timeout_ms = 60_000");
    let busy = Plan { ttft: 1, itl: 20, tokens: 150, size: 1, head: 0, end: 0 };
    let (mut client, head, _) = begun(&proxy, &server, "busy", busy);
    let reply = ask(&proxy, "silent", Plan { end: 2, ..QUICK });
    assert_eq!(reply.ended, Ended::Fin);
    assert_whole(&client.rest(head), busy);
    let finished = proxy.finished(2);
    let (silent, busy) = (tagged(&finished, "silent"), tagged(&finished, "busy"));
    assert_eq!((silent.outcome.label(), busy.outcome.label()), ("timeout", "ok"));
    assert!(silent.marks.end < busy.marks.end, "it was waited for until nothing else moved");
}

#[test]
fn a_connection_that_fell_silent_takes_no_more_requests() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "head_timeout_ms = 1000\nidle_timeout_ms = 1000");
    let of = |name: &str| server.named(name).expect("a request").connection;
    let late = ask(&proxy, "late", Plan { head: 3_600_000, ..QUICK });
    assert_told(&late, 504, "upstream_timeout", &["did not answer within 1000 ms"]);
    assert_eq!(ask(&proxy, "silent", Plan { end: 2, ..QUICK }).ended, Ended::Fin);
    assert_whole(&ask(&proxy, "after", QUICK), QUICK);
    assert_eq!([of("late"), of("silent"), of("after")].map(|connection| connection - of("late")), [0, 1, 2]);
}

#[test]
fn a_head_that_does_not_come_is_late_whatever_else_is_written() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "head_timeout_ms = 1000");
    let mut late = proxy.client();
    late.send(request("late", Plan { head: 3_600_000, ..QUICK }, STREAM));
    eventually("its request is read", || server.named("late"));
    let began = Instant::now();
    let mut others = 0;
    // Far longer than a second; each of these is written to the same connection.
    while began.elapsed() < Duration::from_millis(3000) {
        others += 1;
        assert_whole(&ask(&proxy, &others.to_string(), QUICK), QUICK);
    }
    assert_told(&late.reply(), 504, "upstream_timeout", &["did not answer within 1000 ms"]);
    let finished = proxy.finished(others + 1);
    let late = tagged(&finished, "late");
    assert_eq!(late.outcome.label(), "timeout");
    assert!(late.marks.end < tagged(&finished, &others.to_string()).marks.end, "others kept it waiting");
}

#[test]
fn more_streams_than_a_server_takes_go_to_another_connection() {
    let server = Server::start(Setup { most_streams: Some(4), ..Setup::default() });
    let proxy = before(&server, "");
    let silent = Plan { end: 2, ..QUICK };
    let streams: Vec<_> = (0..10).map(|number| begun(&proxy, &server, &number.to_string(), silent)).collect();
    assert_eq!(server.opened(), 3);
    drop(streams);
    eventually("all are reset", || server.seen().iter().all(|seen| seen.over).then_some(()));
    eventually("all are counted", || (proxy.scrape().outcome("client_cancel") == 10.0).then_some(()));
    assert_whole(&ask(&proxy, "after", QUICK), QUICK);
    assert_eq!(server.opened(), 3);
}

#[test]
fn a_server_that_chooses_http_1_1_is_spoken_to_so() {
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let (certificate, tls) = offering(protocols);
        let sim = spawn(SimConfig { tls: Some(tls), ..SimConfig::default() });
        let proxy = Proxy::start(&secure(sim.addr().port(), &certificate, ""));
        let plan = [("x-sim", "ttft_ms=100,itl_ms=5,tokens=5")];
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let reply = proxy.client().ask(chat(&plan, STREAM));
                    assert_eq!((reply.status, reply.ended, reply.text(0, "content")), (200, Ended::Complete, text(5)));
                });
            }
        });
        assert_eq!(sim.counts().opened, 10, "a connection for each");
        assert_eq!(proxy.client().ask(chat(&[("x-sim", "ttft_ms=1")], WHOLE)).status, 200);
        assert_eq!((sim.counts().opened, proxy.finished(11)[10].reused), (10, Some(true)));
        let received = sim.received().remove(0).request;
        assert_eq!(received.target, "/v1/chat/completions");
        assert_eq!(received.header("host"), Some(&*format!("localhost:{}", sim.addr().port())));
    }
}

#[test]
fn an_upstream_of_another_protocol_is_told_apart() {
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&one_backend(upstream.addr(), "http2 = true"));
    for (answer, says) in [
        ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "it answers in another protocol"),
        ("", "it closed the connection without a word"),
    ] {
        let mut client = proxy.client();
        client.send(chat(&[], WHOLE));
        let mut conn = upstream.accept();
        conn.send(answer);
        let closed = conn.close();
        let says = ["upstream \"up\"", "it does not speak HTTP/2", says, "remove http2 = true"];
        assert_told(&client.reply(), 502, "upstream_protocol", &says);
        drop(closed);
    }
    assert_eq!(proxy.outcome(2), "connect_error");

    // Nothing was sent that could have been acted on.
    let proxy = Proxy::start(&one_backend(upstream.addr(), "http2 = true\nconnect_timeout_ms = 2000"));
    let says = ["its first word of HTTP/2 took longer than 2000 ms"];
    assert_told(&proxy.client().ask(chat(&[], WHOLE)), 502, "upstream_connect_timeout", &says);
}

#[test]
fn those_who_wait_for_a_connection_that_fails_fail_with_it() {
    let silent = Upstream::bind();
    let (certificate, _) = offering(&[]);
    let proxy = Proxy::start(&secure(silent.addr().port(), &certificate, "connect_timeout_ms = 2000\n"));
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let reply = proxy.client().ask(chat(&[], WHOLE));
                let says = ["the TLS handshake took longer than 2000 ms"];
                assert_told(&reply, 502, "upstream_connect_timeout", &says);
            });
        }
    });
    assert!(began.elapsed() < Duration::from_millis(2000) * 5, "each tried for itself");
    assert_eq!(proxy.idle_scrape().outcome("connect_error"), 20.0);
}

#[test]
fn the_time_for_connecting_runs_while_another_opens_the_connection() {
    let silent = Upstream::bind();
    let (certificate, _) = offering(&[]);
    let proxy = Proxy::start(&secure(silent.addr().port(), &certificate, "connect_timeout_ms = 4000\n"));
    let mut opener = proxy.client();
    opener.send(chat(&[], WHOLE));
    let _conn = silent.accept();
    let mut waiting = proxy.client();
    waiting.send(chat(&[], WHOLE));
    let began = Instant::now();
    // The attempt ends with its client, and whoever waited goes on alone, in the time that is left.
    thread::sleep(Duration::from_millis(3500));
    drop(opener);
    let says = ["the TLS handshake took longer than 4000 ms"];
    assert_told(&waiting.reply(), 502, "upstream_connect_timeout", &says);
    assert!(began.elapsed() < Duration::from_millis(7000), "its time began anew");
    let finished = proxy.finished(2);
    let outcomes: Vec<_> = finished.iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!(outcomes, ["client_cancel_before_token", "connect_error"]);
    assert!(finished[1].connect.connect > Some(Duration::from_millis(1000)), "{:?}", finished[1].connect);
}

#[test]
fn an_upload_is_passed_through_and_its_break_is_a_break() {
    let server = Server::start(Setup::default());
    let proxy = before(&server, "");
    let head = "POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\nx-plan: tokens=1\r\nx-name: up\r\n";
    let body = "x".repeat(1_000_000);
    let mut client = proxy.client();
    client.send(format!("{head}content-length: {}\r\n\r\n", body.len()));
    for piece in body.as_bytes().chunks(250_000) {
        client.send(piece);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.reply().status, 200);
    assert!(server.named("up").expect("seen").body == body);

    let mut client = proxy.client();
    client.send(format!("{head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"));
    assert_told(&client.reply(), 400, "incomplete_request", &["the client's request body broke off"]);
    assert_whole(&ask(&proxy, "after", QUICK), QUICK);
    assert_eq!(server.opened(), 1);
}
