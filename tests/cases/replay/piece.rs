//! A stretch of a body and what a reader of the definitions makes of it, said by whoever wrote the case.

/// Bytes that end with what they are: an event with its blank line, or something that is none.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: Kind,
    /// A finish reason becomes known with it.
    pub(crate) finishes: bool,
    /// What goes on to a client for whom only we asked for usage. `None` for all of it.
    pub(crate) never_asked: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// No event.
    Nothing,
    /// An event without output.
    Event,
    /// A token event for these choices.
    Tokens { choices: Vec<u32>, answer: bool, carries: u64 },
    /// An event above the observer's cap.
    Unreadable,
}

/// Bytes that are no event.
pub(crate) fn nothing(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece { bytes: bytes.into(), kind: Kind::Nothing, finishes: false, never_asked: None }
}

/// An event without output.
pub(crate) fn event(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece { kind: Kind::Event, ..nothing(bytes) }
}

/// A token event of choice 0.
pub(crate) fn token(bytes: impl Into<Vec<u8>>) -> Piece {
    tokens(&[0], bytes)
}

/// A token event of these choices.
pub(crate) fn tokens(choices: &[u32], bytes: impl Into<Vec<u8>>) -> Piece {
    Piece { kind: Kind::Tokens { choices: choices.to_vec(), answer: true, carries: 1 }, ..nothing(bytes) }
}

/// A token event of choice 0 that carries reasoning only.
pub(crate) fn reasoning(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece { kind: Kind::Tokens { choices: vec![0], answer: false, carries: 1 }, ..nothing(bytes) }
}

/// An event above the observer's cap.
pub(crate) fn unreadable(bytes: impl Into<Vec<u8>>) -> Piece {
    Piece { kind: Kind::Unreadable, ..nothing(bytes) }
}

impl Piece {
    /// With it comes a finish reason.
    pub(crate) fn finishing(self) -> Self {
        Self { finishes: true, ..self }
    }

    /// Had nobody asked for usage, it would have been this.
    pub(crate) fn never_asked(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { never_asked: Some(bytes.into()), ..self }
    }

    /// It says that it carries this many tokens.
    pub(crate) fn carrying(mut self, count: u64) -> Self {
        if let Kind::Tokens { carries, .. } = &mut self.kind {
            *carries = count;
        }
        self
    }

    /// The byte, counted from the piece's start, that completes it: its last, or the CR of a CRLF at its end, since a
    /// CR alone ends a line.
    pub(crate) fn completed_by(&self) -> usize {
        self.bytes.len() - if self.bytes.ends_with(b"\r\n") { 2 } else { 1 }
    }
}
