//! One client's connection, from its first byte to its last.
//!
//! Invariant: what a client may keep waiting is bounded: its TLS handshake, each request's head, and its taking of what
//! was written to it. Of its bodies the handler takes care.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use http_body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

use super::held::Held;
use super::http2::{Streams, Unused, builder};
use super::sniff::sniff;
use super::tally::{Tallied, Tallies};
use super::{Client, Handler, Limits, Refused, Shutdown, told_to_stop};
use crate::transport::{Io, Outlet, Transport, keep_alive};

/// What a client that finds no place is told, in the clear.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    retry-after: 1\r\nconnection: close\r\ncontent-length: 184\r\n\r\n\
    {\"error\":{\"message\":\"as many connections are open as max_connections allows; try again after the time in \
    retry-after\",\"type\":\"server_error\",\"param\":null,\"code\":\"too_many_connections\"}}";
/// How long, and for how many bytes, a client that was refused is heard out: closing over unread bytes resets the
/// connection, and the refusal with it.
const HEARD_OUT: (Duration, u64) = (Duration::from_secs(1), 1 << 20);

/// What all connections of a listener share.
pub(super) struct Serving<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Limits,
    pub(super) shutdown: Shutdown,
}

impl<H: Handler> Serving<H> {
    /// Serves a client that came over TCP, under TLS with `tls`.
    pub(super) async fn tcp(&self, socket: TcpStream, peer: SocketAddr, tls: Option<Arc<ServerConfig>>) {
        if let Err(error) = socket.set_nodelay(true).and_then(|()| keep_alive(&socket)) {
            tracing::debug!(%error, %peer, "client gone before its connection was set up");
            return;
        }
        let transport = Transport::tcp(socket);
        match tls {
            None => self.clear(transport, Some(peer)).await,
            Some(config) => self.secured(transport, Some(peer), config).await,
        }
    }

    /// Serves a client that came over a Unix socket.
    pub(super) async fn unix(&self, socket: UnixStream) {
        self.clear(Transport::new(socket), None).await;
    }

    async fn clear<S>(&self, transport: Transport<S>, peer: Option<SocketAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = transport.io().clone();
        let Some(Ok(Some((http2, socket)))) = self.in_time(sniff(transport)).await else { return };
        if http2 {
            return self.http2(socket, io, peer).await;
        }
        let handler = self.handler.clone();
        let client = Arc::new(Client { peer, io: io.clone(), tally: None });
        let service = service_fn(move |request| {
            let answer = handler.clone().handle(request, client.clone());
            async move { Ok::<_, Infallible>(answer.await) }
        });
        self.http1(socket, &io, service).await;
    }

