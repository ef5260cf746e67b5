//! From a reply's bytes to its timeline: events where it is a stream, one document where it is not.
//!
//! A compressed reply is decoded first; only a copy is, the client gets the bytes that came.
//!
//! Invariant: reading never fails and holds at most about [`CAP`] bytes and a decoder's windows, whatever the upstream
//! sends.

use bytes::Bytes;

use super::anomaly::Anomaly;
use super::count::Text;
use super::timeline::Timeline;
use crate::clock::ReadStamp;
use crate::wire::encoding::{Codings, Decoder};
use crate::wire::skim::Skimmer;
use crate::wire::sse::{Item, SseParser, opens_stream};
use crate::wire::{Choice, Dialect, EventReader, Meaning};

/// The largest event, and the largest whole reply that is looked at as a whole, in bytes.
pub const CAP: usize = 1024 * 1024;
/// Whitespace before what tells events from a document, in bytes.
const MOST_BLANK: usize = 64 * 1024;
/// How much of a first line tells, in bytes: `event:` or `retry:`.
const TELLING: usize = 6;

/// What the reply's head says about its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// `text/event-stream`.
    Events,
    /// Anything else: how its first line begins tells.
    Unlabelled,
    /// Compressed: one of the two above, once the codings are undone.
    Encoded {
        /// What it was encoded by.
        codings: Codings,
        /// `text/event-stream`.
        events: bool,
    },
    /// Not to be looked at: compressed in a way that is not known here.
    Opaque,
}

/// Reads one reply.
pub(super) struct Reader {
    /// Undoes the reply's codings. `None` when it has none, or nothing more is to be read.
    decoder: Option<Box<Decoder>>,
    dialect: Dialect,
    mode: Mode,
    stream_wanted: bool,
    unreadable: bool,
    pub(super) heard: Heard,
}

/// What is kept of what a reply says, besides its timeline.
#[derive(Default)]
pub(super) struct Heard {
    /// The model the backend says it served, once said.
    pub(super) served: Option<Box<str>>,
    /// Its text. `None` where nobody counts it.
    pub(super) text: Option<Text>,
}

enum Mode {
    /// Nothing but a byte order mark and whitespace so far, and maybe part of what tells.
    Undecided {
        held: Vec<(Bytes, ReadStamp)>,
        length: usize,
        start: Vec<u8>,
    },
    Events(Box<Events>),
    Document(Document),
    /// Events up to here; what follows could not be decoded.
    Broken,
    Skipped,
}

/// One JSON reply.
enum Document {
    /// Mostly it comes in one frame, which is kept as it is.
    Kept {
        first: Bytes,
        /// All of it, once there is more than one frame.
        joined: Vec<u8>,
    },
    /// Of which only some is kept, whatever its size.
    Skimmed(Box<Skimmer>),
}

impl Document {
    fn new(dialect: Dialect) -> Self {
        match dialect.sieve() {
            Some(skimmer) => Self::Skimmed(Box::new(skimmer)),
            None => Self::Kept { first: Bytes::new(), joined: Vec::new() },
        }
    }

    /// Adds a frame. Returns false when it becomes too large to keep.
    fn push(&mut self, bytes: &Bytes) -> bool {
        let (first, joined) = match self {
            Self::Kept { first, joined } => (first, joined),
            Self::Skimmed(skimmer) => {
                skimmer.feed(bytes);
                return true;
            }
        };
        if first.is_empty() {
            *first = bytes.clone();
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(first);
            }
            joined.extend_from_slice(bytes);
        }
        first.len().max(joined.len()) <= CAP
    }

    /// The document, or what is left of it. Nothing that is JSON where it was none.
    fn bytes(self) -> Bytes {
        match self {
            Self::Kept { first, joined } if joined.is_empty() => first,
            Self::Kept { joined, .. } => joined.into(),
            Self::Skimmed(skimmer) => skimmer.finish().map_or(Bytes::from_static(b"?"), Bytes::from),
        }
    }
}

struct Events {
    parser: SseParser,
    events: EventReader,
    dialect: Dialect,
}

/// What one frame held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) events: u32,
    pub(super) token: bool,
}

