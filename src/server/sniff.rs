//! Which HTTP a client speaks in the clear: HTTP/2 begins with a preface that no HTTP/1 request does (RFC 9113,
//! section 3.4).
//!
//! A client that has sent nothing yet takes no buffer.
//!
//! Invariant: what was read to find out is read again by whoever serves the connection, and no stamp changes by that.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much is read at once; most requests come whole in it.
const AT_ONCE: usize = 8 * 1024;

/// Reads until the first byte that differs from the preface, or the preface's end. Says whether it is HTTP/2. `None`
/// where the client sent nothing and left.
pub(super) async fn sniff<S: AsyncRead + Unpin>(mut socket: S) -> io::Result<Option<(bool, Rewound<S>)>> {
    let mut read = BytesMut::new();
    loop {
        let ended = poll_fn(|cx| poll_more(&mut socket, &mut read, cx)).await? == 0;
        if ended && read.is_empty() {
            return Ok(None);
        }
        let common = read.iter().zip(PREFACE).take_while(|(found, wanted)| found == wanted).count();
        if common == PREFACE.len() || common < read.len() || ended {
            return Ok(Some((common == PREFACE.len(), Rewound { before: read.freeze(), socket })));
        }
    }
}

/// Reads what there is, by way of the stack: room is made once something has come, and for no more than that.
fn poll_more<S: AsyncRead + Unpin>(
    socket: &mut S,
    read: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut room = [MaybeUninit::uninit(); AT_ONCE];
    let mut room = ReadBuf::uninit(&mut room);
    ready!(Pin::new(socket).poll_read(cx, &mut room))?;
    read.extend_from_slice(room.filled());
    Poll::Ready(Ok(room.filled().len()))
}

/// A socket of which some bytes are read once more.
pub(super) struct Rewound<S> {
    before: Bytes,
    socket: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.before.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buf);
        }
        let count = self.before.len().min(buf.remaining());
        buf.put_slice(&self.before[..count]);
        self.before.advance(count);
        if self.before.is_empty() {
            // Lets go of the buffer.
            self.before = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Every cut of `sent` is told apart alike, and comes out whole with the stamp of its last read.
    async fn sniffed(sent: &[u8]) -> bool {
        let mut answers = Vec::new();
        for cut in 1..sent.len() {
            let (mut far, near) = tokio::io::duplex(64);
            let near = Transport::new(near);
            let io = near.io().clone();
            let sniffing = tokio::spawn(sniff(near));
            far.write_all(&sent[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            // Fails where the first part was enough and nobody reads any more.
            far.write_all(&sent[cut..]).await.unwrap();
            drop(far);
            let (http2, mut rewound) = sniffing.await.unwrap().unwrap().expect("something was sent");
            let stamp = io.last_read();
            let mut first = [0; 1];
            rewound.read_exact(&mut first).await.unwrap();
            assert_eq!(io.last_read(), stamp, "reading again is no read");
            let mut rest = Vec::new();
            rewound.read_to_end(&mut rest).await.unwrap();
            assert_eq!([&first[..], &rest].concat(), sent);
            answers.push(http2);
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "the cut decides nothing");
        answers[0]
    }

    #[tokio::test]
    async fn only_the_whole_preface_is_http_2() {
        assert!(sniffed(PREFACE).await);
        assert!(sniffed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nand more").await);
        for other in [&b"POST / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", b"PRI", b"\x16\x03\x01"] {
            assert!(!sniffed(other).await);
        }
    }

    #[tokio::test]
    async fn who_sends_nothing_speaks_nothing() {
        let (far, near) = tokio::io::duplex(64);
        drop(far);
        assert!(sniff(near).await.unwrap().is_none());
    }
}
