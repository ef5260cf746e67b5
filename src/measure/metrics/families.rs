//! Every metric: its name, its help, its labels and its buckets.
//!
//! Invariant: a family has no sample until something was observed; nothing is filled with zeros in advance.

use prometheus::{
    CounterVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// TTFT and what is like it, in seconds.
const TTFT: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.45, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.5,
    6.0, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// Gaps between tokens, in seconds.
const GAPS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15,
    0.175, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Beyond the gaps: the longest gap of a request, in seconds.
const STALL_TAIL: &[f64] = &[20.0, 40.0, 80.0];
/// Beyond TTFT: durations and phases, in seconds.
const DURATION_TAIL: &[f64] = &[320.0, 640.0];
/// Tokens per second of one request.
const TOKENS_PER_SECOND: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0, 2000.0];
/// Time spent inside the proxy, in seconds.
const DWELL: &[f64] =
    &[0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25];

/// The labels that nearly every metric has.
const BASE: [&str; 3] = ["backend", "model", "operation"];

/// The metrics about requests that must agree at every moment; see [`super::ledger`].
pub(super) struct LedgerFamilies {
    pub(super) started: IntCounterVec,
    pub(super) in_flight: IntGaugeVec,
    pub(super) requests: IntCounterVec,
}

impl LedgerFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let build = Build(registry);
        Self {
            started: build.counter("requests_started_total", "Requests whose head was read.", &["operation"]),
            in_flight: build.gauge(
                "in_flight_requests",
                "Requests begun and not over; backend none before routing.",
                &["backend", "operation"],
            ),
            requests: build.counter(
                "requests_total",
                "Requests that are over, by outcome.",
                &["backend", "model", "operation", "outcome", "status", "stream"],
            ),
        }
    }
}

/// The metrics about engines in this process.
pub(super) struct EngineFamilies {
    pub(super) step: HistogramVec,
    pub(super) batch: HistogramVec,
    pub(super) prefill: IntCounterVec,
    pub(super) slots: IntGaugeVec,
    pub(super) waiting: IntGaugeVec,
}

impl EngineFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let build = Build(registry);
        let backend = ["backend"];
        let batch: Vec<f64> = (0..=8).map(|power| f64::from(1_u32 << power)).collect();
        Self {
            step: build.histogram("engine_step_seconds", "One step of an engine, sampling included.", &backend, GAPS),
            batch: build.histogram("engine_batch_size", "Sequences in one step of an engine.", &backend, &batch),
            prefill: build.counter("engine_prefill_tokens_total", "Prompt tokens an engine has computed.", &backend),
            slots: build.gauge("engine_kv_slots_in_use", "K/V slots of an engine that hold a sequence.", &backend),
            waiting: build.gauge("engine_queue_length", "Choices that wait for a K/V slot of an engine.", &backend),
        }
    }
}

/// The metrics about clients' connections.
pub(super) struct ConnectionFamilies {
    pub(super) open: IntGauge,
    pub(super) refused: IntCounterVec,
}

impl ConnectionFamilies {
    pub(super) fn new(registry: &Registry) -> Self {
        let build = Build(registry);
        Self {
            open: build.plain_gauge("connections", "Clients' connections that are open."),
            refused: build.counter(
                "connections_refused_total",
                "Clients turned away, by reason, before or without a request that could be answered; heads and frames that \
                 HTTP/2 itself refuses are not among them.",
                &["reason"],
            ),
        }
    }
}

/// All other metrics.
pub(super) struct Families {
    pub(super) slo: IntCounterVec,
    pub(super) ttft: HistogramVec,
    pub(super) ttft_by_prompt: HistogramVec,
    pub(super) tpot: HistogramVec,
    pub(super) ttfa: HistogramVec,
    pub(super) first_event: HistogramVec,
    pub(super) headers: HistogramVec,
    pub(super) itl: HistogramVec,
    pub(super) stall: HistogramVec,
    pub(super) tgs: HistogramVec,
    pub(super) prompt_tokens: HistogramVec,
    pub(super) output_tokens: HistogramVec,
    pub(super) duration: HistogramVec,
    pub(super) phase: HistogramVec,
    pub(super) token_events: IntCounterVec,
    pub(super) tokens: CounterVec,
    pub(super) anomalies: IntCounterVec,
    pub(super) dwell: HistogramVec,
    pub(super) events_per_read: HistogramVec,
    pub(super) timestamps: IntCounterVec,
    pub(super) label_overflow: IntCounter,
    pub(super) mirror_dropped: IntCounterVec,
}

