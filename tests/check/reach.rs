//! The way there: proxies, names, TCP, TLS, and how long each may take.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use streamgauge::backend::sim::{SimConfig, SimHandle};

use crate::support::stage::spawn;
use crate::support::tls::Certificate;
use crate::support::upstream::{Conn, Upstream};
use crate::{Asked, PAUSE, check, check_with, cut_short, json, reply, up, upstream, upstream_but};

/// A port where nothing listens.
fn dead() -> SocketAddr {
    Upstream::bind().addr()
}

/// Does `with` to connections until one brings bytes and was answered.
fn serving_once<T: Send + 'static>(
    with: impl FnOnce(Conn) -> T + Send + 'static,
) -> (SocketAddr, std::thread::JoinHandle<T>) {
    let upstream = Upstream::bind();
    (upstream.addr(), std::thread::spawn(move || with(upstream.accept())))
}

#[test]
fn a_dead_proxy_is_named_with_its_variable() {
    let dead = dead();
    for (variable, base) in [
        ("HTTPS_PROXY", "https://api.example"),
        ("http_proxy", "http://api.example"),
        ("ALL_PROXY", "https://api.example"),
    ] {
        let checked = check_with(&up(base, ""), &[], &[(variable, &format!("http://user:hush@{dead}"))]);
        checked.says("proxy", "ok", &format!("http://{dead} from {variable}, which serves"), "");
        checked.says("dns", "skipped", "the proxy is given by its address, and looks api.example up itself", "");
        checked.failed_at(
            "tcp",
            &format!("the proxy http://{dead} (from {variable}): connection failed: Connection refused"),
            &format!("start the proxy, correct or unset {variable}, or add api.example to NO_PROXY to go without"),
        );
        assert!(!checked.all.contains("hush"), "{}", checked.all);
    }
}

