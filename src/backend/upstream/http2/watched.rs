//! A connection whose bytes are looked at as they cross the socket, and not touched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::stream::Stream;
use super::frames::Frames;
use super::watch::Watch;

/// See above: what passes is told to a [`Watch`].
pub(super) struct Watched {
    inner: Stream,
    watch: Arc<Watch>,
    incoming: Frames,
    outgoing: Frames,
}

impl Watched {
    pub(super) fn new(inner: Stream, watch: Arc<Watch>) -> Self {
        Self { inner, watch, incoming: Frames::of_server(), outgoing: Frames::of_client() }
    }

    fn wrote(&mut self, bytes: impl Iterator<Item = impl AsRef<[u8]>>) {
        self.watch.wrote_bytes(&mut self.outgoing, bytes);
        if !self.inner.holds_back() {
            self.watch.accepted();
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (before, full) = (buf.filled().len(), buf.remaining() == 0);
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        match &buf.filled()[before..] {
            // Where nothing fits in, nothing is no end.
            [] if full => {}
            [] => this.watch.ended(),
            bytes => this.watch.read(&mut this.incoming, bytes),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let accepted = ready!(Pin::new(&mut this.inner).poll_write(cx, buf))?;
        this.wrote(std::iter::once(&buf[..accepted]));
        Poll::Ready(Ok(accepted))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let accepted = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, bufs))?;
        let mut left = accepted;
        let taken = bufs.iter().map(|buf| {
            let taken = left.min(buf.len());
            left -= taken;
            &buf[..taken]
        });
        this.wrote(taken);
        Poll::Ready(Ok(accepted))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.inner).poll_flush(cx))?;
        this.watch.accepted();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::Transport;

    #[tokio::test]
    async fn a_read_with_no_room_is_no_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        far.write_all(b"x").await.unwrap();
        near.readable().await.unwrap();
        let stream = Stream::Plain(Transport::tcp(near));
        let watch = Watch::new(stream.io().clone());
        let mut watched = Watched::new(stream, watch.clone());
        assert_eq!(watched.read(&mut []).await.unwrap(), 0);
        assert!(!watch.has_ended());
        assert_eq!(watched.read(&mut [0; 9]).await.unwrap(), 1);
        drop(far);
        assert_eq!(watched.read(&mut [0; 9]).await.unwrap(), 0);
        assert!(watch.has_ended());
    }
}
