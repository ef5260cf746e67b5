//! One backend's last minutes: percentiles of the last minute, and their course.
//!
//! Time is cut into slots of [`SLOT`]. The last few are held as histograms and make "now"; of all that are over, two
//! percentiles are kept.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::histogram::Histogram;
use crate::measure::exchange::Exchange;
use crate::measure::intervals::Source;
use crate::measure::outcome::Outcome;

const SLOT_SECONDS: u64 = 5;
/// How many slots make "now".
const HELD: usize = 12;
/// The length of a slot.
pub const SLOT: Duration = Duration::from_secs(SLOT_SECONDS);
/// How many slots the course holds.
pub const SLOTS: usize = 60;
/// What "now" covers, the slot that is not over included.
pub const WINDOW: Duration = Duration::from_secs(SLOT_SECONDS * HELD as u64);

/// What there are percentiles of. Those that N enters are kept apart by its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Vantage `client`, in milliseconds.
    Ttft,
    /// Between exact instants, in milliseconds.
    Itl,
    /// Where one of the two events shared its read, in milliseconds.
    ItlCoalesced,
    /// In milliseconds.
    Tpot(Source),
    /// In tokens per second.
    Tgs(Source),
}

impl Shown {
    /// Everything there are percentiles of.
    pub const ALL: [Self; KINDS] = [
        Self::Ttft,
        Self::Itl,
        Self::ItlCoalesced,
        Self::Tpot(Source::Usage),
        Self::Tpot(Source::Tokenizer),
        Self::Tpot(Source::Events),
        Self::Tgs(Source::Usage),
        Self::Tgs(Source::Tokenizer),
        Self::Tgs(Source::Events),
    ];

    /// Its place in [`Shown::ALL`].
    fn place(self) -> usize {
        match self {
            Self::Ttft => 0,
            Self::Itl => 1,
            Self::ItlCoalesced => 2,
            Self::Tpot(source) => 3 + source as usize,
            Self::Tgs(source) => 6 + source as usize,
        }
    }
}

const KINDS: usize = 9;

/// Percentiles of one interval: of times in milliseconds, of TGS in tokens per second.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How many values.
    pub count: u64,
    /// The median.
    pub p50: f64,
    /// Its 95th percentile.
    pub p95: f64,
    /// Its 99th percentile.
    pub p99: f64,
}

/// One backend's last minute, and the course of the minutes before.
#[derive(Debug, Clone, Default)]
pub struct WindowNow {
    /// Requests that ended.
    pub requests: u64,
    /// Those that ended well.
    pub ok: u64,
    /// Those that ended without a finish reason, but with the end marker.
    pub unconfirmed: u64,
    /// Those whose client left.
    pub cancels: u64,
    /// What [`Shown::ALL`] names. `None` where nothing was observed.
    pub now: [Option<Summary>; KINDS],
    /// p50 and p95 of each slot that is over, oldest first, [`SLOTS`] of them. `None` where nothing was observed.
    pub course: [Vec<Option<[f64; 2]>>; KINDS],
}

impl WindowNow {
    /// What there is of one of them: its last minute, and its course.
    pub fn of(&self, shown: Shown) -> (Option<&Summary>, &[Option<[f64; 2]>]) {
        (self.now[shown.place()].as_ref(), &self.course[shown.place()])
    }
}

/// What one exchange adds. Values are in µs, or thousandths of a token per second.
pub(super) struct Sample {
    outcome: Outcome,
    values: SmallVec<[(Shown, u64, u32); 32]>,
}

