//! A reply's body on a stream of a shared connection.
//!
//! Invariant: a frame's stamp is that of the read that brought its last byte, whenever it is handed on. Dropped before
//! its end, the stream is reset, and it alone. A client that takes its time is no silence of the server's: what it has
//! left unread may be what keeps the server from sending.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::super::failure::Broken;
use super::session::Place;
use super::watch::Watch;
use crate::clock::ReadStamp;

/// See above.
pub(in super::super) struct StreamBody {
    incoming: Incoming,
    place: Place,
    head_at: Instant,
    /// How much data was handed on.
    yielded: u64,
    stamp: Option<ReadStamp>,
    /// When a frame was last handed on late, more having come meanwhile. `None` while the client keeps up.
    behind: Option<Instant>,
    idle_timeout: Duration,
    alarm: Pin<Box<Sleep>>,
    /// The task that the alarm will wake. `None` before it is first set.
    alarm_for: Option<Waker>,
}

impl StreamBody {
    pub(in super::super) fn new(incoming: Incoming, place: Place, head_at: Instant, idle_timeout: Duration) -> Self {
        let alarm = Box::pin(tokio::time::sleep(idle_timeout));
        Self { incoming, place, head_at, yielded: 0, stamp: None, behind: None, idle_timeout, alarm, alarm_for: None }
    }

    /// The read that brought the last byte of the last frame. `None` before the first frame, and where it is not known.
    pub(in super::super) fn stamp(&self) -> Option<ReadStamp> {
        self.stamp
    }

    /// Ready when nothing of this stream was read for the idle time, whatever others brought.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let set = self.alarm_for.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if set && !self.alarm.is_elapsed() {
            return Poll::Pending;
        }
        self.alarm_for = Some(cx.waker().clone());
        while self.alarm.as_mut().poll(cx).is_ready() {
            let read = self.place.look(Watch::last_read).map_or(self.head_at, |stamp| stamp.at);
            let last = self.behind.map_or(read, |behind| behind.max(read));
            let left = self.idle_timeout.saturating_sub(last.elapsed());
            if left.is_zero() {
                return Poll::Ready(());
            }
            self.alarm.as_mut().reset(tokio::time::Instant::now() + left);
        }
        Poll::Pending
    }

    fn broken(&self, error: hyper::Error) -> Broken {
        if self.place.watch().has_ended() && !self.place.was_reset() { Broken::Truncated } else { Broken::Reset(error) }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.yielded += data.len() as u64;
                    let taken = this.place.look(|watch, stream| watch.take_read(stream, this.yielded));
                    this.stamp = taken.and_then(|taken| taken.stamp);
                    if taken.is_some_and(|taken| taken.more) {
                        this.behind = Some(Instant::now());
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(this.broken(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => this.poll_silence(cx).map(|()| {
                this.place.watch().retire_if_silent(this.idle_timeout);
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
