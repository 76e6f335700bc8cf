//! Rotates the webhook's own certificates.
//!
//! All replicas read one Secret and serve the certificate in it. The replica that holds the Lease takes the step that
//! [`napkeeper_serve::rotation::next_step`] returns, and then checks again. A replica that loses a race for the Secret
//! reads it again.

use jiff::Timestamp;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_kube::{
    HookBundle, TLS_SECRET, TlsSecret, WEBHOOK_LEASE, elect_for, publish_bundle, read_bundles, read_secret,
    write_secret,
};
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_serve::rotation::{
    CertificateLifetimes, CertificateSecret, Der, PublishedBundle, RotationStep, next_step, parse_authorities,
};
use napkeeper_serve::{CertificatePair, IssueError, Lifecycle, write_certificates};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::field::display;

/// Name of both hook configurations.
const HOOKS: &str = "napkeeper";
/// How often the Secret is read, and by the holder of the Lease the hooks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The same while there is no certificate to serve.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after a step that may be followed by another.
const NEXT_STEP_DELAY: Duration = Duration::from_millis(50);
/// How long the Lease must still be held before a step: longer than a request may take.
const LEASE_LEFT: Duration = Duration::from_secs(11);
/// After failures in a row the interval is multiplied by their number, but not by more than this.
const MAX_INTERVAL_FACTOR: u32 = 4;

/// The authorities of each hook, and since when this process has observed them.
type ObservedBundles = BTreeMap<(&'static str, String), (BTreeSet<Der>, Timestamp)>;

/// Rotates the certificates in the Secret, and passes the serving certificate on to the server.
pub(crate) struct CertificateRotation {
    pub(crate) client: kube::Client,
    /// The namespace of Secret, Lease and Service.
    pub(crate) namespace: String,
    /// Name of this process in the Lease.
    pub(crate) identity: String,
    /// DNS names and addresses of the certificate.
    pub(crate) names: Vec<String>,
    pub(crate) lives: CertificateLifetimes,
    /// Receives the serving certificate.
    pub(crate) serving: watch::Sender<Option<CertificatePair>>,
    pub(crate) metrics: Metrics,
}

/// Metrics of rotation steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    steps: Family<[(&'static str, &'static str); 2], Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Certificate rotation steps, by step (authority, publish, leaf, look) and result (done, failed)";
        registry.register("webhook_certificate_steps", help, metrics.steps.clone());
        metrics
    }

    fn count(&self, step: &'static str, result: &'static str) {
        self.steps.get_or_create(&[("step", step), ("result", result)]).inc();
    }
}

impl fmt::Debug for CertificateRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateRotation")
            .field("namespace", &self.namespace)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// The state of the checks.
#[derive(Default)]
struct Observed {
    bundles: ObservedBundles,
    secret_is_missing: bool,
}

impl CertificateRotation {
    /// Rotates certificates until the process drains; then releases the Lease.
    pub(crate) async fn run(self, lifecycle: Lifecycle) -> anyhow::Result<()> {
        let ends = lifecycle.clone();
        let stop = async move { ends.draining().await };
        let (lease, election) = elect_for(WEBHOOK_LEASE, self.client.clone(), &self.namespace, &self.identity, stop);
        let (mut leads, mut observed, mut failures) = (lease.leads(), Observed::default(), 0_u32);
        loop {
            let wait = match self.check(lease.held_for(LEASE_LEFT), &mut observed).await {
                Ok(took_step) => {
                    failures = 0;
                    match took_step {
                        true => NEXT_STEP_DELAY,
                        false if self.serving.borrow().is_some() || observed.secret_is_missing => self.check_interval(),
                        false => FIRST_CHECK_INTERVAL,
                    }
                }
                Err(reason) if reason == ClusterError::Conflict.category() => FIRST_CHECK_INTERVAL,
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    self.metrics.count("look", "failed");
                    tracing::debug!(why = reason, "checking certificates again");
                    self.check_interval() * failures.min(MAX_INTERVAL_FACTOR)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = leads.changed() => observed.bundles.clear(),
                () = lifecycle.draining() => break,
            }
        }
        election.await?;
        Ok(())
    }

