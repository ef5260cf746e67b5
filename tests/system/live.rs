//! The live page and what it listens to.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;
use streamgauge::backend::sim::text;

use crate::support::client::Client;
use crate::support::stage::{Proxy, sim};
use crate::{STREAM, WHOLE};

/// A page that listens.
struct Page {
    client: Client,
    unread: Vec<u8>,
}

impl Page {
    fn open(proxy: &Proxy) -> Self {
        let mut client = Client::connect(proxy.running.admin());
        client.send("GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        let head = client.head();
        assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
        Self { client, unread: Vec::new() }
    }

    /// The next event's name and data.
    fn event(&mut self) -> (String, Value) {
        let end = loop {
            if let Some(end) = self.unread.windows(2).position(|window| window == b"\n\n") {
                break end;
            }
            assert!(self.client.chunk(&mut self.unread).expect("a chunk"), "the feed has ended");
        };
        let event: Vec<u8> = self.unread.drain(..end + 2).collect();
        let event = String::from_utf8(event).expect("UTF-8");
        let (name, data) = event.trim_end().split_once('\n').expect("two lines");
        let data = data.strip_prefix("data: ").expect("data");
        let name = name.strip_prefix("event: ").expect("a name");
        (name.to_owned(), serde_json::from_str(data).expect(data))
    }

    /// Rows as they come, until there are `count`; and how many were left out.
    fn rows(&mut self, count: usize) -> (Vec<Value>, u64) {
        let (mut rows, mut skipped) = (Vec::new(), 0);
        while rows.len() + usize::try_from(skipped).expect("few") < count {
            let (name, data) = self.event();
            assert_eq!(name, "update");
            rows.extend(data["rows"].as_array().expect("rows").iter().cloned());
            skipped += data["skipped"].as_u64().expect("a count");
        }
        (rows, skipped)
    }
}

#[test]
fn a_page_is_told_every_request_with_every_token_event() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut early = Page::open(&proxy);
    let (name, hello) = early.event();
    assert_eq!((&*name, hello["listen"].as_str()), ("hello", Some(&*proxy.running.listen().to_string())));
    let mut client = proxy.client();
    let headers = [("x-sim", "ttft_ms=30,itl_ms=4,tokens=9,usage=always"), ("x-streamgauge-tag", "实验")];
    let reply = client.ask(crate::post("/v1/chat/completions", &headers, STREAM));
    assert_eq!(reply.text(0, "content"), text(9));
    client.chat("ttft_ms=1,tokens=3", WHOLE);
    client.chat("status=429", STREAM);

    let (rows, skipped) = early.rows(3);
    assert_eq!(skipped, 0);
    let exchanges = proxy.finished(3);
    for (number, (row, exchange)) in rows.iter().zip(&exchanges).enumerate() {
        assert_eq!(row["seq"], number + 1);
        assert_eq!(row["outcome"], exchange.outcome.label());
        assert_eq!((&row["backend"], &row["operation"]), (&"up".into(), &"chat".into()));
        let phases: f64 =
            row["phases"].as_array().expect("phases").iter().map(|phase| phase[1].as_f64().expect("ms")).sum();
        // Each is cut to the microsecond.
        assert!((phases - row["duration_ms"].as_f64().expect("ms")).abs() < 0.02, "{row}");
    }
    let stream = &rows[0];
    assert_eq!(stream["tag"], "实验");
    let ticks: Vec<u64> =
        stream["ticks_us"].as_array().expect("ticks").iter().map(|tick| tick.as_u64().expect("µs")).collect();
    let expected: Vec<_> = exchanges[0].track.ticks().map(|tick| tick.at.as_micros()).collect();
    let summed = ticks.iter().scan(0, |at, tick| {
        *at += u128::from(*tick);
        Some(*at)
    });
    assert_eq!(summed.collect::<Vec<_>>(), expected);
    assert_eq!((ticks.len(), stream["token_events"].as_u64(), stream["output_tokens"].as_u64()), (9, Some(9), Some(9)));
    assert_eq!(stream["kinds"].as_str().map(str::len), Some(9));
    let ttft = stream["ttft_ms"].as_f64().expect("a TTFT");
    assert_eq!(ttft, exchanges[0].marks.ttft_client().expect("a TTFT").as_micros() as f64 / 1e3);
    for row in &rows[1..] {
        assert!(row["ticks_us"].as_array().expect("ticks").is_empty(), "{row}");
        assert!(["ttft_ms", "tpot_ms", "tgs", "stall_ms"].iter().all(|absent| row[absent].is_null()), "{row}");
    }
    assert_eq!(rows[2]["status"], 429);

