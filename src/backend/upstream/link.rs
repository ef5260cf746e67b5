//! One HTTP/1.1 connection to an upstream, driven by whoever holds it.
//!
//! hyper hands out a request sender and a connection future. Both live here and are polled inside the request's own
//! future and later inside the reply's body: no task of its own, no wake-up between tasks, no write per frame, and
//! the transport's last read belongs to the frame at hand.

use std::future::poll_fn;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::failure::Cause;
use super::gate::Gate;
use super::stream::Stream;
use crate::server::{Progress, Upload};
use crate::transport::Io;

/// A request's body: read whole, or passed through as it comes.
pub type RequestBody = Either<Full<Bytes>, Upload>;

/// How often one poll goes round before other tasks get a turn.
const MOST_ROUNDS: usize = 8;

/// What an upstream may send before a final answer, in bytes.
const MOST_BEFORE_HEAD: u64 = 1 << 20;

/// An open connection.
pub(super) struct Link {
    sender: SendRequest<RequestBody>,
    /// `None` once the connection has ended.
    driver: Option<Connection<TokioIo<Stream>, RequestBody>>,
    io: Arc<Io>,
    descriptor: RawFd,
    gate: Arc<Gate>,
    waker: Waker,
    opened: Instant,
    parked: Instant,
}

/// A reply's head, with hyper's body.
pub(super) struct Answered {
    pub(super) response: Response<Incoming>,
    pub(super) sent: Option<Instant>,
}

/// An exchange that brought no reply head.
pub(super) struct Lost {
    pub(super) cause: Cause,
    /// The request, if no byte of it was written: it may be sent again.
    pub(super) unsent: Option<Box<Request<RequestBody>>>,
    pub(super) sent: Option<Instant>,
}

impl Lost {
    /// There was no connection to write it to.
    pub(super) fn before(cause: Cause) -> Self {
        Self { cause, unsent: None, sent: None }
    }
}

impl Link {
    /// Speaks HTTP/1.1 on a fresh stream. Nothing is sent yet.
    pub(super) async fn new(stream: Stream, now: Instant) -> Result<Self, Cause> {
        let io = stream.io().clone();
        let descriptor = stream.transport().socket().as_raw_fd();
        let (sender, driver) =
            http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(Cause::from_hyper)?;
        let gate = Arc::new(Gate::default());
        let waker = Waker::from(gate.clone());
        let driver = Some(driver);
        Ok(Self { sender, driver, io, descriptor, gate, waker, opened: now, parked: now })
    }

    pub(super) fn io(&self) -> &Arc<Io> {
        &self.io
    }

    /// When the request's last byte was written, `before` bytes having been written before it. `None` when nothing of
    /// it was, and while part of it is still to come or waits in hyper's buffer, as when the upstream answers early;
    /// hyper flushes only when that is empty, and a whole request goes in at once.
    fn sent(&self, before: u64, upload: Option<&Progress>) -> Option<Instant> {
        let whole = self.io.is_flushed() && upload.is_none_or(Progress::is_over);
        self.io.last_write().filter(|_| whole && self.io.bytes_written() > before)
    }

