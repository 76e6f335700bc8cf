//! TLS: which certificate is served, and how does a new one take its place?

use crate::health::Check;
use crate::x509::not_after;
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

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(3);

/// A certificate and its key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the TLS {what} {}: {source}; is its Secret mounted?", path.display())]
    Read {
        /// `certificate`, `key` or `client authority`.
        what: &'static str,
        /// The file, or the part of a Secret.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has no PEM of the right sort.
    #[error("no {what} in {}: {why}; expected PEM, as in tls.crt and tls.key of a TLS Secret", path.display())]
    Pem {
        /// `certificate`, `key` or `client authority`.
        what: &'static str,
        /// The file, or the part of a Secret.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Certificate and key do not belong together, or cannot be used.
    #[error("{} and {} do not match: {why}; reissue them as a pair", certificate.display(), key.display())]
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
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Pair {
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

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// A certificate chain and its key, which may change: in files, or handed over by who keeps them.
#[derive(Clone)]
pub struct Certificates {
    origin: Origin,
    clients: Option<PathBuf>,
    config: RustlsConfig,
    /// What was last looked at; not for logs.
    seen: Option<Text>,
    expires: Option<i64>,
    check: Option<Check>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files. With `clients`, only a client is served whose certificate an authority in that file has signed.
    ///
    /// # Errors
    /// [`TlsError`], naming the file and what to do.
    pub fn load(certificate: &Path, key: &Path, clients: Option<&Path>) -> Result<Self, TlsError> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let mut loaded = Self::empty(Origin::Files(files), clients)?;
        let text = loaded.origin.read(clients)?;
        if let Some(text) = text {
            loaded.take_up(text)?;
        }
        Ok(loaded)
    }

    /// What somebody hands over, now or later; until then every handshake is refused. `name` says whence, for errors.
    /// `clients` is as with [`Self::load`].
    ///
    /// # Errors
    /// [`TlsError`], when the authorities of clients cannot be read.
    pub fn handed(
        name: &str,
        mut pairs: watch::Receiver<Option<Pair>>,
        clients: Option<&Path>,
    ) -> Result<Self, TlsError> {
        pairs.mark_changed();
        let name = Path::new(name);
        let files = Files { certificate: name.join("tls.crt"), key: name.join("tls.key") };
        if let Some(path) = clients {
            authorities(path, &read("client authority", path)?)?;
        }
        Self::empty(Origin::Handed(files, pairs), clients)
    }

    /// The same, telling whether there is a certificate to serve.
    #[must_use]
    pub fn telling(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    fn empty(origin: Origin, clients: Option<&Path>) -> Result<Self, TlsError> {
        let files = origin.files();
        let nobody = Arc::new(ResolvesServerCertUsingSni::new());
        let builder = builder().map_err(|e| files.refused(&e))?;
        let config = RustlsConfig::from_config(Arc::new(builder.with_no_client_auth().with_cert_resolver(nobody)));
        Ok(Self { origin, clients: clients.map(Path::to_owned), config, seen: None, expires: None, check: None })
    }

    /// What connections are served with; it follows the origin while [`Self::follow`] runs.
    pub(crate) fn config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Looks for changes for ever. What cannot be served is logged and counted, and the old pair stays.
    pub(crate) async fn follow(mut self, metrics: &TlsMetrics) -> Infallible {
        loop {
            metrics.expiry.set(self.expires.unwrap_or(0));
            self.tell();
            self.origin.changed().await;
            let (origin, clients) = (self.origin.clone(), self.clients.clone());
            // A task that is cancelled has read nothing.
            let read = tokio::task::spawn_blocking(move || origin.read(clients.as_deref()));
            let Ok(read) = read.await else { continue };
            let result = match read {
                Ok(Some(text)) => self.take_up(text),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match result {
                Ok(false) => {}
                Ok(true) => {
                    metrics.count("loaded");
                    tracing::info!(certificate = %self.origin.files().certificate.display(), "serving a new certificate");
                }
                Err(error) => {
                    metrics.count("refused");
                    tracing::warn!(%error, "cannot load the new certificate, keeping the old one");
                }
            }
        }
    }

    fn tell(&self) {
        let Some(check) = &self.check else { return };
        match self.expires {
            Some(_) => check.pass(),
            None => check.fail("no certificate to serve yet"),
        }
    }

    /// True when the text is new and served from now on. A text that was refused is not tried again.
    fn take_up(&mut self, text: Text) -> Result<bool, TlsError> {
        if self.seen.as_ref() == Some(&text) {
            return Ok(false);
        }
        let clients = self.clients.as_deref().zip(text.clients.as_deref());
        let pair = self.origin.files().pair(&text.pair, clients);
        self.seen = Some(text);
        let (config, expires) = pair?;
        self.config.reload_from_config(config);
        self.expires = Some(expires.unwrap_or(0));
        Ok(true)
    }
}

/// Where a pair comes from.
#[derive(Debug, Clone)]
enum Origin {
    Files(Files),
    /// With names for errors.
    Handed(Files, watch::Receiver<Option<Pair>>),
}

impl Origin {
    fn files(&self) -> &Files {
        match self {
            Self::Files(files) | Self::Handed(files, _) => files,
        }
    }

    /// Waits until it is time to look again.
    async fn changed(&mut self) {
        match self {
            Self::Files(_) => tokio::time::sleep(POLL).await,
            Self::Handed(_, pairs) => {
                // The authorities of clients are in a file, which tells nobody.
                tokio::select! {
                    changed = pairs.changed() => if changed.is_err() { tokio::time::sleep(POLL).await },
                    () = tokio::time::sleep(POLL) => {}
                }
            }
        }
    }

    /// What there is now; `None` when nothing has been handed over.
    fn read(&self, clients: Option<&Path>) -> Result<Option<Text>, TlsError> {
        let pair = match self {
            Self::Files(files) => Some(files.read()?),
            Self::Handed(_, pairs) => pairs.borrow().clone(),
        };
        let clients = clients.map(|path| read("client authority", path)).transpose()?;
        Ok(pair.map(|pair| Text { pair, clients }))
    }
}

/// Where certificate and key are.
#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// What there is to serve, and to whom; not for logs.
#[derive(Clone, PartialEq, Eq)]
struct Text {
    pair: Pair,
    clients: Option<Vec<u8>>,
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { what, path: path.to_owned(), source })
}

/// TLS 1.3 and 1.2 by ring.
fn builder() -> Result<ConfigBuilder<ServerConfig, WantsVerifier>, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
}

/// The authorities whose clients are served.
fn authorities(path: &Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let wrong = |why: String| TlsError::Pem { what: "client authority", path: path.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(text) {
        roots.add(der.map_err(|e| wrong(e.to_string()))?).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() { Err(wrong("no CERTIFICATE block found".to_owned())) } else { Ok(roots) }
}

impl Files {
    fn read(&self) -> Result<Pair, TlsError> {
        Ok(Pair { certificate: read("certificate", &self.certificate)?, key: read("key", &self.key)? })
    }

    fn refused(&self, why: &dyn std::error::Error) -> TlsError {
        TlsError::Pair { certificate: self.certificate.clone(), key: self.key.clone(), why: why.to_string() }
    }

    /// The server's configuration, and when its certificate ends.
    fn pair(&self, text: &Pair, clients: Option<(&Path, &[u8])>) -> Result<(Arc<ServerConfig>, Option<i64>), TlsError> {
        let pem = |what, path: &Path, why: String| TlsError::Pem { what, path: path.to_owned(), why };
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
