//! Streams through a real proxy, Debian's tinyproxy.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use streamgauge::backend::sim::{Kind, LogSink, SimConfig, SimHandle, text};
use streamgauge::clock::monotonic_ns;
use tempfile::TempDir;

use crate::server::{Plan, Server, Setup};
use crate::support::client::{Ended, PATIENCE};
use crate::support::eventually;
use crate::support::process::Killed;
use crate::support::stage::{Proxy, SERVER, TO_UP, backend, spawn};
use crate::support::tls::Certificate;
use crate::{STREAM, WHOLE, assert_told, chat};

/// A running tinyproxy.
struct Tinyproxy {
    address: SocketAddr,
    _process: Killed,
    _folder: TempDir,
}

impl Tinyproxy {
    /// Starts one, with more lines of configuration.
    fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Free now, and most likely still when it is bound again.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let file = folder.path().join("tinyproxy.conf");
        let port = address.port();
        std::fs::write(&file, format!("Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 200\n{more}\n"))
            .expect("written");
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Killed(command.spawn().expect("tinyproxy must be installed"));
        eventually("tinyproxy listens", || TcpStream::connect_timeout(&address, PATIENCE).ok());
        Self { address, _process: process, _folder: folder }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// `[backend.up]` of a simulation that speaks TLS.
fn secure(sim: &SimHandle, certificate: &Certificate) -> String {
    let (port, ca) = (sim.addr().port(), certificate.file.display().to_string());
    format!("{SERVER}[backend.up]\nbase_url = \"https://localhost:{port}\"\nca_file = {ca:?}\n{TO_UP}")
}

/// Asks for `count` streams at once and checks what came of each, and its marks against the simulation's own.
fn streams_are_exact(proxy: &Proxy, sim: &SimHandle, count: usize) {
    std::thread::scope(|scope| {
        for number in 0..count {
            scope.spawn(move || {
                let (tag, plan) =
                    (number.to_string(), format!("ttft_ms={},itl_ms=20,tokens=8,request={number}", 400 + number));
                let reply = proxy.client().ask(chat(&[("x-sim", &plan), ("x-streamgauge-tag", &tag)], STREAM));
                assert_eq!((reply.status, reply.ended, reply.text(0, "content")), (200, Ended::Complete, text(8)));
            });
        }
    });
    let entries =
        eventually("the log is complete", || (sim.counts().finished == count as u64).then(|| sim.take_entries()));
    let mut errors = Vec::new();
    for exchange in proxy.finished(count) {
        assert_eq!(exchange.outcome.label(), "ok");
        let name = exchange.tag.as_deref().expect("a tag");
        let at = |wanted: fn(Kind) -> bool| {
            let mut known = entries.iter().filter(|entry| &*entry.request == name && wanted(entry.kind));
            (known.next().expect("an entry").at_ns, known.next_back().map(|entry| entry.at_ns))
        };
        let (request, (first, last)) = (at(|kind| kind == Kind::Request).0, at(|kind| kind == Kind::Token));
        let marked = |mark: Option<_>| monotonic_ns(mark.expect("a mark"));
        let marks = &exchange.marks;
        assert!(marked(marks.first_token) >= first && marked(marks.last_token) >= last.expect("eight tokens"));
        let truth = Duration::from_nanos(first - request);
        errors.push(marks.ttft_upstream().expect("a TTFT").abs_diff(truth).as_secs_f64() / truth.as_secs_f64());
    }
    errors.sort_by(f64::total_cmp);
    // What a proxy adds is far less; what a busy machine adds to some is more.
    assert!(errors[errors.len() / 4] < 0.2, "TTFT is off by these parts of itself: {errors:?}");
}

#[test]
fn streams_pass_a_tunnel_and_stay_exact() {
    let (certificate, tinyproxy) = (Certificate::new(), Tinyproxy::start(""));
    let log = Some(LogSink::memory());
    let sim = spawn(SimConfig { tls: Some(certificate.server.clone()), log, ..SimConfig::default() });
    let proxy = Proxy::in_environment(&[("HTTPS_PROXY", &tinyproxy.url())], &secure(&sim, &certificate));
    streams_are_exact(&proxy, &sim, 40);
    for exchange in proxy.finished(40) {
        // The proxy looks names up.
        let phases = exchange.connect;
        assert!(phases.dns.is_none() && phases.connect.is_some() && phases.tls.is_some(), "{phases:?}");
        assert_eq!(exchange.reused, Some(false));
    }
    // The tunnels are kept.
    let opened = sim.counts().opened;
    assert_eq!(proxy.client().ask(chat(&[("x-sim", "ttft_ms=1,tokens=1")], WHOLE)).status, 200);
    assert_eq!((sim.counts().opened, proxy.finished(41)[40].reused), (opened, Some(true)));
}

#[test]
fn streams_of_plain_http_are_handed_to_the_proxy_and_stay_exact() {
    let tinyproxy = Tinyproxy::start("");
    let sim = spawn(SimConfig { log: Some(LogSink::memory()), ..SimConfig::default() });
    let config = format!("{SERVER}{}{TO_UP}", backend("up", sim.addr(), ""));
    let proxy = Proxy::in_environment(&[("http_proxy", &tinyproxy.url())], &config);
    streams_are_exact(&proxy, &sim, 20);
    // Only through the proxy does a request bear its name.
    let vias = |request: &streamgauge::backend::sim::Request| {
        request.headers.iter().any(|(_, value)| String::from_utf8_lossy(value).contains("tinyproxy"))
    };
    assert!(sim.received().iter().all(|received| vias(&received.request)));
    let direct = Proxy::in_environment(&[("http_proxy", &tinyproxy.url()), ("no_proxy", "127.0.0.0/8")], &config);
    assert_eq!(direct.client().ask(chat(&[], WHOLE)).status, 200);
    assert!(!vias(&sim.received().last().expect("a request").request));
}

#[test]
fn http_2_passes_a_tunnel_with_tls_and_without() {
    let tinyproxy = Tinyproxy::start("");
    let certificate = Certificate::new();
    let mut tls = (*certificate.server).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let plan = Plan { ttft: 50, itl: 5, tokens: 5, size: 1, head: 0, end: 0 };
    for tls in [Some(tls.into()), None] {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = Server::start(Setup { tls, ..Setup::default() });
        let (port, ca) = (server.addr.port(), certificate.file.display().to_string());
        let up = format!("base_url = \"{scheme}://localhost:{port}\"\nca_file = {ca:?}\nhttp2 = true\n");
        let proxy =
            Proxy::in_environment(&[("all_proxy", &tinyproxy.url())], &format!("{SERVER}[backend.up]\n{up}{TO_UP}"));
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let reply = proxy.client().ask(chat(&[("x-plan", &plan.header())], STREAM));
                    assert!(reply.status == 200 && reply.body == plan.bytes().into_bytes(), "{scheme}");
                });
            }
        });
        assert_eq!(server.opened(), 1, "{scheme}");
        assert!(proxy.finished(10).iter().all(|exchange| exchange.connect.dns.is_none()));
    }
}

