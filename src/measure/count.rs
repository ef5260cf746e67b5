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
use crate::wire::{Dialect, Place};

/// A reply of more texts than this (choices, calls, kinds) is not counted.
const MOST_TEXTS: usize = 512;

/// Counts tokens, later and elsewhere.
pub trait Counter: Send + Sync {
    /// Takes an exchange that is over, to call [`Uncounted::counted`] on another thread. Gives it back where there is no
    /// room for it.
    fn take(&self, uncounted: Box<Uncounted>) -> Result<(), Box<Uncounted>>;
}

/// What the observation of one exchange needs to have its tokens counted.
pub(super) struct Counting {
    pub(super) counter: Arc<dyn Counter>,
    dialect: Dialect,
    /// The request's body. `None` where it is too large to be kept.
    request: Option<Bytes>,
}

impl Counting {
    pub(super) fn new(counter: Arc<dyn Counter>, dialect: Dialect, request: &Bytes) -> Self {
        Self { counter, dialect, request: (request.len() <= CAP).then(|| request.clone()) }
    }
}

/// The text of one reply. What is too much, or no text, cannot be counted, and takes the rest with it.
pub(super) struct Text {
    dialect: Dialect,
    parts: Vec<(Place, String)>,
    bytes: usize,
    lost: bool,
}

impl Text {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, parts: Vec::new(), bytes: 0, lost: false }
    }

    /// Adds what an event or a whole reply with output says.
    pub(super) fn add(&mut self, data: &[u8]) {
        if self.lost {
            return;
        }
        let (before, mut fits) = (self.bytes, true);
        let all = self.dialect.output_text(data, &mut |place, text| fits &= self.push(place, text));
        if !all || !fits || self.bytes == before {
            self.lose();
        }
    }

    /// Something could not be read.
    pub(super) fn lose(&mut self) {
        *self = Self { lost: true, ..Self::new(self.dialect) };
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
    /// How both are written.
    dialect: Dialect,
}

impl Uncounted {
    /// Tells `exchange`, after its tokens were counted where they can be and are not known. With an `echo` those of the reply
    /// cannot: its text holds the prompt.
    pub(super) fn tell(
        exchange: Exchange,
        series: Option<Arc<Series>>,
        meter: Arc<Meter>,
        counting: Counting,
        text: Option<Text>,
        echo: bool,
    ) {
        let usage = exchange.usage.unwrap_or_default();
        let had_output = exchange.token_events > 0 || text.as_ref().is_some_and(|text| text.bytes > 0);
        let reply = text.filter(|text| usage.output.is_none() && text.bytes > 0 && !echo);
        let request = counting.request.filter(|_| usage.input.is_none() && had_output);
        let dialect = counting.dialect;
        let uncounted = Box::new(Self { exchange, series, meter, reply, request, dialect });
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
        let (reply, request, dialect) = (self.reply.take(), self.request.take(), self.dialect);
        let counting = || {
            let prompt = request.and_then(|request| of_prompt(dialect, &request, &tokens));
            (reply.map(|text| of_all(&text.parts, &tokens)), prompt)
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
fn of_prompt(dialect: Dialect, request: &[u8], tokens: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut texts: Vec<(Place, String)> = Vec::new();
    let all = dialect.prompt_text(request, &mut |place, text| match texts.last_mut() {
        Some((known, joined)) if *known == place => joined.push_str(text),
        _ => texts.push((place, text.to_owned())),
    });
    if all { of_all(&texts, tokens) } else { None }
}

fn of_all(texts: &[(Place, String)], tokens: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    texts.iter().map(|(_, text)| tokens(text)).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;
    use crate::clock::ReadStamp;
    use crate::measure::delivery::Onward;
    use crate::measure::{Answered, Asked, Content, Ending, Framing, Observation, Setup};
    use crate::transport::ConnectPhases;

    /// Does with an exchange what a test says.
    struct Fake(Take);

    type Take = fn(Box<Uncounted>) -> Result<(), Box<Uncounted>>;

    impl Counter for Fake {
        fn take(&self, uncounted: Box<Uncounted>) -> Result<(), Box<Uncounted>> {
            (self.0)(uncounted)
        }
    }

    /// A stream of two token events without usage, handed to `take`, as it was told.
    fn told(take: Take) -> Exchange {
        let told: Arc<Mutex<Vec<Exchange>>> = Arc::default();
        let keep = told.clone();
        let listener = Box::new(move |exchange: &Exchange| keep.lock().unwrap().push(exchange.clone()));
        let meter = Arc::new(Meter::new(Setup::default(), vec![listener]));
        let now = Instant::now();
        let mut observation = Observation::begin(meter.clone(), "chat", now, Some(Dialect::Chat));
        observation.asked(Asked { stream: true, choices: 1, ..Asked::default() });
        observation.routed(&"up".into());
        let request = Bytes::from_static(br#"{"messages":[{"content":["one"," two"]}]}"#);
        observation.count_with(Arc::new(Fake(take)), &request);
        observation.answered(Answered {
            status: 200,
            content: Content::Events,
            framing: Framing::Chunked,
            sent: Some(now),
            head: now,
            connect: ConnectPhases::default(),
            reused: None,
            engine: None,
        });
        let event = Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n");
        for number in 1..=2 {
            observation.passes(&event, ReadStamp { at: now, number }, false, Onward::AsItCame);
        }
        observation.ended(Ending::Dropped);
        observation.tell(now);
        drop(observation);
        assert_eq!(meter.in_flight("up"), 0);
        let mut told = told.lock().unwrap();
        assert_eq!(told.len(), 1, "told exactly once");
        told.remove(0)
    }

    fn seen(exchange: &Exchange) -> (Option<(u64, Source)>, Option<u64>, u32) {
        let output = exchange.output.map(|output| (output.count, output.source));
        (output, exchange.prompt_tokens(), exchange.anomalies.count(Anomaly::Tokenizer))
    }

    #[test]
    fn what_is_counted_is_told_with_it() {
        let counted = told(|uncounted| {
            assert_eq!(uncounted.size(), "wordword".len() + 41);
            uncounted.counted(|text| Some(text.len() as u64));
            Ok(())
        });
        // The two events are one text, and so are the two parts of the prompt's one message.
        assert_eq!(seen(&counted), (Some((8, Source::Tokenizer)), Some(7), 0));
    }

    #[test]
    fn what_is_not_counted_is_told_all_the_same() {
        let by_events = Some((2, Source::Events));
        assert_eq!(seen(&told(Err)), (by_events, None, 1), "refused");
        assert_eq!(
            seen(&told(|lost| {
                drop(lost);
                Ok(())
            })),
            (by_events, None, 0),
            "lost"
        );
        let failed = told(|uncounted| {
            uncounted.counted(|_| None);
            Ok(())
        });
        assert_eq!(seen(&failed), (by_events, None, 1), "failed");
        let panicked = told(|uncounted| {
            uncounted.counted(|_| panic!("a tokenizer that panics"));
            Ok(())
        });
        assert_eq!(seen(&panicked), (by_events, None, 1), "panicked");
    }
}
