//! What a mirror costs the client whose requests are mirrored, whatever the mirror does; the aim is nothing.
//!
//! One proxy in a process of its own, one simulated upstream, and mirrors that answer, are gone, never answer, or flood.
//! Each round runs streams without a mirror and with one, right after each other and in turn first, for each kind of
//! mirror; the ratio is the median of the rounds' own. "Added" is from the simulation's write of an event to the client's
//! read of it. Everything shares the machine; the flooding mirror has a low priority, so that its own work is not what is
//! measured.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use streamgauge::backend::sim::{Kind, LogSink, Sim, SimConfig, SimHandle};
use streamgauge::clock::monotonic_ns;
use streamgauge::niceness::yield_to_proxy;

use support::client::{Client, chat};
use support::metrics::Scrape;
use support::process::Serve;
use support::stage::backend;
use support::upstream::Upstream;
use support::{eventually, stage};

const STREAMS: usize = 8;
const TOKENS: usize = 100;
/// What each stream is like.
const SIM: &str = "ttft_ms=20,itl_ms=5,tokens=100";
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_secs(1);
/// The kinds of mirrors; of the first there is none, which shows what chance alone does.
const KINDS: [&str; 5] = ["none", "answering", "gone", "silent", "flooding"];
/// The one whose requests are not waited for: it never answers.
const SILENT: &str = "silent";

/// One number of a leg.
type Quantity = fn(&Leg) -> f64;

/// What is shown of a leg.
const COLUMNS: [(&str, Quantity); 5] = [
    ("TTFT p50", |leg| percentile(&leg.ttft, 0.5)),
    ("ITL p50", |leg| percentile(&leg.itl, 0.5)),
    ("added, first token p50", |leg| percentile(&leg.added_first, 0.5)),
    ("added p90", |leg| percentile(&leg.added, 0.9)),
    ("added, the worst", |leg| percentile(&leg.added, 1.0)),
];

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.strip_prefix("--rounds=")?.parse().ok()).unwrap_or(20);
    let upstream =
        Sim::spawn(SimConfig { log: Some(LogSink::memory()), ..SimConfig::default() }).expect("a simulation");
    let answering = Sim::spawn(SimConfig::default()).expect("a simulation");
    let silent = Upstream::bind();
    let serve = Serve::start(&config(&upstream, [answering.addr(), gone(), silent.addr(), flooding()]), "text", &[]);
    let mut pairs: [Vec<[Leg; 2]>; 5] = Default::default();
    leg(&serve, &upstream, "plain");
    for round in 0..rounds {
        for (kind, pairs) in KINDS.iter().zip(&mut pairs) {
            let mirrored_first = round % 2 == 1;
            let first = leg(&serve, &upstream, if mirrored_first { kind } else { "plain" });
            let second = leg(&serve, &upstream, if mirrored_first { "plain" } else { kind });
            pairs.push(if mirrored_first { [second, first] } else { [first, second] });
        }
    }
    println!("{STREAMS} streams of {TOKENS} events, {rounds} rounds; µs without → with a mirror (ratio), medians");
    println!("{:<10} {}", "mirror", COLUMNS.map(|(title, _)| format!("{title:>28}")).join(" "));
    for (kind, pairs) in KINDS.iter().zip(&pairs) {
        let shown = COLUMNS.map(|(_, quantity)| {
            let [without, with] = [0, 1].map(|side| median(pairs.iter().map(|pair| quantity(&pair[side]))));
            let ratio = median(pairs.iter().map(|[without, with]| quantity(with) / quantity(without)));
            let cell = format!("{without:.0} → {with:.0} ({ratio:.2})");
            format!("{cell:>28}")
        });
        println!("{kind:<10} {}", shown.join(" "));
    }
    let scrape = Scrape::of(serve.admin);
    scrape.assert_balanced();
    for kind in &KINDS[1..] {
        let label = format!("{kind}+mirror");
        let [over, dropped] =
            ["requests_total", "mirror_dropped_total"].map(|name| scrape.sum(name, &[("backend", &label)]));
        // A sum over nothing is -0.
        println!("{label}: {} over, {} dropped", over + 0.0, dropped + 0.0);
    }
}

