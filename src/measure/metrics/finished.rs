//! What a finished exchange adds to the metrics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ledger::{Entry, NONE};
use super::series::{Series, Tokens};
use super::{Meter, Objective};
use crate::measure::exchange::Exchange;
use crate::measure::intervals::Source;
use crate::measure::outcome::Outcome;

/// Upper bounds of the prompt-length groups, in tokens, with their labels.
const PROMPT_GROUPS: [(u64, &str); 11] = [
    (32, "<=32"),
    (64, "<=64"),
    (128, "<=128"),
    (256, "<=256"),
    (512, "<=512"),
    (1024, "<=1024"),
    (2048, "<=2048"),
    (4096, "<=4096"),
    (8192, "<=8192"),
    (32_768, "<=32768"),
    (131_072, "<=131072"),
];

impl Meter {
    /// Adds one exchange. `series` is there when its reply was observed.
    pub(in crate::measure) fn finished(&self, exchange: &Exchange, series: Option<&Series>) {
        let backend = exchange.backend.as_deref().unwrap_or(NONE);
        let base = [backend, &*exchange.model, exchange.operation];
        let stream = stream_label(exchange.stream);
        let mut digits = [0; 3];
        let status = exchange.status.map_or(NONE, |status| decimal(status, &mut digits));
        if exchange.measured {
            self.measured(exchange, series, base);
        }
        self.judge(exchange, base);
        for listener in &self.listeners {
            // It must not keep the request in flight, nor harm the traffic.
            if catch_unwind(AssertUnwindSafe(|| listener(exchange))).is_err() {
                tracing::error!("a listener panicked over a finished request; the others are told all the same");
            }
        }
        // Last: who sees the request as over finds everything else counted.
        self.ledger.ended(&Entry {
            backend,
            model: &exchange.model,
            operation: exchange.operation,
            outcome: exchange.outcome.label(),
            status,
            stream,
        });
    }

    fn measured(&self, exchange: &Exchange, series: Option<&Series>, base: [&str; 3]) {
        let with = |extra: &'static str| [base[0], base[1], base[2], extra];
        let families = &self.families;
        for (kind, count) in exchange.anomalies.seen() {
            families.anomalies.with_label_values(&with(kind.label())).inc_by(u64::from(count));
        }
        let duration = exchange.marks.duration().map(|time| time.as_secs_f64());
        let phases = exchange.marks.phases(&exchange.connect);
        let Some(series) = series else {
            if let Some(duration) = duration {
                families.duration.with_label_values(&with(stream_label(exchange.stream))).observe(duration);
            }
            for (phase, time) in phases {
                families.phase.with_label_values(&with(phase.label())).observe(time.as_secs_f64());
            }
            return;
        };
        if let Some(duration) = duration {
            series.duration(exchange.stream).observe(duration);
        }
        for (phase, time) in phases {
            series.phase(phase).observe(time.as_secs_f64());
        }
        tokens(exchange, series);
        if exchange.marks.first_event.is_some() {
            self.stream(exchange, base);
        }
    }

    /// What only a stream of events has. Of a reply in one piece no other time than the duration means anything.
    fn stream(&self, exchange: &Exchange, base: [&str; 3]) {
        let with = |extra: &'static str| [base[0], base[1], base[2], extra];
        let families = &self.families;
        let marks = &exchange.marks;
        let plain = [
            (&families.headers, marks.to_headers()),
            (&families.first_event, marks.to_first_event()),
            (&families.ttfa, marks.ttfa()),
            (&families.stall, exchange.stall),
        ];
        for (family, time) in plain {
            if let Some(time) = time {
                family.with_label_values(&base).observe(time.as_secs_f64());
            }
        }
        let prompt = prompt_group(exchange.prompt_tokens());
        if let Some(ttft) = marks.ttft_upstream() {
            families.ttft_by_prompt.with_label_values(&with(prompt)).observe(ttft.as_secs_f64());
        }
        let Some(source) = exchange.output.map(|output| output.source.label()) else { return };
        if let Some(tpot) = exchange.tpot() {
            let labels = [base[0], base[1], base[2], prompt, source];
            families.tpot.with_label_values(&labels).observe(tpot.as_secs_f64());
        }
        if let Some(tgs) = exchange.tgs() {
            families.tgs.with_label_values(&with(source)).observe(tgs);
        }
    }

