//! The instants of each stream of a connection, taken where its frames cross the socket.
//!
//! Streams share reads and writes, and hyper takes frames in and hands them on in different turns. So the instant of a
//! frame is noted in the read or write that carried its last byte, and looked up when the frame is handed on: it is as
//! exact as on a connection of HTTP/1.1, and other streams do not move it.
//!
//! Invariant: what is kept is bounded. Only streams of ours are known, as long as they run, and of each at most
//! [`MOST_READS`] reads that were not handed on yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::frames::{Frames, Told};
use crate::clock::ReadStamp;
use crate::transport::Io;

/// How many reads of one stream are kept apart; beyond, the last one stands for what it joins.
const MOST_READS: usize = 1024;

/// What is known of a connection and its streams.
pub(super) struct Watch {
    known: Mutex<Known>,
    io: Arc<Io>,
    /// Rings when the server has said what it speaks, or is gone.
    pub(super) greeted: Notify,
}

#[derive(Default)]
struct Known {
    streams: HashMap<u32, Marks>,
    /// How many streams hyper was given.
    opened: u32,
    /// How many requests are on their way, from before hyper takes them.
    active: usize,
    /// How many may be. `None` where the server sets no bound.
    most: Option<u32>,
    /// Streams whose last frame was taken and may not have reached the socket yet.
    held_back: Vec<u32>,
    greeting: Option<Greeting>,
    /// The server closed the connection.
    ended: bool,
    /// It takes no more requests, by its own word or ours.
    retired: bool,
    /// The last stream that the server says it may process. `None` while it sets no end.
    last: Option<u32>,
    /// A stream that failed before its head left. The numbers above it may not be those of the wire.
    doubtful: Option<u32>,
    /// When a request was last on its way.
    used: Option<Instant>,
}

/// What a server spoke first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Settings.
    Http2,
    /// Anything else.
    Other,
}

#[derive(Default)]
struct Marks {
    headers_left: bool,
    sent: Option<Instant>,
    wrote: Option<Instant>,
    head: Option<ReadStamp>,
    last_read: Option<ReadStamp>,
    /// Reads that brought data which was not handed on, each with how much had come after it.
    reads: VecDeque<(u64, ReadStamp)>,
    received: u64,
    reset: bool,
    /// The server reset it without having processed it.
    refused: bool,
}

/// What is known of a piece of data that is handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// The read that brought its last byte; beyond what is remembered, the stream's last. `None` where nothing is
    /// known of the stream.
    pub(super) stamp: Option<ReadStamp>,
    /// More of the stream's data was read already.
    pub(super) more: bool,
}

impl Watch {
    pub(super) fn new(io: Arc<Io>) -> Arc<Self> {
        Arc::new(Self { known: Mutex::default(), io, greeted: Notify::new() })
    }

    /// Counts a request in.
    pub(super) fn enter(&self) {
        self.known().active += 1;
    }

    /// Numbers the next stream. hyper opens streams in the order in which it takes requests, and numbers them so.
    pub(super) fn open(&self) -> u32 {
        let mut known = self.known();
        let stream = known.opened * 2 + 1;
        known.opened += 1;
        known.streams.insert(stream, Marks::default());
        stream
    }

    /// Counts a request out. `stream` is `None` when hyper never took it.
    pub(super) fn leave(&self, stream: Option<u32>, now: Instant) {
        let mut known = self.known();
        known.active -= 1;
        known.used = Some(now);
        if let Some(stream) = stream {
            known.streams.remove(&stream);
        }
    }

    /// How many requests are on their way.
    pub(super) fn active(&self) -> usize {
        self.known().active
    }

    /// Whether one more may be.
    pub(super) fn has_room(&self) -> bool {
        let known = self.known();
        known.most.is_none_or(|most| known.active < usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Since when nothing is on its way. `None` while something is, and before anything was.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let known = self.known();
        known.used.filter(|_| known.active == 0)
    }

    /// What the server spoke first. `None` before it, or where it closed without a word.
    pub(super) fn greeting(&self) -> Option<Greeting> {
        self.known().greeting
    }

    /// Whether the server closed the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.known().ended
    }

    /// Looks at a request that failed. If nothing of it was on the wire, hyper may have numbered those after it
    /// differently: nothing is told of them, and the connection takes no more. Those before it had their numbers.
    ///
    /// Returns whether the server provably did nothing about it: its head never left, or the server said so (RFC 9113,
    /// section 8.7).
    pub(super) fn failed(&self, stream: u32) -> bool {
        let mut known = self.known();
        let last = known.last;
        let Some(marks) = known.certain(stream) else { return false };
        let (left, refused) = (marks.headers_left, marks.refused);
        if !left {
            known.doubtful = Some(stream);
            known.retired = true;
        }
        !left || refused || last.is_some_and(|last| stream > last)
    }

    /// From now on it takes no more requests.
    pub(super) fn retire(&self) {
        self.known().retired = true;
    }

    /// Retires it if nothing at all was read from it for `time`: the way there may be dead, which TCP tells only much later.
    pub(super) fn retire_if_silent(&self, time: Duration) {
        if self.io.last_read().is_none_or(|stamp| stamp.at.elapsed() >= time) {
            self.retire();
        }
    }

    /// Whether it takes no more requests: it has ended, is about to, or was told to retire.
    pub(super) fn is_retired(&self) -> bool {
        let known = self.known();
        known.retired || known.ended
    }

