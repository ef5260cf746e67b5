//! Legacy completions: raw prompts, as text and as tokens.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::slots::{slots, waiting, wide};
use crate::support::client::Reply;
use crate::support::eventually;
use crate::support::stage::Proxy;
use crate::tiny::{self, BOS, EOS, MODELS, token, tokens};
use crate::{dummy, start};

const MODEL: &str = "gqa_tied";

/// A proxy before the tiny model.
fn proxy() -> (Proxy, TempDir) {
    let folder = tiny::model(MODEL);
    (start(&tiny::backend(MODEL, &folder, "")), folder)
}

/// A completion request as it goes over the wire.
fn post(body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n\
         {body}",
        body.len()
    )
}

/// A greedy completion's body: `prompt` and more fields.
fn ask(prompt: impl Into<Value>, more: Value) -> Value {
    let mut body = json!({"model": MODEL, "temperature": 0, "prompt": prompt.into()});
    let Value::Object(more) = more else { panic!("no object: {more}") };
    body.as_object_mut().unwrap().extend(more);
    body
}

fn whole(proxy: &Proxy, body: &Value) -> Value {
    let reply = proxy.client().ask(post(body));
    assert_eq!(reply.status, 200, "{body}: {reply:?}");
    reply.json()
}

fn streamed(proxy: &Proxy, body: &Value) -> Reply {
    let mut body = body.clone();
    body["stream"] = true.into();
    let reply = proxy.client().ask(post(&body));
    assert!(reply.status == 200 && reply.is_done(), "{body}: {reply:?}");
    reply
}

/// The choices of a stream that are told of one index, in order.
fn choices(stream: &Reply, index: usize) -> Vec<Value> {
    let all = stream.events().into_iter().filter_map(|event| event["choices"].get(0).cloned());
    all.filter(|choice| choice["index"] == index).collect()
}

fn text(stream: &Reply, index: usize) -> String {
    choices(stream, index).iter().map(|choice| choice["text"].as_str().unwrap()).collect()
}

#[derive(Deserialize)]
struct Case {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
}

/// Token by token, so that nothing hides behind equal texts: what transformers' `generate` makes of the same ids.
#[test]
fn raw_tokens_go_on_as_transformers_says() {
    let folders = MODELS.map(tiny::model);
    let backends = MODELS.iter().zip(&folders).map(|(name, folder)| tiny::backend(name, folder, ""));
    let proxy = start(&backends.collect::<String>());
    for name in MODELS {
        let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama/fixtures").join(name);
        let cases = std::fs::read(expected.join("expected.json")).unwrap();
        let cases: Vec<Case> = serde_json::from_slice(&cases).unwrap();
        assert!(cases.len() >= 4);
        for Case { prompt, greedy } in cases {
            let length = prompt.len();
            let body = ask(prompt, json!({"model": name, "max_tokens": greedy.len(), "logprobs": 0}));
            let reply = whole(&proxy, &body);
            let expected: Vec<_> = greedy.into_iter().map(tiny::name).collect();
            assert_eq!(reply["choices"][0]["logprobs"]["tokens"], json!(expected), "{name}, a prompt of {length}");
            assert_eq!(reply["usage"]["prompt_tokens"], length, "no BOS is added to tokens");
        }
    }
}

#[test]
fn a_string_is_what_its_tokenizer_makes_of_it() {
    let (proxy, _folder) = proxy();
    for (string, ids) in [
        ("Hello", [vec![BOS], tokens("Hello")].concat()),
        ("", vec![BOS]),
        // As transformers' `tokenizer(text)`: control tokens are given by their texts, and BOS comes besides.
        ("<s>Hi</s>", [vec![BOS, BOS], tokens("Hi"), vec![EOS]].concat()),
    ] {
        let [of_string, of_ids] = [json!(string), json!(ids)].map(|prompt| whole(&proxy, &ask(prompt, json!({}))));
        assert_eq!(of_string["choices"], of_ids["choices"], "{string:?}");
        assert_eq!(of_string["usage"], of_ids["usage"], "{string:?}");
        assert_eq!(of_string["usage"]["prompt_tokens"], ids.len(), "{string:?}");
    }
    let [with, without] = [vec![BOS, token(b'a')], vec![token(b'a')]].map(|ids| whole(&proxy, &ask(ids, json!({}))));
    assert_ne!(with["choices"], without["choices"], "BOS makes no difference to this model, so the test shows nothing");
}

