//! The socket, on both sides of the proxy: it counts reads and accepted writes and says when they happened.
//!
//! A [`Transport`] wraps the TCP stream below TLS and below HTTP. Its [`Io`] outlives it and is shared with whoever
//! needs to know: the upstream body asks which read brought the frame at hand, and the measuring side is told when
//! the client's socket has accepted the bytes it was given.
//!
//! Invariant: a read that brings no bytes (end of file) leaves the last stamp as it was.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clock::{ReadStamp, from_monotonic_ns, monotonic_ns};

/// Lets the system notice, within about two minutes, a peer that has vanished without a word.
///
/// # Errors
/// What the system says; the connection is then gone already.
pub fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    let probes = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    SockRef::from(socket).set_tcp_keepalive(&probes.with_retries(4))
}

/// Is told how far the socket has come with what it was given to write.
///
/// `total` counts the bytes the socket has accepted since the connection began, `at` is when it accepted the last.
pub trait WriteListener: Send + Sync {
    /// The socket took part of what was offered, or nothing: the rest waits.
    fn partial(&self, total: u64, at: Instant);
    /// The socket has accepted everything written so far. Returns false when the listener has heard enough.
    fn flushed(&self, total: u64, at: Instant) -> bool;
    /// The connection is gone; what it had not accepted never will be.
    fn closed(&self);
}

/// Where a reply's bytes go, as whoever wants to be told of their writing sees it.
pub trait Outlet {
    /// Makes `listener` the one that is told of writes, in place of any other.
    fn listen(&self, listener: Arc<dyn WriteListener>);

    /// Whether the totals told count the bytes of this reply's body alone. Otherwise they count the whole connection's.
    fn counts_body(&self) -> bool {
        false
    }
}

impl<T: Outlet + ?Sized> Outlet for Arc<T> {
    fn listen(&self, listener: Arc<dyn WriteListener>) {
        (**self).listen(listener);
    }

    fn counts_body(&self) -> bool {
        (**self).counts_body()
    }
}

/// How long the steps of opening a connection took. Each is `None` where it did not happen: a reused connection has
/// none, a plain one no `tls`, an address that needs no look-up no `dns`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectPhases {
    /// Name look-up.
    pub dns: Option<Duration>,
    /// TCP handshake, every address tried included.
    pub connect: Option<Duration>,
    /// TLS handshake.
    pub tls: Option<Duration>,
}

/// What a [`Transport`] has seen. All counts start at zero with the connection.
#[derive(Default)]
pub struct Io {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    /// Reading fails once more bytes than this have been read; 0 for no limit.
    most_read: AtomicU64,
    read_at_ns: AtomicU64,
    bytes_written: AtomicU64,
    written_at_ns: AtomicU64,
    /// Since when the socket has taken nothing of what waits; 0 while nothing waits.
    blocked_at_ns: AtomicU64,
    /// More was written since the last flush.
    unflushed: AtomicBool,
    /// The connection is to end as a reset.
    reset: AtomicBool,
    listener: Mutex<Option<Arc<dyn WriteListener>>>,
}

impl Io {
    /// The last read that brought bytes. `None` before the first.
    pub fn last_read(&self) -> Option<ReadStamp> {
        let number = self.reads.load(Relaxed);
        (number > 0).then(|| ReadStamp { at: from_monotonic_ns(self.read_at_ns.load(Relaxed)), number })
    }

    /// Bytes read since the connection began.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// From now on at most about `bytes` more are read, then reading fails; `None` lifts the limit. Whoever polls a
    /// connection that consumes without end gets control back by it.
    pub fn read_at_most(&self, bytes: Option<u64>) {
        self.most_read.store(bytes.map_or(0, |bytes| self.bytes_read() + bytes), Relaxed);
    }

    /// Whether the limit of [`Io::read_at_most`] was reached.
    pub fn is_exhausted(&self) -> bool {
        let most = self.most_read.load(Relaxed);
        most > 0 && self.bytes_read() > most
    }

    /// When the socket last accepted bytes. `None` before the first write.
    pub fn last_write(&self) -> Option<Instant> {
        let at = self.written_at_ns.load(Relaxed);
        (at > 0).then(|| from_monotonic_ns(at))
    }

