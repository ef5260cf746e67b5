//! One connection to a client: bytes in and out, stamped where they leave, and a watch for the client going away.
//!
//! Invariant: the instants around a write are read right before and right after the write itself; nothing that
//! buffers lies between them and the socket (TLS encrypts, and passes on at once).

use std::io;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::pace::Pacer;

/// The socket, in the clear or under TLS.
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection and what has been read from it ahead of need.
pub(super) struct Peer {
    socket: Socket,
    pub(super) input: BytesMut,
    pacer: Pacer,
}

/// The peer is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) how: Departure,
    /// When it was noticed.
    pub(super) at: Instant,
}

/// How a peer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It closed its side in order (TCP FIN). One that only closed its sending half counts as gone, too.
    Closed,
    /// It reset the connection (TCP RST), or writing to it failed.
    Reset,
}

/// The instants around one write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) done: Instant,
}

impl Peer {
    pub(super) fn new(socket: Socket) -> Self {
        Self { socket, input: BytesMut::new(), pacer: Pacer::default() }
    }

    /// Reads once, appending to `input`. `Ok(0)` at the end of what the peer sends.
    pub(super) async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(8 * 1024);
        match &mut self.socket {
            Socket::Plain(tcp) => tcp.read_buf(&mut self.input).await,
            Socket::Tls(tls) => tls.read_buf(&mut self.input).await,
        }
    }

    /// Writes all of `bytes` at once.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<Sent, Left> {
        let at = Instant::now();
        let written = match &mut self.socket {
            Socket::Plain(tcp) => tcp.write_all(bytes).await,
            Socket::Tls(tls) => match tls.write_all(bytes).await {
                Ok(()) => tls.flush().await,
                failed => failed,
            },
        };
        let done = Instant::now();
        written.map(|()| Sent { at, done }).map_err(|_| Left { how: Departure::Reset, at: done })
    }

    /// Waits until `deadline`, or fails as soon as the peer goes away.
    pub(super) async fn until(&mut self, deadline: Instant) -> Result<(), Left> {
        if deadline <= Instant::now() {
            return Ok(());
        }
        let mut pacer = std::mem::take(&mut self.pacer);
        let outcome = tokio::select! {
            biased;
            () = pacer.until(deadline) => Ok(()),
            left = self.left() => Err(left),
        };
        self.pacer = pacer;
        outcome
    }

    /// Returns when the peer goes away. What it sends meanwhile is kept as its next request, up to a limit beyond
    /// which it is no longer watched.
    pub(super) async fn left(&mut self) -> Left {
        const PIPELINED: usize = 256 * 1024;
        while self.input.len() < PIPELINED {
            match self.read().await {
                Ok(0) => return Left { how: Departure::Closed, at: Instant::now() },
                Ok(_) => {}
                Err(error) => return Left::because(&error),
            }
        }
        std::future::pending().await
    }

    /// Ends the connection with a RST (`SO_LINGER` of zero).
    pub(super) fn reset(self) {
        let tcp = self.tcp();
        // Where it fails the connection is already down.
        let _ = tcp.set_zero_linger();
    }

    /// Ends the connection with a FIN in the middle of whatever was going on: under TLS without `close_notify`.
    pub(super) async fn cut(self) {
        match self.socket {
            Socket::Plain(tcp) => linger(tcp).await,
            Socket::Tls(tls) => linger(tls.into_inner().0).await,
        }
    }

    /// Ends the connection in order.
    pub(super) async fn close(self) {
        match self.socket {
            Socket::Plain(tcp) => linger(tcp).await,
            Socket::Tls(mut tls) => {
                let _ = tls.shutdown().await;
                linger(tls.into_inner().0).await;
            }
        }
    }

    fn tcp(&self) -> &TcpStream {
        match &self.socket {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl Left {
    pub(super) fn because(error: &io::Error) -> Self {
        let how = match error.kind() {
            io::ErrorKind::UnexpectedEof => Departure::Closed,
            _ => Departure::Reset,
        };
        Self { how, at: Instant::now() }
    }
}

/// Sends FIN and waits for the peer's, for a second at most: closing over unread bytes would turn the FIN into a RST
/// and destroy what is still on its way (RFC 9112, section 9.6).
async fn linger(mut tcp: TcpStream) {
    const PATIENCE: Duration = Duration::from_secs(1);
    if tcp.shutdown().await.is_err() {
        return;
    }
    let mut sink = [0; 4096];
    let drain = async { while matches!(tcp.read(&mut sink).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(PATIENCE, drain).await;
}
