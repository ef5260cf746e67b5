//! The dialects beside chat completions: which are answered, how that is read, and which must be.

use serde_json::{Value, json as value};

use crate::support::process::ConfigFile;
use crate::support::upstream::Request;
use crate::{
    Asked, FINISH, KEY, NOT_HERE, OPEN, TOKEN, check, check_with, cut_short, events, json, reply, run, up, upstream,
    upstream_but,
};

/// The three, each with who is lost without it.
const BESIDE_CHAT: [(Asked, &str, &str); 3] = [
    (
        Asked::Completions,
        "completions",
        "editors that fill in text, and other programs that complete plain text, need it",
    ),
    (Asked::Responses, "responses", "Codex needs it"),
    (Asked::Messages, "messages", "Claude Code needs it"),
];

/// One token in each dialect, as a stream.
fn streamed(asked: Asked) -> String {
    match asked {
        Asked::Completions => events(&[
            r#"{"object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":null}]}"#,
            r#"{"object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"length"}]}"#,
            "[DONE]",
        ]),
        Asked::Responses => named(&[
            value!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "model": "m"}}),
            value!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "a"}),
            value!({"type": "response.incomplete", "response": {"id": "r", "status": "incomplete", "model": "m",
                "incomplete_details": {"reason": "max_output_tokens"}, "usage": {"input_tokens": 8, "output_tokens": 1}}}),
        ]),
        Asked::Messages => named(&[
            value!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
                "content": [], "stop_reason": null, "usage": {"input_tokens": 8, "output_tokens": 1}}}),
            value!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            value!({"type": "ping"}),
            value!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}),
            value!({"type": "content_block_stop", "index": 0}),
            value!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 1}}),
            value!({"type": "message_stop"}),
        ]),
        Asked::Models | Asked::Chat | Asked::Stream | Asked::StreamWithUsage => crate::well(asked),
    }
}

/// A stream whose events are named by their `type`.
fn named(all: &[Value]) -> String {
    let mut body = String::new();
    for event in all {
        let (name, data) = (event["type"].as_str().expect("a type"), event.to_string());
        body.extend(["event: ", name, "\ndata: ", &data, "\n\n"]);
    }
    reply(200, "content-type: text/event-stream\r\n", &body)
}

/// An upstream that answers every dialect.
fn of_all() -> crate::Playing {
    upstream(|asked, _| Some(streamed(asked)))
}

/// The value of a header as the upstream saw it.
fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request
        .head
        .lines()
        .find_map(|line| line.split_once(": ").filter(|(known, _)| *known == name))
        .map(|(_, value)| value)
}

#[test]
fn what_is_answered_has_a_ttft_and_what_is_not_says_who_needs_it() {
    let all = of_all();
    let checked = check(&all.url(), "");
    checked.is_well();
    for (_, step, _) in BESIDE_CHAT {
        checked.says(step, "ok", "TTFT ", "");
        assert!(checked.step(step)["detail"].as_str().expect("text").ends_with(" ms"), "{}", checked.all);
        assert!(checked.step(step)["ms"].as_f64().expect("timed") > 0.0);
    }
    for (status, body) in [(404, NOT_HERE), (405, ""), (501, "<!doctype html><title>A model of a page</title>")] {
        let none = upstream(move |asked, _| {
            BESIDE_CHAT.iter().any(|(beside, ..)| *beside == asked).then(|| json(status, body))
        });
        let checked = check(&none.url(), "");
        checked.is_well();
        for (_, step, who) in BESIDE_CHAT {
            let advice = format!("{who}: route their models to a backend that answers it");
            checked.says(
                step,
                "note",
                &format!("not answered here ({status}): {}/v1/{step} answered", none.url()),
                &advice,
            );
        }
    }
}

#[test]
fn each_is_asked_as_its_own_clients_ask() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = seen.clone();
    let all = upstream(move |asked, request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let of = |name| header(request, name).map(str::to_owned);
        keep.lock().expect("whole").push((
            asked,
            body,
            [of("authorization"), of("x-api-key"), of("anthropic-version")],
        ));
        Some(streamed(asked))
    });
    check(&all.url(), "messages_auth = \"x-api-key\"").is_well();
    let seen = seen.lock().expect("whole");
    let bearer = Some(format!("Bearer {KEY}"));
    for (asked, body, headers) in seen.iter() {
        let expected = match asked {
            Asked::Messages => [None, Some(KEY.to_owned()), Some("2023-06-01".to_owned())],
            _ => [bearer.clone(), None, None],
        };
        assert_eq!(*headers, expected, "{asked:?}");
        match asked {
            Asked::Models | Asked::Chat | Asked::Stream | Asked::StreamWithUsage => {}
            Asked::Completions => assert_eq!((&body["max_tokens"], &body["prompt"]), (&value!(1), &value!("Hi"))),
            Asked::Responses => {
                assert_eq!((&body["max_output_tokens"], &body["store"]), (&value!(16), &value!(false)));
            }
            Asked::Messages => assert_eq!((&body["max_tokens"], &body["stream"]), (&value!(1), &value!(true))),
        }
    }
    assert_eq!(seen.len(), 7);
}

