//! A reply's body on a connection of its own: hyper's body with the connection that feeds it, polled together.
//!
//! Invariant: the connection goes back to the pool only when the body has ended; dropped earlier, it is closed at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::failure::Broken;
use super::link::Link;
use super::pool::Pool;
use crate::clock::ReadStamp;
use crate::transport::Io;

/// See above. Frames are yielded as they were read.
pub(super) struct LinkBody {
    incoming: Incoming,
    /// `None` once the connection has gone back to the pool.
    link: Option<Box<Link>>,
    pool: Pool,
    io: Arc<Io>,
    idle_timeout: Duration,
    alarm: Pin<Box<Sleep>>,
    /// The task that the alarm will wake. `None` before it is first set.
    alarm_for: Option<Waker>,
    /// Trailers came, which are the last frame.
    whole: bool,
}

impl LinkBody {
    pub(super) fn new(incoming: Incoming, link: Box<Link>, pool: Pool, idle_timeout: Duration) -> Self {
        let io = link.io().clone();
        let alarm = Box::pin(tokio::time::sleep(idle_timeout));
        Self { incoming, link: Some(link), pool, io, idle_timeout, alarm, alarm_for: None, whole: false }
    }

    /// Ready when nothing, not even a comment, was read for the idle time. Costs nothing per frame: the alarm is
    /// set again only when it rings, and then for the time that is left since the last read.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let set = self.alarm_for.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if set && !self.alarm.is_elapsed() {
            return Poll::Pending;
        }
        self.alarm_for = Some(cx.waker().clone());
        while self.alarm.as_mut().poll(cx).is_ready() {
            let last = self.io.last_read().map_or_else(Instant::now, |stamp| stamp.at);
            let left = self.idle_timeout.saturating_sub(last.elapsed());
            if left.is_zero() {
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(tokio::time::Instant::now() + left);
        }
        Poll::Pending
    }

    /// The read that brought the last byte of the last frame.
    pub(super) fn stamp(&self) -> Option<ReadStamp> {
        self.io.last_read()
    }

    fn give_back(&mut self) {
        if let Some(link) = self.link.take() {
            self.pool.put(link, Instant::now());
        }
    }
}

impl Body for LinkBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let incoming = &mut this.incoming;
        let polled = match &mut this.link {
            Some(link) => link.drive(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx)),
            None => Pin::new(incoming).poll_frame(cx),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                this.whole = frame.is_trailers();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.link = None;
                Poll::Ready(Some(Err(Broken::from_hyper(error))))
            }
            Poll::Ready(None) => {
                this.give_back();
                Poll::Ready(None)
            }
            Poll::Pending => this.poll_silence(cx).map(|()| {
                this.link = None;
                Some(Err(Broken::Idle(this.idle_timeout)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for LinkBody {
    fn drop(&mut self) {
        // hyper's server drops a body of known length at its last byte, and any after its trailers, without asking for
        // the end.
        if self.whole || self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}
