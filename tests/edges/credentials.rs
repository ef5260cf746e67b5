//! Whose key an upstream sees, in which headers, and at which path: by dialect, backend and mirror.

use streamgauge::backend::sim::{Request, SimHandle};

use crate::support::stage::{Proxy, SERVER, TO_UP, sim};
use crate::support::{eventually, upstream::Upstream};
use crate::{post, request};

const KEY: &str = "sk-of-up";
const MIRROR_KEY: &str = "sk-of-shadow";
/// What a client may bring along to prove who it is.
const CLIENTS: [(&str, &str); 3] =
    [("authorization", "Bearer of-client"), ("x-api-key", "of-client"), ("api-key", "of-client")];
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Every way to send a key where Anthropic's messages are spoken: what is configured, whether it then stands in
/// `authorization`, and whether in `x-api-key`.
const WAYS: [(&str, bool, bool); 4] = [
    ("", true, true),
    ("messages_auth = \"both\"", true, true),
    ("messages_auth = \"bearer\"", true, false),
    ("messages_auth = \"x-api-key\"", false, true),
];

/// What is asked, what of it stands below `/v1` upstream, and whether it is Anthropic's dialect.
const ASKED: [(&str, &str, &str, bool); 15] = [
    ("POST", "/v1/chat/completions", "/chat/completions", false),
    ("POST", "/completions", "/completions", false),
    ("POST", "/v1/responses?stream=1", "/responses?stream=1", false),
    ("POST", "/v1/messages?beta=true", "/messages?beta=true", true),
    ("POST", "/messages", "/messages", true),
    ("POST", "/api/v1/v1/messages?beta=true", "/messages?beta=true", true),
    ("POST", "/v1/messages/count_tokens?beta=true", "/messages/count_tokens?beta=true", true),
    ("POST", "/v1/responses/input_tokens", "/responses/input_tokens", false),
    ("POST", "/v1/messages/batches", "/messages/batches", true),
    ("GET", "/v1/messages/batches/b_1/results", "/messages/batches/b_1/results", true),
    ("POST", "/v1/embeddings", "/embeddings", false),
    ("POST", "/v1/rerank", "/rerank", false),
    ("GET", "/v1/responses/resp_1?include[]=a", "/responses/resp_1?include[]=a", false),
    ("DELETE", "/v1/responses/resp_1", "/responses/resp_1", false),
    ("POST", "/v1/files", "/files", false),
];

/// `[backend.NAME]` below a base URL's path.
fn backend(name: &str, sim: &SimHandle, path: &str, more: &str) -> String {
    format!("[backend.{name}]\nbase_url = \"http://{}{path}\"\n{more}\n", sim.addr())
}

fn keyed(way: &str) -> String {
    format!("api_key = {{ env = \"UP_KEY\" }}\n{way}")
}

/// A proxy before `up`.
fn before(sim: &SimHandle, path: &str, more: &str) -> Proxy {
    start(&format!("{}{TO_UP}", backend("up", sim, path, more)))
}

fn start(backends: &str) -> Proxy {
    Proxy::in_environment(&[("UP_KEY", KEY), ("SHADOW_KEY", MIRROR_KEY)], &format!("{SERVER}{backends}"))
}

