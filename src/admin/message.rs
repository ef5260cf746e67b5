//! The live page's messages, as JSON. Times are milliseconds with three decimals; what was not observed is null.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::measure::intervals::Source;
use crate::measure::{Exchange, Row, SLOT, SLOTS, Shown, Summary, Tick, Track, WINDOW, WindowNow};

/// One server-sent event. JSON has no line ends of its own.
pub(super) fn event(name: &str, data: &impl Serialize) -> String {
    match serde_json::to_string(data) {
        Ok(json) => format!("event: {name}\ndata: {json}\n\n"),
        Err(error) => {
            tracing::error!(%error, name, "a message to the live page cannot be written");
            String::new()
        }
    }
}

/// The first message.
#[derive(Serialize)]
pub(super) struct Hello {
    version: &'static str,
    /// Another one means another process: its numbers begin anew.
    epoch: u64,
    listen: SocketAddr,
    window_s: u64,
    slot_s: u64,
    slots: usize,
}

impl Hello {
    pub(super) fn new(epoch: u64, listen: SocketAddr) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { version, epoch, listen, window_s: WINDOW.as_secs(), slot_s: SLOT.as_secs(), slots: SLOTS }
    }
}

/// What has happened since the message before.
#[derive(Serialize)]
pub(super) struct Update<'a> {
    at_ms: f64,
    skipped: u64,
    rows: Vec<RowMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backends: Option<Vec<BackendMessage>>,
}

impl<'a> Update<'a> {
    pub(super) fn new(
        at: SystemTime,
        skipped: u64,
        rows: Vec<RowMessage<'a>>,
        backends: Option<Vec<BackendMessage>>,
    ) -> Self {
        Self { at_ms: unix_ms(at), skipped, rows, backends }
    }
}

