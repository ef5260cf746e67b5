//! The live page's messages, as JSON. Times are milliseconds with three decimals; what was not observed is null.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::measure::{Exchange, Row, SLOT, SLOTS, Summary, WINDOW, WindowNow};

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
    listen: SocketAddr,
    window_s: u64,
    slot_s: u64,
    slots: usize,
}

impl Hello {
    pub(super) fn new(listen: SocketAddr) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { version, listen, window_s: WINDOW.as_secs(), slot_s: SLOT.as_secs(), slots: SLOTS }
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
    output_tokens: Option<u64>,
    source: Option<&'static str>,
    token_events: u64,
    choices: usize,
    phases: Vec<(&'static str, f64)>,
    /// Arrivals in µs: the first after the request's head, each other after the one before.
    ticks_us: Vec<u64>,
    /// One letter a tick: `a` answer, `r` reasoning; a capital where it shared its read.
    kinds: String,
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
        let mut last = 0;
        let arrivals = exchange.track.ticks().map(|tick| u64::try_from(tick.at.as_micros()).unwrap_or(u64::MAX));
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
            output_tokens: exchange.output.map(|output| output.count),
            source: exchange.output.map(|output| output.source.label()),
            token_events: exchange.token_events,
            choices: exchange.choices,
            phases: marks.phases(&exchange.connect).map(|(phase, time)| (phase.label(), ms(time))).collect(),
            ticks_us: arrivals.map(|at| at - std::mem::replace(&mut last, at)).collect(),
            kinds: exchange.track.ticks().map(|tick| kind(tick.reasoning, tick.coalesced)).collect(),
            ticks_lost: exchange.track.lost(),
            anomalies: exchange.anomalies.seen().map(|(kind, count)| (kind.label(), count)).collect(),
        }
    }
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
    cancels: u64,
    errors: u64,
    ttft_ms: Option<Course>,
    itl_ms: Option<Course>,
    tpot_ms: Option<Course>,
    tgs: Option<Course>,
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
    pub(super) fn new(in_flight: i64, name: &str, kind: &'static str, window: WindowNow) -> Self {
        let WindowNow { requests, ok, cancels, now, course } = window;
        let [ttft_ms, itl_ms, tpot_ms, tgs] = now;
        let [ttft_course, itl_course, tpot_course, tgs_course] = course;
        Self {
            name: name.to_owned(),
            kind,
            in_flight,
            requests,
            ok,
            cancels,
            errors: requests - ok - cancels,
            ttft_ms: Course::of(ttft_ms.as_ref(), ttft_course),
            itl_ms: Course::of(itl_ms.as_ref(), itl_course),
            tpot_ms: Course::of(tpot_ms.as_ref(), tpot_course),
            tgs: Course::of(tgs.as_ref(), tgs_course),
        }
    }
}

impl Course {
    /// `None` where nothing was observed, neither now nor before.
    fn of(now: Option<&Summary>, course: Vec<Option<[f64; 2]>>) -> Option<Self> {
        if now.is_none() && course.iter().all(Option::is_none) {
            return None;
        }
        let share = |of: fn(&Summary) -> f64| now.map(|summary| thousandths(of(summary)));
        Some(Self {
            count: now.map_or(0, |summary| summary.count),
            p50: share(|summary| summary.p50),
            p95: share(|summary| summary.p95),
            p99: share(|summary| summary.p99),
            spark: course.into_iter().map(|slot| slot.map(|pair| pair.map(thousandths))).collect(),
        })
    }
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