impl Reader {
    /// `counts` says that the reply's text is to be kept.
    pub(super) fn new(dialect: Dialect, content: Content, stream_wanted: bool, counts: bool) -> Self {
        let (mode, codings) = match content {
            Content::Events => (Mode::events(dialect), None),
            Content::Unlabelled => (Mode::undecided(), None),
            Content::Encoded { codings, events: true } => (Mode::events(dialect), Some(codings)),
            Content::Encoded { codings, events: false } => (Mode::undecided(), Some(codings)),
            Content::Opaque => (Mode::Skipped, None),
        };
        let decoder = codings.and_then(Decoder::new).map(Box::new);
        let unreadable = content == Content::Opaque || (codings.is_some() && decoder.is_none());
        let mode = if unreadable { Mode::Skipped } else { mode };
        let heard = Heard { served: None, text: counts.then(|| Text::new(dialect)) };
        Self { decoder, dialect, mode, stream_wanted, unreadable, heard }
    }

    /// Whether some of it could not be looked at, which an anomaly tells: compressed as is not understood, or too large.
    pub(super) fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    /// Whether it turned out to be a stream of events.
    pub(super) fn is_events(&self) -> bool {
        matches!(self.mode, Mode::Events(_) | Mode::Broken)
    }

    /// Reads the next frame, which the read `stamp` brought.
    pub(super) fn frame(&mut self, bytes: &Bytes, stamp: ReadStamp, timeline: &mut Timeline) -> Held {
        if self.decoder.is_some() { self.encoded(bytes, stamp, timeline) } else { self.plain(bytes, stamp, timeline) }
    }

    /// Reads a frame of a compressed reply.
    fn encoded(&mut self, bytes: &[u8], stamp: ReadStamp, timeline: &mut Timeline) -> Held {
        let Some(mut decoder) = self.decoder.take() else { return Held::default() };
        let mut held = Held::default();
        let fed = decoder.feed(bytes, &mut |piece| {
            held.add(match &mut self.mode {
                Mode::Events(events) => events.feed(piece, stamp, timeline, &mut self.heard),
                _ => self.plain(&Bytes::copy_from_slice(piece), stamp, timeline),
            });
        });
        if fed.is_err() {
            timeline.anomalies.add(Anomaly::ContentEncoding);
            timeline.lost();
            self.heard.lose_text();
            self.unreadable = true;
            self.mode = if self.is_events() { Mode::Broken } else { Mode::Skipped };
        } else if !matches!(self.mode, Mode::Skipped) {
            self.decoder = Some(decoder);
        }
        held
    }

    /// Reads a frame, or a part of one, as it is.
    fn plain(&mut self, bytes: &Bytes, stamp: ReadStamp, timeline: &mut Timeline) -> Held {
        match &mut self.mode {
            Mode::Events(events) => events.feed(bytes, stamp, timeline, &mut self.heard),
            Mode::Document(document) => {
                if !document.push(bytes) {
                    timeline.anomalies.add(Anomaly::OversizedReply);
                    self.unreadable = true;
                    self.mode = Mode::Skipped;
                }
                Held::default()
            }
            Mode::Broken | Mode::Skipped => Held::default(),
            Mode::Undecided { .. } => self.decide(bytes, stamp, timeline),
        }
    }

    /// The reply is over; `whole` says that it came to its end.
    pub(super) fn end(&mut self, whole: bool, stamp: Option<ReadStamp>, timeline: &mut Timeline) {
        let Some(stamp) = stamp else { return };
        if whole && self.decoder.take().is_some_and(|decoder| !decoder.is_whole()) {
            // Its server forgot the end, or lost it. What was decoded counts.
            timeline.anomalies.add(Anomaly::ContentEncoding);
        }
        match std::mem::replace(&mut self.mode, Mode::Skipped) {
            Mode::Events(mut events) => {
                events.finish(stamp, timeline, &mut self.heard);
                // What was asked of the mode later must still be answered.
                self.mode = Mode::Events(events);
            }
            Mode::Document(document) if whole => {
                let bytes = document.bytes();
                let meaning = self.dialect.reply(&bytes);
                self.heard.reply(&meaning, &bytes);
                timeline.reply(&meaning, stamp.at);
            }
            Mode::Broken => self.mode = Mode::Broken,
            Mode::Document(_) | Mode::Skipped | Mode::Undecided { .. } => {}
        }
    }

