//! The events of one write: their bytes, framed, and how the log will name them.
//!
//! Invariant: one SSE event is one mark, and in a chunked body one chunk (RFC 9112, section 7.1).

use std::io::Write as _;

use super::log::Kind;

/// What a log says of one event beside its instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) kind: Kind,
    pub(super) choice: u32,
    /// How many tokens it carries.
    pub(super) tokens: u32,
}

/// Events that leave together, in order.
#[derive(Debug)]
pub(super) struct Events {
    pub(super) bytes: Vec<u8>,
    pub(super) marks: Vec<Mark>,
    chunked: bool,
    scratch: Vec<u8>,
}

impl Events {
    pub(super) fn new(chunked: bool) -> Self {
        Self { bytes: Vec::new(), marks: Vec::new(), chunked, scratch: Vec::with_capacity(512) }
    }

    /// Appends one event: the lines that `write` appends, and the blank line after them.
    pub(super) fn push(&mut self, mark: Mark, write: impl FnOnce(&mut Vec<u8>)) {
        self.marks.push(mark);
        if !self.chunked {
            write(&mut self.bytes);
            return self.bytes.extend_from_slice(b"\n\n");
        }
        self.scratch.clear();
        write(&mut self.scratch);
        self.scratch.extend_from_slice(b"\n\n");
        write_chunk(&self.scratch, &mut self.bytes);
    }

    /// Forgets them; the room they took stays.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.marks.clear();
    }
}

/// Appends `data` as one chunk of a chunked body. Nothing for empty data, which would end it.
pub(super) fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    if !data.is_empty() {
        put(out, format_args!("{:x}\r\n", data.len()));
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

/// The end of a chunked body.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends formatted text.
pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A vector takes every write.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_chunk_or_none() {
        let mark = |kind, tokens| Mark { kind, choice: 0, tokens };
        for (chunked, expected) in
            [(true, "9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n"), (false, "data: 1\n\ndata: 2\n\n")]
        {
            let mut events = Events::new(chunked);
            events.push(mark(Kind::Token, 3), |out| out.extend_from_slice(b"data: 1"));
            events.push(mark(Kind::Finish, 0), |out| out.extend_from_slice(b"data: 2"));
            assert_eq!(String::from_utf8_lossy(&events.bytes), expected);
            assert_eq!(events.marks, [mark(Kind::Token, 3), mark(Kind::Finish, 0)]);
            events.clear();
            assert!(events.bytes.is_empty() && events.marks.is_empty());
        }
    }
}
