//! What coding agents and SDKs send beside their requests for text: it passes unharmed, both ways, and is counted.

use crate::support::client::Client;
use crate::support::stage::{Proxy, SERVER, TO_UP};
use crate::support::upstream::{Conn, Request, Upstream};
use crate::{post, request};

/// A proxy before a scripted upstream, without a key of its own.
fn before(upstream: &Upstream) -> Proxy {
    Proxy::before(upstream.addr(), "")
}

/// The values of a header in a request's head, in order. Its name must stand there exactly so.
fn values<'a>(got: &'a Request, name: &str) -> Vec<&'a str> {
    let lines = got.head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.filter(|(known, _)| *known == name).map(|(_, value)| value).collect()
}

/// The last of `count` exchanges was counted so, and not looked into.
fn assert_passed(proxy: &Proxy, count: usize) {
    let last = proxy.finished(count).pop().expect("an exchange");
    assert_eq!((last.operation, last.outcome.label(), last.measured), ("other", "ok", false));
}

/// What a long session of a coding agent sends: of this size or more, with fields nobody has heard of, and written in no
/// way that a serializer would write again.
fn agents_body(dialect: &str) -> String {
    let mut body = format!(
        "{{ \"model\":\"m\",\"stream\" :true,\"max_tokens\":32000,\n\t\"x_unknown\":{{\"deep\":[1.0e0,-0.0,1E+2,\"\\u00e9\\/\"],\
         \"deep\":null}},\"chat_template_kwargs\":{{\"enable_thinking\":false}},\"metadata\":{{\"user_id\":\"u\"}},\"{dialect}\":["
    );
    let turn = "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"caf\u{e9} \u{1f680} \\ud83d\\ude80 \\\"quoted\\\"\",\
                \"cache_control\":{\"type\":\"ephemeral\"}}]}";
    body.push_str(turn);
    while body.len() < 80 << 10 {
        body.extend([" ,\r\n", turn]);
    }
    body + "] , \"model_\":\"not this one\" }\n"
}

/// Sends a request and takes it at the upstream, over a connection that is opened for it.
fn carried(client: &mut Client, upstream: &Upstream, request: &str) -> (Conn, Request) {
    client.send(request);
    let mut conn = upstream.accept();
    let got = conn.request();
    (conn, got)
}

#[test]
fn a_first_look_at_the_root_passes_with_and_without_a_key() {
    let upstream = Upstream::bind();
    let key = "api_key = { env = \"UP_KEY\" }";
    for (more, headers, authorization) in [
        ("", &[][..], None),
        ("", &[("authorization", "Bearer of-client")][..], Some("Bearer of-client")),
        (key, &[("authorization", "Bearer of-client")][..], Some("Bearer sk-up")),
        (key, &[][..], Some("Bearer sk-up")),
    ] {
        let config = format!("{SERVER}[backend.up]\nbase_url = \"http://{}\"\n{more}\n{TO_UP}", upstream.addr());
        let proxy = Proxy::in_environment(&[("UP_KEY", "sk-up")], &config);
        let mut client = proxy.client();
        let (mut conn, got) = carried(&mut client, &upstream, &request("HEAD", "/", headers));
        assert!(got.head.starts_with("HEAD / HTTP/1.1\r\n"), "{}", got.head);
        assert_eq!(values(&got, "authorization"), authorization.into_iter().collect::<Vec<_>>());
        conn.send("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4242\r\nx-odd: 1\r\n\r\n");
        let head = client.head();
        assert_eq!((head.status, head.header("content-length"), head.header("x-odd")), (200, Some("4242"), Some("1")));
        assert_passed(&proxy, 1);
        // The connections are good for what comes next, as no body was owed.
        client.send(request("HEAD", "/", headers));
        assert!(conn.request().head.starts_with("HEAD / "), "over the same connection");
        conn.send("HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\n");
        assert_eq!((client.head().status, proxy.outcome(2)), (404, "upstream_4xx"));
    }
}

