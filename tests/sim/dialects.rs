//! Every dialect over real sockets: the same schedule, the same log, and errors in the shape of the house.

use super::*;

pub(super) const RESPONSES: &str = r#"{"model":"m","stream":true,"input":"one two three"}"#;
pub(super) const MESSAGES: &str =
    r#"{"model":"m","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"one two three"}]}"#;
pub(super) const COMPLETIONS: &str =
    r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"prompt":"one two three"}"#;

/// Every dialect with streams: its path, and a request for one.
const STREAMS: [(&str, &str); 4] = [
    ("/v1/chat/completions", STREAM),
    ("/v1/completions", COMPLETIONS),
    ("/v1/responses", RESPONSES),
    ("/v1/messages?beta=true", MESSAGES),
];

pub(super) fn post(path: &str, sim: &str, body: &str) -> String {
    chat(sim, body).replace("/v1/chat/completions", path)
}

/// The data of every event that is JSON, whatever stands beside it.
fn events(reply: &client::Reply) -> Vec<Value> {
    let body = std::str::from_utf8(&reply.body).expect("UTF-8");
    let data = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

#[test]
fn token_events_are_due_at_the_same_instants_in_every_dialect() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let shape =
        "ttft_ms=30,itl_ms=1.5,tokens=11,tokens_per_event=2,reasoning=3,tail_ms=7,prompt_ms=1,events_per_write=2";
    for (path, body) in STREAMS {
        let reply = client.ask(post(path, &format!("request={path},{shape}"), body));
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")), "{path}");
    }
    let log = log_of(&sim, 4);
    for (path, _) in STREAMS {
        let ours: Vec<Entry> = log.iter().filter(|entry| &*entry.request == path).cloned().collect();
        let arrived = of_kind(&ours, Kind::Request)[0].at_ns;
        let mut due = Vec::new();
        for entry in ours.iter().filter(|entry| matches!(entry.kind, Kind::Token | Kind::Reasoning)) {
            due.extend(vec![entry.due_ns - arrived; entry.tokens as usize]);
        }
        // Two events of two tokens leave together, three words of prompt and 30 ms after the request.
        let expected: Vec<u64> = (0..11).map(|token| 33_000_000 + token / 4 * 3_000_000).collect();
        assert_eq!(due, expected, "{path}");
        let finish = of_kind(&ours, Kind::Finish);
        assert_eq!((finish.len(), finish[0].due_ns - arrived), (1, 33_000_000 + 5 * 1_500_000 + 7_000_000), "{path}");
        for pair in ours.windows(2) {
            assert!(pair[0].at_ns <= pair[1].at_ns && pair[1].due_ns <= pair[1].at_ns, "{path}: {pair:?}");
        }
        let numbers: Vec<u32> = ours.iter().filter_map(|entry| entry.event).collect();
        assert_eq!(numbers, (0..u32::try_from(numbers.len()).expect("few")).collect::<Vec<_>>(), "{path}");
    }
}

#[test]
fn the_log_has_one_entry_for_each_event_on_the_wire() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    for (number, (path, body)) in STREAMS.into_iter().enumerate() {
        for (shape, extra) in ["", ",role_first=1", ",tool=1,reasoning=2", ",error_after=4"].into_iter().zip(0..) {
            let name = format!("{number}-{extra}");
            let reply = client.ask(post(path, &format!("request={name},ttft_ms=1,itl_ms=0,tokens=9{shape}"), body));
            let wire = std::str::from_utf8(&reply.body).expect("UTF-8").split_terminator("\n\n").count();
            let log = log_of(&sim, (number * 4 + extra + 1) as u64);
            let logged = log.iter().filter(|entry| *entry.request == name && entry.event.is_some()).count();
            assert_eq!(wire, logged, "{path} {shape}");
        }
    }
}

