//! The client's side: accept connections, speak HTTP/1.1, hand each request to a [`Handler`], drain at the end.
//!
//! One call of [`serve`] runs one listener on the current single-threaded runtime; a connection never leaves it.
//!
//! Invariant: a panic in a handler ends its own connection and no other.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::transport::{Io, Transport, keep_alive};

pub mod bind;
mod upload;

pub use upload::{Progress, Upload};

/// The connection a request came in on.
pub struct Client {
    /// The client's address.
    pub peer: SocketAddr,
    /// What its socket has read and accepted.
    pub io: Arc<Io>,
}

/// Answers requests. One handler serves all connections of a listener.
pub trait Handler: Send + Sync + 'static {
    /// The response's body. An error in it ends the client's connection abruptly, with no clean end of the body.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// Answers `request`. The future is dropped when the client goes away before the answer's head is ready, be it before
    /// its first poll: what must happen for every request happens in this call.
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Arc<Client>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// The time to drain is over: connections that are still open are about to be cut off.
    fn cutting_off(&self) {}
}

/// Says when to stop accepting: the value turns true once.
pub type Shutdown = watch::Receiver<bool>;

/// How connections are treated.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a client may take over a request's head.
    pub header_timeout: Duration,
    /// After the shutdown signal: how long open requests may take to finish.
    pub drain_timeout: Duration,
}

/// Accepts and serves until `shutdown`, then lets open requests finish for up to `limits.drain_timeout`.
///
/// Returns the number of connections that had to be cut off.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    handler: Arc<H>,
    limits: Limits,
    mut shutdown: Shutdown,
) -> usize {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let serving = connection(socket, peer, handler.clone(), limits, shutdown.clone());
                    connections.spawn(serving);
                }
                Err(error) => {
                    // Out of descriptors or memory: wait for some to come back rather than spin. A client that left
                    // while it was queued is no reason to.
                    if error.kind() != std::io::ErrorKind::ConnectionAborted {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            },
            Some(ended) = connections.join_next() => report(ended),
            () = told_to_stop(&mut shutdown) => break,
        }
    }
    drop(listener);
    let drained = tokio::time::timeout(limits.drain_timeout, async {
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    });
    if drained.await.is_ok() {
        return 0;
    }
    handler.cutting_off();
    let cut = connections.len();
    connections.shutdown().await;
    cut
}

/// Waits for the shutdown signal; the sender's end counts as one.
pub async fn told_to_stop(shutdown: &mut Shutdown) {
    // An error means that the sender is gone, and with it everyone who could want this server to go on.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a connection's task panicked; its requests count as internal");
    }
}

async fn connection<H: Handler>(
    socket: TcpStream,
    peer: SocketAddr,
    handler: Arc<H>,
    limits: Limits,
    mut shutdown: Shutdown,
) {
    if let Err(error) = socket.set_nodelay(true).and_then(|()| keep_alive(&socket)) {
        tracing::debug!(%error, %peer, "client gone before its connection was set up");
        return;
    }
    let transport = Transport::tcp(socket);
    let client = Arc::new(Client { peer, io: transport.io().clone() });
    let service = service_fn(move |request| {
        let answer = handler.clone().handle(request, client.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            // The upstream's date passes; none is made up where it sent none.
            .auto_date_header(false)
            .serve_connection(TokioIo::new(transport), service)
    );
    // The signal is asked for once per task, not at every wake-up: this runs for each event of each stream.
    let signal = shutdown.clone();
    let mut stopping = pin!(told_to_stop(&mut shutdown));
    let mut asked = None::<Waker>;
    let mut told = false;
    let served = poll_fn(|cx| {
        if let Poll::Ready(served) = connection.as_mut().poll(cx) {
            return Poll::Ready(served);
        }
        let waits = asked.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if told || (waits && !signal.has_changed().unwrap_or(true)) {
            return Poll::Pending;
        }
        asked = Some(cx.waker().clone());
        if stopping.as_mut().poll(cx).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
            return connection.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await;
    if let Err(error) = served {
        tracing::debug!(%error, %peer, "client connection ended early");
    }
}