/// As in transformers, where `tokenizer.json` alone says what is put around a text.
#[test]
fn the_tokenizers_own_rule_decides_on_bos() {
    let folder = tiny::model(MODEL);
    let settings = r#"{"add_bos_token":false,"bos_token":"<s>","tokenizer_class":"PreTrainedTokenizerFast"}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), settings).unwrap();
    let proxy = start(&tiny::backend(MODEL, &folder, ""));
    assert_eq!(whole(&proxy, &ask("Hi", json!({})))["usage"]["prompt_tokens"], 3);

    tiny::change(&folder, |tokenizer| tokenizer["post_processor"] = Value::Null);
    let proxy = start(&tiny::backend(MODEL, &folder, ""));
    assert_eq!(whole(&proxy, &ask("Hi", json!({})))["usage"]["prompt_tokens"], 2);
    let refused = proxy.client().ask(post(&ask(json!(["Hi", ""]), json!({}))));
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("prompt[1]")));
}

#[test]
fn a_stream_and_a_whole_reply_say_the_same() {
    let (proxy, _folder) = proxy();
    let body = ask("Once upon", json!({"max_tokens": 12, "temperature": 0.8, "seed": 7, "ignore_eos": true}));
    let whole = whole(&proxy, &body);
    let mut asked = body.clone();
    asked["stream_options"] = json!({"include_usage": true});
    let stream = streamed(&proxy, &asked);
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let events = stream.events();
    let (first, last) = (&events[0], &events[events.len() - 1]);
    for event in &events {
        assert_eq!((&event["id"], &event["model"], &event["object"]), (&first["id"], &json!(MODEL), &whole["object"]));
    }
    assert_eq!(whole["object"], "text_completion");
    assert!(whole["id"].as_str().unwrap().starts_with("cmpl-") && first["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_ne!(whole["id"], first["id"]);
    let told = choices(&stream, 0);
    let (end, texts) = told.split_last().unwrap();
    for choice in texts {
        assert_eq!(choice["finish_reason"], Value::Null);
        assert!(choice["text"].as_str().is_some_and(|text| !text.is_empty()), "an event that says nothing: {choice}");
    }
    assert_eq!(*end, json!({"index": 0, "text": "", "logprobs": null, "finish_reason": "length"}));
    assert_eq!(
        whole["choices"],
        json!([{"index": 0, "text": text(&stream, 0), "logprobs": null, "finish_reason": "length"}])
    );
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));
    assert_eq!(whole["usage"], json!({"prompt_tokens": 10, "completion_tokens": 12, "total_tokens": 22}));
    assert_eq!(first["usage"], Value::Null);
    assert!(streamed(&proxy, &body).events().iter().all(|event| event.get("usage").is_none()), "nobody asked for it");

    let continuous = json!({"max_tokens": 4, "ignore_eos": true, "stream_options": {"continuous_usage_stats": true},
        "logit_bias": {token(b'x').to_string(): 100}});
    let counts = streamed(&proxy, &ask("x", continuous)).events();
    let counts: Vec<_> = counts.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 3, 4, 4]);
}

#[test]
fn prompts_together_say_what_each_says_alone() {
    let (proxy, _folder) = proxy();
    let strings = ["Once", "", "The quick brown fox", "x"];
    let ids = strings.map(|string| [vec![BOS], tokens(string)].concat());
    let more = json!({"n": 2, "temperature": 1.5, "seed": 3, "max_tokens": 9, "ignore_eos": true});
    let alone = strings.map(|string| whole(&proxy, &ask(string, more.clone())));
    let expected: Vec<_> = alone.iter().flat_map(|reply| reply["choices"].as_array().unwrap().clone()).collect();
    let texts: Vec<_> = expected.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert!(texts.windows(2).all(|pair| pair[0] != pair[1]), "one could be taken for another: {texts:?}");
    for prompt in [json!(strings), json!(ids)] {
        let together = whole(&proxy, &ask(prompt.clone(), more.clone()));
        let stream = streamed(&proxy, &ask(prompt, more.clone()));
        // Prompt by prompt, and `n` of each.
        for (index, expected) in expected.iter().enumerate() {
            let choice = &together["choices"][index];
            assert_eq!((&choice["index"], &choice["text"]), (&json!(index), &expected["text"]));
            assert_eq!(text(&stream, index), expected["text"].as_str().unwrap());
        }
        assert_eq!(together["choices"].as_array().unwrap().len(), 8);
        let prompt_tokens: u64 = alone.iter().map(|reply| reply["usage"]["prompt_tokens"].as_u64().unwrap()).sum();
        assert_eq!(together["usage"]["prompt_tokens"], prompt_tokens, "each prompt once");
        assert_eq!(together["usage"]["completion_tokens"], 8 * 9);
    }
}

