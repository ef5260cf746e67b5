//! Replays one reply through the observed body, however its bytes are cut, and holds what came out against what a
//! reader of the definitions would say.
//!
//! The byte at offset i arrives i µs after the reply's head, and a read bears the instant of its last byte. So each
//! mark is known in advance: it is the instant of the read that holds the byte which completes the event.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame};
use streamgauge::clock::{ReadStamp, Stamped};
use streamgauge::measure::intervals::Source;
use streamgauge::measure::{
    Anomaly, Answered, Asked, Content, Exchange, Fault, Framing, IntoFault, Meter, Observation, ObservedBody, Outcome,
    Setup,
};
use streamgauge::transport::ConnectPhases;
use streamgauge::wire::Usage;

mod expected;
mod piece;

pub(crate) use piece::{Piece, event, nothing, reasoning, token, tokens, unreadable};

use expected::Reference;

/// Above this many bytes a body is cut around its line ends only.
const CUT_EVERYWHERE: usize = 64 * 1024;
/// So many replays feed the same metrics, which are then read once.
const REPLAYS_PER_METER: usize = 64;

/// A reply, and what must be told of it.
#[derive(Clone)]
pub(crate) struct Case {
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
    pub(crate) anomalies: Vec<(Anomaly, u32)>,
}

/// A stream in answer to `stream: true`, whole; what is told of it is still to be stated.
pub(crate) fn stream(pieces: impl IntoIterator<Item = Piece>) -> Case {
    Case {
        pieces: pieces.into_iter().collect(),
        status: 200,
        content: Content::Events,
        stream: true,
        choices: 1,
        end: End::Whole,
        close_delimited: false,
        told: Told { outcome: Outcome::Ok, ttft: 0, itl: 0, output: None, usage: None, anomalies: Vec::new() },
    }
}