    /// Bytes accepted by the socket since the connection began.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Relaxed)
    }

    /// Whether everything written so far has been flushed: nothing waits in a buffer above this socket.
    pub fn is_flushed(&self) -> bool {
        !self.unflushed.load(Relaxed)
    }

    /// Whether the connection, when it is dropped, ends as a reset, which its peer cannot take for an orderly end.
    pub fn end_as_reset(&self, reset: bool) {
        self.reset.store(reset, Relaxed);
    }

    /// Since when bytes have been waiting of which the socket accepts none. `None` while none wait.
    pub fn blocked_since(&self) -> Option<Instant> {
        let at = self.blocked_at_ns.load(Relaxed);
        (at > 0).then(|| from_monotonic_ns(at))
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<Arc<dyn WriteListener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, bytes: usize) {
        self.read_at_ns.store(monotonic_ns(Instant::now()), Relaxed);
        add(&self.reads, 1);
        add(&self.bytes_read, bytes as u64);
    }

    fn wrote(&self, bytes: usize) {
        self.written_at_ns.store(monotonic_ns(Instant::now()), Relaxed);
        add(&self.bytes_written, bytes as u64);
        self.unflushed.store(true, Relaxed);
        self.blocked_at_ns.store(0, Relaxed);
    }

    fn blocked(&self) {
        if self.blocked_at_ns.load(Relaxed) == 0 {
            self.blocked_at_ns.store(monotonic_ns(Instant::now()), Relaxed);
        }
    }

    fn tell_partial(&self) {
        if let Some(listener) = &*self.listener() {
            listener.partial(self.bytes_written(), self.last_write().unwrap_or_else(Instant::now));
        }
    }

    fn tell_flushed(&self) {
        let mut slot = self.listener();
        let at = self.last_write().unwrap_or_else(Instant::now);
        if slot.as_ref().is_some_and(|listener| !listener.flushed(self.bytes_written(), at)) {
            *slot = None;
        }
    }
}

impl Outlet for Io {
    fn listen(&self, listener: Arc<dyn WriteListener>) {
        let before = self.listener().replace(listener);
        drop(before);
    }
}

/// Adds to a count that only its transport changes, so that no locked instruction is needed.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed) + more, Relaxed);
}

/// A socket that keeps its [`Io`] up to date. Reads and writes pass through unchanged.
pub struct Transport<S> {
    socket: S,
    io: Arc<Io>,
    /// Makes closing the socket a reset.
    arm_reset: fn(&S),
}

impl Transport<TcpStream> {
    /// Wraps a TCP connection, with fresh counts.
    pub fn tcp(socket: TcpStream) -> Self {
        // Should it fail, the connection is gone already.
        let arm_reset = |socket: &TcpStream| drop(SockRef::from(socket).set_linger(Some(Duration::ZERO)));
        Self { socket, io: Arc::default(), arm_reset }
    }
}

impl<S> Transport<S> {
    /// Wraps a stream that cannot be reset, with fresh counts.
    pub fn new(socket: S) -> Self {
        Self { socket, io: Arc::default(), arm_reset: |_| {} }
    }

    /// What this transport has seen; the handle stays valid after the transport is gone.
    pub fn io(&self) -> &Arc<Io> {
        &self.io
    }

    /// The socket inside.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    fn after_write(&mut self, offered: usize, result: &Poll<io::Result<usize>>) {
        match result {
            Poll::Ready(Ok(0) | Err(_)) => {}
            Poll::Ready(Ok(accepted)) => {
                self.io.wrote(*accepted);
                if *accepted < offered {
                    self.io.tell_partial();
                }
            }
            Poll::Pending => {
                self.io.blocked();
                self.io.tell_partial();
            }
        }
    }
}

