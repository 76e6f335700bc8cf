//! TLS: which certificate is served, and how does a new one take its place?

use crate::expiry::not_after;
use axum_server::tls_rustls::RustlsConfig;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(3);

/// A certificate and its key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the TLS {what} {}: {source}; is the Secret with it mounted?", path.display())]
    Read {
        /// `certificate` or `key`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has no PEM of the right sort.
    #[error("no {what} in {}: {why}; it must hold PEM text, as tls.crt and tls.key of a Secret do", path.display())]
    Pem {
        /// `certificate` or `key`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Certificate and key do not belong together, or cannot be used.
    #[error("{} and {} cannot be served together: {why}; issue them anew as a pair", certificate.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

/// Metrics of certificates. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct TlsMetrics {
    expiry: Gauge,
    reloads: Family<ReloadLabels, Counter>,
}

impl TlsMetrics {
    /// Metrics that the registry shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "End of the served certificate, in seconds since 1970";
        registry.register("tls_certificate_expiry_timestamp_seconds", help, metrics.expiry.clone());
        registry.register(
            "tls_reloads",
            "Changed certificate files, by result: loaded or refused",
            metrics.reloads.clone(),
        );
        metrics
    }

    fn count(&self, result: &'static str) {
        self.reloads.get_or_create(&ReloadLabels { result }).inc();
    }
}

/// A certificate chain and its key, read from files that may change.
#[derive(Clone)]
pub struct Certificates {
    files: Files,
    config: RustlsConfig,
    seen: Text,
    expires: Option<i64>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`], naming the file and what to do.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let seen = files.read()?;
        let (config, expires) = files.pair(&seen)?;
        Ok(Self { files, config: RustlsConfig::from_config(config), seen, expires })
    }

    /// What connections are served with; it follows the files while [`Self::follow`] runs.
    pub(crate) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Looks at the files for ever. What cannot be served is logged and counted, and the old pair stays.
    pub(crate) async fn follow(mut self, metrics: &TlsMetrics) -> Infallible {
        loop {
            metrics.expiry.set(self.expires.unwrap_or(0));
            tokio::time::sleep(POLL).await;
            let files = self.files.clone();
            // A task that is cancelled has read nothing.
            let Ok(read) = tokio::task::spawn_blocking(move || files.read()).await else { continue };
            let result = read.and_then(|text| self.take_up(text));
            match result {
                Ok(false) => {}
                Ok(true) => {
                    metrics.count("loaded");
                    tracing::info!(certificate = %self.files.certificate.display(), "new certificate is served");
                }
                Err(error) => {
                    metrics.count("refused");
                    tracing::warn!(%error, "the old certificate stays in use");
                }
            }
        }
    }

    /// True when the text is new and served from now on. A text that was refused is not tried again.
    fn take_up(&mut self, text: Text) -> Result<bool, TlsError> {
        if self.seen == text {
            return Ok(false);
        }
        let pair = self.files.pair(&text);
        self.seen = text;
        let (config, expires) = pair?;
        self.config.reload_from_config(config);
        self.expires = expires;
        Ok(true)
    }
}

/// Where certificate and key are.
#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// What the files hold; not for logs.
#[derive(Clone, PartialEq, Eq)]
struct Text {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(&self) -> Result<Text, TlsError> {
        let read = |what, path: &Path| {
            std::fs::read(path).map_err(|source| TlsError::Read { what, path: path.to_owned(), source })
        };
        Ok(Text { certificate: read("certificate", &self.certificate)?, key: read("key", &self.key)? })
    }

    /// The server's configuration, and when its certificate ends.
    fn pair(&self, text: &Text) -> Result<(Arc<ServerConfig>, Option<i64>), TlsError> {
        let pem = |what, path: &Path, why: String| TlsError::Pem { what, path: path.to_owned(), why };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text.certificate)
            .collect::<Result<_, _>>()
            .map_err(|e| pem("certificate", &self.certificate, e.to_string()))?;
        let Some(expires) = chain.first().map(|der| not_after(der)) else {
            return Err(pem("certificate", &self.certificate, "there is no CERTIFICATE block".to_owned()));
        };
        let key = PrivateKeyDer::from_pem_slice(&text.key).map_err(|e| pem("key", &self.key, e.to_string()))?;
        let refused = |e: rustls::Error| TlsError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            why: e.to_string(),
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .map_err(refused)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(refused)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((Arc::new(config), expires))
    }
}
