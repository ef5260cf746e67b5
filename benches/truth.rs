//! How far the instruments are from the truth: 200 streams at each level of concurrency, measured by the proxy and logged
//! by the simulation that sends them.
//!
//! TTFT is compared with the simulation's own, from the request it has read to the token it writes. Its error has two
//! parts, which the table shows as well: `request`, the simulation's delay in reading what we have sent, and `token`, from
//! the first token's write to our mark of it, which alone is ours. `late` is how far the simulation typically lags its own
//! schedule. Everything shares the machine: client, proxy and simulation.

#[path = "../tests/truth/experiment.rs"]
mod experiment;

use std::time::Duration;

use experiment::{Pair, percentile, plans, run};

const STREAMS: usize = 200;
const TOKENS: u32 = 16;
const AT_ONCE: [usize; 4] = [1, 16, 64, 200];

fn main() {
    println!(
        "|measured − truth| in µs, p50 / p99 over {STREAMS} streams; ITL histogram: the largest share of ITLs on the"
    );
    println!("wrong side of any one bucket edge");
    println!();
    println!(
        "at once           TTFT        request          token            ITL           TPOT    ITL histogram   late"
    );
    println!(
        "-------  -------------  -------------  -------------  -------------  -------------    -------------  -----"
    );
    for at_once in AT_ONCE {
        let outcome = run(&plans(STREAMS, TOKENS), at_once);
        let pairs = &outcome.pairs;
        let whole = |pair: &&Pair| pair.exchange.token_events == u64::from(pair.plan.tokens);
        assert_eq!(pairs.iter().filter(whole).count(), STREAMS, "streams whose every token event was seen");
        let ttfts = outcome.metric("streamgauge_time_to_first_token_seconds_count");
        assert!(ttfts >= 2.0 * STREAMS as f64, "{ttfts} TTFTs of two vantages");
        // Both instants are taken right after a system call, so one may come too late by the other's delay.
        let delay = |ns: i128| Duration::from_nanos(u64::try_from(ns).unwrap_or(0));
        println!(
            "{at_once:>7}  {}  {}  {}  {}  {}  {:>11.2} %  {:>5.0}",
            shown(pairs.iter().map(Pair::ttft_error)),
            shown(pairs.iter().map(|pair| delay(pair.request_delay_ns()))),
            shown(pairs.iter().map(|pair| delay(pair.read_delay_ns()))),
            shown(pairs.iter().filter_map(Pair::itl_error)),
            shown(pairs.iter().filter_map(Pair::tpot_error)),
            outcome.itl_histogram_error() * 100.0,
            outcome.lateness().as_secs_f64() * 1e6,
        );
    }
}

fn shown(errors: impl Iterator<Item = Duration>) -> String {
    let errors: Vec<Duration> = errors.collect();
    let us = |percent| percentile(errors.iter().copied(), percent).as_secs_f64() * 1e6;
    format!("{:>5.0} / {:>5.0}", us(50), us(99))
}