#[test]
fn the_engine_stamps_and_counts_every_prompt() {
    let (proxy, _folder) = proxy();
    let more = json!({"max_tokens": 3, "ignore_eos": true});
    streamed(&proxy, &ask(json!(["one", "three", "seven", "eight", "and nine"]), more));
    let exchange = &proxy.finished(1)[0];
    assert_eq!(exchange.outcome.label(), "ok");
    let engine = exchange.marks.engine.unwrap();
    let order = [exchange.marks.sent, exchange.marks.head, engine.admitted, engine.prefilled, exchange.marks.end];
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{:?}", exchange.marks);
    assert_eq!(exchange.prompt_tokens(), Some(3 + 5 + 5 + 5 + 8 + 5));
    let metrics = proxy.idle_scrape();
    assert_eq!(metrics.sum("engine_prefill_tokens_total", &[]), 31.0);
    assert_eq!(metrics.sum("engine_kv_slots_in_use", &[]), 0.0);
}

#[test]
fn each_token_is_measured_and_an_echo_is_none() {
    let (proxy, _folder) = proxy();
    for (count, echo) in [(1, false), (2, true)] {
        let fields = json!({"max_tokens": 6, "echo": echo, "logit_bias": {token(b'x').to_string(): 100}});
        streamed(&proxy, &ask("Hi", fields));
        let exchange = proxy.finished(count).pop().unwrap();
        assert_eq!((exchange.outcome.label(), exchange.token_events), ("ok", 6), "echo: {echo}");
        let output = exchange.output.unwrap();
        assert_eq!((output.count, output.source.label()), (6, "usage"), "echo: {echo}");
        let (marks, engine) = (&exchange.marks, exchange.marks.engine.unwrap());
        let order = [engine.admitted, engine.prefilled, marks.first_token, marks.last_token, marks.finish, marks.end];
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "echo: {echo}: {marks:?}");
        assert_eq!(exchange.anomalies.seen().count(), 0);
    }
    let metrics = proxy.idle_scrape();
    assert_eq!(metrics.sum("inter_token_latency_seconds_count", &[("timing", "exact")]), 10.0);
}

