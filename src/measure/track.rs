//! The token events of one reply, kept one by one: when each arrived, what it carried, whether it shared its read.
//!
//! A few bytes an event. In order, for each choice that an event feeds, one LEB128 number: the microseconds since the
//! entry before (the first: since `accepted`), shifted left by [`FLAG_BITS`], with flags below. With [`EXTENDED`] two
//! more numbers follow: the choice, and the tokens.
//!
//! Invariant: memory is bounded. What comes after [`CAPACITY`] is counted and not kept.

use std::time::Duration;

use smallvec::SmallVec;

use super::timeline::Gap;

/// The most bytes one reply's track takes: some 16,000 events 20 ms apart.
pub(super) const CAPACITY: usize = 48 * 1024;

/// A track that has begun will hold at least this: most replies then grow it once or twice.
const FIRST: usize = 256;

/// The longest entry: three numbers of ten, five and five bytes.
const LONGEST: usize = 20;

const FLAG_BITS: u32 = 4;
/// It carried reasoning and no answer.
const REASONING: u8 = 1;
/// Its read held another token event.
const COALESCED: u8 = 2;
/// The time since its choice's event before is unknown: it is the first, or what lay between could not be read.
const NO_GAP: u8 = 4;
/// It feeds another choice than 0, or is known to carry another number of tokens than 1.
const EXTENDED: u8 = 8;

/// One token event, as far as one choice is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    /// When it arrived, after the request's head was read. In whole microseconds.
    pub at: Duration,
    /// The choice it feeds.
    pub choice: u32,
    /// How many tokens it is known to carry, at least 1.
    pub tokens: u32,
    /// It carried reasoning and no answer.
    pub reasoning: bool,
    /// It shared its read with another token event.
    pub coalesced: bool,
    /// There is an inter-token latency between its choice's event before and it.
    pub has_gap: bool,
}

/// The token events of one reply.
#[derive(Debug, Clone, Default)]
pub struct Track {
    bytes: Vec<u8>,
    last_us: u64,
    /// Where the read being looked at begins.
    read_from: usize,
    lost: u64,
}

impl Track {
    /// Adds an event; its `coalesced` is told when its read is over.
    pub fn push(&mut self, tick: Tick) {
        if self.lost > 0 || self.bytes.len() + LONGEST > CAPACITY {
            self.lost += 1;
            return;
        }
        let (room, len) = (self.bytes.capacity(), self.bytes.len());
        if room - len < LONGEST {
            // Doubled, so that a token costs a token; but never beyond what a track may take.
            self.bytes.reserve_exact((2 * room).clamp(FIRST, CAPACITY) - len);
        }
        let at = u64::try_from(tick.at.as_micros()).unwrap_or(u64::MAX >> FLAG_BITS).max(self.last_us);
        let extended = tick.choice != 0 || tick.tokens != 1;
        let flags = [(tick.reasoning, REASONING), (!tick.has_gap, NO_GAP), (extended, EXTENDED)];
        let flags: u8 = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum();
        self.number((at - self.last_us) << FLAG_BITS | u64::from(flags));
        self.last_us = at;
        if extended {
            self.number(tick.choice.into());
            self.number(tick.tokens.into());
        }
    }

    /// The current read is over; `shared` says that it held more than one token event.
    pub(super) fn read_over(&mut self, shared: bool) {
        let mut at = if shared { self.read_from } else { self.bytes.len() };
        while let Some(first) = self.bytes.get_mut(at) {
            // The flags are in an entry's first byte, below its continuation bit.
            *first |= COALESCED;
            let mut rest = Numbers { bytes: &self.bytes[at..] };
            let extended = rest.next().is_some_and(|head| head & u64::from(EXTENDED) != 0);
            if extended {
                rest.nth(1);
            }
            at = self.bytes.len() - rest.bytes.len();
        }
        self.read_from = self.bytes.len();
    }

