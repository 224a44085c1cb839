//! TLS: certificate and key from files, which can be read anew while the server runs.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Error, Result};

/// The files of a server's certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate and those that lead to its root, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// What connections use now.
pub(super) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Files that cannot be read, that are no certificate and key, or that do not belong together.
    pub(super) fn open(files: TlsFiles) -> Result<Self> {
        let config = RwLock::new(Arc::new(config(&files)?));
        Ok(Self { files, config })
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    /// As [`Tls::open`]; the certificate that was there stays.
    pub(super) fn reload(&self) -> Result<()> {
        *self.config.write() = Arc::new(config(&self.files)?);
        Ok(())
    }

    /// For one connection.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read()))
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig> {
    let unreadable = |file: &PathBuf, why: &dyn std::fmt::Display| {
        let message = format!("could not load the TLS file \"{}\"", file.display());
        Error::new("F0000", message).with_detail(format!("{why}."))
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| unreadable(&files.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new("XX000", error.to_string()))?;
    builder
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| unreadable(&files.certificate, &error))
}
