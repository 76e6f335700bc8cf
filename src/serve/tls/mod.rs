//! The certificate that is served, and its replacement by a new one while serving.

pub(crate) mod authority;
pub mod rotation;
mod x509;

use crate::health::Check;
use crate::tls::x509::not_after;
use axum_server::tls_rustls::RustlsConfig;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ResolvesServerCertUsingSni, WebPkiClientVerifier};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the files are read.
const POLL_INTERVAL: Duration = Duration::from_secs(3);

/// A certificate and its key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the TLS {part} {}: {source}; is its Secret mounted?", path.display())]
    Read {
        /// `certificate`, `key` or `client authority`.
        part: &'static str,
        /// The file, or the part of a Secret.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has no PEM of the right sort.
    #[error("no {part} in {}: {reason}; expected PEM, as in tls.crt and tls.key of a TLS Secret", path.display())]
    Pem {
        /// `certificate`, `key` or `client authority`.
        part: &'static str,
        /// The file, or the part of a Secret.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Certificate and key do not belong together, or cannot be used.
    #[error("{} and {} do not match: {reason}; reissue them as a pair", certificate.display(), key.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        reason: String,
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
        let help = "Expiry of the served certificate, in seconds since the Unix epoch";
        registry.register("tls_certificate_expiry_timestamp_seconds", help, metrics.expiry.clone());
        registry.register("tls_reloads", "Certificate reloads, by result: loaded or refused", metrics.reloads.clone());
        metrics
    }

    fn count(&self, result: &'static str) {
        self.reloads.get_or_create(&ReloadLabels { result }).inc();
    }
}

/// A certificate chain and its key, PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CertificatePair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl CertificatePair {
    /// PEM text of the chain, leaf first, and of the key.
    #[must_use]
    pub fn new(certificate: Vec<u8>, key: Vec<u8>) -> Self {
        Self { certificate, key }
    }

    /// The chain.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The key; not for logs.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl std::fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificatePair").finish_non_exhaustive()
    }
}

/// A certificate chain and its key, which may change: in files, or received through a channel.
#[derive(Clone)]
pub struct Certificates {
    source: CertificateSource,
    clients: Option<PathBuf>,
    config: RustlsConfig,
    /// The last files read; not for logs.
    seen: Option<Loaded>,
    expires: Option<i64>,
    check: Option<Check>,
    metrics: TlsMetrics,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files. With `clients`, only a client is served whose certificate an authority in that file has signed.
    ///
    /// # Errors
    /// [`TlsError`], naming the file and what to do.
    pub fn load(certificate: &Path, key: &Path, clients: Option<&Path>) -> Result<Self, TlsError> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let mut loaded = Self::empty(CertificateSource::Files(files), clients)?;
        let text = loaded.source.read(clients)?;
        if let Some(text) = text {
            loaded.serve(text)?;
        }
        Ok(loaded)
    }

    /// Certificates from a channel; until the first one every handshake is rejected. `name` is its origin, for errors.
    /// `clients` is as with [`Self::load`].
    ///
    /// # Errors
    /// [`TlsError`], when the authorities of clients cannot be read.
    pub fn from_channel(
        name: &str,
        mut pairs: watch::Receiver<Option<CertificatePair>>,
        clients: Option<&Path>,
    ) -> Result<Self, TlsError> {
        pairs.mark_changed();
        let name = Path::new(name);
        let files = Files { certificate: name.join("tls.crt"), key: name.join("tls.key") };
        if let Some(path) = clients {
            authorities(path, &read("client authority", path)?)?;
        }
        Self::empty(CertificateSource::Channel(files, pairs), clients)
    }

    /// The same with a check that passes once there is a certificate to serve.
    #[must_use]
    pub fn with_check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// The same with metrics of expiry and reloads.
    #[must_use]
    pub fn with_metrics(self, metrics: TlsMetrics) -> Self {
        Self { metrics, ..self }
    }

    fn empty(source: CertificateSource, clients: Option<&Path>) -> Result<Self, TlsError> {
        let files = source.files();
        let nobody = Arc::new(ResolvesServerCertUsingSni::new());
        let builder = builder().map_err(|e| files.refused(&e))?;
        let config = RustlsConfig::from_config(Arc::new(builder.with_no_client_auth().with_cert_resolver(nobody)));
        let (clients, metrics) = (clients.map(Path::to_owned), TlsMetrics::default());
        Ok(Self { source, clients, config, seen: None, expires: None, check: None, metrics })
    }

    /// What connections are served with; it follows the source while [`Self::follow`] runs.
    pub(crate) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Waits for changes, indefinitely. Invalid files are logged and counted, and the old pair is kept.
    pub(crate) async fn follow(mut self) -> Infallible {
        loop {
            self.metrics.expiry.set(self.expires.unwrap_or(0));
            self.update_check();
            self.source.changed().await;
            let (source, clients) = (self.source.clone(), self.clients.clone());
            // A task that is cancelled has read nothing.
            let read = tokio::task::spawn_blocking(move || source.read(clients.as_deref()));
            let Ok(read) = read.await else { continue };
            let result = match read {
                Ok(Some(text)) => self.serve(text),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match result {
                Ok(false) => {}
                Ok(true) => {
                    self.metrics.count("loaded");
                    tracing::info!(certificate = %self.source.files().certificate.display(), "serving a new certificate");
                }
                Err(error) => {
                    self.metrics.count("refused");
                    tracing::warn!(%error, "cannot load the new certificate, keeping the old one");
                }
            }
        }
    }

    fn update_check(&self) {
        let Some(check) = &self.check else { return };
        match self.expires {
            Some(_) => check.pass(),
            None => check.fail("no certificate to serve yet"),
        }
    }

    /// True if this is new and served from now on. A rejected pair is not tried again.
    fn serve(&mut self, text: Loaded) -> Result<bool, TlsError> {
        if self.seen.as_ref() == Some(&text) {
            return Ok(false);
        }
        let clients = self.clients.as_deref().zip(text.clients.as_deref());
        let pair = self.source.files().pair(&text.pair, clients);
        self.seen = Some(text);
        let (config, expires) = pair?;
        self.config.reload_from_config(config);
        self.expires = Some(expires.unwrap_or(0));
        Ok(true)
    }
}

