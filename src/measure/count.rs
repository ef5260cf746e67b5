//! Tokens counted where a reply's usage does not say how many there were.
//!
//! Text is collected as it is read, after it was forwarded; once the exchange is over a [`Counter`] takes both, counts
//! elsewhere, and the exchange is told then.
//!
//! Invariant: an exchange handed over is told exactly once, counted or not: [`Uncounted`] tells it when it is dropped.
//! Text is kept in memory, bounded, and nowhere else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use super::anomaly::Anomaly;
use super::exchange::Exchange;
use super::intervals::{OutputTokens, Source};
use super::metrics::{Meter, Series};
use super::reader::CAP;
use crate::wire::chat::{self, Place};

/// A reply of more texts than this (choices, calls, kinds) is not counted.
const MOST_TEXTS: usize = 512;

/// Counts tokens, later and elsewhere.
pub trait Counter: Send + Sync {
    /// Takes an exchange that is over, to call [`Uncounted::counted`] on another thread. Gives it back where there is no
    /// room for it.
    fn take(&self, uncounted: Uncounted) -> Result<(), Uncounted>;
}

/// What the observation of one exchange needs to have its tokens counted.
pub(super) struct Counting {
    pub(super) counter: Arc<dyn Counter>,
    /// The request's body. `None` where it is too large to be kept.
    request: Option<Bytes>,
}

impl Counting {
    pub(super) fn new(counter: Arc<dyn Counter>, request: &Bytes) -> Self {
        Self { counter, request: (request.len() <= CAP).then(|| request.clone()) }
    }
}

/// The text of one reply. What is too much, or no text, cannot be counted, and takes the rest with it.
#[derive(Default)]
pub(super) struct Text {
    parts: Vec<(Place, String)>,
    bytes: usize,
    lost: bool,
}

impl Text {
    /// Adds what an event or a whole reply with output says.
    pub(super) fn add(&mut self, data: &[u8]) {
        if self.lost {
            return;
        }
        let (before, mut fits) = (self.bytes, true);
        let all = chat::output_text(data, &mut |place, text| fits &= self.push(place, text));
        if !all || !fits || self.bytes == before {
            self.lose();
        }
    }

    /// Something could not be read.
    pub(super) fn lose(&mut self) {
        *self = Self { lost: true, ..Self::default() };
    }

    fn push(&mut self, place: Place, text: &str) -> bool {
        self.bytes += text.len();
        if self.bytes > CAP {
            return false;
        }
        // Mostly the part that grew last.
        if let Some((_, known)) = self.parts.iter_mut().rev().find(|(known, _)| *known == place) {
            known.push_str(text);
            return true;
        }
        let room = self.parts.len() < MOST_TEXTS;
        if room {
            self.parts.push((place, text.to_owned()));
        }
        room
    }
}

/// An exchange that is over, but for its tokens. Dropping it tells it as it is.
pub struct Uncounted {
    exchange: Exchange,
    series: Option<Arc<Series>>,
    meter: Arc<Meter>,
    /// The reply's text, where its tokens are not known.
    reply: Option<Text>,
    /// The request, where its tokens are not known.
    request: Option<Bytes>,
}

impl Uncounted {
    /// Tells `exchange`, after its tokens were counted where they can be and are not known.
    pub(super) fn tell(
        exchange: Exchange,
        series: Option<Arc<Series>>,
        meter: Arc<Meter>,
        counting: Counting,
        text: Option<Text>,
    ) {
        let usage = exchange.usage.unwrap_or_default();
        let had_output = exchange.token_events > 0 || text.as_ref().is_some_and(|text| text.bytes > 0);
        let reply = text.filter(|text| usage.output.is_none() && text.bytes > 0);
        let request = counting.request.filter(|_| usage.input.is_none() && had_output);
        let uncounted = Self { exchange, series, meter, reply, request };
        if uncounted.size() == 0 {
            return;
        }
        if let Err(mut refused) = counting.counter.take(uncounted) {
            refused.exchange.anomalies.add(Anomaly::Tokenizer);
        }
    }

    /// How many bytes it holds to be counted.
    pub fn size(&self) -> usize {
        self.reply.as_ref().map_or(0, |text| text.bytes) + self.request.as_ref().map_or(0, Bytes::len)
    }

    /// Counts with `tokens`, which says how many a text has, and tells the exchange.
    ///
    /// What `tokens` cannot count (`None`), or panics over, is told as the reply's events and usage have it.
    pub fn counted(mut self, tokens: impl Fn(&str) -> Option<u64>) {
        let (reply, request) = (self.reply.take(), self.request.take());
        let counting = || {
            let of_reply = |text: Text| text.parts.iter().map(|(_, text)| tokens(text)).sum::<Option<u64>>();
            (reply.map(of_reply), request.and_then(|request| of_prompt(&request, &tokens)))
        };
        let Ok((output, prompt)) = catch_unwind(AssertUnwindSafe(counting)) else {
            self.exchange.anomalies.add(Anomaly::Tokenizer);
            return;
        };
        match output {
            Some(Some(count)) => self.exchange.output = Some(OutputTokens { count, source: Source::Tokenizer }),
            Some(None) => self.exchange.anomalies.add(Anomaly::Tokenizer),
            None => {}
        }
        self.exchange.prompt_counted = prompt;
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        self.meter.finished(&self.exchange, self.series.as_deref());
    }
}

/// Tokens in the messages of a request. `None` where they hold more than text.
fn of_prompt(request: &[u8], tokens: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut sum = Some(0);
    let all = chat::prompt_text(request, &mut |_, text| {
        sum = sum.and_then(|sum: u64| sum.checked_add(tokens(text)?));
    });
    sum.filter(|_| all)
}
