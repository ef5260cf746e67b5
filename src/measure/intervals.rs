//! The definitions: which two marks make which interval.
//!
//! Everything that streamgauge reports about time is one of these; none is computed anywhere else.
//!
//! Invariant: an interval whose marks were not both observed, or that would be negative, is `None`.

use std::time::{Duration, Instant};

use super::timeline::Marks;
use crate::clock::EngineReport;
use crate::transport::ConnectPhases;
use crate::wire::Usage;

/// Where the number of output tokens comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The backend's own usage report.
    Usage,
    /// The backend's configured tokenizer.
    Tokenizer,
    /// Token events were counted; an event that feeds two choices counts two.
    Events,
}

impl Source {
    /// The value of the `source` label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Tokenizer => "tokenizer",
            Self::Events => "events",
        }
    }
}

/// Whether the reply showed its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reasoning {
    /// Some of it was seen, and nothing says that this was not all.
    Shown,
    /// None of it was seen, but for summaries or parts.
    Hidden,
    /// None was seen, but not everything could be read.
    Unknown,
}

/// N, the number of output tokens that could be seen, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputTokens {
    /// N, in tokens. Reasoning that usage reports but no event showed is left out.
    pub count: u64,
    /// Its source.
    pub source: Source,
}

impl OutputTokens {
    /// N from usage, else from events.
    ///
    /// `None` when the reply gave no usage and no usable count of events, and when usage reports reasoning that an
    /// unreadable event may or may not have shown.
    pub fn known(usage: Option<Usage>, reasoning: Reasoning, from_events: Option<u64>) -> Option<Self> {
        let usage = usage.unwrap_or_default();
        let Some(output) = usage.output else {
            return from_events.map(|count| Self { count, source: Source::Events });
        };
        let reported = usage.reasoning.unwrap_or(0);
        let count = match reasoning {
            Reasoning::Shown => Some(output),
            Reasoning::Hidden => output.checked_sub(reported),
            Reasoning::Unknown => (reported == 0).then_some(output),
        };
        count.map(|count| Self { count, source: Source::Usage })
    }
}

/// A part of an exchange's duration; the parts add up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Reading the client's request.
    ReadBody,
    /// Looking the upstream's name up.
    Dns,
    /// Its TCP handshake.
    Connect,
    /// Its TLS handshake.
    Tls,
    /// Handling and writing the request.
    Send,
    /// From the request's last byte to the reply's head.
    Wait,
    /// From the reply's head to the first token event; of an engine, from the prefill's end.
    FirstToken,
    /// Waiting for a slot of an engine.
    Queue,
    /// An engine's prefill, between the decode steps of others.
    Prefill,
    /// From the first token event to the last; of an engine's whole reply, from the prefill's end to the head.
    Decode,
    /// What follows the last token event; without one, what follows the head.
    Tail,
}

impl Phase {
    /// How many phases there are.
    pub const COUNT: usize = 11;

    /// The value of the `phase` label.
    pub fn label(self) -> &'static str {
        match self {
            Self::ReadBody => "read_body",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Wait => "wait",
            Self::FirstToken => "first_token",
            Self::Queue => "queue",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Tail => "tail",
        }
    }
}

impl Marks {
    /// TTFT, vantage `upstream`: request sent → first token event received.
    pub fn ttft_upstream(&self) -> Option<Duration> {
        between(self.sent, self.first_token)
    }

    /// TTFT, vantage `client`: request head read → first token event written to the client.
    pub fn ttft_client(&self) -> Option<Duration> {
        self.first_token?;
        between(Some(self.accepted), self.first_token_written)
    }

    /// TTFA: request sent → first token event that is not only reasoning.
    pub fn ttfa(&self) -> Option<Duration> {
        between(self.sent, self.first_answer)
    }

    /// Request sent → first event of any kind.
    pub fn to_first_event(&self) -> Option<Duration> {
        between(self.sent, self.first_event)
    }

    /// Request sent → reply head read.
    pub fn to_headers(&self) -> Option<Duration> {
        between(self.sent, self.head)
    }