#[test]
fn a_dialect_that_must_be_answered_fails_the_check() {
    let chat = upstream(|_, _| None);
    let checked = check_with(&up(&chat.url(), ""), &["--dialect", "messages"], &[]);
    checked.failed_at("messages", "not answered here (404)", "Claude Code needs it");
    checked.says("responses", "note", "not answered here (404)", "Codex needs it");
    // Each is told, whatever became of the others.
    for flags in [&["--dialect", "completions", "--dialect", "messages"][..], &["--dialect", "completions,messages"]] {
        let checked = check_with(&up(&chat.url(), ""), flags, &[]);
        assert_eq!(
            (checked.code, &*checked.stderr),
            (Some(1), "error: 1 of 1 backends failed: see the advice above\n")
        );
        checked.says("completions", "failed", "not answered here (404)", "complete plain text");
        checked.says("responses", "note", "not answered here (404)", "Codex");
        checked.says("messages", "failed", "not answered here (404)", "Claude Code");
    }
    let all = of_all();
    let flags = ["--dialect", "chat,completions,responses,messages"];
    check_with(&up(&all.url(), ""), &flags, &[]).is_well();
    check_with(&up(&all.url(), ""), &[], &[("STREAMGAUGE_CHECK_DIALECT", "messages")]).is_well();
    let (code, out, err) = run(&["--dialect", "smoke"], &[]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("chat, completions, responses, messages"), "{err}");
}

