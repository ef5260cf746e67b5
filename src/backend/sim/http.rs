//! HTTP/1 as a server speaks it, by hand, so that every byte leaves when and how the simulation wants.
//!
//! Invariant: a request is read to its last byte before anything is answered.

use std::fmt::Write as _;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};

use super::peer::{Left, Peer};

/// A request, read whole.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method, as sent.
    pub method: String,
    /// The request target, as sent: path and query.
    pub target: String,
    /// Header names as sent, and values, in order.
    pub headers: Vec<(String, Bytes)>,
    /// The body, with any chunked framing taken off.
    pub body: Bytes,
    /// When the last byte had been read.
    pub read_at: Instant,
    /// Whether the connection can serve another request: HTTP/1.1 and no `Connection: close`.
    pub keep_alive: bool,
    /// Whether it came as HTTP/1.1 or later, and so takes a chunked body.
    pub chunked_allowed: bool,
}

impl Request {
    /// The value of the first header of this name, in any case, if it is UTF-8. `None` when absent.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }
}

/// Why no request came.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The peer is gone; within a request or between two.
    Left(Left),
    /// What it sent is no HTTP/1 request, or too big; says which.
    Malformed(&'static str),
}

impl From<Left> for NoRequest {
    fn from(left: Left) -> Self {
        Self::Left(left)
    }
}

/// Reads the next request. Tells a client that waits for it to continue (`Expect: 100-continue`).
pub(super) async fn read_request(peer: &mut Peer) -> Result<Request, NoRequest> {
    const MOST_HEAD: usize = 256 * 1024;
    let mut request = loop {
        if let Some(request) = parse_head(&mut peer.input)? {
            break request;
        }
        if peer.input.len() > MOST_HEAD {
            return Err(NoRequest::Malformed("the request head is larger than 256 KiB"));
        }
        more(peer).await?;
    };
    let chunked = request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let length = match request.header("content-length") {
        Some(length) => length.parse().map_err(|_| NoRequest::Malformed("content-length is not a number"))?,
        None => 0,
    };
    let expects = request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
    if expects && (chunked || length > 0) && peer.input.is_empty() {
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    request.body = if chunked { read_chunks(peer).await? } else { read_exactly(peer, length).await? };
    request.read_at = Instant::now();
    Ok(request)
}

/// The head of a response. `headers` go out verbatim, in order; framing is the caller's.
pub(super) fn response_head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        // A string takes every write.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    head.into_bytes()
}

const MOST_BODY: usize = 128 * 1024 * 1024;

fn parse_head(input: &mut BytesMut) -> Result<Option<Request>, NoRequest> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(NoRequest::Malformed("the request head is not HTTP/1")),
    };
    let newer = head.version == Some(1);
    let mut request = Request {
        method: head.method.unwrap_or_default().to_owned(),
        target: head.path.unwrap_or_default().to_owned(),
        headers: head.headers.iter().map(|h| (h.name.to_owned(), Bytes::copy_from_slice(h.value))).collect(),
        body: Bytes::new(),
        read_at: Instant::now(),
        keep_alive: newer,
        chunked_allowed: newer,
    };
    let options = request.header("connection").unwrap_or_default().split(',');
    request.keep_alive &= !options.into_iter().any(|option| option.trim().eq_ignore_ascii_case("close"));
    input.advance(length);
    Ok(Some(request))
}

async fn read_exactly(peer: &mut Peer, length: usize) -> Result<Bytes, NoRequest> {
    if length > MOST_BODY {
        return Err(NoRequest::Malformed("the request body is larger than 128 MiB"));
    }
    while peer.input.len() < length {
        more(peer).await?;
    }
    Ok(peer.input.split_to(length).freeze())
}

/// Reads a chunked body and its trailers, which are dropped (RFC 9112, section 7.1).
async fn read_chunks(peer: &mut Peer) -> Result<Bytes, NoRequest> {
    let mut body = BytesMut::new();
    loop {
        let size = loop {
            match httparse::parse_chunk_size(&peer.input) {
                Ok(httparse::Status::Complete((line, size))) => {
                    peer.input.advance(line);
                    break usize::try_from(size).unwrap_or(usize::MAX);
                }
                Ok(httparse::Status::Partial) => more(peer).await?,
                Err(_) => return Err(NoRequest::Malformed("a chunk's size is not hexadecimal")),
            }
        };
        if size > MOST_BODY - body.len() {
            return Err(NoRequest::Malformed("the request body is larger than 128 MiB"));
        }
        if size == 0 {
            while !line(peer).await?.is_empty() {}
            return Ok(body.freeze());
        }
        body.extend_from_slice(&read_exactly(peer, size).await?);
        if !line(peer).await?.is_empty() {
            return Err(NoRequest::Malformed("a chunk is longer than its size"));
        }
    }
}

/// Reads one line; without its CRLF.
async fn line(peer: &mut Peer) -> Result<Bytes, NoRequest> {
    const MOST_LINE: usize = 8 * 1024;
    loop {
        if let Some(end) = memchr::memmem::find(&peer.input, b"\r\n") {
            let line = peer.input.split_to(end).freeze();
            peer.input.advance(2);
            return Ok(line);
        }
        if peer.input.len() > MOST_LINE {
            return Err(NoRequest::Malformed("a trailer line is longer than 8 KiB"));
        }
        more(peer).await?;
    }
}

async fn more(peer: &mut Peer) -> Result<(), NoRequest> {
    match peer.read().await {
        Ok(0) => Err(NoRequest::Left(Left { how: super::Departure::Closed, at: Instant::now() })),
        Ok(_) => Ok(()),
        Err(error) => Err(NoRequest::Left(Left::because(&error))),
    }
}

/// The reason phrase for the statuses an API answers with; others have none, which HTTP allows.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}
