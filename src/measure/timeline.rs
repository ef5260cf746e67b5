//! What happened in one reply, and when: marks, token events and the gaps between them.
//!
//! Pure: every instant comes in as an argument, so the same calls give the same timeline on any machine.
//!
//! Invariant: what was not seen is `None`. An event that could not be read leaves no gap on either side of it.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::anomaly::{Anomalies, Anomaly};
use super::intervals::Reasoning;
use super::plausible::plausible;
use super::track::{Tick, Track};
use crate::clock::{EngineReport, ReadStamp};
use crate::wire::{Choice, Meaning, Usage};

/// More tokens than this in one event are not believed.
const MOST_TOKENS_PER_EVENT: u64 = 512;
/// More choices than this in one reply are not followed; the API's own limit for `n`.
const MOST_CHOICES: usize = 128;

/// The instants of one exchange, all monotonic. Each is `None` when it was not observed.
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// The request's head was read from the client.
    pub accepted: Instant,
    /// The request's last byte was read.
    pub body: Option<Instant>,
    /// The last request byte was written to the upstream.
    pub sent: Option<Instant>,
    /// The reply's head was read.
    pub head: Option<Instant>,
    /// The first event of any kind arrived.
    pub first_event: Option<Instant>,
    /// The first token event arrived.
    pub first_token: Option<Instant>,
    /// The first token event that is not only reasoning arrived.
    pub first_answer: Option<Instant>,
    /// The last token event arrived.
    pub last_token: Option<Instant>,
    /// A finish reason arrived, the last one if there were several choices.
    pub finish: Option<Instant>,
    /// The exchange was over.
    pub end: Option<Instant>,
    /// The client's socket had accepted the first token event.
    pub first_token_written: Option<Instant>,
    /// The client's socket had accepted the last token event.
    pub last_token_written: Option<Instant>,
    /// What an engine in this process told of its work. `None` for an upstream.
    pub engine: Option<EngineReport>,
}

impl Marks {
    /// Marks of an exchange that has only begun.
    pub fn new(accepted: Instant) -> Self {
        Self {
            accepted,
            body: None,
            sent: None,
            head: None,
            first_event: None,
            first_token: None,
            first_answer: None,
            last_token: None,
            finish: None,
            end: None,
            first_token_written: None,
            last_token_written: None,
            engine: None,
        }
    }
}

/// One inter-token latency: the time between two consecutive token events of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// From one event's arrival to the next one's.
    pub time: Duration,
    /// How many tokens the later event is known to carry, at least 1: each of them took `time / tokens`.
    pub tokens: u32,
    /// Neither event shared its read with another token event, so both instants are its own.
    pub exact: bool,
}

/// One choice's line of token events.
#[derive(Debug, Clone, Copy)]
struct Line {
    index: u32,
    /// Its last token event. `None` before the first and after an event that could not be read.
    last: Option<Last>,
    finished: bool,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    at: Instant,
    read: u64,
    shared: bool,
}

/// The read being looked at: whether its events share it is known only when it is over.
#[derive(Debug, Clone, Default)]
struct Read {
    number: u64,
    events: u32,
    token_events: u32,
    gaps: SmallVec<[(Gap, bool); 2]>,
}

/// What one read brought, told when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSummary {
    /// Events of any kind.
    pub events: u32,
    /// Token events among them.
    pub token_events: u32,
}

/// The timeline of one reply.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// The instants.
    pub marks: Marks,
    /// What looked wrong.
    pub anomalies: Anomalies,
    /// The last usage the reply gave.
    pub usage: Option<Usage>,
    /// An end marker came.
    pub done: bool,
    /// An error object came.
    pub error: bool,
    /// Token events seen.
    pub token_events: u64,
    /// Some token event carried reasoning, or a summary of it.
    pub saw_reasoning: bool,
    /// Some of the output was generated that no event showed whole.
    hidden: bool,
    /// Some of that after the first token event, whose time it took.
    hidden_within: bool,
    /// When the last event of any kind arrived.
    pub last_event: Option<Instant>,
    /// The longest gap. `None` below two token events of one choice.
    pub longest_gap: Option<Duration>,
    /// The token events one by one.
    pub track: Track,
    lines: SmallVec<[Line; 1]>,
    /// Choices fed by token events: one that feeds two counts two.
    feeds: u64,
    /// An event could not be read: counts from events no longer hold.
    blind: bool,
    /// It came before the first token event, which is therefore unknown.
    first_token_lost: bool,
    first_answer_lost: bool,
    /// Output tokens as the usage of the last token event gave them.
    counted: Option<u64>,
    /// What comes next only repeats the prompt.
    only_echoes: bool,
    read: Read,
}