#[test]
fn a_proxy_that_refuses_is_told_apart() {
    let needed = "407 Proxy Authentication Required";
    for (own, answer, says, advice) in [
        ("", needed, "it answered 407", "write HTTPS_PROXY=http://user:password@host:port"),
        ("u:pw@", needed, "it answered 407", "it does not take the name and password in HTTPS_PROXY: correct them"),
        ("", "403 Filtered", "it answered 403 Filtered", "it does not let this through"),
        (
            "",
            "502 Bad Gateway",
            "it answered 502",
            "it did not get to api.example: check how that is spelt in base_url",
        ),
    ] {
        let (addr, serving) = serving_once(move |mut conn| {
            let request = conn.request();
            conn.send(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n"));
            request.head
        });
        let environment = [("HTTPS_PROXY", &*format!("{own}{addr}"))];
        check_with(&up("https://api.example/v1", ""), &[], &environment).failed_at("tcp", says, advice);
        assert!(serving.join().expect("served").starts_with("CONNECT api.example:443 HTTP/1.1\r\n"));
    }
    let (addr, serving) = serving_once(|mut conn| {
        conn.request();
        conn.send("220 mail.example ESMTP\r\n\r\n");
    });
    let environment = [("HTTPS_PROXY", &*addr.to_string())];
    let checked = check_with(&up("https://api.example", ""), &[], &environment);
    checked.failed_at("tcp", "its answer is not a proxy's", "check that HTTPS_PROXY names an HTTP proxy");
    serving.join().expect("served");
}

#[test]
fn which_proxy_variable_applies_is_said_with_the_reason() {
    let upstream = upstream(|_, _| None);
    let dead = dead().to_string();
    for (environment, says) in [
        (&[][..], "none: no variable names one"),
        (&[("HTTPS_PROXY", &*dead)], "none: HTTPS_PROXY does not serve http upstreams"),
        (
            &[("HTTP_PROXY", &*dead), ("NO_PROXY", "x,127.0.0.1")],
            "none: NO_PROXY lists 127.0.0.1, so HTTP_PROXY does not apply",
        ),
        (&[("all_proxy", &*dead), ("no_proxy", "*")], "none: no_proxy lists 127.0.0.1, so all_proxy does not apply"),
    ] {
        check_with(&up(&upstream.url(), ""), &[], environment).is_well().says("proxy", "ok", says, "");
    }
    // For http the proxy is the one that answers.
    let addr = upstream.addr.to_string();
    let checked = check_with(&up("http://api.example", ""), &[], &[("http_proxy", &addr), ("NO_PROXY", "b.example")]);
    let says =
        format!("http://{addr} from http_proxy, which serves http upstreams, and NO_PROXY does not list api.example");
    checked.is_well().says("proxy", "ok", &says, "").says(
        "tcp",
        "ok",
        &format!("connected to the proxy at {addr}"),
        "",
    );
}

#[test]
fn a_name_that_cannot_be_looked_up_is_named() {
    // Longer than a label may be, so that no resolver need be asked.
    let host = format!("{}.example", "x".repeat(64));
    let advice = format!("check how {host} is spelt in base_url, and that this machine's name service works");
    check(&format!("http://{host}"), "").failed_at("dns", "its name could not be looked up", &advice);
}

#[test]
fn a_port_where_nothing_listens_is_named() {
    let dead = dead();
    check(&format!("http://{dead}"), "").failed_at(
        "tcp",
        "connection failed: Connection refused",
        &format!("nothing listens at 127.0.0.1 on port {}: start it, or correct base_url", dead.port()),
    );
}

fn over_tls(certificate: &Certificate) -> SimHandle {
    spawn(SimConfig { tls: Some(certificate.server.clone()), ..SimConfig::default() })
}

fn trusting(certificate: &Certificate) -> String {
    format!("ca_file = '{}'", certificate.file.display())
}

#[test]
fn tls_that_works_says_what_was_agreed_on() {
    let certificate = Certificate::new();
    let sim = over_tls(&certificate);
    let checked = check(&format!("https://localhost:{}", sim.addr().port()), &trusting(&certificate));
    checked.is_well();
    checked.says("dns", "ok", "localhost: ", "").says("tls", "ok", "TLS 1.3; the certificate is localhost's", "");
}

#[test]
fn certificates_that_do_not_fit_are_told_apart() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let sim = over_tls(&certificate);
    let port = sim.addr().port();
    check(&format!("https://127.0.0.1:{port}"), &trusting(&certificate)).failed_at(
        "tls",
        "the TLS handshake failed",
        "the certificate is for localhost, not for 127.0.0.1: write a host it names in base_url",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    let ca_file = format!("ca_file = '{}'", file.display());
    let pair = rcgen::KeyPair::generate().expect("a key");
    let mut stranger = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    stranger.distinguished_name.push(rcgen::DnType::OrganizationName, "Strangers");
    std::fs::write(&file, stranger.self_signed(&pair).expect("a certificate").pem()).expect("written");
    // An issuer of another name, and one of the same name with another key.
    for ca_file in [&ca_file, &trusting(&other)] {
        check(&format!("https://localhost:{port}"), ca_file).failed_at(
            "tls",
            "the TLS handshake failed",
            "the certificate's issuer is not trusted here: for a CA of your own set ca_file to its certificate (PEM)",
        );
    }

    let mut expired = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    expired.not_before = rcgen::date_time_ymd(2020, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2021, 1, 1);
    // What openssl makes when it is told nothing else.
    let mut of_a_ca = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
    of_a_ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    for (parameters, advice) in [
        (expired, "the certificate has expired"),
        (of_a_ca, "a CA's certificate is used there as the server's own: give the server one with"),
    ] {
        let issued = parameters.self_signed(&pair).expect("a certificate");
        std::fs::write(&file, issued.pem()).expect("written");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let key = PrivateKeyDer::Pkcs8(pair.serialize_der().into());
                builder.with_no_client_auth().with_single_cert(vec![issued.der().clone()], key)
            })
            .expect("a server configuration");
        let sim = spawn(SimConfig { tls: Some(Arc::new(server)), ..SimConfig::default() });
        let url = format!("https://localhost:{}", sim.addr().port());
        check(&url, &ca_file).failed_at("tls", "handshake failed", advice);
    }
}

