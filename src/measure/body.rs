//! The reply's body as the client's connection sees it: the same frames, observed.
//!
//! Invariant: every frame passes as it came and at once. The end is told exactly once: at the last frame, `None`, an
//! error, or `Drop`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;

use super::observation::Observation;
use super::outcome::{Ending, Fault};
use crate::clock::{ReadStamp, Stamped};
use crate::transport::{Io, WriteListener};

/// Why the client's reply is cut off.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct CutOff(String);

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
    over: bool,
}

impl<B: Body<Data = Bytes> + Stamped> ObservedBody<B> {
    /// Observes `inner` for `observation`, which has been told of the head. `client` is the socket the frames go to:
    /// what it accepts is noted. Without one, frames are looked at as they pass and never count as written.
    pub fn new(inner: B, observation: Observation, client: Option<&Io>, close_delimited: bool) -> Self {
        // With no byte to come there may be no write to wait for.
        let written = client.is_some() && !inner.is_end_stream();
        let watch = Arc::new(Watch(Mutex::new(Watched { observation, wait_for_flush: written, closed: false })));
        if let Some(io) = client.filter(|_| written) {
            io.listen(watch.clone());
        }
        Self { inner, watch, close_delimited, over: false }
    }
}

impl<B> ObservedBody<B> {
    fn end(&mut self, ending: Ending) {
        if !std::mem::replace(&mut self.over, true) {
            self.watch.with(|watched| watched.ended(ending));
        }
    }
}

impl<B: Body<Data = Bytes, Error: IntoFault> + Stamped + Unpin> Body for ObservedBody<B> {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if polled.is_pending() {
            this.watch.with(Watched::drained);
        }
        match ready!(polled) {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    let stamp = this.inner.stamp().unwrap_or_else(|| ReadStamp { at: Instant::now(), number: 0 });
                    this.watch.with(|watched| watched.passes(bytes, stamp));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let fault = error.fault();
                this.end(Ending::Broken(fault));
                // Silence after a whole answer is the upstream's way of ending it.
                if fault == Fault::Timeout && this.watch.lock().observation.is_complete() {
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(CutOff(error.to_string()))))
            }
            None => {
                this.end(Ending::Whole);
                let watched = this.watch.lock();
                let half = this.close_delimited && watched.observation.is_events();
                if half && !watched.observation.is_complete() {
                    let reason = "the upstream closed the connection before the end of its answer";
                    return Poll::Ready(Some(Err(CutOff(reason.to_owned()))));
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for ObservedBody<B> {
    fn drop(&mut self) {
        // hyper's server drops a body of known length at its last byte, without asking for the end.
        self.end(Ending::Dropped);
    }
}

/// What the body and the client's socket share.
struct Watch(Mutex<Watched>);

struct Watched {
    observation: Observation,
    wait_for_flush: bool,
    closed: bool,
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
            T::default()
        })
    }
}

impl Watched {
    fn passes(&mut self, bytes: &Bytes, stamp: ReadStamp) {
        self.observation.passes(bytes, stamp);
        if !self.wait_for_flush {
            self.observation.think();
        }
    }

    fn drained(&mut self) {
        // Frames that wait will be written first; if none does, the read that brought the last ones can be closed.
        if !self.observation.drained() {
            self.observation.think();
        }
    }

    fn ended(&mut self, ending: Ending) {
        self.observation.ended(ending);
        if !self.wait_for_flush || self.closed {
            self.observation.tell(Instant::now());
        }
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
            let over = watched.observation.is_over();
            if over {
                watched.observation.tell(at);
            }
            !over
        })
    }

    fn closed(&self) {
        self.with(|watched| {
            watched.closed = true;
            if watched.observation.is_over() {
                watched.observation.tell(Instant::now());
            }
        });
    }
}
