//! Server-sent events: fed bytes → events, by the rules of the
//! [WHATWG HTML standard, "Server-sent events"](https://html.spec.whatwg.org/multipage/server-sent-events.html).
//!
//! Invariants:
//! * The items do not depend on how the bytes were cut into reads.
//! * Reading never fails: what is no event is skipped, or reported as what it is.
//! * An event that lies whole within one read, the common case, is lent from it: no copy, no allocation.
//! * At most twice the cap is held, whatever the stream sends.

use memchr::{memchr, memchr2};

/// The cap that proxied streams use, in bytes: far above any honest chunk, far below what would hurt.
pub const DEFAULT_CAP: usize = 1 << 20;

/// The bytes of an event's name that are kept. No dialect has a name this long, so a cut one stays an unknown one.
const NAME_CAP: usize = 128;

/// `data: ` and `event: `, rounded up: how much longer than its value a line can be.
const LONGEST_PREFIX: usize = 8;

const BOM: &[u8] = "\u{feff}".as_bytes();

/// What the lines of a stream begin with.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];

/// Whether a reply that does not say what it is, and begins so, white space and byte order mark left out, is a stream of
/// events. `None` while too little has come to tell.
///
/// ```
/// use streamgauge::wire::sse::opens_stream;
///
/// assert_eq!(opens_stream(b"data: {}"), Some(true));
/// assert_eq!(opens_stream(b"ev"), None);
/// assert_eq!(opens_stream(b"error: overloaded"), Some(false));
/// ```
pub fn opens_stream(start: &[u8]) -> Option<bool> {
    if FIELDS.iter().any(|field| start.starts_with(field)) {
        return Some(true);
    }
    let may_yet = FIELDS.iter().any(|field| field.starts_with(start));
    if may_yet { None } else { Some(false) }
}

/// One event of the stream. Bytes, not text: invalid UTF-8 is left to the reader of `data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The last `event:` field, its first 128 bytes; empty when there was none, which the standard calls `message`.
    pub name: &'a [u8],
    /// The `data:` lines, joined with LF. Empty for a lone `data:`, which the standard does dispatch.
    pub data: &'a [u8],
}