#[test]
fn the_wrong_scheme_for_a_port_is_told_both_ways() {
    let (certificate, plain) = (Certificate::new(), spawn(SimConfig::default()));
    let port = plain.addr().port();
    check(&format!("https://localhost:{port}"), &trusting(&certificate)).failed_at(
        "tls",
        "the TLS handshake failed",
        &format!("this port speaks no TLS: write base_url = \"http://localhost:{port}\""),
    );
    let secure = over_tls(&certificate);
    let port = secure.addr().port();
    check(&format!("http://localhost:{port}/v1"), "").failed_at(
        "models",
        "it",
        &format!("if this port speaks TLS, write base_url = \"https://localhost:{port}/v1\""),
    );
}

#[test]
fn a_server_that_complains_of_plain_http_is_understood() {
    for said in [
        "<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port</title></head>",
        "Client sent an HTTP request to an HTTPS server.\n",
    ] {
        let upstream = upstream_but(Asked::Models, reply(400, "", said));
        let advice = format!("this port speaks TLS: write base_url = \"https://{}\"", upstream.addr);
        check(&upstream.url(), "").failed_at("models", "answered 400 Bad Request", &advice);
    }
}

#[test]
fn an_upstream_without_http_2_is_told_so() {
    let upstream = upstream(|_, _| None);
    let advice = "set http2 = false";
    check(&upstream.url(), "http2 = true").failed_at("models", "it does not speak HTTP/2", advice);
    // Over TLS the two agree on what both speak.
    let certificate = Certificate::new();
    let sim = over_tls(&certificate);
    let more = format!("{}\nhttp2 = true", trusting(&certificate));
    check(&format!("https://localhost:{}", sim.addr().port()), &more).is_well();
}

#[test]
fn what_takes_too_long_names_the_key_to_raise() {
    let silent = Upstream::bind();
    let certificate = Certificate::new();
    let more = format!("{}\nconnect_timeout_ms = 200", trusting(&certificate));
    check(&format!("https://localhost:{}", silent.addr().port()), &more).failed_at(
        "tls",
        "the TLS handshake took longer than 200 ms (connect_timeout_ms)",
        "if it is just slow, raise connect_timeout_ms",
    );
    check(&format!("http://{}", silent.addr()), "head_timeout_ms = 200").failed_at(
        "models",
        "it did not answer within 200 ms (head_timeout_ms)",
        "if it needs this long, raise head_timeout_ms",
    );
    let stalled = format!("{}{}", cut_short(&json(200, "{")), PAUSE.to_string().repeat(100));
    let stalled = upstream_but(Asked::Chat, stalled);
    check(&stalled.url(), "idle_timeout_ms = 200").failed_at(
        "chat",
        "sent nothing for 200 ms (idle_timeout_ms)",
        "if it may be silent for so long, raise idle_timeout_ms",
    );
    let environment = [("HTTPS_PROXY", &*silent.addr().to_string())];
    check_with(&up("https://api.example", "connect_timeout_ms = 200"), &[], &environment).failed_at(
        "tcp",
        "connecting took longer than 200 ms (connect_timeout_ms)",
        "start the proxy, correct or unset HTTPS_PROXY",
    );
}

#[test]
fn a_reply_that_stops_half_way_is_told() {
    let cut = upstream_but(Asked::Chat, cut_short(&json(200, "{\"choices\":[")));
    check(&cut.url(), "").failed_at(
        "chat",
        "closed the connection before the end of its answer",
        "cutting replies off",
    );
    let closing = upstream_but(Asked::Chat, String::new());
    check(&closing.url(), "").failed_at("chat", "it closed the connection without an answer", "https://127.0.0.1");
    let empty = upstream_but(Asked::Chat, reply(200, "", ""));
    check(&empty.url(), "").failed_at(
        "chat",
        "answered 200 OK with an empty body",
        "something between may swallow replies",
    );
}
