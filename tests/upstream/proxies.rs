//! What is said to proxies, and of proxies that do not do what they are for.

use std::net::SocketAddr;

use crate::support::process::{ConfigFile, Serve};
use crate::support::stage::{Proxy, SERVER, TO_UP, one_backend, sim};
use crate::support::upstream::Upstream;
use crate::{STREAM, WHOLE, assert_told, chat};

fn far(scheme: &str, more: &str) -> String {
    format!("{SERVER}[backend.up]\nbase_url = \"{scheme}://api.invalid/api\"\n{more}\n{TO_UP}")
}

fn through(proxy: SocketAddr, config: &str) -> Proxy {
    Proxy::in_environment(&[("HTTPS_PROXY", &format!("http://{proxy}/")), ("http_proxy", &proxy.to_string())], config)
}

#[test]
fn a_proxy_that_does_not_run_is_named_with_its_variable() {
    let gone = Upstream::bind().addr();
    for (scheme, variable) in [("https", "HTTPS_PROXY"), ("http", "http_proxy")] {
        let proxy = through(gone, &far(scheme, ""));
        let named = format!("the proxy http://{gone} (from {variable}): connection failed: Connection refused");
        let says = [
            &*format!("upstream \"up\" ({scheme}://api.invalid/api)"),
            &named,
            "start it, correct the variable, or add the host to NO_PROXY",
        ];
        assert_told(&proxy.client().ask(chat(&[], STREAM)), 502, "upstream_proxy", &says);
        assert_eq!(proxy.outcome(1), "connect_error");
        assert_eq!(proxy.idle_scrape().outcome("connect_error"), 1.0);
    }
}

#[test]
fn a_tunnel_that_is_not_granted_says_why() {
    let forwarder = Upstream::bind();
    let proxy = through(forwarder.addr(), &far("https", "head_timeout_ms = 60_000"));
    let named = format!("the proxy http://{} (from HTTPS_PROXY): ", forwarder.addr());
    for (answer, says, step) in [
        (
            "HTTP/1.1 407 Prove It\r\nproxy-authenticate: Basic\r\n\r\n",
            "it answered 407 Prove It",
            "put its credentials",
        ),
        ("HTTP/1.1 403 Filtered\r\ncontent-length: 2\r\n\r\nno", "it answered 403 Filtered", "allow the host there"),
        ("HTTP/1.0 502 No Route\r\n\r\n", "it answered 502 No Route", "NO_PROXY"),
        ("SSH-2.0-OpenSSH\r\n\r\n", "its answer is not a proxy's: it is not HTTP", "names an HTTP proxy"),
        ("HTTP/1.1 200 OK\r\n\r\n\x15\x03\x03", "its answer is not a proxy's: bytes follow its head", "NO_PROXY"),
        ("HTTP/1.1 200", "it closed the connection without an answer", "start it"),
    ] {
        let mut client = proxy.client();
        client.send(chat(&[], WHOLE));
        let mut conn = forwarder.accept();
        let asked = conn.request_head().expect("a request");
        assert_eq!(asked, "CONNECT api.invalid:443 HTTP/1.1\r\nHost: api.invalid:443\r\n\r\n");
        conn.send(answer);
        drop(conn.close());
        assert_told(&client.reply(), 502, "upstream_proxy", &["upstream \"up\"", &named, says, step]);
    }
    for exchange in proxy.finished(6) {
        assert_eq!(exchange.outcome.label(), "connect_error");
        assert!(exchange.connect.dns.is_none() && exchange.connect.connect.is_some(), "{:?}", exchange.connect);
        assert!(exchange.connect.tls.is_none() && exchange.marks.sent.is_none());
    }
}

#[test]
fn a_proxy_that_says_nothing_has_the_time_for_connecting() {
    let forwarder = Upstream::bind();
    let proxy = through(forwarder.addr(), &far("https", "connect_timeout_ms = 2000"));
    let says = ["(from HTTPS_PROXY): connecting took longer than 2000 ms (connect_timeout_ms)", "start it"];
    assert_told(&proxy.client().ask(chat(&[], WHOLE)), 502, "upstream_proxy", &says);
    assert_eq!(proxy.outcome(1), "connect_error");

    // Behind the tunnel it is the upstream that is late.
    let mut client = proxy.client();
    client.send(chat(&[], WHOLE));
    drop(forwarder.accept());
    let mut conn = forwarder.accept();
    conn.request_head().expect("a request");
    conn.send("HTTP/1.1 200 OK\r\n\r\n");
    conn.client_hello();
    let says = ["the TLS handshake took longer than 2000 ms", "check that it runs"];
    assert_told(&client.reply(), 502, "upstream_connect_timeout", &says);
}

