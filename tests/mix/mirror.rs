//! Mirrored requests: how many, under which label, with what in them, and that no client notices.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use streamgauge::backend::sim::{End, Script, Step, text};
use streamgauge::measure::{Exchange, Listener};

use crate::support::client::{Client, Ended};
use crate::support::metrics::Scrape;
use crate::support::stage::{Proxy, backend, playing, sim};
use crate::support::upstream::Upstream;
use crate::support::{Rng, eventually};
use crate::{AT_ONCE, assert_share, chat, post, request, two_threads};

const MIRRORED: [(&str, &str); 1] = [("backend", "b+mirror")];

/// `a`, whose requests are mirrored to `b`; `to_b` is what the mirror's table holds beside its backend.
fn config(a: SocketAddr, b: SocketAddr, more: &str, to_b: &str) -> String {
    let route = format!("[[route]]\nmodel = \"*\"\nbackend = \"a\"\nmirror = {{ backend = \"b\", {to_b} }}\n");
    two_threads("drain_timeout_ms = 60_000") + &backend("a", a, "") + &backend("b", b, more) + &route
}

/// The same configuration with a port of its own to listen on.
fn listening_at(port: u16, config: &str) -> String {
    config.replacen("listen = \"127.0.0.1:0\"", &format!("listen = \"127.0.0.1:{port}\""), 1)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

fn stream(headers: &[(&str, &str)], sim: &str) -> String {
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"one two"}]}"#;
    post("/v1/chat/completions", &[&[("x-sim", sim)], headers].concat(), body)
}

/// A sum that becomes `wanted`.
fn eventually_sum(proxy: &Proxy, name: &str, labels: &[(&str, &str)], wanted: f64) {
    eventually(&format!("{name} {labels:?} is {wanted}"), || {
        let scrape = proxy.scrape();
        scrape.assert_balanced();
        (scrape.sum(name, labels) == wanted).then_some(())
    });
}

#[test]
fn a_share_of_the_requests_is_mirrored_and_counted_apart() {
    const ALL: u64 = 5_000;
    let (a, b) = (sim(), sim());
    let proxy = Proxy::start(&config(a.addr(), b.addr(), "", "share = 0.2"));
    let mut client = proxy.client();
    for _ in 0..ALL {
        let reply = client.ask(stream(&[], AT_ONCE));
        assert_eq!((reply.status, reply.text(0, "content")), (200, text(1)));
    }
    let ok = [MIRRORED[0], ("outcome", "ok"), ("model", "m")];
    // The last may not have begun when nothing is in flight.
    let (scrape, mirrored) = eventually("each that was mirrored was sent once", || {
        let scrape = proxy.idle_scrape();
        let mirrored = scrape.sum("requests_total", &ok);
        (mirrored == b.counts().requests as f64).then_some((scrape, mirrored))
    });
    let dropped = scrape.sum("mirror_dropped_total", &MIRRORED);
    assert_eq!(a.counts().requests, ALL);
    // Where the machine is busy with other things, some find no room.
    assert_share(mirrored + dropped, ALL, 0.2);
    assert!(mirrored >= 100.0, "{mirrored} mirrored, {dropped} dropped");
    assert_eq!(scrape.sum("requests_started_total", &[]), ALL as f64 + mirrored);
    assert_eq!(scrape.sum("requests_total", &[("backend", "b")]), 0.0);
    assert_eq!(scrape.sum("requests_total", &[("backend", "a")]), ALL as f64);
    let ttft = |backend, vantage| {
        scrape.sum("time_to_first_token_seconds_count", &[("backend", backend), ("vantage", vantage)])
    };
    assert_eq!(ttft("b+mirror", "upstream"), mirrored);
    assert_eq!(ttft("b+mirror", "client"), 0.0, "no client was told");
    assert_eq!(ttft("a", "client"), ALL as f64);
}

