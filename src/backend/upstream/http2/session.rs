//! One HTTP/2 connection, driven by a task of its own, and a request's way over it to the reply's head.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::super::failure::Cause;
use super::super::link::{Lost, RequestBody};
use super::super::stream::Stream;
use super::watch::{Greeting, Watch};
use super::watched::Watched;

/// How much of one stream may lie here unread by its client, in bytes. Enough for any event stream; a large document
/// comes at this much per round trip.
const STREAM_WINDOW: u32 = 256 << 10;
/// All streams together: no bound of its own, or a few clients that do not read would stop all others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// The largest head of a reply, in bytes.
const MOST_HEADERS: u32 = 64 << 10;
/// After this much silence the server is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(40);
/// How long it may take to say so.
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// An open connection. Clones are the same one.
#[derive(Clone)]
pub(in super::super) struct Session {
    sender: SendRequest<Handed>,
    watch: Arc<Watch>,
    opened: Instant,
}

/// A reply's head with hyper's body, and its place on the connection.
pub(in super::super) struct Answered {
    pub(in super::super) response: Response<Incoming>,
    pub(in super::super) sent: Option<Instant>,
    /// When the head's last byte was read.
    pub(in super::super) head_at: Instant,
    pub(in super::super) place: Place,
}

impl Session {
    /// Speaks HTTP/2 on a fresh stream, and waits until the server does.
    ///
    /// Requests sent before that might be more than it takes, or be lost on one that speaks something else.
    pub(super) async fn open(stream: Stream, now: Instant) -> Result<Self, Cause> {
        let watch = Watch::new(stream.io().clone());
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(MOST_HEADERS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_PATIENCE)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(Watched::new(stream, watch.clone())));
        let (sender, connection) = handshake.await.map_err(Cause::from_hyper)?;
        let driven = watch.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of HTTP/2 has ended");
            }
            driven.greeted.notify_one();
        });
        while watch.greeting().is_none() && !watch.has_ended() && !sender.is_closed() {
            watch.greeted.notified().await;
        }
        match watch.greeting() {
            Some(Greeting::Http2) => Ok(Self { sender, watch, opened: now }),
            Some(Greeting::Other) => Err(Cause::NotHttp2("it answers in another protocol")),
            None => Err(Cause::NotHttp2("it closed the connection without a word")),
        }
    }

    pub(super) fn opened(&self) -> Instant {
        self.opened
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether it can carry another request.
    pub(super) fn is_open(&self) -> bool {
        self.sender.is_ready() && !self.watch.is_retired()
    }

    /// Sends `request` and waits for the reply's head, for `head_timeout` after the last byte that could be written;
    /// while the client owes the next one, the upstream is not late.
    ///
    /// A request of which the server provably did nothing comes back, if it was whole; this connection then takes no
    /// more.
    pub(in super::super) async fn exchange(
        &self,
        request: Request<RequestBody>,
        head_timeout: Duration,
    ) -> Result<Answered, Lost> {
        let place = Place::new(self.watch.clone());
        let began = Instant::now();
        let upload = match request.body() {
            Either::Left(_) => None,
            Either::Right(upload) => Some(upload.progress()),
        };
        let (head, body) = request.into_parts();
        // hyper gives a request back only before it has numbered it. A body that is passed through cannot be had twice.
        let copy = match &body {
            Either::Left(whole) => Some(Request::from_parts(head.clone(), Either::Left(whole.clone()))),
            Either::Right(_) => None,
        };
        let request = Request::from_parts(head, Handed { body, seat: place.0.clone() });
        let mut sender = self.sender.clone();
        let mut sending = pin!(sender.try_send_request(request));
        let mut alarm = pin!(tokio::time::sleep(head_timeout));
        let answered = poll_fn(|cx| {
            if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(answer));
            }
            while alarm.as_mut().poll(cx).is_ready() {
                let owed = place.0.owed.load(Relaxed) && upload.as_ref().is_some_and(|upload| !upload.is_over());
                let wrote = place.look(Watch::wrote).unwrap_or(began);
                let left = if owed { head_timeout } else { head_timeout.saturating_sub(wrote.elapsed()) };
                if left.is_zero() {
                    return Poll::Ready(Err(Cause::HeadTimeout(head_timeout)));
                }
                alarm.as_mut().reset(tokio::time::Instant::now() + left);
            }
            Poll::Pending
        });
        let (cause, unsent) = match answered.await {
            Ok(Ok(response)) => {
                let sent = place.look(Watch::sent);
                let head_at = place.look(Watch::head).map_or_else(Instant::now, |stamp| stamp.at);
                return Ok(Answered { response, sent, head_at, place });
            }
            Ok(Err(mut error)) => {
                let returned = error.take_message().map(|request| request.map(|handed| handed.body));
                let unprocessed = place.stream().is_none_or(|stream| self.watch.failed(stream));
                if unprocessed {
                    self.watch.retire();
                }
                let unsent = returned.or_else(|| copy.filter(|_| unprocessed)).map(Box::new);
                let error = error.into_error();
                let cause = if place.0.broke.load(Relaxed) {
                    Cause::RequestBody(error)
                } else if unprocessed {
                    Cause::Unprocessed(error)
                } else if place.was_reset() {
                    Cause::StreamReset(error)
                } else {
                    Cause::Closed(error)
                };
                (cause, unsent)
            }
            Err(cause) => {
                self.watch.retire_if_silent(head_timeout);
                (cause, None)
            }
        };
        Err(Lost { cause, unsent, sent: place.look(Watch::sent) })
    }
}

/// A request's place on a connection. Dropped, the request counts no more.
pub(in super::super) struct Place(Arc<Seat>);

/// A request, as its body tells of it once hyper has it.
struct Seat {
    watch: Arc<Watch>,
    /// The stream's number; 0 before there is one.
    stream: AtomicU32,
    /// The client has more to send and has not sent it.
    owed: AtomicBool,
    /// The client's body broke off.
    broke: AtomicBool,
}

impl Place {
    fn new(watch: Arc<Watch>) -> Self {
        watch.enter();
        let (owed, broke) = (AtomicBool::new(false), AtomicBool::new(false));
        Self(Arc::new(Seat { watch, stream: AtomicU32::new(0), owed, broke }))
    }

    /// The connection.
    pub(super) fn watch(&self) -> &Watch {
        &self.0.watch
    }

    /// The stream's number. `None` before hyper has taken the request.
    pub(super) fn stream(&self) -> Option<u32> {
        Some(self.0.stream.load(Relaxed)).filter(|&stream| stream != 0)
    }

    /// Whether the server reset the stream.
    pub(super) fn was_reset(&self) -> bool {
        self.look(|watch, stream| Some(watch.was_reset(stream))).unwrap_or(false)
    }

    /// What `look` finds of the stream.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Watch, u32) -> Option<T>) -> Option<T> {
        look(&self.0.watch, self.stream()?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.watch.leave(self.stream(), Instant::now());
    }
}

/// A request's body in hyper's hands.
struct Handed {
    body: RequestBody,
    seat: Arc<Seat>,
}

impl Body for Handed {
    type Data = Bytes;
    type Error = <RequestBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, <RequestBody as Body>::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.seat.owed.store(polled.is_pending(), Relaxed);
        self.seat.broke.store(matches!(polled, Poll::Ready(Some(Err(_)))), Relaxed);
        polled
    }

    /// hyper asks this first, right before it opens the request's stream.
    fn is_end_stream(&self) -> bool {
        if self.seat.stream.load(Relaxed) == 0 {
            self.seat.stream.store(self.seat.watch.open(), Relaxed);
        }
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
