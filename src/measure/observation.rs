//! One exchange while it runs: what is known so far, and the guard that ends it exactly once.
//!
//! Frames are queued as they pass and looked at after they were offered to the client's socket: forward first, think
//! second.
//!
//! Invariant: an observation that has begun ends with one outcome, told once, also when it is merely dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::anomaly::Anomaly;
use super::count::{Counter, Counting};
use super::delivery::{Cargo, Delivery, Framing, Onward};
use super::metrics::{Meter, OwnError, Series};
use super::outcome::{Ending, Outcome, Said, decide};
use super::reader::{Content, Reader};
use super::timeline::Timeline;
use crate::clock::{EngineReport, ReadStamp};
use crate::transport::ConnectPhases;
use crate::wire::Dialect;

mod telling;

/// What the request asked for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The model's name as the client wrote it.
    pub model: Option<Box<str>>,
    /// `stream: true`.
    pub stream: bool,
    /// `n`, the number of choices; 1 when left out.
    pub choices: u32,
    /// The reply begins with the prompt, so that its text is not all output.
    pub echo: bool,
    /// Names the experiment it belongs to (`x-streamgauge-tag`).
    pub tag: Option<Box<str>>,
}

/// What the reply's head told.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// The status code, passed on to the client.
    pub status: u16,
    /// What the body will be.
    pub content: Content,
    /// How the body is framed towards the client.
    pub framing: Framing,
    /// The request's last byte was written. `None` when that was not seen.
    pub sent: Option<Instant>,
    /// The head was read.
    pub head: Instant,
    /// What opening the connection took.
    pub connect: ConnectPhases,
    /// The connection had been used before. `None` when there was none.
    pub reused: Option<bool>,
    /// The reply comes from an engine in this process, which tells more as it goes on.
    pub engine: Option<EngineReport>,
}

/// A frame that has passed.
struct Passed {
    bytes: Bytes,
    stamp: ReadStamp,
    /// It only repeats the prompt.
    only_echoes: bool,
    /// How many of its events did not go on to the client. `None` when nothing of it did.
    dropped: Option<u32>,
}

/// An exchange that runs. Dropping it ends it.
pub struct Observation {
    meter: Arc<Meter>,
    operation: &'static str,
    backend: Option<Arc<str>>,
    model: Option<Arc<str>>,
    /// How its content is written. `None` where that is not looked at: the exchange is only counted.
    dialect: Option<Dialect>,
    at_once: usize,
    /// It is among the clients' requests in flight.
    entered: bool,
    asked: Option<Asked>,
    /// Who counts tokens that usage does not tell. `None` where nobody does.
    counting: Option<Counting>,
    status: Option<u16>,
    connect: ConnectPhases,
    reused: Option<bool>,
    timeline: Timeline,
    reader: Option<Reader>,
    /// The room that the reader's decoder has. `None` where there is nothing to decode.
    decoding: Option<OwnedSemaphorePermit>,
    delivery: Option<Delivery>,
    series: Option<Arc<Series>>,
    own_error: Option<OwnError>,
    /// Frames that have passed and were not looked at yet.
    passed: VecDeque<Passed>,
    last_stamp: Option<ReadStamp>,
    /// The upstream has nothing more to say for now: the current read is over.
    drained: bool,
    ttft_told: bool,
    client_ttft_told: bool,
    /// Set when the reply is over; what remains is to see its last bytes written.
    outcome: Option<Outcome>,
    told: bool,
}

impl Observation {
    /// An exchange begins: its request's head was read at `accepted`. It is counted as started and in flight.
    ///
    /// Its content, written in `dialect`, will be looked at; with `None` it is only counted.
    pub fn begin(meter: Arc<Meter>, operation: &'static str, accepted: Instant, dialect: Option<Dialect>) -> Self {
        meter.ledger().started(operation);
        let at_once = meter.enter();
        Self {
            meter,
            operation,
            backend: None,
            model: None,
            dialect,
            at_once,
            entered: true,
            asked: None,
            counting: None,
            status: None,
            connect: ConnectPhases::default(),
            reused: None,
            timeline: Timeline::new(accepted),
            reader: None,
            decoding: None,
            delivery: None,
            series: None,
            own_error: None,
            passed: VecDeque::new(),
            last_stamp: None,
            drained: false,
            ttft_told: false,
            client_ttft_told: false,
            outcome: None,
            told: false,
        }
    }