#[test]
fn a_mirror_gets_the_bytes_and_none_of_the_credentials() {
    let (a, b) = (sim(), sim());
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-of-b\n").expect("written");
    let with_key = format!("api_key = {{ file = {:?} }}", key.display().to_string());
    let sent = [
        ("authorization", "Bearer of-the-client"),
        ("x-api-key", "of-the-client"),
        ("cookie", "of=the-client"),
        ("x-streamgauge-tag", "experiment"),
        ("x-streamgauge-backend", "b"),
        ("x-vendor", "whose"),
        ("te", "trailers"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
    ];
    for (more, to_b, authorization, model) in [
        ("", "share = 1", None, "m"),
        (&*with_key, "share = 1, upstream_model = \"of-b\"", Some("Bearer sk-of-b"), "of-b"),
    ] {
        let proxy = Proxy::start(&config(a.addr(), b.addr(), more, to_b));
        let request = chat("m", &sent).replacen("/v1/chat/completions ", "/v1/chat/completions?key=of-the-client ", 1);
        assert_eq!(proxy.client().ask(request).status, 200);
        let finished = proxy.finished(2);
        let mirrored = finished.iter().find(|exchange| exchange.backend.as_deref() == Some("b+mirror"));
        let mirrored = mirrored.expect("a mirrored exchange");
        assert_eq!((mirrored.tag.as_deref(), mirrored.outcome.label()), (Some("experiment"), "ok"));
        assert_eq!((mirrored.model_requested.as_deref(), &*mirrored.model), (Some("m"), "m"));

        let real = a.received().pop().expect("the client's own").request;
        let again = b.received().pop().expect("the second").request;
        assert_eq!(real.header("authorization"), Some("Bearer of-the-client"));
        assert_eq!(again.header("authorization"), authorization);
        assert_eq!((real.header("x-vendor"), again.header("x-sim")), (Some("whose"), Some(AT_ONCE)));
        assert_eq!(again.header("host"), Some(&*b.addr().to_string()));
        for (name, _) in &sent[1..] {
            assert!(again.header(name).is_none(), "{name} reached the mirror");
        }
        let body = String::from_utf8(real.body.to_vec()).expect("text");
        assert_eq!(again.body, body.replace(r#""model":"m""#, &format!(r#""model":"{model}""#)));
        assert_eq!((&*real.method, &*real.target), ("POST", "/v1/chat/completions?key=of-the-client"));
        assert_eq!((&*again.method, &*again.target), ("POST", "/v1/chat/completions"));
    }
}

#[test]
fn a_mirror_is_asked_for_what_its_own_backend_is_configured_to_be_asked() {
    let (a, b) = (sim(), sim());
    let asking = "include_usage = true\nmeasure_non_stream = true";
    let proxy = Proxy::start(&config(a.addr(), b.addr(), asking, "share = 1"));
    let mut client = proxy.client();
    let reply = client.ask(stream(&[], "ttft_ms=1,itl_ms=1,tokens=3"));
    assert!(reply.is_done() && !String::from_utf8_lossy(&reply.body).contains("usage\":{"), "{reply:?}");
    assert_eq!(client.ask(chat("m", &[])).json()["object"], "chat.completion");
    let finished = proxy.finished(4);
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).expect("text");
    assert!(a.received().iter().all(|received| !text(&received.request.body).contains("stream_options")));
    assert!(b.received().iter().all(|received| text(&received.request.body).contains("stream_options")));
    for exchange in finished.iter().filter(|exchange| exchange.backend.as_deref() == Some("b+mirror")) {
        assert_eq!(exchange.outcome.label(), "ok");
        assert!(exchange.usage.is_some() && exchange.marks.first_token.is_some(), "{exchange:?}");
    }
}

#[test]
fn a_mirror_that_leads_back_here_breeds_nothing() {
    let a = sim();
    let port = free_port();
    let own = format!("127.0.0.1:{port}").parse().expect("an address");
    let proxy = Proxy::start(&listening_at(port, &config(a.addr(), own, "", "share = 1")));
    assert_eq!(proxy.running.listen(), own);
    assert_eq!(proxy.client().ask(chat("m", &[])).status, 200);
    // The client's own, its copy, and the copy come back, which is refused and not copied again.
    let outcomes: Vec<_> = proxy.finished(3).iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "rejected").count(), 1, "{outcomes:?}");
    assert_eq!(a.counts().requests, 1, "the real backend is asked once");
    std::thread::sleep(std::time::Duration::from_millis(200));
    proxy.finished(3);
}

