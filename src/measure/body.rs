//! The reply's body as the client's connection sees it: the same frames, observed.
//!
//! Invariant: every frame passes as it came and at once, unless the client is to have less than what is observed: usage
//! that only we asked for is taken out (`stripped`), and where a whole reply is made of a stream, the stream is kept.
//! The end is told exactly once: at the last frame, `None`, an
//! error, or `Drop`. An error waits until the client's socket has accepted what came before it: hyper drops what it has
//! not written when a body fails.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::Sleep;

use super::delivery::Onward;
use super::observation::Observation;
use super::outcome::{Ending, Fault};
use crate::clock::{EngineReport, ReadStamp, Stamped};
use crate::transport::{Io, Outlet, WriteListener};

mod stripped;

use stripped::Stripping;

/// Bytes that pass before other tasks of the thread get a turn.
const MOST_AT_ONCE: usize = 128 * 1024;

/// Why the client's reply is cut off.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct CutOff {
    reason: String,
    timed_out: bool,
}

impl CutOff {
    /// Whether the source fell silent.
    pub fn is_timeout(&self) -> bool {
        self.timed_out
    }
}

/// An error of an inner body, as the measuring side needs to know it.
pub trait IntoFault: std::fmt::Display {
    /// Which kind of break it is.
    fn fault(&self) -> Fault;
}

/// A reply body whose frames are observed on their way to the client.
pub struct ObservedBody<B> {
    inner: B,
    watch: Arc<Watch>,
    /// The body's length is known only from its connection's end, so a break looks like an end.
    close_delimited: bool,
    /// Rings when a stream has brought no event for too long.
    alarm: Option<EventAlarm>,
    /// The last frame said that none follows.
    whole: bool,
    over: bool,
    /// Bytes passed since the task last had to wait.
    at_once: usize,
    /// The error that is still to be told.
    cut_off: Option<CutOff>,
    /// The client's connection, where only a reset tells a break from the end.
    unframed: Option<Arc<Io>>,
    /// Takes usage that only we asked for out of what goes on.
    stripping: Option<Box<Stripping>>,
}

/// What the inner body says next.
enum Next {
    Frame(Frame<Bytes>),
    /// It fell silent, in these words.
    Silence(String),
    Broken(Fault, String),
    End,
}

struct EventAlarm {
    limit: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl<B: Body<Data = Bytes> + Stamped> ObservedBody<B> {
    /// Observes `inner` for `observation`, which has been told of the head. `client` is where the frames go: what
    /// it accepts is noted. Without one, frames are looked at as they pass and never count as written.
    pub fn new(inner: B, mut observation: Observation, client: Option<&dyn Outlet>, close_delimited: bool) -> Self {
        if client.is_some_and(Outlet::counts_body) {
            observation.counts_body();
        }
        // With no byte to come there may be no write to wait for.
        let whole = inner.is_end_stream();
        if client.is_none() {
            observation.unwritten();
        }
        let in_writing = client.is_some() && !whole;
        let watched = Watched { observation, in_writing, unflushed: true, on_flush: None, ending: None, kept: false };
        let watch = Arc::new(Watch(Mutex::new(watched)));
        if let Some(outlet) = client.filter(|_| in_writing) {
            outlet.listen(watch.clone());
        }
        Self::watched_by(watch, inner, close_delimited)
    }

    fn watched_by(watch: Arc<Watch>, inner: B, close_delimited: bool) -> Self {
        let whole = inner.is_end_stream();
        Self {
            inner,
            watch,
            close_delimited,
            alarm: None,
            whole,
            over: false,
            at_once: 0,
            cut_off: None,
            unframed: None,
            stripping: None,
        }
    }

    /// The client knows the body's end only by its connection's end (HTTP/1.0): until the body has ended in order, that
    /// is a reset.
    #[must_use]
    pub fn with_reset_of(mut self, client: Option<Arc<Io>>) -> Self {
        if let Some(client) = client.as_ref().filter(|_| !self.whole) {
            client.end_as_reset(true);
        }
        self.unframed = client;
        self
    }

    /// Keeps the frames from the client, for whoever reads this body and then [replaces](Self::replaced) it.
    #[must_use]
    pub fn kept(self) -> Self {
        self.watch.with(|watched| watched.kept = true);
        self
    }

    /// Gives the client another body in the place of a [kept](Self::kept) one, with this status; if that has not ended,
    /// it ends as `left`. The exchange is over when the other body is. The second is the kept one, unobserved from here
    /// on, to be [drained](Self::drained) or dropped.
    pub fn replaced<W>(mut self, whole: W, status: u16, left: Ending, client: &dyn Outlet) -> (ObservedBody<W>, Self)
    where
        W: Body<Data = Bytes> + Stamped,
    {
        self.end(left);
        let watch = self.watch.clone();
        let in_writing = !whole.is_end_stream();
        watch.with(|watched| watched.replaced(status, in_writing));
        if in_writing {
            client.listen(watch.clone());
        }
        (ObservedBody::watched_by(watch, whole, false), self)
    }

    /// Ends a stream of events that brings none for `limit`; comments keep it alive no longer.
    #[must_use]
    pub fn with_event_timeout(mut self, limit: Option<Duration>) -> Self {
        self.alarm = limit.map(|limit| EventAlarm { limit, sleep: Box::pin(tokio::time::sleep(limit)) });
        self
    }
}

impl<B> ObservedBody<B> {
    /// The body ends in order.
    fn complete(&mut self, ending: Ending) {
        if let Some(client) = &self.unframed {
            client.end_as_reset(false);
        }
        self.end(ending);
    }

