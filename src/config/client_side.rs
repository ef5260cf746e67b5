//! What `[server]` says of clients' connections: limits, and the certificate they are shown.

use std::path::PathBuf;
use std::time::Duration;

use super::ConfigError;
use super::section::Node;

/// The keys of [`ClientLimits`] under `[server]`.
pub(super) const LIMIT_KEYS: [&str; 5] =
    ["max_header_bytes", "header_timeout_ms", "write_timeout_ms", "max_connections", "max_in_flight"];
const TLS_KEYS: &[&str] = &["cert", "key"];

/// How much clients may take of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// The largest request head, its first line included, in bytes. From 8 KiB to 400 KiB, about what HTTP/1 buffers.
    pub max_header_bytes: usize,
    /// How long a client may take over a request's head or the TLS handshake, and stay idle. Never zero.
    pub header_timeout: Duration,
    /// How long a client may accept nothing of what waits for it. Never zero.
    pub write_timeout: Duration,
    /// How many connections of clients may be open, all threads together. At least 1.
    pub max_connections: usize,
    /// How many requests may be in flight, all threads together. At least 1.
    pub max_in_flight: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            max_header_bytes: 64 << 10,
            header_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(300),
            max_connections: 10_000,
            max_in_flight: 4_096,
        }
    }
}

/// `tls`: the PEM files of the certificate that clients are shown. Both are there; what is in them shows at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that lead to its root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Reads the limits out of `[server]`.
pub(super) fn limits(server: &Node<'_>) -> Result<ClientLimits, ConfigError> {
    let mut limits = ClientLimits::default();
    if let Some(node) = server.get("max_header_bytes") {
        limits.max_header_bytes = node.size(8 << 10..=400 << 10)?;
    }
    if let Some(node) = server.get("header_timeout_ms") {
        limits.header_timeout = node.millis(1)?;
    }
    if let Some(node) = server.get("write_timeout_ms") {
        limits.write_timeout = node.millis(1)?;
    }
    if let Some(node) = server.get("max_connections") {
        limits.max_connections = node.size(1..=1 << 24)?;
    }
    if let Some(node) = server.get("max_in_flight") {
        limits.max_in_flight = node.size(1..=1 << 24)?;
    }
    Ok(limits)
}

/// Reads `tls`.
pub(super) fn tls(node: &Node<'_>) -> Result<TlsFiles, ConfigError> {
    if !node.is_table() {
        return Err(node.error("must be { cert = \"….pem\", key = \"….pem\" }"));
    }
    node.only(TLS_KEYS)?;
    let file = |key| node.require(key, "\"….pem\"")?.file();
    Ok(TlsFiles { cert: file("cert")?, key: file("key")? })
}
