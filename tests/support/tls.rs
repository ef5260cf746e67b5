//! Certificates of tests' own.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::PrivateKeyDer;
use tempfile::TempDir;

/// A certificate that signed itself, for `localhost`, and the file that makes clients trust it.
pub(crate) struct Certificate {
    pub(crate) server: Arc<rustls::ServerConfig>,
    pub(crate) file: PathBuf,
    _folder: TempDir,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(issued.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![issued.cert.der().clone()], key))
            .expect("a server configuration");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, issued.cert.pem()).expect("written");
        Self { server: Arc::new(server), file, _folder: folder }
    }
}
