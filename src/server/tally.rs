//! How much of a reply's body has reached the client's socket, where its place in the connection's output is not known:
//! under TLS, and where HTTP/2 mixes the streams.
//!
//! The body's data are [`Portion`]s, which note when HTTP takes their bytes to write them: copies them to its buffer, or
//! has written them out of theirs. HTTP flushes its socket only after everything taken has been written, and TLS after it
//! has sent everything it has encrypted; so at a flush of the [`Transport`](crate::transport::Transport) the bytes
//! taken are those the socket has accepted. This holds for each stream of HTTP/2 by itself: what flow control holds back
//! is not taken. Between flushes nothing is known, so bytes that a full socket took in parts count at the flush that
//! follows.
//!
//! Invariant: totals count this body's bytes alone, and whoever listens to a body hears of its last byte or of its loss.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use crate::transport::{Outlet, WriteListener};

/// The bodies of one connection that wait to hear of a flush.
pub(super) struct Tallies {
    /// `None` once the connection is gone.
    waiting: Mutex<Option<Vec<Arc<Tally>>>>,
}

impl Tallies {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::new(Some(Vec::new())) })
    }

    /// For one more body.
    pub(super) fn tally(self: &Arc<Self>) -> Arc<Tally> {
        Arc::new(Tally {
            handed: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            told: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            awaits: Mutex::new(None),
            listener: Mutex::new(None),
            connection: self.clone(),
        })
    }
}

impl WriteListener for Tallies {
    fn partial(&self, _: u64, _: Instant) {}

    fn flushed(&self, _: u64, at: Instant) -> bool {
        if let Some(waiting) = &mut *lock(&self.waiting) {
            waiting.retain(|tally| !tally.flushed(at));
        }
        true
    }

    fn closed(&self) {
        let waiting = lock(&self.waiting).take();
        for tally in waiting.into_iter().flatten() {
            tally.lost();
        }
    }
}

/// How far one body has come.
pub(super) struct Tally {
    /// Bytes handed to HTTP.
    handed: AtomicU64,
    /// Bytes that HTTP has taken to write them.
    taken: AtomicU64,
    /// What the listener was told last.
    told: AtomicU64,
    /// It is among those that hear of the next flush.
    waits: AtomicBool,
    /// Somebody is to be woken once nothing waits to be taken.
    awaited: AtomicBool,
    awaits: Mutex<Option<Waker>>,
    listener: Mutex<Option<Arc<dyn WriteListener>>>,
    connection: Arc<Tallies>,
}

impl Tally {
    /// Bytes that HTTP has taken. `None` while nothing waits to be taken.
    pub(super) fn taken_of_more(&self) -> Option<u64> {
        let taken = self.taken.load(Relaxed);
        (taken < self.handed.load(Relaxed)).then_some(taken)
    }

