//! The body without what only our asking for usage brought: the observer sees every byte, the client the rest.
//!
//! Invariant: what of an event is held back goes on before the end is told, whatever the end is.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::{CutOff, IntoFault, Next, ObservedBody};
use crate::clock::Stamped;
use crate::measure::delivery::Onward;
use crate::wire::chat::{Stripped, UsageStripper};

/// Takes usage out of a body's frames.
pub(super) struct Stripping {
    stripper: UsageStripper,
    /// The body's end, which waits for what was held back until then.
    put_off: Option<Next>,
}

impl<B> ObservedBody<B> {
    /// Takes what only our asking for usage brought out of the frames that go on to the client.
    #[must_use]
    pub fn stripped_by(mut self, stripper: Option<UsageStripper>) -> Self {
        self.stripping = stripper.map(|stripper| Box::new(Stripping { stripper, put_off: None }));
        self
    }
}

impl<B: Body<Data = Bytes, Error: IntoFault> + Stamped + Unpin> ObservedBody<B> {
    pub(super) fn poll_stripped(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        loop {
            let put_off = self.stripping.as_mut().and_then(|stripping| stripping.put_off.take());
            let next = match put_off {
                Some(next) => next,
                None => ready!(self.poll_next(cx)),
            };
            let Some(stripping) = &mut self.stripping else { return self.poll_end(cx, next) };
            let bytes = match next {
                Next::Frame(frame) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    Err(trailers) => return self.poll_rest(cx, Next::Frame(trailers)),
                },
                last => return self.poll_rest(cx, last),
            };
            let Stripped { bytes: onward, dropped } = stripping.stripper.feed(&bytes);
            self.whole = self.inner.is_end_stream() && !stripping.stripper.holds();
            self.observe(&bytes, Onward::Part { length: onward.len(), dropped });
            if !onward.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(onward))));
            }
        }
    }

    /// What was held back goes on first, then the end.
    fn poll_rest(&mut self, cx: &Context<'_>, last: Next) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let held = self.stripping.as_mut().map(|stripping| stripping.stripper.finish()).unwrap_or_default();
        if held.is_empty() {
            return self.poll_end(cx, last);
        }
        self.stripping.as_mut().map(|stripping| stripping.put_off.insert(last));
        // It was observed when it came.
        self.observe(&Bytes::new(), Onward::Part { length: held.len(), dropped: 0 });
        Poll::Ready(Some(Ok(Frame::data(held))))
    }
}