impl Families {
    #[allow(clippy::too_many_lines)] // one list, in one place, is the point
    pub(super) fn new(registry: &Registry) -> Self {
        let build = Build(registry);
        let tokens: Vec<f64> = (0..=20).map(|power| f64::from(1_u32 << power)).collect();
        let events: Vec<f64> = (0..=10).map(|power| f64::from(1_u32 << power)).collect();
        let stall = [GAPS, STALL_TAIL].concat();
        let duration = [TTFT, DURATION_TAIL].concat();
        let info = build.counter("build_info", "Which streamgauge this is; always 1.", &["version"]);
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).inc();
        Self {
            slo: build.counter(
                "slo_requests_total",
                "Requests judged by a service level objective.",
                &with_base(&["slo", "met"]),
            ),
            ttft: build.histogram(
                "time_to_first_token_seconds",
                "TTFT. upstream: request sent to first token event received; client: request head read to first \
                 token event written.",
                &with_base(&["vantage"]),
                TTFT,
            ),
            ttft_by_prompt: build.histogram(
                "time_to_first_token_by_prompt_seconds",
                "TTFT, vantage upstream, by prompt length in tokens.",
                &with_base(&["prompt"]),
                TTFT,
            ),
            tpot: build.histogram(
                "time_per_output_token_seconds",
                "TPOT: (last token event - first) / (output tokens - 1).",
                &with_base(&["prompt", "source"]),
                GAPS,
            ),
            ttfa: build.histogram(
                "time_to_first_answer_token_seconds",
                "TTFA: request sent to first token event that is not only reasoning.",
                &BASE,
                TTFT,
            ),
            first_event: build.histogram(
                "time_to_first_event_seconds",
                "Request sent to first event of any kind.",
                &BASE,
                TTFT,
            ),
            headers: build.histogram("time_to_headers_seconds", "Request sent to reply head read.", &BASE, TTFT),
            itl: build.histogram(
                "inter_token_latency_seconds",
                "ITL: gap between consecutive token events of one choice; coalesced when an event shared its read.",
                &with_base(&["timing"]),
                GAPS,
            ),
            stall: build.histogram("stall_seconds", "The longest ITL of a request.", &BASE, &stall),
            tgs: build.histogram(
                "output_tokens_per_second",
                "TGS: output tokens / (request head read to last token event written).",
                &with_base(&["source"]),
                TOKENS_PER_SECOND,
            ),
            prompt_tokens: build.histogram(
                "prompt_tokens",
                "Tokens in the prompt of a request.",
                &with_base(&["source"]),
                &tokens,
            ),
            output_tokens: build.histogram(
                "output_tokens",
                "N, the output tokens of a request; reasoning that no event showed is left out.",
                &with_base(&["source"]),
                &tokens,
            ),
            duration: build.histogram(
                "request_duration_seconds",
                "Request head read to the exchange's end.",
                &with_base(&["stream"]),
                &duration,
            ),
            phase: build.histogram(
                "phase_seconds",
                "Parts of a request's duration; they add up to it.",
                &with_base(&["phase"]),
                &duration,
            ),
            token_events: build.counter("token_events_total", "Token events, counted as they pass.", &BASE),
            tokens: build.float_counter(
                "tokens_total",
                "Tokens, counted at a request's end; reasoning is part of output, cached part of input.",
                &with_base(&["type", "source"]),
            ),
            anomalies: build.counter("stream_anomalies_total", "Oddities of replies, by kind.", &with_base(&["kind"])),
            dwell: build.histogram(
                "dwell_seconds",
                "An event read from the backend to its last byte accepted by the client's socket.",
                &["backend", "operation"],
                DWELL,
            ),
            events_per_read: build.histogram(
                "events_per_read",
                "Events that one read from the backend brought.",
                &["backend", "operation"],
                &events,
            ),
            timestamps: build.counter("timestamps_total", "Events, by where their instant comes from.", &["source"]),
            label_overflow: build.plain_counter(
                "label_overflow_total",
                "Requests whose model got the label other because there are too many or its name is too long.",
            ),
            mirror_dropped: build.counter(
                "mirror_dropped_total",
                "Requests that were to be mirrored and were not, as too many or too large ones were under way.",
                &["backend"],
            ),
        }
    }
}

fn with_base(extra: &[&'static str]) -> Vec<&'static str> {
    [&BASE, extra].concat()
}

/// Makes and registers families. Registration fails only for a doubled name, which the first test run shows.
struct Build<'a>(&'a Registry);

impl Build<'_> {
    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(opts(name, help), labels))
    }

    fn float_counter(&self, name: &str, help: &str, labels: &[&str]) -> CounterVec {
        self.keep(CounterVec::new(opts(name, help), labels))
    }

    fn plain_gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::with_opts(opts(name, help)))
    }

    fn plain_counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::with_opts(opts(name, help)))
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(opts(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let opts = HistogramOpts { common_opts: opts(name, help), buckets: buckets.to_vec() };
        self.keep(HistogramVec::new(opts, labels))
    }

    fn keep<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let family = made.expect("metric names and labels are constants that the tests have seen");
        self.0.register(Box::new(family.clone())).expect("every metric is registered once");
        family
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("streamgauge")
}
