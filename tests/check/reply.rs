//! Replies under status 200 that are none, and statuses that say enough.

use crate::{Asked, FINISH, TOKEN, check, events, json, reply, upstream_but};

#[test]
fn an_error_under_status_200_is_told() {
    let error = json(200, r#"{"error":{"message":"no channel is free","type":"new_api_error"}}"#);
    let whole = upstream_but(Asked::Chat, error.clone());
    check(&whole.url(), "").failed_at(
        "chat",
        "it answered 200 with an error and no choices: \"no channel is free\"",
        "a client that reads choices without looking for an error fails here",
    );
    let streamed = upstream_but(Asked::Stream, error);
    check(&streamed.url(), "").failed_at("stream", "with an error and no choices: \"no channel is free\"", "its words");
}

#[test]
fn what_is_no_reply_is_told_apart() {
    for (odd, says) in [
        (json(200, r#"{"status":"ready"}"#), "it answered 200 without choices"),
        (reply(200, "content-type: text/plain\r\n", "It works!"), "with something else than JSON: \"It works!\""),
        (json(200, "[1,2]"), "with something else than JSON"),
    ] {
        let upstream = upstream_but(Asked::Chat, odd);
        check(&upstream.url(), "").failed_at("chat", says, "OpenAI-compatible API");
    }
    let zipped = upstream_but(Asked::Chat, reply(200, "content-encoding: gzip\r\n", "\u{1f}x"));
    check(&zipped.url(), "").failed_at(
        "chat",
        "its answer is compressed (gzip), which nobody asked for, and cannot be decoded",
        "switch compression off",
    );
    let streaming = upstream_but(Asked::Chat, events(&[TOKEN, FINISH, "[DONE]"]));
    check(&streaming.url(), "").is_well().says(
        "chat",
        "note",
        "answered with a stream although a whole reply was asked for",
        "let yours stream",
    );
}

#[test]
fn statuses_say_whose_turn_it_is() {
    for (status, advice) in [
        (402, "the account has no credit"),
        (403, "check its permissions, its quota"),
        (429, "too many requests, or a quota is used up"),
        (500, "the upstream is at fault"),
        (503, "the upstream is at fault"),
        (418, "its words say why"),
    ] {
        let upstream = upstream_but(Asked::Chat, json(status, r#"{"error":{"message":"its words"}}"#));
        check(&upstream.url(), "").failed_at("chat", &format!("answered {status}"), advice);
    }
}

#[test]
fn a_web_page_in_the_apis_place_is_told() {
    for status in [403, 503] {
        let upstream = upstream_but(Asked::Chat, reply(status, "", "<!DOCTYPE html><p>Checking your browser"));
        let says = "with a web page";
        check(&upstream.url(), "").failed_at(
            "chat",
            says,
            "see what stands before it, a firewall, a gateway or a login",
        );
    }
}

#[test]
fn an_upstreams_words_are_short_and_steer_no_terminal() {
    let words = format!("\\u001b[2Jred\\n{}", "x".repeat(400));
    let upstream = upstream_but(Asked::Chat, json(400, &format!(r#"{{"error":{{"message":"{words}"}}}}"#)));
    let checked = check(&upstream.url(), "");
    checked.failed_at("chat", "400 Bad Request: \"[2Jred xxx", "");
    let detail = checked.step("chat")["detail"].as_str().expect("text");
    assert!(detail.ends_with("x…\"") && detail.chars().count() < 300, "{detail}");
}