    async fn secured(&self, transport: Transport<TcpStream>, peer: Option<SocketAddr>, config: Arc<ServerConfig>) {
        let io = transport.io().clone();
        let socket = match self.in_time(TlsAcceptor::from(config).accept(transport)).await {
            Some(Ok(socket)) => socket,
            Some(Err(error)) => {
                tracing::debug!(%error, ?peer, "TLS handshake failed");
                // Who sent nothing only looked whether the port is open.
                if io.bytes_read() > 0 {
                    self.handler.refused(Refused::Tls);
                }
                return;
            }
            None => return,
        };
        if socket.get_ref().1.alpn_protocol() == Some(b"h2") {
            return self.http2(socket, io, peer).await;
        }
        let tallies = Tallies::new();
        io.listen(tallies.clone());
        let handler = self.handler.clone();
        let service_io = io.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let tally = tallies.tally();
            let client = Arc::new(Client { peer, io: service_io.clone(), tally: Some(tally.clone()) });
            let answer = handler.clone().handle(request, client);
            async move { Ok::<_, Infallible>(answer.await.map(|body| Tallied::new(body, tally))) }
        });
        self.http1(socket, &io, service).await;
    }

    async fn http1<S, V, B>(&self, socket: S, io: &Arc<Io>, service: V)
    where
        S: AsyncRead + AsyncWrite + Unpin,
        V: HttpService<Incoming, ResBody = B, Error = Infallible> + Unpin,
        B: Body<Data: Unpin, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    {
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_header_size(self.limits.header_bytes)
            // The upstream's date passes; none is made up where it sent none.
            .auto_date_header(false)
            .serve_connection(TokioIo::new(socket), service);
        let before = io.bytes_written();
        let mut writes = Writes::new(io, self.limits.write_timeout);
        let watch = |cx: &mut Context<'_>| writes.poll(cx).map(|()| Standstill::Writes);
        let ended = self.drive(Pin::new(&mut connection), http1::Connection::graceful_shutdown, watch).await;
        let Err(ended) = ended else { return };
        let Some(refused) = ended.refused(io) else { return };
        // An idle client is waited for as long as a late one. Its last bytes came before the wait began.
        let late = || io.last_read().is_none_or(|read| read.at.elapsed() < self.limits.header_timeout);
        if refused == Refused::HeaderTimeout && io.bytes_written() > before && !late() {
            return;
        }
        self.handler.refused(refused);
        if matches!(refused, Refused::HeaderTooLarge | Refused::BadRequest) {
            hear_out(&mut connection.into_parts().io.into_inner()).await;
        }
    }

    async fn http2<S>(&self, socket: S, io: Arc<Io>, peer: Option<SocketAddr>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let tallies = Tallies::new();
        io.listen(tallies.clone());
        let streams = Streams::new(self.handler.clone(), &self.limits);
        let (handler, service_io, opened) = (self.handler.clone(), io.clone(), streams.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let tally = tallies.tally();
            opened.opened(tally.clone());
            let client = Arc::new(Client { peer, io: service_io.clone(), tally: Some(tally.clone()) });
            let answer = handler.clone().handle(request, client);
            async move { Ok::<_, Infallible>(answer.await.map(|body| Held::new(body, tally))) }
        });
        let mut idle = streams.idle(self.limits.header_timeout);
        let connection = builder(streams, &self.limits).serve_connection(TokioIo::new(socket), service);
        let mut writes = Writes::new(&io, self.limits.write_timeout);
        let watch = |cx: &mut Context<'_>| match writes.poll(cx) {
            Poll::Ready(()) => Poll::Ready(Standstill::Writes),
            Poll::Pending => idle.poll(cx).map(Standstill::Idle),
        };
        let connection = pin!(connection);
        let ended = self.drive(connection, hyper::server::conn::http2::Connection::graceful_shutdown, watch).await;
        match ended {
            // Of HTTP/2's own errors none tells what the client did wrong from its having gone. The one that looks like
            // a timeout is a ping without an answer: it has vanished.
            Ok(()) | Err(Ended::Broken(_)) => {}
            Err(ended) => {
                if let Some(refused) = ended.refused(&io) {
                    self.handler.refused(refused);
                }
            }
        }
    }

    /// What must happen before the first request. `None` when it took too long, or the shutdown came first.
    async fn in_time<T>(&self, opening: impl Future<Output = T>) -> Option<T> {
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            biased;
            opened = tokio::time::timeout(self.limits.header_timeout, opening) => {
                if opened.is_err() {
                    self.handler.refused(Refused::HeaderTimeout);
                }
                opened.ok()
            }
            () = told_to_stop(&mut shutdown) => None,
        }
    }

    /// Polls a connection to its end. `stop` tells it that the shutdown has come; `watch` says when it stands still.
    async fn drive<C: Future<Output = hyper::Result<()>>>(
        &self,
        mut connection: Pin<&mut C>,
        stop: impl Fn(Pin<&mut C>),
        mut watch: impl FnMut(&mut Context<'_>) -> Poll<Standstill>,
    ) -> Result<(), Ended> {
        // The signal is asked for once per task, not at every wake-up: this runs for each event of each stream.
        let signal = self.shutdown.clone();
        let mut shutdown = signal.clone();
        let mut stopping = pin!(told_to_stop(&mut shutdown));
        let mut asked = None::<Waker>;
        let mut told = false;
        let served = poll_fn(|cx| {
            if let Poll::Ready(served) = connection.as_mut().poll(cx) {
                return Poll::Ready(served.map_err(Ended::Broken));
            }
            match watch(cx) {
                Poll::Ready(Standstill::Writes) => return Poll::Ready(Err(Ended::Stuck)),
                Poll::Ready(Standstill::Idle(Unused::Never)) => return Poll::Ready(Err(Ended::Unused)),
                Poll::Ready(Standstill::Idle(Unused::Still)) => return Poll::Ready(Ok(())),
                Poll::Ready(Standstill::Idle(Unused::Lately)) => {
                    stop(connection.as_mut());
                    return connection.as_mut().poll(cx).map_err(Ended::Broken);
                }
                Poll::Pending => {}
            }
            let waits = asked.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
            if told || (waits && !signal.has_changed().unwrap_or(true)) {
                return Poll::Pending;
            }
            asked = Some(cx.waker().clone());
            if stopping.as_mut().poll(cx).is_ready() {
                told = true;
                stop(connection.as_mut());
                return connection.as_mut().poll(cx).map_err(Ended::Broken);
            }
            Poll::Pending
        })
        .await;
        if let Err(Ended::Broken(error)) = &served {
            tracing::debug!(%error, "client connection ended early");
        }
        served
    }
}

