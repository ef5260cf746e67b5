//! The same for text completions and Anthropic's messages: what is asked of the upstream, and what the client gets.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{Client, Ended, Reply};
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::{Conn, Upstream};
use crate::{MEASURED, USAGE, last, post_to};

const COMPLETIONS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const COMPLETION: &str = r#"{"model":"m","prompt":"one two"}"#;
const MESSAGE: &str = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"one two"}]}"#;

/// What asking for a stream makes of them.
const COMPLETION_ASKED: &str =
    r#"{"stream":true,"stream_options":{"include_usage":true},"model":"m","prompt":"one two"}"#;
const MESSAGE_ASKED: &str =
    r#"{"stream":true,"model":"m","max_tokens":9,"messages":[{"role":"user","content":"one two"}]}"#;

/// An event of a completion's stream: its choices, and what stands beside them.
fn text_event(choices: &str, more: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"object\":\"text_completion\",\"created\":7,\"model\":\"m-1\",\"choices\":[{choices}]{more}}}\n\n"
    )
}

fn text(index: u32, text: &str, finish: &str) -> String {
    text_event(&format!(r#"{{"text":"{text}","index":{index},"logprobs":null,"finish_reason":{finish}}}"#), "")
}

const TEXT_USAGE: &str = r#","usage":{"prompt_tokens":4,"completion_tokens":2}"#;
const DONE: &str = "data: [DONE]\n\n";

/// A completion's stream, and the whole reply it is the parts of.
fn completion() -> (String, Value) {
    let events = [text(0, "a ", "null"), text(0, "b", r#""stop""#), text_event("", TEXT_USAGE), DONE.to_owned()];
    let whole = json!({
        "id": "c1", "object": "text_completion", "created": 7, "model": "m-1",
        "choices": [{"text": "a b", "index": 0, "logprobs": null, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 2},
    });
    (events.concat(), whole)
}

/// An event of a message's stream, named as Anthropic names them.
fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().expect("a type"))
}

fn start() -> String {
    event(&json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 4, "output_tokens": 1},
    }}))
}

fn block(index: u32, began: &Value, deltas: &[Value]) -> String {
    let start = event(&json!({"type": "content_block_start", "index": index, "content_block": began}));
    let delta = |delta| event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
    let stop = event(&json!({"type": "content_block_stop", "index": index}));
    start + &deltas.iter().map(delta).collect::<String>() + &stop
}

fn word(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

fn stop(reason: &str) -> String {
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 3}});
    event(&delta) + &event(&json!({"type": "message_stop"}))
}

fn message_of(content: &Value, reason: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": content,
        "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 4, "output_tokens": 3},
    })
}

/// A message's stream, and the whole reply it is the parts of.
fn message() -> (String, Value) {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let said = block(0, &json!({"type": "text", "text": ""}), &[word("a "), word("b")]);
    let whole = message_of(&json!([{"type": "text", "text": "a b"}]), "end_turn");
    ([&*start(), ping, &said, &stop("end_turn")].concat(), whole)
}

/// An upstream that answers its requests, one after the other on one connection, with these streams.
fn streaming(streams: &[String]) -> (SocketAddr, thread::JoinHandle<Vec<String>>) {
    let upstream = Upstream::bind();
    let addr = upstream.addr();
    let streams = streams.to_vec();
    let serve = move || {
        let mut conn = upstream.accept();
        let answer = |stream: &String| {
            let request = conn.request();
            send(&mut conn, stream);
            conn.end_stream();
            String::from_utf8(request.body).expect("UTF-8")
        };
        streams.iter().map(answer).collect()
    };
    (addr, thread::spawn(serve))
}

/// The head of a stream, and this much of it.
fn send(conn: &mut Conn, stream: &str) {
    conn.send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_1\r\n\
         transfer-encoding: chunked\r\n\r\n",
    );
    conn.send(format!("{:x}\r\n{stream}\r\n", stream.len()));
}