    fn judge(&self, exchange: &Exchange, base: [&str; 3]) {
        if exchange.stream != Some(true) {
            return;
        }
        for objective in &self.objectives {
            if let Some(met) = meets(objective, exchange) {
                let met = if met { "true" } else { "false" };
                let labels = [base[0], base[1], base[2], objective.name.as_str(), met];
                self.families.slo.with_label_values(&labels).inc();
            }
        }
    }
}

/// How many tokens came and went.
fn tokens(exchange: &Exchange, series: &Series) {
    let usage = exchange.usage.unwrap_or_default();
    if let Some(output) = exchange.output {
        series.output_tokens(output.source).observe(output.count as f64);
    }
    if let Some((prompt, source)) = exchange.prompt() {
        series.prompt_tokens(source).observe(prompt as f64);
    }
    let counted = |source| exchange.output.filter(|output| output.source == source).map(|output| output.count);
    let kinds = [
        (Tokens::Input, usage.input),
        (Tokens::InputByTokenizer, exchange.prompt_counted),
        (Tokens::Output, usage.output),
        (Tokens::OutputByTokenizer, counted(Source::Tokenizer)),
        (Tokens::OutputByEvents, counted(Source::Events)),
        (Tokens::Reasoning, usage.reasoning),
        (Tokens::Cached, usage.cached),
    ];
    for (kind, count) in kinds {
        if let Some(count) = count.filter(|count| *count > 0) {
            series.tokens(kind).inc_by(count as f64);
        }
    }
}

/// Whether `exchange` met `objective`. `None` for one that counts in neither: a cancel after the first token, a reply
/// whose TTFT could not be observed, or one in time for its TTFT whose output is partly hidden where TPOT is limited, too:
/// it had a TPOT, and nobody knows it. (A reply of one token has none, and so none that is too long.)
fn meets(objective: &Objective, exchange: &Exchange) -> Option<bool> {
    match exchange.outcome {
        Outcome::Ok => {}
        Outcome::ClientCancel => return None,
        _ => return Some(false),
    }
    let ttft = exchange.marks.ttft_client()?;
    let within = |limit: Option<std::time::Duration>, time| limit.is_none_or(|limit| time <= limit);
    if !within(objective.ttft, ttft) {
        return Some(false);
    }
    let may_have = exchange.output.is_none_or(|output| output.count > 1);
    if objective.tpot.is_some() && exchange.partly_hidden && may_have {
        return None;
    }
    Some(exchange.tpot().is_none_or(|tpot| within(objective.tpot, tpot)))
}

pub(super) fn stream_label(stream: Option<bool>) -> &'static str {
    match stream {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    }
}

fn prompt_group(tokens: Option<u64>) -> &'static str {
    let Some(tokens) = tokens else { return "unknown" };
    PROMPT_GROUPS.iter().find(|(bound, _)| tokens <= *bound).map_or(">131072", |(_, label)| label)
}

/// A status code's three digits, without an allocation.
fn decimal(status: u16, digits: &mut [u8; 3]) -> &str {
    for (digit, unit) in digits.iter_mut().zip([100, 10, 1]) {
        *digit = b'0' + u8::try_from(status / unit % 10).unwrap_or(0);
    }
    std::str::from_utf8(digits).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_grouped_by_their_upper_bound() {
        let groups = [(0, "<=32"), (32, "<=32"), (33, "<=64"), (512, "<=512"), (131_072, "<=131072")];
        for (tokens, group) in groups {
            assert_eq!(prompt_group(Some(tokens)), group);
        }
        assert_eq!(prompt_group(Some(131_073)), ">131072");
        assert_eq!(prompt_group(None), "unknown");
    }

    #[test]
    fn a_status_is_three_digits() {
        let mut digits = [0; 3];
        assert_eq!(decimal(200, &mut digits), "200");
        assert_eq!(decimal(429, &mut digits), "429");
        assert_eq!(decimal(999, &mut digits), "999");
    }
}
