//! The demo's table: one line per level.

use std::time::Duration;

use crate::measure::{Exchange, Outcome};

pub(super) const HEAD: &str = "at once  requests     ok  TTFT p50   TTFT p95   TPOT p50    TGS p50  throughput\n\
                    -------  --------  -----  ---------  ---------  ---------  -------  ----------";

pub(super) fn line(concurrency: usize, exchanges: &[Exchange], took: Duration) -> String {
    let ok = exchanges.iter().filter(|exchange| exchange.outcome == Outcome::Ok).count();
    let ttft = sorted(exchanges.iter().filter_map(|exchange| exchange.marks.ttft_upstream()).map(ms));
    let tpot = sorted(exchanges.iter().filter_map(Exchange::tpot).map(ms));
    let tgs = sorted(exchanges.iter().filter_map(Exchange::tgs));
    let tokens: u64 = exchanges.iter().filter_map(|exchange| exchange.output).map(|output| output.count).sum();
    format!(
        "{concurrency:>7}  {:>8}  {ok:>5}  {:>6} ms  {:>6} ms  {:>6} ms  {:>5}/s  {:>8.0}/s",
        exchanges.len(),
        shown(percentile(&ttft, 0.50)),
        shown(percentile(&ttft, 0.95)),
        shown(percentile(&tpot, 0.50)),
        shown(percentile(&tgs, 0.50)),
        tokens as f64 / took.as_secs_f64(),
    )
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The nearest-rank percentile of sorted values. `None` of none.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rank: whole, positive, small
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), Some(10.0));
        assert_eq!(percentile(&values, 0.95), Some(19.0));
        assert_eq!(percentile(&values[..1], 0.95), Some(1.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