    /// Looks for what tells a JSON document from events: how the first line begins.
    fn decide(&mut self, bytes: &Bytes, stamp: ReadStamp, timeline: &mut Timeline) -> Held {
        let Mode::Undecided { held, length, start } = &mut self.mode else { return Held::default() };
        *length += bytes.len();
        held.push((bytes.clone(), stamp));
        let is_blank = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF);
        let from = if start.is_empty() { bytes.iter().take_while(|byte| is_blank(**byte)).count() } else { 0 };
        start.extend(bytes[from..].iter().take(TELLING - start.len()));
        let decided = match opens_stream(start) {
            None if *length > MOST_BLANK => Mode::Skipped,
            None => return Held::default(),
            Some(false) if matches!(start[..], [b'{' | b'[', ..]) => {
                if self.stream_wanted {
                    timeline.anomalies.add(Anomaly::JsonForStream);
                }
                Mode::Document(Document::new(self.dialect))
            }
            Some(true) => {
                timeline.anomalies.add(Anomaly::MislabelledStream);
                Mode::events(self.dialect)
            }
            Some(false) => Mode::Skipped,
        };
        let Mode::Undecided { held, .. } = std::mem::replace(&mut self.mode, decided) else {
            return Held::default();
        };
        let mut all = Held::default();
        for (bytes, stamp) in held {
            all.add(self.plain(&bytes, stamp, timeline));
        }
        all
    }
}

impl Held {
    fn add(&mut self, more: Self) {
        self.events += more.events;
        self.token |= more.token;
    }
}

impl Mode {
    fn undecided() -> Self {
        Self::Undecided { held: Vec::new(), length: 0, start: Vec::new() }
    }

    fn events(dialect: Dialect) -> Self {
        Self::Events(Box::new(Events { parser: SseParser::new(CAP), events: EventReader::new(dialect), dialect }))
    }
}

impl Events {
    fn feed(&mut self, bytes: &[u8], stamp: ReadStamp, timeline: &mut Timeline, heard: &mut Heard) -> Held {
        let mut held = Held::default();
        let (events, dialect) = (&mut self.events, self.dialect);
        self.parser.feed(bytes, &mut |item| match item {
            Item::Event(event) => {
                let meaning = events.event(event);
                heard.reply(&meaning, event.data);
                held.events += 1;
                held.token |= timeline.event(&meaning, stamp);
            }
            Item::Oversized { name } => {
                held.events += 1;
                if let Some(meaning) = events.oversized(name) {
                    timeline.anomalies.add(Anomaly::OversizedEvent);
                    timeline.event(&meaning, stamp);
                } else {
                    heard.lose_text();
                    timeline.unreadable(stamp);
                }
            }
            Item::Stray(text) => timeline.stray(&dialect.reply(text), stamp.at),
            Item::Unterminated(event) => timeline.unterminated(&events.event(event), stamp.at),
        });
        held
    }

    fn finish(&mut self, stamp: ReadStamp, timeline: &mut Timeline, heard: &mut Heard) {
        let (events, dialect) = (&mut self.events, self.dialect);
        self.parser.finish(&mut |item| match item {
            Item::Event(event) => {
                let meaning = events.event(event);
                heard.reply(&meaning, event.data);
                timeline.event(&meaning, stamp);
            }
            Item::Unterminated(event) => timeline.unterminated(&events.event(event), stamp.at),
            Item::Oversized { .. } => {
                // It was too large to be heard, and never became an event that could hide others.
                timeline.anomalies.add(Anomaly::OversizedEvent);
                timeline.anomalies.add(Anomaly::UnterminatedEvent);
            }
            Item::Stray(text) => timeline.stray(&dialect.reply(text), stamp.at),
        });
    }
}

impl Heard {
    /// An event or a whole reply, `data`, says so much.
    fn reply(&mut self, meaning: &Meaning<'_>, data: &[u8]) {
        if self.served.is_none() {
            self.served = meaning.model.as_deref().map(Box::from);
        }
        if let Some(text) = &mut self.text
            && meaning.choices.iter().any(Choice::has_output)
        {
            text.add(data);
        }
    }

    fn lose_text(&mut self) {
        if let Some(text) = &mut self.text {
            text.lose();
        }
    }
}
