//! Streams: what ends them badly, which intervals they have, and what comes of `stream_options`.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use streamgauge::backend::sim::Script;

use crate::support::stage::playing;
use crate::{Asked, FINISH, PAUSE, TOKEN, USAGE, check, cut_short, events, json, reply, upstream, upstream_but, well};

/// Checks an upstream whose plain stream is this reply.
fn streaming(stream: String) -> crate::Checked {
    let upstream = upstream_but(Asked::Stream, stream);
    check(&upstream.url(), "")
}

#[test]
fn a_stream_that_is_none_is_told() {
    streaming(well(Asked::Chat)).failed_at(
        "stream",
        "it answered with one JSON document, not with a stream",
        "it ignores stream = true, so there is no TTFT and no ITL to measure",
    );
    streaming(reply(200, "content-type: text/event-stream\r\n", "")).failed_at("stream", "empty body", "");
    streaming(reply(200, "", "Hello")).failed_at("stream", "something else than a stream of events: \"Hello\"", "");
    streaming(json(502, "{}")).failed_at("stream", "answered 502", "the upstream is at fault");
}

#[test]
fn ends_that_say_nothing_are_told() {
    streaming(events(&[TOKEN])).failed_at(
        "stream",
        "the stream ended without a finish reason and without [DONE]",
        "such a request counts as truncated",
    );
    let checked = streaming(events(&[TOKEN, FINISH]));
    checked.is_well().says("stream", "note", "no [DONE] came", "some clients wait for [DONE] until they time out");
    let checked = streaming(events(&[TOKEN, "[DONE]"]));
    checked.is_well().says("stream", "note", "no finish reason came", "such a request counts as unconfirmed");
    let error = r#"{"error":{"message":"quota"}}"#;
    streaming(events(&[TOKEN, error, "[DONE]"])).failed_at(
        "stream",
        "the stream holds an error under status 200: \"quota\"",
        "counts as inband_error",
    );
    streaming(cut_short(&events(&[TOKEN]))).failed_at(
        "stream",
        "closed the connection before the end of its answer",
        "cutting replies off",
    );
}

#[test]
fn a_stream_that_comes_in_one_read_is_noted() {
    streaming(well(Asked::Stream)).is_well().says(
        "stream",
        "note",
        "head and stream came in one read",
        "with one token that can be chance; if longer replies come in one piece too, something between buffers them",
    );
    let unlabelled =
        reply(200, "content-type: text/plain\r\n", &format!("data: {TOKEN}\n\ndata: {FINISH}\n\ndata: [DONE]\n\n"));
    streaming(unlabelled).is_well().says("stream", "note", "it is not labelled text/event-stream", "one document");
}

#[test]
fn a_stream_that_is_compressed_unasked_is_read_and_noted() {
    let plain: String = [TOKEN, FINISH, "[DONE]"].iter().flat_map(|data| ["data: ", data, "\n\n"]).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain.as_bytes()).expect("encoded");
    let headers = vec![("content-encoding".to_owned(), "gzip".to_owned())];
    let sim = playing(Script { headers, ..Script::sending(encoder.finish().expect("encoded")) });
    check(&format!("http://{}", sim.addr()), "").is_well().says(
        "stream",
        "note",
        "; it is compressed, which nobody asked for",
        "switch compression off for streams",
    );
}

