//! What clients see, with random weights.

use serde_json::{Value, json};

use crate::support::client::Reply;
use crate::support::eventually;
use crate::support::stage::Proxy;
use crate::{chat, dummy, post, start};

const MODEL: &str = "llama-2-7b";

fn ask(proxy: &Proxy, body: &str) -> Reply {
    proxy.client().ask(post(body))
}

#[test]
fn a_stream_and_a_whole_reply_say_the_same_and_are_measured() {
    let proxy = start(&dummy(""));
    let common = r#""max_tokens":12,"temperature":0.8,"seed":7,"ignore_eos":true"#;
    let more = format!(r#"{common},"stream":true,"stream_options":{{"include_usage":true}}"#);
    let stream = ask(&proxy, &chat(MODEL, "hello", &more));
    let whole = ask(&proxy, &chat(MODEL, "hello", common));
    assert_eq!((stream.status, whole.status), (200, 200), "{whole:?}");
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(whole.header("content-type"), Some("application/json"));
    assert!(stream.is_done());

    let events = stream.events();
    let (first, last) = (&events[0], &events[events.len() - 1]);
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(first["usage"], Value::Null);
    assert!(first.as_object().unwrap().contains_key("usage"));
    assert_eq!(last["choices"], json!([]));
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "length");
    for event in &events {
        assert_eq!(
            (&event["id"], &event["model"], &event["object"]),
            (&first["id"], &MODEL.into(), &"chat.completion.chunk".into())
        );
        assert!(event["created"].as_u64().unwrap() > 1_700_000_000);
        assert!(event["system_fingerprint"].as_str().unwrap().starts_with("fp_"));
    }
    let tokens = events
        .iter()
        .filter(|event| event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(tokens.count(), 12, "one event per token");

    let reply = whole.json();
    assert_eq!(reply["object"], "chat.completion");
    assert_eq!(reply["choices"][0]["message"]["content"], stream.text(0, "content"));
    assert_eq!(reply["choices"][0]["message"]["role"], "assistant");
    assert_eq!(reply["usage"], last["usage"]);
    assert_eq!(reply["usage"]["completion_tokens"], 12);
    assert_eq!(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"].as_u64().unwrap() + 12);
    assert_ne!(reply["id"], first["id"]);

    let exchanges = proxy.finished(2);
    let streamed = exchanges.iter().find(|exchange| exchange.stream == Some(true)).unwrap();
    assert_eq!(streamed.outcome.label(), "ok");
    assert_eq!(&*streamed.model, MODEL);
    assert_eq!(streamed.token_events, 12);
    let marks = &streamed.marks;
    let engine = marks.engine.unwrap();
    let order = [
        Some(marks.accepted),
        marks.body,
        marks.sent,
        marks.head,
        engine.admitted,
        engine.prefilled,
        marks.first_token,
        marks.last_token,
        marks.finish,
        marks.end,
    ];
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{marks:?}");
    assert!(streamed.tpot().is_some());
    for exchange in &exchanges {
        let phases: std::time::Duration = exchange.marks.phases(&exchange.connect).map(|(_, time)| time).sum();
        assert_eq!(Some(phases), exchange.marks.duration());
        assert_eq!(exchange.anomalies.seen().count(), 0);
    }
    let metrics = proxy.idle_scrape();
    let ours = [("backend", "dummy"), ("model", MODEL)];
    assert_eq!(metrics.sum("requests_total", &[ours[0], ours[1], ("outcome", "ok")]), 2.0);
    assert_eq!(metrics.sum("inter_token_latency_seconds_count", &[ours[0], ("timing", "exact")]), 11.0);
    for phase in ["queue", "prefill", "decode"] {
        assert_eq!(metrics.sum("phase_seconds_count", &[ours[0], ("phase", phase)]), 2.0, "{phase}");
    }
    assert!(metrics.sum("timestamps_total", &[("source", "engine")]) >= 14.0);
    assert_eq!(metrics.sum("engine_step_seconds_count", &[("backend", "dummy")]), 24.0);
    assert_eq!(
        metrics.sum("engine_prefill_tokens_total", &[]),
        2.0 * reply["usage"]["prompt_tokens"].as_f64().unwrap()
    );
    assert_eq!(metrics.sum("engine_kv_slots_in_use", &[]), 0.0);
}

#[test]
fn one_token_has_no_tpot() {
    let proxy = start(&dummy(""));
    let reply = ask(&proxy, &chat(MODEL, "hello", r#""max_tokens":1,"stream":true,"ignore_eos":true"#));
    assert!(reply.is_done());
    let exchange = &proxy.finished(1)[0];
    assert_eq!((exchange.token_events, exchange.tpot(), exchange.stall), (1, None, None));
    // The engine has counted, though the client did not ask it to say so.
    let output = exchange.output.unwrap();
    assert_eq!((output.count, output.source.label()), (1, "usage"));
    assert_eq!(exchange.prompt_tokens(), Some(6));
    assert!(exchange.marks.ttft_upstream().is_some());
    assert_eq!(proxy.idle_scrape().sum("time_per_output_token_seconds_count", &[]), 0.0);
}

#[test]
fn n_choices_come_together_and_differ() {
    let proxy = start(&dummy(""));
    let common = r#""n":3,"max_tokens":20,"temperature":2,"seed":1,"ignore_eos":true"#;
    let stream = ask(&proxy, &chat(MODEL, "hello", &format!(r#"{common},"stream":true"#)));
    let whole = ask(&proxy, &chat(MODEL, "hello", common)).json();
    let texts: Vec<_> = (0..3).map(|choice| stream.text(choice, "content")).collect();
    for (choice, text) in texts.iter().enumerate() {
        assert_eq!(whole["choices"][choice]["message"]["content"], **text);
        assert_eq!(whole["choices"][choice]["index"], choice);
    }
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    assert_eq!(whole["usage"]["completion_tokens"], 60);
    let exchanges = proxy.finished(2);
    let streamed = exchanges.iter().find(|exchange| exchange.stream == Some(true)).unwrap();
    assert_eq!((streamed.outcome.label(), streamed.choices, streamed.token_events), ("ok", 3, 60));
    assert_eq!(streamed.tpot(), None, "TPOT of three choices does not exist");
}

#[test]
fn the_same_seed_says_the_same_beside_others() {
    let proxy = start(&dummy(""));
    let seeded = chat(MODEL, "a seed", r#""max_tokens":40,"temperature":1.5,"seed":42,"ignore_eos":true"#);
    let alone = ask(&proxy, &seeded).json()["choices"].clone();
    let others: Vec<_> = (0..6)
        .map(|n| {
            let body = chat(MODEL, &"x".repeat(n * 40 + 1), r#""ignore_eos":true,"stream":true"#);
            let mut client = proxy.client();
            client.send(post(&body));
            client
        })
        .collect();
    eventually("they run", || (proxy.scrape().sum("engine_kv_slots_in_use", &[]) > 4.0).then_some(()));
    let beside = ask(&proxy, &seeded).json()["choices"].clone();
    assert_eq!(alone, beside);
    drop(others);
    let metrics = proxy.scrape();
    let (steps, sequences) = (metrics.sum("engine_batch_size_count", &[]), metrics.sum("engine_batch_size_sum", &[]));
    assert!(sequences > steps * 2.0, "hardly anything ran together: {sequences} in {steps} steps");
}

#[test]
fn continuous_usage_counts_up() {
    let proxy = start(&dummy(""));
    let more = r#""max_tokens":5,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
    let reply = ask(&proxy, &chat(MODEL, "hello", more));
    let counts: Vec<_> =
        reply.events().iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 5, 5]);
}

#[test]
fn logprobs_stand_beside_their_tokens() {
    let proxy = start(&dummy(""));
    let common = r#""max_tokens":4,"ignore_eos":true,"temperature":0,"logprobs":true,"top_logprobs":3"#;
    let whole = ask(&proxy, &chat(MODEL, "hello", common)).json();
    let entries = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 4);
    for entry in entries {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!(
            (&top[0]["token"], &top[0]["logprob"]),
            (&entry["token"], &entry["logprob"]),
            "greedy takes the likeliest"
        );
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
        let bytes: Vec<u8> = entry["bytes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap())
            .collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), entry["token"].as_str().unwrap());
    }
    let stream = ask(&proxy, &chat(MODEL, "hello", &format!(r#"{common},"stream":true"#)));
    let events = stream.events();
    let streamed: Vec<_> =
        events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten().collect();
    assert_eq!(streamed.len(), 4);
    assert!(streamed.iter().zip(entries).all(|(streamed, whole)| *streamed == whole));
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let proxy = start(&dummy(""));
    let cases = [
        (r#"{"model":"llama-2-x","messages":[]}"#.to_owned(), "messages"),
        (r#"{"model":"llama-2-x"}"#.to_owned(), "messages"),
        (chat(MODEL, "x", r#""tools":[{"type":"function","function":{"name":"f"}}]"#), "tools"),
        (chat(MODEL, "x", r#""response_format":{"type":"json_object"}"#), "response_format"),
        (chat(MODEL, "x", r#""temperature":3"#), "temperature"),
        (chat(MODEL, "x", r#""n":0"#), "n"),
        (chat(MODEL, "x", r#""n":128"#), "n"),
    ];
    for (body, param) in &cases {
        let reply = ask(&proxy, body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        let error = &reply.json()["error"];
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["param"].as_str().is_some_and(|named| named.starts_with(param)), "{body}: {error}");
    }
    let exchanges = proxy.finished(cases.len());
    assert!(exchanges.iter().all(|exchange| exchange.outcome.label() == "rejected"));
}

#[test]
fn a_prompt_over_the_context_is_told_both_numbers() {
    let proxy = start(&dummy("max_context = 100"));
    let reply = ask(&proxy, &chat(MODEL, &"x".repeat(300), ""));
    assert_eq!(reply.status, 400);
    let error = &reply.json()["error"];
    let message = error["message"].as_str().unwrap();
    assert_eq!(error["param"], "messages");
    assert!(message.contains("100"), "{message}");
    let tokens: Vec<u64> = message.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    assert!(tokens[0] >= 300, "{message}");
}

#[test]
fn the_end_of_the_context_is_a_length() {
    let proxy = start(&dummy("max_context = 100"));
    let reply = ask(&proxy, &chat(MODEL, "x", r#""ignore_eos":true"#)).json();
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["total_tokens"], 100);
}

#[test]
fn other_paths_and_models_are_told_where_to_go() {
    let proxy = start(&format!("{}\n[[route]]\nmodel = \"*\"\nbackend = \"dummy\"\n", dummy("")));
    let reply = proxy.client().get("/v1/files");
    assert_eq!(reply.status, 501);
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("\"dummy\"") && message.contains("chat completions"), "{message}");
    for path in ["responses", "messages", "embeddings", "rerank"] {
        let body = r#"{"model":"llama-2-x","prompt":"x","messages":[{"role":"user","content":"x"}]}"#;
        let other = post(body).replace("/v1/chat/completions", &format!("/v1/{path}"));
        let reply = proxy.client().ask(other);
        assert_eq!(reply.status, 501, "{path}: {reply:?}");
    }
}

#[test]
fn what_cannot_fit_is_refused_before_it_is_tokenized() {
    let proxy = start(&dummy("max_context = 100"));
    let reply = ask(&proxy, &chat(MODEL, &"x".repeat(1_000_000), ""));
    assert_eq!(reply.status, 400);
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("1000000 bytes") && message.contains("100 tokens"), "{message}");
}

#[test]
fn a_long_name_is_not_repeated_in_every_event() {
    let proxy = start(&dummy(""));
    let name = format!("llama-2-{}", "é".repeat(5000));
    let reply = ask(&proxy, &chat(&name, "hello", r#""max_tokens":3,"stream":true"#));
    let model = reply.events()[0]["model"].as_str().unwrap().to_owned();
    assert!(name.starts_with(&model) && (200..=256).contains(&model.len()), "{model}");
}
