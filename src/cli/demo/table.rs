//! The demo's table: one line per level, headed by plain words and the field's own.

use std::time::Duration;

use crate::measure::{Exchange, Outcome};

/// Above the lines: what each column says, and what it is called.
pub(super) fn head(width: usize) -> String {
    let plain =
        ["prompt", "requests", "all", "wait for the first token", "then, each", "longest", "speed of", "of all"];
    let terms = ["tokens", "at once", "ok", "TTFT p50", "TTFT p95", "TPOT p50", "gap p95", "one, p50", "together"];
    let [tokens, at_once, ok, wait, each, longest, one, all] = plain;
    let first = format!(
        "{:width$}  {tokens:>6}  {at_once:>8}  {ok:>3}  {wait:>24}  {each:>10}  {longest:>9}  {one:>11}  {all:>11}",
        ""
    );
    let [tokens, at_once, ok, p50, p95, each, longest, one, all] = terms;
    let second = format!(
        "{:width$}  {tokens:>6}  {at_once:>8}  {ok:>3}  {p50:>11}  {p95:>11}  {each:>10}  {longest:>9}  {one:>11}  {all:>11}",
        "model"
    );
    let line = "─".repeat(second.chars().count());
    format!("{first}\n{second}\n{line}")
}

pub(super) fn line(width: usize, model: &str, concurrency: usize, exchanges: &[Exchange], took: Duration) -> String {
    let ok = match exchanges {
        [] => "-",
        all if all.iter().all(|exchange| exchange.outcome == Outcome::Ok) => "yes",
        _ => "NO",
    };
    let prompt = sorted(exchanges.iter().filter_map(|exchange| Some(exchange.prompt_tokens()? as f64)));
    let ttft = sorted(exchanges.iter().filter_map(|exchange| exchange.marks.ttft_upstream()).map(ms));
    let tpot = sorted(exchanges.iter().filter_map(Exchange::tpot).map(ms));
    let stall = sorted(exchanges.iter().filter_map(|exchange| exchange.stall).map(ms));
    let tgs = sorted(exchanges.iter().filter_map(Exchange::tgs));
    let tokens: Option<u64> = exchanges.iter().map(|exchange| Some(exchange.output?.count)).sum();
    let together = tokens.filter(|_| !exchanges.is_empty()).map(|tokens| tokens as f64 / took.as_secs_f64());
    let shown = |values: &[f64], share: f64, digits: usize, unit: &str| match percentile(values, share) {
        Some(value) => format!("{value:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    format!(
        "{model:width$}  {:>6}  {concurrency:>8}  {:>3}  {:>11}  {:>11}  {:>10}  {:>9}  {:>11}  {:>11}",
        shown(&prompt, 0.5, 0, ""),
        ok,
        shown(&ttft, 0.50, 1, " ms"),
        shown(&ttft, 0.95, 1, " ms"),
        shown(&tpot, 0.50, 1, " ms"),
        shown(&stall, 0.95, 0, " ms"),
        shown(&tgs, 0.50, 1, " tok/s"),
        together.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0} tok/s")),
    )
}

/// Below the lines: how to read them.
pub(super) const NOTES: &str = "\
TTFT    time to first token: from the request's last byte to the first piece of output
TPOT    time per output token after the first, a request's average
gap     a request's longest wait between two pieces of output: what a reader sees as a stall
p50     half of the requests were at least as good; p95: 19 of 20 were
speed   output tokens per second: of one request, its wait included, and of all that ran at once
Each line was warmed up first; the warm-up is not in it.";

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

    #[test]
    fn a_line_is_as_wide_as_its_head_and_shows_no_zero_for_what_is_absent() {
        let head = head(8);
        let widths: Vec<_> = head.lines().map(|line| line.chars().count()).collect();
        let line = line(8, "steady", 16, &[], Duration::from_secs(1));
        assert_eq!(widths, [line.chars().count(); 3], "{head}\n{line}");
        assert_eq!(line.matches(" -").count(), 8, "{line}");
    }
}
