//! Which model is asked for, lists of models, and models nobody knows.

use serde_json::Value;

use crate::support::stage::TO_UP;
use crate::{Asked, KEY, check, check_with, json, reply, up, upstream, upstream_but, well};

/// Answers 404 in the words of the field's best-known API for every model but `gpt-4o`.
fn picky() -> crate::Playing {
    upstream(|asked, request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let model = body["model"].as_str().unwrap_or("");
        let message = format!("The model `{model}` does not exist or you do not have access to it.");
        let refused = serde_json::json!({"error": {"message": message, "code": "model_not_found"}}).to_string();
        (asked != Asked::Models && model != "gpt-4o").then(|| json(404, &refused))
    })
}

#[test]
fn an_unknown_model_is_told_with_near_names() {
    let upstream = picky();
    let checked = check_with(&up(&upstream.url(), ""), &["--model", "gpt4o"], &[]);
    checked.failed_at(
        "chat",
        "\"gpt4o\" is not known there: ",
        "near names in its list: gpt-4o, gpt-4o-mini; correct --model",
    );
    checked.says(
        "chat",
        "failed",
        "404 Not Found: \"The model `gpt4o` does not exist or you do not have access to it.\"",
        "",
    );
    check_with(&up(&upstream.url(), ""), &["--model", "llama"], &[]).failed_at(
        "chat",
        "\"llama\" is not known there",
        "its list of 2 has no such name: gpt-4o, gpt-4o-mini; correct --model",
    );
}

#[test]
fn an_unknown_model_is_known_by_the_words_of_many_services() {
    for (status, message) in [
        (503, "No available channel for model gpt-5 under group default (distributor)"),
        (503, "当前分组 default 下对于模型 gpt-5 无可用渠道"),
        (400, "Invalid model: GPT-5 does not exist"),
        (400, "Model 'gpt-5' is not supported"),
    ] {
        let body = serde_json::json!({"error": {"message": message}}).to_string();
        let upstream = upstream_but(Asked::Chat, json(status, &body));
        let checked = check_with(&up(&upstream.url(), ""), &["--model", "gpt-5"], &[]);
        checked.failed_at("chat", "\"gpt-5\" is not known there", "near names in its list: gpt-4o");
        checked.says("chat", "failed", &format!("\"{message}\""), "");
    }
    // What only mentions the model is something else.
    let busy = upstream_but(Asked::Chat, json(503, r#"{"error":{"message":"the model gpt-5 is overloaded"}}"#));
    let checked = check_with(&up(&busy.url(), ""), &["--model", "gpt-5"], &[]);
    checked.failed_at("chat", "answered 503", "the upstream is at fault");
}

#[test]
fn the_model_is_what_serve_would_send() {
    let upstream = picky();
    let route = |model: &str, more: &str| format!("[[route]]\nmodel = \"{model}\"\nbackend = \"up\"\n{more}\n{TO_UP}");
    let config = |routes: String| up(&upstream.url(), "").replace(TO_UP, &routes);
    let aliased = config(route("fast", "upstream_model = \"gpt-4o\""));
    check_with(&aliased, &[], &[]).is_well().says("chat", "ok", "\"gpt-4o\" answered", "");
    check_with(&aliased, &["--model", "fast"], &[]).is_well();
    let only = up(&upstream.url(), "").replace(TO_UP, "[[route]]\nmodel = \"other\"\nbackend = \"up\"\n");
    let unrouted = check_with(&only, &["--model", "gpt-4o"], &[]);
    unrouted.is_well().says(
        "chat",
        "note",
        "\"gpt-4o\" answered",
        "add [[route]] with model = \"gpt-4o\", or give --model a name that a route takes",
    );
    assert_eq!(
        check_with(&aliased, &["--model", "gpt-4o"], &[]).step("chat")["status"],
        "ok",
        "the last route takes it"
    );
    check_with(&config(route("fast", "upstream_model = \"m9\"")), &["--model", "fast"], &[]).failed_at(
        "chat",
        "\"m9\" is not known there",
        "correct the route's upstream_model or model, or give --model",
    );
    check_with(&config(route("claude", "")), &[], &[]).failed_at(
        "chat",
        "\"claude\" is not known there",
        "correct the route's upstream_model or model, or give --model",
    );
}

#[test]
fn a_key_that_is_listed_as_a_model_is_not_shown() {
    let listed = upstream_but(Asked::Models, json(200, &format!(r#"{{"data":[{{"id":"{KEY}"}}]}}"#)));
    // `says` looks for the key in all that was written.
    check_with(&up(&listed.url(), ""), &[], &[]).says("models", "ok", "1 model: (key)", "");
}

#[test]
fn a_list_that_is_missing_is_a_note_where_a_model_is_known() {
    for (status, body) in [(404, "{}"), (405, ""), (501, "<html>")] {
        let upstream = upstream_but(Asked::Models, json(status, body));
        let checked = check_with(&up(&upstream.url(), ""), &["--model", "gpt-4o"], &[]);
        checked.is_well().says("models", "note", "there is no list of models", "not every API has one");
        check(&upstream.url(), "").failed_at("chat", "there is no model to ask for", "give --model");
    }
    for odd in [json(200, r#"{"models":[]}"#), json(200, "true"), reply(403, "", "not for you"), json(500, "{}")] {
        let upstream = upstream_but(Asked::Models, odd);
        check_with(&up(&upstream.url(), ""), &["--model", "gpt-4o"], &[]).is_well();
    }
    let none = upstream_but(Asked::Models, json(200, r#"{"data":[]}"#));
    let checked = check(&none.url(), "");
    checked.says("models", "note", "the list of models is empty", "the key may have no model yet");
    checked.failed_at("chat", "there is no model to ask for", "give --model");
}

#[test]
fn a_first_model_that_cannot_chat_is_no_riddle() {
    let upstream = upstream_but(Asked::Chat, json(400, r#"{"error":{"message":"this is an embedding thing"}}"#));
    check(&upstream.url(), "").failed_at(
        "chat",
        "400 Bad Request: \"this is an embedding thing\"",
        "gpt-4o was asked for, as the first of the list: give --model for another",
    );
}

#[test]
fn a_model_that_wants_max_completion_tokens_gets_it() {
    const WORDS: &str = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
                         'max_completion_tokens' instead.";
    let upstream = upstream(|asked, request| {
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        let refused = serde_json::json!({"error": {"message": WORDS}}).to_string();
        Some(if body.get("max_tokens").is_some() { json(400, &refused) } else { well(asked) })
    });
    let checked = check(&upstream.url(), "");
    checked.is_well();
    checked.says(
        "chat",
        "note",
        &format!("it refuses max_tokens: \"{WORDS}\""),
        "clients must send max_completion_tokens",
    );
    checked.says("stream", "note", "TTFT", "").says("stream_options", "note", "accepted", "");

    // Where the other cap does not help, the first refusal counts.
    let stubborn = upstream_but(Asked::Chat, json(400, r#"{"error":{"message":"max_tokens: no"}}"#));
    check(&stubborn.url(), "").failed_at("chat", "\"max_tokens: no\"", "its words say why");
}