    fn end(&mut self, ending: Ending) {
        if !std::mem::replace(&mut self.over, true) {
            self.watch.with(|watched| watched.ended(ending));
        }
    }

    /// Ready when the alarm is due. Costs nothing per event: it is set again only when it rings.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let Some(EventAlarm { limit, sleep }) = &mut self.alarm else { return Poll::Pending };
        while sleep.as_mut().poll(cx).is_ready() {
            let last = self.watch.with(|watched| {
                watched.observation.think();
                watched.observation.is_events().then(|| watched.observation.last_event()).flatten()
            });
            // Not known to be events, or not yet: it may still turn out so.
            let left = last.map_or(*limit, |last| limit.saturating_sub(last.elapsed()));
            if left.is_zero() {
                return Poll::Ready(*limit);
            }
            sleep.as_mut().reset(tokio::time::Instant::now() + left);
        }
        Poll::Pending
    }

    /// Ends the reply because its source fell silent: an answer that had come to its end ends in order, any other
    /// abruptly.
    fn fell_silent(&mut self, cx: &Context<'_>, reason: String) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let ending = Ending::Broken(Fault::Timeout);
        if self.breaks_off(ending) {
            return self.cut_off(cx, ending, reason);
        }
        self.complete(ending);
        Poll::Ready(None)
    }

    /// Whether an end of this kind leaves the client with half an answer.
    fn breaks_off(&self, ending: Ending) -> bool {
        // Unobserved, it is taken for half.
        self.watch.with(|watched| Some(watched.observation.breaks_off(ending))).unwrap_or(true)
    }

    fn cut_off(
        &mut self,
        cx: &Context<'_>,
        ending: Ending,
        reason: String,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        self.end(ending);
        let timed_out = ending == Ending::Broken(Fault::Timeout);
        self.cut_off = Some(CutOff { reason, timed_out });
        self.poll_cut_off(cx)
    }

    /// The error, once all that came before it was written.
    fn poll_cut_off(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if self.watch.with(|watched| watched.waits_for_flush(cx)) {
            return Poll::Pending;
        }
        Poll::Ready(self.cut_off.take().map(Err))
    }
}

impl<B: Body<Data = Bytes, Error: IntoFault> + Stamped + Unpin> ObservedBody<B> {
    /// Reads a body that was [replaced](Self::replaced) to its end, so that its connection can be used again.
    pub async fn drained(mut self) {
        while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut self.inner).poll_frame(cx)).await {}
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        // Comments may flow all the while: a due alarm is answered before the next frame.
        let due = self.alarm.as_ref().is_some_and(|alarm| alarm.sleep.is_elapsed());
        if due && let Poll::Ready(limit) = self.poll_alarm(cx) {
            return Poll::Ready(Next::without_events(limit));
        }
        if self.at_once >= MOST_AT_ONCE {
            // Others share this thread, and an upstream that is always ready would keep it.
            self.at_once = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_pending() {
            self.at_once = 0;
            self.watch.with(Watched::drained);
            return self.poll_alarm(cx).map(Next::without_events);
        }
        Poll::Ready(match ready!(polled) {
            Some(Ok(frame)) => {
                self.at_once += frame.data_ref().map_or(0, Bytes::len);
                Next::Frame(frame)
            }
            Some(Err(error)) if error.fault() == Fault::Timeout => Next::Silence(error.to_string()),
            Some(Err(error)) => Next::Broken(error.fault(), error.to_string()),
            None => Next::End,
        })
    }

    /// Notes a frame that came, and what of it goes on.
    fn observe(&mut self, bytes: &Bytes, onward: Onward) {
        let stamp = self.inner.stamp().unwrap_or_else(|| ReadStamp { at: Instant::now(), number: 0 });
        let engine = self.inner.engine();
        let only_echoes = self.inner.only_echoes();
        self.watch.with(|watched| watched.passes(bytes, stamp, engine, only_echoes, onward));
    }

    /// Ends the reply as `last` says, which is no frame, unless it is trailers.
    fn poll_end(&mut self, cx: &Context<'_>, last: Next) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        match last {
            Next::Frame(trailers) => {
                self.whole = true;
                Poll::Ready(Some(Ok(trailers)))
            }
            Next::Silence(reason) => self.fell_silent(cx, reason),
            Next::Broken(fault, reason) => self.cut_off(cx, Ending::Broken(fault), reason),
            Next::End if self.close_delimited && self.breaks_off(Ending::Whole) => {
                let reason = "the upstream closed the connection before the end of its answer";
                self.cut_off(cx, Ending::Whole, reason.to_owned())
            }
            Next::End => {
                self.complete(Ending::Whole);
                Poll::Ready(None)
            }
        }
    }
}