impl<S> Drop for Transport<S> {
    fn drop(&mut self) {
        if self.io.reset.load(Relaxed) {
            (self.arm_reset)(&self.socket);
        }
        let listener = self.io.listener().take();
        if let Some(listener) = listener {
            listener.closed();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Transport<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.io.is_exhausted() {
            return Poll::Ready(Err(io::Error::other("more was sent than may be read")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        if read > 0 {
            this.io.read(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.socket).poll_write(cx, buf);
        this.after_write(buf.len(), &result);
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.socket).poll_write_vectored(cx, bufs);
        this.after_write(bufs.iter().map(|buf| buf.len()).sum(), &result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.socket).poll_flush(cx))?;
        if this.io.unflushed.swap(false, Relaxed) {
            this.io.tell_flushed();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[derive(Default)]
    struct Heard(Mutex<Vec<(&'static str, u64)>>);

    impl WriteListener for Heard {
        fn partial(&self, total: u64, _: Instant) {
            self.0.lock().unwrap().push(("partial", total));
        }
        fn flushed(&self, total: u64, _: Instant) -> bool {
            self.0.lock().unwrap().push(("flushed", total));
            total < 20
        }
        fn closed(&self) {
            self.0.lock().unwrap().push(("closed", 0));
        }
    }

    #[tokio::test]
    async fn counts_reads_but_not_the_end_of_file() {
        let (mut far, near) = tokio::io::duplex(64);
        let mut near = Transport::new(near);
        assert_eq!(near.io().last_read(), None);
        far.write_all(b"abc").await.unwrap();
        let mut buf = [0; 16];
        assert_eq!(near.read(&mut buf).await.unwrap(), 3);
        let stamp = near.io().last_read().unwrap();
        assert_eq!((stamp.number, near.io().bytes_read()), (1, 3));
        drop(far);
        assert_eq!(near.read(&mut buf).await.unwrap(), 0);
        assert_eq!(near.io().last_read(), Some(stamp));
    }

    #[tokio::test]
    async fn reading_fails_beyond_the_limit_and_goes_on_without_one() {
        let (mut far, near) = tokio::io::duplex(64);
        let mut near = Transport::new(near);
        let mut buf = [0; 4];
        near.io().read_at_most(Some(3));
        far.write_all(b"0123456789").await.unwrap();
        assert_eq!(near.read(&mut buf).await.unwrap(), 4);
        assert!(near.io().is_exhausted() && near.read(&mut buf).await.is_err());
        near.io().read_at_most(None);
        assert_eq!(near.read(&mut buf).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn tells_the_listener_of_partial_writes_flushes_and_the_close() {
        let (mut far, near) = tokio::io::duplex(8);
        let mut near = Transport::new(near);
        let heard = Arc::new(Heard::default());
        near.io().listen(heard.clone());
        assert!(near.io().is_flushed());
        assert_eq!(near.write(b"0123456789").await.unwrap(), 8);
        assert!(!near.io().is_flushed());
        let mut buf = [0; 8];
        far.read_exact(&mut buf).await.unwrap();
        near.write_all(b"89").await.unwrap();
        near.flush().await.unwrap();
        near.flush().await.unwrap();
        assert_eq!(*heard.0.lock().unwrap(), [("partial", 8), ("flushed", 10)]);
        assert_eq!(near.io().bytes_written(), 10);
        drop(near);
        assert_eq!(heard.0.lock().unwrap().last(), Some(&("closed", 0)));
    }

    #[tokio::test]
    async fn a_write_is_blocked_from_the_first_refusal_until_something_is_taken() {
        let (mut far, near) = tokio::io::duplex(8);
        let mut near = Transport::new(near);
        near.write_all(&[0; 8]).await.unwrap();
        assert_eq!(near.io().blocked_since(), None, "a full socket is none while nothing waits");
        let blocked = |near: &mut Transport<_>| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(near).poll_write(&mut cx, b"9").is_pending());
        };
        blocked(&mut near);
        let since = near.io().blocked_since().unwrap();
        blocked(&mut near);
        assert_eq!(near.io().blocked_since(), Some(since));
        far.read_exact(&mut [0; 8]).await.unwrap();
        near.write_all(b"9").await.unwrap();
        assert_eq!(near.io().blocked_since(), None);
    }

    #[tokio::test]
    async fn forgets_a_listener_that_has_heard_enough() {
        let (_far, near) = tokio::io::duplex(64);
        let mut near = Transport::new(near);
        let heard = Arc::new(Heard::default());
        near.io().listen(heard.clone());
        near.write_all(&[0; 20]).await.unwrap();
        near.flush().await.unwrap();
        near.write_all(&[0; 20]).await.unwrap();
        near.flush().await.unwrap();
        drop(near);
        assert_eq!(*heard.0.lock().unwrap(), [("flushed", 20)]);
    }
}
