//! A client that hides nothing: raw sockets, and replies with the way they ended.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Long enough for any machine; only what is broken makes a test wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Client<S = TcpStream> {
    socket: S,
    unread: Vec<u8>,
}

/// How a reply's body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// As its framing says.
    Complete,
    /// By a FIN before the framing's end.
    Fin,
    /// By a RST.
    Reset,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) ended: Ended,
}

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("read timeout");
        Self::over(socket)
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn over(socket: S) -> Self {
        Self { socket, unread: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).expect("written");
        self.socket.flush().expect("flushed");
    }

    /// Asks for a chat completion and reads the reply.
    pub(crate) fn chat(&mut self, sim: &str, body: &str) -> Reply {
        self.send(chat(sim, body));
        self.reply()
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"));
        self.reply()
    }

    /// Sends a request and reads the reply.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Reads a reply's head; the body is still to be read.
    pub(crate) fn head(&mut self) -> Reply {
        let head = self.until(b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(head).expect("text");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Reply { status, head, body: Vec::new(), ended: Ended::Complete }
    }

    /// Reads a reply's head and body.
    pub(crate) fn reply(&mut self) -> Reply {
        let reply = self.head();
        self.rest(reply)
    }

    /// Reads the body that belongs to a head.
    pub(crate) fn rest(&mut self, mut reply: Reply) -> Reply {
        let status = reply.status;
        let read = if status < 200 || status == 204 || status == 304 {
            Ok(())
        } else if reply.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut reply.body)
        } else if let Some(length) = reply.header("content-length") {
            let length = length.parse().expect("a length");
            self.exactly(length, &mut reply.body)
        } else if reply.header("connection") == Some("close") {
            self.until_closed(&mut reply.body)
        } else {
            Ok(())
        };
        match read {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => reply.ended = Ended::Fin,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => reply.ended = Ended::Reset,
            Err(error) => panic!("the body broke: {error}; {reply:?}"),
        }
        reply
    }

    /// Reads up to and with `mark`.
    pub(crate) fn until(&mut self, mark: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.unread.windows(mark.len()).position(|window| window == mark) {
                return Ok(self.unread.drain(..at + mark.len()).collect());
            }
            self.more()?;
        }
    }

    /// Reads the next bytes; what was read before comes first.
    pub(crate) fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.unread.is_empty() {
            self.more()?;
        }
        Ok(std::mem::take(&mut self.unread))
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    fn more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.socket.read(&mut buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            n => {
                self.unread.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }

    fn exactly(&mut self, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
        let wanted = body.len() + length;
        loop {
            let take = self.unread.len().min(wanted - body.len());
            body.extend(self.unread.drain(..take));
            if body.len() == wanted {
                return Ok(());
            }
            self.more()?;
        }
    }

    fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        while self.chunk(body)? {}
        Ok(())
    }

    /// Reads one chunk of a body. Returns whether it was not the last.
    pub(crate) fn chunk(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let size = self.until(b"\r\n")?;
        let size = std::str::from_utf8(&size).expect("text").trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        self.exactly(size, body)?;
        assert_eq!(self.until(b"\r\n")?, b"\r\n", "a chunk ends where it says");
        Ok(size > 0)
    }

    fn until_closed(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            body.append(&mut self.unread);
            match self.more() {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
        }
    }
}

impl Reply {
    /// The value of the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The data of every event; the simulation's own streams have one `data` line in each.
    pub(crate) fn data(&self) -> Vec<&str> {
        let body = std::str::from_utf8(&self.body).expect("UTF-8");
        body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").expect("data")).collect()
    }

    /// The events that are JSON.
    pub(crate) fn events(&self) -> Vec<Value> {
        let data = self.data().into_iter().filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.data().last() == Some(&"[DONE]")
    }

    /// All `field` text of one choice's deltas.
    pub(crate) fn text(&self, choice: u32, field: &str) -> String {
        let events = self.events();
        let choices = events.iter().filter_map(|event| event["choices"].get(0));
        let ours = choices.filter(|known| known["index"] == choice);
        ours.filter_map(|known| known["delta"][field].as_str().map(str::to_owned)).collect()
    }
}

/// A chat request with an `x-sim` header.
pub(crate) fn chat(sim: &str, body: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-sim: {sim}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