    /// Sends `request` and waits for the reply's head, for `head_timeout` after the last byte that could be written;
    /// while the client owes the next one, the upstream is not late.
    pub(super) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        head_timeout: Duration,
    ) -> Result<Answered, Lost> {
        let before = self.io.bytes_written();
        // Interim answers (1xx) without end would keep the task busy, its timer unasked.
        self.io.read_at_most(Some(MOST_BEFORE_HEAD));
        let began = Instant::now();
        let upload = match request.body() {
            Either::Left(_) => None,
            Either::Right(upload) => Some(upload.progress()),
        };
        let upload = upload.as_ref();
        let mut sending = pin!(self.sender.try_send_request(request));
        let mut alarm = pin!(tokio::time::sleep(head_timeout));
        let (driver, io) = (&mut self.driver, &self.io);
        let answered = poll_fn(|cx| {
            if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(answer));
            }
            if let Some(connection) = driver
                && Pin::new(connection).poll(cx).is_ready()
            {
                // Dropped with the connection, a request that it had not taken comes back.
                *driver = None;
            }
            if let Poll::Ready(answer) = sending.as_mut().poll(cx) {
                return Poll::Ready(Ok(answer));
            }
            while alarm.as_mut().poll(cx).is_ready() {
                // A long upload is no late answer.
                let owed = io.is_flushed() && upload.is_some_and(|upload| !upload.is_over());
                if owed {
                    alarm.as_mut().reset(tokio::time::Instant::now() + head_timeout);
                    continue;
                }
                let wrote = if io.bytes_written() > before { io.last_write().unwrap_or(began) } else { began };
                let left = head_timeout.saturating_sub(wrote.elapsed());
                if left.is_zero() {
                    return Poll::Ready(Err(Cause::HeadTimeout(head_timeout)));
                }
                alarm.as_mut().reset(tokio::time::Instant::now() + left);
            }
            Poll::Pending
        });
        let answer = answered.await;
        let exhausted = self.io.is_exhausted();
        self.io.read_at_most(None);
        let lost = match answer {
            Ok(Ok(response)) => return Ok(Answered { response, sent: self.sent(before, upload) }),
            Ok(Err(_)) if exhausted => Lost { cause: Cause::NoHead(MOST_BEFORE_HEAD), unsent: None, sent: None },
            Ok(Err(mut error)) => {
                let unsent = error.take_message().map(Box::new);
                Lost { cause: Cause::from_hyper(error.into_error()), unsent, sent: None }
            }
            Err(cause) => Lost { cause, unsent: None, sent: None },
        };
        Err(Lost { sent: self.sent(before, upload), ..lost })
    }

    /// Polls the connection and `body`, which it feeds, until one of them has something to say or both wait.
    pub(super) fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut body: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.gate.enter(cx);
        for round in 1..=MOST_ROUNDS {
            let mut inner = Context::from_waker(&self.waker);
            // The body first: asking for a frame is what allows the connection to read one.
            let mut polled = body(&mut inner);
            if polled.is_pending()
                && let Some(connection) = &mut self.driver
            {
                // What the body woke until now is the connection, which is polled next.
                self.gate.take_noted();
                if Pin::new(connection).poll(&mut inner).is_ready() {
                    self.driver = None;
                }
                polled = body(&mut inner);
            }
            if polled.is_ready() {
                self.gate.leave();
                return polled;
            }
            if round == MOST_ROUNDS || !self.gate.take_noted() {
                break;
            }
        }
        if self.gate.leave() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// After a reply's end: lets the connection settle. Returns whether it can carry another request.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        self.parked = now;
        let mut idle = Context::from_waker(Waker::noop());
        if self.driver.as_mut().is_none_or(|connection| Pin::new(connection).poll(&mut idle).is_ready()) {
            self.driver = None;
        }
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Whether a parked connection may still be used: young enough, and neither closed nor talking out of turn.
    pub(super) fn is_alive(&mut self, now: Instant, idle_limit: Duration, age_limit: Duration) -> bool {
        now.saturating_duration_since(self.parked) < idle_limit
            && now.saturating_duration_since(self.opened) < age_limit
            && self.is_silent()
            && {
                let parked = self.parked;
                let ready = self.settle(now);
                self.parked = parked;
                ready
            }
    }

    /// Whether the socket holds neither bytes nor an end. Asks the kernel: the runtime may not know yet.
    #[allow(unsafe_code)]
    fn is_silent(&self) -> bool {
        if self.driver.is_none() {
            return false;
        }
        // SAFETY: the connection in `driver` owns the socket behind this descriptor and closes it only when dropped, so
        // the descriptor is open and ours for the length of this call.
        let socket = unsafe { BorrowedFd::borrow_raw(self.descriptor) };
        let mut byte = [0_u8; 1];
        matches!(rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Err(Errno::AGAIN))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::Transport;

    const LIMIT: Duration = Duration::from_secs(5);

    fn request(body: usize) -> Request<RequestBody> {
        Request::new(Either::Left(Full::from(vec![b'x'; body])))
    }

    #[tokio::test]
    async fn a_request_given_to_a_connection_that_is_just_ending_comes_back() {
        for body in [0, 1 << 20] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            let now = Instant::now();
            let mut link = Link::new(Stream::Plain(Transport::tcp(near)), now).await.unwrap();
            let serving = async {
                let _ = far.read(&mut [0; 1000]).await.unwrap();
                far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            };
            let (answered, ()) = tokio::join!(link.exchange(request(0), LIMIT), serving);
            assert!(answered.is_ok_and(|answered| answered.sent.is_some()));
            assert!(link.settle(now) && link.is_alive(now, LIMIT, LIMIT));

            // The end arrives after that look, and before the request is taken.
            drop(far);
            while link.is_silent() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            let Err(lost) = link.exchange(request(body), LIMIT).await else { panic!("nobody can have answered") };
            assert!(matches!(lost.cause, Cause::Closed(_)), "{:?}", lost.cause);
            assert!(lost.unsent.is_some() && lost.sent.is_none());
        }
    }
}
