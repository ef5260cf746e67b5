//! A connection to an upstream: plain TCP, or TLS over it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::transport::{Io, Transport};

/// Either kind of connection. Below both lies the same [`Transport`], so stamps mean the same.
pub(super) enum Stream {
    Plain(Transport<TcpStream>),
    Tls(Box<TlsStream<Transport<TcpStream>>>),
}

impl Stream {
    pub(super) fn io(&self) -> &Arc<Io> {
        self.transport().io()
    }

    /// Whether bytes it has accepted have not reached the socket: TLS keeps what that does not take.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.get_ref().1.wants_write(),
        }
    }

    /// Whether both sides have agreed on HTTP/2 (ALPN). `None` where nothing was agreed on, without TLS.
    pub(super) fn agreed_on_http2(&self) -> Option<bool> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => Some(tls.get_ref().1.alpn_protocol() == Some(b"h2")),
        }
    }

    pub(super) fn transport(&self) -> &Transport<TcpStream> {
        match self {
            Self::Plain(transport) => transport,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

/// Calls one method of whichever stream it is.
macro_rules! either {
    ($self:ident, $method:ident $(, $argument:expr)*) => {
        match $self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Self::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, poll_write_vectored, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown, cx)
    }
}