#[test]
fn an_echo_without_output_is_no_token_event() {
    let (proxy, _folder) = proxy();
    let likely = |byte: u32, more: Value| {
        let mut fields = json!({"echo": true, "logit_bias": {byte.to_string(): 100}});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let x = token(b'x');
    for (count, (fields, tokens)) in [
        // The model ends at once.
        (likely(EOS, json!({})), 0),
        (likely(x, json!({"stop_token_ids": [x]})), 0),
        // A stop string takes all.
        (likely(x, json!({"stop": "xxx"})), 3),
        (likely(x, json!({"stop": "xxx", "n": 2})), 6),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = streamed(&proxy, &ask("Hi", fields.clone()));
        assert_eq!(text(&reply, 0), "Hi", "{fields}");
        let exchange = proxy.finished(count + 1).pop().unwrap();
        assert_eq!((exchange.outcome.label(), exchange.token_events), ("ok", 0), "{fields}");
        assert_eq!(exchange.output.map(|output| output.count), Some(tokens), "{fields}");
        assert!(exchange.marks.first_token.is_none() && exchange.marks.finish.is_some(), "{fields}");
    }
    let metrics = proxy.idle_scrape();
    for family in ["time_to_first_token_seconds_count", "token_events_total"] {
        assert_eq!(metrics.sum(family, &[]), 0.0, "{family}");
    }
}

#[test]
fn an_echo_comes_before_the_first_text_and_once() {
    let (proxy, _folder) = proxy();
    let more = json!({"max_tokens": 6, "ignore_eos": true, "n": 2, "seed": 1, "temperature": 1});
    let mut echoing = more.clone();
    echoing["echo"] = true.into();
    let strings = ["Say \"é\"\n", "b"];
    let ids = strings.map(|string| [vec![BOS], tokens(&string.replace('é', "À"))].concat());
    for (prompt, repeated) in [(json!(strings), strings), (json!(ids), ["Say \"À\"\n", "b"])] {
        let plain = whole(&proxy, &ask(prompt.clone(), more.clone()));
        let echoed = whole(&proxy, &ask(prompt.clone(), echoing.clone()));
        let stream = streamed(&proxy, &ask(prompt, echoing.clone()));
        for index in 0..4 {
            let expected = format!("{}{}", repeated[index / 2], plain["choices"][index]["text"].as_str().unwrap());
            assert_eq!(echoed["choices"][index]["text"], expected);
            assert_eq!(text(&stream, index), expected);
            // With the first text: earlier, it would look like a first token.
            let first = choices(&stream, index)[0]["text"].as_str().unwrap().to_owned();
            assert!(first.starts_with(repeated[index / 2]) && first.len() > repeated[index / 2].len(), "{first:?}");
        }
        assert_eq!(echoed["usage"], plain["usage"]);
    }
    // Nothing but the end.
    let ends = json!({"echo": true, "logit_bias": {EOS.to_string(): 100}});
    let stream = streamed(&proxy, &ask("Hi", ends.clone()));
    assert_eq!(choices(&stream, 0), [json!({"index": 0, "text": "Hi", "logprobs": null, "finish_reason": "stop"})]);
    assert_eq!(whole(&proxy, &ask("Hi", ends))["choices"][0]["text"], "Hi");
}

#[test]
fn output_goes_on_where_the_prompt_ends() {
    let (proxy, _folder) = proxy();
    let says = |byte: u8, more: Value| {
        let mut fields = json!({"max_tokens": 1, "logit_bias": {token(byte).to_string(): 100}});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    // In the middle of a character.
    let ids = vec![BOS, token(b'a'), token(0xC3)];
    assert_eq!(whole(&proxy, &ask(ids.clone(), says(0x80, json!({}))))["choices"][0]["text"], "À");
    assert_eq!(whole(&proxy, &ask(ids, says(0x80, json!({"echo": true}))))["choices"][0]["text"], "aÀ");

    // A tokenizer that writes a space before each text, which is dropped there and nowhere else.
    let folder = tiny::model(MODEL);
    let space = json!({"type": "Metaspace", "replacement": "Ġ", "prepend_scheme": "first", "split": false});
    tiny::change(&folder, |tokenizer| {
        tokenizer["pre_tokenizer"] = space.clone();
        tokenizer["decoder"] = space;
    });
    let proxy = start(&tiny::backend(MODEL, &folder, ""));
    let go_on = |prompt: &str| whole(&proxy, &ask(prompt, says(b' ', json!({"max_tokens": 2}))));
    let after_a_word = go_on("word");
    assert_eq!(after_a_word["usage"]["prompt_tokens"], 6, "BOS, the space, the word");
    assert_eq!(after_a_word["choices"][0]["text"], "  ");
    let echoed = whole(&proxy, &ask("word", says(b' ', json!({"echo": true}))));
    assert_eq!(echoed["choices"][0]["text"], "word ");
    assert_eq!(whole(&proxy, &ask(vec![BOS], says(b' ', json!({"max_tokens": 2}))))["choices"][0]["text"], " ");
}

#[test]
fn logprobs_have_the_older_shape() {
    let (proxy, _folder) = proxy();
    // At random over bytes of which some belong to longer characters.
    let body = ask(
        "Names: ",
        json!({"logprobs": 2, "max_tokens": 60, "temperature": 2, "seed": 5, "ignore_eos": true, "n": 2,
            "logit_bias": {token(0xC3).to_string(): 3, token(0x80).to_string(): 3}}),
    );
    let reply = whole(&proxy, &body);
    let stream = streamed(&proxy, &body);
    for index in 0..2 {
        let (choice, told) = (&reply["choices"][index], choices(&stream, index));
        let (text, logprobs) = (choice["text"].as_str().unwrap(), &choice["logprobs"]);
        let all = |member: &str| logprobs[member].as_array().unwrap().clone();
        let (tokens, chosen, top, offsets) =
            (all("tokens"), all("token_logprobs"), all("top_logprobs"), all("text_offset"));
        assert_eq!([tokens.len(), chosen.len(), top.len(), offsets.len()], [60; 4]);
        let (mut whole_tokens, mut parts) = (0, 0);
        for at in 0..60 {
            let (token, top) = (tokens[at].as_str().unwrap(), top[at].as_object().unwrap());
            assert!(top.len() == 2 || top.len() == 3, "{top:?}");
            assert_eq!(top[token], chosen[at]);
            let offset = usize::try_from(offsets[at].as_u64().unwrap()).unwrap();
            let rest: String = text.chars().skip(offset).collect();
            if token.starts_with("bytes:") {
                parts += 1;
            } else if !token.starts_with('<') || token.len() == 1 {
                whole_tokens += 1;
                // Bytes before it that are no character come before it.
                let mended = rest.trim_start_matches('\u{FFFD}');
                assert!(mended.starts_with(token), "{at}: {token:?} at {rest:?}");
            }
        }
        assert!(whole_tokens > 5 && parts > 5, "{whole_tokens} and {parts} show little");
        assert!(offsets.is_sorted_by_key(|offset| offset.as_u64().unwrap()), "{offsets:?}");
        for member in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let streamed: Vec<Value> =
                told.iter().filter_map(|choice| choice["logprobs"][member].as_array()).flatten().cloned().collect();
            assert_eq!(streamed, all(member), "{member}");
        }
    }

    let greedy = whole(&proxy, &ask("Names: ", json!({"logprobs": 5, "max_tokens": 4, "ignore_eos": true})));
    let logprobs = &greedy["choices"][0]["logprobs"];
    for at in 0..4 {
        let top = logprobs["top_logprobs"][at].as_object().unwrap();
        assert_eq!(top.len(), 5, "the chosen one is the likeliest");
        let best = top.values().map(|logprob| logprob.as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(logprobs["token_logprobs"][at].as_f64(), Some(best));
    }
    let none = whole(&proxy, &ask("Names: ", json!({"logprobs": 0, "max_tokens": 1, "ignore_eos": true})));
    let logprobs = &none["choices"][0]["logprobs"];
    let chosen = logprobs["tokens"][0].as_str().unwrap();
    assert_eq!(logprobs["top_logprobs"][0], json!({chosen: logprobs["token_logprobs"][0]}));
}

#[test]
fn a_stop_string_ends_the_output_and_not_the_prompt() {
    let (proxy, _folder) = proxy();
    let fields = json!({"stop": "xxx", "echo": true, "logit_bias": {token(b'x').to_string(): 100}});
    let body = ask("axxxb", fields);
    let reply = whole(&proxy, &body);
    assert_eq!(
        (&reply["choices"][0]["text"], &reply["choices"][0]["finish_reason"]),
        (&json!("axxxb"), &json!("stop"))
    );
    assert_eq!(reply["usage"]["completion_tokens"], 3);
    assert_eq!(text(&streamed(&proxy, &body), 0), "axxxb");
    let stop_token = json!({"stop_token_ids": [token(b'x')], "logit_bias": {token(b'x').to_string(): 100}});
    let reply = whole(&proxy, &ask("a", stop_token));
    assert_eq!((&reply["choices"][0]["text"], &reply["usage"]["completion_tokens"]), (&json!(""), &json!(0)));
}

#[test]
fn the_length_is_what_the_reference_says() {
    let folder = tiny::model(MODEL);
    let proxy = start(&tiny::backend(MODEL, &folder, "max_context = 100"));
    let left_out = whole(&proxy, &ask("Hi", json!({"ignore_eos": true})));
    assert_eq!(left_out["usage"]["completion_tokens"], 16);
    assert_eq!(left_out["choices"][0]["finish_reason"], "length");
    // "The token count of your prompt plus max_tokens cannot exceed the model's context length."
    let prompt = vec![BOS; 90];
    let fits = whole(&proxy, &ask(prompt.clone(), json!({"max_tokens": 10, "ignore_eos": true})));
    assert_eq!(fits["usage"]["total_tokens"], 100);
    let refused = |prompt: Value, more: Value, param: &str, words: &[&str]| {
        let reply = proxy.client().ask(post(&ask(prompt, more)));
        let error = reply.json()["error"].clone();
        assert_eq!(
            (reply.status, &error["param"], &error["type"]),
            (400, &json!(param), &json!("invalid_request_error"))
        );
        let message = error["message"].as_str().unwrap();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    refused(json!(prompt), json!({"max_tokens": 11}), "max_tokens", &["11", "90 tokens", "100", "at most 10"]);
    refused(json!(prompt), json!({}), "max_tokens", &["is 16", "at most 10"]);
    refused(json!(["a", "b".repeat(86)]), json!({}), "max_tokens", &["at most 13"]);
    refused(json!("x".repeat(99)), json!({"max_tokens": 1}), "prompt", &["100 tokens"]);
    refused(json!(["a", vec![BOS; 100]]), json!({"max_tokens": 1}), "prompt[1]", &["100 tokens"]);
    refused(json!(["a", "x".repeat(1_000_000)]), json!({}), "prompt[1]", &["1000000 bytes", "100 tokens"]);
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let (proxy, _folder) = proxy();
    let many = vec!["x"; 69];
    let cases = [
        (json!({"model": MODEL}), "prompt"),
        (ask("x", json!({"suffix": "y"})), "suffix"),
        (ask("x", json!({"best_of": 2})), "best_of"),
        (ask("x", json!({"echo": true, "logprobs": 1})), "echo"),
        (ask("x", json!({"logprobs": 6})), "logprobs"),
        (ask(vec![128], json!({})), "prompt[0]"),
        (ask(many, json!({})), "prompt"),
        (ask(json!(["x", "y"]), json!({"n": 35})), "n"),
        (ask(json!(["x", "y"]), json!({"n": 65})), "n"),
        (ask("x", json!({"messages": [{"role": "user", "content": "x"}]})), "messages"),
    ];
    for (body, param) in &cases {
        let reply = proxy.client().ask(post(body));
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (400, &json!(param)), "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    let exchanges = proxy.finished(cases.len());
    assert!(exchanges.iter().all(|exchange| exchange.outcome.label() == "rejected"));
}

/// A model without a tokenizer takes text by its bytes, and tokens as they are.
#[test]
fn random_weights_complete_too() {
    let proxy = start(&dummy(""));
    let of = |prompt: Value| {
        let mut body = ask(prompt, json!({"max_tokens": 5, "ignore_eos": true}));
        body["model"] = "llama-2-x".into();
        whole(&proxy, &body)
    };
    let (string, ids) = (of(json!("Hi")), of(json!([3 + u32::from(b'H'), 3 + u32::from(b'i')])));
    assert_eq!((&string["choices"], &string["usage"]), (&ids["choices"], &ids["usage"]));
    assert_eq!(string["usage"]["prompt_tokens"], 2);
}

#[test]
fn who_leaves_frees_the_slots_of_all_prompts() {
    let (config, _folder) = wide("max_sequences = 2\nmax_queue = 4");
    let proxy = start(&config);
    let mut body = ask(json!(["a", "b", "c"]), json!({"max_tokens": 40_000, "ignore_eos": true, "stream": true}));
    body["model"] = "llama-2-x".into();
    let mut client = proxy.client();
    client.send(post(&body));
    client.until(b"\"text\":\" ").unwrap();
    eventually("two run and one waits", || (slots(&proxy) == 2.0 && waiting(&proxy) == 1.0).then_some(()));
    drop(client);
    eventually("every slot is free", || (slots(&proxy) == 0.0 && waiting(&proxy) == 0.0).then_some(()));
    assert!(proxy.outcome(1).starts_with("client_cancel"));
}
