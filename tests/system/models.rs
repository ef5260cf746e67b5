//! `/v1/models`.

use serde_json::{Value, json};
use streamgauge::backend::sim::{SimConfig, SimHandle};

use crate::request;
use crate::support::client::Reply;
use crate::support::eventually;
use crate::support::process::Serve;
use crate::support::stage::{Proxy, SERVER, TO_UP, backend, spawn};
use crate::support::upstream::Upstream;

fn listing(models: &[&str]) -> SimHandle {
    spawn(SimConfig { models: models.iter().map(|model| (*model).to_owned()).collect(), ..SimConfig::default() })
}

fn ids(reply: &Reply) -> Vec<String> {
    let list = reply.json();
    assert_eq!((reply.status, list["object"].as_str()), (200, Some("list")));
    let models = list["data"].as_array().expect("a list").iter();
    models.map(|model| model["id"].as_str().expect("an id").to_owned()).collect()
}

fn list() -> String {
    request("GET", "/v1/models?limit=3", &[])
}

#[test]
fn one_upstreams_list_passes_verbatim() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(list());
    let mut conn = upstream.accept();
    assert!(conn.request().head.starts_with("GET /v1/models?limit=3 HTTP/1.1\r\n"));
    let body = "{ \"data\":[ {\"id\" : \"a\", \"x\":1.0e0} ],\n\"odd\":true}";
    conn.answer(body);
    assert_eq!(client.reply().body, body.as_bytes());
    client.send(list());
    conn.request();
    conn.send("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 2\r\n\r\nno");
    let reply = client.reply();
    assert_eq!((reply.status, &*reply.body, reply.header("www-authenticate")), (401, &b"no"[..], Some("Bearer")));
    assert_eq!(proxy.outcome(2), "upstream_4xx");
}

#[test]
fn lists_are_merged_with_what_the_configuration_names() {
    let (one, two) = (listing(&["a", "shared"]), listing(&["shared", "b"]));
    let routes = "[[route]]\nmodel = \"claude\"\nbackend = \"two\"\n[[route]]\nmodel = \"glob-*\"\nbackend = \"two\"\n";
    let backends = backend("up", one.addr(), "") + &backend("two", two.addr(), "");
    let proxy = Proxy::start(&format!("{SERVER}{backends}{routes}{TO_UP}"));
    let reply = proxy.client().ask(list());
    assert_eq!(ids(&reply), ["claude", "a", "shared", "b"]);
    assert_eq!(reply.json()["data"][0]["owned_by"], Value::from("two"));
    assert_eq!(proxy.outcome(1), "ok");

    drop(one);
    assert_eq!(ids(&proxy.client().ask(list())), ["claude", "shared", "b"], "one upstream down hides no other");
    proxy.idle_scrape();
}

#[test]
fn the_clients_key_reaches_the_default_backend_alone() {
    let (one, two) = (listing(&["a"]), listing(&["b"]));
    let backends = backend("two", two.addr(), "") + &backend("up", one.addr(), "");
    let proxy = Proxy::start(&format!("{SERVER}{backends}{TO_UP}"));
    let key = [("authorization", "Bearer sk-client"), ("x-api-key", "sk-client"), ("api-key", "sk-client")];
    assert_eq!(ids(&proxy.client().ask(request("GET", "/v1/models", &key))), ["b", "a"]);
    let theirs = |sim: &SimHandle| {
        let request = sim.received().remove(0).request;
        key.map(|(name, _)| request.header(name).map(str::to_owned))
    };
    assert_eq!(theirs(&one), key.map(|(_, value)| Some(value.to_owned())));
    assert_eq!(theirs(&two), [None, None, None]);
}

#[test]
fn an_upstream_that_is_slow_with_its_list_does_not_hold_up_the_others() {
    // One that says nothing, one that stops in the middle.
    let (silent, half, quick) = (Upstream::bind(), Upstream::bind(), listing(&["a"]));
    let slow = "head_timeout_ms = 500";
    let backends = backend("silent", silent.addr(), slow)
        + &backend("half", half.addr(), slow)
        + &backend("quick", quick.addr(), "")
        + &backend("up", half.addr(), slow);
    let serve = Serve::start(&format!("{SERVER}{backends}{TO_UP}"), "json", &[]);
    let mut client = serve.client();
    client.send(list());
    let mut conns = [half.accept(), half.accept()];
    for conn in &mut conns {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"data\":[");
    }
    assert_eq!(ids(&client.reply()), ["a"]);
    for conn in conns {
        conn.closed_by_peer();
    }
    let warnings = || {
        let lines = serve.output();
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let lines: Vec<_> = lines.filter(|line| line["message"] == "its models are not listed").collect();
        (lines.len() == 3).then_some(lines)
    };
    for (line, name) in eventually("all are logged", warnings).iter().zip(["silent", "half", "up"]) {
        assert_eq!((&line["level"], &line["backend"]), (&Value::from("WARN"), &Value::from(name)));
        let why = line["refusal"].as_str().expect("a reason");
        assert!(why.contains(name) && why.contains("within 500 ms"), "{line}");
    }
}

#[test]
fn a_list_that_nobody_gives_names_an_upstream() {
    let gone = listing(&[]).addr();
    let backends = backend("up", gone, "") + &backend("two", gone, "");
    let proxy = Proxy::start(&format!("{SERVER}{backends}{TO_UP}"));
    let reply = proxy.client().ask(list());
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (502, Some("upstream_connect")));
    assert_eq!(proxy.outcome(1), "connect_error");
}

/// What describes a list that is then rewritten.
const OF_THE_BODY: [&str; 6] = ["etag", "content-digest", "repr-digest", "digest", "content-md5", "last-modified"];