impl Timeline {
    /// A timeline with nothing on it but the beginning.
    pub fn new(accepted: Instant) -> Self {
        Self {
            marks: Marks::new(accepted),
            anomalies: Anomalies::default(),
            usage: None,
            done: false,
            error: false,
            token_events: 0,
            saw_reasoning: false,
            hidden: false,
            hidden_within: false,
            last_event: None,
            longest_gap: None,
            track: Track::default(),
            lines: SmallVec::new(),
            feeds: 0,
            blind: false,
            first_token_lost: false,
            first_answer_lost: false,
            counted: Some(0),
            only_echoes: false,
            read: Read::default(),
        }
    }

    /// A complete event arrived with `stamp` and means `meaning`. Returns whether it is a token event.
    ///
    /// Reads must come in order: [`Timeline::read_over`] closes one before the next begins.
    pub fn event(&mut self, meaning: &Meaning<'_>, stamp: ReadStamp) -> bool {
        self.arrived(stamp);
        self.note(meaning, stamp.at);
        let is_token = !self.only_echoes && meaning.choices.iter().any(Choice::has_output);
        if is_token {
            self.token(meaning, stamp);
        }
        is_token
    }

    /// Whether the events that come next only repeat the prompt. What they say is no output then, and they are no token
    /// events.
    pub fn only_echoes(&mut self, only: bool) {
        self.only_echoes = only;
    }

    /// An event arrived that was too large to be looked at: what it was is unknown.
    pub fn unreadable(&mut self, stamp: ReadStamp) {
        self.arrived(stamp);
        self.anomalies.add(Anomaly::OversizedEvent);
        self.lost();
    }

    /// From here on something could not be looked at, and may have been anything. The marks and gaps before it stay.
    pub fn lost(&mut self) {
        self.blind = true;
        self.first_token_lost |= self.marks.first_token.is_none();
        self.first_answer_lost |= self.marks.first_answer.is_none();
        self.marks.last_token = None;
        self.counted = None;
        for line in &mut self.lines {
            line.last = None;
        }
    }

    /// The stream ended inside an event. It never became one, so it is no token event, but what it says of usage,
    /// errors and the finish is heard.
    pub fn unterminated(&mut self, meaning: &Meaning<'_>, at: Instant) {
        self.anomalies.add(Anomaly::UnterminatedEvent);
        self.note(meaning, at);
    }

    /// JSON stood where an event belongs; some relays write a bare error so.
    pub fn stray(&mut self, meaning: &Meaning<'_>, at: Instant) {
        self.anomalies.add(Anomaly::StrayJson);
        if meaning.error {
            self.note(meaning, at);
        }
    }

    /// A whole JSON reply was read: no events, no tokens, but everything else.
    pub fn reply(&mut self, meaning: &Meaning<'_>, at: Instant) {
        self.saw_reasoning |= meaning.choices.iter().any(|choice| choice.reasoning);
        self.note(meaning, at);
    }

    /// The current read is over: its gaps are settled and told, and what it held is summed up.
    /// `None` when it held no event.
    pub fn read_over(&mut self, mut on_gap: impl FnMut(Gap)) -> Option<ReadSummary> {
        let Read { number, events, token_events, gaps } = &mut self.read;
        if *events == 0 {
            return None;
        }
        let summary = ReadSummary { events: *events, token_events: *token_events };
        let shared = *token_events > 1;
        for (gap, before_shared) in gaps.drain(..) {
            on_gap(Gap { exact: !shared && !before_shared, ..gap });
        }
        for line in &mut self.lines {
            if let Some(last) = &mut line.last
                && last.read == *number
            {
                last.shared = shared;
            }
        }
        self.track.read_over(shared);
        *events = 0;
        *token_events = 0;
        Some(summary)
    }

    /// The number of the read being looked at.
    pub fn current_read(&self) -> u64 {
        self.read.number
    }

    /// Output tokens counted from token events. `None` when one event could not be read, or none came.
    pub fn counted_from_events(&self) -> Option<u64> {
        (!self.blind && self.feeds > 0).then_some(self.feeds)
    }

    /// Whether the reply showed its reasoning. A summary is no showing of it, nor is a part.
    pub fn reasoning(&self) -> Reasoning {
        match (self.saw_reasoning && !self.hidden, self.blind) {
            (true, _) => Reasoning::Shown,
            (false, false) => Reasoning::Hidden,
            (false, true) => Reasoning::Unknown,
        }
    }

    /// Whether output was generated that no event showed whole, and that N and the time between token events do not both
    /// leave out. What was kept back whole, before the first token event, they do where usage tells how much it was; and
    /// where usage tells that it was nothing, nothing was kept back.
    pub fn partly_hidden(&self) -> bool {
        self.hidden
            && match self.usage.and_then(|usage| usage.reasoning) {
                _ if self.saw_reasoning => true,
                None => true,
                Some(0) => false,
                Some(_) => self.hidden_within,
            }
    }

    /// The longest gap, if every gap is known.
    pub fn stall(&self) -> Option<Duration> {
        self.longest_gap.filter(|_| !self.blind)
    }

