//! Clients of HTTP/2: many streams over one connection, each for itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use streamgauge::backend::sim::text;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::secure::{Files, Pair, name};
use crate::support::client::PATIENCE;
use crate::support::metrics::Scrape;
use crate::support::stage::{Proxy, one_backend, sim};
use crate::support::upstream::{Conn, Upstream};
use crate::{FINISH, STREAM, TOKEN, refused, with};

/// One connection. Each stream's window is small, so that a reply nobody reads soon waits.
#[derive(Clone)]
pub(crate) struct Client {
    send: SendRequest<Full<Bytes>>,
    /// Ends with the connection.
    driver: Arc<JoinHandle<hyper::Result<()>>>,
}

impl Client {
    async fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).await.expect("connected")).await
    }

    async fn over(socket: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::with_window(socket, 65_535).await
    }

    pub(crate) async fn with_window(
        socket: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
        bytes: u32,
    ) -> Self {
        let (send, driver) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(bytes)
            .handshake(TokioIo::new(socket))
            .await
            .expect("a connection");
        Self { send, driver: Arc::new(tokio::spawn(driver)) }
    }

    pub(crate) async fn ask(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let mut send = self.send.clone();
        send.ready().await.expect("ready");
        send.send_request(request).await.expect("a reply")
    }

    async fn closed(&self) {
        within("the connection's end", async {
            while !self.driver.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// A chat request with an `x-sim` header.
fn chat(sim: &str, body: &str) -> Request<Full<Bytes>> {
    let request = Request::post("http://localhost/v1/chat/completions");
    let request = request.header("content-type", "application/json").header("x-sim", sim);
    request.body(Full::from(body.to_owned())).expect("a request")
}

pub(crate) async fn text_of(body: Incoming) -> String {
    let body = within("a body", body.collect()).await.expect("whole").to_bytes();
    String::from_utf8(body.to_vec()).expect("UTF-8")
}

/// Reads until `mark` has come.
async fn read_until(body: &mut Incoming, mark: &str) -> String {
    let mut read = String::new();
    while !read.contains(mark) {
        let frame = within(mark, body.frame()).await.expect("more").expect("in order");
        read.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("UTF-8"));
    }
    read
}

/// The text of a reply's events.
fn content(events: &str) -> String {
    let data = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let json = data.filter_map(|data| serde_json::from_str::<serde_json::Value>(data).ok());
    json.filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

/// Does what blocks beside the runtime.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("done")
}

/// [`crate::empty_scrape`], while the client goes on.
pub(crate) async fn empty_scrape(proxy: &Proxy) -> Scrape {
    within("no connection is open", async {
        loop {
            let scrape = proxy.scrape();
            scrape.assert_balanced();
            if scrape.is_idle() && scrape.sum("connections", &[]) == 0.0 {
                return scrape;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// An upstream's connection with a stream begun on it.
async fn begun(upstream: &Arc<Upstream>) -> Conn {
    let upstream = upstream.clone();
    aside(move || {
        let mut conn = upstream.accept();
        conn.request();
        conn.begin_stream();
        conn.event(TOKEN);
        conn
    })
    .await
}

#[tokio::test]
async fn a_stream_is_passed_and_measured_in_the_clear_and_under_tls() {
    const TOKENS: u32 = 40;
    let (sim, pair) = (sim(), Pair::new());
    let files = Files::new(&pair);
    for tls in [false, true] {
        let proxy = Proxy::start(&with(if tls { files.config() } else { String::new() }.as_str(), sim.addr()));
        let socket = TcpStream::connect(proxy.running.listen()).await.expect("connected");
        let client = if tls {
            let socket = TlsConnector::from(pair.trusted(&["h2", "http/1.1"])).connect(name(), socket).await;
            let socket = socket.expect("a handshake");
            assert_eq!(socket.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            Client::over(socket).await
        } else {
            Client::over(socket).await
        };
        for round in 1..3_u32 {
            let reply = client.ask(chat(&format!("ttft_ms=5,itl_ms=1,tokens={TOKENS}"), STREAM)).await;
            assert_eq!((reply.status().as_u16(), reply.version()), (200, hyper::Version::HTTP_2));
            assert!(!reply.headers().contains_key("transfer-encoding"), "{reply:?}");
            let body = text_of(reply.into_body()).await;
            assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
            assert_eq!(content(&body), text(TOKENS));
            let exchange = proxy.finished(round as usize).remove(round as usize - 1);
            assert_eq!((exchange.outcome.label(), exchange.anomalies.seen().next()), ("ok", None));
            let marks = &exchange.marks;
            assert!(marks.ttft_client() >= marks.ttft_upstream() && marks.ttft_upstream().is_some(), "{marks:?}");
            assert!(exchange.tgs().is_some(), "the last token was seen written");
            let scrape = proxy.idle_scrape();
            let events = scrape.sum("timestamps_total", &[]);
            assert!(events >= f64::from(round * TOKENS), "{}", scrape.text);
            assert_eq!(scrape.sum("dwell_seconds_count", &[]), events, "every event was seen written, once");
        }
        let health =
            client.ask(Request::get("http://localhost/health").body(Full::default()).expect("a request")).await;
        assert_eq!(health.headers()["content-length"], "15");
        assert_eq!(text_of(health.into_body()).await, r#"{"status":"ok"}"#);
        let refusal = client.ask(chat("", "{")).await;
        assert_eq!(refusal.status(), 400);
        assert!(text_of(refusal.into_body()).await.contains("invalid_json"));
        drop(client);
        assert_eq!(empty_scrape(&proxy).await.outcome("ok"), 3.0);
    }
}

#[tokio::test]
async fn a_hundred_streams_on_one_connection_do_not_wait_for_one_that_is_not_read() {
    const OTHERS: u32 = 99;
    const MANY: u32 = 6_000;
    let sim = sim();
    let proxy = Proxy::start(&with("", sim.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    // Far more than its window and what is kept for it.
    let slow = client.ask(chat(&format!("ttft_ms=0,itl_ms=0,tokens={MANY}"), STREAM)).await;
    let asking = (0..OTHERS).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let tokens = 10 + number;
            let reply = client.ask(chat(&format!("ttft_ms=200,itl_ms=2,tokens={tokens}"), STREAM)).await;
            assert_eq!(content(&text_of(reply.into_body()).await), text(tokens));
        })
    });
    let asking: Vec<_> = asking.collect();
    for other in asking {
        within("another stream's end", other).await.expect("in order");
    }
    let finished = proxy.finished(OTHERS as usize);
    assert!(finished.iter().all(|exchange| exchange.outcome.label() == "ok" && exchange.tgs().is_some()));
    let scrape = proxy.scrape();
    scrape.assert_balanced();
    assert_eq!(scrape.sum("in_flight_requests", &[]), 1.0, "the one that is not read");
    assert_eq!(scrape.sum("connections", &[]), 1.0);

    let body = text_of(slow.into_body()).await;
    assert_eq!(content(&body), text(MANY));
    let exchange = proxy.finished(OTHERS as usize + 1).remove(OTHERS as usize);
    assert_eq!(exchange.outcome.label(), "ok");
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("dwell_seconds_count", &[]), scrape.sum("timestamps_total", &[]));
    assert_eq!(scrape.outcome("ok"), f64::from(OTHERS + 1));
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_alone() {
    let upstream = Arc::new(Upstream::bind());
    let proxy = Proxy::start(&with("", upstream.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    let mut running = Vec::new();
    for _ in 0..2 {
        let asking = tokio::spawn({
            let client = client.clone();
            async move { client.ask(chat("", STREAM)).await }
        });
        let conn = begun(&upstream).await;
        let mut body = asking.await.expect("a reply").into_body();
        read_until(&mut body, TOKEN).await;
        running.push((body, conn));
    }
    let (body, conn) = running.remove(0);
    drop(body);
    aside(move || conn.closed_by_peer()).await;
    assert_eq!(proxy.outcome(1), "client_cancel");

    let (mut body, mut conn) = running.remove(0);
    conn.event(FINISH);
    conn.end_stream();
    read_until(&mut body, FINISH).await;
    assert!(text_of(body).await.is_empty());
    assert_eq!(proxy.outcome(2), "ok");

    // Before there is a reply, too.
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.ask(chat("", STREAM)).await }
    });
    let conn = aside(move || {
        // The connection of before is used again.
        conn.request();
        conn
    })
    .await;
    asking.abort();
    aside(move || conn.closed_by_peer()).await;
    assert_eq!(proxy.outcome(3), "client_cancel_before_token");
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("connections", &[]), 1.0, "the connection goes on");
    assert_eq!((scrape.outcome("client_cancel"), scrape.outcome("ok")), (1.0, 1.0));
}

#[tokio::test]
async fn a_break_of_the_upstream_resets_its_stream_alone_and_loses_nothing() {
    let upstream = Arc::new(Upstream::bind());
    let proxy = Proxy::start(&with("", upstream.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.ask(chat("", STREAM)).await }
    });
    let mut conn = begun(&upstream).await;
    let mut body = asking.await.expect("a reply").into_body();
    conn.event("last words");
    conn.reset();
    read_until(&mut body, "last words").await;
    let end = within("the break", body.frame()).await.expect("an error").expect_err("no end in order");
    assert!(!end.is_closed(), "{end:?}");
    assert_eq!(proxy.outcome(1), "reset");
    let reply = client.ask(chat("", "{")).await;
    assert_eq!(reply.status(), 400, "the connection goes on");
}

#[tokio::test]
async fn trailers_pass_both_ways_and_cookies_are_put_together() {
    let upstream = Arc::new(Upstream::bind());
    let proxy = Proxy::start(&with("", upstream.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    let mut request = chat("", STREAM);
    for cookie in ["a=1", "b=2; c=3", "d=4"] {
        request.headers_mut().append("cookie", cookie.parse().expect("a value"));
    }
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.ask(request).await }
    });
    let head = aside({
        let upstream = upstream.clone();
        move || {
            let mut conn = upstream.accept();
            let request = conn.request();
            conn.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntrailer: x-sum\r\n");
            conn.send("connection: x-hop\r\nx-hop: 1\r\ntransfer-encoding: chunked\r\n\r\n");
            for data in [TOKEN, FINISH, "[DONE]"] {
                conn.event(data);
            }
            conn.send("0\r\nx-sum: abc\r\n\r\n");
            request.head
        }
    })
    .await;
    let cookies: Vec<_> = head.lines().filter(|line| line.starts_with("cookie:")).collect();
    assert_eq!(cookies, ["cookie: a=1; b=2; c=3; d=4"], "{head}");
    let reply = asking.await.expect("a reply");
    assert!(!reply.headers().contains_key("x-hop") && !reply.headers().contains_key("connection"), "{reply:?}");
    let body = within("a body", reply.into_body().collect()).await.expect("whole");
    assert_eq!(body.trailers().map(|trailers| trailers["x-sum"].as_bytes()), Some(&b"abc"[..]));
    assert!(body.to_bytes().ends_with(b"data: [DONE]\n\n"));
    assert_eq!(proxy.outcome(1), "ok");
}

#[tokio::test]
async fn at_a_stop_open_streams_finish_and_the_connection_ends() {
    let upstream = Arc::new(Upstream::bind());
    let proxy = Proxy::start(&with("", upstream.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.ask(chat("", STREAM)).await }
    });
    let mut conn = begun(&upstream).await;
    let mut body = asking.await.expect("a reply").into_body();
    read_until(&mut body, TOKEN).await;
    let addr = proxy.running.listen();
    let stopping = tokio::task::spawn_blocking(move || proxy.running.stop());
    within("the listener's end", async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    conn.event(FINISH);
    conn.end_stream();
    read_until(&mut body, FINISH).await;
    assert!(text_of(body).await.is_empty());
    assert_eq!(within("the stop", stopping).await.expect("stopped"), 0, "nothing was cut off");
    client.closed().await;
}

#[tokio::test]
async fn what_the_drain_does_not_wait_for_is_cut_off_and_counted_as_ours() {
    let upstream = Arc::new(Upstream::bind());
    let config = one_backend(upstream.addr(), "").replace("threads = 1", "threads = 1\ndrain_timeout_ms = 100");
    let proxy = Proxy::start(&config);
    let client = Client::connect(proxy.running.listen()).await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.ask(chat("", STREAM)).await }
    });
    let _conn = begun(&upstream).await;
    let mut body = asking.await.expect("a reply").into_body();
    read_until(&mut body, TOKEN).await;
    let meter = proxy.running.meter().clone();
    assert_eq!(aside(move || proxy.running.stop()).await, 1);
    assert!(within("the end", body.frame()).await.is_none_or(|frame| frame.is_err()));
    assert!(meter.render().contains("outcome=\"internal\""), "{}", meter.render());
    assert_eq!(meter.in_flight("up"), 0);
}