    /// The events in order of arrival.
    pub fn ticks(&self) -> impl Iterator<Item = Tick> {
        let mut numbers = Numbers { bytes: &self.bytes };
        let mut us = 0;
        std::iter::from_fn(move || {
            let head = numbers.next()?;
            us += head >> FLAG_BITS;
            let (choice, tokens) =
                if head & u64::from(EXTENDED) == 0 { (0, 1) } else { (numbers.next()?, numbers.next()?) };
            let flag = |flag: u8| head & u64::from(flag) != 0;
            Some(Tick {
                at: Duration::from_micros(us),
                choice: u32::try_from(choice).ok()?,
                tokens: u32::try_from(tokens).ok()?,
                reasoning: flag(REASONING),
                coalesced: flag(COALESCED),
                has_gap: !flag(NO_GAP),
            })
        })
    }

    /// The gaps between them, as the timeline told them, to the microsecond.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> {
        let mut lines: SmallVec<[(u32, Tick); 1]> = SmallVec::new();
        self.ticks().filter_map(move |tick| {
            let line = lines.iter_mut().find(|(choice, _)| *choice == tick.choice);
            let before = match line {
                Some((_, before)) => std::mem::replace(before, tick),
                None => {
                    lines.push((tick.choice, tick));
                    return None;
                }
            };
            let exact = !tick.coalesced && !before.coalesced;
            tick.has_gap.then(|| Gap { time: tick.at.saturating_sub(before.at), tokens: tick.tokens, exact })
        })
    }

    /// How many events came after there was room for them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.bytes.capacity()
    }

    /// LEB128, least significant bits first.
    fn number(&mut self, mut value: u64) {
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                return self.bytes.push(low);
            }
            self.bytes.push(low | 0x80);
        }
    }
}

/// Reads LEB128 numbers; an incomplete one ends it.
struct Numbers<'a> {
    bytes: &'a [u8],
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(us: u64) -> Tick {
        Tick { at: Duration::from_micros(us), choice: 0, tokens: 1, reasoning: false, coalesced: false, has_gap: true }
    }

    #[test]
    fn what_goes_in_comes_out() {
        let shared = |us| Tick { coalesced: true, ..tick(us) };
        let events = [
            vec![Tick { reasoning: true, has_gap: false, ..tick(200_123) }],
            vec![Tick { choice: 3, has_gap: false, ..shared(200_123) }, Tick { tokens: 512, ..shared(200_130) }],
            vec![tick(200_130)],
            vec![Tick { choice: u32::MAX, tokens: u32::MAX, ..tick(90_000_000_000) }],
        ];
        let mut track = Track::default();
        for read in &events {
            for event in read {
                track.push(*event);
            }
            track.read_over(read.len() > 1);
        }
        assert_eq!(track.ticks().collect::<Vec<_>>(), events.concat());
        assert_eq!(track.lost(), 0);
    }

    #[test]
    fn gaps_belong_to_their_choice_and_know_whether_they_are_exact() {
        let mut track = Track::default();
        let other = |us| Tick { choice: 1, ..tick(us) };
        let first = |tick| Tick { has_gap: false, ..tick };
        for read in [
            vec![first(tick(10))],
            vec![first(other(15))],
            vec![tick(30)],
            vec![other(36), Tick { tokens: 4, ..tick(36) }],
            vec![tick(50)],
            vec![first(tick(90))],
            vec![tick(95)],
        ] {
            for tick in &read {
                track.push(*tick);
            }
            track.read_over(read.len() > 1);
        }
        let gaps: Vec<_> = track.gaps().map(|gap| (gap.time.as_micros(), gap.tokens, gap.exact)).collect();
        assert_eq!(gaps, [(20, 1, true), (21, 1, false), (6, 4, false), (14, 1, false), (5, 1, true)]);
    }

    #[test]
    fn memory_is_bounded_and_the_rest_is_counted() {
        let mut track = Track::default();
        for number in 0..100_000 {
            track.push(tick(number * 20_000));
            track.read_over(false);
        }
        let kept = track.ticks().count() as u64;
        assert!(track.size() <= CAPACITY && kept > 15_000, "{kept} kept in {} bytes", track.size());
        assert_eq!(kept + track.lost(), 100_000);
        assert_eq!(track.ticks().last(), Some(tick((kept - 1) * 20_000)));
    }
}