/// What is said of a failure, in the shape of the path's dialect, by its type and its message.
fn failure(path: &str, reply: &Reply) -> (String, String) {
    let json = reply.json();
    let error = &json["error"];
    let members = error.as_object().expect("an object");
    if path == MESSAGES {
        assert_eq!((&json["type"], members.len()), (&json!("error"), 2), "{json}");
    } else {
        assert_eq!((members.len(), json.as_object().map(serde_json::Map::len)), (4, Some(1)), "{json}");
    }
    let text = |name: &str| error[name].as_str().expect("text").to_owned();
    (text("type"), text("message"))
}

#[test]
fn a_whole_reply_is_made_of_the_stream_that_was_asked_for() {
    for (path, body, asked, (stream, whole)) in [
        (COMPLETIONS, COMPLETION, COMPLETION_ASKED, completion()),
        ("/api/v1/completions/", COMPLETION, COMPLETION_ASKED, completion()),
        (MESSAGES, MESSAGE, MESSAGE_ASKED, message()),
        ("/messages", MESSAGE, MESSAGE_ASKED, message()),
    ] {
        let (addr, served) = streaming(&[stream]);
        let proxy = Proxy::before(addr, MEASURED);
        let reply = proxy.client().ask(post_to(path, &[("accept-encoding", "gzip")], body));
        assert_eq!((reply.status, reply.ended, reply.json()), (200, Ended::Complete, whole), "{path}");
        assert_eq!(
            (reply.header("content-type"), reply.header("request-id")),
            (Some("application/json"), Some("req_1"))
        );
        assert_eq!(reply.header("content-length"), Some(&*reply.body.len().to_string()));
        assert_eq!(served.join().expect("served"), [asked], "{path}");
    }
}