impl Next {
    fn without_events(limit: Duration) -> Self {
        Self::Silence(format!("the upstream sent no event for {} ms (event_timeout_ms)", limit.as_millis()))
    }
}

impl<B: Body<Data = Bytes, Error: IntoFault> + Stamped + Unpin> Body for ObservedBody<B> {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let this = self.get_mut();
        if this.over {
            return this.poll_cut_off(cx);
        }
        if this.stripping.is_some() {
            return this.poll_stripped(cx);
        }
        match ready!(this.poll_next(cx)) {
            Next::Frame(frame) => {
                if let Some(bytes) = frame.data_ref() {
                    this.observe(bytes, Onward::AsItCame);
                }
                // hyper's server drops a body after its trailers, without asking for the end.
                this.whole = this.inner.is_end_stream() || frame.is_trailers();
                Poll::Ready(Some(Ok(frame)))
            }
            last => this.poll_end(cx, last),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stripping.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.stripping.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

impl<B> Drop for ObservedBody<B> {
    fn drop(&mut self) {
        // hyper's server drops a body of known length at its last byte, without asking for the end.
        if self.whole {
            self.complete(Ending::Whole);
        } else {
            self.end(Ending::Dropped);
        }
    }
}

/// What the body and the client's socket share.
struct Watch(Mutex<Watched>);

struct Watched {
    observation: Observation,
    /// Frames go to a socket that tells when it has accepted them, and still may.
    in_writing: bool,
    /// The reply's head or a frame was handed over after the socket had last accepted everything.
    unflushed: bool,
    /// Who waits for the socket to accept everything.
    on_flush: Option<Waker>,
    /// The body's end, while its last bytes are still to be written.
    ending: Option<Ending>,
    /// The client gets none of the frames; what it gets in their place is still to come.
    kept: bool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the observer; should it panic, the traffic goes on without it.
    fn with<T: Default>(&self, work: impl FnOnce(&mut Watched) -> T) -> T {
        let mut watched = self.lock();
        let worked = catch_unwind(AssertUnwindSafe(|| work(&mut watched)));
        worked.unwrap_or_else(|_| {
            watched.observation.broke();
            // Who waits for a flush must not wait for an observer that may have missed it.
            watched.in_writing = false;
            if let Some(waiting) = watched.on_flush.take() {
                waiting.wake();
            }
            T::default()
        })
    }
}

impl Watched {
    fn passes(
        &mut self,
        bytes: &Bytes,
        stamp: ReadStamp,
        engine: Option<EngineReport>,
        only_echoes: bool,
        onward: Onward,
    ) {
        self.unflushed |= !matches!(onward, Onward::Part { length: 0, .. });
        if let Some(report) = engine {
            self.observation.engine(report);
        }
        self.observation.passes(bytes, stamp, only_echoes, onward);
        if !self.in_writing {
            self.observation.think();
        }
    }

    /// Whether something handed over is still to be written; the task of `cx` is woken when that has changed.
    fn waits_for_flush(&mut self, cx: &Context<'_>) -> bool {
        let waits = self.in_writing && self.unflushed;
        self.on_flush = waits.then(|| cx.waker().clone());
        waits
    }

    fn drained(&mut self) {
        // Frames that wait will be written first; if none does, the read that brought the last ones can be closed.
        if !self.observation.drained() || !self.unflushed {
            self.observation.think();
        }
    }

    fn ended(&mut self, ending: Ending) {
        self.ending = Some(ending);
        if self.kept {
            self.observation.ended(ending);
        } else if !self.in_writing {
            self.settle(Instant::now());
        }
    }

    /// What was kept is over, and the client will be given something else.
    fn replaced(&mut self, status: u16, in_writing: bool) {
        self.observation.replaced(status);
        self.ending = None;
        (self.kept, self.in_writing, self.unflushed) = (false, in_writing, true);
    }

    /// If the body has ended: decides how, and tells it.
    fn settle(&mut self, at: Instant) -> bool {
        let Some(ending) = self.ending else { return false };
        self.observation.ended(ending);
        self.observation.tell(at);
        true
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Nobody told of the last write: another request took the connection before its flush.
        self.settle(Instant::now());
    }
}

impl WriteListener for Watch {
    fn partial(&self, total: u64, at: Instant) {
        self.with(|watched| {
            watched.observation.think();
            watched.observation.written(total, at, false);
        });
    }

    fn flushed(&self, total: u64, at: Instant) -> bool {
        self.with(|watched| {
            watched.observation.think();
            watched.observation.written(total, at, true);
            watched.unflushed = false;
            if let Some(waiting) = watched.on_flush.take() {
                waiting.wake();
            }
            !watched.settle(at)
        })
    }

    fn closed(&self) {
        self.with(|watched| {
            watched.in_writing = false;
            watched.settle(Instant::now());
        });
    }
}

#[cfg(test)]
mod tests;
