//! A request's body that is read to its end even where nobody wants the rest.
//!
//! Many clients read no answer before they have sent everything, and closing over unread bytes resets the connection,
//! which destroys the answer (RFC 9112, section 9.6). Under HTTP/2 the stream would be reset without an error once the
//! answer is out (RFC 9113, section 8.1), which not every client tells from a failure; so it is read to its end there, too.
//!
//! Invariant: whoever drops an upload half-way, a refusal or an upstream that is gone, the client can read the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::EXPECT;
use tokio::runtime::Handle;

/// Who sends for longer is not waiting for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request's body. Dropped before its end, the rest is read and thrown away in the background.
pub struct Upload {
    /// `None` once it is over.
    body: Option<Incoming>,
    /// The client waits to be told to continue, and has sent nothing yet.
    withheld: bool,
    progress: Progress,
}

/// Tells, from beside it, how far an upload has come.
#[derive(Clone, Default)]
pub struct Progress(Arc<AtomicBool>);

impl Progress {
    /// Whether the upload was read to its end.
    pub fn is_over(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Upload {
    /// The body that came under a request's `headers`.
    pub fn new(headers: &HeaderMap, body: Incoming) -> Self {
        Self { body: Some(body), withheld: headers.contains_key(EXPECT), progress: Progress::default() }
    }

    /// A view of its progress that stays valid when the upload is handed on.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.withheld = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        if self.is_end_stream() {
            self.progress.0.store(true, Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.withheld || self.is_end_stream() {
            return;
        }
        // Without a runtime there is no connection left either.
        if let (Some(mut body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            let reading = async move { while let Some(Ok(_)) = body.frame().await {} };
            runtime.spawn(async move { tokio::time::timeout(PATIENCE, reading).await });
        }
    }
}
