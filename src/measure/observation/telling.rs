//! What an exchange tells: TTFT as soon as it is known, and at the end the finished fact.

use std::time::{Instant, SystemTime};

use super::Observation;
use crate::clock::EngineReport;
use crate::measure::anomaly::Anomaly;
use crate::measure::count::Uncounted;
use crate::measure::delivery::Delivery;
use crate::measure::exchange::Exchange;
use crate::measure::intervals::OutputTokens;
use crate::measure::outcome::Outcome;
use crate::wire::Usage;

impl Observation {
    /// Makes the finished fact and tells it, once.
    pub(in crate::measure) fn tell(&mut self, end: Instant) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        self.leave();
        self.timeline.marks.end = Some(end);
        if self.delivery.as_ref().is_none_or(Delivery::holds_token) {
            self.timeline.marks.last_token_written = None;
        }
        for _ in 0..self.timeline.marks.clock_faults() {
            self.timeline.anomalies.add(Anomaly::Clock);
        }
        let asked = self.asked.take();
        let echo = asked.as_ref().is_some_and(|asked| asked.echo);
        let model = self.model.take().unwrap_or_else(|| {
            let requested = asked.as_ref().and_then(|asked| asked.model.as_deref());
            self.meter.model_label(self.backend.as_ref(), requested, false)
        });
        let track = std::mem::take(&mut self.timeline.track);
        let heard = self.reader.as_mut().map(|reader| std::mem::take(&mut reader.heard)).unwrap_or_default();
        let timeline = &self.timeline;
        let counted = timeline.counted_from_events();
        // An engine has counted, also where its reply does not say so.
        let usage = timeline.usage.or_else(|| counted_by_engine(timeline.marks.engine?));
        let exchange = Exchange {
            ended: SystemTime::now(),
            operation: self.operation,
            backend: self.backend.take(),
            model,
            model_served: heard.served.map(cropped),
            stream: asked.as_ref().map(|asked| asked.stream),
            measured: self.dialect.is_some(),
            outcome: self.outcome.unwrap_or(Outcome::Internal),
            status: self.status,
            marks: timeline.marks,
            connect: self.connect,
            reused: self.reused,
            usage,
            prompt_counted: None,
            output: OutputTokens::known(usage, timeline.reasoning(), counted),
            partly_hidden: timeline.partly_hidden(),
            token_events: timeline.token_events,
            choices: timeline.choices(),
            stall: timeline.stall(),
            track,
            anomalies: timeline.anomalies,
            model_requested: asked.as_ref().and_then(|asked| asked.model.clone()).map(cropped),
            tag: asked.and_then(|asked| asked.tag).map(cropped),
        };
        // Dropping it tells what it still holds: who sees the request as over finds that counted too.
        self.own_error = None;
        match self.counting.take() {
            Some(counting) => {
                Uncounted::tell(exchange, self.series.take(), self.meter.clone(), counting, heard.text, echo);
            }
            None => self.meter.finished(&exchange, self.series.as_deref()),
        }
    }

    pub(super) fn tell_ttft(&mut self) {
        let Some(series) = &self.series else { return };
        let marks = &self.timeline.marks;
        if !self.ttft_told
            && let Some(ttft) = marks.ttft_upstream()
        {
            series.ttft_upstream(ttft);
            self.ttft_told = true;
        }
        if !self.client_ttft_told
            && marks.first_token.is_some()
            && let Some(ttft) = marks.ttft_client()
        {
            series.ttft_client(ttft);
            self.client_ttft_told = true;
        }
    }
}

fn counted_by_engine(report: EngineReport) -> Option<Usage> {
    // What left the queue unread has cost nothing.
    report.prefilled?;
    let input = report.prompt_tokens?;
    Some(Usage { input: Some(input), output: Some(report.output_tokens), ..Usage::default() })
}

/// A name as it is kept: what is longer than this is no name, and may be content sent by mistake.
fn cropped(name: Box<str>) -> Box<str> {
    const LONGEST: usize = 256;
    if name.len() <= LONGEST { name } else { name[..name.floor_char_boundary(LONGEST)].into() }
}