impl Sample {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let mut sample = Self { outcome: exchange.outcome, values: SmallVec::new() };
        // Of a reply in one piece no time but its duration means anything.
        if exchange.marks.first_event.is_none() {
            return sample;
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        sample.push(Shown::Ttft, exchange.marks.ttft_client().map(micros), 1);
        if let Some(source) = exchange.output.map(|output| output.source) {
            sample.push(Shown::Tpot(source), exchange.tpot().map(micros), 1);
            sample.push(Shown::Tgs(source), exchange.tgs().map(|rate| rate * 1e3), 1);
        }
        for gap in exchange.track.gaps() {
            let itl = if gap.exact { Shown::Itl } else { Shown::ItlCoalesced };
            sample.push(itl, Some(micros(gap.time) / f64::from(gap.tokens)), gap.tokens);
        }
        sample
    }

    fn push(&mut self, shown: Shown, value: Option<f64>, times: u32) {
        let Some(value) = value else { return };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, and is never negative
        self.values.push((shown, value.round() as u64, times));
    }
}

#[derive(Default)]
struct Slot {
    requests: u64,
    ok: u64,
    unconfirmed: u64,
    cancels: u64,
    histograms: [Option<Histogram>; KINDS],
}

pub(super) struct Window {
    began: Instant,
    /// The number of the newest slot, the last of `slots`.
    number: u64,
    slots: VecDeque<Slot>,
    course: [VecDeque<Option<[f64; 2]>>; KINDS],
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        let empty = || std::iter::repeat_n(None, SLOTS).collect();
        Self { began: now, number: 0, slots: [Slot::default()].into(), course: std::array::from_fn(|_| empty()) }
    }

    /// An exchange ended at `now`.
    pub(super) fn add(&mut self, sample: &Sample, now: Instant) {
        self.roll(now);
        let Some(slot) = self.slots.back_mut() else { return };
        slot.requests += 1;
        slot.ok += u64::from(sample.outcome == Outcome::Ok);
        slot.unconfirmed += u64::from(sample.outcome == Outcome::Unconfirmed);
        slot.cancels += u64::from(sample.outcome.is_cancel());
        for (shown, value, times) in &sample.values {
            slot.histograms[shown.place()].get_or_insert_with(Histogram::new).add(*value, *times);
        }
    }

    /// What there is to say at `now`.
    pub(super) fn at(&mut self, now: Instant) -> WindowNow {
        self.roll(now);
        let sum = |count: fn(&Slot) -> u64| self.slots.iter().map(count).sum();
        WindowNow {
            requests: sum(|slot| slot.requests),
            ok: sum(|slot| slot.ok),
            unconfirmed: sum(|slot| slot.unconfirmed),
            cancels: sum(|slot| slot.cancels),
            now: std::array::from_fn(|kind| self.summary(kind)),
            course: std::array::from_fn(|kind| self.course[kind].iter().copied().collect()),
        }
    }

    fn summary(&self, kind: usize) -> Option<Summary> {
        let mut held = self.slots.iter().filter_map(|slot| slot.histograms[kind].as_ref());
        let mut all = held.next()?.clone();
        held.for_each(|histogram| all.merge(histogram));
        let at = |share| all.percentile(share).map(thousandth);
        Some(Summary { count: all.total(), p50: at(0.50)?, p95: at(0.95)?, p99: at(0.99)? })
    }

    /// Closes the slots that are over at `now`.
    fn roll(&mut self, now: Instant) {
        let number = now.saturating_duration_since(self.began).as_secs() / SLOT_SECONDS;
        // After a long silence every slot is new: no need to count them all.
        let steps = number.saturating_sub(self.number).min((SLOTS + HELD) as u64);
        for _ in 0..steps {
            let over = self.slots.back();
            for (kind, course) in self.course.iter_mut().enumerate() {
                let histogram = over.and_then(|slot| slot.histograms[kind].as_ref());
                let at = |share| histogram?.percentile(share).map(thousandth);
                course.push_back(at(0.50).zip(at(0.95)).map(<[f64; 2]>::from));
                course.pop_front();
            }
            self.slots.push_back(Slot::default());
            if self.slots.len() > HELD {
                self.slots.pop_front();
            }
        }
        self.number = self.number.max(number);
    }
}

fn thousandth(value: f64) -> f64 {
    value / 1e3
}
