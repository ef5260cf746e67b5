//! Decoding one sequence and eight, and one with little context and with much.

use crate::gauge::Gauge;
use crate::stream::Stream;
use crate::{Options, median};

const CONTEXTS: [usize; 2] = [32, 2000];
/// Tokens of a measured window.
const WINDOW: usize = 40;

pub(crate) fn run(options: &Options) {
    let gauge = Gauge::start(options, 8, 2200, None);
    println!("{}", gauge.announcement());
    let mut alone = Vec::new();
    let mut eight = Vec::new();
    let mut long = Vec::new();
    let mut prefill = Vec::new();
    for _ in 0..options.rounds {
        alone.push(rate(&gauge, 1, CONTEXTS[0]));
        eight.push(rate(&gauge, 8, CONTEXTS[0]));
        let before = gauge.cpu();
        let stream = Stream::begin(gauge.serve.listen, CONTEXTS[1], 1);
        stream.end();
        prefill.push(CONTEXTS[1] as f64 / (gauge.cpu() - before));
        long.push(rate(&gauge, 1, CONTEXTS[1]));
    }
    let ratio = |over: &[f64]| median(over.iter().zip(&alone).map(|(over, alone)| over / alone).collect());
    println!("tokens per CPU-second, medians of {} rounds; ratios are the medians of the rounds' own", options.rounds);
    println!("  prefill of {} tokens         {:>7.1}", CONTEXTS[1], median(prefill));
    println!("  decode, 1 at {} tokens       {:>7.1}", CONTEXTS[0], median(alone.clone()));
    println!("  decode, 8 at {} tokens       {:>7.1}   {:.2} × one", CONTEXTS[0], median(eight.clone()), ratio(&eight));
    println!(
        "  decode, 1 at {} tokens     {:>7.1}   {:.2} × one at {}",
        CONTEXTS[1],
        median(long.clone()),
        ratio(&long),
        CONTEXTS[0]
    );
}

/// Tokens per CPU-second while `sequences` sequences decode after prompts of `context` tokens.
fn rate(gauge: &Gauge, sequences: usize, context: usize) -> f64 {
    let streams: Vec<_> = (0..sequences).map(|_| Stream::begin(gauge.serve.listen, context, WINDOW + 60)).collect();
    let count = || streams.iter().map(Stream::count).sum::<usize>();
    for stream in &streams {
        stream.wait_for(4);
    }
    let (cpu, tokens) = (gauge.cpu(), count());
    streams[0].wait_for(streams[0].count() + WINDOW);
    let rate = (count() - tokens) as f64 / (gauge.cpu() - cpu);
    for stream in streams {
        stream.end();
    }
    rate
}