#[test]
fn two_proxies_that_mirror_to_each_other_breed_nothing() {
    let (a, b) = (sim(), sim());
    let port = free_port();
    let second = format!("127.0.0.1:{port}").parse().expect("an address");
    let first = Proxy::start(&config(a.addr(), second, "", "share = 1"));
    let back = config(b.addr(), first.running.listen(), "", "share = 1");
    let other = Proxy::start(&listening_at(port, &back));
    assert_eq!(first.client().ask(chat("m", &[])).status, 200);
    // The client's own and its copy here; there the copy, which is answered and not copied again.
    first.finished(2);
    other.finished(1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!((first.finished(2).len(), other.finished(1).len()), (2, 1));
    assert_eq!((a.counts().requests, b.counts().requests), (1, 1));
}

#[test]
fn a_signed_request_is_mirrored_without_its_signature() {
    let (a, b) = (sim(), sim());
    let proxy = Proxy::start(&config(a.addr(), b.addr(), "", "share = 1, upstream_model = \"of-b\""));
    assert_eq!(proxy.client().ask(chat("m", &[("x-tt-sign", "sig")])).status, 200);
    proxy.finished(2);
    assert_eq!(a.received()[0].request.header("x-tt-sign"), Some("sig"));
    assert_eq!(b.received()[0].request.header("x-tt-sign"), None);
}

#[test]
fn what_a_web_page_could_send_spends_no_key_of_a_mirrors() {
    let (a, b) = (sim(), sim());
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-of-b\n").expect("written");
    let with_key = format!("api_key = {{ file = {:?} }}", key.display().to_string());
    let proxy = Proxy::start(&config(a.addr(), b.addr(), &with_key, "share = 1"));
    let mut client = proxy.client();
    assert_eq!(client.ask(chat("m", &[("origin", "https://evil.example")])).status, 200, "a has no key to protect");
    assert_eq!(client.ask(chat("m", &[])).status, 200);
    proxy.finished(3);
    assert_eq!((a.counts().requests, b.counts().requests), (2, 1));
    assert_eq!(proxy.scrape().sum("mirror_dropped_total", &[]), 0.0);
}

#[test]
fn only_chat_requests_that_their_route_has_placed_are_mirrored() {
    let (a, b) = (sim(), sim());
    let config = config(a.addr(), b.addr(), "", "share = 1").replace("threads", "backend_header = true\nthreads");
    let proxy = Proxy::start(&config);
    let mut client = proxy.client();
    client.ask(request("GET", "/v1/models/sim", &[]));
    client.ask(post("/v1/chat/completions", &[], "no json"));
    client.ask(chat("m", &[("x-streamgauge-backend", "a")]));
    proxy.finished(3);
    assert_eq!((a.counts().requests, b.counts().requests), (2, 0));
}

#[test]
fn a_mirror_that_is_gone_or_breaks_off_changes_nothing_for_the_client() {
    let a = sim();
    let gone = Upstream::bind().addr();
    let broken = playing(Script {
        steps: vec![Step::send(&b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"[..])],
        end: End::Fin,
        ..Script::default()
    });
    for (b, outcome) in [(gone, "connect_error"), (broken.addr(), "truncated")] {
        let proxy = Proxy::start(&config(a.addr(), b, "", "share = 1"));
        let mut client = proxy.client();
        for _ in 0..10 {
            let reply = client.ask(stream(&[], "ttft_ms=1,itl_ms=1,tokens=5"));
            assert!(reply.is_done() && reply.text(0, "content") == text(5), "{reply:?}");
        }
        eventually_sum(&proxy, "requests_total", &[MIRRORED[0], ("outcome", outcome)], 10.0);
        assert_eq!(proxy.idle_scrape().sum("requests_total", &[("backend", "a"), ("outcome", "ok")]), 10.0);
    }
}

/// Backends and outcomes of exchanges that are over.
type Noted = Arc<Mutex<Vec<(String, &'static str)>>>;

/// Who notes every exchange, and where.
fn noting() -> (Listener, Noted) {
    let noted = Noted::default();
    let keep = noted.clone();
    let listener = Box::new(move |exchange: &Exchange| {
        let backend = exchange.backend.as_deref().unwrap_or("none").to_owned();
        keep.lock().expect("no panic").push((backend, exchange.outcome.label()));
    });
    (listener, noted)
}

#[test]
fn a_mirror_that_never_answers_takes_32_drops_the_rest_and_is_cut_off_at_the_end() {
    let a = sim();
    // Its listener's queue takes connections, and nobody reads them.
    let silent = Upstream::bind();
    let (listener, noted) = noting();
    let proxy = Proxy::with_listeners(&config(a.addr(), silent.addr(), "", "share = 1"), vec![listener]);
    let mut client = proxy.client();
    for _ in 0..50 {
        assert_eq!(client.ask(chat("m", &[])).status, 200);
    }
    eventually_sum(&proxy, "in_flight_requests", &MIRRORED, 32.0);
    eventually_sum(&proxy, "mirror_dropped_total", &MIRRORED, 18.0);
    // The drain, which may take a minute, waits for clients alone: with none the end comes at once.
    drop(client);
    let began = Instant::now();
    assert_eq!(proxy.running.stop(), 0);
    assert!(began.elapsed().as_secs() < 30, "the drain waited for a mirror");
    let noted = noted.lock().expect("no panic");
    let count = |wanted: (&str, &str)| noted.iter().filter(|(to, how)| (&**to, *how) == wanted).count();
    assert_eq!((count(("a", "ok")), count(("b+mirror", "internal"))), (50, 32));
    assert_eq!(noted.len(), 82, "every exchange that began has ended");
}

#[test]
fn a_mirror_that_floods_is_read_slowly_and_holds_no_client_up() {
    const MIB: usize = 1 << 20;
    let a = sim();
    let flooding = Upstream::bind();
    let proxy = Proxy::start(&config(a.addr(), flooding.addr(), "", "share = 1"));
    let over = &AtomicBool::new(false);
    thread::scope(|scope| {
        let mut client = proxy.client();
        assert_eq!(client.ask(chat("m", &[])).status, 200);
        let mut conn = flooding.accept();
        conn.request();
        conn.begin_stream();
        let flood = scope.spawn(move || {
            let (began, mut taken) = (Instant::now(), 0);
            let line = "x".repeat(MIB / 16);
            while taken < 48 * MIB && began.elapsed() < Duration::from_secs(4) {
                taken += if conn.try_event(&line, Duration::from_secs(1)) { line.len() } else { break };
            }
            over.store(true, Relaxed);
            (taken, began.elapsed())
        });
        while !over.load(Relaxed) {
            assert_eq!(client.ask(chat("m", &[])).status, 200);
        }
        let (taken, time) = flood.join().expect("it ends");
        // Its burst and what the sockets hold, then no more than the rate.
        let most = 17.0 * MIB as f64 + time.as_secs_f64() * MIB as f64;
        assert!((taken as f64) < most, "{taken} bytes were read in {time:?}");
    });
}

#[test]
fn a_backend_can_be_its_own_mirror() {
    let up = sim();
    let route = "[[route]]\nmodel = \"*\"\nbackend = \"up\"\nmirror = { backend = \"up\", share = 1 }\n";
    let proxy = Proxy::start(&(two_threads("") + &backend("up", up.addr(), "") + route));
    assert_eq!(proxy.client().ask(chat("m", &[])).status, 200);
    proxy.finished(2);
    assert_eq!(up.counts().requests, 2);
    let scrape = proxy.idle_scrape();
    for name in ["up", "up+mirror"] {
        assert_eq!(scrape.sum("requests_total", &[("backend", name), ("outcome", "ok")]), 1.0, "{name}");
    }
    let mut live = Client::connect(proxy.running.admin());
    live.send("GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
    for name in [&b"\"name\":\"up\""[..], b"\"name\":\"up+mirror\",\"kind\":\"openai\""] {
        live.until(name).expect("the page shows both");
    }
}

#[test]
fn a_model_in_this_process_can_be_a_mirror_and_be_mirrored() {
    let up = sim();
    let shape = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama/fixtures/gqa_tied");
    let local = format!(
        "[backend.local]\nkind = \"llama\"\nmodel = \"{}\"\nload = \"dummy\"\ndevice = \"cpu\"\n",
        shape.display()
    );
    let routes = "[[route]]\nmodel = \"m\"\nbackend = \"up\"\nmirror = { backend = \"local\", share = 1 }\n\
                  [[route]]\nmodel = \"gqa\"\nbackend = \"local\"\nmirror = { backend = \"up\", share = 1 }\n";
    let proxy = Proxy::start(&(two_threads("") + &backend("up", up.addr(), "") + &local + routes));
    (proxy.running.loading())(&mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    eventually("it is ready", || (Client::connect(proxy.running.admin()).get("/readyz").status == 200).then_some(()));
    let mut client = proxy.client();
    let body = |model: &str| {
        let message = r#""stream":true,"max_tokens":5,"messages":[{"role":"user","content":"one"}]"#;
        post("/v1/chat/completions", &[("x-sim", AT_ONCE)], &format!(r#"{{"model":"{model}",{message}}}"#))
    };
    for model in ["m", "gqa"] {
        let reply = client.ask(body(model));
        assert!(reply.status == 200 && reply.is_done(), "{reply:?}");
    }
    for name in ["up", "local+mirror", "local", "up+mirror"] {
        eventually_sum(&proxy, "requests_total", &[("backend", name), ("outcome", "ok")], 1.0);
    }
    proxy.idle_scrape();
}

/// Many requests, half of them left or broken off, all mirrored to a backend that does the same.
#[test]
fn the_books_balance_with_mirrors_at_every_moment() {
    const CLIENTS: u64 = 8;
    const ALL: u64 = 800;
    const WAYS: [&str; 7] = [
        "ttft_ms=1,itl_ms=1,tokens=5",
        "ttft_ms=1,itl_ms=1,tokens=5,end=rst",
        "ttft_ms=1,itl_ms=1,tokens=5,end=fin",
        "ttft_ms=1,itl_ms=1,tokens=5,error_after=2",
        "ttft_ms=1,status=500",
        "ttft_ms=1,itl_ms=1,tokens=5,no_finish=1",
        "ttft_ms=1,tokens=0,no_head=1,end=fin",
    ];
    let (a, b) = (sim(), sim());
    let proxy = Proxy::start(&config(a.addr(), b.addr(), "", "share = 1"));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let mut client = Client::connect(proxy.running.admin());
            while !over.load(Relaxed) {
                Scrape::over(&mut client).assert_balanced();
            }
        });
        let asking: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                scope.spawn({
                    let proxy = &proxy;
                    move || {
                        let mut rng = Rng::new(seed + 1);
                        for _ in 0..ALL / CLIENTS {
                            let way = WAYS[usize::try_from(rng.below(7)).expect("small")];
                            let mut client = proxy.client();
                            client.send(stream(&[], way));
                            if rng.below(3) > 0 {
                                let reply = client.reply();
                                assert!(reply.ended == Ended::Complete || way.contains("end="), "{way}: {reply:?}");
                            }
                        }
                    }
                })
            })
            .collect();
        let asked: Vec<_> = asking.into_iter().map(thread::ScopedJoinHandle::join).collect();
        over.store(true, Relaxed);
        scraping.join().expect("every scrape balances");
        for asked in asked {
            asked.expect("every reply was as meant");
        }
    });
    let scrape = eventually("all is read and over", || {
        let scrape = proxy.scrape();
        scrape.assert_balanced();
        let read = scrape.sum("requests_started_total", &[]) >= ALL as f64;
        (read && scrape.is_idle() && settled(&scrape)).then_some(scrape)
    });
    println!("{} dropped", scrape.sum("mirror_dropped_total", &[]));
    for outcome in ["ok", "reset", "truncated", "inband_error", "upstream_5xx", "unconfirmed"] {
        assert!(scrape.sum("requests_total", &[MIRRORED[0], ("outcome", outcome)]) > 0.0, "{outcome} never mirrored");
    }
}

/// Whether each request that reached its backend has been mirrored or dropped; a client may leave before its own is sent.
fn settled(scrape: &Scrape) -> bool {
    let [real, mirrored] = ["a", "b+mirror"].map(|name| scrape.sum("requests_total", &[("backend", name)]));
    mirrored + scrape.sum("mirror_dropped_total", &[]) == real
}
