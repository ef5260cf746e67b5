//! Why a client is turned away before, or without, a request that its handler could answer.
//!
//! Of HTTP/2 only what this process itself decides is counted. A head that is too large is answered with 431 on its
//! stream, and a malformed frame with an error of the connection, below where they could be told from others.

/// Why a connection was closed. Every one of them is the client's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// As many connections were open as may be.
    Limit,
    /// Its request's head, or its part of the TLS handshake, did not come in time. An idle client that had been served
    /// is closed unrefused.
    HeaderTimeout,
    /// Its HTTP/1 request's head was too large.
    HeaderTooLarge,
    /// What it sent was neither an HTTP/1 request nor the beginning of HTTP/2.
    BadRequest,
    /// Its TLS handshake failed.
    Tls,
    /// It accepted nothing of what waited for it for too long. Under HTTP/2 this may have been one stream of several.
    WriteTimeout,
}

impl Refused {
    /// The value of the `reason` label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::HeaderTimeout => "header_timeout",
            Self::HeaderTooLarge => "header_too_large",
            Self::BadRequest => "bad_request",
            Self::Tls => "tls",
            Self::WriteTimeout => "write_timeout",
        }
    }
}