#[test]
fn what_lies_below_an_operation_passes_and_is_counted() {
    let upstream = Upstream::bind();
    let proxy = before(&upstream);
    let mut client = proxy.client();
    let tokens = "{ \"model\":\"m\", \"messages\" : [ ],\"thinking\":{\"type\":\"enabled\"}}";
    let cases = [
        ("GET", "/v1/responses/resp_1?include[]=a&starting_after=3", None),
        ("DELETE", "/v1/responses/resp_1", None),
        ("POST", "/v1/responses/resp_1/cancel", Some("")),
        ("POST", "/v1/responses/input_tokens", Some("{\"model\" :\"m\"}")),
        ("GET", "/v1/responses/resp_1/input_items?limit=2", None),
        ("POST", "/v1/messages/count_tokens?beta=true", Some(tokens)),
        ("POST", "/v1/messages/batches", Some("{ \"requests\": [] }")),
        ("GET", "/v1/chat/completions/chatcmpl_1", None),
    ];
    let mut conn = None;
    for (count, (method, path, body)) in cases.into_iter().enumerate() {
        let asked = match body {
            Some(body) => post(path, &[], body),
            None => request(method, path, &[]),
        };
        client.send(asked);
        let conn = conn.get_or_insert_with(|| upstream.accept());
        let got = conn.request();
        assert!(got.head.starts_with(&format!("{method} {path} HTTP/1.1\r\n")), "{}", got.head);
        assert_eq!(got.body, body.unwrap_or("").as_bytes());
        // It looks like a reply that would be measured, and is none of those.
        let answer = "{ \"choices\":[{\"index\":0}],\"input_tokens\":2095 ,\"usage\":{\"output_tokens\":1.0e0}}\n";
        conn.answer(answer);
        let reply = client.reply();
        assert_eq!((reply.status, &*reply.body), (200, answer.as_bytes()), "{method} {path}");
        assert_passed(&proxy, count + 1);
    }
    let scrape = proxy.idle_scrape();
    let other = [("operation", "other"), ("outcome", "ok")];
    assert_eq!(scrape.sum("requests_total", &other), cases.len() as f64);
    assert!(!scrape.text.contains("time_to_first_token_seconds"), "{}", scrape.text);
}

#[test]
fn an_agents_request_arrives_byte_for_byte_with_its_headers() {
    let upstream = Upstream::bind();
    let proxy = before(&upstream);
    // Names come in any case; each is written in lower case upstream, as in HTTP/2. Values stay as they are.
    let sent = [
        ("Accept", "application/json"),
        ("Accept-Encoding", "zstd, br"),
        ("anthropic-version", "2023-06-01"),
        ("Anthropic-Beta", "claude-code-20250219,interleaved-thinking-2025-05-14"),
        ("anthropic-beta", "context-management-2025-06-27"),
        ("anthropic-dangerous-direct-browser-access", "true"),
        ("X-Stainless-Lang", "js"),
        ("x-stainless-retry-count", "0"),
        ("X-Stainless-Helper-Method", "stream"),
        ("X-Codex-Turn-Metadata", "{\"turn\":\"a  b\"}"),
        ("x-codex-beta-features", "x"),
        ("originator", "codex_cli_rs"),
        ("session_id", "0199-abc"),
        ("OpenAI-Beta", "responses=experimental"),
        ("X-App", "cli"),
        ("X-Request-ID", "Req-From-Client"),
        ("request-id", "other id"),
        ("User-Agent", "claude-cli/2.0 (external, cli)"),
    ];
    for (count, (path, field)) in
        [("/v1/messages?beta=true", "messages"), ("/v1/responses", "input"), ("/v1/chat/completions", "messages")]
            .into_iter()
            .enumerate()
    {
        let body = agents_body(field);
        assert!(body.len() > 80_000);
        let mut client = proxy.client();
        client.send(post(path, &sent, &body));
        let mut conn = upstream.accept();
        let got = conn.request();
        assert!(got.head.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{}", got.head);
        assert!(got.body == body.as_bytes(), "the body changed");
        for (name, _) in sent {
            let lower = name.to_ascii_lowercase();
            let expected: Vec<&str> =
                sent.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| *value).collect();
            assert_eq!(values(&got, &lower), expected, "{name}");
        }
        let back = [
            ("request-id", "req_011CS"),
            ("X-Request-Id", "of-upstream"),
            ("X-Oneapi-Request-Id", "2026"),
            ("anthropic-ratelimit-tokens-remaining", "7"),
            ("anthropic-organization-id", "org"),
            ("X-Codex-Primary-Used-Percent", "12.5"),
            ("x-ratelimit-limit-requests", "60"),
            ("openai-processing-ms", "6"),
        ];
        let stream = "event: ping\ndata: {\"type\": \"ping\"}\n\n: odd\n\nevent:x\r\ndata:{}\r\n\r\n";
        let headers: String = back.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n{headers}content-length: {}\r\n\r\n{stream}",
            stream.len()
        ));
        let reply = client.reply();
        assert_eq!((reply.status, &*reply.body), (200, stream.as_bytes()));
        for (name, value) in back {
            assert_eq!(reply.header(name), Some(value), "{name}");
        }
        assert_eq!(proxy.finished(count + 1).pop().expect("an exchange").model_requested.as_deref(), Some("m"));
        drop(conn.close());
    }
}