    /// When the last byte of a stream's request was accepted by the socket. `None` before.
    pub(super) fn sent(&self, stream: u32) -> Option<Instant> {
        self.of(stream, |marks| marks.sent)
    }

    /// When the last bytes so far of a stream's request were. Of a doubtful stream, the connection's last: for limits of
    /// time, which nothing that moves may fall under.
    pub(super) fn wrote(&self, stream: u32) -> Option<Instant> {
        match self.known().certain(stream) {
            Some(marks) => marks.wrote,
            None => self.io.last_write(),
        }
    }

    /// The read that brought the end of a reply's head. `None` before.
    pub(super) fn head(&self, stream: u32) -> Option<ReadStamp> {
        self.of(stream, |marks| marks.head)
    }

    /// The last read that brought anything of a stream. Of a doubtful stream, the connection's last, as for
    /// [`Self::wrote`].
    pub(super) fn last_read(&self, stream: u32) -> Option<ReadStamp> {
        match self.known().certain(stream) {
            Some(marks) => marks.last_read,
            None => self.io.last_read(),
        }
    }

    /// Whether the server reset a stream.
    pub(super) fn was_reset(&self, stream: u32) -> bool {
        self.of(stream, |marks| Some(marks.reset)).unwrap_or(false)
    }

    /// What is known of byte number `count` of a stream's data, all up to it being handed on.
    pub(super) fn take_read(&self, stream: u32, count: u64) -> Option<Taken> {
        let mut known = self.known();
        let marks = known.certain(stream)?;
        while marks.reads.front().is_some_and(|&(end, _)| end < count) {
            marks.reads.pop_front();
        }
        let stamp = marks.reads.front().map(|&(_, stamp)| stamp).or(marks.last_read);
        Some(Taken { stamp, more: marks.received > count })
    }

    fn of<T>(&self, stream: u32, look: impl FnOnce(&Marks) -> Option<T>) -> Option<T> {
        self.known().certain(stream).and_then(|marks| look(marks))
    }

    pub(super) fn read(&self, frames: &mut Frames, bytes: &[u8]) {
        let Some(stamp) = self.io.last_read() else { return };
        let mut known = self.known();
        frames.feed(bytes, |told| known.arrived(told, stamp));
        self.tell_greeting(&known);
    }

    pub(super) fn wrote_bytes(&self, frames: &mut Frames, bytes: impl Iterator<Item = impl AsRef<[u8]>>) {
        let Some(at) = self.io.last_write() else { return };
        let mut known = self.known();
        for bytes in bytes {
            frames.feed(bytes.as_ref(), |told| known.left(told, at));
        }
    }

    /// The socket has accepted everything written so far.
    pub(super) fn accepted(&self) {
        let mut known = self.known();
        let at = self.io.last_write();
        for stream in std::mem::take(&mut known.held_back) {
            if let Some(marks) = known.streams.get_mut(&stream) {
                (marks.sent, marks.wrote) = (at, at);
            }
        }
    }

    pub(super) fn ended(&self) {
        let mut known = self.known();
        known.ended = true;
        self.tell_greeting(&known);
    }

    fn tell_greeting(&self, known: &Known) {
        if known.greeting.is_some() || known.ended {
            self.greeted.notify_one();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// A stream, where its number is that of the wire.
    fn certain(&mut self, stream: u32) -> Option<&mut Marks> {
        if self.doubtful.is_some_and(|doubtful| stream > doubtful) { None } else { self.streams.get_mut(&stream) }
    }

    fn arrived(&mut self, told: Told, stamp: ReadStamp) {
        let (Told::Headers { stream, .. } | Told::Data { stream, .. } | Told::Reset { stream, .. }) = told else {
            match told {
                Told::MostStreams(most) => self.most = Some(most),
                Told::GoAway { last } => {
                    self.retired = true;
                    self.last = Some(self.last.map_or(last, |before| before.min(last)));
                }
                Told::NotHttp2 => self.greeting = Some(Greeting::Other),
                _ => self.greeting = self.greeting.or(Some(Greeting::Http2)),
            }
            return;
        };
        let Some(marks) = self.streams.get_mut(&stream) else { return };
        marks.last_read = Some(stamp);
        match told {
            // Interim heads come before the final one, trailers after data.
            Told::Headers { .. } if marks.received == 0 => marks.head = Some(stamp),
            Told::Data { bytes, .. } if bytes > 0 => {
                marks.received += bytes as u64;
                let full = marks.reads.len() == MOST_READS;
                match marks.reads.back_mut() {
                    Some(last) if full || last.1.number == stamp.number => *last = (marks.received, stamp),
                    _ => marks.reads.push_back((marks.received, stamp)),
                }
            }
            Told::Reset { refused, .. } => (marks.reset, marks.refused) = (true, refused),
            _ => {}
        }
    }

    fn left(&mut self, told: Told, at: Instant) {
        let (stream, last) = match told {
            Told::Headers { stream, last } | Told::Data { stream, last, .. } => (stream, last),
            Told::Reset { .. } | Told::GoAway { .. } | Told::MostStreams(_) | Told::Settings | Told::NotHttp2 => {
                return;
            }
        };
        let Some(marks) = self.streams.get_mut(&stream) else { return };
        marks.headers_left = true;
        marks.wrote = Some(at);
        if last {
            self.held_back.push(stream);
        }
    }
}

#[cfg(test)]
mod tests;
