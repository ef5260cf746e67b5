//! Rounds in, a markdown table out: medians over the rounds, and the ratio to nginx taken round by round.

use std::fmt::Write as _;
use std::time::Duration;

use crate::load::{Seen, Workload};
use crate::upstream::Wish;

/// The percentiles shown. The last is noisy: a round of short turns holds few samples that far out.
const PERCENTS: [usize; 3] = [50, 90, 99];

/// What one turn of one leg came to.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    /// Latency at [`PERCENTS`], microseconds; per event (paced) or per request (JSON). `None` for blast.
    latency: Option<[f64; 3]>,
    /// The first token's latency at [`PERCENTS`], microseconds. `None` unless paced.
    first: Option<[f64; 3]>,
    /// CPU per event (streams) or per request (JSON), microseconds. `None` for the direct leg.
    cpu: Option<f64>,
    /// Events or requests a second.
    rate: f64,
}

impl Round {
    pub(crate) fn new(mut seen: Seen, cpu: Option<Duration>) -> Self {
        let units = if seen.events > 0 { seen.events } else { seen.requests } as f64;
        Self {
            latency: percentiles(&mut seen.latency),
            first: percentiles(&mut seen.first),
            cpu: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / units),
            rate: units / seen.wall.as_secs_f64(),
        }
    }
}

/// A workload's rounds by leg; equal positions ran next to each other. An absent leg has none.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) direct: Vec<Round>,
    pub(crate) nginx: Vec<Round>,
    pub(crate) streamgauge: Vec<Round>,
}

/// The largest ratio to nginx aimed at; `None` where the row only informs.
type Aim = Option<f64>;

/// A quantity of a turn.
type Quantity<'a> = &'a dyn Fn(&Round) -> Option<f64>;

/// The table's head.
pub(crate) const HEAD: &str = "\
| traffic | quantity | direct | nginx | streamgauge | ÷ nginx, median | quartiles | aim | |
|---|---|---:|---:|---:|---:|---:|---:|---|
";

/// One workload's rows.
pub(crate) fn rows(workload: &Workload, rounds: &Rounds) -> String {
    let mut text = String::new();
    let unit = if workload.wish == Wish::Json { "request" } else { "event" };
    let (latency_aim, cpu_aim): (Aim, Aim) = match workload.wish {
        Wish::Paced { .. } => (Some(1.05), Some(1.1)),
        Wish::Json | Wish::Blast { per_write: 1, .. } => (None, Some(1.2)),
        Wish::Blast { .. } => (None, Some(1.5)),
        Wish::Flood { .. } => (None, None),
    };
    let mut row = |quantity: &str, get: Quantity<'_>, added: bool, aim: Aim| {
        text.push_str(&one_row(workload.title, quantity, rounds, get, added, aim));
    };
    for (what, of) in [(unit, 0), ("first token", 1)] {
        for (n, percent) in PERCENTS.iter().enumerate() {
            let get = |round: &Round| [round.latency, round.first][of].map(|all| all[n]);
            let (noise, aim) = if *percent == 99 { (" (noisy)", None) } else { ("", latency_aim) };
            row(&format!("added per {what}, p{percent}, µs{noise}"), &get, true, aim);
        }
    }
    row(&format!("CPU per {unit}, µs"), &|round| round.cpu, false, cpu_aim);
    if !matches!(workload.wish, Wish::Paced { .. }) {
        row(&format!("{unit}s a second"), &|round| Some(round.rate), false, None);
    }
    text
}

/// A row, or nothing where no leg has the quantity. With `added`, the proxies' values are less the direct leg's of the same round.
fn one_row(title: &str, quantity: &str, rounds: &Rounds, get: Quantity<'_>, added: bool, aim: Aim) -> String {
    let of = |leg: &[Round], base: &[Round]| -> Vec<Option<f64>> {
        (leg.iter().enumerate())
            .map(|(n, round)| {
                let base = if added { get(base.get(n)?)? } else { 0.0 };
                Some(get(round)? - base)
            })
            .collect()
    };
    let direct: Vec<_> = rounds.direct.iter().map(get).collect();
    let (nginx, ours) = (of(&rounds.nginx, &rounds.direct), of(&rounds.streamgauge, &rounds.direct));
    if [&direct, &nginx, &ours].into_iter().all(|values| values.iter().flatten().next().is_none()) {
        return String::new();
    }
    // Where nginx added nothing measurable, a ratio would mean nothing.
    let mut ratios: Vec<f64> = ours
        .iter()
        .zip(&nginx)
        .filter_map(|(ours, nginx)| Some(ours.as_ref()? / nginx.filter(|n| *n > 0.0)?))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let middle = quantile(&ratios, 0.5);
    let spread = match (quantile(&ratios, 0.25), quantile(&ratios, 0.75)) {
        (Some(low), Some(high)) => format!("{low:.2}–{high:.2}"),
        _ => "–".to_owned(),
    };
    let verdict = match (middle, aim) {
        (Some(middle), Some(aim)) if middle <= aim => "met",
        (Some(_), Some(_)) => "missed",
        _ => "",
    };
    let mut text = format!("| {title} | {quantity} ");
    for values in [direct, nginx, ours] {
        let mut values: Vec<f64> = values.into_iter().flatten().collect();
        values.sort_by(f64::total_cmp);
        let digits = if quantile(&values, 0.5).is_some_and(|v| v >= 1_000.0) { 0 } else { 2 };
        let _ = write!(text, "| {} ", quantile(&values, 0.5).map_or("–".to_owned(), |v| format!("{v:.digits$}")));
    }
    let show = |value: Option<f64>, sign: &str| value.map_or(String::new(), |v| format!("{sign}{v:.2}"));
    let _ = writeln!(text, "| {} | {spread} | {} | {verdict} |", show(middle, ""), show(aim, "≤ "));
    text
}

fn percentiles(nanos: &mut [u64]) -> Option<[f64; 3]> {
    let last = nanos.len().checked_sub(1)?;
    nanos.sort_unstable();
    Some(PERCENTS.map(|percent| nanos[(last * percent).div_ceil(100)] as f64 / 1e3))
}

/// The `share` quantile of sorted values, between neighbours. `None` when there are no values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = sorted.len().checked_sub(1)? as f64 * share;
    let (low, high) = (sorted.get(floor(at))?, sorted.get(floor(at.ceil()))?);
    Some(low + (high - low) * at.fract())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position within a short list")]
fn floor(at: f64) -> usize {
    at as usize
}
