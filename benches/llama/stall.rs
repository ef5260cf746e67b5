//! A long prompt that arrives while four streams decode: how long they wait.

use crate::gauge::Gauge;
use crate::stream::Stream;
use crate::{Options, median, percentile};

pub(crate) fn run(options: &Options) {
    let gauge = Gauge::start(options, 5, 2200, None);
    for round in 1..=options.rounds {
        let streams: Vec<_> = (0..4).map(|_| Stream::begin(gauge.serve.listen, 32, 300)).collect();
        for stream in &streams {
            stream.wait_for(40);
        }
        let long = Stream::begin(gauge.serve.listen, 2000, 2);
        let ttft = long.end()[0];
        let gaps: Vec<f64> = streams
            .into_iter()
            .flat_map(|stream| stream.end().windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>())
            .collect();
        let (middle, worst) = (median(gaps.clone()), percentile(gaps.clone(), 1.0));
        println!(
            "  round {round}: ITL p50 {:.1} ms, p99 {:.1} ms, worst {:.1} ms = {:.2} × the median; TTFT of the long prompt {ttft:.2} s",
            middle * 1e3,
            percentile(gaps, 0.99) * 1e3,
            worst * 1e3,
            worst / middle
        );
    }
}
