//! Slots and the queue before them.

use std::time::Duration;

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::stage::Proxy;
use crate::{chat, dummy, post, shape, start};

/// A backend whose context no stream fills while a test runs, and the folder its shape is in.
pub(crate) fn wide(more: &str) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(shape().join("config.json")).unwrap();
    let wide = config.replace("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 50000");
    assert_ne!(wide, config);
    std::fs::write(folder.path().join("config.json"), wide).unwrap();
    let config = dummy(&format!("max_context = 50_000\n{more}"));
    (config.replace(shape().to_str().unwrap(), folder.path().to_str().unwrap()), folder)
}

/// A stream that goes on for as long as the context lasts.
fn endless(proxy: &Proxy) -> Client {
    let mut client = proxy.client();
    client.send(post(&chat("llama-2-x", "go", r#""ignore_eos":true,"stream":true"#)));
    client
}

pub(crate) fn slots(proxy: &Proxy) -> f64 {
    proxy.scrape().sum("engine_kv_slots_in_use", &[])
}

pub(crate) fn waiting(proxy: &Proxy) -> f64 {
    proxy.scrape().sum("engine_queue_length", &[])
}

#[test]
fn a_full_queue_is_a_503_with_retry_after() {
    let (config, _folder) = wide("max_sequences = 1\nmax_queue = 1");
    let proxy = start(&config);
    let mut running = endless(&proxy);
    running.until(b"\"content\":\" ").unwrap();
    let _waiting = endless(&proxy);
    eventually("one waits", || (waiting(&proxy) == 1.0).then_some(()));
    let refused = proxy.client().ask(post(&chat("llama-2-x", "late", r#""max_tokens":1"#)));
    assert_eq!(refused.status, 503);
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&after));
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "queue_full");
    assert!(error["message"].as_str().unwrap().contains("max_queue"));
}

#[test]
fn who_leaves_frees_the_slot_for_who_waits() {
    let (config, _folder) = wide("max_sequences = 1\nmax_queue = 4");
    let proxy = start(&config);
    for _ in 0..5 {
        let mut running = endless(&proxy);
        running.until(b"\"content\":\" ").unwrap();
        let queued = endless(&proxy);
        drop(queued);
        let mut next = proxy.client();
        next.send(post(&chat("llama-2-x", "next", r#""max_tokens":3,"ignore_eos":true"#)));
        drop(running);
        assert_eq!(next.reply().status, 200);
    }
    eventually("every slot is free", || (slots(&proxy) == 0.0 && waiting(&proxy) == 0.0).then_some(()));
    let exchanges = proxy.finished(15);
    let cancelled = exchanges.iter().filter(|exchange| exchange.outcome.label().starts_with("client_cancel")).count();
    assert_eq!(cancelled, 10);
    // Who left while waiting spent the rest of its time in the queue.
    let queued = exchanges.iter().filter(|exchange| exchange.outcome.label() == "client_cancel_before_token");
    assert!(queued.count() >= 5);
    proxy.idle_scrape();
}

#[test]
fn a_stop_cuts_streams_off_and_ends_the_engine() {
    let (config, _folder) = wide("max_sequences = 1");
    let proxy = start(&format!("drain_timeout_ms = 100\n{config}"));
    let mut client = endless(&proxy);
    client.until(b"\"content\":\" ").unwrap();
    let began = std::time::Instant::now();
    proxy.running.stop();
    assert!(began.elapsed() < Duration::from_secs(20), "the engine holds the end up");
}