#[test]
fn why_there_is_no_tpot_is_said() {
    let finish = |reason: &str| FINISH.replace("length", reason);
    let refusal = r#"{"choices":[{"index":0,"delta":{"refusal":"no"},"finish_reason":null}]}"#;
    let second = TOKEN.replace("\"index\":0", "\"index\":1");
    let five = USAGE.replace("\"completion_tokens\":1", "\"completion_tokens\":5");
    for (data, says) in [
        (
            vec![TOKEN, FINISH, "[DONE]"],
            "TPOT absent: one token has no gap (finish_reason \"length\": the cap that this check sets)",
        ),
        (vec![TOKEN, &finish("stop"), "[DONE]"], "TPOT absent: one token has no gap (finish_reason \"stop\")"),
        (
            vec![refusal, &finish("stop"), "[DONE]"],
            "one token has no gap (finish_reason \"stop\"), and the model refused",
        ),
        (vec![TOKEN, &second, FINISH, "[DONE]"], "TPOT absent: it sent 2 choices, whose tokens cannot be told apart"),
        (vec![TOKEN, FINISH, &five, "[DONE]"], "TPOT absent: its 5 tokens (usage) came in one event"),
        (vec![TOKEN, TOKEN, FINISH, "[DONE]"], "TPOT absent: its 2 tokens (counted events) came in one read"),
    ] {
        let checked = streaming(events(&data));
        checked.is_well().says("stream", "note", says, "");
        let detail = checked.step("stream")["detail"].as_str().expect("text");
        assert!(detail.starts_with("TTFT ") && detail.contains(" ms; TPOT "), "{detail}");
    }
    // Apart, two tokens have a gap, which is shared by as many as usage says.
    for (end, over) in [("", "over 2 tokens (counted events)"), (&*five, "over 5 tokens (usage)")] {
        let whole = events(&[TOKEN, TOKEN, FINISH, end, "[DONE]"]);
        let at = whole.find(TOKEN).expect("a token") + TOKEN.len() + 2;
        let checked = streaming(format!("{}{PAUSE}{}", &whole[..at], &whole[at..]));
        let detail = checked.is_well().step("stream")["detail"].as_str().expect("text");
        let tpot = detail.split_once("; TPOT ").expect(detail).1.split_once(" ms ").expect(detail);
        assert!(tpot.1.starts_with(over) && tpot.0.parse::<f64>().expect(detail) > 1.0, "{detail}");
    }
    let hidden = streaming(events(&[FINISH, "[DONE]"]));
    hidden.is_well().says("stream", "note", "TTFT absent: no event carried output", "a model that reasons in secret");
}

#[test]
fn stream_options_are_held_against_the_configuration() {
    let refused = || json(400, r#"{"error":{"message":"Unknown field: stream_options"}}"#);
    let accepting = || upstream(|_, _| None);
    let ignoring = || upstream_but(Asked::StreamWithUsage, well(Asked::Stream));
    let rejecting = move || upstream_but(Asked::StreamWithUsage, refused());
    let (on, off) = ("include_usage = true", "include_usage = false");
    let step = "stream_options";

    check(&accepting().url(), on).is_well().says(
        step,
        "ok",
        "accepted: usage came (1 out), and include_usage asks for it",
        "",
    );
    check(&accepting().url(), off).is_well().says(
        step,
        "note",
        "accepted: usage came (1 out), but include_usage = false",
        "set include_usage = true in [backend.up]",
    );
    let always = upstream_but(Asked::Stream, well(Asked::StreamWithUsage));
    check(&always.url(), off).is_well().says(step, "ok", "usage came (1 out), asked for or not", "");

    check(&ignoring().url(), on).is_well().says(
        step,
        "note",
        "ignored: no usage came, so include_usage = true has no effect here; output tokens are counted by events",
        "give the backend a tokenizer to count with",
    );
    check(&ignoring().url(), off).is_well().says(step, "note", "ignored: no usage came; output tokens are counted", "");

    let told = check(&rejecting().url(), on);
    told.is_well().says(step, "note", "rejected: ", "to spare the second request");
    told.says(
        step,
        "note",
        "400 Bad Request: \"Unknown field: stream_options\"",
        "set include_usage = false in [backend.up]",
    );
    // What has nothing to do with it is not laid at its door.
    let limited = upstream_but(Asked::StreamWithUsage, json(429, r#"{"error":{"message":"slow down"}}"#));
    check(&limited.url(), on).is_well().says(step, "note", "unknown: ", "try again");
    check(&rejecting().url(), off).is_well().says(step, "note", "rejected: ", "leave include_usage = false");
}