/// The source of a pair.
#[derive(Debug, Clone)]
enum CertificateSource {
    Files(Files),
    /// With names for errors.
    Channel(Files, watch::Receiver<Option<CertificatePair>>),
}

impl CertificateSource {
    fn files(&self) -> &Files {
        match self {
            Self::Files(files) | Self::Channel(files, _) => files,
        }
    }

    /// Waits until it is time to read again.
    async fn changed(&mut self) {
        match self {
            Self::Files(_) => tokio::time::sleep(POLL_INTERVAL).await,
            Self::Channel(_, pairs) => {
                // The file with the authorities of clients is polled.
                tokio::select! {
                    changed = pairs.changed() => if changed.is_err() { tokio::time::sleep(POLL_INTERVAL).await },
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
            }
        }
    }

    /// The current pair; `None` if the channel is empty.
    fn read(&self, clients: Option<&Path>) -> Result<Option<Loaded>, TlsError> {
        let pair = match self {
            Self::Files(files) => Some(files.read()?),
            Self::Channel(_, pairs) => pairs.borrow().clone(),
        };
        let clients = clients.map(|path| read("client authority", path)).transpose()?;
        Ok(pair.map(|pair| Loaded { pair, clients }))
    }
}

/// The files of certificate and key.
#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The content of the files: a pair, and the authorities of clients; not for logs.
#[derive(Clone, PartialEq, Eq)]
struct Loaded {
    pair: CertificatePair,
    clients: Option<Vec<u8>>,
}

fn read(part: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { part, path: path.to_owned(), source })
}

/// TLS 1.3 and 1.2 by ring.
fn builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
}

/// The authorities whose clients are served.
fn authorities(path: &Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let wrong = |reason: String| TlsError::Pem { part: "client authority", path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(text) {
        roots.add(der.map_err(|e| wrong(e.to_string()))?).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no CERTIFICATE block found".to_owned())) } else { Ok(roots) }
}

impl Files {
    fn read(&self) -> Result<CertificatePair, TlsError> {
        Ok(CertificatePair { certificate: read("certificate", &self.certificate)?, key: read("key", &self.key)? })
    }

    fn refused(&self, reason: &dyn std::error::Error) -> TlsError {
        TlsError::Mismatch { certificate: self.certificate.clone(), key: self.key.clone(), reason: reason.to_string() }
    }

    /// The server's configuration, and when its certificate ends.
    fn pair(
        &self,
        text: &CertificatePair,
        clients: Option<(&Path, &[u8])>,
    ) -> Result<(Arc<ServerConfig>, Option<i64>), TlsError> {
        let pem = |part, path: &Path, reason: String| TlsError::Pem { part, path: path.to_owned(), reason };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text.certificate)
            .collect::<Result<_, _>>()
            .map_err(|e| pem("certificate", &self.certificate, e.to_string()))?;
        let Some(expires) = chain.first().map(|der| not_after(der)) else {
            return Err(pem("certificate", &self.certificate, "no CERTIFICATE block found".to_owned()));
        };
        let key = PrivateKeyDer::from_pem_slice(&text.key).map_err(|e| pem("key", &self.key, e.to_string()))?;
        let builder = builder().map_err(|e| self.refused(&e))?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some((path, text)) => {
                let (roots, provider) = (authorities(path, text)?, Arc::new(ring::default_provider()));
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| self.refused(&e))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| self.refused(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((Arc::new(config), expires))
    }
}
