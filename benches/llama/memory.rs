//! Memory: what was announced beside what is resident, and whether a thousand requests add to it.

use crate::Options;
use crate::gauge::Gauge;
use crate::stream::Stream;

const REQUESTS: usize = 1000;
const AT_ONCE: usize = 8;

pub(crate) fn run(options: &Options) {
    let gauge = Gauge::start(options, AT_ONCE, 512, None);
    println!("{}", gauge.announcement());
    println!("  resident when warm          {:>7.0} MiB", resident(&gauge));
    wave(&gauge, AT_ONCE * 4);
    let before = resident(&gauge);
    println!("  after {:>4} requests         {before:>7.0} MiB", AT_ONCE * 4);
    wave(&gauge, REQUESTS);
    let after = resident(&gauge);
    println!("  after {REQUESTS} more           {after:>7.0} MiB, {:+.1} %", (after / before - 1.0) * 100.0);
}

fn resident(gauge: &Gauge) -> f64 {
    gauge.serve.resident_kib() as f64 / 1024.0
}

/// Short requests of mixed lengths, eight at a time.
fn wave(gauge: &Gauge, requests: usize) {
    for first in (0..requests).step_by(AT_ONCE) {
        let streams: Vec<_> = (first..requests.min(first + AT_ONCE))
            .map(|number| Stream::begin(gauge.serve.listen, 32 + number * 7 % 64, 1 + number % 5))
            .collect();
        for stream in streams {
            stream.end();
        }
    }
}
