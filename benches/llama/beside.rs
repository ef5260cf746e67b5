//! An upstream's streams through a process whose engine takes every core it gets, and without.
//!
//! Added latency is the simulation's instant of writing an event to the client's of reading it. Simulation and client
//! share the machine, and so suffer from the engine as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use streamgauge::backend::sim::{Kind, LogSink, Sim, SimConfig, SimHandle};
use streamgauge::clock::monotonic_ns;

use crate::gauge::Gauge;
use crate::stream::Stream;
use crate::support::client::{Client, chat};
use crate::{Options, median, percentile};

const STREAMS: usize = 8;
const TOKENS: usize = 100;

pub(crate) fn run(options: &Options) {
    let sim = Sim::spawn(SimConfig { log: Some(LogSink::memory()), ..SimConfig::default() }).expect("a simulation");
    let gauge = Gauge::start(options, 8, 2200, Some(sim.addr()));
    let mut idle = Vec::new();
    let mut busy = Vec::new();
    added(&sim, &gauge);
    for _ in 0..options.rounds {
        idle.push(added(&sim, &gauge));
        let load = Load::begin(&gauge);
        busy.push(added(&sim, &gauge));
        load.end();
    }
    println!("added latency of {STREAMS} streams of {TOKENS} events, ms, medians of {} rounds", options.rounds);
    let of =
        |rounds: &[Vec<f64>], share: f64| median(rounds.iter().map(|round| percentile(round.clone(), share)).collect());
    for (name, rounds) in [("engine idle", &idle), ("engine saturated", &busy)] {
        println!("  {name:<17} p50 {:.3}  p90 {:.3}  p99 {:.3}", of(rounds, 0.5), of(rounds, 0.9), of(rounds, 0.99));
    }
    let ratios = |share: f64| {
        median(
            idle.iter()
                .zip(&busy)
                .map(|(idle, busy)| percentile(busy.clone(), share) / percentile(idle.clone(), share))
                .collect(),
        )
    };
    println!("  saturated ÷ idle  p50 {:.2}  p90 {:.2}  p99 {:.2}", ratios(0.5), ratios(0.9), ratios(0.99));
}

/// Eight endless sequences.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn begin(gauge: &Gauge) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let listen = gauge.serve.listen;
        let first: Vec<_> = (0..8).map(|_| Stream::begin(listen, 32, 60)).collect();
        for stream in &first {
            stream.wait_for(2);
        }
        let again = |stream: Stream| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                stream.end();
                while !stop.load(Relaxed) {
                    Stream::begin(listen, 32, 60).end();
                }
            })
        };
        let threads = first.into_iter().map(again).collect();
        Self { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("it was read");
        }
    }
}

/// The added latency of every event, in milliseconds.
fn added(sim: &SimHandle, gauge: &Gauge) -> Vec<f64> {
    sim.take_entries();
    let listen = gauge.serve.listen;
    let streams: Vec<_> = (0..STREAMS)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(listen);
                let body = r#"{"model":"hosted","stream":true,"messages":[{"role":"user","content":"x"}]}"#;
                client.send(chat(&format!("ttft_ms=50,itl_ms=20,tokens={TOKENS},request={number}"), body));
                let mut read = Vec::new();
                loop {
                    let bytes = client.some().expect("the stream goes on");
                    let at = monotonic_ns(Instant::now());
                    let text = String::from_utf8_lossy(&bytes);
                    let events = text.matches(r#""content":""#).count() - text.matches(r#""content":"""#).count();
                    read.extend(std::iter::repeat_n(at, events));
                    if text.contains("[DONE]") {
                        return read;
                    }
                }
            })
        })
        .collect();
    let read: Vec<Vec<u64>> = streams.into_iter().map(|stream| stream.join().expect("read")).collect();
    let entries = sim.take_entries();
    let mut all = Vec::new();
    for (number, read) in read.iter().enumerate() {
        let name = number.to_string();
        let written: Vec<u64> = entries
            .iter()
            .filter(|entry| *entry.request == *name && entry.kind == Kind::Token)
            .map(|entry| entry.at_ns)
            .collect();
        assert_eq!(read.len(), written.len(), "every event was read once");
        all.extend(read.iter().zip(&written).map(|(read, written)| read.saturating_sub(*written) as f64 / 1e6));
    }
    all
}
