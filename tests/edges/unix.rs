//! Clients that come over a socket in the file system.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use streamgauge::backend::sim::text;

use crate::support::client::{Client, PATIENCE, chat};
use crate::support::eventually;
use crate::support::process::{ConfigFile, Serve};
use crate::support::stage::{Proxy, sim};
use crate::support::upstream::Upstream;
use crate::{FINISH, STREAM, TOKEN, empty_scrape, with};

fn connect(path: &Path) -> Client<UnixStream> {
    let socket = UnixStream::connect(path).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("read timeout");
    Client::over(socket)
}

#[test]
fn a_stream_over_a_unix_socket_is_passed_and_measured_beside_tcp() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gauge.sock");
    let sim = sim();
    let keys = format!("unix = '{}'", path.display());
    // All threads share it.
    let proxy = Proxy::start(&with(&keys, sim.addr()).replace("threads = 1", "threads = 2"));
    let mut clients: Vec<_> = (0..8).map(|_| connect(&path)).collect();
    for client in &mut clients {
        let reply = client.chat("ttft_ms=2,itl_ms=1,tokens=10", STREAM);
        assert_eq!((reply.text(0, "content"), reply.is_done()), (text(10), true));
    }
    assert_eq!(proxy.client().chat("ttft_ms=2,itl_ms=1,tokens=10", STREAM).text(0, "content"), text(10));
    for exchange in proxy.finished(9) {
        assert_eq!(exchange.outcome.label(), "ok");
        assert!(exchange.marks.ttft_client().is_some() && exchange.tgs().is_some());
    }
    drop(clients);
    let scrape = empty_scrape(&proxy);
    assert_eq!(scrape.sum("dwell_seconds_count", &[]), scrape.sum("timestamps_total", &[]));
    proxy.running.stop();
    assert!(!path.exists(), "it is removed at the end");
}

#[test]
fn at_a_stop_nobody_waits_in_vain_at_the_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gauge.sock");
    let upstream = Upstream::bind();
    let config = with(&format!("unix = '{}'", path.display()), upstream.addr()).replace("drain_timeout_ms = 1000", "");
    let proxy = Proxy::start(&config);
    let mut client = connect(&path);
    client.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| proxy.running.stop());
        eventually("new clients are refused", || {
            // Each attempt that is not refused takes room in the queue, and waits once that is full.
            std::thread::sleep(Duration::from_millis(20));
            UnixStream::connect(&path).is_err().then_some(())
        });
        assert!(path.exists(), "a stream is still open");
        conn.event(FINISH);
        conn.end_stream();
        client.until(b"\r\n0\r\n\r\n").expect("the end");
        assert_eq!(stopping.join().expect("stopped"), 0);
    });
    assert!(!path.exists());
}

#[test]
fn a_client_that_leaves_its_unix_socket_lets_the_upstream_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gauge.sock");
    let upstream = Upstream::bind();
    let proxy = Proxy::start(&with(&format!("unix = '{}'", path.display()), upstream.addr()));
    let mut client = connect(&path);
    client.send(chat("", STREAM));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    conn.event(TOKEN);
    client.until(TOKEN.as_bytes()).expect("a token");
    drop(client);
    conn.closed_by_peer();
    assert_eq!(proxy.outcome(1), "client_cancel");
    empty_scrape(&proxy);
}

#[test]
fn beyond_the_limit_of_connections_a_unix_client_is_told_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gauge.sock");
    let sim = sim();
    let proxy = Proxy::start(&with(&format!("unix = '{}'\nmax_connections = 1", path.display()), sim.addr()));
    let mut first = proxy.client();
    assert_eq!(first.chat("ttft_ms=0,itl_ms=0,tokens=2", STREAM).status, 200);
    let mut second = connect(&path);
    second.send(chat("", STREAM));
    let reply = second.reply();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
}

#[test]
fn a_socket_left_behind_is_replaced_and_anything_else_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gauge.sock");
    let sim = sim();
    let config = with(&format!("unix = '{}'", path.display()), sim.addr());
    let refused = |expected: &str| {
        let output = ConfigFile::new(&config).refused();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("gauge.toml:6: server.unix: "), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(path.exists(), "what is not ours stays");
    };
    let live = UnixListener::bind(&path).expect("bound");
    refused("stop what serves there");
    drop(live);
    assert!(path.exists(), "a socket outlives its process");
    let serve = Serve::start(&config, "json", &[]);
    assert_eq!(connect(&path).get("/health").status, 200);
    serve.signal("TERM");
    assert!(serve.ended().0.success());
    eventually("the socket is gone", || (!path.exists()).then_some(()));
    std::fs::write(&path, "mine").expect("written");
    refused("something else than a socket is there");
}