    /// TPOT: (last token event − first) / (N − 1). `None` below two tokens, with other than one choice, and where all
    /// output arrived at once: no time between tokens was seen then.
    ///
    /// `None`, too, where the output is `partly_hidden`: tokens that no event shows whole are in N, or in the time between
    /// the two events, or in both, and nobody knows how many. Reasoning of which only a summary is shown is such, and
    /// redacted thinking of which usage says nothing.
    pub fn tpot(&self, tokens: Option<OutputTokens>, choices: usize, partly_hidden: bool) -> Option<Duration> {
        let gaps = tokens?.count.checked_sub(1).filter(|gaps| *gaps > 0)?;
        let tells = choices == 1 && !partly_hidden;
        let decode = between(self.first_token, self.last_token).filter(|decode| tells && !decode.is_zero())?;
        Some(Duration::from_secs_f64(decode.as_secs_f64() / gaps as f64))
    }

    /// TGS: N / (request head read → last token event written), in tokens per second. `None` with other than one
    /// choice, and when the last token event is unknown or was not written.
    pub fn tgs(&self, tokens: Option<OutputTokens>, choices: usize) -> Option<f64> {
        let tokens = tokens.filter(|_| choices == 1)?;
        self.last_token?;
        let took = between(Some(self.accepted), self.last_token_written)?;
        (!took.is_zero()).then(|| tokens.count as f64 / took.as_secs_f64())
    }

    /// Request head read → the exchange is over.
    pub fn duration(&self) -> Option<Duration> {
        between(Some(self.accepted), self.end)
    }

    /// How many of the intervals would be negative: a clock's fault, not an observation.
    pub fn clock_faults(&self) -> u32 {
        let EngineReport { admitted, prefilled, .. } = self.engine.unwrap_or_default();
        let pairs = [
            (Some(self.accepted), self.body),
            (self.body, self.sent),
            (self.sent, admitted),
            (admitted, prefilled),
            (prefilled, self.first_token),
            (self.sent, self.head),
            (self.sent, self.first_token),
            (self.first_token, self.first_token_written),
            (self.last_token, self.last_token_written),
            (Some(self.accepted), self.end),
        ];
        let negative =
            |(from, to): &(Option<Instant>, Option<Instant>)| from.zip(*to).is_some_and(|(from, to)| to < from);
        pairs.iter().filter(|pair| negative(pair)).map(|_| 1).sum()
    }

    /// The duration, cut into phases at the marks that were reached; what an exchange was doing when it ended
    /// takes the rest. A new connection's phases are cut out of the time before the request was sent.
    pub fn phases(&self, connect: &ConnectPhases) -> impl Iterator<Item = (Phase, Duration)> {
        let mut cut = Cut { at: self.accepted, end: self.end, open: true };
        let read_body = cut.to(self.body);
        // A body that is passed on while it comes is read until the end; nothing is cut out of that.
        let connect = self.body.map(|_| *connect).unwrap_or_default();
        let opening = [connect.dns, connect.connect, connect.tls];
        let opened: Duration = opening.iter().flatten().sum();
        // Answered before it was sent whole: sending lasted up to the answer, and there was no wait.
        let send = cut.to(self.sent.or(self.head)).map(|time| time.saturating_sub(opened));
        // A stream's head comes before its engine has begun, a whole reply's after it is through.
        let admitted = self.engine.and_then(|engine| engine.admitted);
        let head_first = self.head.is_none_or(|head| admitted.is_none_or(|admitted| head <= admitted));
        let unsent = self.sent.is_none() && self.head.is_some();
        let wait = (head_first && !unsent).then(|| cut.to(self.head)).flatten();
        let queue = self.engine.and_then(|engine| cut.to(engine.admitted));
        let prefill = self.engine.and_then(|engine| cut.to(engine.prefilled));
        // A whole reply is generated between its prefill and its head.
        let generated = if head_first { None } else { cut.to(self.head) };
        let first_token = self.first_token.and_then(|mark| cut.to(Some(mark)));
        let decode = self.last_token.filter(|_| first_token.is_some()).and_then(|mark| cut.to(Some(mark)));
        let tail = cut.to(self.end);
        [
            (Phase::ReadBody, read_body),
            (Phase::Dns, connect.dns),
            (Phase::Connect, connect.connect),
            (Phase::Tls, connect.tls),
            (Phase::Send, send),
            (Phase::Wait, wait),
            (Phase::Queue, queue),
            (Phase::Prefill, prefill),
            (Phase::FirstToken, first_token),
            (Phase::Decode, generated.or(decode)),
            (Phase::Tail, tail),
        ]
        .into_iter()
        .filter_map(|(phase, time)| time.map(|time| (phase, time)))
    }
}

