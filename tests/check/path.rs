//! Base URLs that lead astray.

use crate::{Asked, check, check_with, json, reply, up, upstream};

/// An API at `/api/v1`, and nothing elsewhere.
fn at_api_v1() -> crate::Playing {
    upstream(|_, request| {
        let path = request.head.split(' ').nth(1).expect("a path").to_owned();
        (!path.starts_with("/api/v1/models") && !path.starts_with("/api/v1/chat"))
            .then(|| reply(404, "", "nothing here"))
    })
}

#[test]
fn a_version_written_twice_is_corrected() {
    let upstream = at_api_v1();
    let url = upstream.url();
    let checked = check(&format!("{url}/api/v1/v1"), "");
    checked.failed_at(
        "models",
        &format!("there is no list of models: {url}/api/v1/v1/models answered 404 Not Found: \"nothing here\""),
        &format!("base_url repeats \"v1\": write base_url = \"{url}/api/v1\""),
    );
    // Where a model is known the list decides nothing; the chat does.
    let checked = check_with(&up(&format!("{url}/api/api/v1"), ""), &["--model", "gpt-4o"], &[]);
    checked.says("models", "note", "there is no list of models", "base_url repeats \"api\"");
    checked.failed_at("chat", "answered 404", &format!("write base_url = \"{url}/api/v1\""));
    for right in ["/api", "/api/v1"] {
        check(&format!("{url}{right}"), "").is_well();
    }
}

#[test]
fn a_path_where_nothing_is_is_named() {
    let upstream = at_api_v1();
    let url = upstream.url();
    check_with(&up(&url, ""), &["--model", "gpt-4o"], &[]).failed_at(
        "chat",
        &format!("{url}/v1/chat/completions answered 404 Not Found: \"nothing here\""),
        "nothing is there: correct the path of base_url, which is what stands before /chat/completions in the service's \
         documentation",
    );
}

#[test]
fn a_web_site_is_no_api() {
    let page = || reply(200, "content-type: text/html; charset=utf-8\r\n", "<!doctype html><title>Console</title>");
    let site = upstream(move |_, _| Some(page()));
    let url = site.url();
    check(&url, "").failed_at(
        "models",
        &format!("{url}/v1/models answered with a web page, not with JSON"),
        "base_url names a web site, not its API",
    );
    check_with(&up(&url, ""), &["--model", "m"], &[]).failed_at("chat", "web page", "base_url names a web site");
    // An unlabelled one, and one that only lacks the list.
    let bare = upstream(move |asked, _| (asked == Asked::Models).then(|| reply(200, "", " <HTML>")));
    check(&bare.url(), "").failed_at("models", "web page", "web site");
    check_with(&up(&bare.url(), ""), &["--model", "m"], &[]).is_well().says("models", "note", "web page", "");
}

#[test]
fn a_redirect_is_not_followed_and_its_target_becomes_the_base_url() {
    for (location, shown, base) in [
        (
            "https://u:hush@api.example/api/v1/models?token=hush",
            "https://api.example/api/v1/models",
            "https://api.example/api/v1",
        ),
        ("/new/v1/models/", "/new/v1/models/", "/new/v1"),
    ] {
        let upstream = upstream(move |_, _| Some(reply(308, &format!("location: {location}\r\n"), "")));
        let url = upstream.url();
        let [shown, base] =
            [shown, base].map(|it| if it.starts_with('/') { format!("{url}{it}") } else { it.to_owned() });
        let checked = check(&url, "");
        checked.failed_at(
            "models",
            &format!("{url}/v1/models redirects (308 Permanent Redirect) to {shown}"),
            &format!("redirects are not followed, so that no key goes astray: write base_url = \"{base}\""),
        );
        assert!(!checked.all.contains("hush"));
    }
    let login = upstream(|_, _| Some(reply(302, "location: https://sso.example/login\r\n", "")));
    check(&login.url(), "").failed_at(
        "models",
        "to https://sso.example/login",
        "write in base_url where the API itself is",
    );
    let lost = upstream(|_, _| Some(json(302, "{}")));
    check(&lost.url(), "").failed_at("models", "without saying where to", "correct the path of base_url");
}