/// What a stretch of the stream turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A complete event, ended by its blank line.
    Event(Event<'a>),
    /// An event whose blank line never came. The standard discards it; a truncated stream may have its usage here.
    Unterminated(Event<'a>),
    /// An event (or a stray block) above the cap, which was not kept: what it said is unknown. Reported once, at its end.
    Oversized {
        /// As of an [`Event`]; empty for a stray block.
        name: &'a [u8],
    },
    /// Unframed JSON: lines that start with `{` where a field belongs, joined with LF. Some relays write a bare error
    /// object into an event stream. It ends at a blank line, at the next known field or at the end of the stream.
    Stray(&'a [u8]),
}

/// Splits one stream into events. Feed it every read in order, then [`finish`](Self::finish) it.
///
/// ```
/// use streamgauge::wire::sse::{DEFAULT_CAP, Item, SseParser};
///
/// let mut parser = SseParser::new(DEFAULT_CAP);
/// let mut seen = Vec::new();
/// let mut on = |item: Item<'_>| {
///     if let Item::Event(event) = item {
///         seen.push(event.data.to_vec());
///     }
/// };
/// parser.feed(b": ping\n\ndata: hel", &mut on);
/// parser.feed(b"lo\r\n\r\n", &mut on);
/// parser.finish(&mut on);
/// assert_eq!(seen, [b"hello"]);
/// ```
#[derive(Debug)]
pub struct SseParser {
    cap: usize,
    /// How many bytes of a byte order mark have been seen; all of them once the start of the stream is behind us.
    bom: usize,
    /// The last read ended in a CR: an LF that opens the next one belongs to the same line end.
    after_cr: bool,
    /// The start of a line that the last read left unfinished, as far as it can matter.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Joined,
    stray: Joined,
}

impl SseParser {
    /// A parser at the start of a stream. An event whose data is longer than `cap` bytes is [`Item::Oversized`].
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            bom: 0,
            after_cr: false,
            line: Vec::new(),
            name: Vec::new(),
            data: Joined::default(),
            stray: Joined::default(),
        }
    }

    /// Reads on: `bytes` is one read, and `on` is told of each item that it completes, in order.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(Item<'_>)) {
        let mut bytes = self.skip_bom(bytes);
        if bytes.is_empty() {
            return;
        }
        if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
            bytes = &bytes[1..];
        }
        while !bytes.is_empty() {
            if self.is_between_events()
                && let Some((event, rest)) = whole_event(bytes, self.cap)
            {
                on(Item::Event(event));
                bytes = rest;
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', bytes) else {
                self.keep(bytes);
                return;
            };
            if self.line.is_empty() {
                self.end_line(&bytes[..end], on);
            } else {
                self.keep(&bytes[..end]);
                self.end_kept_line(on);
            }
            bytes = if let Some(rest) = after_line_end(&bytes[end..]) {
                rest
            } else {
                self.after_cr = true;
                &[]
            };
        }
    }

    /// Ends the stream: reports what its last lines left over, even a line without its end.
    pub fn finish(&mut self, on: &mut impl FnMut(Item<'_>)) {
        if !self.line.is_empty() {
            self.end_kept_line(on);
        }
        self.end_stray(on);
        self.end_event(false, on);
    }

    /// Consumes a byte order mark at the very start of the stream, which may come in pieces.
    fn skip_bom<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while self.bom < BOM.len()
            && let Some((first, rest)) = bytes.split_first()
        {
            if *first == BOM[self.bom] {
                self.bom += 1;
                bytes = rest;
            } else {
                // Not a mark after all: what was taken for one opens the first line.
                self.keep(&BOM[..self.bom]);
                self.bom = BOM.len();
            }
        }
        bytes
    }

    fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.data.present && !self.stray.present && self.name.is_empty()
    }

    /// Keeps the next part of an unfinished line: all of it, unless it is too long to matter any more.
    fn keep(&mut self, part: &[u8]) {
        // A data or stray line that fills this room exceeds the cap all the same, and an event line fills the name.
        let room = self.cap.saturating_sub(self.data.bytes.len()).max(NAME_CAP) + LONGEST_PREFIX;
        let free = room.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(free)]);
    }

    fn end_kept_line(&mut self, on: &mut impl FnMut(Item<'_>)) {
        let mut line = std::mem::take(&mut self.line);
        self.end_line(&line, on);
        line.clear();
        self.line = line;
    }

    /// Interprets a line, whole or [kept](Self::keep) as far as it can matter.
    fn end_line(&mut self, line: &[u8], on: &mut impl FnMut(Item<'_>)) {
        if line.is_empty() {
            self.end_stray(on);
            self.end_event(true, on);
            return;
        }
        let (field, value) = split_field(line);
        match field {
            b"" => {} // A comment.
            b"data" => {
                self.end_stray(on);
                self.data.add(value, self.cap);
            }
            b"event" => {
                self.end_stray(on);
                self.name.clear();
                self.name.extend_from_slice(cut_name(value));
            }
            b"id" | b"retry" => self.end_stray(on), // They serve reconnection, which is the client's affair.
            _ if self.stray.present || line.trim_ascii_start().starts_with(b"{") => {
                self.stray.add(line, self.cap.saturating_sub(self.data.bytes.len()));
            }
            _ => {}
        }
    }

    fn end_stray(&mut self, on: &mut impl FnMut(Item<'_>)) {
        if self.stray.present {
            on(if self.stray.over { Item::Oversized { name: b"" } } else { Item::Stray(&self.stray.bytes) });
            self.stray.clear();
        }
    }

    /// Reports the event at hand. Without a data line there is none: the standard then only forgets the name.
    fn end_event(&mut self, blank_line: bool, on: &mut impl FnMut(Item<'_>)) {
        if self.data.present {
            let event = Event { name: &self.name, data: &self.data.bytes };
            on(match (self.data.over, blank_line) {
                (true, _) => Item::Oversized { name: event.name },
                (false, true) => Item::Event(event),
                (false, false) => Item::Unterminated(event),
            });
            self.data.clear();
        }
        self.name.clear();
    }
}

/// Lines joined with LF, up to a cap.
#[derive(Debug, Default)]
struct Joined {
    bytes: Vec<u8>,
    /// There was a line, if only an empty one.
    present: bool,
    /// The lines exceeded the cap, and `bytes` was let go.
    over: bool,
}

impl Joined {
    fn add(&mut self, line: &[u8], cap: usize) {
        let joint = usize::from(self.present);
        self.present = true;
        if self.over || self.bytes.len() + joint + line.len() > cap {
            self.over = true;
            self.bytes = Vec::new();
            return;
        }
        if joint == 1 {
            self.bytes.push(b'\n');
        }
        self.bytes.extend_from_slice(line);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.present = false;
        self.over = false;
    }
}

/// The event that opens `bytes`, and what follows it, when it has the common form and is all there: at most a name,
/// one line of data, a blank line. `None` says nothing: the line-by-line way then decides.
#[inline]
fn whole_event(bytes: &[u8], cap: usize) -> Option<(Event<'_>, &[u8])> {
    let (name, bytes) = match bytes.strip_prefix(b"event:") {
        None => (&[][..], bytes),
        Some(line) => {
            let end = memchr2(b'\r', b'\n', line)?;
            (cut_name(strip_space(&line[..end])), after_line_end(&line[end..])?)
        }
    };
    let line = bytes.strip_prefix(b"data:")?;
    let end = memchr2(b'\r', b'\n', line)?;
    let data = strip_space(&line[..end]);
    let blank = after_line_end(&line[end..])?;
    if data.len() > cap || !matches!(blank.first(), Some(b'\n' | b'\r')) {
        return None;
    }
    Some((Event { name, data }, after_line_end(blank)?))
}

/// What follows the line end that opens `bytes`. `None` for a CR at the end of the read, which may lack its LF.
#[inline]
fn after_line_end(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [b'\r'] | [] => None,
        [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => Some(rest),
    }
}

/// A line's field name and value. A comment has the empty name; a line without a colon is all name.
fn split_field(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b':', line) {
        Some(colon) => (&line[..colon], strip_space(&line[colon + 1..])),
        None => (line, &[]),
    }
}

fn strip_space(value: &[u8]) -> &[u8] {
    value.strip_prefix(b" ").unwrap_or(value)
}

fn cut_name(name: &[u8]) -> &[u8] {
    &name[..name.len().min(NAME_CAP)]
}

#[cfg(test)]
mod tests;
