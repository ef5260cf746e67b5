//! Keys: missing, dirty, of the wrong kind, refused. No part of one is ever shown.

use crate::{Asked, KEY, check, check_with, json, up, upstream, upstream_but};

const REFUSED: &str = r#"{"error":{"message":"invalid key","code":"invalid_api_key"}}"#;

#[test]
fn a_variable_that_is_not_set_is_named_and_the_walk_goes_on() {
    let open = upstream(|_, request| {
        assert!(!request.head.contains("authorization"), "{}", request.head);
        None
    });
    for environment in [("UP_KEY", ""), ("UP_KEY", "  \n")] {
        check_with(&up(&open.url(), ""), &[], &[environment]).is_well().says(
            "key",
            "note",
            "UP_KEY is not set, or empty: each client's own key passes through, which this check cannot test",
            "set UP_KEY to test with a key",
        );
    }
    let closed = upstream(|_, _| Some(json(401, REFUSED)));
    check_with(&up(&closed.url(), ""), &[], &[("UP_KEY", "")]).failed_at(
        "models",
        "/v1/models answered 401 Unauthorized: \"invalid key\"",
        "no key was sent: set UP_KEY, or test with a client that brings its own",
    );
    let config = up(&closed.url(), "").replace("api_key = { env = \"UP_KEY\" }\n", "");
    let checked = check_with(&config, &[], &[]);
    checked.says("key", "note", "none is configured", "add api_key = { env = \"NAME\" } to [backend.up]");
    checked.failed_at("models", "401", "no key was sent: add api_key");
}

#[test]
fn white_space_around_a_key_is_told_as_serve_would() {
    let upstream = upstream(|_, request| {
        assert!(request.head.contains(&format!("authorization: Bearer {KEY}\r\n")), "{}", request.head);
        None
    });
    let checked = check_with(&up(&upstream.url(), ""), &[], &[("UP_KEY", &format!(" {KEY}\n"))]);
    checked.is_well().says("key", "note", "white space around it was removed", "clean UP_KEY");
    assert_eq!(checked.report["warnings"][0], "UP_KEY: whitespace around the key was removed");
}

#[test]
fn a_refused_key_is_known_by_its_source_and_length_alone() {
    let said = format!("Incorrect API key provided: {KEY}. You sent sk-test-****WXYZ (sk-...WXYZ)");
    let upstream = upstream_but(Asked::Models, json(401, &format!(r#"{{"error":{{"message":"{said}"}}}}"#)));
    let checked = check(&upstream.url(), "");
    let advice = format!(
        "the key from UP_KEY ({} characters) is not accepted: it may be mistyped, cut short, expired",
        KEY.len()
    );
    checked.failed_at(
        "models",
        "401 Unauthorized: \"Incorrect API key provided: (key) You sent (key) (key)\"",
        &advice,
    );
    for part in ["WXYZ", "sk-test", "0123"] {
        assert!(!checked.all.contains(part), "{}", checked.all);
    }

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{KEY}\n")).expect("written");
    let config = up(&upstream.url(), "").replace("{ env = \"UP_KEY\" }", &format!("{{ file = '{}' }}", file.display()));
    let checked = check_with(&config, &[], &[]);
    checked.failed_at("models", "401", &format!("the key from {} ({} characters)", file.display(), KEY.len()));
}

#[test]
fn a_token_of_a_tool_is_told_from_an_api_key_before_and_after() {
    let upstream = upstream(|_, _| Some(json(401, REFUSED)));
    for (token, looks) in [
        ("eyJhbGciOiJIUzI1NiJ9.e30.abc", "looks like a JSON web token"),
        ("sk-ant-oat01-abcdef", "looks like an OAuth token of Anthropic's tools"),
        ("ya29.abcdef", "looks like an OAuth token of Google's tools"),
        ("gho_abcdef", "looks like an OAuth token of GitHub's tools"),
    ] {
        let checked = check_with(&up(&upstream.url(), ""), &[], &[("UP_KEY", token)]);
        checked.says("key", "note", looks, "put in an API key from its console");
        checked.failed_at("models", "401", looks);
        assert!(!checked.all.contains(token), "{}", checked.all);
    }
}
