//! A stream as it would be had nobody asked for usage: what asking brought is taken out, every other byte stays.
//!
//! Asking (`stream_options.include_usage`) brings an event with `choices: []` and a `usage`, and into every other chunk
//! a member `"usage":null`. Both are known by their JSON, whatever the event's spelling. In doubt an event stays as it is:
//! one that says anything besides, in a member that the API does not describe, is not taken out.
//!
//! What is lost: llama.cpp writes its `timings` into the stream's last event, which asking makes the one of usage. They
//! go with it, as clients that did not ask may not survive an event without choices.
//!
//! An upstream that sends the same unasked, to everyone, cannot be told from one that was asked: its clients then get
//! neither that event nor the nulls.
//!
//! Invariants:
//! * What goes on does not depend on how the bytes were cut into frames, once all of them are there.
//! * Only the part of an event whose end has not come is held back; comments between events, which keep connections
//!   alive, never are.
//! * A frame of whole events in which nothing changes goes on as it is, without a copy.
//! * At most one event is held, up to [`CAP`] bytes; a longer one goes on as it comes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::{memchr2, memmem};

use crate::wire::raw::{members, offset};

/// The longest event that is looked at, its line ends included, in bytes.
const CAP: usize = 1 << 20;

const BOM: &[u8] = "\u{feff}".as_bytes();
/// What every event to be changed contains.
const USAGE: &[u8] = b"\"usage\"";
/// What an event that is dropped may say; members that are null say nothing.
const KNOWN: [&str; 10] = [
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
    "choices",
    "usage",
    "obfuscation",
    "timings",
];

/// What of one frame goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stripped {
    /// The bytes that go on; maybe none.
    pub bytes: Bytes,
    /// How many events ended in the frame and do not go on.
    pub dropped: u32,
}

/// Takes usage out of one stream. Feed it every frame in order, then [`finish`](Self::finish) it.
///
/// ```
/// use bytes::Bytes;
/// use streamgauge::wire::chat::UsageStripper;
///
/// let mut stripper = UsageStripper::new();
/// let mut on = |bytes| stripper.feed(&Bytes::from_static(bytes)).bytes;
/// assert_eq!(on(b"data: {\"choices\":[{}],\"usage\":null}\n\ndata: {\"cho"), "data: {\"choices\":[{}]}\n\n");
/// assert_eq!(on(b"ices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n"), "data: [DONE]\n\n");
/// ```
#[derive(Debug)]
pub struct UsageStripper {
    nature: Nature,
    /// How many bytes of a byte order mark have been seen; all of them once the stream's start is behind us.
    bom: usize,
    /// The last frame ended in a CR, whose LF may still come.
    after_cr: AfterCr,
    /// The last frame ended inside a line.
    mid_line: bool,
    /// An event has begun, with a line that is no comment.
    open: bool,
    /// The open event is too long to be held, and goes on as it comes.
    over: bool,
    /// The open event's bytes from earlier frames.
    held: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    Events,
    /// Nothing but a byte order mark and white space so far: the first other byte tells.
    Unknown,
    NoEvents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterCr {
    No,
    /// The LF shares the fate of its line.
    Lf,
    /// The line was dropped, and so will be its LF.
    Dropped,
}

enum Verdict {
    Keep,
    /// These bytes are taken out of the event.
    Cut(Range<usize>),
    Drop,
}

impl UsageStripper {
    /// For a reply that says it is a stream of events.
    pub fn new() -> Self {
        Self {
            nature: Nature::Events,
            bom: 0,
            after_cr: AfterCr::No,
            mid_line: false,
            open: false,
            over: false,
            held: Vec::new(),
        }
    }

    /// For a reply that does not say what it is: its first byte decides, and what is no stream of events passes.
    pub fn unlabelled() -> Self {
        Self { nature: Nature::Unknown, ..Self::new() }
    }

