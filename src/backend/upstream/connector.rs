//! Opens connections to one upstream and says how long each step took.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::failure::Cause;
use super::stream::Stream;
use crate::config::{BaseUrl, OpenAi};
use crate::transport::{ConnectPhases, Transport, keep_alive};

/// Why an upstream cannot be set up at all. Each is found at start, before any traffic.
#[derive(Debug, Error)]
pub enum SetupError {
    /// `ca_file` could not be read or holds no usable certificate.
    #[error("{path}: {reason}; give a PEM file with at least one CA certificate")]
    CaFile {
        /// The file as configured.
        path: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
    /// The system has no trusted certificates, and none were configured.
    #[error("no trusted certificates on this system; install the ca-certificates package or set ca_file")]
    NoRoots,
    /// The host of the base URL cannot be the name on a certificate.
    #[error("{host} is not a valid name for a TLS certificate")]
    ServerName {
        /// The host as configured.
        host: String,
    },
}

impl SetupError {
    /// The key of `[backend.NAME]` at fault.
    pub fn key(&self) -> &'static str {
        match self {
            Self::CaFile { .. } => "ca_file",
            Self::NoRoots | Self::ServerName { .. } => "base_url",
        }
    }
}

/// Knows one upstream's address and how to reach it.
pub(super) struct Connector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(config: &OpenAi) -> Result<Self, SetupError> {
        let BaseUrl { tls, host, port, .. } = &config.base_url;
        let tls = tls.then(|| tls_client(host, config)).transpose()?;
        Ok(Self { host: host.clone(), port: *port, tls, timeout: config.connect_timeout })
    }

    /// Opens one connection. `phases` holds what each step took, the failed one included.
    pub(super) async fn connect(&self, phases: &mut ConnectPhases) -> Result<Stream, Cause> {
        let mut step = Step::Dns;
        let opening = self.steps(phases, &mut step);
        match tokio::time::timeout(self.timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(Cause::ConnectTimeout { step: step.name(), after: self.timeout }),
        }
    }

    async fn steps(&self, phases: &mut ConnectPhases, step: &mut Step) -> Result<Stream, Cause> {
        let addresses = self.resolve(&mut phases.dns).await.map_err(Cause::Dns)?;
        *step = Step::Connect;
        let socket = timed(&mut phases.connect, dial(&addresses)).await.map_err(Cause::Connect)?;
        let transport = Transport::tcp(socket);
        let Some((connector, name)) = &self.tls else { return Ok(Stream::Plain(transport)) };
        *step = Step::Tls;
        let handshake = connector.connect(name.clone(), transport);
        let tls = timed(&mut phases.tls, handshake).await.map_err(Cause::Tls)?;
        Ok(Stream::Tls(Box::new(tls)))
    }

    async fn resolve(&self, took: &mut Option<Duration>) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let found: Vec<_> = timed(took, tokio::net::lookup_host((self.host.as_str(), self.port))).await?.collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }
}

#[derive(Clone, Copy)]
enum Step {
    Dns,
    Connect,
    Tls,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Dns => "looking up its name",
            Self::Connect => "connecting",
            Self::Tls => "the TLS handshake",
        }
    }
}

/// Records how long `work` ran, also when it fails or is dropped half-way.
async fn timed<T>(took: &mut Option<Duration>, work: impl Future<Output = T>) -> T {
    struct Stopwatch<'a>(&'a mut Option<Duration>, Instant);
    impl Drop for Stopwatch<'_> {
        fn drop(&mut self) {
            *self.0 = Some(self.1.elapsed());
        }
    }
    let _running = Stopwatch(took, Instant::now());
    work.await
}

/// Tries the addresses in the order the system prefers; the last error counts.
async fn dial(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                keep_alive(&socket)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn tls_client(host: &str, config: &OpenAi) -> Result<(TlsConnector, ServerName<'static>), SetupError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| SetupError::ServerName { host: host.to_owned() })?;
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "skipped a certificate of the system's store");
    }
    roots.add_parsable_certificates(found.certs);
    if let Some(path) = &config.ca_file {
        let fail = |reason: String| SetupError::CaFile { path: path.clone(), reason };
        let pem = fs::read(path).map_err(|error| fail(error.to_string()))?;
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| fail(error.to_string()))?;
            roots.add(certificate).map_err(|error| fail(error.to_string()))?;
            added += 1;
        }
        if added == 0 {
            return Err(fail("it holds no certificate".to_owned()));
        }
    }
    if roots.is_empty() {
        return Err(SetupError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|_| unreachable!("ring supports TLS 1.2 and 1.3"))
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsConnector::from(Arc::new(client)), name))
}
