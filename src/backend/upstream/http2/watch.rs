//! The instants of each stream of a connection, taken where its frames cross the socket.
//!
//! Streams share reads and writes, and hyper takes frames in and hands them on in different turns. So the instant of a
//! frame is noted in the read or write that carried its last byte, and looked up when the frame is handed on: it is as
//! exact as on a connection of HTTP/1.1, and other streams do not move it.
//!
//! Invariant: what is kept is bounded. Only streams of ours are known, as long as they run, and of each at most
//! [`MOST_READS`] reads that were not handed on yet.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::super::stream::Stream;
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
    /// Numbers may not be those of the wire any more.
    astray: bool,
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

    /// Looks whether a request that failed was on the wire. If it was not, hyper may have numbered others differently:
    /// from then on nothing is told of the streams here.
    pub(super) fn failed(&self, stream: Option<u32>) {
        let mut known = self.known();
        let unseen = stream.is_some_and(|stream| known.streams.get(&stream).is_some_and(|marks| !marks.headers_left));
        known.astray |= unseen;
    }

    /// Whether numbers may be wrong, so that the connection should take no more requests.
    pub(super) fn is_astray(&self) -> bool {
        self.known().astray
    }

    /// When the last byte of a stream's request was accepted by the socket. `None` before.
    pub(super) fn sent(&self, stream: u32) -> Option<Instant> {
        self.of(stream, |marks| marks.sent)
    }

    /// When the last bytes so far of a stream's request were.
    pub(super) fn wrote(&self, stream: u32) -> Option<Instant> {
        self.of(stream, |marks| marks.wrote)
    }

    /// The read that brought the end of a reply's head. `None` before.
    pub(super) fn head(&self, stream: u32) -> Option<ReadStamp> {
        self.of(stream, |marks| marks.head)
    }

    /// The last read that brought anything of a stream.
    pub(super) fn last_read(&self, stream: u32) -> Option<ReadStamp> {
        self.of(stream, |marks| marks.last_read)
    }

    /// Whether the server reset a stream.
    pub(super) fn was_reset(&self, stream: u32) -> bool {
        self.of(stream, |marks| Some(marks.reset)).unwrap_or(false)
    }

    /// The read that brought byte number `count` of a stream's data, all before it being handed on. Without one, the
    /// connection's last read.
    pub(super) fn take_read(&self, stream: u32, count: u64) -> Option<ReadStamp> {
        let found = {
            let mut known = self.known();
            let marks = if known.astray { None } else { known.streams.get_mut(&stream) };
            marks.and_then(|marks| {
                while marks.reads.front().is_some_and(|&(end, _)| end < count) {
                    marks.reads.pop_front();
                }
                marks.reads.front().map(|&(_, stamp)| stamp)
            })
        };
        found.or_else(|| self.io.last_read())
    }

    fn of<T>(&self, stream: u32, look: impl FnOnce(&Marks) -> Option<T>) -> Option<T> {
        let known = self.known();
        if known.astray { None } else { known.streams.get(&stream).and_then(look) }
    }

    fn read(&self, frames: &mut Frames, bytes: &[u8]) {
        let Some(stamp) = self.io.last_read() else { return };
        let mut known = self.known();
        frames.feed(bytes, |told| known.arrived(told, stamp));
        self.tell_greeting(&known);
    }

    fn wrote_bytes(&self, frames: &mut Frames, bytes: impl Iterator<Item = impl AsRef<[u8]>>) {
        let Some(at) = self.io.last_write() else { return };
        let mut known = self.known();
        for bytes in bytes {
            frames.feed(bytes.as_ref(), |told| known.left(told, at));
        }
    }

    /// The socket has accepted everything written so far.
    fn accepted(&self) {
        let mut known = self.known();
        let at = self.io.last_write();
        for stream in std::mem::take(&mut known.held_back) {
            if let Some(marks) = known.streams.get_mut(&stream) {
                (marks.sent, marks.wrote) = (at, at);
            }
        }
    }

    fn ended(&self) {
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
    fn arrived(&mut self, told: Told, stamp: ReadStamp) {
        let (Told::Headers { stream, .. } | Told::Data { stream, .. } | Told::Reset { stream }) = told else {
            match told {
                Told::MostStreams(most) => self.most = Some(most),
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
            Told::Reset { .. } => marks.reset = true,
            _ => {}
        }
    }

    fn left(&mut self, told: Told, at: Instant) {
        let (stream, last) = match told {
            Told::Headers { stream, last } | Told::Data { stream, last, .. } => (stream, last),
            Told::Reset { .. } | Told::MostStreams(_) | Told::Settings | Told::NotHttp2 => return,
        };
        let Some(marks) = self.streams.get_mut(&stream) else { return };
        marks.headers_left = true;
        marks.wrote = Some(at);
        if last {
            self.held_back.push(stream);
        }
    }
}

/// A connection, watched.
pub(super) struct Watched {
    inner: Stream,
    watch: Arc<Watch>,
    incoming: Frames,
    outgoing: Frames,
}

impl Watched {
    pub(super) fn new(inner: Stream, watch: Arc<Watch>) -> Self {
        Self { inner, watch, incoming: Frames::of_server(), outgoing: Frames::of_client() }
    }

    fn wrote(&mut self, bytes: impl Iterator<Item = impl AsRef<[u8]>>) {
        self.watch.wrote_bytes(&mut self.outgoing, bytes);
        if !self.inner.holds_back() {
            self.watch.accepted();
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        match &buf.filled()[before..] {
            [] => this.watch.ended(),
            bytes => this.watch.read(&mut this.incoming, bytes),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let accepted = ready!(Pin::new(&mut this.inner).poll_write(cx, buf))?;
        this.wrote(std::iter::once(&buf[..accepted]));
        Poll::Ready(Ok(accepted))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let accepted = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, bufs))?;
        let mut left = accepted;
        let taken = bufs.iter().map(|buf| {
            let taken = left.min(buf.len());
            left -= taken;
            &buf[..taken]
        });
        this.wrote(taken);
        Poll::Ready(Ok(accepted))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_flush(cx))?;
        this.watch.accepted();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn watch(streams: usize) -> (Arc<Watch>, Instant) {
        let watch = Watch::new(Arc::default());
        assert_eq!((0..streams).map(|_| watch.open()).collect::<Vec<_>>(), [1, 3, 5][..streams]);
        (watch, Instant::now())
    }

    fn stamp(start: Instant, number: u64) -> ReadStamp {
        ReadStamp { at: start + Duration::from_millis(number), number }
    }

    /// Data arrives, as (read, stream, bytes).
    fn arrive(watch: &Watch, start: Instant, data: &[(u64, u32, usize)]) {
        for &(read, stream, bytes) in data {
            watch.known().arrived(Told::Data { stream, bytes, last: false }, stamp(start, read));
        }
    }

    #[test]
    fn each_frame_has_the_read_that_ended_it_whenever_it_is_handed_on() {
        let (watch, start) = watch(2);
        // Two streams in turns; the first has two frames in one read, and one of its frames is empty.
        arrive(
            &watch,
            start,
            &[(1, 1, 10), (1, 3, 5), (2, 1, 10), (2, 1, 7), (3, 3, 1), (4, 1, 0), (5, 1, 3), (6, 9, 4)],
        );
        let reads = |stream, ends: &[u64]| -> Vec<u64> {
            ends.iter().map(|&end| watch.take_read(stream, end).map_or(0, |stamp| stamp.number)).collect()
        };
        assert_eq!(reads(1, &[10, 20, 27, 30]), [1, 2, 2, 5]);
        assert_eq!(reads(3, &[5, 6]), [1, 3]);
        assert_eq!(watch.last_read(1), Some(stamp(start, 5)));
        // A stream of nobody's leaves nothing behind, nor does one that is over.
        assert_eq!((reads(9, &[4]), watch.last_read(9)), (vec![0], None));
        watch.enter();
        watch.leave(Some(1), start);
        assert!(watch.last_read(1).is_none() && watch.known().streams.len() == 1);
    }

    #[test]
    fn reads_that_nobody_takes_are_bounded_and_the_last_stands_for_them() {
        let (watch, start) = watch(1);
        let most = MOST_READS as u64;
        for read in 1..=most + 10 {
            arrive(&watch, start, &[(read, 1, 1)]);
        }
        assert_eq!(watch.known().streams[&1].reads.len(), MOST_READS);
        assert_eq!(watch.take_read(1, most - 1), Some(stamp(start, most - 1)));
        assert_eq!(watch.take_read(1, most + 3), Some(stamp(start, most + 10)));
    }

    #[test]
    fn a_head_is_the_last_before_data_and_a_reset_is_the_streams_own() {
        let (watch, start) = watch(2);
        let headers = |read| watch.known().arrived(Told::Headers { stream: 1, last: false }, stamp(start, read));
        headers(1);
        headers(2);
        arrive(&watch, start, &[(3, 1, 1)]);
        headers(4);
        assert_eq!((watch.head(1), watch.last_read(1)), (Some(stamp(start, 2)), Some(stamp(start, 4))));
        watch.known().arrived(Told::Reset { stream: 3 }, stamp(start, 5));
        assert!(watch.was_reset(3) && !watch.was_reset(1));
    }

    #[test]
    fn a_request_is_sent_with_its_own_last_frame() {
        let (watch, start) = watch(2);
        let at = |millis| start + Duration::from_millis(millis);
        let left = |stream, last, millis| watch.known().left(Told::Data { stream, bytes: 1, last }, at(millis));
        left(1, false, 1);
        left(3, true, 2);
        assert_eq!((watch.wrote(1), watch.sent(1), watch.sent(3)), (Some(at(1)), None, None));
        assert_eq!(watch.known().held_back, [3]);
        left(1, true, 3);
        assert_eq!(watch.known().held_back, [3, 1]);
    }

    #[test]
    fn a_request_that_never_reached_the_wire_makes_the_numbers_doubtful() {
        let (watch, start) = watch(2);
        watch.known().left(Told::Headers { stream: 1, last: true }, start);
        watch.failed(Some(1));
        watch.failed(None);
        assert!(!watch.is_astray() && watch.wrote(1).is_some());
        watch.failed(Some(3));
        assert!(watch.is_astray() && watch.wrote(1).is_none());
    }

    #[test]
    fn a_servers_bound_is_kept() {
        let (watch, start) = watch(0);
        for most in [1, 2] {
            watch.known().arrived(Told::MostStreams(most), stamp(start, 1));
            assert!(watch.has_room());
            watch.enter();
            assert!(!watch.has_room());
        }
        assert_eq!((watch.idle_since(), watch.active()), (None, 2));
        watch.leave(None, start);
        watch.leave(None, start);
        assert!(watch.has_room() && watch.idle_since() == Some(start));
    }
}
