//! One line per request: what it was, where it went, how it ended, how long it took. No content, no key.

use std::time::Duration;

use crate::measure::Exchange;

/// Writes the line for a finished exchange, at level `info`, target `streamgauge::access`.
pub fn log(exchange: &Exchange) {
    let marks = &exchange.marks;
    tracing::info!(
        target: "streamgauge::access",
        outcome = exchange.outcome.label(),
        status = exchange.status,
        operation = exchange.operation,
        backend = exchange.backend.as_deref(),
        model = exchange.model_requested.as_deref(),
        model_served = exchange.model_served.as_deref(),
        stream = exchange.stream,
        duration_ms = marks.duration().map(ms),
        ttft_ms = marks.ttft_upstream().map(ms),
        tpot_ms = exchange.tpot().map(ms),
        prompt_tokens = exchange.prompt_tokens(),
        output_tokens = exchange.output.map(|output| output.count),
        source = exchange.output.map(|output| output.source.label()),
        reused = exchange.reused,
        tag = exchange.tag.as_deref(),
        "request"
    );
}

/// Milliseconds with three decimals: microseconds are what the clock is worth here.
fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