#[test]
fn the_whole_is_what_the_simulation_would_have_said() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), MEASURED);
    let (mut direct, mut client) = (Client::connect(sim.addr()), proxy.client());
    let tools = r#""tools":[{"name":"level","input_schema":{}}],"#;
    for (path, body, shape, more) in [
        (COMPLETIONS, COMPLETION, "role_first=1", ""),
        (COMPLETIONS, COMPLETION, "tokens_per_event=3", r#""n":3,"#),
        (COMPLETIONS, COMPLETION, "hidden=2", r#""max_tokens":4,"stream":false,"#),
        (MESSAGES, MESSAGE, "", ""),
        (MESSAGES, MESSAGE, "reasoning=5,tokens_per_event=2", r#""stream":false,"#),
        (MESSAGES, MESSAGE, "tool=1", tools),
        (MESSAGES, MESSAGE, "tool=1,reasoning=3", tools),
        (MESSAGES, MESSAGE, "refusal=1", r#""stream":null,"#),
        (MESSAGES, &MESSAGE.replace("\"max_tokens\":9", "\"max_tokens\":4"), "tool=1", tools),
        (MESSAGES, MESSAGE, "events_per_write=50,hidden=7", ""),
    ] {
        let header = format!("request=r,ttft_ms=2,itl_ms=0,tokens=9,{shape}");
        let request = post_to(path, &[("x-sim", &header)], &body.replacen('{', &format!("{{{more}"), 1));
        let (expected, got) = (direct.ask(&request), client.ask(&request));
        let asked: Value = serde_json::from_slice(&last(&sim).request.body).expect("JSON");
        assert_eq!(asked["stream"], true, "{shape}");
        let comparable = |reply: &Reply| {
            assert_eq!((reply.status, reply.ended), (200, Ended::Complete), "{reply:?}");
            let mut json = reply.json();
            if path == COMPLETIONS {
                json["created"].take();
            }
            json
        };
        assert_eq!(comparable(&got), comparable(&expected), "{shape} {more}");
        for name in ["content-type", "x-request-id", "request-id"] {
            assert_eq!(got.header(name), expected.header(name), "{name}");
        }
        assert_eq!(got.header("content-length"), Some(&*got.body.len().to_string()));
    }
    proxy.idle_scrape();
}

#[test]
fn what_is_measured_is_real() {
    let sim = sim();
    for (path, body, operation) in [(COMPLETIONS, COMPLETION, "completion"), (MESSAGES, MESSAGE, "messages")] {
        let proxy = Proxy::before(sim.addr(), MEASURED);
        let reply = proxy.client().ask(post_to(path, &[("x-sim", "ttft_ms=300,itl_ms=4,tokens=9")], body));
        assert_eq!(reply.status, 200);
        let exchange = proxy.finished(1).pop().expect("one");
        assert_eq!((exchange.outcome.label(), exchange.stream, exchange.operation), ("ok", Some(false), operation));
        assert_eq!((exchange.token_events, exchange.output.map(|output| output.count)), (9, Some(9)), "{path}");
        let marks = &exchange.marks;
        // Late to note what it sent, a busy machine shortens it.
        assert!(marks.ttft_upstream().expect("a TTFT") >= Duration::from_millis(100) && exchange.tpot().is_some());
        // The client got no token before the last.
        assert_eq!((marks.ttft_client(), exchange.tgs()), (None, None));
        let scrape = proxy.idle_scrape();
        let of = [("operation", operation)];
        assert_eq!(scrape.sum("time_to_first_token_seconds_count", &of), 1.0);
        assert_eq!(scrape.sum("inter_token_latency_seconds_count", &of), 8.0);
        assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[("source", "usage")]), 1.0);
        assert_eq!(scrape.sum("stream_anomalies_total", &[]), 0.0);
    }
}

#[test]
fn choices_tools_and_thinking_come_whole() {
    let two = [text(1, "x", "null"), text(0, "a", r#""length""#), text(1, "y", r#""stop""#), DONE.to_owned()].concat();
    let choice = |text: &str, index: u32, reason: &str| json!({"text": text, "index": index, "logprobs": null, "finish_reason": reason});
    let choices = json!([choice("a", 0, "length"), choice("xy", 1, "stop")]);
    let (addr, served) = streaming(&[two]);
    let body = COMPLETION.replacen('{', r#"{"n":2,"#, 1);
    let reply = Proxy::before(addr, MEASURED).client().ask(post_to(COMPLETIONS, &[], &body));
    assert_eq!(reply.json()["choices"], choices);
    served.join().expect("served");

    let thinking = [
        json!({"type": "thinking_delta", "thinking": "h"}),
        json!({"type": "thinking_delta", "thinking": "m"}),
        json!({"type": "signature_delta", "signature": "c2ln"}),
    ];
    let input = |part: &str| json!({"type": "input_json_delta", "partial_json": part});
    let tool = json!({"type": "tool_use", "id": "t", "name": "level", "input": {}});
    let stream = [
        start(),
        block(0, &json!({"type": "thinking", "thinking": "", "signature": ""}), &thinking),
        block(1, &json!({"type": "text", "text": ""}), &[word("I look.")]),
        block(2, &tool, &[input(""), input(r#"{"river":"#), input(r#" "Rhine"}"#)]),
        stop("tool_use"),
    ];
    let content = json!([
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t", "name": "level", "input": {"river": "Rhine"}},
    ]);
    let (addr, served) = streaming(&[stream.concat()]);
    let reply = Proxy::before(addr, MEASURED).client().ask(post_to(MESSAGES, &[], MESSAGE));
    assert_eq!(reply.json(), message_of(&content, "tool_use"));
    served.join().expect("served");
}

#[test]
fn a_stream_that_does_not_end_well_is_told_in_the_clients_dialect() {
    let begun = |path: &str| if path == MESSAGES { start() } else { text(0, "a", "null") };
    let busy = |path: &str| {
        let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
        if path == MESSAGES { event(&error) } else { format!("data: {error}\n\n") }
    };
    for (path, body) in [(COMPLETIONS, COMPLETION), (MESSAGES, MESSAGE)] {
        let (addr, served) = streaming(&[begun(path) + &busy(path), busy(path), begun(path)]);
        let proxy = Proxy::before(addr, MEASURED);
        let mut client = proxy.client();
        let mut ask = || client.ask(post_to(path, &[], body));
        for count in 1..=2 {
            let reply = ask();
            let told = ("overloaded_error".to_owned(), "Overloaded".to_owned());
            // Of messages it is the status that the whole reply would have had.
            let status = if path == MESSAGES { 529 } else { 502 };
            assert_eq!((reply.status, failure(path, &reply)), (status, told), "{path}");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(proxy.outcome(count), "inband_error", "{path}");
        }
        let reply = ask();
        let (kind, message) = failure(path, &reply);
        assert_eq!((reply.status, proxy.outcome(3)), (502, "truncated"), "{path}");
        assert_eq!(kind, if path == MESSAGES { "api_error" } else { "upstream_error" });
        assert!(
            message.contains("upstream \"up\" (http://127.0.0.1:") && message.contains("ended before the answer did")
        );
        served.join().expect("served");
    }
}

#[test]
fn a_messages_error_has_the_status_of_its_type() {
    let cases = [
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("request_too_large", 413),
        ("rate_limit_error", 429),
        ("api_error", 502),
        ("timeout_error", 504),
        ("overloaded_error", 529),
        ("some_error", 502),
    ];
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "r"});
    let streams = cases.map(|(kind, _)| start() + &event(&error(kind)));
    // What is an error in another shape says nothing of a status.
    let foreign = json!({"error": {"type": "rate_limit_error", "message": "no"}});
    let (addr, served) = streaming(&[&streams[..], &[format!("data: {foreign}\n\n")]].concat());
    let proxy = Proxy::before(addr, MEASURED);
    let mut client = proxy.client();
    let mut ask = || client.ask(post_to(MESSAGES, &[], MESSAGE));
    for (count, (kind, status)) in (1..).zip(cases) {
        let reply = ask();
        assert_eq!((reply.status, reply.json()), (status, error(kind)));
        assert_eq!(proxy.outcome(count), "inband_error", "{kind}");
    }
    assert_eq!(ask().status, 502);
    served.join().expect("served");
    // In a completion's stream it is not what its whole reply would have said.
    let told = error("rate_limit_error");
    let (addr, served) = streaming(&[format!("data: {told}\n\n")]);
    let reply = Proxy::before(addr, MEASURED).client().ask(post_to(COMPLETIONS, &[], COMPLETION));
    assert_eq!(reply.status, 502);
    served.join().expect("served");
}

#[test]
fn what_is_too_large_to_be_put_together_is_told_in_the_clients_dialect() {
    let large = "x".repeat(1 << 20);
    for (path, body, part) in [
        (COMPLETIONS, COMPLETION, text(0, &large, "null")),
        (MESSAGES, MESSAGE, block(0, &json!({"type": "text", "text": ""}), &[word(&large)])),
    ] {
        let upstream = Upstream::bind();
        let proxy = Proxy::before(upstream.addr(), MEASURED);
        let mut client = proxy.client();
        client.send(post_to(path, &[], body));
        let mut conn = upstream.accept();
        conn.request();
        send(&mut conn, &part);
        let sending = thread::spawn(move || {
            let chunk = format!("{:x}\r\n{part}\r\n", part.len());
            let _ = (0..20).take_while(|_| conn.try_send(&chunk)).count();
        });
        let reply = client.reply();
        let (_, message) = failure(path, &reply);
        assert!(reply.status == 502 && message.contains("larger than 16777216 bytes"), "{path} {message}");
        sending.join().expect("sent");
    }
}

#[test]
fn a_client_that_leaves_takes_its_upstream_along() {
    for (path, body, begun) in [(COMPLETIONS, COMPLETION, ": ping\n\n".to_owned()), (MESSAGES, MESSAGE, start())] {
        let upstream = Upstream::bind();
        let proxy = Proxy::before(upstream.addr(), MEASURED);
        let mut client = proxy.client();
        client.send(post_to(path, &[], body));
        let mut conn = upstream.accept();
        conn.request();
        send(&mut conn, &begun);
        drop(client);
        conn.closed_by_peer();
        assert_eq!(proxy.outcome(1), "client_cancel_before_token", "{path}");
        proxy.idle_scrape();
    }
}

#[test]
fn usage_of_completions_is_asked_for_and_taken_out_again() {
    let asked = |usage: &str| {
        let with = |event: String| event.replace("}\n\n", &format!("{usage}}}\n\n"));
        [with(text(0, "a ", "null")), ": ping\n\n".to_owned(), with(text(0, "b", r#""stop""#))].concat()
    };
    let stream = asked(",\"usage\":null") + &text_event("", TEXT_USAGE) + DONE;
    let never_asked = asked("") + DONE;
    let body = COMPLETION.replacen('{', r#"{"stream":true,"#, 1);
    let says = body.replacen('{', r#"{"stream_options":{"include_usage":true},"#, 1);
    let (addr, served) = streaming(&[stream.clone(), stream.clone()]);
    let proxy = Proxy::before(addr, USAGE);
    let mut client = proxy.client();
    let reply = client.ask(post_to(COMPLETIONS, &[], &body));
    assert_eq!((String::from_utf8_lossy(&reply.body), reply.ended), (never_asked.into(), Ended::Complete));
    let exchange = proxy.finished(1).pop().expect("one");
    assert_eq!(exchange.usage.and_then(|usage| usage.output), Some(2));
    assert_eq!(exchange.output.map(|output| (output.count, output.source.label())), Some((2, "usage")));
    // Who asked keeps it.
    assert_eq!(String::from_utf8_lossy(&client.ask(post_to(COMPLETIONS, &[], &says)).body), stream);
    assert_eq!(served.join().expect("served"), [&*says, &*says]);
}

#[test]
fn usage_of_messages_and_responses_is_never_asked_for() {
    let both = format!("{USAGE}\n{MEASURED}");
    let streamed = MESSAGE.replacen('{', r#"{"stream":true,"#, 1);
    let (addr, served) = streaming(&[message().0]);
    let reply = Proxy::before(addr, &both).client().ask(post_to(MESSAGES, &[], &streamed));
    assert_eq!(String::from_utf8_lossy(&reply.body), message().0);
    assert_eq!(served.join().expect("served"), [streamed]);

    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), &both);
    let mut client = proxy.client();
    let mut conn: Option<Conn> = None;
    for (path, body) in [
        ("/v1/responses", r#"{"model":"m","input":"one"}"#),
        ("/v1/responses", r#"{"model":"m","input":"one","stream":true}"#),
        ("/v1/embeddings", r#"{"model":"m","input":"one"}"#),
        ("/v1/rerank", r#"{"model":"m","query":"q","documents":["a"]}"#),
    ] {
        client.send(post_to(path, &[], body));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        assert_eq!(String::from_utf8_lossy(&conn.request().body), body);
        conn.answer("{}");
        assert_eq!(client.reply().body, b"{}");
    }
}

#[test]
fn what_cannot_be_altered_or_streamed_is_asked_for_as_it_was_written() {
    let best = COMPLETION.replacen('{', r#"{"best_of":3,"#, 1);
    let of_prompt = COMPLETION.replacen('{', r#"{"prompt_logprobs":1,"#, 1);
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), MEASURED);
    let mut client = proxy.client();
    let mut conn: Option<Conn> = None;
    for (path, header, body) in [
        (COMPLETIONS, "x-tt-sign", COMPLETION),
        (COMPLETIONS, "idempotency-key", COMPLETION),
        (MESSAGES, "x-tt-sign", MESSAGE),
        (MESSAGES, "content-digest", MESSAGE),
        (COMPLETIONS, "x-mine", &best),
        (COMPLETIONS, "x-mine", &of_prompt),
        ("/v1/chat/completions", "x-mine", &of_prompt),
    ] {
        client.send(post_to(path, &[(header, "s")], body));
        let conn = conn.get_or_insert_with(|| upstream.accept());
        assert_eq!(String::from_utf8_lossy(&conn.request().body), body, "{header}");
        conn.answer("{}");
        assert_eq!(client.reply().body, b"{}");
    }
}

/// Asks for a whole reply on each of these paths in turn, and returns which requests asked for a stream.
fn asked_for_streams(client: &mut Client, conn: &mut Conn, asks: &[(&str, &str)], stream: &str) -> Vec<bool> {
    let ask = |(path, model): &(&str, &str)| {
        let body = if *path == MESSAGES { MESSAGE } else { COMPLETION };
        client.send(post_to(path, &[], &body.replace("\"m\"", &format!("{model:?}"))));
        let request = String::from_utf8(conn.request().body).expect("UTF-8");
        let asked = request.contains("\"stream\":true");
        if asked {
            send(conn, stream);
            conn.end_stream();
        } else {
            conn.answer("{}");
        }
        assert_eq!(client.reply().status, 200);
        asked
    };
    asks.iter().map(ask).collect()
}

#[test]
fn streams_without_usage_say_nothing_of_a_model_where_usage_was_not_asked_for() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), MEASURED);
    let mut client = proxy.client();
    // The first connection is opened by the first request.
    client.send(post_to(COMPLETIONS, &[], COMPLETION));
    let mut conn = upstream.accept();
    conn.request();
    send(&mut conn, &[text(0, "a", r#""stop""#), DONE.to_owned()].concat());
    conn.end_stream();
    assert_eq!(client.reply().json()["choices"][0]["text"], "a");
    let completions = [(COMPLETIONS, "m"), (COMPLETIONS, "other")];
    let stream = [text(0, "a", r#""stop""#), text_event("", TEXT_USAGE), DONE.to_owned()].concat();
    assert_eq!(asked_for_streams(&mut client, &mut conn, &completions, &stream), [false, true]);
    let whole = json!({"type": "message", "content": [], "stop_reason": "end_turn"});
    let stream = format!("data: {whole}\n\n");
    assert_eq!(asked_for_streams(&mut client, &mut conn, &[(MESSAGES, "m"); 3], &stream), [true; 3]);
}

#[test]
fn a_refusal_is_answered_by_asking_as_the_client_wrote_it() {
    const REFUSAL: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no streams"}}"#;
    for (path, body, asked) in [(COMPLETIONS, COMPLETION, COMPLETION_ASKED), (MESSAGES, MESSAGE, MESSAGE_ASKED)] {
        let upstream = Upstream::bind();
        let proxy = Proxy::before(upstream.addr(), MEASURED);
        let mut client = proxy.client();
        client.send(post_to(path, &[], body));
        let mut conn = upstream.accept();
        for _ in 0..3 {
            assert_eq!(String::from_utf8_lossy(&conn.request().body), asked);
            conn.send(format!(
                "HTTP/1.1 400 No\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n\
                 {REFUSAL}",
                REFUSAL.len()
            ));
            conn = upstream.accept();
            assert_eq!(String::from_utf8_lossy(&conn.request().body), body);
            conn.answer("{}");
            assert_eq!(client.reply().body, b"{}", "{path}");
            client.send(post_to(path, &[], body));
        }
        assert_eq!(
            String::from_utf8_lossy(&conn.request().body),
            body,
            "after three refusals it is not asked any more"
        );
        conn.answer("{}");
        assert_eq!(client.reply().body, b"{}", "{path}");
    }
}
