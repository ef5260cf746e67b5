//! No client can grow `/metrics`, and any name can be a label.

use std::collections::BTreeSet;
use std::thread;

use serde_json::json;

use crate::post;
use crate::support::metrics::Scrape;
use crate::support::stage::{Proxy, sim};

/// Names the backend may prove, by default.
const ROOM: usize = 64;

fn asking(model: &str, sim: &str) -> String {
    post("/v1/chat/completions", &[("x-sim", sim)], &json!({"model": model, "messages": []}).to_string())
}

#[test]
fn ten_thousand_made_up_names_leave_metrics_bounded() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 50;
    const A_ROUND: usize = 50;
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    // A fifth is not even served: such names prove nothing and overflow nothing.
    let is_served = |number: usize| number % 5 < 4;
    let ask = |client: usize, rounds: std::ops::Range<usize>| {
        let mut connection = proxy.client();
        for round in rounds {
            // All at once, answered in order.
            let name = |number: usize| format!("made-up-{client}-{round}-{number}");
            let sim = |number| if is_served(number) { "ttft_ms=0,itl_ms=0,tokens=1" } else { "ttft_ms=0,status=404" };
            connection.send((0..A_ROUND).map(|number| asking(&name(number), sim(number))).collect::<String>());
            for number in 0..A_ROUND {
                assert_eq!(connection.reply().status, if is_served(number) { 200 } else { 404 });
            }
        }
    };
    ask(0, 0..5);
    let before = proxy.idle_scrape();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let ask = &ask;
            scope.spawn(move || ask(client, if client == 0 { 5 } else { 0 }..ROUNDS));
        }
    });

    let scrape = proxy.idle_scrape();
    let all = CLIENTS * ROUNDS * A_ROUND;
    assert_eq!(scrape.sum("requests_started_total", &[]), all as f64);
    // The room for names was full after the first rounds; what comes later is digits, and phases seen first then.
    let size = |scrape: &Scrape| (scrape.samples.len(), scrape.text.len());
    let (samples, bytes) = size(&before);
    assert!(size(&scrape).0 < samples + samples / 50, "{samples} samples grew to {}", scrape.samples.len());
    assert!(size(&scrape).1 < bytes + bytes / 20, "{bytes} bytes grew to {}", scrape.text.len());
    let known = scrape.samples.iter().filter(|sample| sample.name == "streamgauge_requests_total");
    let models: BTreeSet<_> = known.map(|sample| sample.labels["model"].clone()).collect();
    assert_eq!(models.len(), ROOM + 1, "{models:?}");
    let served = (all / 5 * 4) as f64;
    assert_eq!(scrape.sum("label_overflow_total", &[]), served - ROOM as f64);
    assert_eq!(scrape.sum("requests_total", &[("model", "other"), ("outcome", "upstream_4xx")]), served / 4.0);
    assert_eq!(scrape.outcome("ok"), served);
}

#[test]
fn any_name_is_escaped() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let names =
        ["a\"b", "line\nbreak", "back\\slash", "\\n\"}\n# EOF {x=\"", "caf\u{e9} \u{1f680}", "{}=,", "\\", "\r\t"];
    let mut client = proxy.client();
    for name in names {
        assert_eq!(client.ask(asking(name, "ttft_ms=0,tokens=1")).status, 200);
    }
    let long = "x".repeat(129);
    client.ask(asking(&long, "ttft_ms=0,tokens=1"));
    let scrape = proxy.idle_scrape();
    for name in names {
        assert_eq!(scrape.sum("requests_total", &[("model", name), ("outcome", "ok")]), 1.0, "{name:?}");
    }
    assert_eq!(scrape.sum("requests_total", &[("model", "other")]), 1.0);
    assert!(!scrape.text.contains(&long));
}

#[test]
fn a_model_cannot_pass_for_what_a_label_means() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut client = proxy.client();
    for name in ["other", "none"] {
        assert_eq!(client.ask(asking(name, "ttft_ms=0,tokens=1")).status, 200);
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("requests_total", &[("model", "other"), ("outcome", "ok")]), 2.0);
    assert_eq!(scrape.sum("requests_total", &[("model", "none")]), 0.0);
    assert_eq!(scrape.sum("label_overflow_total", &[]), 0.0);
}