fn config(upstream: &SimHandle, mirrors: [SocketAddr; 4]) -> String {
    let mut config = format!("{}{}", stage::SERVER, backend("up", upstream.addr(), ""));
    for (kind, address) in KINDS[1..].iter().zip(mirrors) {
        config.push_str(&backend(kind, address, ""));
        let mirror = format!("mirror = {{ backend = \"{kind}\", share = 1 }}");
        config.extend(["[[route]]\nmodel = \"", kind, "\"\nbackend = \"up\"\n", &mirror, "\n"]);
    }
    config + stage::TO_UP
}

/// An address where nobody listens.
fn gone() -> SocketAddr {
    Upstream::bind().addr()
}

/// An upstream that answers, for longer than a client's stream takes, with comments as fast as they are taken.
fn flooding() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        yield_to_proxy();
        for connection in listener.incoming().flatten() {
            thread::spawn(move || flood(connection));
        }
    });
    address
}

fn flood(mut connection: TcpStream) {
    // What it holds must be read before the next leg begins.
    socket2::SockRef::from(&connection).set_send_buffer_size(64 << 10).expect("a smaller buffer");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let comments = format!(": {}\n\n", "x".repeat(1_000)).repeat(64);
    if connection.read(&mut [0; 4096]).is_err() || connection.write_all(head.as_bytes()).is_err() {
        return;
    }
    let began = Instant::now();
    while began.elapsed() < FLOOD && connection.write_all(comments.as_bytes()).is_ok() {}
}

/// What the streams of one leg were like, in µs.
#[derive(Default)]
struct Leg {
    ttft: Vec<f64>,
    itl: Vec<f64>,
    /// Of first tokens.
    added_first: Vec<f64>,
    /// Of all tokens.
    added: Vec<f64>,
}

fn leg(serve: &Serve, upstream: &SimHandle, model: &str) -> Leg {
    upstream.take_entries();
    let listen = serve.listen;
    let streams: Vec<_> = (0..STREAMS)
        .map(|number| {
            let model = model.to_owned();
            thread::spawn(move || read_stream(listen, &model, number))
        })
        .collect();
    let read: Vec<(u64, Vec<u64>)> = streams.into_iter().map(|stream| stream.join().expect("read")).collect();
    let entries = upstream.take_entries();
    let mut leg = Leg::default();
    let us = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / 1e3;
    for (number, (sent, read)) in read.iter().enumerate() {
        let name = number.to_string();
        let ours = entries.iter().filter(|entry| *entry.request == *name && entry.kind == Kind::Token);
        let written: Vec<u64> = ours.map(|entry| entry.at_ns).collect();
        assert_eq!((read.len(), written.len()), (TOKENS, TOKENS), "every event was written and read once");
        leg.ttft.push(us(read[0], *sent));
        leg.itl.extend(read.windows(2).map(|pair| us(pair[1], pair[0])));
        leg.added_first.push(us(read[0], written[0]));
        leg.added.extend(read.iter().zip(&written).map(|(read, written)| us(*read, *written)));
    }
    // What a mirror has begun must not run into the next leg.
    eventually("the mirrors are done", || {
        let scrape = Scrape::of(serve.admin);
        let in_flight = |kind: &str| scrape.sum("in_flight_requests", &[("backend", &format!("{kind}+mirror"))]);
        let mut awaited = KINDS.iter().filter(|kind| **kind != SILENT);
        awaited.all(|kind| in_flight(kind) < 0.5).then_some(())
    });
    leg
}

/// When the request was sent, and when each token's event was read, in nanoseconds.
fn read_stream(listen: SocketAddr, model: &str, number: usize) -> (u64, Vec<u64>) {
    let mut client = Client::connect(listen);
    let body = format!(r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"x"}}]}}"#);
    let request = chat(&format!("{SIM},request={number}"), &body);
    let sent = monotonic_ns(Instant::now());
    client.send(request);
    let mut read = Vec::new();
    loop {
        let bytes = client.some().expect("the stream goes on");
        let at = monotonic_ns(Instant::now());
        let text = String::from_utf8_lossy(&bytes);
        let events = text.matches(r#""content":""#).count() - text.matches(r#""content":"""#).count();
        read.extend(std::iter::repeat_n(at, events));
        if text.contains("[DONE]") {
            return (sent, read);
        }
    }
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an index
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(&values.collect::<Vec<_>>(), 0.5)
}