/// What a reply depends on.
fn vary(reply: &Reply) -> String {
    let lines = reply.head.lines().filter_map(|line| line.strip_prefix("vary: "));
    lines.collect::<Vec<_>>().join(", ")
}

const ANTHROPIC: [(&str, &str); 2] = [("anthropic-version", "2023-06-01"), ("accept-encoding", "gzip")];

#[test]
fn clients_of_anthropics_api_read_any_upstreams_list() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let mut client = proxy.client();
    client.send(request("GET", "/v1/models?limit=3&after_id=x", &ANTHROPIC));
    let mut conn = upstream.accept();
    let head = conn.request().head;
    assert!(head.starts_with("GET /v1/models?limit=3&after_id=x HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nanthropic-version: 2023-06-01\r\n") && !head.contains("accept-encoding"), "{head}");
    let list = r#"{"object":"list","data":[{"id":"a","created":1747872000,"object":"model"},{"id":"b"}]}"#;
    let of_the_body = OF_THE_BODY.map(|name| format!("{name}: old\r\n")).concat();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/json\r\nrequest-id: r1\r\nconnection: x-hop\r\nx-hop: 1\r\n\
         vary: accept-encoding\r\n{of_the_body}content-length: {}\r\n\r\n{list}",
        list.len()
    );
    conn.send(answer);
    let reply = client.reply();
    let model = |id: &str, at: &str| json!({"type": "model", "id": id, "display_name": id, "created_at": at});
    let models = [model("a", "2025-05-22T00:00:00Z"), model("b", "1970-01-01T00:00:00Z")];
    let expected = json!({"data": models, "has_more": false, "first_id": "a", "last_id": "b"});
    assert_eq!((reply.status, reply.json()), (200, expected));
    assert_eq!((reply.header("request-id"), reply.header("x-hop")), (Some("r1"), None));
    for name in OF_THE_BODY {
        assert_eq!(reply.header(name), None, "{name} described another list");
    }
    assert_eq!(
        (reply.header("content-type"), vary(&reply)),
        (Some("application/json"), "accept-encoding, anthropic-version".to_owned())
    );
    let exchange = proxy.finished(1).pop().expect("one");
    assert!(exchange.marks.sent.is_some() && exchange.marks.head.is_some(), "{exchange:?}");
    assert_eq!((exchange.reused, exchange.connect.connect.is_some()), (Some(false), true));

    // One that is theirs already, and what is no list, stay byte for byte.
    for body in
        ["{ \"data\":[ {\"id\" : \"a\",\"type\":\"model\",\"x\":1.0e0} ],\n\"has_more\":true}", "{\"data\": 7 }"]
    {
        client.send(request("GET", "/v1/models", &ANTHROPIC));
        conn.request();
        conn.send(format!("HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        let reply = client.reply();
        assert_eq!((&*reply.body, reply.header("etag")), (body.as_bytes(), Some("\"1\"")));
    }
    client.send(request("GET", "/v1/models", &ANTHROPIC));
    conn.request();
    conn.send("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 2\r\n\r\nno");
    let reply = client.reply();
    assert_eq!((reply.status, &*reply.body, reply.header("www-authenticate")), (401, &b"no"[..], Some("Bearer")));
    let outcomes: Vec<_> = proxy.finished(4).iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "upstream_4xx"]);
    // A list that breaks off is no list.
    client.send(request("GET", "/v1/models", &ANTHROPIC));
    conn.request();
    conn.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"data\":[");
    drop(conn.close());
    let reply = client.reply();
    assert_eq!((reply.status, reply.json()["error"]["type"].as_str()), (502, Some("api_error")), "{reply:?}");
    proxy.idle_scrape();
}

#[test]
fn lists_of_both_apis_are_merged_for_clients_of_either() {
    let (one, two) = (listing(&["a", "shared"]), Upstream::bind());
    let routes = "[[route]]\nmodel = \"claude\"\nbackend = \"two\"\n";
    let backends = backend("up", one.addr(), "") + &backend("two", two.addr(), "");
    let proxy = Proxy::start(&format!("{SERVER}{backends}{routes}{TO_UP}"));
    let theirs = r#"{"data":[{"type":"model","id":"claude-x","display_name":"Claude X","created_at":"2025-05-22T00:00:00Z"},
        {"type":"model","id":"shared","display_name":"S","created_at":"2025-05-22T00:00:00Z"}],"has_more":false}"#;
    let mut client = proxy.client();
    client.send(request("GET", "/v1/models?limit=1", &ANTHROPIC));
    let mut conn = two.accept();
    let head = conn.request().head;
    assert!(head.starts_with("GET /v1/models?limit=1000 HTTP/1.1\r\n"), "one page for all: {head}");
    conn.answer(theirs);
    let reply = client.reply();
    assert_eq!(vary(&reply), "anthropic-version");
    let merged = reply.json();
    let models = merged["data"].as_array().expect("a list").clone();
    let names: Vec<_> = models.iter().map(|model| model["id"].as_str().expect("an id")).collect();
    assert_eq!(names, ["claude", "a", "shared", "claude-x"]);
    assert_eq!(
        (&merged["first_id"], &merged["last_id"], &merged["has_more"]),
        (&"claude".into(), &"claude-x".into(), &false.into())
    );
    for model in &models {
        let keys: Vec<_> = model.as_object().expect("an object").keys().cloned().collect();
        assert_eq!(keys, ["created_at", "display_name", "id", "type"]);
    }
    assert_eq!(models[3]["display_name"], "Claude X");

    client.send(list());
    assert!(conn.request().head.starts_with("GET /v1/models?limit=3 HTTP/1.1\r\n"));
    conn.answer(theirs);
    assert_eq!(ids(&client.reply()), ["claude", "a", "shared", "claude-x"]);
}
