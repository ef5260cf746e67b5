//! An upstream's body that comes as it is told to.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use streamgauge::clock::{ReadStamp, Stamped};
use streamgauge::measure::{Fault, IntoFault};

use super::{End, Pace, Replay, arrival};

enum Act {
    Frame(Bytes, ReadStamp),
    Wait,
}

/// An upstream's body that comes as it is told to.
pub(super) struct Scripted {
    acts: std::vec::IntoIter<Act>,
    stamp: Option<ReadStamp>,
    end: End,
    knows_length: bool,
}

impl Scripted {
    pub(super) fn new(body: &Bytes, replay: &Replay, head: Instant, end: End, knows_length: bool) -> Self {
        let mut acts = Vec::new();
        for (number, frames) in (1..).zip(&replay.reads) {
            let last = frames.last().expect("a frame").end - 1;
            let stamp = ReadStamp { at: head + arrival(last), number };
            acts.extend(frames.iter().map(|range| Act::Frame(body.slice(range.clone()), stamp)));
            if replay.pace == Pace::Patient {
                acts.push(Act::Wait);
            }
        }
        Self { acts: acts.into_iter(), stamp: None, end, knows_length }
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Break;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Break>>> {
        let this = self.get_mut();
        match this.acts.next() {
            Some(Act::Frame(bytes, stamp)) => {
                this.stamp = Some(stamp);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Some(Act::Wait) => Poll::Pending,
            None => match this.end {
                End::Whole => Poll::Ready(None),
                End::ClientLeaves => Poll::Pending,
                End::Reset => Poll::Ready(Some(Err(Break(Fault::Reset)))),
                End::Truncated => Poll::Ready(Some(Err(Break(Fault::Truncated)))),
                End::Silence => Poll::Ready(Some(Err(Break(Fault::Timeout)))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.knows_length && self.acts.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.acts.len() == 0 { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl Stamped for Scripted {
    fn stamp(&self) -> Option<ReadStamp> {
        self.stamp
    }
}

/// The upstream's body broke.
pub(super) struct Break(Fault);

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream broke off: {:?}", self.0)
    }
}

impl IntoFault for Break {
    fn fault(&self) -> Fault {
        self.0
    }
}