/// One finished exchange.
#[derive(Serialize)]
pub(super) struct RowMessage<'a> {
    seq: u64,
    started_ms: f64,
    backend: Option<&'a str>,
    model: Option<&'a str>,
    model_served: Option<&'a str>,
    operation: &'static str,
    stream: Option<bool>,
    outcome: &'static str,
    status: Option<u16>,
    tag: Option<&'a str>,
    reused: Option<bool>,
    duration_ms: f64,
    ttft_ms: Option<f64>,
    ttft_upstream_ms: Option<f64>,
    ttfa_ms: Option<f64>,
    tpot_ms: Option<f64>,
    tgs: Option<f64>,
    stall_ms: Option<f64>,
    prompt_tokens: Option<u64>,
    prompt_source: Option<&'static str>,
    output_tokens: Option<u64>,
    source: Option<&'static str>,
    token_events: u64,
    choices: usize,
    phases: Vec<(&'static str, f64)>,
    /// Arrivals in µs: the first after the request's head, each other after the one before.
    ticks_us: Vec<u64>,
    /// One letter a tick: `a` answer, `r` reasoning; a capital where it shared its read.
    kinds: String,
    /// Where a gap is not just the time since the tick before: for each tick the time since its choice's tick before in
    /// µs, or null where that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps_us: Option<Vec<Option<u64>>>,
    /// How many tokens each tick is known to carry, where that is not always 1; its gap is that many ITLs.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<u32>>,
    ticks_lost: u64,
    anomalies: Vec<(&'static str, u32)>,
}

impl<'a> RowMessage<'a> {
    pub(super) fn new(row: &'a Row) -> Self {
        let exchange: &Exchange = &row.exchange;
        let marks = &exchange.marks;
        let duration = marks.duration().unwrap_or_default();
        // Of a reply in one piece no time but its duration means anything.
        let of_stream = |time: Option<Duration>| time.filter(|_| marks.first_event.is_some()).map(ms);
        let ticks: Vec<Tick> = exchange.track.ticks().collect();
        Self {
            seq: row.number,
            started_ms: unix_ms(exchange.ended) - ms(duration),
            backend: exchange.backend.as_deref(),
            model: exchange.model_requested.as_deref(),
            model_served: exchange.model_served.as_deref(),
            operation: exchange.operation,
            stream: exchange.stream,
            outcome: exchange.outcome.label(),
            status: exchange.status,
            tag: exchange.tag.as_deref(),
            reused: exchange.reused,
            duration_ms: ms(duration),
            ttft_ms: of_stream(marks.ttft_client()),
            ttft_upstream_ms: of_stream(marks.ttft_upstream()),
            ttfa_ms: of_stream(marks.ttfa()),
            tpot_ms: of_stream(exchange.tpot()),
            tgs: exchange.tgs().filter(|_| marks.first_event.is_some()).map(thousandths),
            stall_ms: of_stream(exchange.stall),
            prompt_tokens: exchange.prompt_tokens(),
            prompt_source: exchange.prompt().map(|(_, source)| source.label()),
            output_tokens: exchange.output.map(|output| output.count),
            source: exchange.output.map(|output| output.source.label()),
            token_events: exchange.token_events,
            choices: exchange.choices,
            phases: marks.phases(&exchange.connect).map(|(phase, time)| (phase.label(), ms(time))).collect(),
            ticks_us: since_before(&ticks),
            kinds: ticks.iter().map(|tick| kind(tick.reasoning, tick.coalesced)).collect(),
            gaps_us: own_gaps(&exchange.track, &ticks),
            tokens: ticks.iter().any(|tick| tick.tokens != 1).then(|| ticks.iter().map(|tick| tick.tokens).collect()),
            ticks_lost: exchange.track.lost(),
            anomalies: exchange.anomalies.seen().map(|(kind, count)| (kind.label(), count)).collect(),
        }
    }
}

fn since_before(ticks: &[Tick]) -> Vec<u64> {
    let mut last = 0;
    let arrivals = ticks.iter().map(|tick| us(tick.at));
    arrivals.map(|at| at - std::mem::replace(&mut last, at)).collect()
}

/// `None` where every gap but the first tick's is the time since the tick before.
fn own_gaps(track: &Track, ticks: &[Tick]) -> Option<Vec<Option<u64>>> {
    let plain = ticks.iter().enumerate().all(|(index, tick)| tick.choice == 0 && tick.has_gap == (index > 0));
    if plain {
        return None;
    }
    let mut gaps = track.gaps();
    Some(ticks.iter().map(|tick| tick.has_gap.then(|| gaps.next()).flatten().map(|gap| us(gap.time))).collect())
}

fn kind(reasoning: bool, coalesced: bool) -> char {
    match (reasoning, coalesced) {
        (false, false) => 'a',
        (false, true) => 'A',
        (true, false) => 'r',
        (true, true) => 'R',
    }
}

/// One backend's last minutes.
#[derive(Serialize)]
pub(super) struct BackendMessage {
    name: String,
    kind: &'static str,
    in_flight: i64,
    requests: u64,
    ok: u64,
    unconfirmed: u64,
    cancels: u64,
    /// All others.
    errors: u64,
    ttft_ms: Option<Course>,
    itl_ms: ByTiming,
    tpot_ms: BySource,
    tgs: BySource,
}

/// ITLs, kept apart by whether both instants are an event's own.
#[derive(Serialize)]
struct ByTiming {
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<Course>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coalesced: Option<Course>,
}

/// What N enters, kept apart by where N comes from.
#[derive(Serialize)]
struct BySource {
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Course>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<Course>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Course>,
}

impl BySource {
    fn of(window: &WindowNow, shown: fn(Source) -> Shown) -> Self {
        let course = |source| Course::of(window, shown(source));
        Self { usage: course(Source::Usage), tokenizer: course(Source::Tokenizer), events: course(Source::Events) }
    }
}

/// One interval: its last minute, and its course.
#[derive(Serialize)]
struct Course {
    count: u64,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    spark: Vec<Option<[f64; 2]>>,
}

impl BackendMessage {
    pub(super) fn new(in_flight: i64, name: &str, kind: &'static str, window: &WindowNow) -> Self {
        let &WindowNow { requests, ok, unconfirmed, cancels, .. } = window;
        Self {
            name: name.to_owned(),
            kind,
            in_flight,
            requests,
            ok,
            unconfirmed,
            cancels,
            errors: requests - ok - unconfirmed - cancels,
            ttft_ms: Course::of(window, Shown::Ttft),
            itl_ms: ByTiming {
                exact: Course::of(window, Shown::Itl),
                coalesced: Course::of(window, Shown::ItlCoalesced),
            },
            tpot_ms: BySource::of(window, Shown::Tpot),
            tgs: BySource::of(window, Shown::Tgs),
        }
    }
}

impl Course {
    /// `None` where nothing was observed, neither now nor before.
    fn of(window: &WindowNow, shown: Shown) -> Option<Self> {
        let (now, course) = window.of(shown);
        if now.is_none() && course.iter().all(Option::is_none) {
            return None;
        }
        let share = |of: fn(&Summary) -> f64| now.map(|summary| thousandths(of(summary)));
        Some(Self {
            count: now.map_or(0, |summary| summary.count),
            p50: share(|summary| summary.p50),
            p95: share(|summary| summary.p95),
            p99: share(|summary| summary.p99),
            spark: course.iter().map(|slot| slot.map(|pair| pair.map(thousandths))).collect(),
        })
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn unix_ms(at: SystemTime) -> f64 {
    ms(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capital_says_that_the_read_was_shared() {
        let kinds = [(false, false), (false, true), (true, false), (true, true)];
        assert_eq!(kinds.map(|(reasoning, coalesced)| kind(reasoning, coalesced)), ['a', 'A', 'r', 'R']);
    }

    #[test]
    fn gaps_are_told_where_they_are_not_the_time_since_the_tick_before() {
        let tick = |at: u64, choice, tokens, has_gap| Tick {
            at: Duration::from_micros(at),
            choice,
            tokens,
            reasoning: false,
            coalesced: false,
            has_gap,
        };
        let gaps = |ticks: &[Tick]| {
            let mut track = Track::default();
            for tick in ticks {
                track.push(*tick);
            }
            (since_before(ticks), own_gaps(&track, ticks))
        };
        let plain = [tick(10, 0, 1, false), tick(30, 0, 4, true)];
        assert_eq!(gaps(&plain), (vec![10, 20], None));
        let choices = [tick(10, 0, 1, false), tick(15, 1, 1, false), tick(30, 0, 1, true), tick(36, 1, 1, true)];
        assert_eq!(gaps(&choices), (vec![10, 5, 15, 6], Some(vec![None, None, Some(20), Some(21)])));
        let unreadable = [tick(10, 0, 1, false), tick(30, 0, 1, false), tick(36, 0, 1, true)];
        assert_eq!(gaps(&unreadable), (vec![10, 20, 6], Some(vec![None, None, Some(6)])));
    }
}
