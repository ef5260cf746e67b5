//! Replays one reply through the observed body, however its bytes are cut, and holds what came out against what a
//! reader of the definitions would say.
//!
//! The byte at offset i arrives i µs after the reply's head, and a read bears the instant of its last byte. So each
//! mark is known in advance: it is the instant of the read that holds the byte which completes the event.

// Each test program uses its own part of this.
#![allow(dead_code, unused_imports)]

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use streamgauge::measure::intervals::Source;
use streamgauge::measure::{Anomaly, Answered, Asked, Content, Exchange, Framing, Observation, ObservedBody, Outcome};
use streamgauge::transport::ConnectPhases;
use streamgauge::wire::chat::UsageStripper;
use streamgauge::wire::{Dialect, Usage};

mod bench;
mod cuts;
mod expected;
mod piece;
mod scripted;

pub(crate) use cuts::{Pace, Replay};
pub(crate) use piece::{Piece, event, nothing, reasoning, token, tokens, unreadable};

use bench::{Bench, Counts};
use expected::Reference;
use scripted::Scripted;

/// So many replays feed the same metrics, which are then read once.
const REPLAYS_PER_METER: usize = 64;

/// Above so many bytes few replays are played with usage taken out.
const LARGE: usize = 1 << 20;

/// A reply, and what must be told of it.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) dialect: Dialect,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) status: u16,
    pub(crate) content: Content,
    /// `stream: true` was asked for.
    pub(crate) stream: bool,
    /// `n`, the choices asked for.
    pub(crate) choices: u32,
    pub(crate) end: End,
    /// Only the connection's end ends the body.
    pub(crate) close_delimited: bool,
    pub(crate) told: Told,
}

/// How the reply ends behind its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// HTTP says that it is whole.
    Whole,
    /// The upstream resets the connection.
    Reset,
    /// The upstream closes the connection too early.
    Truncated,
    /// The upstream says nothing for too long.
    Silence,
    /// The client goes away.
    ClientLeaves,
}

/// What must be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    /// How many TTFTs are counted: one or none.
    pub(crate) ttft: u64,
    /// How many ITLs are counted.
    pub(crate) itl: u64,
    /// N and its source.
    pub(crate) output: Option<(u64, Source)>,
    pub(crate) usage: Option<Usage>,
    /// Some output is not shown whole: no TPOT.
    pub(crate) partly_hidden: bool,
    pub(crate) anomalies: Vec<(Anomaly, u32)>,
}

/// A chat stream in answer to `stream: true`, whole; what is told of it is still to be stated.
pub(crate) fn stream(pieces: impl IntoIterator<Item = Piece>) -> Case {
    stream_in(Dialect::Chat, pieces)
}

/// A stream in this dialect.
pub(crate) fn stream_in(dialect: Dialect, pieces: impl IntoIterator<Item = Piece>) -> Case {
    Case {
        dialect,
        pieces: pieces.into_iter().collect(),
        status: 200,
        content: Content::Events,
        stream: true,
        choices: 1,
        end: End::Whole,
        close_delimited: false,
        told: Told::new(Outcome::Ok, 0, 0, None),
    }
}

impl Told {
    fn new(outcome: Outcome, ttft: u64, itl: u64, output: Option<(u64, Source)>) -> Self {
        Self { outcome, ttft, itl, output, usage: None, partly_hidden: false, anomalies: Vec::new() }
    }
}

impl Case {
    pub(crate) fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// States what must be told.
    pub(crate) fn tells(mut self, outcome: Outcome, ttft: u64, itl: u64, output: Option<(u64, Source)>) -> Checked {
        self.told = Told::new(outcome, ttft, itl, output);
        Checked(self)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect()
    }

    /// What goes on to a client for whom only we asked for usage.
    fn never_asked(&self) -> Vec<u8> {
        let bytes = |piece: &Piece| piece.never_asked.clone().unwrap_or_else(|| piece.bytes.clone());
        self.pieces.iter().flat_map(bytes).collect()
    }

    fn check(&self) {
        let body = Bytes::from(self.bytes());
        for replays in Replay::all_of(&body).chunks(REPLAYS_PER_METER) {
            self.check_all(&body, replays);
        }
    }

    /// Plays the body in these ways and checks everything.
    pub(crate) fn check_all(&self, body: &Bytes, replays: &[Replay]) {
        let bench = Bench::new();
        let mut expected = Counts::default();
        let never_asked = self.never_asked();
        let mut plays = 0;
        for (number, replay) in replays.iter().enumerate() {
            let reference = Reference::of(&self.pieces, &replay.ends(), self.status);
            for stripped in [false, true] {
                // Whether a client that leaves has seen everything shows only where nothing is taken out, and only of
                // chat is anything. Large bodies take long.
                let whole = self.end == End::ClientLeaves || self.dialect != Dialect::Chat;
                let enough = whole || (body.len() > LARGE && number > 0);
                if stripped && enough {
                    continue;
                }
                let seen = self.play(&bench, body, replay, stripped);
                let forwarded = if stripped { &*never_asked } else { body };
                self.check_exchange(&seen, &reference, forwarded, replay);
                expected.add(self.told.ttft, &reference);
                plays += 1;
            }
        }
        let counts = bench.counts();
        match replays {
            [only] => {
                assert_eq!(counts, expected, "{only}");
                assert_eq!(counts.exact + counts.coalesced, self.told.itl * plays, "ITLs: {only}");
            }
            // Reading the metrics is the dear part of a replay, so many share one reading, until it is wrong.
            many if counts != expected || counts.exact + counts.coalesced != self.told.itl * plays => {
                for replay in many {
                    self.check_all(body, std::slice::from_ref(replay));
                }
                panic!("one by one the counts are right, together they are {counts:?} and not {expected:?}");
            }
            _ => {}
        }
    }

