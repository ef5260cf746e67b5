//! Certificates for the proxy itself, and clients that trust them.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::support::client::{Client, PATIENCE};

/// A certificate that signed itself, for `localhost`, and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
    der: CertificateDer<'static>,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        Self { cert: issued.cert.pem(), key: issued.signing_key.serialize_pem(), der: issued.cert.der().clone() }
    }

    /// A client that trusts this certificate only, and speaks these protocols.
    pub(crate) fn trusted(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A client of HTTP/1.1; its handshake is over. The error is the handshake's.
    pub(crate) fn try_client(
        &self,
        addr: SocketAddr,
    ) -> std::io::Result<Client<StreamOwned<ClientConnection, TcpStream>>> {
        let mut socket = TcpStream::connect(addr)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut session = ClientConnection::new(self.trusted(&["http/1.1"]), name()).expect("a session");
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Client::over(StreamOwned::new(session, socket)))
    }
}

pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// A folder with `cert.pem` and `key.pem`.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new(pair: &Pair) -> Self {
        let files = Self { folder: tempfile::tempdir().expect("a folder") };
        files.write(&pair.cert, &pair.key);
        files
    }

    pub(crate) fn write(&self, cert: &str, key: &str) {
        std::fs::write(self.path("cert.pem"), cert).expect("written");
        std::fs::write(self.path("key.pem"), key).expect("written");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What goes under `[server]`.
    pub(crate) fn config(&self) -> String {
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| self.path(name).display().to_string());
        format!("tls = {{ cert = {cert:?}, key = {key:?} }}")
    }
}