    // Who comes later sees the same.
    let mut late = Page::open(&proxy);
    let (name, again) = late.event();
    assert_eq!((&*name, &again["epoch"]), ("hello", &hello["epoch"]));
    let (_, first) = late.event();
    assert_eq!(first["rows"].as_array().expect("rows"), &rows);
    // What is said of the last minutes may be a moment old.
    let mut updates = std::iter::once(first).chain(std::iter::from_fn(|| Some(late.event().1)));
    let backends = updates.find_map(|update| update.get("backends").filter(|all| all[0]["requests"] == 3).cloned());
    let backend = &backends.expect("they come again and again")[0];
    assert_eq!((&backend["name"], &backend["kind"]), (&"up".into(), &"openai".into()));
    let counts = ["ok", "errors", "unconfirmed", "cancels", "in_flight"].map(|count| backend[count].as_u64());
    assert_eq!(counts, [2, 1, 0, 0, 0].map(Some));
    assert!(backend["tpot_ms"]["usage"]["p50"].is_number() && backend["tpot_ms"].get("events").is_none(), "{backend}");
    // On a busy machine some events share a read: their gaps are not exact.
    let exact = exchanges[0].track.gaps().filter(|gap| gap.exact).count() as u64;
    let counts = ["exact", "coalesced"].map(|timing| backend["itl_ms"][timing]["count"].as_u64().unwrap_or(0));
    assert_eq!(counts, [exact, 8 - exact]);
    assert_eq!(backend["ttft_ms"]["count"], 1);
    let median = backend["ttft_ms"]["p50"].as_f64().expect("a median");
    assert!((median - ttft).abs() <= ttft * 0.01, "{median} for {ttft}");
    assert_eq!(backend["ttft_ms"]["spark"].as_array().map(Vec::len), Some(60));
}

#[test]
fn updates_come_four_times_a_second_at_most() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let mut page = Page::open(&proxy);
    page.event();
    page.event();
    let began = Instant::now();
    let mut updates = 0;
    while updates < 4 {
        proxy.client().chat("ttft_ms=1,itl_ms=0,tokens=2", STREAM);
        page.event();
        updates += 1;
    }
    // Each waits at least its quarter of a second, however slow the rest is.
    let most = began.elapsed().as_millis() / 250 + 1;
    assert!(updates <= most, "{updates} updates, {most} at most");
}

#[test]
fn a_name_that_was_rebound_sees_nothing() {
    let proxy = Proxy::before(sim().addr(), "");
    let ask = |path: &str, host: &str| {
        let mut client = Client::connect(proxy.running.admin());
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        client.head().status
    };
    for path in ["/", "/live", "/live.js"] {
        assert_eq!(ask(path, "rebound.example:9464"), 403, "{path}");
        for host in ["127.0.0.1:9464", "[::1]:9464", "192.0.2.7", "LocalHost:9464"] {
            assert_eq!(ask(path, host), 200, "{path} at {host}");
        }
    }
    // Prometheus may know this machine by any name.
    assert_eq!(ask("/metrics", "gauge.example:9464"), 200);
}

#[test]
fn no_content_and_no_key_is_shown() {
    let sim = sim();
    let proxy = Proxy::before(sim.addr(), "");
    let body = STREAM.replace("one two three", "SECRET-PROMPT");
    assert!(body.contains("SECRET-PROMPT"));
    let request =
        crate::post("/v1/chat/completions", &[("x-sim", "tokens=5"), ("authorization", "Bearer SECRET-KEY")], &body);
    let reply = proxy.client().ask(request);
    proxy.finished(1);
    let mut page = Page::open(&proxy);
    page.event();
    let (_, update) = page.event();
    let shown = update.to_string();
    assert!(!shown.contains("SECRET"), "{shown}");
    let content = reply.text(0, "content");
    assert!(content.len() > 5 && !shown.contains(&content[..5]), "{content} in {shown}");
}

#[test]
fn pages_are_limited_and_a_closed_one_makes_room() {
    let proxy = Proxy::before(sim().addr(), "");
    let mut pages: Vec<_> = (0..32).map(|_| Page::open(&proxy)).collect();
    let refused = Client::connect(proxy.running.admin()).get("/live");
    assert_eq!(refused.status, 503, "{refused:?}");
    pages.pop();
    crate::support::eventually("there is room again", || {
        let mut client = Client::connect(proxy.running.admin());
        client.send("GET /live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        (client.head().status == 200).then_some(())
    });
}

#[test]
fn a_stop_ends_the_feeds() {
    let proxy = Proxy::before(sim().addr(), "");
    let mut page = Page::open(&proxy);
    page.event();
    let stopping = std::thread::spawn(move || drop(proxy));
    while page.client.chunk(&mut page.unread).expect("the feed ends in order") {}
    stopping.join().expect("it stops");
}

#[test]
fn the_page_comes_from_the_binary_and_may_fetch_nothing_else() {
    let proxy = Proxy::before(sim().addr(), "");
    let mut known = BTreeSet::from(["/".to_owned()]);
    let mut open = vec!["/".to_owned()];
    while let Some(path) = open.pop() {
        let reply = Client::connect(proxy.running.admin()).get(&path);
        assert_eq!(reply.status, 200, "{path}");
        let kind = match path.rsplit_once('.') {
            Some((_, "css")) => "text/css",
            Some((_, "js")) => "text/javascript",
            _ => "text/html",
        };
        assert!(reply.header("content-type").expect("a type").starts_with(kind), "{path}: {reply:?}");
        let policy = reply.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        let text = String::from_utf8(reply.body.clone()).expect("UTF-8");
        assert!(text.len() > 100 && !text.contains("https://"), "{path} names another host");
        // Every file that one of them names.
        let named = text.split(['"', '\'']).map(|word| word.strip_prefix('.').unwrap_or(word).to_owned());
        for file in named.filter(|word| word.starts_with('/') && [".js", ".css"].iter().any(|end| word.ends_with(end)))
        {
            if known.insert(file.clone()) {
                open.push(file);
            }
        }
    }
    assert!(["/live.css", "/live.js", "/strips.js"].iter().all(|file| known.contains(*file)), "{known:?}");
    assert_eq!(Client::connect(proxy.running.admin()).get("/index.html").status, 404);
}