    fn check_exchange(&self, seen: &Seen, reference: &Reference, forwarded: &[u8], replay: &Replay) {
        assert!(seen.forwarded == forwarded, "the client got other bytes: {replay}");
        assert_eq!(seen.abrupt, self.is_abrupt(), "how the client's stream ends: {replay}");
        let exchange = &seen.exchange;
        let told = Told {
            outcome: exchange.outcome,
            // These are counted by the metrics.
            ttft: self.told.ttft,
            itl: self.told.itl,
            output: exchange.output.map(|output| (output.count, output.source)),
            usage: exchange.usage,
            partly_hidden: exchange.partly_hidden,
            anomalies: exchange.anomalies.seen().collect(),
        };
        assert_eq!(told, self.told, "{replay}");
        assert_eq!(exchange.token_events, reference.token_events, "token events: {replay}");
        assert!(!exchange.partly_hidden || exchange.tpot().is_none(), "TPOT of what is not shown: {replay}");
        let ends = replay.ends();
        let marks = &exchange.marks;
        let instants = [
            ("first_event", marks.first_event, reference.first_event),
            ("first_token", marks.first_token, reference.first_token),
            ("first_answer", marks.first_answer, reference.first_answer),
            ("last_token", marks.last_token, reference.last_token),
            ("finish", marks.finish, reference.finish),
        ];
        for (name, mark, read) in instants {
            let expected = read.map(|read| seen.head + arrival(ends[read] - 1));
            assert_eq!(mark, expected, "{name}: {replay}");
        }
    }

    /// Whether the client must be able to tell that its answer broke off.
    fn is_abrupt(&self) -> bool {
        match self.end {
            End::Reset | End::Truncated => true,
            End::Silence => self.told.outcome == Outcome::Timeout,
            End::Whole => self.close_delimited && self.told.outcome == Outcome::Truncated,
            End::ClientLeaves => false,
        }
    }

    fn play(&self, bench: &Bench, body: &Bytes, replay: &Replay, stripped: bool) -> Seen {
        let accepted = Instant::now();
        let head = accepted + Duration::from_millis(5);
        let mut observation = Observation::begin(bench.meter.clone(), "chat", accepted, Some(self.dialect));
        let asked =
            Asked { model: Some("m".into()), stream: self.stream, choices: self.choices, echo: false, tag: None };
        observation.body_read(accepted + Duration::from_millis(1));
        observation.asked(asked);
        observation.routed(&bench.backend);
        observation.answered(Answered {
            status: self.status,
            content: self.content,
            framing: Framing::Chunked,
            sent: Some(accepted + Duration::from_millis(3)),
            head,
            connect: ConnectPhases::default(),
            reused: Some(false),
            engine: None,
        });
        let knows_length = replay.pace == Pace::Hasty && self.end == End::Whole && !self.close_delimited;
        let scripted = Scripted::new(body, replay, head, self.end, knows_length);
        let taking_out = match self.content {
            _ if !stripped || self.status != 200 => None,
            Content::Events => Some(UsageStripper::new()),
            Content::Unlabelled => Some(UsageStripper::unlabelled()),
            Content::Encoded { .. } | Content::Opaque => None,
        };
        let observed = ObservedBody::new(scripted, observation, None, self.close_delimited);
        let mut observed = observed.stripped_by(taking_out);
        let (forwarded, abrupt) = drain(&mut observed, self.end == End::ClientLeaves);
        drop(observed);
        let mut told = bench.exchanges.lock().unwrap();
        assert_eq!(told.len(), 1, "an exchange is told once: {replay}");
        Seen { forwarded, abrupt, head, exchange: told.remove(0) }
    }
}

/// When the byte at `offset` arrives, after the head.
fn arrival(offset: usize) -> Duration {
    Duration::from_micros(offset as u64)
}

/// A case whose expectations are stated, and can still be added to.
#[must_use]
pub(crate) struct Checked(Case);

impl Checked {
    pub(crate) fn usage(mut self, usage: Usage) -> Self {
        self.0.told.usage = Some(usage);
        self
    }

    /// Some output is not shown whole.
    pub(crate) fn partly_hidden(mut self) -> Self {
        self.0.told.partly_hidden = true;
        self
    }

    pub(crate) fn anomaly(mut self, kind: Anomaly, count: u32) -> Self {
        self.0.told.anomalies.push((kind, count));
        self
    }

    /// Checks it under every cut, and hands the case back for more.
    pub(crate) fn under_every_cut(self) -> Case {
        self.0.check();
        self.0
    }
}

/// What came out of one replay, besides counts.
struct Seen {
    forwarded: Vec<u8>,
    abrupt: bool,
    head: Instant,
    exchange: Exchange,
}

/// Reads the body as a connection would. Returns its bytes and whether it ended in an error.
fn drain(observed: &mut ObservedBody<Scripted>, leave: bool) -> (Vec<u8>, bool) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut forwarded = Vec::new();
    loop {
        match Pin::new(&mut *observed).poll_frame(&mut cx) {
            Poll::Pending if leave && observed_all(observed) => return (forwarded, false),
            // Like hyper's server, which drops a body of known length with its last byte.
            Poll::Ready(Some(Ok(frame))) => {
                forwarded.extend_from_slice(&frame.into_data().expect("data"));
                if observed.is_end_stream() {
                    return (forwarded, false);
                }
            }
            Poll::Pending => {}
            Poll::Ready(Some(Err(_))) => return (forwarded, true),
            Poll::Ready(None) => return (forwarded, false),
        }
    }
}

fn observed_all(observed: &ObservedBody<Scripted>) -> bool {
    observed.size_hint().exact() == Some(0)
}
