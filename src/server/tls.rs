//! The certificate that clients are shown: read at start, and again when its files change.
//!
//! Invariant: there is always a certificate that matches its key; a changed pair that does not is told once and not used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// A pair of files that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {problem}")]
pub struct TlsError {
    /// Which file is at fault: `cert` or `key`.
    pub key: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// A certificate, its key, and the files they come from.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
    /// The files as they were last read, whether they could be used or not.
    seen: Mutex<[Seen; 2]>,
}

/// A file as the system describes it. `None` where it is not there.
type Seen = Option<(SystemTime, u64)>;

impl Tls {
    /// Reads the certificate, with those that lead to its root, and its private key, both PEM.
    ///
    /// # Errors
    /// A file cannot be read, holds none, or the two do not belong together.
    pub fn new(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let seen = [seen(cert), seen(key)];
        let current = RwLock::new(Arc::new(load(cert, key)?));
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), current, seen: Mutex::new(seen) })
    }

    /// What the next client is shown.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again if one has changed. Connections that are open keep what they were shown.
    pub fn look_again(&self) {
        let now = [seen(&self.cert), seen(&self.key)];
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        match load(&self.cert, &self.key) {
            Ok(config) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                tracing::info!(cert = %self.cert.display(), "new clients are shown the changed certificate");
            }
            Err(TlsError { key, problem }) => {
                tracing::warn!("server.tls.{key}: {problem}; clients are shown the certificate from before");
            }
        }
    }
}

fn seen(path: &Path) -> Seen {
    let found = fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn load(cert: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = read("cert", cert, |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>())?;
    if chain.is_empty() {
        return Err(wrong("cert", cert, "holds no certificate; it must be PEM, with BEGIN CERTIFICATE"));
    }
    let key_der = read("key", key, PrivateKeyDer::from_pem_slice)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|_| unreachable!("ring supports TLS 1.2 and 1.3"));
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key_der).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong("key", key, "does not belong to the certificate in cert"),
        rustls::Error::InvalidCertificate(_) => wrong("cert", cert, &format!("cannot be used: {error}")),
        error => wrong("key", key, &format!("cannot be used: {error}")),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn read<T>(
    key: &'static str,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, rustls::pki_types::pem::Error>,
) -> Result<T, TlsError> {
    let unreadable = |error: io::Error| wrong(key, path, &format!("cannot be read: {error}"));
    let pem = fs::read(path).map_err(unreadable)?;
    parse(&pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            wrong(key, path, "holds no private key; it must be PEM, with BEGIN PRIVATE KEY, and not encrypted")
        }
        // Its text may quote the file.
        _ => wrong(key, path, "is not valid PEM"),
    })
}

fn wrong(key: &'static str, path: &Path, problem: &str) -> TlsError {
    TlsError { key, problem: format!("{} {problem}", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Pair(tempfile::TempDir);

    impl Pair {
        fn write(&self) -> String {
            let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            // Looked at by modification time and size, the one as coarse as the system's clock tick.
            std::thread::sleep(Duration::from_millis(20));
            fs::write(self.path("cert"), issued.cert.pem()).unwrap();
            fs::write(self.path("key"), issued.signing_key.serialize_pem()).unwrap();
            issued.cert.pem()
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn read(&self) -> Result<Tls, TlsError> {
            Tls::new(&self.path("cert"), &self.path("key"))
        }
    }

    #[test]
    fn a_changed_pair_is_read_again_and_a_bad_one_changes_nothing() {
        let pair = Pair(tempfile::tempdir().unwrap());
        pair.write();
        let tls = pair.read().unwrap();
        let first = tls.current();
        tls.look_again();
        assert!(Arc::ptr_eq(&first, &tls.current()), "nothing has changed");
        pair.write();
        tls.look_again();
        let second = tls.current();
        assert!(!Arc::ptr_eq(&first, &second));
        let cert = fs::read(pair.path("cert")).unwrap();
        for broken in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            fs::write(pair.path("cert"), broken).unwrap();
            tls.look_again();
            assert!(Arc::ptr_eq(&second, &tls.current()), "{broken:?}");
        }
        fs::remove_file(pair.path("key")).unwrap();
        tls.look_again();
        assert!(Arc::ptr_eq(&second, &tls.current()), "no key");
        // The half that was written first waits for the other.
        fs::write(pair.path("cert"), cert).unwrap();
        tls.look_again();
        assert!(Arc::ptr_eq(&second, &tls.current()), "still no key");
        pair.write();
        tls.look_again();
        assert!(!Arc::ptr_eq(&second, &tls.current()));
    }

    #[test]
    fn the_file_at_fault_is_named_and_its_content_is_not() {
        let pair = Pair(tempfile::tempdir().unwrap());
        let at_fault = |cert: &str, key: &str| {
            fs::write(pair.path("cert"), cert).unwrap();
            fs::write(pair.path("key"), key).unwrap();
            let error = pair.read().err().expect("an error");
            assert!(!error.problem.contains("secret"), "{error}");
            error.key
        };
        let (cert, key) = (pair.write(), fs::read_to_string(pair.path("key")).unwrap());
        let other = pair.write();
        assert_eq!(at_fault(&other, &key), "key");
        assert_eq!(at_fault("", &key), "cert");
        assert_eq!(at_fault(&cert, &cert), "key");
        assert_eq!(at_fault(&cert, "-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----\n"), "key");
        assert_eq!(at_fault("-----BEGIN CERTIFICATE-----\nsecret!\n-----END CERTIFICATE-----\n", &key), "cert");
        let not_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(at_fault(not_der, &key), "cert");
        fs::write(pair.path("cert"), &cert).unwrap();
        fs::write(pair.path("key"), &key).unwrap();
        assert!(pair.read().is_ok());
    }
}