    /// A certificate that is due must be renewed, and served by all replicas, within a third of its life.
    fn check_interval(&self) -> Duration {
        Duration::try_from(self.lives.serving_certificate / 20)
            .map_or(CHECK_INTERVAL, |short| CHECK_INTERVAL.min(short))
    }

    /// Serves the certificate of the Secret and, as the holder of the Lease, takes a step. True if it has taken one.
    async fn check(&self, leads: bool, observed: &mut Observed) -> Result<bool, &'static str> {
        let secret = read_secret(&self.client, &self.namespace).await.map_err(ClusterError::category)?;
        let was_missing = std::mem::replace(&mut observed.secret_is_missing, secret.is_none());
        let Some(secret) = secret else {
            if !was_missing {
                tracing::warn!(
                    secret = TLS_SECRET,
                    namespace = self.namespace,
                    "Secret for the certificates not found; apply the empty one of kustomize/base, or use --tls-cert and --tls-key"
                );
            }
            return Ok(false);
        };
        let now = Timestamp::now();
        let content = CertificateSecret::read(|key| secret.get(key));
        let state = content.state(&self.names, now);
        if state.serving_certificate.is_some() {
            let serving = Some(content.serving().clone());
            self.serving.send_if_modified(|current| {
                let changed = *current != serving;
                current.clone_from(&serving);
                changed
            });
        }
        if !leads {
            return Ok(false);
        }
        let hooks = read_bundles(&self.client, HOOKS).await.map_err(ClusterError::category)?;
        let step = next_step(&state, &published(&hooks, &mut observed.bundles, now), &self.lives, now);
        let (name, done) = match step {
            RotationStep::Idle | RotationStep::WaitForPropagation => return Ok(false),
            RotationStep::IssueAuthority => {
                ("authority", self.write(&secret, content.with_new_authority(&self.lives, now)).await)
            }
            RotationStep::IssueServingCertificate => {
                let renewed = content.with_new_serving_certificate(&self.names, &self.lives, now);
                ("leaf", self.write(&secret, renewed).await)
            }
            RotationStep::Publish(authorities) => ("publish", self.publish(&authorities, &hooks).await),
        };
        self.metrics.count(name, if done.is_ok() { "done" } else { "failed" });
        done.map(|()| true)
    }

    async fn publish(&self, authorities: &BTreeSet<Der>, hooks: &[HookBundle]) -> Result<(), &'static str> {
        let pem = write_certificates(authorities.iter().map(AsRef::as_ref));
        publish_bundle(&self.client, HOOKS, hooks, pem.as_bytes()).await.map_err(ClusterError::category)?;
        tracing::info!(authorities = authorities.len(), hooks = hooks.len(), "published CA certificates");
        Ok(())
    }

    async fn write(
        &self,
        secret: &TlsSecret,
        renewed: Result<CertificateSecret, IssueError>,
    ) -> Result<(), &'static str> {
        let renewed = renewed.map_err(|error| {
            tracing::warn!(%error, "cannot create a certificate");
            "issue"
        })?;
        let written = write_secret(&self.client, &self.namespace, secret, renewed.data()).await;
        written.map_err(ClusterError::category)?;
        let state = renewed.state(&self.names, Timestamp::now());
        let until = state.serving_certificate.map(|certificate| display(certificate.validity.not_after));
        let (names, authorities) = (self.names.join(","), state.authorities.len());
        tracing::info!(secret = TLS_SECRET, names, authorities, until, "certificates renewed");
        Ok(())
    }
}

/// The authorities that each hook trusts, and since when this process has observed them.
fn published(hooks: &[HookBundle], observed: &mut ObservedBundles, now: Timestamp) -> Vec<PublishedBundle> {
    let mut all = Vec::new();
    for hook in hooks {
        let authorities = parse_authorities(&hook.pem);
        let ders: BTreeSet<Der> = authorities.iter().map(|authority| Arc::clone(&authority.der)).collect();
        let (known, since) = observed.entry((hook.kind, hook.hook.clone())).or_insert_with(|| (ders.clone(), now));
        if *known != ders {
            (*known, *since) = (ders, now);
        }
        all.push(PublishedBundle { authorities, since: *since });
    }
    all
}