impl Case {
    pub(crate) fn ending(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// States what must be told.
    pub(crate) fn tells(mut self, outcome: Outcome, ttft: u64, itl: u64, output: Option<(u64, Source)>) -> Checked {
        self.told = Told { outcome, ttft, itl, output, usage: None, anomalies: Vec::new() };
        Checked(self)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect()
    }

    fn check(&self) {
        let body = Bytes::from(self.bytes());
        for replays in self.replays(&body).chunks(REPLAYS_PER_METER) {
            self.check_all(&body, replays);
        }
    }

    /// The body whole, cut in two everywhere, and cut into single bytes: as reads, and as frames of one read.
    fn replays(&self, body: &[u8]) -> Vec<Replay> {
        let length = body.len();
        let cuts = self.cuts(body);
        // One byte at a time; where that is too much, every cut at once.
        let mut start = 0;
        let ends = cuts.iter().copied().chain([length]);
        let crumbs: Vec<_> = ends.map(|end| std::mem::replace(&mut start, end)..end).collect();
        let mut replays = vec![Replay::patient([vec![0..length]])];
        for frames in cuts.into_iter().map(|cut| vec![0..cut, cut..length]).chain([crumbs]) {
            let reads: Vec<_> = frames.iter().map(|frame| vec![frame.clone()]).collect();
            replays.push(Replay { reads: reads.clone(), pace: Pace::Hasty });
            replays.push(Replay { reads, pace: Pace::Patient });
            replays.push(Replay::patient([frames]));
        }
        replays
    }

    /// Where the body is cut in two.
    fn cuts(&self, body: &[u8]) -> Vec<usize> {
        if body.len() <= CUT_EVERYWHERE {
            return (1..body.len()).collect();
        }
        let line_ends = (0..body.len()).filter(|at| matches!(body[*at], b'\r' | b'\n'));
        let around = line_ends.flat_map(|at| at.saturating_sub(1)..=at + 2);
        let mut cuts: Vec<_> = around.filter(|cut| (1..body.len()).contains(cut)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Plays the body in these ways and checks everything.
    pub(crate) fn check_all(&self, body: &Bytes, replays: &[Replay]) {
        let bench = Bench::new();
        let mut expected = Counts::default();
        for replay in replays {
            let reference = Reference::of(&self.pieces, &replay.ends(), self.status);
            let seen = self.play(&bench, body, replay);
            self.check_exchange(&seen, &reference, body, replay);
            expected.add(self.told.ttft, &reference);
        }
        let counts = bench.counts();
        match replays {
            [only] => {
                assert_eq!(counts, expected, "{only}");
                assert_eq!(counts.exact + counts.coalesced, self.told.itl, "ITLs: {only}");
            }
            // Reading the metrics is the dear part of a replay, so many share one reading, until it is wrong.
            many if counts != expected || counts.exact + counts.coalesced != self.told.itl * many.len() as u64 => {
                for replay in many {
                    self.check_all(body, std::slice::from_ref(replay));
                }
                panic!("one by one the counts are right, together they are {counts:?} and not {expected:?}");
            }
            _ => {}
        }
    }

    fn check_exchange(&self, seen: &Seen, reference: &Reference, body: &[u8], replay: &Replay) {
        assert!(seen.forwarded == *body, "the client got other bytes: {replay}");
        assert_eq!(seen.abrupt, self.is_abrupt(), "how the client's stream ends: {replay}");
        let exchange = &seen.exchange;
        let told = Told {
            outcome: exchange.outcome,
            // These are counted by the metrics.
            ttft: self.told.ttft,
            itl: self.told.itl,
            output: exchange.output.map(|output| (output.count, output.source)),
            usage: exchange.usage,
            anomalies: exchange.anomalies.seen().collect(),
        };
        assert_eq!(told, self.told, "{replay}");
        assert_eq!(exchange.token_events, reference.token_events, "token events: {replay}");
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
            let expected = read.map(|read| seen.head + micros(ends[read] - 1));
            assert_eq!(mark, expected, "{name}: {replay}");
        }
    }

    /// Whether the client must be able to tell that its answer broke off.
    fn is_abrupt(&self) -> bool {
        match self.end {
            End::Reset | End::Truncated => true,
            End::Silence => self.told.outcome != Outcome::Ok,
            End::Whole => self.close_delimited && self.told.outcome != Outcome::Ok,
            End::ClientLeaves => false,
        }
    }

    fn play(&self, bench: &Bench, body: &Bytes, replay: &Replay) -> Seen {
        let accepted = Instant::now();
        let head = accepted + Duration::from_millis(5);
        let mut observation = Observation::begin(bench.meter.clone(), "chat", accepted);
        let asked = Asked { model: Some("m".into()), stream: self.stream, choices: self.choices, tag: None };
        observation.asked(accepted + Duration::from_millis(1), asked);
        observation.routed(&bench.backend);
        observation.answered(Answered {
            status: self.status,
            content: self.content,
            framing: Framing::Chunked,
            sent: Some(accepted + Duration::from_millis(3)),
            head,
            connect: ConnectPhases::default(),
            reused: false,
        });
        let knows_length = replay.pace == Pace::Hasty && self.end == End::Whole && !self.close_delimited;
        let scripted = Scripted::new(body, replay, head, self.end, knows_length);
        let mut observed = ObservedBody::new(scripted, observation, None, self.close_delimited);
        let (forwarded, abrupt) = drain(&mut observed, self.end == End::ClientLeaves);
        drop(observed);
        let mut told = bench.exchanges.lock().unwrap();
        assert_eq!(told.len(), 1, "an exchange is told once: {replay}");
        Seen { forwarded, abrupt, head, exchange: told.remove(0) }
    }
}

/// A meter and the exchanges it tells of.
struct Bench {
    meter: Arc<Meter>,
    backend: Arc<str>,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Bench {
    fn new() -> Self {
        let exchanges: Arc<Mutex<Vec<Exchange>>> = Arc::default();
        let kept = exchanges.clone();
        let listener = Box::new(move |exchange: &Exchange| kept.lock().unwrap().push(exchange.clone()));
        let backend: Arc<str> = "upstream".into();
        let setup = Setup { backends: vec![(backend.clone(), 8, vec!["m".into()])], objectives: Vec::new() };
        Self { meter: Arc::new(Meter::new(setup, vec![listener])), backend, exchanges }
    }

    /// What the metrics say.
    fn counts(&self) -> Counts {
        let text = self.meter.render();
        let itl = |timing| sample(&text, "streamgauge_inter_token_latency_seconds_count", timing);
        Counts {
            ttft: sample(&text, "streamgauge_time_to_first_token_seconds_count", r#"vantage="upstream""#),
            exact: itl(r#"timing="exact""#),
            coalesced: itl(r#"timing="coalesced""#),
            token_events: sample(&text, "streamgauge_token_events_total", ""),
            events: sample(&text, "streamgauge_events_per_read_sum", ""),
            reads: sample(&text, "streamgauge_events_per_read_count", ""),
        }
    }
}

/// Counts as the metrics have them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    ttft: u64,
    exact: u64,
    coalesced: u64,
    token_events: u64,
    events: u64,
    /// Reads that completed at least one event.
    reads: u64,
}

impl Counts {
    fn add(&mut self, ttft: u64, reference: &Reference) {
        self.ttft += ttft;
        self.exact += reference.exact;
        self.coalesced += reference.coalesced;
        self.token_events += reference.token_events;
        self.events += reference.events;
        self.reads += reference.reads;
    }
}

/// One way of cutting a body.
pub(crate) struct Replay {
    /// Reads, each a list of frames.
    pub(crate) reads: Vec<Vec<Range<usize>>>,
    pub(crate) pace: Pace,
}

impl Replay {
    fn patient(reads: impl IntoIterator<Item = Vec<Range<usize>>>) -> Self {
        Self { reads: reads.into_iter().collect(), pace: Pace::Patient }
    }

    /// The offset behind each read's last byte.
    fn ends(&self) -> Vec<usize> {
        self.reads.iter().map(|frames| frames.last().expect("a frame").end).collect()
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads, {:?}", self.reads.len(), self.pace)?;
        if self.reads.len() <= 4 { write!(f, ", {:?}", self.reads) } else { Ok(()) }
    }
}

/// A case whose expectations are stated, and can still be added to.
#[must_use]
pub(crate) struct Checked(Case);

impl Checked {
    pub(crate) fn usage(mut self, usage: Usage) -> Self {
        self.0.told.usage = Some(usage);
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

fn sample(text: &str, name: &str, label: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name) && line.contains(label));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.map_or(0, |value| value.parse().expect("a whole number"))
}

fn micros(offset: usize) -> Duration {
    Duration::from_micros(offset as u64)
}

/// Whether the body has to wait between two reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Between two reads nothing is at hand.
    Patient,
    /// The next read's bytes are at hand at once, and the last frame says that none follows.
    Hasty,
}

enum Act {
    Frame(Bytes, ReadStamp),
    Wait,
}

/// An upstream's body that comes as it is told to.
struct Scripted {
    acts: std::vec::IntoIter<Act>,
    stamp: Option<ReadStamp>,
    end: End,
    knows_length: bool,
}

impl Scripted {
    fn new(body: &Bytes, replay: &Replay, head: Instant, end: End, knows_length: bool) -> Self {
        let mut acts = Vec::new();
        for (number, frames) in (1..).zip(&replay.reads) {
            let last = frames.last().expect("a frame").end - 1;
            let stamp = ReadStamp { at: head + micros(last), number };
            acts.extend(frames.iter().map(|range| Act::Frame(body.slice(range.clone()), stamp)));
            if replay.pace == Pace::Patient {
                acts.push(Act::Wait);
            }
        }
        Self { acts: acts.into_iter(), stamp: None, end, knows_length }
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Break;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Break>>> {
        let this = self.get_mut();
        match this.acts.next() {
            Some(Act::Frame(bytes, stamp)) => {
                this.stamp = Some(stamp);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Act::Wait) => Poll::Pending,
            None => match this.end {
                End::Whole => Poll::Ready(None),
                End::ClientLeaves => Poll::Pending,
                End::Reset => Poll::Ready(Some(Err(Break(Fault::Reset)))),
                End::Truncated => Poll::Ready(Some(Err(Break(Fault::Truncated)))),
                End::Silence => Poll::Ready(Some(Err(Break(Fault::Timeout)))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.knows_length && self.acts.len() == 0
    }

    fn size_hint(&self) -> http_body::SizeHint {
        if self.acts.len() == 0 { http_body::SizeHint::with_exact(0) } else { http_body::SizeHint::default() }
    }
}

impl Stamped for Scripted {
    fn stamp(&self) -> Option<ReadStamp> {
        self.stamp
    }
}

/// The upstream's body broke.
struct Break(Fault);

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream broke off: {:?}", self.0)
    }
}

impl IntoFault for Break {
    fn fault(&self) -> Fault {
        self.0
    }
}