#[test]
fn a_model_that_a_path_does_not_take_is_told_from_a_path_that_is_not_there() {
    for (status, words) in [
        (
            404,
            "This is a chat model and not supported in the v1/completions endpoint. Did you mean to use v1/chat/completions?",
        ),
        (404, "The model `gpt-4o` does not exist or you do not have access to it."),
        (400, "The model does not support this endpoint"),
        (503, "No available channel for model gpt-4o under group default"),
    ] {
        let refused = json(status, &value!({"error": {"message": words}}).to_string());
        for (asked, step, who) in BESIDE_CHAT {
            let upstream = upstream_but(asked, refused.clone());
            let checked = check(&upstream.url(), "");
            checked.is_well().says(
                step,
                "note",
                "\"gpt-4o\" is not taken at this path: ",
                "give --model with one that is",
            );
            checked.says(step, "note", &format!("\"{words}\""), who);
            let must = check_with(&up(&upstream.url(), ""), &["--dialect", step], &[]);
            must.says(step, "failed", "\"gpt-4o\" is not taken at this path", "--model");
        }
    }
    // What has nothing to do with a model is said as it is.
    let limited = upstream_but(Asked::Responses, json(429, r#"{"error":{"message":"slow down"}}"#));
    check(&limited.url(), "").is_well().says(
        "responses",
        "note",
        "429 Too Many Requests: \"slow down\"",
        "wait, or use",
    );
}

#[test]
fn a_key_that_messages_alone_refuse_is_sent_in_every_way() {
    const REFUSED: &str = r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#;
    /// An upstream whose messages are answered where the key stands in these headers.
    fn taking(bearer: bool, bare: bool) -> crate::Playing {
        upstream(move |asked, request| {
            let way = (header(request, "authorization").is_some(), header(request, "x-api-key").is_some());
            (asked == Asked::Messages).then(|| if way == (bearer, bare) { streamed(asked) } else { json(401, REFUSED) })
        })
    }
    for (configured, bearer, bare, advised) in [
        ("", true, false, "bearer"),
        ("", false, true, "x-api-key"),
        ("messages_auth = \"both\"", false, true, "x-api-key"),
        ("messages_auth = \"bearer\"", true, true, "both"),
        ("messages_auth = \"x-api-key\"", true, false, "bearer"),
    ] {
        let upstream = taking(bearer, bare);
        let checked = check(&upstream.url(), configured);
        let advice = format!("set messages_auth = \"{advised}\" in [backend.up]");
        checked.is_well().says("messages", "note", "401 Unauthorized: \"invalid x-api-key\"", &advice);
        check(&upstream.url(), &format!("messages_auth = \"{advised}\"")).is_well().says("messages", "ok", "TTFT", "");
    }
    let never = upstream_but(Asked::Messages, json(401, REFUSED));
    let checked = check(&never.url(), "");
    checked.is_well().says("messages", "note", "401", "is refused here however it is sent (messages_auth)");
    // A fault proves nothing of a key.
    let faulty = upstream(|asked, request| {
        let both = header(request, "authorization").is_some() && header(request, "x-api-key").is_some();
        (asked == Asked::Messages).then(|| json(if both { 401 } else { 500 }, REFUSED))
    });
    check(&faulty.url(), "").is_well().says("messages", "note", "401", "is refused here however it is sent");
    // Without a key there is nothing to be sent.
    let checked = check_with(&up(&never.url(), ""), &[], &[("UP_KEY", "")]);
    checked.is_well().says("messages", "note", "401", "no key was sent: set UP_KEY");
}

#[test]
fn what_comes_under_status_200_is_read_by_its_dialect() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"come back later"}}"#;
    for (asked, step, _) in BESIDE_CHAT {
        let says = |answer: String, detail: &str, advice: &str| {
            let upstream = upstream_but(asked, answer);
            check(&upstream.url(), "").is_well().says(step, "note", detail, advice);
            check_with(&up(&upstream.url(), ""), &["--dialect", step], &[]).says(step, "failed", detail, advice);
        };
        says(json(200, error), "it answered 200 with an error: \"come back later\"", "look for an error");
        let in_stream = reply(200, "content-type: text/event-stream\r\n", &format!("event: error\ndata: {error}\n\n"));
        says(in_stream, "the stream holds an error under status 200: \"come back later\"", "inband_error");
        says(json(200, "{\"status\":\"ready\"}"), "something else than a stream of events", "ask its operator");
        says(reply(200, "", "<html>console</html>"), "with a web page", "base_url names a web site");
        let whole = streamed(asked);
        let head = whole.find("\r\n\r\n").expect("a head") + 4;
        let first = whole[head..].split_inclusive("\n\n").take(if asked == Asked::Messages { 4 } else { 2 });
        let cut: String = first.filter(|event| !event.contains("finish_reason\":\"length")).collect();
        says(
            reply(200, "content-type: text/event-stream\r\n", &cut),
            "the stream ended without saying that it is over",
            "truncated",
        );
        says(events(&[TOKEN, FINISH, "[DONE]"]), "its stream is written as one of chat", "cannot read this");
        let unlabelled = reply(200, "content-type: text/plain\r\n", &whole[head..]);
        check(&upstream_but(asked, unlabelled).url(), "").is_well().says(
            step,
            "note",
            "it is not labelled text/event-stream",
            "one document",
        );
    }
    let swapped = upstream(|asked, _| match asked {
        Asked::Responses | Asked::Completions => Some(streamed(Asked::Messages)),
        Asked::Messages => Some(streamed(Asked::Responses)),
        _ => None,
    });
    let checked = check(&swapped.url(), "");
    checked.is_well().says(
        "responses",
        "note",
        "written as one of messages",
        "Codex needs it, and clients of responses",
    );
    checked.says("messages", "note", "written as one of responses", "Claude Code needs it");
    checked.says("completions", "note", "written as one of messages", "cannot read this");
}

#[test]
fn a_stream_that_has_said_its_last_word_is_not_waited_for() {
    let open = |reply: &str| format!("{}{OPEN}", cut_short(reply));
    let all = upstream(move |asked, _| match asked {
        Asked::Models | Asked::Chat => None,
        _ => Some(open(&streamed(asked))),
    });
    let checked = check(&all.url(), "");
    checked.is_well();
    for step in ["stream", "stream_options", "completions", "responses", "messages"] {
        let found = checked.step(step);
        // What waits for the connection waits a minute.
        assert!(found["ms"].as_f64().expect("timed") < 20_000.0, "{found}");
        assert!(!checked.all.contains("still answering"), "{}", checked.all);
    }
    for (_, step, _) in BESIDE_CHAT {
        checked.says(step, "ok", "TTFT ", "");
    }
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"come back later"}}"#;
    let failing = upstream(move |asked, _| {
        BESIDE_CHAT.iter().any(|(beside, ..)| *beside == asked).then(|| open(&events(&[error])))
    });
    let checked = check(&failing.url(), "");
    for (_, step, _) in BESIDE_CHAT {
        checked.says(step, "note", "an error under status 200: \"come back later\"", "inband_error");
    }
}

