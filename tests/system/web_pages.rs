//! A configured key is not spent by web pages.

use crate::support::stage::{Proxy, SERVER, TO_UP, backend, sim};
use crate::{WHOLE, post, request};

const CORS: &str = "cors = [\"https://chat.example\"]\nhosts = [\"gauge.lan\"]\n";

#[test]
fn what_a_web_page_could_send_spends_no_configured_key() {
    let sim = sim();
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-configured\n").expect("written");
    let up = backend("up", sim.addr(), &format!("api_key = {{ file = {:?} }}", key.display().to_string()));
    let proxy = Proxy::start(&format!("{SERVER}{CORS}{up}{TO_UP}"));
    let mut client = proxy.client();
    let chat = |headers: &[(&str, &str)]| {
        post("/v1/chat/completions", &[headers, &[("x-sim", "ttft_ms=1,itl_ms=0,tokens=1")]].concat(), WHOLE)
    };
    let foreign_host = |request: String| request.replace("host: 127.0.0.1", "host: rebound.example");

    for (request, status, code) in [
        (chat(&[("origin", "https://evil.example")]), 403, "cross_origin"),
        (foreign_host(chat(&[])), 403, "cross_origin"),
        (chat(&[]).replace("application/json", "text/plain"), 415, "not_json"),
        (request("GET", "/v1/models", &[("origin", "null")]), 403, "cross_origin"),
        (foreign_host(request("GET", "/v1/anything", &[])), 403, "cross_origin"),
        (
            request("GET", "/v1/models", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]),
            403,
            "cross_origin",
        ),
        (post("/v1/embeddings", &[("origin", "http://localhost:3000")], "{}"), 403, "cross_origin"),
    ] {
        let reply = client.ask(request.clone());
        let error = reply.json()["error"].clone();
        assert_eq!((reply.status, error["code"].as_str()), (status, Some(code)), "{request}");
    }
    let (head, rest) =
        request("GET", "/v1/models", &[]).split_once("127.0.0.1").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let reply = client.ask([head.as_bytes(), b"\xe9vil", rest.as_bytes()].concat());
    assert_eq!(reply.status, 403, "a host that is no text");
    assert_eq!(sim.counts().requests, 0, "nothing was sent");
    assert_eq!(proxy.idle_scrape().outcome("rejected"), 8.0);

    for request in [
        chat(&[("origin", "https://chat.example")]),
        chat(&[]).replace("host: 127.0.0.1", "host: GAUGE.lan:8484"),
        chat(&[]).replace("application/json", "application/json; charset=utf-8"),
    ] {
        assert_eq!(client.ask(request).status, 200);
    }
}

#[test]
fn without_a_configured_key_there_is_nothing_to_protect() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let foreign = [("origin", "https://evil.example"), ("x-sim", "ttft_ms=1,tokens=1")];
    assert_eq!(proxy.client().ask(post("/v1/chat/completions", &foreign, WHOLE)).status, 200);
}
