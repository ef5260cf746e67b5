//! The client's side: accept connections, speak HTTP/1.1 and HTTP/2, in the clear or under TLS, hand each request to a
//! [`Handler`], drain at the end.
//!
//! One call of [`serve`] runs one thread's listeners on the current single-threaded runtime; a connection never leaves it.
//!
//! Invariant: a panic ends at most its own connection; under HTTP/2, one while an answer is awaited or written ends its
//! own stream alone.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::transport::{Io, Outlet};

pub mod bind;
mod connection;
mod held;
mod http2;
mod limits;
mod refused;
mod sniff;
mod tally;
mod tls;
mod upload;

use connection::{Serving, turn_away};
pub use limits::{Limits, Places};
pub use refused::Refused;
use tally::Tally;
pub use tls::{Tls, TlsError};
pub use upload::{Progress, Upload};

/// The connection a request came in on.
pub struct Client {
    /// The client's address. `None` over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// What its socket has read and accepted. Other requests may share it (HTTP/2).
    pub io: Arc<Io>,
    /// Where the reply's own bytes are counted. `None` where its place in the connection's output shows.
    tally: Option<Arc<Tally>>,
}

impl Client {
    /// Where the reply to this request goes.
    pub fn outlet(&self) -> &dyn Outlet {
        match &self.tally {
            Some(tally) => tally,
            None => &self.io,
        }
    }
}

/// Answers requests. One handler serves all connections of a listener.
pub trait Handler: Send + Sync + 'static {
    /// The response's body. An error in it ends the client's connection (its stream, under HTTP/2) abruptly, with no clean
    /// end of the body.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Answers `request`. The future is dropped when the client goes away before the answer's head is ready, be it before
    /// its first poll: what must happen for every request happens in this call.
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Arc<Client>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// A client's connection was accepted.
    fn connected(&self) {}

    /// One that was accepted is over.
    fn disconnected(&self) {}

    /// A client was turned away.
    fn refused(&self, _why: Refused) {}

    /// The time to drain is over: connections that are still open are about to be cut off.
    fn cutting_off(&self) {}
}

/// Says when to stop accepting: the value turns true once.
pub type Shutdown = watch::Receiver<bool>;

/// Where one thread's clients come in.
pub struct Listeners {
    /// TCP, under TLS where there is a certificate.
    pub tcp: TcpListener,
    /// The certificate that clients over TCP are shown.
    pub tls: Option<Arc<Tls>>,
    /// A Unix socket besides, in the clear.
    pub unix: Option<UnixListener>,
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, tls: None, unix: None }
    }
}

/// Clients that are being told that there is no place for them. Further ones are told nothing.
const MOST_TURNED_AWAY: usize = 64;

/// Accepts and serves until `shutdown`, then lets open requests finish for up to `limits.drain_timeout`.
///
/// Returns the number of connections that had to be cut off.
pub async fn serve<H: Handler>(
    listeners: impl Into<Listeners>,
    handler: Arc<H>,
    limits: Limits,
    mut shutdown: Shutdown,
) -> usize {
    let Listeners { tcp, tls, unix } = listeners.into();
    let drain_timeout = limits.drain_timeout;
    let serving = Arc::new(Serving { handler: handler.clone(), limits, shutdown: shutdown.clone() });
    let mut connections = JoinSet::new();
    let mut turned_away = JoinSet::new();
    loop {
        tokio::select! {
            accepted = tcp.accept() => match accepted {
                Ok((socket, peer)) => match Connected::new(&serving) {
                    Some(connected) => {
                        let tls = tls.as_ref().map(|tls| tls.current());
                        connections.spawn(async move { connected.serving.tcp(socket, peer, tls).await });
                    }
                    None if tls.is_none() && turned_away.len() < MOST_TURNED_AWAY => {
                        turned_away.spawn(turn_away(socket));
                    }
                    None => {}
                },
                Err(error) => could_not_accept(&error).await,
            },
            accepted = async { unix.as_ref()?.accept().await.into() }, if unix.is_some() => match accepted {
                Some(Ok((socket, _))) => match Connected::new(&serving) {
                    Some(connected) => {
                        connections.spawn(async move { connected.serving.unix(socket).await });
                    }
                    None if turned_away.len() < MOST_TURNED_AWAY => {
                        turned_away.spawn(turn_away(socket));
                    }
                    None => {}
                },
                Some(Err(error)) => could_not_accept(&error).await,
                None => {}
            },
            Some(ended) = connections.join_next() => report(ended),
            Some(_) = turned_away.join_next() => {}
            () = told_to_stop(&mut shutdown) => break,
        }
    }
    drop((tcp, unix, turned_away));
    let drained = tokio::time::timeout(drain_timeout, async {
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

/// A connection that has found a place, until it is dropped.
struct Connected<H: Handler> {
    serving: Arc<Serving<H>>,
    _place: limits::Place,
}

impl<H: Handler> Connected<H> {
    /// `None`, and told, where there is no place.
    fn new(serving: &Arc<Serving<H>>) -> Option<Self> {
        let Some(place) = serving.limits.places.take() else {
            serving.handler.refused(Refused::Limit);
            return None;
        };
        serving.handler.connected();
        Some(Self { serving: serving.clone(), _place: place })
    }
}

impl<H: Handler> Drop for Connected<H> {
    fn drop(&mut self) {
        self.serving.handler.disconnected();
    }
}

async fn could_not_accept(error: &std::io::Error) {
    // Out of descriptors or memory: wait for some to come back rather than spin. A client that left while it was queued
    // is no reason to.
    if error.kind() != std::io::ErrorKind::ConnectionAborted {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
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