    /// Whether part of an event is held back.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// What goes on once `frame` has come.
    pub fn feed(&mut self, frame: &Bytes) -> Stripped {
        let mut out = Output::new(frame);
        let mut at = match self.nature {
            Nature::Events => self.skip_bom(frame),
            Nature::Unknown => self.decide(frame),
            Nature::NoEvents => frame.len(),
        };
        out.pass(0..at);
        // Where the open event's bytes begin in this frame.
        let mut event = at;
        let mut dropped = 0;
        while at < frame.len() {
            let after_cr = std::mem::replace(&mut self.after_cr, AfterCr::No);
            if after_cr != AfterCr::No && frame[at] == b'\n' {
                if after_cr == AfterCr::Lf && !self.open {
                    out.pass(at..at + 1);
                }
                at += 1;
                continue;
            }
            let begins = !std::mem::replace(&mut self.mid_line, false);
            if begins && matches!(frame[at], b'\r' | b'\n') {
                let end = self.line_end(frame, at);
                if !self.open {
                    out.pass(at..end);
                } else if self.end_event(event..end, &mut out) {
                    dropped += 1;
                    if self.after_cr == AfterCr::Lf {
                        self.after_cr = AfterCr::Dropped;
                    }
                }
                at = end;
                continue;
            }
            if begins && !self.open && frame[at] != b':' {
                self.open = true;
                event = at;
            }
            let end = match memchr2(b'\r', b'\n', &frame[at..]) {
                Some(length) => self.line_end(frame, at + length),
                None => {
                    self.mid_line = true;
                    frame.len()
                }
            };
            if !self.open {
                out.pass(at..end);
            }
            at = end;
        }
        if self.open {
            self.hold(event..frame.len(), &mut out);
        }
        Stripped { bytes: out.finish(), dropped }
    }

    /// The stream is over, in order or not: what of the event that was held goes on.
    pub fn finish(&mut self) -> Bytes {
        let held = std::mem::take(&mut self.held);
        self.open = false;
        match judge(&held) {
            Verdict::Keep => held.into(),
            Verdict::Cut(cut) => [&held[..cut.start], &held[cut.end..]].concat().into(),
            Verdict::Drop => comments(&held).concat().into(),
        }
    }

    /// The length of what belongs to a byte order mark at the stream's start.
    fn skip_bom(&mut self, frame: &[u8]) -> usize {
        let mut at = 0;
        while self.bom < BOM.len()
            && let Some(byte) = frame.get(at)
        {
            if *byte == BOM[self.bom] {
                self.bom += 1;
                at += 1;
            } else {
                // Not a mark after all, but the start of a first line of which part has gone on: let it all go.
                (self.open, self.over, self.mid_line) = (self.bom > 0, self.bom > 0, self.bom > 0);
                self.bom = BOM.len();
            }
        }
        at
    }

    /// Looks for the first byte that tells events from anything else; returns how much comes before the events.
    fn decide(&mut self, frame: &[u8]) -> usize {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || BOM.contains(byte);
        let Some(at) = frame.iter().position(|byte| !is_blank(byte)) else { return frame.len() };
        if matches!(frame[at], b'd' | b'e' | b'i' | b'r' | b':') {
            (self.nature, self.bom) = (Nature::Events, BOM.len());
            return at;
        }
        self.nature = Nature::NoEvents;
        frame.len()
    }

    /// The end of the line end at `at`; notes when its LF may come with the next frame.
    fn line_end(&mut self, frame: &[u8], at: usize) -> usize {
        match frame[at..] {
            [b'\r', b'\n', ..] => at + 2,
            [b'\r'] => {
                self.after_cr = AfterCr::Lf;
                at + 1
            }
            _ => at + 1,
        }
    }

    /// The open event ends with this part of the frame. Returns whether it does not go on.
    fn end_event(&mut self, part: Range<usize>, out: &mut Output<'_>) -> bool {
        self.open = false;
        if std::mem::replace(&mut self.over, false) {
            out.pass(part);
            return false;
        }
        let in_frame = self.held.is_empty();
        let event = if in_frame {
            &out.frame[part.clone()]
        } else {
            self.held.extend_from_slice(&out.frame[part.clone()]);
            &self.held
        };
        let verdict = judge(event);
        match &verdict {
            Verdict::Keep if in_frame => out.pass(part),
            Verdict::Keep => out.put(event),
            Verdict::Cut(cut) => {
                out.put(&event[..cut.start]);
                out.put(&event[cut.end..]);
            }
            Verdict::Drop => comments(event).into_iter().for_each(|line| out.put(line)),
        }
        self.held.clear();
        matches!(verdict, Verdict::Drop)
    }

    /// Holds the open event's part of this frame back, unless the event is too long by now.
    fn hold(&mut self, part: Range<usize>, out: &mut Output<'_>) {
        if !self.over && self.held.len() + part.len() <= CAP {
            self.held.extend_from_slice(&out.frame[part]);
            return;
        }
        self.over = true;
        out.put(&self.held);
        self.held = Vec::new();
        out.pass(part);
    }
}

impl Default for UsageStripper {
    fn default() -> Self {
        Self::new()
    }
}

/// What goes on of one frame: stretches that follow each other stay a part of it, anything else is put together.
struct Output<'a> {
    frame: &'a Bytes,
    stretch: Range<usize>,
    made: Vec<u8>,
}

impl<'a> Output<'a> {
    fn new(frame: &'a Bytes) -> Self {
        Self { frame, stretch: 0..0, made: Vec::new() }
    }