#[test]
fn credentials_open_the_proxy_and_go_no_further() {
    let tinyproxy = Tinyproxy::start("BasicAuth user secret");
    let certificate = Certificate::new();
    let tls = spawn(SimConfig { tls: Some(certificate.server.clone()), ..SimConfig::default() });
    let plain = spawn(SimConfig::default());
    let configs = [secure(&tls, &certificate), format!("{SERVER}{}{TO_UP}", backend("up", plain.addr(), ""))];
    for (tunnelled, sim, config) in [(true, &tls, &configs[0]), (false, &plain, &configs[1])] {
        let url = |credentials: &str| format!("http://{credentials}{}", tinyproxy.address);
        let open = Proxy::in_environment(&[("ALL_PROXY", &url("user:s%65cret@"))], config);
        assert_eq!(open.client().ask(chat(&[], WHOLE)).status, 200);
        let received = sim.received().pop().expect("a request").request;
        assert_eq!(received.header("proxy-authorization"), None);

        // It answers 407 where there are none, 401 where they are wrong; that may be an upstream's answer, too, where
        // one could have given it.
        for (wrong, status) in [("", 407), ("user:hush@", 401)] {
            let shut = Proxy::in_environment(&[("ALL_PROXY", &url(wrong))], config);
            let reply = shut.client().ask(chat(&[], WHOLE));
            if status == 401 && !tunnelled {
                assert_eq!((reply.status, shut.outcome(1)), (401, "upstream_4xx"));
                continue;
            }
            let named = format!("the proxy {} (from ALL_PROXY): it answered {status}", tinyproxy.url());
            let next = if wrong.is_empty() { "put its credentials into" } else { "correct the user name and password" };
            assert_told(&reply, 502, "upstream_proxy", &["upstream \"up\"", &named, next]);
            assert!(!String::from_utf8_lossy(&reply.body).contains("hush"));
            assert_eq!(shut.outcome(1), "connect_error");
        }
        assert_eq!(sim.counts().requests, 1);
    }
}
