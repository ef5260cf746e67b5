//! A reply on its way to an HTTP/2 client: given out in pieces, and its end held back until all before it was taken.
//!
//! hyper lets go of a stream as soon as it has handed over the end, however much of the reply waits for the client's
//! window by then; nobody could reset it any more. So the end comes last, as an empty frame where the data were not taken
//! before it was known.
//!
//! Invariant: while a byte of a reply waits to be taken, its stream's task goes on; and of one reply HTTP/2 is never
//! handed more than [`PIECE`] beyond what may wait in its buffer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::HeaderMap;

use super::tally::{Portion, Tallied, Tally};

/// The most bytes handed over at once: hyper hands over the whole of a frame for a window of one byte.
pub(super) const PIECE: usize = 32 << 10;

/// A body of a stream.
pub(super) struct Held<B> {
    /// `None` once it has ended: let go of then, since its upstream may serve somebody else.
    body: Option<Tallied<B>>,
    /// What was not given out yet of its last frame.
    rest: Option<Portion>,
    trailers: Option<HeaderMap>,
    tally: Arc<Tally>,
}

impl<B: Body<Data = Bytes>> Held<B> {
    /// `inner`'s head is about to be handed over.
    pub(super) fn new(inner: B, tally: Arc<Tally>) -> Self {
        Self { body: Some(Tallied::new(inner, tally.clone())), rest: None, trailers: None, tally }
    }

    fn piece(&mut self) -> Option<Portion> {
        match &mut self.rest {
            Some(rest) if rest.remaining() > PIECE => Some(rest.split_to(PIECE)),
            rest => rest.take(),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Held<B> {
    type Data = Portion;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Portion>, B::Error>>> {
        let this = &mut *self;
        if let Some(body) = &mut this.body
            && this.rest.is_none()
        {
            let polled = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => Some(frame.into_data()),
                None => None,
            };
            let over = body.is_end_stream();
            match polled {
                Some(Ok(portion)) => this.rest = Some(portion),
                Some(Err(frame)) => this.trailers = frame.into_trailers().ok(),
                None => {}
            }
            if over || this.rest.is_none() {
                this.body = None;
            }
        }
        if let Some(piece) = this.piece() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        ready!(this.tally.poll_taken(cx));
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => self.rest.is_none() && body.is_end_stream(),
            None => self.rest.is_none() && self.trailers.is_none() && self.tally.taken_of_more().is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) if self.rest.is_none() => body.size_hint(),
            Some(_) | None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tally::Tallies;
    use http_body_util::{BodyExt, Full};
    use std::task::Waker;

    #[tokio::test]
    async fn a_reply_comes_in_pieces_and_its_end_once_all_was_taken() {
        let all: Vec<u8> = (0..=250).cycle().take(PIECE * 2 + 5).collect();
        let tally = Tallies::new().tally();
        let mut body = Held::new(Full::new(Bytes::from(all.clone())), tally.clone());
        assert_eq!(body.size_hint().exact(), Some(all.len() as u64));
        let mut pieces = Vec::new();
        for bytes in [PIECE, PIECE, 5] {
            assert!(!body.is_end_stream());
            let piece = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
            assert_eq!(piece.remaining(), bytes);
            pieces.push(piece);
        }
        assert!(body.body.is_none(), "whoever made it is let go");
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        for mut piece in pieces {
            assert!(Pin::new(&mut body).poll_frame(&mut cx).is_pending() && !body.is_end_stream());
            taken.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        assert_eq!(taken, all);
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn whoever_waits_for_the_end_hears_of_the_last_byte_and_of_its_loss() {
        for lost in [false, true] {
            let mut body = Held::new(Full::new(Bytes::from_static(b"abc")), Tallies::new().tally());
            let mut piece = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
            let waiting = tokio::spawn(async move { body.frame().await.is_none() });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            if !lost {
                piece.advance(3);
            }
            drop(piece);
            assert!(waiting.await.unwrap());
        }
    }

    #[tokio::test]
    async fn what_was_not_given_out_when_it_is_dropped_is_lost() {
        let tally = Tallies::new().tally();
        let mut body = Held::new(Full::new(Bytes::from(vec![0; PIECE + 1])), tally.clone());
        let mut piece = body.frame().await.unwrap().unwrap().into_data().ok().unwrap();
        piece.advance(PIECE);
        assert_eq!(tally.taken_of_more(), Some(PIECE as u64));
        drop(body);
        assert_eq!(tally.taken_of_more(), None);
    }
}
