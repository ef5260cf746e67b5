//! The books balance at every moment, each request ends as it was meant to, and nothing is left behind.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use streamgauge::backend::sim::text;

use crate::support::client::{Client, Ended};
use crate::support::metrics::Scrape;
use crate::support::process::Serve;
use crate::support::stage::{TO_UP, backend, sim};
use crate::support::upstream::Upstream;
use crate::support::{Rng, eventually};
use crate::{post, request};

const CLIENTS: usize = 16;
const FIRST: usize = 200;
const ALL: usize = 2_000;

/// What a request must end as.
#[derive(Debug, Clone, Copy)]
enum Meant {
    Exactly(&'static str),
    /// It is a race by design: the client leaves at some moment of a short stream.
    OneOf(&'static [&'static str]),
}

/// What the clients meant, by tag; and by outcome for requests that end before their tag is read.
#[derive(Default)]
struct Plan {
    tagged: Mutex<HashMap<String, Meant>>,
    untagged: Mutex<HashMap<&'static str, usize>>,
}

impl Plan {
    fn tag(&self, number: usize, meant: Meant) -> String {
        let tag = format!("request-{number}");
        self.tagged.lock().expect("no panic").insert(tag.clone(), meant);
        tag
    }

    fn untagged(&self, outcome: &'static str) {
        *self.untagged.lock().expect("no panic").entry(outcome).or_default() += 1;
    }
}

#[test]
fn two_thousand_requests_that_end_in_every_way_add_up_and_leave_nothing_behind() {
    let sim = sim();
    let gone = Upstream::bind().addr();
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 2\n";
    let quick = "head_timeout_ms = 100\nidle_timeout_ms = 100";
    let backends = backend("up", sim.addr(), "") + &backend("short", sim.addr(), quick) + &backend("gone", gone, "");
    let routes = "[[route]]\nmodel = \"short\"\nbackend = \"short\"\n[[route]]\nmodel = \"gone\"\nbackend = \"gone\"\n";
    let serve = Serve::start(&format!("{server}{backends}{routes}{TO_UP}"), "json", &[]);
    // Before the first connection, which would be counted.
    let descriptors = serve.descriptors();
    let plan = Plan::default();

    let over = AtomicBool::new(false);
    let resident = thread::scope(|scope| {
        let scraping = scope.spawn(|| {
            let mut client = Client::connect(serve.admin);
            let mut scrapes = 0;
            while !over.load(Relaxed) {
                Scrape::over(&mut client).assert_balanced();
                scrapes += 1;
            }
            scrapes
        });
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&serve, &plan, 0..FIRST);
            idle(&serve, FIRST);
            let first = serve.resident_kib();
            run(&serve, &plan, FIRST..ALL);
            idle(&serve, ALL);
            (first, serve.resident_kib())
        }));
        over.store(true, Relaxed);
        let scrapes = scraping.join().expect("every scrape balances");
        println!("{scrapes} scrapes, all balanced");
        ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    println!("resident: {} KiB after {FIRST} requests, {} KiB after {ALL}", resident.0, resident.1);

    let scrape = idle(&serve, ALL);
    assert_eq!(scrape.sum("requests_started_total", &[]), ALL as f64);
    assert_eq!(scrape.sum("requests_total", &[]), ALL as f64);
    check_outcomes(&serve, &plan, &scrape);
    assert!(resident.1 * 10 <= resident.0 * 11, "memory grew from {} to {} KiB", resident.0, resident.1);

    drop(sim);
    eventually("every descriptor is given back", || (serve.descriptors() == descriptors).then_some(()));
    serve.signal("TERM");
    assert_eq!(serve.ended().0.code(), Some(0));
}

/// A balanced scrape with all of `requests` read and nothing in flight.
///
/// A client that left may be gone before its connection is accepted: no request in flight does not mean none to come.
fn idle(serve: &Serve, requests: usize) -> Scrape {
    eventually("every request was read and none is in flight", || {
        let scrape = Scrape::of(serve.admin);
        scrape.assert_balanced();
        (scrape.is_idle() && scrape.sum("requests_started_total", &[]) >= requests as f64).then_some(scrape)
    })
}