#[test]
fn plain_http_is_asked_in_absolute_form_with_the_proxys_credentials() {
    let forwarder = Upstream::bind();
    let url = format!("http://us%3Aer:pass@{}", forwarder.addr());
    let proxy = Proxy::in_environment(&[("HTTP_PROXY", &url)], &far("http", ""));
    let mut client = proxy.client();
    let mut conn = None;
    for reused in [false, true] {
        let sent = [("authorization", "Bearer mine"), ("proxy-authorization", "Basic mine"), ("x-vendor", "1")];
        client.send(chat(&sent, WHOLE));
        let conn = conn.get_or_insert_with(|| forwarder.accept());
        let request = conn.request();
        let mut lines: Vec<&str> = request.head.trim_end().lines().collect();
        assert_eq!(lines.remove(0), "POST http://api.invalid/api/v1/chat/completions HTTP/1.1");
        lines.retain(|line| !line.starts_with("via: "));
        lines.sort_unstable();
        let expected = [
            "authorization: Bearer mine",
            &*format!("content-length: {}", WHOLE.len()),
            "content-type: application/json",
            "host: api.invalid",
            "proxy-authorization: Basic dXM6ZXI6cGFzcw==",
            "x-vendor: 1",
        ];
        assert_eq!((lines, request.body), (expected.to_vec(), WHOLE.as_bytes().to_vec()));
        conn.answer("{}");
        assert_eq!(client.reply().body, b"{}");
        let exchange = proxy.finished(1 + usize::from(reused)).pop().expect("an exchange");
        assert_eq!(exchange.reused, Some(reused));
    }

    // What the upstream may have said passes; only a proxy asks for its own credentials.
    let conn = &mut conn.expect("a connection");
    client.send(chat(&[], WHOLE));
    conn.request();
    conn.send("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\n\r\nno");
    assert_eq!(client.reply().status, 502);
    client.send(chat(&[], WHOLE));
    conn.request();
    conn.send("HTTP/1.1 407 Prove It\r\nproxy-authenticate: Basic\r\ncontent-length: 2\r\n\r\nno");
    assert_told(
        &client.reply(),
        502,
        "upstream_proxy",
        &["(from HTTP_PROXY): it answered 407", "correct the user name and password"],
    );
    let outcomes: Vec<_> = proxy.finished(4)[2..].iter().map(|exchange| exchange.outcome.label()).collect();
    assert_eq!(outcomes, ["upstream_5xx", "connect_error"]);
}

#[test]
fn a_proxys_name_that_cannot_be_looked_up_is_the_proxys_fault() {
    // Longer than a label may be, so that no resolver need be asked.
    let name = format!("{}.example:8080", "x".repeat(64));
    let proxy = Proxy::in_environment(&[("ALL_PROXY", &name)], &far("https", ""));
    let says = [&*format!("the proxy http://{name} (from ALL_PROXY): its name could not be looked up"), "NO_PROXY"];
    assert_told(&proxy.client().ask(chat(&[], WHOLE)), 502, "upstream_proxy", &says);
}

#[test]
fn hosts_in_no_proxy_are_reached_directly() {
    let sim = sim();
    let gone = Upstream::bind().addr().to_string();
    for (exempt, status) in [("127.0.0.0/8", 200), (&*sim.addr().to_string(), 200), ("localhost", 502)] {
        let variables = [("HTTP_PROXY", &*gone), ("NO_PROXY", exempt)];
        let proxy = Proxy::in_environment(&variables, &one_backend(sim.addr(), ""));
        assert_eq!(proxy.client().ask(chat(&[], WHOLE)).status, status, "{exempt}");
    }
}

#[test]
fn the_log_names_the_proxy_and_its_variable_but_no_credentials() {
    let config = format!("{SERVER}[backend.up]\nbase_url = \"https://api.invalid\"\n{TO_UP}");
    let serve = Serve::start(&config, "text", &[("HTTPS_PROXY", "http://me:hush@127.0.0.1:7890")]);
    serve.signal("TERM");
    let (_, lines) = serve.ended();
    let line = lines.iter().find(|line| line.contains("https://api.invalid")).expect("a line of the backend");
    assert!(line.contains("http://127.0.0.1:7890 (HTTPS_PROXY)"), "{line}");
    assert!(!lines.iter().any(|line| line.contains("hush")), "{lines:?}");
}

#[test]
fn a_proxy_of_another_kind_is_refused_at_start() {
    let file = ConfigFile::new(&format!("{SERVER}[backend.up]\nbase_url = \"https://api.invalid\"\n{TO_UP}"));
    let output = file.refused_in(&[("all_proxy", "socks5://me:hush@127.0.0.1:1080")]);
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("all_proxy: a proxy that is spoken to by socks5 cannot be used; give http://host:port"),
        "{told}"
    );
    assert!(told.contains("add api.invalid to NO_PROXY") && !told.contains("hush"), "{told}");
}
