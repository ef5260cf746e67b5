//! What goes wrong on the upstream's side, before and after the reply's head.

use std::error::Error as StdError;
use std::io;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::dial::Unreachable;
use super::tunnel::ProxyFault;
use crate::config::Proxy;
use crate::transport::ConnectPhases;

/// A request that got no reply head.
#[derive(Debug, Error)]
#[error("{cause}")]
pub struct Failure {
    /// What went wrong.
    #[source]
    pub cause: Cause,
    /// What opening the connection took, the failed step included.
    pub phases: ConnectPhases,
    /// When the last request byte was written. `None` when the request did not leave whole.
    pub sent: Option<Instant>,
}

/// Why there was no reply head.
#[derive(Debug, Error)]
pub enum Cause {
    /// The name could not be looked up.
    #[error("its name could not be looked up: {0}")]
    Dns(#[source] io::Error),
    /// No address accepted a connection.
    #[error("connection failed: {0}")]
    Connect(#[source] Unreachable),
    /// The proxy before it failed.
    #[error("the proxy {proxy} (from {}): {fault}", proxy.variable)]
    Proxy {
        /// Which, and the variable that names it.
        proxy: Box<Proxy>,
        /// What it did wrong.
        #[source]
        fault: ProxyFault,
    },
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    /// Opening the connection took longer than `connect_timeout_ms`.
    #[error("{step} took longer than {} ms (connect_timeout_ms)", after.as_millis())]
    ConnectTimeout {
        /// The step at which time ran out.
        step: &'static str,
        /// The limit.
        after: Duration,
    },
    /// No reply head within `head_timeout_ms`.
    #[error("it did not answer within {} ms (head_timeout_ms)", .0.as_millis())]
    HeadTimeout(Duration),
    /// It went on sending without a final reply head.
    #[error("it sent {0} bytes without a final answer")]
    NoHead(u64),
    /// The connection ended before a reply head.
    #[error("it closed the connection without an answer: {0}")]
    Closed(#[source] hyper::Error),
    /// It reset the request's stream on a connection that lives on.
    #[error("it reset the stream without an answer: {}", innermost(.0))]
    StreamReset(#[source] hyper::Error),
    /// It provably did nothing about the request: it refused it, or ended before it.
    #[error("it ended the stream without having acted on the request: {}", innermost(.0))]
    Unprocessed(#[source] hyper::Error),
    /// It does not speak HTTP/2.
    #[error("it does not speak HTTP/2: {0}")]
    NotHttp2(&'static str),
    /// What came was not an HTTP reply.
    #[error("its answer is not valid HTTP: {0}")]
    Protocol(#[source] hyper::Error),
    /// The client's request body could not be read to its end.
    #[error("the client's request body broke off: {0}")]
    RequestBody(#[source] hyper::Error),
}

/// A reply body that broke after its head.
#[derive(Debug, Error)]
pub enum Broken {
    /// The upstream reset the connection or broke HTTP's framing.
    #[error("the upstream broke the connection: {0}")]
    Reset(#[source] hyper::Error),
    /// The upstream closed the connection before the body's end.
    #[error("the upstream closed the connection before the end of its answer")]
    Truncated,
    /// No byte within `idle_timeout_ms`.
    #[error("the upstream sent nothing for {} ms (idle_timeout_ms)", .0.as_millis())]
    Idle(Duration),
}

impl Cause {
    pub(super) fn from_hyper(error: hyper::Error) -> Self {
        if error.is_user() {
            Self::RequestBody(error)
        } else if error.is_parse() {
            Self::Protocol(error)
        } else {
            Self::Closed(error)
        }
    }
}

impl Cause {
    /// The same, for another request that waited for the same connection. `None` for what befalls one request only.
    pub(super) fn for_another(&self) -> Option<Self> {
        Some(match self {
            Self::Dns(error) => Self::Dns(again(error)),
            Self::Connect(error) => Self::Connect(error.again()),
            Self::Proxy { proxy, fault } => Self::Proxy { proxy: proxy.clone(), fault: fault.again() },
            Self::Tls(error) => Self::Tls(again(error)),
            Self::ConnectTimeout { step, after } => Self::ConnectTimeout { step, after: *after },
            Self::NotHttp2(what) => Self::NotHttp2(what),
            Self::HeadTimeout(_)
            | Self::NoHead(_)
            | Self::Closed(_)
            | Self::StreamReset(_)
            | Self::Unprocessed(_)
            | Self::Protocol(_)
            | Self::RequestBody(_) => {
                return None;
            }
        })
    }
}

/// The same error once more: its kind and its words.
pub(super) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl Broken {
    pub(super) fn from_hyper(error: hyper::Error) -> Self {
        let early_end =
            error.is_incomplete_message() || error.is_closed() || io_kind(&error) == Some(io::ErrorKind::UnexpectedEof);
        if early_end { Self::Truncated } else { Self::Reset(error) }
    }
}

/// The error at the end of the chain, which says why.
fn innermost(error: &hyper::Error) -> &dyn StdError {
    let mut innermost: &dyn StdError = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

fn io_kind(error: &hyper::Error) -> Option<io::ErrorKind> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}
