//! The way through an HTTP proxy: `CONNECT` (RFC 9110, section 9.3.6), and what goes wrong with proxies.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::dial::Unreachable;
use super::failure::again;

/// The largest head of an answer to `CONNECT`, in bytes.
const MOST_HEAD: usize = 16 << 10;
/// The longest reason phrase that is repeated, in bytes.
const MOST_REASON: usize = 100;

/// What a proxy did wrong.
#[derive(Debug, Error)]
pub enum ProxyFault {
    /// Its name could not be looked up.
    #[error("its name could not be looked up: {0}")]
    Dns(#[source] io::Error),
    /// No address of it accepted a connection.
    #[error("connection failed: {0}")]
    Connect(#[source] Unreachable),
    /// It refused to carry the request.
    #[error("it answered {status} {reason}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its reason phrase, printable and bounded. May be empty.
        reason: String,
    },
    /// The connection ended before its answer's head.
    #[error("it closed the connection without an answer: {0}")]
    Closed(#[source] io::Error),
    /// Its answer was not what a proxy's should be.
    #[error("its answer is not a proxy's: {0}")]
    Answer(&'static str),
    /// It took longer than `connect_timeout_ms`.
    #[error("{step} took longer than {} ms (connect_timeout_ms)", after.as_millis())]
    Timeout {
        /// The step at which time ran out.
        step: &'static str,
        /// The limit.
        after: Duration,
    },
}

/// Who may speak first in a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// We alone, as in TLS.
    We,
    /// Either side, as in HTTP/2 without TLS.
    Either,
}

impl ProxyFault {
    /// The same, once more.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Dns(error) => Self::Dns(again(error)),
            Self::Connect(error) => Self::Connect(error.again()),
            Self::Refused { status, reason } => Self::Refused { status: *status, reason: reason.clone() },
            Self::Closed(error) => Self::Closed(again(error)),
            Self::Answer(what) => Self::Answer(what),
            Self::Timeout { step, after } => Self::Timeout { step, after: *after },
        }
    }

    /// A refusal, with a reason phrase as the proxy sent it.
    pub(super) fn refused(status: u16, reason: &str) -> Self {
        let printable = reason.chars().filter(|c| matches!(c, ' '..='~')).take(MOST_REASON);
        Self::Refused { status, reason: printable.collect() }
    }
}

/// Asks the proxy at the other end of `stream` for a tunnel to `target`, `host:port`. After it the stream is the
/// target's, and nothing of what that sent was read.
///
/// `first` says who speaks first in the tunnel.
pub(super) async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    target: &str,
    authorization: Option<&str>,
    first: First,
) -> Result<(), ProxyFault> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = authorization {
        request.extend(["Proxy-Authorization: ", authorization, "\r\n"]);
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(ProxyFault::Closed)?;
    stream.flush().await.map_err(ProxyFault::Closed)?;
    let mut head = Vec::with_capacity(1024);
    loop {
        if head.len() >= MOST_HEAD {
            return Err(ProxyFault::Answer("its head is larger than 16 KiB"));
        }
        let most = match first {
            First::We => MOST_HEAD - head.len(),
            // What follows the head is not ours to read.
            First::Either => 1,
        };
        if (&mut *stream).take(most as u64).read_buf(&mut head).await.map_err(ProxyFault::Closed)? == 0 {
            return Err(ProxyFault::Closed(io::ErrorKind::UnexpectedEof.into()));
        }
        let whole = first == First::We || head.ends_with(b"\n");
        if let Some(told) = whole.then(|| read(&head)).flatten() {
            return told;
        }
    }
}

/// What the answer's head says, interim ones before it (RFC 9110, section 15.2) passed over. `None` while more of it is
/// to come.
fn read(mut head: &[u8]) -> Option<Result<(), ProxyFault>> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut answer = httparse::Response::new(&mut headers);
        let length = match answer.parse(head) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return None,
            Err(httparse::Error::TooManyHeaders) => {
                return Some(Err(ProxyFault::Answer("it has more than 64 headers")));
            }
            Err(_) => return Some(Err(ProxyFault::Answer("it is not HTTP"))),
        };
        return Some(match answer.code.unwrap_or(0) {
            // 101 is final: the other side now waits for a protocol that nobody asked for.
            100 | 102..=199 => {
                head = &head[length..];
                continue;
            }
            // Whoever speaks TLS behind the tunnel does so when spoken to: this would be the proxy's own, or somebody's
            // trick.
            200..=299 if head.len() > length => Err(ProxyFault::Answer("bytes follow its head")),
            200..=299 => Ok(()),
            status => Err(ProxyFault::refused(status, answer.reason.unwrap_or(""))),
        });
    }
}

#[cfg(test)]
mod tests;
