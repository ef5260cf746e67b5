//! An upstream that does nothing by itself: the test accepts its connections, reads requests and answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::client::PATIENCE;
use super::eventually;

/// A listener.
pub(crate) struct Upstream(TcpListener);

/// A connection that was accepted.
pub(crate) struct Conn {
    socket: TcpStream,
    peer: SocketAddr,
    unread: Vec<u8>,
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Upstream {
    pub(crate) fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("nonblocking");
        Self(listener)
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// The next connection, which must come.
    pub(crate) fn accept(&self) -> Conn {
        eventually("a connection comes", || self.try_accept())
    }

    fn try_accept(&self) -> Option<Conn> {
        let (socket, peer) = match self.0.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}"),
        };
        socket.set_nonblocking(false).expect("blocking");
        socket.set_read_timeout(Some(PATIENCE)).expect("read timeout");
        socket.set_nodelay(true).expect("nodelay");
        Some(Conn { socket, peer, unread: Vec::new() })
    }

    /// The next connection, or `None` once `over`.
    pub(crate) fn accept_unless(&self, over: &AtomicBool) -> Option<Conn> {
        eventually("a connection comes", || {
            if over.load(Relaxed) {
                return Some(None);
            }
            self.try_accept().map(Some)
        })
    }

    /// Whether a connection waits to be accepted.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.accept().is_ok()
    }
}

impl Conn {
    /// Reads one request; its body must have a `content-length`, or be empty.
    pub(crate) fn request(&mut self) -> Request {
        self.try_request().expect("a request")
    }

    /// [`Conn::request`], or `None` when the peer closes before one has begun.
    pub(crate) fn try_request(&mut self) -> Option<Request> {
        let head = self.request_head()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        while self.unread.len() < length {
            assert!(self.more().expect("read") > 0, "half a request came: {head}");
        }
        Some(Request { head, body: self.unread.drain(..length).collect() })
    }

    /// Reads a request's head and leaves its body. `None` when the peer closes before one has begun.
    pub(crate) fn request_head(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if self.more().expect("read") == 0 {
                assert!(self.unread.is_empty(), "half a request came");
                return None;
            }
        };
        Some(String::from_utf8(self.unread.drain(..end).collect()).expect("text"))
    }

    /// Reads the chunks of a body whose head was read, to the end of its trailers, as they came.
    pub(crate) fn rest_of_chunks(&mut self) -> String {
        let is_over = |unread: &[u8]| unread.starts_with(b"0\r\n") || unread.windows(5).any(|w| w == b"\r\n0\r\n");
        while !(is_over(&self.unread) && self.unread.ends_with(b"\r\n\r\n")) {
            assert!(self.more().expect("read") > 0, "half a body came");
        }
        String::from_utf8(std::mem::take(&mut self.unread)).expect("text")
    }

    /// Reads the beginning of a TLS handshake, which is then left unanswered.
    pub(crate) fn client_hello(&mut self) {
        assert!(self.more().expect("read") > 0, "no handshake began");
        assert_eq!(self.unread[0], 22, "a handshake record (RFC 8446, section 5.1)");
        self.unread.clear();
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("written");
    }

    /// Sends, and says whether the peer still takes it.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.set_write_timeout(Some(PATIENCE)).expect("write timeout");
        self.socket.write_all(bytes.as_ref()).is_ok()
    }

    /// Answers with a whole body, and keeps the connection.
    pub(crate) fn answer(&mut self, body: &str) {
        let length = body.len();
        self.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }

    /// Begins a chunked stream of events.
    pub(crate) fn begin_stream(&mut self) {
        self.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
    }

    /// One event of a chunked stream, as one chunk.
    pub(crate) fn event(&mut self, data: &str) {
        self.send(format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8));
    }

    /// One event of a chunked stream; false when the peer takes no more of it for that long.
    pub(crate) fn try_event(&mut self, data: &str, patience: Duration) -> bool {
        self.socket.set_write_timeout(Some(patience)).expect("write timeout");
        let event = format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
        match self.socket.write_all(event.as_bytes()) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends a chunked stream in order.
    pub(crate) fn end_stream(&mut self) {
        self.send("0\r\n\r\n");
    }

    /// Waits until the peer has closed or reset the connection, having sent nothing more.
    pub(crate) fn closed_by_peer(mut self) {
        match self.more() {
            Ok(0) => {}
            Ok(_) => panic!("more came: {:?}", String::from_utf8_lossy(&self.unread)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }

    /// Closes with FIN, and waits until the peer's kernel has it.
    pub(crate) fn close(self) -> Self {
        let (local, peer) = (self.socket.local_addr().expect("local"), self.peer);
        // Fails where the peer was quicker.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        eventually("the FIN arrives", || has_fin(peer, local).then_some(()));
        self
    }

    /// Closes with RST.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).expect("linger");
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16 * 1024];
        let read = self.socket.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

/// Whether the end of a connection at `local` has a FIN of `peer`: it has left `ESTABLISHED`, 01 in `/proc/net/tcp`.
fn has_fin(local: SocketAddr, peer: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let (local, peer) = (format!(":{:04X}", local.port()), format!(":{:04X}", peer.port()));
    let candidates = table.lines().filter(|line| line.contains(&local) && line.contains(&peer));
    let mut states = candidates.filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        (fields[1].ends_with(&local) && fields[2].ends_with(&peer)).then(|| fields[3].to_owned())
    });
    states.next().is_none_or(|state| state != "01")
}
