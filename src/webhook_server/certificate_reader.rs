//! Reads the certificate that the webhook serves from a Secret, which `napkeeper certificates` writes.
//!
//! That Secret has no CA key, and this process may neither change it nor write to the hooks: it has a listener, and
//! whoever breaks into it must not be able to intercept other requests to the API server.

use crate::{CHECK_INTERVAL, wait_after};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_kube::{TLS_SECRET, read_secret};
use napkeeper_serve::rotation::CertificateSecret;
use napkeeper_serve::{CertificatePair, Lifecycle};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;

/// How often the Secret is read while there is no certificate to serve.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// After how many checks in a row without a certificate there is a warning: on a new cluster, it takes some.
const WARN_AFTER: u32 = 10;

/// Reads the certificate of the Secret, and passes it on to the server.
pub(crate) struct CertificateReader {
    pub(crate) client: kube::Client,
    /// The namespace of the Secret.
    pub(crate) namespace: String,
    /// Receives the certificate.
    pub(crate) serving: watch::Sender<Option<CertificatePair>>,
}

/// What the Secret has.
enum Found {
    Certificate,
    Nothing,
    NoSecret,
}

impl CertificateReader {
    /// Reads until the process drains.
    pub(crate) async fn run(self, lifecycle: Lifecycle) -> Result<(), Infallible> {
        let (mut without, mut failures) = (0_u32, 0_u32);
        loop {
            let wait = match self.check().await {
                Ok(found) => {
                    failures = 0;
                    without = if matches!(found, Found::Certificate) { 0 } else { without.saturating_add(1) };
                    if without == WARN_AFTER {
                        self.warn(&found);
                    }
                    if self.serving.borrow().is_some() { CHECK_INTERVAL } else { FIRST_CHECK_INTERVAL }
                }
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    tracing::debug!(why = reason, "reading the certificate again");
                    wait_after(failures, CHECK_INTERVAL)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = lifecycle.draining() => return Ok(()),
            }
        }
    }

    /// Passes on the certificate of the Secret. While it has none, the previous one is served.
    async fn check(&self) -> Result<Found, &'static str> {
        let secret = read_secret(&self.client, &self.namespace, TLS_SECRET).await.map_err(ClusterError::category)?;
        let Some(secret) = secret else { return Ok(Found::NoSecret) };
        let pair = CertificateSecret::read(|key| secret.get(key)).serving().clone();
        if pair.certificate().is_empty() || pair.key().is_empty() {
            return Ok(Found::Nothing);
        }
        self.serving.send_if_modified(|current| {
            let changed = current.as_ref() != Some(&pair);
            *current = Some(pair);
            changed
        });
        Ok(Found::Certificate)
    }

    fn warn(&self, found: &Found) {
        let (secret, namespace) = (TLS_SECRET, &self.namespace);
        match found {
            Found::Certificate => {}
            Found::Nothing => tracing::warn!(
                secret,
                namespace,
                "the Secret has no certificate; is `napkeeper certificates` running? It writes the certificate, and its log says why it has not"
            ),
            Found::NoSecret => tracing::warn!(
                secret,
                namespace,
                "Secret for the certificate not found; apply the empty one of kustomize/base, or use --tls-cert and --tls-key"
            ),
        }
    }
}