/// Tells a client that there is no place for it.
pub(super) async fn turn_away(mut socket: impl AsyncRead + AsyncWrite + Unpin) {
    // A new socket has room for so little; where it has none, nobody listens.
    let told = tokio::time::timeout(HEARD_OUT.0, async {
        socket.write_all(NO_PLACE).await?;
        socket.shutdown().await
    });
    if matches!(told.await, Ok(Ok(()))) {
        hear_out(&mut socket).await;
    }
}

/// Reads what a client still sends, for a while.
async fn hear_out(socket: &mut (impl AsyncRead + Unpin)) {
    let mut nowhere = tokio::io::sink();
    let mut rest = socket.take(HEARD_OUT.1);
    let _ = tokio::time::timeout(HEARD_OUT.0, tokio::io::copy(&mut rest, &mut nowhere)).await;
}

/// What does not go on.
enum Standstill {
    /// The client accepts nothing of what waits for it.
    Writes,
    /// No stream is open, and none was for long.
    Idle(Unused),
}

/// Why a connection ended early.
enum Ended {
    Broken(hyper::Error),
    /// Nothing could be written for too long.
    Stuck,
    /// No request ever came.
    Unused,
}

impl Ended {
    /// Whose fault it was, if it was the client's; and makes the end of one that stood still a reset.
    fn refused(&self, io: &Io) -> Option<Refused> {
        match self {
            Self::Broken(error) if error.is_parse_too_large() => Some(Refused::HeaderTooLarge),
            Self::Broken(error) if error.is_parse() => Some(Refused::BadRequest),
            Self::Broken(error) if error.is_timeout() => Some(Refused::HeaderTimeout),
            Self::Broken(_) => None,
            Self::Stuck => {
                io.end_as_reset(true);
                Some(Refused::WriteTimeout)
            }
            Self::Unused => Some(Refused::HeaderTimeout),
        }
    }
}

/// Notices that a socket accepts nothing of what waits for it. Costs nothing while it does.
struct Writes<'a> {
    io: &'a Io,
    limit: Duration,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<'a> Writes<'a> {
    fn new(io: &'a Io, limit: Duration) -> Self {
        Self { io, limit, alarm: None }
    }

    /// Ready when it has accepted nothing for `limit`.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(since) = self.io.blocked_since() else {
            self.alarm = None;
            return Poll::Pending;
        };
        let left = self.limit.saturating_sub(Instant::now().saturating_duration_since(since));
        if left.is_zero() {
            return Poll::Ready(());
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
        ready!(alarm.as_mut().poll(cx));
        // Part of it went, and the rest waits anew.
        self.alarm = None;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canned_answer_is_as_long_as_it_says() {
        let answer = std::str::from_utf8(NO_PLACE).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