#[test]
fn what_begins_a_reply_leaves_with_the_first_token_or_right_after_the_head() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    for path in ["/v1/responses", "/v1/messages"] {
        let body = if path == "/v1/messages" { MESSAGES } else { RESPONSES };
        for (role_first, name) in [(0, format!("{path}-0")), (1, format!("{path}-1"))] {
            let shape = format!("request={name},head_ms=2,ttft_ms=20,itl_ms=1,tokens=2,role_first={role_first}");
            client.ask(post(path, &shape, body));
            let log = eventually("the reply is logged", || {
                let ours: Vec<_> = sim.entries().into_iter().filter(|entry| *entry.request == name).collect();
                ours.iter().any(|entry| entry.kind == Kind::Finish).then_some(ours)
            });
            let arrived = of_kind(&log, Kind::Request)[0].at_ns;
            let (first, part) = (of_kind(&log, Kind::Role)[0], of_kind(&log, Kind::Part));
            let token = of_kind(&log, Kind::Token)[0];
            let expected = if role_first == 1 { 2_000_000 } else { 20_000_000 };
            assert_eq!(first.due_ns - arrived, expected, "{name}");
            // What opens the part the token belongs to shares its write.
            let opening = part.iter().rfind(|entry| entry.event < token.event).expect("an opening");
            assert_eq!((opening.at_ns, token.due_ns - arrived), (token.at_ns, 20_000_000), "{name}");
        }
    }
}

#[test]
fn a_whole_reply_says_what_its_stream_said() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let shape = "request=a,ttft_ms=1,itl_ms=0,tokens=12,reasoning=4,tokens_per_event=3";
    let whole = |client: &mut Client, path: &str, body: &str| {
        client.ask(post(path, shape, &body.replace("\"stream\":true", "\"stream\":false"))).json()
    };
    let completion = whole(&mut client, "/v1/completions", COMPLETIONS);
    assert_eq!(
        (&completion["choices"][0]["text"], &completion["usage"]["prompt_tokens"]),
        (&json!(text(12)), &json!(3))
    );
    let streamed = client.ask(post("/v1/completions", shape, COMPLETIONS));
    let joined: String =
        events(&streamed).iter().filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!((joined, streamed.is_done()), (text(12), true));

    let message = whole(&mut client, "/v1/messages", MESSAGES);
    assert_eq!(
        (&message["content"][0]["thinking"], &message["content"][1]["text"]),
        (&json!(text_of(0, 0..4)), &json!(text_of(0, 4..12)))
    );
    let streamed = client.ask(post("/v1/messages", shape, MESSAGES));
    assert_eq!((streamed.header("request-id"), streamed.header("x-request-id")), (Some("a"), Some("a")));
    let joined: String =
        events(&streamed).iter().filter_map(|event| event["delta"]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(joined, text_of(0, 4..12));

    let response = whole(&mut client, "/v1/responses", RESPONSES);
    let streamed = client.ask(post("/v1/responses", shape, RESPONSES));
    let last = events(&streamed).pop().expect("an end");
    assert_eq!((&last["response"]["output"], &last["response"]["usage"]), (&response["output"], &response["usage"]));
    assert_eq!(response["output"][1]["content"][0]["text"], text_of(0, 4..12));
    assert_eq!(streamed.header("request-id"), None);
}