#[tokio::test]
async fn a_stream_that_is_never_read_is_reset_in_time_and_alone() {
    let sim = sim();
    let proxy = Proxy::start(&with("write_timeout_ms = 700", sim.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    let unread = client.ask(chat("request=unread,ttft_ms=0,itl_ms=0,tokens=100000", STREAM)).await;
    within("the end of patience", async {
        while refused(&proxy.scrape(), "write_timeout") == 0.0 {
            let reply = client.ask(chat("ttft_ms=1,itl_ms=1,tokens=20", STREAM)).await;
            assert_eq!(content(&text_of(reply.into_body()).await), text(20));
        }
    })
    .await;
    assert!(within("its end", unread.into_body().collect()).await.is_err());
    let scrape = proxy.idle_scrape();
    assert_eq!((scrape.outcome("client_cancel"), scrape.sum("connections", &[])), (1.0, 1.0));
    assert!(scrape.sum("dwell_seconds_count", &[]) < scrape.sum("timestamps_total", &[]));
    crate::support::eventually("its upstream is let go", || {
        sim.departures().iter().any(|departed| departed.request.as_deref() == Some("unread")).then_some(())
    });
}

/// Part of it is in HTTP's hands by then, and nobody will hear of its end any more.
#[tokio::test]
async fn a_reply_that_has_come_whole_and_is_reset_unread_is_over() {
    let upstream = Arc::new(Upstream::bind());
    let proxy = Proxy::start(&with("", upstream.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    // Around the size of a stream's window: what is left over may be a part of a frame, or whole ones.
    for (round, bytes) in [66_000, 70_000, 100_000, 300_000].into_iter().enumerate() {
        let asking = tokio::spawn({
            let client = client.clone();
            async move {
                client.ask(Request::get("http://localhost/v1/files/a").body(Full::default()).expect("a request")).await
            }
        });
        let upstream = upstream.clone();
        let conn = aside(move || {
            let mut conn = upstream.accept();
            conn.request();
            conn.send(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n"));
            conn.try_send("x".repeat(bytes));
            conn
        })
        .await;
        let mut reply = asking.await.expect("a reply");
        let first = within("a part", reply.body_mut().frame()).await;
        assert!(first.is_some_and(|frame| frame.is_ok()));
        drop(reply);
        within("its end", async {
            while proxy.scrape().sum("requests_total", &[]) < (round + 1) as f64 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        drop(conn);
    }
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("connections", &[]), 1.0, "the connection goes on");
}

#[tokio::test]
async fn a_connection_without_streams_is_let_go() {
    let sim = sim();
    let proxy = Proxy::start(&with("header_timeout_ms = 3000", sim.addr()));
    let used = Client::connect(proxy.running.listen()).await;
    let unused = Client::connect(proxy.running.listen()).await;
    // Longer than the limit, which is about idleness only.
    let reply = used.ask(chat("ttft_ms=100,itl_ms=50,tokens=90", STREAM)).await;
    assert_eq!(content(&text_of(reply.into_body()).await), text(90));
    used.closed().await;
    unused.closed().await;
    let scrape = empty_scrape(&proxy).await;
    assert_eq!((refused(&scrape, "header_timeout"), scrape.sum("connections_refused_total", &[])), (1.0, 1.0));
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_on_its_stream() {
    let sim = sim();
    let proxy = Proxy::start(&with("max_header_bytes = 8192", sim.addr()));
    let client = Client::connect(proxy.running.listen()).await;
    let mut request = chat("", STREAM);
    // Letters that HPACK cannot shorten below the limit.
    request.headers_mut().insert("x-pad", "~".repeat(9_000).parse().expect("a value"));
    assert_eq!(client.ask(request).await.status(), 431);
    let reply = client.ask(chat("ttft_ms=0,itl_ms=0,tokens=2", STREAM)).await;
    assert_eq!(content(&text_of(reply.into_body()).await), text(2));
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("requests_started_total", &[]), 1.0);
    assert_eq!(scrape.sum("connections_refused_total", &[]), 0.0, "it is HTTP/2's own refusal");
}

/// HTTP/2 has no `Host`; its authority must pass the same test where a key would be spent.
#[tokio::test]
async fn a_rebound_name_cannot_spend_a_configured_key() {
    let sim = sim();
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "sk-configured").expect("written");
    let config =
        with("", sim.addr()).replace("[[route]]", &format!("api_key = {{ file = '{}' }}\n[[route]]", key.display()));
    let proxy = Proxy::start(&config);
    let client = Client::connect(proxy.running.listen()).await;
    let mut request = chat("ttft_ms=0,itl_ms=0,tokens=2", STREAM);
    let reply = client.ask(request.clone()).await;
    assert_eq!(content(&text_of(reply.into_body()).await), text(2));
    *request.uri_mut() = "http://rebound.example/v1/chat/completions".parse().expect("a URI");
    assert_eq!(client.ask(request).await.status(), 403);
    assert_eq!(sim.counts().requests, 1);
}

/// A reply that was put together for its client is written to its own stream, too.
#[tokio::test]
async fn a_reply_put_together_leaves_the_other_streams_their_measures() {
    let sim = sim();
    let config = with("", sim.addr()).replace("[[route]]", "measure_non_stream = true\n[[route]]");
    let proxy = Proxy::start(&config);
    let client = Client::connect(proxy.running.listen()).await;
    let running = client.ask(chat("ttft_ms=1,itl_ms=5,tokens=60", STREAM)).await;
    let whole = STREAM.replace("\"stream\":true,", "");
    let reply = client.ask(chat("ttft_ms=1,itl_ms=0,tokens=3", &whole)).await;
    assert_eq!(reply.headers()["content-type"], "application/json");
    let reply: serde_json::Value = serde_json::from_str(&text_of(reply.into_body()).await).expect("JSON");
    assert_eq!(reply["choices"][0]["message"]["content"], text(3));
    assert_eq!(content(&text_of(running.into_body()).await), text(60));
    let finished = proxy.finished(2);
    assert!(finished.iter().all(|exchange| exchange.outcome.label() == "ok"), "{finished:?}");
    assert!(finished[1].tgs().is_some(), "the stream's last token was seen written: {finished:?}");
}