    /// Ready when nothing waits to be taken, or it never will be. Of several that ask, the last is woken.
    pub(super) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.taken_of_more().is_none() {
            return Poll::Ready(());
        }
        // A connection and its streams share one thread, so nothing is taken in between.
        *lock(&self.awaits) = Some(cx.waker().clone());
        self.awaited.store(true, Relaxed);
        Poll::Pending
    }

    fn wake_if_taken(&self) {
        if self.awaited.load(Relaxed) && self.taken_of_more().is_none() {
            self.awaited.store(false, Relaxed);
            let waker = lock(&self.awaits).take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Something was handed over that a flush will have to tell of.
    fn wait(self: &Arc<Self>) {
        if self.waits.swap(true, Relaxed) {
            return;
        }
        match &mut *lock(&self.connection.waiting) {
            Some(waiting) => waiting.push(self.clone()),
            None => self.lost(),
        }
    }

    /// The socket has accepted what was taken. Returns whether that was everything.
    fn flushed(&self, at: Instant) -> bool {
        let taken = self.taken.load(Relaxed);
        let all = taken >= self.handed.load(Relaxed);
        let news = self.told.swap(taken, Relaxed) != taken;
        let mut listener = lock(&self.listener);
        match &*listener {
            Some(told) if all => {
                if !told.flushed(taken, at) {
                    *listener = None;
                }
            }
            Some(told) if news => told.partial(taken, at),
            Some(_) | None => {}
        }
        if all {
            self.waits.store(false, Relaxed);
        }
        all
    }

    /// What was not accepted never will be, and is waited for no longer.
    fn lost(&self) {
        self.handed.store(self.taken.load(Relaxed), Relaxed);
        self.wake_if_taken();
        let listener = lock(&self.listener).take();
        if let Some(listener) = listener {
            listener.closed();
        }
    }
}

impl Outlet for Tally {
    fn listen(&self, listener: Arc<dyn WriteListener>) {
        *lock(&self.listener) = Some(listener);
    }

    fn counts_body(&self) -> bool {
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that keeps its tally.
pub(super) struct Tallied<B> {
    // Told of its end before what was not written counts as lost.
    inner: B,
    end: End,
}

struct End {
    tally: Arc<Tally>,
    /// The body has ended in order.
    whole: bool,
}

impl<B: Body<Data = Bytes>> Tallied<B> {
    /// `inner`'s head is about to be handed over.
    pub(super) fn new(inner: B, tally: Arc<Tally>) -> Self {
        tally.wait();
        Self { end: End { tally, whole: inner.is_end_stream() }, inner }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Tallied<B> {
    type Data = Portion;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Portion>, B::Error>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => this.end.whole = true,
            Poll::Ready(Some(Ok(frame))) => this.end.whole = frame.is_trailers() || this.inner.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled.map_ok(|frame| frame.map_data(|bytes| Portion::new(bytes, this.end.tally.clone())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.whole {
            // The end itself is still to be written.
            self.tally.wait();
        } else {
            self.tally.lost();
        }
    }
}

/// A frame's data on their way into HTTP's hands.
pub(super) struct Portion {
    bytes: Bytes,
    tally: Arc<Tally>,
}

impl Portion {
    fn new(bytes: Bytes, tally: Arc<Tally>) -> Self {
        tally.handed.fetch_add(bytes.len() as u64, Relaxed);
        tally.wait();
        Self { bytes, tally }
    }

    /// Its first `count` bytes, which are then no longer in this one.
    pub(super) fn split_to(&mut self, count: usize) -> Self {
        Self { bytes: self.bytes.split_to(count), tally: self.tally.clone() }
    }
}

impl Buf for Portion {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.tally.taken.fetch_add(count as u64, Relaxed);
        self.tally.wake_if_taken();
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        if self.bytes.has_remaining() {
            self.tally.lost();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    #[derive(Default)]
    struct Heard(Mutex<Vec<(&'static str, u64)>>);

    impl WriteListener for Heard {
        fn partial(&self, total: u64, _: Instant) {
            lock(&self.0).push(("partial", total));
        }
        fn flushed(&self, total: u64, _: Instant) -> bool {
            lock(&self.0).push(("flushed", total));
            true
        }
        fn closed(&self) {
            lock(&self.0).push(("closed", 0));
        }
    }

    fn listened(tallies: &Arc<Tallies>) -> (Arc<Tally>, Arc<Heard>) {
        let (tally, heard) = (tallies.tally(), Arc::new(Heard::default()));
        tally.listen(heard.clone());
        (tally, heard)
    }

    fn flush(tallies: &Tallies) {
        tallies.flushed(0, Instant::now());
    }

    #[tokio::test]
    async fn a_flush_tells_each_body_what_was_taken_of_it_and_of_no_other() {
        let tallies = Tallies::new();
        let (one, heard_one) = listened(&tallies);
        let (other, heard_other) = listened(&tallies);
        let mut body = Tallied::new(Full::new(Bytes::from_static(b"0123456789")), one.clone());
        let mut other = Tallied::new(Full::new(Bytes::from_static(b"abc")), other);
        let mut portion = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
        let mut taken = other.frame().await.unwrap().unwrap().into_data().ok().unwrap();
        taken.advance(3);
        flush(&tallies);
        portion.advance(4);
        flush(&tallies);
        flush(&tallies);
        assert_eq!(one.taken_of_more(), Some(4));
        portion.advance(6);
        assert_eq!(one.taken_of_more(), None);
        flush(&tallies);
        flush(&tallies);
        assert_eq!(*lock(&heard_one.0), [("partial", 4), ("flushed", 10)], "each step once");
        assert_eq!(*lock(&heard_other.0), [("flushed", 3)]);
        // The end is written, too, and is heard of.
        drop(body);
        flush(&tallies);
        assert_eq!(lock(&heard_one.0).last(), Some(&("flushed", 10)));
        assert_eq!(lock(&heard_one.0).len(), 3);
    }

    #[tokio::test]
    async fn what_cannot_be_written_any_more_is_lost_once() {
        let tallies = Tallies::new();
        let (tally, heard) = listened(&tallies);
        let mut body = Tallied::new(Full::new(Bytes::from_static(b"0123456789")), tally);
        let portion = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
        drop(body);
        assert_eq!(lock(&heard.0).len(), 0, "it may still be written");
        drop(portion);
        tallies.closed();
        assert_eq!(*lock(&heard.0), [("closed", 0)]);

        // Left half-way, and after the connection's end.
        for tallies in [Tallies::new(), tallies] {
            let (tally, heard) = listened(&tallies);
            drop(Tallied::new(Never, tally));
            assert_eq!(*lock(&heard.0), [("closed", 0)]);
        }
    }

    #[tokio::test]
    async fn what_is_lost_is_waited_for_no_longer() {
        let tallies = Tallies::new();
        let (tally, _) = listened(&tallies);
        let mut body = Tallied::new(Full::new(Bytes::from_static(b"0123456789")), tally);
        drop(body.frame().await);
        drop(body);
        flush(&tallies);
        assert_eq!(lock(&tallies.waiting).as_ref().map(Vec::len), Some(0));
    }

    /// A body that never says anything.
    struct Never;

    impl Body for Never {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
            Poll::Pending
        }
    }
}