    fn pass(&mut self, part: Range<usize>) {
        if part.start == self.stretch.end {
            self.stretch.end = part.end;
        } else {
            self.settle();
            self.stretch = part;
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.settle();
        self.made.extend_from_slice(bytes);
    }

    fn settle(&mut self) {
        self.made.extend_from_slice(&self.frame[self.stretch.clone()]);
        self.stretch.start = self.stretch.end;
    }

    fn finish(mut self) -> Bytes {
        if self.made.is_empty() {
            return self.frame.slice(self.stretch);
        }
        self.settle();
        self.made.into()
    }
}

/// What becomes of an event, given with its blank line.
fn judge(event: &[u8]) -> Verdict {
    if event.len() > CAP || memmem::find(event, USAGE).is_none() {
        return Verdict::Keep;
    }
    let values = data_lines(event);
    let data = match &values[..] {
        [only] => Cow::Borrowed(&event[only.clone()]),
        many => Cow::Owned(many.iter().map(|value| &event[value.clone()]).collect::<Vec<_>>().join(&b'\n')),
    };
    let Ok(text) = str::from_utf8(&data) else { return Verdict::Keep };
    let (mut usages, mut choices, mut error, mut more) = (Vec::new(), Vec::new(), false, false);
    let is_object = members(text, |key, value| match &*key {
        "usage" => usages.push(value),
        "choices" => choices.push(value),
        "error" => error |= value != "null",
        key => more |= value != "null" && !KNOWN.contains(&key),
    });
    let ([usage], [choices], true, false) = (&usages[..], &choices[..], is_object, error) else {
        return Verdict::Keep;
    };
    let Some(inside) = choices.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Verdict::Keep;
    };
    if *usage == "null" {
        let cut = member(text, offset(text, usage), usage.len());
        return cut.and_then(|cut| place(&values, &cut)).map_or(Verdict::Keep, Verdict::Cut);
    }
    let is_usage_only = !more && usage.starts_with('{') && inside.trim_ascii().is_empty();
    if is_usage_only { Verdict::Drop } else { Verdict::Keep }
}

/// The `usage` member whose value has this place in `text`, with the comma that goes with it. `None` when its key is
/// spelt in another way than everybody's.
fn member(text: &str, value: usize, length: usize) -> Option<Range<usize>> {
    let before = text[..value].trim_ascii_end().strip_suffix(':')?.trim_ascii_end();
    let before = before.strip_suffix(r#""usage""#)?;
    let end = value + length;
    if let Some(others) = before.trim_ascii_end().strip_suffix(',') {
        return Some(others.len()..end);
    }
    let after = text[end..].trim_ascii_start();
    let rest = after.strip_prefix(',').map_or(&text[end..], str::trim_ascii_start);
    Some(before.len()..text.len() - rest.len())
}

/// Where a part of the joined data stands in the event. `None` when it lies on more than one line.
fn place(values: &[Range<usize>], part: &Range<usize>) -> Option<Range<usize>> {
    let mut start = 0;
    for value in values {
        let end = start + value.len();
        if (start..=end).contains(&part.start) {
            return (part.end <= end).then(|| part.start - start + value.start..part.end - start + value.start);
        }
        start = end + 1;
    }
    None
}

/// Where the values of an event's data lines stand.
fn data_lines(event: &[u8]) -> Vec<Range<usize>> {
    let mut values = Vec::new();
    each_line(event, |line, _| {
        let Some(value) = event[line.clone()].strip_prefix(b"data") else { return };
        match value {
            [b':', b' ', ..] => values.push(line.start + 6..line.end),
            [b':', ..] => values.push(line.start + 5..line.end),
            [] => values.push(line.end..line.end),
            _ => {}
        }
    });
    values
}

/// The comments among an event's lines, with their line ends.
fn comments(event: &[u8]) -> Vec<&[u8]> {
    let mut comments = Vec::new();
    each_line(event, |line, end| {
        if event[line.clone()].starts_with(b":") {
            comments.push(&event[line.start..end]);
        }
    });
    comments
}

/// Tells `each` of every line without its end, and of where the line after it begins.
fn each_line(event: &[u8], mut each: impl FnMut(Range<usize>, usize)) {
    let mut at = 0;
    while at < event.len() {
        let length = memchr2(b'\r', b'\n', &event[at..]).unwrap_or(event.len() - at);
        let end = match event[at + length..] {
            [] => at + length,
            [b'\r', b'\n', ..] => at + length + 2,
            _ => at + length + 1,
        };
        each(at..at + length, end);
        at = end;
    }
}

#[cfg(test)]
mod tests;