/// Asks, with the client's own credentials and `more`.
fn ask(proxy: &Proxy, method: &str, path: &str, more: &[(&str, &str)]) {
    let headers = [&CLIENTS[..], &[("x-sim", "ttft_ms=0,itl_ms=0,tokens=1")], more].concat();
    let mut client = proxy.client();
    match method {
        "POST" => drop(client.ask(post(path, &headers, r#"{"model":"m","input":"x"}"#))),
        "HEAD" => {
            client.send(request(method, path, &headers));
            client.head();
        }
        _ => drop(client.ask(request(method, path, &headers))),
    }
}

/// The request that the simulation read last.
fn last(sim: &SimHandle) -> Request {
    sim.received().pop().expect("a request").request
}

/// A request carries this key alone: as a bearer, bare, or both.
fn assert_key(request: &Request, key: &str, bearer: bool, bare: bool, what: &str) {
    let expected = format!("Bearer {key}");
    assert_eq!(request.header("authorization"), bearer.then_some(&*expected), "{what}");
    assert_eq!(request.header("x-api-key"), bare.then_some(key), "{what}");
    assert_eq!(request.header("api-key"), None, "{what}");
    for name in ["authorization", "x-api-key"] {
        assert!(request.headers.iter().filter(|(known, _)| known == name).count() <= 1, "{what}: {name} twice");
    }
}

#[test]
fn a_backends_key_stands_where_each_dialect_looks_for_it() {
    let sim = sim();
    for (way, bearer, bare) in WAYS {
        let proxy = before(&sim, "/api", &keyed(way));
        for (method, path, below, messages) in ASKED {
            ask(&proxy, method, path, &[VERSION]);
            let got = last(&sim);
            assert_eq!((&*got.method, &*got.target), (method, &*format!("/api/v1{below}")), "{path}");
            let (bearer, bare) = if messages { (bearer, bare) } else { (true, false) };
            assert_key(&got, KEY, bearer, bare, &format!("{way:?}: {method} {path}"));
            assert_eq!(got.header(VERSION.0), Some(VERSION.1), "{path}");
        }
        // The list of models belongs to both worlds: its client says which it is of.
        for path in ["/v1/models", "/v1/models/m"] {
            ask(&proxy, "GET", path, &[]);
            assert_key(&last(&sim), KEY, true, false, &format!("{way:?}: {path}, as OpenAI's clients ask"));
            ask(&proxy, "GET", path, &[VERSION]);
            assert_key(&last(&sim), KEY, bearer, bare, &format!("{way:?}: {path}, as Anthropic's clients ask"));
        }
        ask(&proxy, "HEAD", "/", &[VERSION]);
        assert_key(&last(&sim), KEY, true, false, "the first request of some clients");
    }
}

#[test]
fn a_version_in_the_base_url_is_not_doubled_for_any_dialect() {
    let sim = sim();
    for (base, upstream) in [
        ("", "/v1"),
        ("/", "/v1"),
        ("/v1", "/v1"),
        ("/api", "/api/v1"),
        ("/api/v1", "/api/v1"),
        ("/api/v1/", "/api/v1"),
    ] {
        let proxy = before(&sim, base, "");
        for (method, path, below, _) in ASKED {
            ask(&proxy, method, path, &[]);
            assert_eq!(last(&sim).target, format!("{upstream}{below}"), "{path} below {base}");
        }
    }
}

#[test]
fn without_a_key_the_clients_own_passes_as_it_came() {
    let sim = sim();
    let unset = "api_key = { env = \"NOT_SET\" }\nmessages_auth = \"x-api-key\"";
    for more in ["", unset] {
        let proxy = before(&sim, "", more);
        for (method, path, ..) in ASKED {
            ask(&proxy, method, path, &[VERSION]);
            let got = last(&sim);
            for (name, value) in CLIENTS {
                assert_eq!(got.header(name), Some(value), "{method} {path}");
            }
        }
        // What is not there is not made up.
        proxy.client().ask(post("/v1/messages", &[], "{\"model\":\"m\"}"));
        assert_key(&last(&sim), "", false, false, "no key at all");
    }
}

#[test]
fn a_mirror_gets_its_own_key_by_dialect_and_the_version_that_is_spoken() {
    let (up, shadow) = (sim(), sim());
    for (way, bearer, bare) in WAYS {
        let to_shadow = format!("api_key = {{ env = \"SHADOW_KEY\" }}\n{way}");
        let route = "[[route]]\nmodel = \"*\"\nbackend = \"up\"\nmirror = { backend = \"shadow\", share = 1.0 }\n";
        let backends = backend("up", &up, "/api", &keyed("messages_auth = \"bearer\""))
            + &backend("shadow", &shadow, "/v1", &to_shadow);
        let proxy = start(&format!("{backends}{route}"));
        let beta = ("anthropic-beta", "fine-grained-tool-streaming-2025-05-14,context-management");
        for (path, messages) in [("/v1/messages?beta=true", true), ("/v1/chat/completions", false)] {
            let before = shadow.counts().requests;
            ask(&proxy, "POST", path, &[VERSION, beta]);
            assert_key(&last(&up), KEY, true, false, path);
            eventually("it is mirrored", || (shadow.counts().requests > before).then_some(()));
            let got = eventually("it is kept", || shadow.received().into_iter().nth(usize::try_from(before).ok()?));
            let (bearer, bare) = if messages { (bearer, bare) } else { (true, false) };
            assert_key(&got.request, MIRROR_KEY, bearer, bare, &format!("{way:?}: {path}"));
            assert_eq!(got.request.target, path.split('?').next().expect("a path"), "without the query");
            assert_eq!(got.request.header(VERSION.0), Some(VERSION.1));
            assert_eq!(got.request.header(beta.0), Some(beta.1));
        }
    }
}

#[test]
fn no_web_page_spends_a_key_whatever_it_asks_for() {
    let sim = sim();
    let proxy = before(&sim, "", &keyed(""));
    let mut client = proxy.client();
    let body = r#"{"model":"m"}"#;
    for (method, path, _, messages) in ASKED {
        for (header, status) in [
            (("origin", "https://evil.example"), 403),
            (("sec-fetch-site", "cross-site"), 403),
            (("host", "rebound.example"), 403),
            (("content-type", "text/plain"), 415),
        ] {
            if status == 415 && method != "POST" {
                continue;
            }
            let length = body.len().to_string();
            let mut headers = vec![header];
            if method == "POST" {
                headers.push(("content-length", &length));
            }
            if method == "POST" && header.0 != "content-type" {
                headers.push(("content-type", "application/json"));
            }
            let mut asked = request(method, path, &headers);
            if header.0 == "host" {
                asked = asked.replacen("host: 127.0.0.1\r\n", "", 1);
            }
            if method == "POST" {
                asked += body;
            }
            let reply = client.ask(asked);
            assert_eq!(reply.status, status, "{method} {path} with {header:?}: {reply:?}");
            let told = reply.json();
            assert_eq!(told["type"] == "error", messages, "in the shape of its dialect: {path}: {told}");
        }
    }
    assert_eq!(sim.counts().requests, 0);
}

#[test]
fn a_cancel_without_a_body_needs_no_type() {
    let upstream = Upstream::bind();
    let proxy = start(&format!("[backend.up]\nbase_url = \"http://{}\"\n{}\n{TO_UP}", upstream.addr(), keyed("")));
    let mut client = proxy.client();
    client.send(request("POST", "/v1/responses/resp_1/cancel", &[("content-length", "0")]));
    let mut conn = upstream.accept();
    let got = conn.request();
    assert!(got.head.starts_with("POST /v1/responses/resp_1/cancel HTTP/1.1\r\n"), "{}", got.head);
    assert!(got.head.contains(&format!("\r\nauthorization: Bearer {KEY}\r\n")), "{}", got.head);
    conn.answer("{\"status\":\"cancelled\"}");
    assert_eq!((client.reply().status, proxy.outcome(1)), (200, "ok"));
}