fn check_outcomes(serve: &Serve, plan: &Plan, scrape: &Scrape) {
    let log = eventually("the log is written", || Some(serve.access_log()).filter(|log| log.len() >= ALL));
    assert_eq!(log.len(), ALL);
    let tagged = plan.tagged.lock().expect("no panic");
    let mut untagged = plan.untagged.lock().expect("no panic").clone();
    let mut counted: HashMap<String, usize> = HashMap::new();
    let mut seen = 0;
    for line in &log {
        let outcome = line["outcome"].as_str().expect("an outcome");
        *counted.entry(outcome.to_owned()).or_default() += 1;
        match line["tag"].as_str() {
            Some(tag) => {
                seen += 1;
                match tagged[tag] {
                    Meant::Exactly(meant) => assert_eq!(outcome, meant, "{line}"),
                    Meant::OneOf(meant) => assert!(meant.contains(&outcome), "{line}"),
                }
            }
            None => {
                let left = untagged.get_mut(outcome).unwrap_or_else(|| panic!("nobody meant {line}"));
                *left = left.checked_sub(1).unwrap_or_else(|| panic!("once too often: {line}"));
            }
        }
    }
    assert_eq!(seen, tagged.len());
    assert!(untagged.values().all(|left| *left == 0), "{untagged:?}");
    for (outcome, count) in &counted {
        assert_eq!(scrape.outcome(outcome), *count as f64, "the log and the metrics differ on {outcome}");
    }
    println!("{counted:?}");
    let every = ["ok", "client_cancel_before_token", "client_cancel", "upstream_3xx", "upstream_4xx", "upstream_5xx"];
    for outcome in every.into_iter().chain([
        "inband_error",
        "unconfirmed",
        "truncated",
        "reset",
        "connect_error",
        "timeout",
        "rejected",
    ]) {
        assert!(counted.contains_key(outcome), "{outcome} never happened");
    }
}

/// Makes the requests of these numbers: a third is left by its client, a third goes wrong, a third goes well.
fn run(serve: &Serve, plan: &Plan, numbers: std::ops::Range<usize>) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let numbers = numbers.clone();
            scope.spawn(move || {
                let mut kept = None;
                for number in numbers.filter(|number| number % CLIENTS == client) {
                    let mut rng = Rng::new(number as u64 + 1);
                    rng.below(2);
                    match number / CLIENTS % 3 {
                        0 => leaves(serve, plan, number, &mut rng),
                        1 => goes_wrong(serve, plan, number, &mut rng),
                        _ => goes_well(serve, plan, number, &mut rng, &mut kept),
                    }
                }
            });
        }
    });
}

fn chat(tag: &str, model: &str, sim: &str) -> String {
    let body = format!(r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"one two"}}]}}"#);
    post("/v1/chat/completions", &[("x-sim", sim), ("x-streamgauge-tag", tag)], &body)
}

fn goes_well(serve: &Serve, plan: &Plan, number: usize, rng: &mut Rng, kept: &mut Option<Client>) {
    let tag = plan.tag(number, Meant::Exactly("ok"));
    let tokens = u32::try_from(rng.below(30) + 1).expect("small");
    let sim = format!("ttft_ms={},itl_ms={},tokens={tokens},usage=always", rng.below(8), rng.below(2));
    let mut client = kept.take().unwrap_or_else(|| serve.client());
    if rng.below(2) == 0 {
        let reply = client.ask(chat(&tag, "m", &sim));
        assert!(reply.is_done() && reply.text(0, "content") == text(tokens), "{reply:?}");
    } else {
        let reply = client.ask(chat(&tag, "m", &sim).replace("\"stream\":true", "\"stream\":null"));
        assert_eq!(reply.json()["choices"][0]["message"]["content"], text(tokens));
    }
    if rng.below(4) > 0 {
        *kept = Some(client);
    }
}

