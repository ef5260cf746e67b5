//! An upstream moved by hand: the test itself says when it sends and how it ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use socket2::SockRef;

use super::net::PATIENCE;

pub(crate) const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// A listener that answers nothing by itself.
pub(crate) struct Hand(TcpListener);

impl Hand {
    pub(crate) fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// Accepts one connection and reads one request's head and body.
    pub(crate) fn request(&self) -> Answering {
        let (mut socket, _) = self.0.accept().expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(b"\r\n\r\n") {
            socket.read_exact(&mut byte).expect("a head");
            read.extend(byte);
        }
        let head = String::from_utf8(read).expect("text").to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length = length.and_then(|length| length.parse().ok()).expect("a length");
        socket.read_exact(&mut vec![0; length]).expect("a body");
        Answering(socket)
    }
}

/// A request that waits for its answer.
pub(crate) struct Answering(TcpStream);

impl Answering {
    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        &mut self.0
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("written");
    }

    /// Sends one chunk.
    pub(crate) fn chunk(&mut self, bytes: &[u8]) {
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.send(framed);
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        SockRef::from(&self.0).set_linger(Some(std::time::Duration::ZERO)).expect("no linger");
    }
}