#[test]
fn other_endpoints_answer_at_ttft() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    let embeddings = client.ask(post("/v1/embeddings", "ttft_ms=5", r#"{"model":"m","input":["a b","c"]}"#)).json();
    assert_eq!(
        (embeddings["data"].as_array().map(Vec::len), &embeddings["usage"]["total_tokens"]),
        (Some(2), &json!(3))
    );
    let ranking = r#"{"model":"m","query":"b","documents":["a","b"],"top_n":1}"#;
    assert_eq!(client.ask(post("/v1/rerank", "ttft_ms=5", ranking)).json()["results"][0]["index"], 1);
    let counted = client.ask(post("/v1/messages/count_tokens?beta=true", "ttft_ms=5", MESSAGES));
    assert_eq!(
        (counted.json(), counted.header("request-id")),
        (json!({"input_tokens": 3}), counted.header("x-request-id"))
    );
    for body in of_kind(&log_of(&sim, 3), Kind::Body) {
        let arrived = sim.entries().into_iter().find(|entry| entry.request == body.request).expect("a request").at_ns;
        assert_eq!(body.due_ns - arrived, 5_000_000);
    }
    assert_eq!(client.get("/v1/responses/resp_1").json()["status"], "completed");
    assert_eq!(client.ask(post("/v1/responses/resp_1/cancel", "", "")).json()["status"], "cancelled");
    client.send("DELETE /v1/responses/resp_1 HTTP/1.1\r\n\r\n");
    assert_eq!(client.reply().json(), json!({"id": "resp_1", "object": "response", "deleted": true}));
}

#[test]
fn errors_have_the_shape_of_the_house_the_path_belongs_to() {
    let sim = sim();
    let mut client = Client::connect(sim.addr());
    for (path, body) in
        STREAMS.into_iter().chain([("/v1/embeddings", "{}"), ("/v1/rerank", "{}"), ("/v1/messages/count_tokens", "{}")])
    {
        let anthropic = path.contains("messages");
        let mut mistakes = vec![
            (client.ask(post(path, "wat=1", body)), 400, "invalid_request_error"),
            (client.ask(post(path, "", "{")), 400, "invalid_request_error"),
            (client.get(path), 405, "invalid_request_error"),
        ];
        if body != "{}" {
            let kind = if anthropic { "api_error" } else { "server_error" };
            mistakes.push((client.ask(post(path, "ttft_ms=1,status=500", body)), 500, kind));
            mistakes.push((client.ask(post(path, "ttft_ms=1,status=429", body)), 429, "rate_limit_error"));
        }
        for (reply, status, kind) in mistakes {
            let error = reply.json();
            assert_eq!((reply.status, &error["error"]["type"]), (status, &json!(kind)), "{path}: {error}");
            assert!(error["error"]["message"].is_string());
            assert_eq!(error["type"] == "error", anthropic, "{path}: {error}");
            let id = anthropic.then(|| reply.header("request-id")).flatten();
            assert_eq!((error["request_id"].as_str(), reply.header("request-id")), (id, id), "{path}");
        }
    }
    for (path, kind) in [("/v1/messages/batches", "not_found_error"), ("/v1/audio", "invalid_request_error")] {
        let reply = client.get(path);
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (404, &json!(kind)));
    }
}

#[test]
fn ends_and_scripts_are_the_same_in_every_dialect() {
    let script = Script::sending("data: mine\n\n");
    let scripts = Scripts { named: [("s".to_owned(), script)].into(), ..Scripts::default() };
    let sim = start(SimConfig { scripts, ..SimConfig::default() });
    for (path, body) in STREAMS {
        let mut client = Client::connect(sim.addr());
        let named = body.replace("\"m\"", "\"script:s\"");
        assert_eq!(client.ask(post(path, "", &named)).body, b"data: mine\n\n", "{path}");
        assert_eq!(client.ask(post(path, "script=s", body)).body, b"data: mine\n\n", "{path}");
        let end = |end: &str| {
            Client::connect(sim.addr()).ask(post(path, &format!("ttft_ms=1,itl_ms=1,tokens=3,{end}"), body))
        };
        assert_eq!(end("end=rst").ended, Ended::Reset, "{path}");
        assert_eq!(end("end=fin").ended, Ended::Fin, "{path}");
        let cut = end("end=truncate");
        assert_eq!(cut.ended, Ended::Complete, "{path}");
        let over = String::from_utf8(cut.body).expect("UTF-8");
        assert!(
            !["[DONE]", "stop_reason\":\"", "response.completed"].iter().any(|mark| over.contains(mark)),
            "{path}: {over}"
        );
        let old =
            Client::connect(sim.addr()).ask(post(path, "ttft_ms=1,tokens=1", body).replace("HTTP/1.1", "HTTP/1.0"));
        assert_eq!((old.header("transfer-encoding"), events(&old).is_empty()), (None, false), "{path}");
    }
}
