//! TLS towards an upstream: whom it trusts, and what it offers to speak.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio_rustls::TlsConnector;

use crate::config::OpenAi;

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

/// What makes connections to `host` by TLS.
pub(super) fn client(host: &str, config: &OpenAi) -> Result<(TlsConnector, ServerName<'static>), SetupError> {
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
    let http1 = b"http/1.1".to_vec();
    client.alpn_protocols = if config.http2 { vec![b"h2".to_vec(), http1] } else { vec![http1] };
    Ok((TlsConnector::from(Arc::new(client)), name))
}