    /// How many requests of clients were in flight when it began, itself included.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// No client waits for it: it does not count among the clients' requests in flight.
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.entered) {
            self.meter.leave();
        }
    }

    /// This is what the request asks for.
    pub fn asked(&mut self, asked: Asked) {
        self.asked = Some(asked);
    }

    /// Tokens that the reply's usage does not tell are to be counted by `counter`: those of the reply, and those of the
    /// messages in `request`, its body.
    pub fn count_with(&mut self, counter: Arc<dyn Counter>, request: &Bytes) {
        self.counting = self.dialect.map(|dialect| Counting::new(counter, dialect, request));
    }

    /// The request's last byte was read at `at`.
    pub fn body_read(&mut self, at: Instant) {
        self.timeline.marks.body = Some(at);
    }

    /// It was decided where the request goes.
    pub fn routed(&mut self, backend: &Arc<str>) {
        self.meter.ledger().routed(self.operation, backend);
        self.backend = Some(backend.clone());
    }

    /// No reply head came. `sent` and `connect` are what is known of the attempt.
    pub fn unanswered(&mut self, sent: Option<Instant>, connect: ConnectPhases) {
        self.timeline.marks.sent = sent;
        self.connect = connect;
    }

    /// The reply's head was read.
    pub fn answered(&mut self, answered: Answered) {
        self.status = Some(answered.status);
        self.connect = answered.connect;
        self.reused = answered.reused;
        self.timeline.marks.engine = answered.engine;
        self.timeline.marks.sent = answered.sent;
        self.timeline.marks.head = Some(answered.head);
        let succeeded = (200..300).contains(&answered.status);
        if let Some(dialect) = self.dialect.filter(|_| succeeded) {
            let label = self.label(true);
            if let Some(backend) = &self.backend {
                let series = self.meter.series(backend, &label, self.operation);
                self.own_error = Some(OwnError::new(series.clone(), answered.engine.is_some()));
                self.series = Some(series);
            }
            self.model = Some(label);
            let stream_wanted = self.asked.as_ref().is_some_and(|asked| asked.stream);
            let content = self.readable(answered.content);
            let reader = Reader::new(dialect, content, stream_wanted, self.counting.is_some());
            if reader.is_unreadable() {
                self.timeline.anomalies.add(Anomaly::ContentEncoding);
            }
            self.reader = Some(reader);
            self.delivery = Some(Delivery::new(answered.framing));
        }
    }

    /// The content, if there is room to undo its codings.
    fn readable(&mut self, content: Content) -> Content {
        let Content::Encoded { codings, .. } = content else { return content };
        self.decoding = self.meter.room_to_decode(codings.memory_mib());
        if self.decoding.is_some() { content } else { Content::Opaque }
    }

    /// What the client's side tells as written counts this reply's body alone, not its whole connection.
    pub(super) fn counts_body(&mut self) {
        if let Some(delivery) = &mut self.delivery {
            *delivery = Delivery::new(Framing::Counted);
        }
    }

    /// The exchange ends here, with a whole answer made of what backends said.
    pub fn finish_whole(self, status: u16) {
        self.end_with(Outcome::Ok, status);
    }

    /// The exchange ends here, with an answer of our own.
    pub fn end_with(mut self, outcome: Outcome, status: u16) {
        self.status = Some(status);
        self.outcome = Some(outcome);
        self.tell(Instant::now());
    }

    /// The client gets another reply, of this status, than the one that was observed, which is over.
    pub(super) fn replaced(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// No client's socket takes the reply: its frames are looked at, and none counts as written.
    pub(super) fn unwritten(&mut self) {
        self.delivery = None;
    }

    /// A frame passes. It is looked at later, by [`Observation::think`]. One that only echoes repeats the prompt.
    pub(super) fn passes(&mut self, bytes: &Bytes, stamp: ReadStamp, only_echoes: bool, onward: Onward) {
        if self.outcome.is_some() {
            return;
        }
        self.drained = false;
        self.last_stamp = Some(stamp);
        let mut dropped = None;
        if let Some(delivery) = &mut self.delivery {
            let (length, forwarded) = match onward {
                Onward::AsItCame => (bytes.len(), Some(0)),
                Onward::Part { length, dropped: count } => (length, (length > 0).then_some(count)),
            };
            if forwarded.is_some() {
                delivery.push(length);
            }
            dropped = forwarded;
        }
        if self.reader.is_some() {
            self.passed.push_back(Passed { bytes: bytes.clone(), stamp, only_echoes, dropped });
        }
    }

    /// The engine that makes the reply has come so far.
    pub(super) fn engine(&mut self, report: EngineReport) {
        self.timeline.marks.engine = Some(report);
    }

    /// Nothing more is at hand: the current read is over. Returns whether anything waits to be thought about.
    pub(super) fn drained(&mut self) -> bool {
        self.drained = true;
        !self.passed.is_empty()
    }

    /// Looks at the frames that have passed.
    pub(super) fn think(&mut self) {
        while let Some(Passed { bytes, stamp, only_echoes, dropped }) = self.passed.pop_front() {
            if stamp.number != self.timeline.current_read() {
                self.close_read();
            }
            let Some(reader) = &mut self.reader else { continue };
            self.timeline.only_echoes(only_echoes);
            let held = reader.frame(&bytes, stamp, &mut self.timeline);
            if let (Some(delivery), Some(dropped)) = (&mut self.delivery, dropped) {
                let events = held.events.saturating_sub(dropped);
                delivery.load(Cargo { read_at: Some(stamp.at), events, token: held.token });
            }
        }
        if self.drained {
            self.close_read();
        }
        self.tell_ttft();
    }

    /// The client's socket has accepted `total` bytes, all of them if `flushed`.
    pub(super) fn written(&mut self, total: u64, at: Instant, flushed: bool) {
        let (Some(delivery), Some(own_error)) = (&mut self.delivery, &mut self.own_error) else { return };
        let marks = &mut self.timeline.marks;
        let deliver = |cargo: Cargo| {
            if cargo.events == 0 {
                return;
            }
            if cargo.token {
                marks.first_token_written.get_or_insert(at);
                marks.last_token_written = Some(at);
            }
            if let Some(dwell) = cargo.read_at.and_then(|read| at.checked_duration_since(read)) {
                own_error.dwell(dwell, cargo.events);
            }
        };
        if flushed {
            delivery.flushed(total, deliver);
        } else {
            delivery.accepted(total, deliver);
        }
        self.tell_ttft();
    }

    /// The reply's body ended so. What it said before is looked at first.
    pub(super) fn ended(&mut self, ending: Ending) {
        if self.outcome.is_some() {
            return;
        }
        self.drained = true;
        self.think();
        let stamp = self.last_stamp;
        if let Some(reader) = &mut self.reader {
            reader.end(ending == Ending::Whole, stamp, &mut self.timeline);
        }
        self.close_read();
        self.tell_ttft();
        let decided = decide(self.said(), ending);
        // What looks like a client that left is our doing while a panic or the shutdown takes the reply down.
        let ours = std::thread::panicking() || self.meter.is_cutting_off();
        self.outcome = Some(if ours && decided.is_cancel() { Outcome::Internal } else { decided });
    }

    /// Ends as [`Observation::ended`] does. Returns whether the client is left with half an answer, and must be able to
    /// tell: one that was marked as ended, or an error, is none.
    pub(super) fn breaks_off(&mut self, ending: Ending) -> bool {
        self.ended(ending);
        match ending {
            Ending::Whole => self.outcome == Some(Outcome::Truncated),
            Ending::Broken(_) | Ending::InError | Ending::Dropped => {
                let ended = matches!(self.outcome, Some(Outcome::Ok | Outcome::Unconfirmed | Outcome::InbandError));
                !(self.is_events() && ended)
            }
        }
    }

    /// Whether the reply turned out to be a stream of events.
    pub(super) fn is_events(&self) -> bool {
        self.reader.as_ref().is_some_and(Reader::is_events)
    }

    /// When the last event arrived; before the first, when the reply's head was read. `None` when not all of them can be
    /// seen.
    pub(super) fn last_event(&self) -> Option<Instant> {
        if self.reader.as_ref().is_none_or(Reader::is_unreadable) {
            return None;
        }
        self.timeline.last_event.or(self.timeline.marks.head)
    }

    /// The observer broke: from here on the traffic goes unobserved.
    pub(super) fn broke(&mut self) {
        self.timeline.anomalies.add(Anomaly::Observer);
        self.reader = None;
        self.delivery = None;
        self.passed.clear();
        self.outcome = Some(Outcome::Internal);
    }

    /// The current read is over: tells what it brought.
    fn close_read(&mut self) {
        let series = self.series.as_deref();
        let summary = self.timeline.read_over(|gap| {
            if let Some(series) = series {
                series.gap(gap);
            }
        });
        let Some(summary) = summary else { return };
        if let Some(series) = series.filter(|_| summary.token_events > 0) {
            series.token_events(summary.token_events);
        }
        if let Some(own_error) = &mut self.own_error {
            own_error.read(summary);
        }
    }

    fn label(&self, succeeded: bool) -> Arc<str> {
        let requested = self.asked.as_ref().and_then(|asked| asked.model.as_deref());
        self.meter.model_label(self.backend.as_ref(), requested, succeeded)
    }

    fn said(&self) -> Said {
        let timeline = &self.timeline;
        let asked_for = self.asked.as_ref().map_or(1, |asked| asked.choices.max(1));
        let finished_seen = timeline.all_seen_finished();
        Said {
            status: self.status.unwrap_or(0),
            unmeasured: self.dialect.is_none(),
            unreadable: self.reader.as_ref().is_some_and(Reader::is_unreadable),
            events: self.is_events(),
            finished: finished_seen && timeline.choices() >= asked_for as usize,
            finished_seen,
            done: timeline.done,
            error: timeline.error,
            token: timeline.token_events > 0,
        }
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if !self.told {
            self.ended(Ending::Dropped);
            self.tell(Instant::now());
        }
    }
}