    /// Choices that appeared with output or a finish.
    pub fn choices(&self) -> usize {
        self.lines.len()
    }

    /// Whether at least one choice appeared, and all that did have finished.
    pub fn all_seen_finished(&self) -> bool {
        !self.lines.is_empty() && self.lines.iter().all(|line| line.finished)
    }

    fn arrived(&mut self, stamp: ReadStamp) {
        debug_assert!(self.read.events == 0 || self.read.number == stamp.number, "a read was not closed");
        self.read.number = stamp.number;
        self.read.events += 1;
        self.marks.first_event.get_or_insert(stamp.at);
        self.last_event = Some(stamp.at);
    }

    /// Everything an event says besides output.
    fn note(&mut self, meaning: &Meaning<'_>, at: Instant) {
        if meaning.malformed {
            self.anomalies.add(Anomaly::MalformedEvent);
        }
        if meaning.done {
            if self.done {
                self.anomalies.add(Anomaly::RepeatedDone);
            }
            self.done = true;
        }
        self.error |= meaning.error;
        self.hidden |= meaning.partly_hidden;
        self.hidden_within |= meaning.partly_hidden && self.token_events > 0;
        if let Some(usage) = meaning.usage {
            let believed = plausible(usage);
            if believed != usage {
                self.anomalies.add(Anomaly::ImplausibleCount);
            }
            self.usage = Some(believed);
        }
        for choice in meaning.choices.iter().filter(|choice| choice.finished) {
            self.marks.finish = Some(at);
            if let Some(line) = self.line(choice.index) {
                line.finished = true;
            }
        }
    }

    fn token(&mut self, meaning: &Meaning<'_>, stamp: ReadStamp) {
        let at = stamp.at;
        self.read.token_events += 1;
        self.token_events += 1;
        if !self.first_token_lost {
            self.marks.first_token.get_or_insert(at);
        }
        self.marks.last_token = Some(at);
        let by_usage = self.tokens_by_usage(meaning);
        for choice in meaning.choices.iter().filter(|choice| choice.has_output()) {
            self.feeds += 1;
            self.saw_reasoning |= choice.reasoning;
            if choice.answer && !self.first_answer_lost {
                self.marks.first_answer.get_or_insert(at);
            }
            let Some(line) = self.line(choice.index) else { continue };
            let before = line.last.replace(Last { at, read: stamp.number, shared: false });
            let known = choice.tokens.map(u64::from).or(by_usage);
            let gap_tokens = before.and_then(|before| self.gap(before, stamp, known));
            self.track.push(Tick {
                at: at.saturating_duration_since(self.marks.accepted),
                choice: choice.index,
                tokens: gap_tokens.unwrap_or(1),
                reasoning: choice.reasoning && !choice.answer,
                coalesced: false,
                has_gap: gap_tokens.is_some(),
            });
        }
    }

    /// A gap ends here. Returns by how many tokens it is divided, or `None` when there is none.
    fn gap(&mut self, before: Last, stamp: ReadStamp, known: Option<u64>) -> Option<u32> {
        let Some(time) = stamp.at.checked_duration_since(before.at) else {
            self.anomalies.add(Anomaly::Clock);
            return None;
        };
        let tokens = match known {
            Some(tokens) if tokens > MOST_TOKENS_PER_EVENT => {
                self.anomalies.add(Anomaly::ImplausibleCount);
                1
            }
            // An event with output carries a token, whatever the count beside it says.
            Some(tokens) => u32::try_from(tokens.max(1)).unwrap_or(1),
            None => 1,
        };
        let before_shared = before.shared || before.read == stamp.number;
        self.longest_gap = self.longest_gap.max(Some(time / tokens));
        self.read.gaps.push((Gap { time, tokens, exact: false }, before_shared));
        Some(tokens)
    }

    /// How many tokens this event brought, where every event carries the running count and one choice is streamed.
    fn tokens_by_usage(&mut self, meaning: &Meaning<'_>) -> Option<u64> {
        // Noted already, and what could not be believed left out.
        let now = meaning.usage.and(self.usage).and_then(|usage| usage.output);
        let before = std::mem::replace(&mut self.counted, now);
        let one_choice = meaning.choices.len() == 1 && self.lines.len() <= 1;
        if one_choice { now?.checked_sub(before?).filter(|tokens| *tokens > 0) } else { None }
    }

    /// The line of choice `index`. `None` for one too many, which is counted as an anomaly.
    fn line(&mut self, index: u32) -> Option<&mut Line> {
        let found = self.lines.iter().position(|line| line.index == index);
        if found.is_none() {
            if self.lines.len() == MOST_CHOICES {
                self.anomalies.add(Anomaly::ImplausibleCount);
                return None;
            }
            self.lines.push(Line { index, last: None, finished: false });
        }
        let at = found.unwrap_or(self.lines.len() - 1);
        self.lines.get_mut(at)
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
