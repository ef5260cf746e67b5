//! The header `x-streamgauge-backend`.

use streamgauge::backend::sim::SimHandle;

use crate::support::stage::{Proxy, backend, sim};
use crate::{chat, post, request, two_threads};

const NAMED: &str = "x-streamgauge-backend";

/// Everything goes to `a`, but `m` may go to `b` as well, where it is called `of-b`; nothing leads to `c`.
fn start(server: &str, [a, b, c]: [&SimHandle; 3], more: &str) -> Proxy {
    let backends = backend("a", a.addr(), "") + &backend("b", b.addr(), "") + &backend("c", c.addr(), more);
    let spread = "[{ name = \"a\" }, { name = \"b\", weight = 0, upstream_model = \"of-b\" }]";
    let routes =
        format!("[[route]]\nmodel = \"m\"\nbackend = {spread}\n[[route]]\nmodel = \"other\"\nbackend = \"a\"\n");
    Proxy::start(&format!("{}{backends}{routes}", two_threads(server)))
}

fn last_body(sim: &SimHandle) -> String {
    let received = sim.received().pop().expect("a request");
    assert_eq!(received.request.header(NAMED), None, "the header is not forwarded");
    String::from_utf8(received.request.body.to_vec()).expect("text")
}

#[test]
fn a_request_may_name_its_backend_where_that_is_allowed() {
    let (a, b, c) = (sim(), sim(), sim());
    let proxy = start("backend_header = true", [&a, &b, &c], "");
    let mut client = proxy.client();
    assert_eq!(client.ask(chat("m", &[(NAMED, "b")])).status, 200);
    assert!(last_body(&b).contains(r#""model":"of-b""#), "the route's name of the model at that backend");
    assert_eq!(client.ask(chat("m", &[(NAMED, "c")])).status, 200);
    assert!(last_body(&c).contains(r#""model":"m""#), "the client's name where the route does not lead there");
    assert_eq!(client.ask(chat("no-route", &[(NAMED, "c")])).status, 200);
    assert!(last_body(&c).contains(r#""model":"no-route""#));
    assert_eq!(client.ask(request("GET", "/v1/models/sim", &[(NAMED, "c")])).status, 200);
    assert_eq!((a.counts().requests, b.counts().requests, c.counts().requests), (0, 1, 3));

    for name in ["d", "B", ""] {
        let refused = client.ask(chat("m", &[(NAMED, name)]));
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, error["code"].as_str()), (400, Some("unknown_backend")));
        let message = format!("no backend is called {name:?}, as {NAMED} wants; configured: a, b, c");
        assert_eq!(error["message"], message);
    }
    assert_eq!(client.ask(chat("m", &[])).status, 200);
    assert_eq!(a.counts().requests, 1, "without the header the routes decide");
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("rejected"), scrape.outcome("ok")), (3.0, 5.0));
}

#[test]
fn where_it_is_not_allowed_the_header_is_ignored_and_not_forwarded() {
    let (a, b, c) = (sim(), sim(), sim());
    let proxy = start("", [&a, &b, &c], "");
    let mut client = proxy.client();
    for name in ["b", "no-such"] {
        assert_eq!(client.ask(chat("m", &[(NAMED, name)])).status, 200);
    }
    assert!(last_body(&a).contains(r#""model":"m""#));
    assert_eq!((a.counts().requests, b.counts().requests), (2, 0));
}

#[test]
fn a_backend_named_by_hand_is_guarded_as_any_other() {
    let (a, b, c) = (sim(), sim(), sim());
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-configured\n").expect("written");
    let with_key = format!("api_key = {{ file = {:?} }}", key.display().to_string());
    let proxy = start("backend_header = true", [&a, &b, &c], &with_key);
    let mut client = proxy.client();
    let page = [(NAMED, "c"), ("origin", "https://evil.example")];
    assert_eq!(client.ask(chat("m", &page)).status, 403);
    assert_eq!(client.ask(post("/v1/embeddings", &page, "{}")).status, 403);
    assert_eq!(c.counts().requests, 0, "nothing was sent");
    assert_eq!(client.ask(chat("m", &[(NAMED, "c")])).status, 200);
    let received = c.received().pop().expect("a request");
    assert_eq!(received.request.header("authorization"), Some("Bearer sk-configured"));
}
