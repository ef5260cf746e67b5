//! As much HTTP/1.1 as both ends of the comparison need: heads, and bodies framed by length or by chunks.
//!
//! Invariant: fed bytes in any split, a body yields the same payload.

use std::io::{self, ErrorKind};

/// How a message says where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `content-length`, in bytes.
    Length(u64),
    /// `transfer-encoding: chunked`.
    Chunked,
}

/// Takes a body apart as its bytes arrive.
#[derive(Debug)]
pub(crate) enum Body {
    /// Payload bytes still to come, and whether they belong to a chunk.
    Data { left: u64, chunked: bool },
    /// Inside a chunk's size line: the size so far, and whether its digits have ended (at `;` or CR).
    Size { size: u64, over: bool },
    /// Between a chunk's payload and the next size line.
    ChunkEnd,
    /// Behind the chunk of size zero: how many bytes of the current trailer line were seen, CR left out.
    Trailer { seen: usize },
    /// Whole.
    Done,
}

impl Body {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Done,
            Framing::Length(left) => Self::Data { left, chunked: false },
            Framing::Chunked => Self::Size { size: 0, over: false },
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Hands every payload piece in `bytes` to `payload`. Bytes behind the body's end are an error: nobody here pipelines.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut payload: impl FnMut(&[u8])) -> io::Result<()> {
        while let Some(&first) = bytes.first() {
            let mut used = 1;
            *self = match *self {
                Self::Data { left, chunked } => {
                    used = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    payload(&bytes[..used]);
                    match (left - used as u64, chunked) {
                        (0, true) => Self::ChunkEnd,
                        (0, false) => Self::Done,
                        (left, chunked) => Self::Data { left, chunked },
                    }
                }
                Self::Size { size: 0, .. } if first == b'\n' => Self::Trailer { seen: 0 },
                Self::Size { size, .. } if first == b'\n' => Self::Data { left: size, chunked: true },
                Self::Size { size, over: true } => Self::Size { size, over: true },
                Self::Size { size, over: false } => match (first as char).to_digit(16) {
                    Some(digit) => Self::Size { size: size * 16 + u64::from(digit), over: false },
                    None if matches!(first, b'\r' | b';' | b' ') => Self::Size { size, over: true },
                    None => return Err(invalid("a chunk size that is no hexadecimal number")),
                },
                Self::ChunkEnd if first == b'\n' => Self::Size { size: 0, over: false },
                Self::ChunkEnd if first == b'\r' => Self::ChunkEnd,
                Self::ChunkEnd => return Err(invalid("a chunk longer than its size")),
                Self::Trailer { seen: 0 } if first == b'\n' => Self::Done,
                Self::Trailer { .. } if first == b'\n' => Self::Trailer { seen: 0 },
                Self::Trailer { seen } => Self::Trailer { seen: seen + usize::from(first != b'\r') },
                Self::Done => return Err(invalid("bytes behind the end of the body")),
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }
}

/// What one end needs to know of the other's message head.
pub(crate) struct Head {
    /// The head's length in bytes, its blank line included.
    pub(crate) len: usize,
    /// How the body is framed.
    pub(crate) framing: Framing,
    /// The `x-price` header: what a request wants of the upstream. Empty in responses.
    pub(crate) wish: String,
}

/// A request's head. `None` while bytes are missing.
pub(crate) fn request_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes).map_err(|e| invalid(&e.to_string()))? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(len) => Ok(Some(head(len, request.headers, Framing::Length(0)))),
    }
}

/// A response's head; any status but 200 is an error. `None` while bytes are missing.
pub(crate) fn response_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes).map_err(|e| invalid(&e.to_string()))? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(_) if response.code != Some(200) => Err(invalid(&format!(
            "status {}, wanted 200: {}",
            response.code.unwrap_or(0),
            String::from_utf8_lossy(bytes)
        ))),
        httparse::Status::Complete(len) => Ok(Some(head(len, response.headers, Framing::Length(0)))),
    }
}

fn head(len: usize, headers: &[httparse::Header<'_>], default: Framing) -> Head {
    let mut head = Head { len, framing: default, wish: String::new() };
    for header in headers {
        let value = || String::from_utf8_lossy(header.value).trim().to_owned();
        if header.name.eq_ignore_ascii_case("content-length") {
            head.framing = Framing::Length(value().parse().unwrap_or(0));
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.framing = Framing::Chunked;
        } else if header.name.eq_ignore_ascii_case("x-price") {
            head.wish = value();
        }
    }
    head
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}
