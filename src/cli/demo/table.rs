//! The demo's table: one line per level, headed by plain words and the field's own.

use std::time::Duration;

use crate::measure::{Exchange, Outcome};

/// Above the lines: what each column says, and what it is called.
pub(super) fn head(width: usize) -> String {
    let [tokens, requests, ok] = ["prompt", "requests", "ended"];
    let [wait, each, longest, one, all] = ["wait for the first token", "then, each", "longest", "speed of", "of all"];
    let first = format!(
        "{:width$}  {tokens:>6}  {requests:>8}  {ok:>8}  {wait:>24}  {each:>10}  {longest:>9}  {one:>11}  {all:>11}",
        ""
    );
    let [tokens, at_once, ok, p50, worst] = ["tokens", "at once", "well", "TTFT p50", "TTFT worst"];
    let [each, longest, one, all] = ["TPOT p50", "gap worst", "one, p50", "together"];
    let second = format!(
        "{:width$}  {tokens:>6}  {at_once:>8}  {ok:>8}  {p50:>11}  {worst:>11}  {each:>10}  {longest:>9}  {one:>11}  {all:>11}",
        "model"
    );
    let line = "─".repeat(second.chars().count());
    format!("{first}\n{second}\n{line}")
}

pub(super) fn line(width: usize, model: &str, concurrency: usize, exchanges: &[Exchange], took: Duration) -> String {
    let ok = exchanges.iter().filter(|exchange| exchange.outcome == Outcome::Ok).count();
    let prompt = sorted(exchanges.iter().filter_map(|exchange| Some(exchange.prompt_tokens()? as f64)));
    let ttft = sorted(exchanges.iter().filter_map(|exchange| exchange.marks.ttft_upstream()).map(ms));
    let tpot = sorted(exchanges.iter().filter_map(Exchange::tpot).map(ms));
    let stall = sorted(exchanges.iter().filter_map(|exchange| exchange.stall).map(ms));
    let tgs = sorted(exchanges.iter().filter_map(Exchange::tgs));
    let tokens: Option<u64> = exchanges.iter().map(|exchange| Some(exchange.output?.count)).sum();
    let together = tokens.filter(|_| !exchanges.is_empty()).map(|tokens| tokens as f64 / took.as_secs_f64());
    let shown = |value: Option<f64>, digits: usize, unit: &str| match value {
        Some(value) => format!("{value:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    format!(
        "{model:width$}  {:>6}  {concurrency:>8}  {:>8}  {:>11}  {:>11}  {:>10}  {:>9}  {:>11}  {:>11}",
        shown(median(&prompt), 0, ""),
        format!("{ok} of {}", exchanges.len()),
        shown(median(&ttft), 1, " ms"),
        shown(ttft.last().copied(), 1, " ms"),
        shown(median(&tpot), 1, " ms"),
        shown(stall.last().copied(), 0, " ms"),
        shown(median(&tgs), 1, " tok/s"),
        shown(together, 0, " tok/s"),
    )
}

/// Below the lines: how to read them.
pub(super) const NOTES: &str = "\
TTFT    time to first token: from the request's last byte to the first piece of output
TPOT    time per output token after the first, a request's average
gap     a wait between two pieces of output: what a reader sees as a stall
p50     the median: half of the requests were at least as good; worst: none was worse
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

/// The lower median of sorted values. `None` of none.
fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_lower_one() {
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_line_is_as_wide_as_its_head_and_shows_no_zero_for_what_is_absent() {
        let head = head(8);
        let widths: Vec<_> = head.lines().map(|line| line.chars().count()).collect();
        let line = line(8, "steady", 16, &[], Duration::from_secs(1));
        assert_eq!(widths, [line.chars().count(); 3], "{head}\n{line}");
        assert_eq!(line.matches(" -").count(), 7, "{line}");
        assert!(line.contains("0 of 0"), "{line}");
    }
}
