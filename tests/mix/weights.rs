//! Routes to several backends.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use streamgauge::backend::sim::SimHandle;

use crate::support::stage::{Proxy, backend, sim};
use crate::support::upstream::Upstream;
use crate::{AT_ONCE, assert_share, chat, post, request, two_threads};

const CLIENTS: u64 = 4;

/// Two upstreams, `a` and `b`, and routes to them.
fn two(a: &SimHandle, b: &SimHandle, routes: &str) -> String {
    two_threads("") + &backend("a", a.addr(), "") + &backend("b", b.addr(), "") + routes
}

fn route(model: &str, to: &str, more: &str) -> String {
    format!("[[route]]\nmodel = \"{model}\"\nbackend = {to}\n{more}\n")
}

/// Several clients ask for their part of `count` requests, each over a connection that it keeps.
fn ask(proxy: &Proxy, count: u64, status: impl Fn(u16) -> bool + Sync) {
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = proxy.client();
                for _ in 0..count / CLIENTS {
                    let reply = client.ask(chat("m", &[]));
                    assert!(status(reply.status), "{reply:?}");
                }
            });
        }
    });
}

#[test]
fn ten_thousand_requests_are_spread_by_weight() {
    const ALL: u64 = 10_000;
    let (a, b) = (sim(), sim());
    let to = "[{ name = \"a\", weight = 9 }, { name = \"b\", weight = 1 }]";
    let proxy = Proxy::start(&two(&a, &b, &route("*", to, "")));
    ask(&proxy, ALL, |status| status == 200);
    assert_eq!(a.counts().requests + b.counts().requests, ALL, "each request goes to one backend");
    assert_share(a.counts().requests as f64, ALL, 0.9);
    let scrape = proxy.idle_scrape();
    for (name, sim) in [("a", &a), ("b", &b)] {
        let counted = scrape.sum("requests_total", &[("backend", name), ("outcome", "ok")]);
        assert_eq!(counted, sim.counts().requests as f64, "{name}");
    }
}

#[test]
fn weight_zero_takes_nothing_and_paths_without_a_model_take_the_first_of_the_others() {
    let (a, b) = (sim(), sim());
    let to = "[{ name = \"a\", weight = 0 }, { name = \"b\", weight = 1 }]";
    let proxy = Proxy::start(&two(&a, &b, &route("*", to, "")));
    ask(&proxy, 40, |status| status == 200);
    let mut client = proxy.client();
    for _ in 0..10 {
        client.ask(request("GET", "/v1/models/sim", &[]));
    }
    assert_eq!((a.counts().requests, b.counts().requests), (0, 50));
    proxy.idle_scrape();
}

#[test]
fn each_backend_gets_its_own_name_of_the_model_and_every_name_is_a_label() {
    let (a, b) = (sim(), sim());
    let to = "[{ name = \"a\" }, { name = \"b\", upstream_model = \"of-b\" }]";
    let proxy = Proxy::start(&two(&a, &b, &route("m", to, "upstream_model = \"of-all\"")));
    ask(&proxy, 100, |status| status == 200);
    for (sim, name) in [(&a, "of-all"), (&b, "of-b")] {
        let received = sim.received();
        assert!(!received.is_empty(), "one in 2^100 runs");
        for received in received {
            let body = String::from_utf8(received.request.body.to_vec()).expect("text");
            assert!(body.starts_with(&format!(r#"{{"model":"{name}","messages""#)), "{body}");
        }
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("requests_total", &[("model", "m")]), 100.0);
}

#[test]
fn a_dead_backends_error_is_the_answer() {
    let b = sim();
    let dead = Upstream::bind().addr();
    let to = "[{ name = \"a\" }, { name = \"b\" }]";
    let backends = two_threads("") + &backend("a", dead, "") + &backend("b", b.addr(), "");
    let proxy = Proxy::start(&(backends + &route("*", to, "")));
    ask(&proxy, 200, |status| status == 200 || status == 502);
    let scrape = proxy.idle_scrape();
    let (failed, ok) = (scrape.outcome("connect_error"), scrape.outcome("ok"));
    assert_eq!(scrape.sum("requests_started_total", &[]), 200.0, "nothing was asked twice");
    assert_eq!((failed + ok, ok), (200.0, b.counts().requests as f64));
    assert!((57.0..=143.0).contains(&failed), "half, within six standard deviations: {failed}");
}

/// Asks several turns of each of these conversations, each turn over a new connection and so on any thread, and says
/// which backend has it. `named` puts the conversation's name into a header, and other words into each turn.
fn homes(proxy: &Proxy, conversations: u32, named: bool) -> BTreeMap<String, String> {
    const TURNS: usize = 3;
    for conversation in 0..conversations {
        let name = format!("conversation-{conversation}");
        let mut messages = r#"{"role":"system","content":"brief"}"#.to_owned();
        for turn in 0..TURNS {
            let opening = if named { format!("turn {turn}") } else { name.clone() };
            let said = if turn == 0 || named { opening } else { format!("turn {turn}") };
            messages.extend([r#",{"role":"user","content":""#, &*said, r#""}"#]);
            let body = format!(r#"{{"stream":false,"messages":[{messages}],"model":"m"}}"#);
            messages += r#",{"role":"assistant","content":"yes"}"#;
            let mut headers = vec![("x-sim", AT_ONCE), ("x-streamgauge-tag", &*name)];
            headers.extend(named.then_some(("x-session-affinity", &*name)));
            assert_eq!(proxy.client().ask(post("/v1/chat/completions", &headers, &body)).status, 200);
        }
    }
    let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for exchange in proxy.finished(conversations as usize * TURNS) {
        let backend = exchange.backend.expect("routed").to_string();
        homes.entry(exchange.tag.expect("tagged").into()).or_default().insert(backend);
    }
    let only = |(name, mut backends): (String, BTreeSet<String>)| {
        assert_eq!(backends.len(), 1, "{name} went to {backends:?}");
        (name, backends.pop_first().expect("one"))
    };
    homes.into_iter().map(only).collect()
}

#[test]
fn a_conversation_stays_with_its_backend_on_every_thread_and_after_a_restart() {
    let (a, b) = (sim(), sim());
    let config = |weight: u32| {
        let to = format!("[{{ name = \"a\", weight = {weight} }}, {{ name = \"b\", weight = 1 }}]");
        two(&a, &b, &route("*", &to, "sticky = true"))
    };
    for named in [true, false] {
        let first = homes(&Proxy::start(&config(1)), 60, named);
        let on_a = first.values().filter(|home| *home == "a").count();
        assert!((8..=52).contains(&on_a), "about half: {on_a}");
        assert_eq!(homes(&Proxy::start(&config(1)), 60, named), first, "a restart moves none");
        let heavier = homes(&Proxy::start(&config(2)), 60, named);
        let moved = first.iter().filter(|(name, home)| heavier[*name] != **home);
        assert!(moved.clone().all(|(_, home)| home == "b"), "only towards what has grown");
        assert!(moved.count() < 30, "a sixth of all, more or less");
    }
}