/// Walks from mark to mark; where the next mark is missing, the walk ends at the end.
struct Cut {
    at: Instant,
    end: Option<Instant>,
    open: bool,
}

impl Cut {
    fn to(&mut self, mark: Option<Instant>) -> Option<Duration> {
        if !self.open {
            return None;
        }
        self.open = mark.is_some();
        let to = mark.or(self.end)?;
        let time = between(Some(self.at), Some(to))?;
        self.at = to;
        Some(time)
    }
}

fn between(from: Option<Instant>, to: Option<Instant>) -> Option<Duration> {
    to?.checked_duration_since(from?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        crate::clock::from_monotonic_ns(1_000_000_000_000 + ms * 1_000_000)
    }

    fn whole() -> Marks {
        Marks {
            body: Some(at(2)),
            sent: Some(at(10)),
            head: Some(at(60)),
            first_event: Some(at(61)),
            first_token: Some(at(110)),
            first_answer: Some(at(150)),
            last_token: Some(at(410)),
            finish: Some(at(412)),
            end: Some(at(420)),
            first_token_written: Some(at(111)),
            last_token_written: Some(at(411)),
            ..Marks::new(at(0))
        }
    }

    #[allow(clippy::unnecessary_wraps)] // what the definitions take
    fn n(count: u64) -> Option<OutputTokens> {
        Some(OutputTokens { count, source: Source::Usage })
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_interval_is_the_difference_of_its_two_marks() {
        let marks = whole();
        assert_eq!(marks.ttft_upstream(), Some(ms(100)));
        assert_eq!(marks.ttft_client(), Some(ms(111)));
        assert_eq!(marks.ttfa(), Some(ms(140)));
        assert_eq!(marks.to_first_event(), Some(ms(51)));
        assert_eq!(marks.to_headers(), Some(ms(50)));
        assert_eq!(marks.tpot(n(31), 1, false), Some(ms(10)));
        assert_eq!(marks.duration(), Some(ms(420)));
        let tgs = marks.tgs(n(411), 1).unwrap();
        assert!((tgs - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn tpot_and_tgs_are_absent_where_they_do_not_exist() {
        let marks = whole();
        assert_eq!(marks.tpot(n(1), 1, false), None);
        assert_eq!(marks.tpot(n(0), 1, false), None);
        assert_eq!(marks.tpot(None, 1, false), None);
        assert_eq!(Marks { last_token: marks.first_token, ..marks }.tpot(n(31), 1, false), None, "all at once");
        assert_eq!(marks.tpot(n(31), 2, false), None);
        assert_eq!(marks.tpot(n(31), 1, true), None);
        assert_eq!(marks.tgs(None, 1), None);
        assert_eq!(marks.tgs(n(31), 2), None);
        assert_eq!(Marks { last_token_written: None, ..marks }.tgs(n(31), 1), None);
        assert_eq!(Marks { last_token: None, ..marks }.tgs(n(31), 1), None);
        assert_eq!(Marks { first_token: None, ..marks }.ttft_client(), None);
    }

    #[test]
    fn a_negative_interval_is_absent() {
        assert_eq!(whole().clock_faults(), 0);
        let marks = Marks { sent: Some(at(200)), ..whole() };
        assert_eq!((marks.ttft_upstream(), marks.to_headers(), marks.clock_faults()), (None, None, 2));
    }

    #[test]
    fn latency_is_ttft_plus_decode_plus_tail() {
        let marks = whole();
        let before_sent = marks.sent.unwrap() - marks.accepted;
        let tail = marks.end.unwrap() - marks.last_token.unwrap();
        let tpot = marks.tpot(n(31), 1, false).unwrap();
        assert_eq!(marks.duration().unwrap(), before_sent + marks.ttft_upstream().unwrap() + tpot * 30 + tail);
    }

    #[test]
    fn phases_add_up_wherever_the_exchange_ends() {
        let connect = ConnectPhases { dns: Some(ms(1)), connect: Some(ms(2)), tls: Some(ms(3)) };
        let whole = whole();
        let stages = [
            whole,
            Marks { last_token: None, first_token: None, ..whole },
            Marks { head: None, first_token: None, last_token: None, ..whole },
            Marks { sent: None, head: None, first_token: None, last_token: None, ..whole },
            Marks { sent: None, ..whole },
        ];
        for marks in stages {
            let sum: Duration = marks.phases(&connect).map(|(_, time)| time).sum();
            assert_eq!(Some(sum), marks.duration(), "{marks:?}");
        }
        let early = Marks { body: None, sent: None, head: None, first_token: None, last_token: None, ..whole };
        let phases: Vec<_> = early.phases(&connect).collect();
        assert_eq!(phases, [(Phase::ReadBody, ms(420))]);
        let unsent: Vec<_> = Marks { sent: None, ..whole }.phases(&connect).map(|(phase, _)| phase).collect();
        assert!(unsent.contains(&Phase::Send) && unsent.contains(&Phase::Tail) && !unsent.contains(&Phase::Wait));
    }

    #[test]
    fn an_engines_phases_add_up_wherever_it_was() {
        let engine = |admitted, prefilled| Some(EngineReport { admitted, prefilled, ..EngineReport::default() });
        let stream = Marks {
            head: Some(at(11)),
            engine: engine(Some(at(30)), Some(at(100))),
            first_token: Some(at(100)),
            ..whole()
        };
        let phases: Vec<_> = stream.phases(&ConnectPhases::default()).collect();
        let expected = [
            (Phase::ReadBody, ms(2)),
            (Phase::Send, ms(8)),
            (Phase::Wait, ms(1)),
            (Phase::Queue, ms(19)),
            (Phase::Prefill, ms(70)),
            (Phase::FirstToken, ms(0)),
            (Phase::Decode, ms(310)),
            (Phase::Tail, ms(10)),
        ];
        assert_eq!(phases, expected);
        assert_eq!(stream.clock_faults(), 0);
        let nothing = Marks { first_token: None, last_token: None, first_answer: None, ..stream };
        let document = Marks { head: Some(at(400)), ..nothing };
        let prefilling = Marks { engine: engine(Some(at(30)), None), ..nothing };
        let queued = Marks { engine: engine(None, None), ..nothing };
        for (marks, last) in [(document, Phase::Tail), (prefilling, Phase::Prefill), (queued, Phase::Queue)] {
            let phases: Vec<_> = marks.phases(&ConnectPhases::default()).collect();
            assert_eq!(Some(phases.iter().map(|(_, time)| *time).sum()), marks.duration(), "{marks:?}");
            assert_eq!(phases.last().map(|(phase, _)| *phase), Some(last));
        }
        let waited: Vec<_> = document.phases(&ConnectPhases::default()).collect();
        assert!(waited.contains(&(Phase::Decode, ms(300))), "{waited:?}");
    }

    #[test]
    fn hidden_reasoning_leaves_n_and_shown_reasoning_does_not() {
        let usage = Some(Usage { output: Some(100), reasoning: Some(64), ..Usage::default() });
        assert_eq!(OutputTokens::known(usage, Reasoning::Hidden, Some(9)), n(36));
        assert_eq!(OutputTokens::known(usage, Reasoning::Shown, Some(9)), n(100));
        assert_eq!(OutputTokens::known(usage, Reasoning::Unknown, None), None);
        let plain = Some(Usage { output: Some(100), ..Usage::default() });
        assert_eq!(OutputTokens::known(plain, Reasoning::Unknown, None), n(100));
        let events = Some(OutputTokens { count: 9, source: Source::Events });
        assert_eq!(OutputTokens::known(None, Reasoning::Shown, Some(9)), events);
        assert_eq!(OutputTokens::known(Some(Usage::default()), Reasoning::Shown, Some(9)), events);
        assert_eq!(OutputTokens::known(None, Reasoning::Shown, None), None);
    }
}
