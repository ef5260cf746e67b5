//! Which frame the client's socket has accepted, and when.
//!
//! hyper buffers and frames what the body yields, so a frame has left only when the socket has taken its last byte.
//! Positions in the connection's output are known once it has been flushed; from there each frame's end is computed
//! from its length and the framing (RFC 9112, section 7.1). A frame behind an unknown position counts as accepted at
//! the flush that includes it.
//!
//! Invariant: frames are delivered in order, each once.

use std::collections::VecDeque;
use std::time::Instant;

/// How the body is framed on the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Each frame becomes one chunk.
    Chunked,
    /// Frames follow each other as they are.
    Identity,
    /// Not shown: the connection's output is encrypted or shared with other replies, so positions count this body's bytes
    /// alone, of which it is told at flushes how many the socket has accepted. Exact as to which flush delivers a frame;
    /// what a full socket takes in parts counts at the flush that ends it.
    Counted,
}

/// What a frame held, for whoever is told of its delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cargo {
    /// When its read returned.
    pub(super) read_at: Option<Instant>,
    /// Events whose last byte it holds.
    pub(super) events: u32,
    /// A token event is among them.
    pub(super) token: bool,
}

/// What of a frame goes on to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Onward {
    /// The frame as it came.
    AsItCame,
    /// So many bytes, without this many of the events that ended in it. With no bytes there is no frame.
    Part { length: usize, dropped: u32 },
}

#[derive(Debug)]
struct Waiting {
    /// Where its last byte stands in the connection's output. `None` while that is unknown.
    end: Option<u64>,
    cargo: Cargo,
}

/// The frames on their way to the client's socket.
#[derive(Debug)]
pub(super) struct Delivery {
    framing: Framing,
    /// Where the next frame begins. `None` until the connection has been flushed once, unless only the body counts.
    next: Option<u64>,
    waiting: VecDeque<Waiting>,
    /// How many of the waiting have had their cargo written in.
    looked_at: usize,
}

impl Delivery {
    pub(super) fn new(framing: Framing) -> Self {
        let next = (framing == Framing::Counted).then_some(0);
        Self { framing, next, waiting: VecDeque::new(), looked_at: 0 }
    }

    /// A frame of `length` bytes was handed over.
    pub(super) fn push(&mut self, length: usize) {
        let length = length as u64;
        let (before, after) = match self.framing {
            _ if length == 0 => (0, 0),
            Framing::Chunked => (hex_digits(length) + 2, 2),
            Framing::Identity | Framing::Counted => (0, 0),
        };
        let end = self.next.map(|next| next + before + length);
        self.next = end.map(|end| end + after);
        self.waiting.push_back(Waiting { end, cargo: Cargo::default() });
    }

    /// Writes in what the next frame held; frames are looked at in the order they were pushed.
    pub(super) fn load(&mut self, cargo: Cargo) {
        if let Some(waiting) = self.waiting.get_mut(self.looked_at) {
            waiting.cargo = cargo;
            self.looked_at += 1;
        }
    }

    /// The socket has accepted `total` bytes; `deliver` is called for every frame that lies wholly within them.
    pub(super) fn accepted(&mut self, total: u64, mut deliver: impl FnMut(Cargo)) {
        while self.looked_at > 0 && self.waiting.front().is_some_and(|frame| frame.end.is_some_and(|end| end <= total))
        {
            self.pop(&mut deliver);
        }
    }

    /// The socket has accepted everything, `total` bytes in all.
    pub(super) fn flushed(&mut self, total: u64, mut deliver: impl FnMut(Cargo)) {
        while self.looked_at > 0 {
            self.pop(&mut deliver);
        }
        if self.waiting.is_empty() {
            self.next = Some(total);
        }
    }

    /// Whether a token event was handed over that the socket has not accepted.
    pub(super) fn holds_token(&self) -> bool {
        self.waiting.iter().any(|frame| frame.cargo.token)
    }

    fn pop(&mut self, deliver: &mut impl FnMut(Cargo)) {
        if let Some(frame) = self.waiting.pop_front() {
            self.looked_at -= 1;
            deliver(frame.cargo);
        }
    }
}

fn hex_digits(length: u64) -> u64 {
    u64::from(length.checked_ilog2().unwrap_or(0) / 4 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cargo(events: u32) -> Cargo {
        Cargo { events, ..Cargo::default() }
    }

    fn delivered(delivery: &mut Delivery, total: u64) -> Vec<u32> {
        let mut seen = Vec::new();
        delivery.accepted(total, |cargo| seen.push(cargo.events));
        seen
    }

    #[test]
    fn before_the_first_flush_only_a_flush_delivers() {
        let mut delivery = Delivery::new(Framing::Chunked);
        delivery.push(10);
        delivery.load(cargo(1));
        assert!(delivered(&mut delivery, 1_000).is_empty());
        let mut seen = 0;
        delivery.flushed(1_000, |_| seen += 1);
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_chunk_is_delivered_with_its_last_data_byte() {
        let mut delivery = Delivery::new(Framing::Chunked);
        delivery.flushed(100, |_| {});
        for (length, events) in [(15, 1), (16, 2), (0, 3), (300, 4)] {
            delivery.push(length);
            delivery.load(cargo(events));
        }
        // 100 + "F\r\n" + 15 = 118; + "\r\n" + "10\r\n" + 16 = 140; + "\r\n" = 142; + "12C\r\n" + 300 = 447
        assert!(delivered(&mut delivery, 117).is_empty());
        assert_eq!(delivered(&mut delivery, 118), [1]);
        assert!(delivered(&mut delivery, 139).is_empty());
        assert_eq!(delivered(&mut delivery, 140), [2]);
        assert_eq!(delivered(&mut delivery, 446), [3]);
        assert_eq!(delivered(&mut delivery, 447), [4]);
    }

    #[test]
    fn identity_frames_follow_each_other() {
        let mut delivery = Delivery::new(Framing::Identity);
        delivery.flushed(50, |_| {});
        delivery.push(5);
        delivery.load(cargo(1));
        delivery.push(5);
        delivery.load(cargo(2));
        assert_eq!(delivered(&mut delivery, 59), [1]);
        assert_eq!(delivered(&mut delivery, 60), [2]);
    }

    #[test]
    fn positions_in_the_body_alone_are_known_from_the_start() {
        let mut delivery = Delivery::new(Framing::Counted);
        for (length, events) in [(5, 1), (7, 2)] {
            delivery.push(length);
            delivery.load(cargo(events));
        }
        assert!(delivered(&mut delivery, 4).is_empty());
        assert_eq!(delivered(&mut delivery, 11), [1]);
        assert_eq!(delivered(&mut delivery, 12), [2]);
    }

    #[test]
    fn hex_digits_are_those_of_the_chunk_size() {
        for length in [1_u64, 9, 15, 16, 255, 256, 4_095, 4_096, 65_535, 65_536] {
            assert_eq!(hex_digits(length), format!("{length:X}").len() as u64);
        }
    }
}