#[test]
fn an_upstream_of_messages_alone_is_well() {
    /// Anthropic's own API, as it would be without chat completions: it knows its key in one header.
    fn answer(asked: Asked, request: &Request) -> String {
        let known = header(request, "x-api-key") == Some(KEY) && header(request, "authorization").is_none();
        match asked {
            Asked::Models if !known || header(request, "anthropic-version").is_none() => json(401, "{}"),
            Asked::Models => json(200, r#"{"data":[{"type":"model","id":"claude-x"}],"has_more":false}"#),
            Asked::Messages if known => streamed(asked),
            Asked::Messages => json(401, "{}"),
            _ => json(404, r#"{"type":"error","error":{"type":"not_found_error","message":"Not found"}}"#),
        }
    }
    let anthropic = upstream(|asked, request| Some(answer(asked, request)));
    let config = up(&anthropic.url(), "messages_auth = \"x-api-key\"");
    let checked = check_with(&config, &[], &[]);
    checked.is_well();
    checked
        .says("models", "ok", "1 model: claude-x; only clients of Anthropic's API are told", "")
        .says(
            "chat",
            "note",
            "not answered here (404): ",
            "messages can be had here; most programs need chat completions",
        )
        .says("stream", "skipped", "chat completions are not answered here", "")
        .says("stream_options", "skipped", "chat completions are not answered here", "")
        .says("completions", "note", "not answered here (404)", "")
        .says("responses", "note", "not answered here (404)", "Codex needs it")
        .says("messages", "ok", "TTFT ", "");
    check_with(&config, &["--dialect", "messages"], &[]).is_well();
    check_with(&config, &["--dialect", "chat"], &[]).failed_at("chat", "answered 404", "nothing is there");
    let both = check_with(&config, &["--dialect", "responses", "--dialect", "completions"], &[]);
    both.says("completions", "failed", "not answered here", "").says(
        "responses",
        "failed",
        "not answered here",
        "Codex",
    );
    both.says("messages", "ok", "TTFT", "");
    assert_eq!(both.code, Some(1));
    // Where the paths of other dialects want to see the key before they say that they are none.
    let closed = upstream(|asked, request| match asked {
        Asked::Models if header(request, "anthropic-version").is_none() => Some(json(400, "{}")),
        Asked::Models | Asked::Messages => Some(answer(asked, request)),
        _ => Some(json(401, "{}")),
    });
    let config = up(&closed.url(), "messages_auth = \"x-api-key\"");
    check_with(&config, &[], &[]).is_well().says("chat", "note", "not answered here (401)", "messages can be had here");
}

/// An upstream whose models are for responses alone.
fn of_responses_alone(status: u16, words: &str) -> crate::Playing {
    let refused = json(status, &value!({"error": {"message": words}}).to_string());
    upstream(move |asked, _| match asked {
        Asked::Chat | Asked::Stream | Asked::StreamWithUsage => Some(refused.clone()),
        Asked::Responses => Some(streamed(asked)),
        _ => None,
    })
}

#[test]
fn a_model_that_is_not_for_chat_is_asked_for_in_the_other_dialects() {
    for (status, words) in [
        (404, "This is not a chat model and thus not supported in the v1/chat/completions endpoint."),
        (404, "This model is only supported in v1/responses and not in v1/chat/completions."),
        (400, "model gpt-4o is not accessible via the /chat/completions endpoint"),
        (400, "模型 gpt-4o 不支持对话"),
    ] {
        let upstream = of_responses_alone(status, words);
        for flags in [&[][..], &["--dialect", "responses"]] {
            let checked = check_with(&up(&upstream.url(), ""), flags, &[]);
            checked
                .is_well()
                .says("chat", "note", &format!("not answered here ({status}): "), "responses can be had here")
                .says("chat", "note", words, "most programs need chat completions")
                .says("stream", "skipped", "chat completions are not answered here", "")
                .says("completions", "note", "not answered here (404)", "")
                .says("responses", "ok", "TTFT ", "")
                .says("messages", "note", "not answered here (404)", "Claude Code needs it");
        }
        check_with(&up(&upstream.url(), ""), &["--dialect", "chat"], &[]).failed_at("chat", words, "");
        let other = check_with(&up(&upstream.url(), ""), &["--dialect", "messages"], &[]);
        other.says("chat", "note", words, "").says("messages", "failed", "not answered here (404)", "Claude Code");
        assert_eq!(other.code, Some(1));
    }
}

#[test]
fn a_dialect_that_must_be_answered_is_asked_for_whatever_became_of_chat() {
    let flags = ["--dialect", "responses"];
    for (refused, says) in [
        (json(500, r#"{"error":{"message":"oh"}}"#), "500"),
        (json(401, r#"{"error":{"message":"no"}}"#), "401"),
        (json(200, r#"{"error":{"message":"no"}}"#), "200 with an error"),
    ] {
        let (answered, silent) = (refused.clone(), refused.clone());
        let upstream = upstream(move |asked, _| match asked {
            Asked::Chat => Some(answered.clone()),
            Asked::Responses => Some(streamed(asked)),
            _ => None,
        });
        let checked = check_with(&up(&upstream.url(), ""), &flags, &[]);
        checked.is_well().says("chat", "note", says, "").says("responses", "ok", "TTFT ", "");
        check(&upstream.url(), "").failed_at("chat", says, "");
        // Where it is not answered either, it is what fails.
        let checked = check_with(&up(&upstream_but(Asked::Chat, silent).url(), ""), &flags, &[]);
        checked.says("chat", "note", says, "").says("responses", "failed", "not answered here (404)", "Codex");
        assert_eq!(checked.code, Some(1));
    }
    let cut = upstream(|asked, _| match asked {
        Asked::Stream => Some(events(&[TOKEN])),
        Asked::Responses => Some(streamed(asked)),
        _ => None,
    });
    let checked = check_with(&up(&cut.url(), ""), &flags, &[]);
    checked.is_well().says("stream", "note", "without a finish reason", "truncated").says(
        "responses",
        "ok",
        "TTFT",
        "",
    );
    check(&cut.url(), "").failed_at("stream", "without a finish reason", "truncated");
}

#[test]
fn where_no_dialect_is_answered_the_check_fails() {
    let (gone, refusing) = (
        upstream(|asked, _| (asked != Asked::Models).then(|| json(404, NOT_HERE))),
        upstream(|asked, _| match asked {
            Asked::Models => None,
            Asked::Messages => Some(json(529, r#"{"error":{"message":"overloaded"}}"#)),
            _ => Some(json(404, NOT_HERE)),
        }),
    );
    for flags in [&[][..], &["--dialect", "messages"]] {
        let checked = check_with(&up(&gone.url(), ""), flags, &[]);
        checked.failed_at("chat", "answered 404 Not Found: \"Invalid URL (POST)\"", "nothing is there");
    }
    // A model that nobody takes is to blame, whatever else is refused.
    let unknown = upstream(|asked, _| match asked {
        Asked::Models => None,
        Asked::Messages => Some(json(401, "{}")),
        _ => Some(json(404, r#"{"error":{"message":"The model gpt-4o does not exist","code":"model_not_found"}}"#)),
    });
    check(&unknown.url(), "").failed_at("chat", "\"gpt-4o\" is not known there", "give --model");
    let checked = check(&refusing.url(), "");
    checked.says("chat", "note", "not answered here (404)", "see what the other dialects say below");
    checked.says("completions", "note", "not answered here (404)", "");
    checked.says("messages", "failed", "529", "the upstream is at fault");
    assert_eq!(checked.code, Some(1));
}

#[test]
fn a_model_in_this_process_says_what_it_answers() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/llama/fixtures/gqa_tied");
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(format!("{model}/{name}"), folder.path().join(name)).expect("copied");
    }
    std::fs::write(folder.path().join("tokenizer.json"), "{}").expect("written");
    let config = format!(
        "[backend.own]\nkind = \"llama\"\nmodel = {:?}\n[[route]]\nmodel = \"*\"\nbackend = \"own\"\n",
        folder.path().display().to_string()
    );
    let says = "chat and completions are answered; responses and messages need an upstream";
    check_with(&config, &[], &[]).is_well().says("dialects", "ok", says, "");
    check_with(&config, &["--dialect", "chat,completions"], &[]).is_well();
    for dialect in ["responses", "messages"] {
        let checked = check_with(&config, &["--dialect", dialect], &[]);
        let says = format!("{dialect} are not answered by a model in this process");
        checked.failed_at("dialects", &says, "send them to an upstream");
    }
    // In the report for people, too.
    let file = ConfigFile::new(&config);
    let (code, out, _) = run(&["--config", &file.path.display().to_string()], &[]);
    assert!(code == Some(0) && out.contains(says), "{out}");
}