fn leaves(serve: &Serve, plan: &Plan, number: usize, rng: &mut Rng) {
    const ANY: Meant = Meant::OneOf(&["ok", "client_cancel", "client_cancel_before_token"]);
    const EARLY: &str = "client_cancel_before_token";
    let mut client = serve.client();
    let point = Duration::from_micros(rng.below(20_000));
    match rng.below(6) {
        0 => {
            client.send(chat(&plan.tag(number, Meant::Exactly(EARLY)), "m", "head_ms=600000,ttft_ms=600000"));
            thread::sleep(point);
        }
        1 => {
            client.send(chat(&plan.tag(number, Meant::Exactly(EARLY)), "m", "ttft_ms=600000,role_first=1"));
            client.head();
            thread::sleep(point / 4);
        }
        2 => {
            let tag = plan.tag(number, Meant::Exactly("client_cancel"));
            client.send(chat(&tag, "m", "ttft_ms=1,itl_ms=1,tokens=1000000"));
            for _ in 0..=rng.below(20) {
                client.until(b"data: ").expect("an event");
            }
        }
        3 => {
            client.send(chat(&plan.tag(number, Meant::Exactly("ok")), "m", "ttft_ms=1,itl_ms=0,tokens=5"));
            client.until(b"[DONE]").expect("the end marker");
        }
        4 => {
            plan.untagged(EARLY);
            let whole = chat("never-read", "m", "ttft_ms=1,tokens=1");
            client.send(&whole[..whole.len() - 1 - usize::try_from(rng.below(60)).expect("small")]);
            thread::sleep(point / 4);
        }
        _ => {
            client.send(chat(&plan.tag(number, ANY), "m", "ttft_ms=5,itl_ms=1,tokens=12"));
            thread::sleep(point);
        }
    }
}

fn goes_wrong(serve: &Serve, plan: &Plan, number: usize, rng: &mut Rng) {
    // Model, simulated behaviour, outcome, status (0: none is sure to come), and whether the body ends in order.
    const WAYS: [(&str, &str, &str, u16, bool); 14] = [
        ("m", "ttft_ms=2,itl_ms=1,tokens=6,end=rst", "reset", 0, false),
        ("m", "ttft_ms=1,tokens=0,no_head=1,end=fin", "reset", 502, true),
        ("m", "ttft_ms=2,itl_ms=1,tokens=6,end=fin", "truncated", 200, false),
        ("m", "ttft_ms=2,itl_ms=1,tokens=6,end=truncate", "truncated", 200, true),
        ("m", "ttft_ms=2,status=302", "upstream_3xx", 302, true),
        ("m", "ttft_ms=2,status=404", "upstream_4xx", 404, true),
        ("m", "ttft_ms=2,status=429", "upstream_4xx", 429, true),
        ("m", "ttft_ms=2,status=503", "upstream_5xx", 503, true),
        ("m", "ttft_ms=2,itl_ms=1,tokens=9,error_after=3", "inband_error", 200, true),
        ("m", "ttft_ms=2,itl_ms=1,tokens=4,no_finish=1", "unconfirmed", 200, true),
        ("short", "head_ms=600000,ttft_ms=600000", "timeout", 504, true),
        ("short", "ttft_ms=1,itl_ms=1,tokens=3,end=silence", "timeout", 0, false),
        ("gone", "", "connect_error", 502, true),
        ("", "", "rejected", 400, true),
    ];
    let (model, sim, outcome, status, in_order) = WAYS[usize::try_from(rng.below(14)).expect("small")];
    let asking = if model.is_empty() {
        plan.untagged(outcome);
        request("POST", "/v1/chat/completions", &[("content-length", "1")]) + "{"
    } else {
        chat(&plan.tag(number, Meant::Exactly(outcome)), model, sim)
    };
    let reply = serve.client().ask(asking);
    assert!(status == 0 || reply.status == status, "{sim}: {reply:?}");
    // Where the upstream may break before its head was passed on, the answer is ours and whole.
    assert!((reply.ended == Ended::Complete) == in_order || reply.status >= 500, "{sim}: {reply:?}");
}
