//! One way to an upstream, walked step by step, for whoever wants to say which step fails.

use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::connector::{Connector, Step};
use super::failure::Cause;
use super::stream::Stream;
use super::tls::SetupError;
use crate::config::OpenAi;
use crate::transport::Transport;

/// A connection in the making. Each step has `connect_timeout_ms` for itself, and does first what must come before it.
pub struct Probe {
    connector: Connector,
    /// What the look-up found. `None` before it, and where the host is an address.
    addresses: Option<Vec<SocketAddr>>,
    /// Open, until the TLS handshake takes it.
    transport: Option<Transport<TcpStream>>,
}

/// What a TLS handshake agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSeen {
    /// The protocol's version, as in `TLS 1.3`.
    pub version: &'static str,
    /// The protocol chosen for what runs over it (ALPN), `h2` or `http/1.1`. `None` where the server chose none.
    pub alpn: Option<String>,
}

impl Probe {
    /// Prepares the way; nothing is sent yet.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(config: &OpenAi) -> Result<Self, SetupError> {
        Ok(Self { connector: Connector::new(config)?, addresses: None, transport: None })
    }

    /// Looks the name up: the proxy's, where there is one. `None` where the host is an address.
    ///
    /// # Errors
    /// The name cannot be looked up.
    pub async fn resolve(&mut self) -> Result<Option<Vec<SocketAddr>>, Cause> {
        self.addresses = self.connector.within(Step::Dns, self.connector.resolve()).await?;
        Ok(self.addresses.clone())
    }

    /// TCP to the first address that answers; through a proxy, to the proxy, with its `CONNECT` for `https`.
    ///
    /// # Errors
    /// No address answers, or the proxy refuses.
    pub async fn connect(&mut self) -> Result<SocketAddr, Cause> {
        if self.addresses.is_none() {
            self.resolve().await?;
        }
        let reaching = self.connector.reach(self.addresses.as_deref());
        let (transport, address) = self.connector.within(Step::Connect, reaching).await?;
        self.transport = Some(transport);
        Ok(address)
    }

    /// The TLS handshake. `None` for an upstream of `http`.
    ///
    /// # Errors
    /// The handshake fails.
    pub async fn tls(&mut self) -> Result<Option<TlsSeen>, Cause> {
        let transport = match self.transport.take() {
            Some(transport) => transport,
            None => {
                self.connect().await?;
                self.transport.take().unwrap_or_else(|| unreachable!("it has just been opened"))
            }
        };
        match self.connector.within(Step::Tls, self.connector.secure(transport)).await? {
            Stream::Plain(transport) => {
                self.transport = Some(transport);
                Ok(None)
            }
            Stream::Tls(tls) => {
                let session = tls.get_ref().1;
                let version = match session.protocol_version() {
                    Some(rustls::ProtocolVersion::TLSv1_2) => "TLS 1.2",
                    Some(rustls::ProtocolVersion::TLSv1_3) => "TLS 1.3",
                    _ => "TLS",
                };
                let alpn = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
                Ok(Some(TlsSeen { version, alpn }))
            }
        }
    }
}
