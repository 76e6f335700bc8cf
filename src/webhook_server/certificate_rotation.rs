//! The process of `napkeeper certificates`: rotates the webhook's own certificates.
//!
//! It listens at no port, because it may change the webhook configurations and has the CA key. One Secret holds all
//! that is needed to go on; another one has a copy of the serving certificate, which the webhook reads. The process that
//! holds the Lease takes the step that [`napkeeper_serve::rotation::next_step`] returns, and then checks again. One that
//! loses a race for a Secret reads it again.

use crate::{CHECK_INTERVAL, wait_after};
use anyhow::{Context, bail};
use jiff::Timestamp;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_kube::{
    CA_SECRET, HookBundle, LeaseHandle, TLS_SECRET, TlsSecret, WEBHOOK_LEASE, connect, elect_for, lease_identity,
    publish_bundle, read_bundles, read_secret, write_secret,
};
use napkeeper_serve::rotation::{
    CertificateLifetimes, CertificateSecret, CertificateState, Der, PublishedBundle, RotationStep, next_step,
    parse_authorities,
};
use napkeeper_serve::{Component, IssueError, Lifecycle, run, write_certificates};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::field::display;

/// Name of both hook configurations.
const HOOKS: &str = "napkeeper";
/// Pause after a lost race for a Secret or a hook.
const CONFLICT_DELAY: Duration = Duration::from_millis(500);
/// Pause after a step that may be followed by another.
const NEXT_STEP_DELAY: Duration = Duration::from_millis(50);
/// How long the Lease must still be held before a step: longer than a request may take.
const LEASE_LEFT: Duration = Duration::from_secs(11);
/// After this many failures in a row, about ten minutes, the process ends with an error: it has no probe and no metric
/// by which it could be noticed, but a container that restarts is.
const MAX_FAILURES: u32 = 30;

/// The authorities of each hook, and since when this process has observed them.
type ObservedBundles = BTreeMap<(&'static str, String), (BTreeSet<Der>, Timestamp)>;

/// The arguments of the command line.
#[derive(Debug)]
pub struct CertificateOptions {
    /// Path of the kubeconfig; without one the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of Secrets, Lease and Service.
    pub namespace: String,
    /// Names of the certificate, besides that of the Service.
    pub names: Vec<String>,
    /// Lifetimes of certificates.
    pub lives: CertificateLifetimes,
}

/// Rotates certificates until a signal stops the process.
///
/// # Errors
/// When there is no access to the cluster, or checks fail for minutes.
pub fn rotate_certificates(options: &CertificateOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let client = connect(options.kubeconfig.as_deref())
            .await
            .context("the webhook's certificates are kept in Secrets, which requires access to the cluster")?;
        let service = format!("napkeeper-webhook.{}.svc", options.namespace);
        let rotation = CertificateRotation {
            client,
            namespace: options.namespace.clone(),
            identity: lease_identity(),
            names: std::iter::once(service).chain(options.names.iter().cloned()).collect(),
            lives: options.lives,
        };
        tracing::info!(namespace = options.namespace, names = rotation.names.join(","), "maintaining certificates");
        let lifecycle = Lifecycle::default();
        lifecycle.ready();
        let component = Component::new("certificate rotation", rotation.run(lifecycle.clone()));
        run(&lifecycle, vec![component]).await?;
        anyhow::Ok(())
    });
    runtime.shutdown_background();
    ended
}

/// Rotates the certificates in the Secrets.
struct CertificateRotation {
    client: kube::Client,
    /// The namespace of Secrets, Lease and Service.
    namespace: String,
    /// Name of this process in the Lease.
    identity: String,
    /// DNS names and addresses of the certificate.
    names: Vec<String>,
    lives: CertificateLifetimes,
}

/// The state of the checks.
#[derive(Default)]
struct Observed {
    bundles: ObservedBundles,
    /// The Secret of which was said that it is missing.
    missing: Option<&'static str>,
}

impl CertificateRotation {
    /// Rotates certificates until the process drains; then releases the Lease.
    async fn run(self, lifecycle: Lifecycle) -> anyhow::Result<()> {
        let ends = lifecycle.clone();
        let stop = async move { ends.draining().await };
        let (lease, election) = elect_for(WEBHOOK_LEASE, self.client.clone(), &self.namespace, &self.identity, stop);
        let (mut leads, mut observed, mut failures) = (lease.leads(), Observed::default(), 0_u32);
        loop {
            let wait = match self.check(&lease, &mut observed).await {
                Ok(took_step) => {
                    failures = 0;
                    if took_step { NEXT_STEP_DELAY } else { self.check_interval() }
                }
                Err(reason) if reason == ClusterError::Conflict.category() => CONFLICT_DELAY,
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    if failures >= MAX_FAILURES {
                        bail!(
                            "{failures} checks in a row have failed in namespace {}, the last one with: {reason}; the log names the requests and the API server's answers",
                            self.namespace
                        );
                    }
                    tracing::debug!(why = reason, "checking certificates again");
                    wait_after(failures, self.check_interval())
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

    /// Reads the Secrets, so that one that waits for the Lease notices too if it may not, and as the holder of the Lease
    /// takes a step. True if it has taken one. An error if the last request for the Lease failed, even while it is held.
    async fn check(&self, lease: &LeaseHandle, observed: &mut Observed) -> Result<bool, &'static str> {
        let Some((secret, served)) = self.read(observed).await? else { return Err("a Secret is missing") };
        if !lease.is_reachable() {
            return Err(
                "Lease napkeeper-webhook cannot be read or written: the ServiceAccount needs get and update on it, and create on leases",
            );
        }
        if !lease.held_for(LEASE_LEFT) {
            return Ok(false);
        }
        let now = Timestamp::now();
        let content = CertificateSecret::read(|key| secret.get(key));
        let state = content.state(&self.names, now);
        // Before any other step: a foreign authority is dropped only some time after our own leaf is served.
        if self.copy(&content, &state, &served).await? {
            return Ok(true);
        }
        let hooks = read_bundles(&self.client, HOOKS).await.map_err(ClusterError::category)?;
        let step = next_step(&state, &published(&hooks, &mut observed.bundles, now), &self.lives, now);
        match step {
            RotationStep::Idle | RotationStep::WaitForPropagation => return Ok(false),
            RotationStep::IssueAuthority => {
                self.write(&secret, content.with_new_authority(&self.lives, now)).await?;
            }
            RotationStep::IssueServingCertificate => {
                let renewed = content.with_new_serving_certificate(&self.names, &self.lives, now);
                self.write(&secret, renewed).await?;
            }
            RotationStep::Publish(authorities) => self.publish(&authorities, &hooks).await?,
        }
        Ok(true)
    }

    /// Both Secrets; `None` if one is missing.
    async fn read(&self, observed: &mut Observed) -> Result<Option<(TlsSecret, TlsSecret)>, &'static str> {
        let mut found = Vec::with_capacity(2);
        for name in [CA_SECRET, TLS_SECRET] {
            match read_secret(&self.client, &self.namespace, name).await.map_err(ClusterError::category)? {
                Some(secret) => found.push(secret),
                None => {
                    if observed.missing.replace(name) != Some(name) {
                        tracing::warn!(
                            secret = name,
                            namespace = self.namespace,
                            "Secret for the certificates not found; apply the empty one of kustomize/base"
                        );
                    }
                    return Ok(None);
                }
            }
        }
        observed.missing = None;
        let served = found.pop();
        Ok(found.pop().zip(served))
    }

    /// Gives the webhook the leaf, and nothing else. While there is no valid one, the webhook keeps what it has, such as
    /// a leaf of an older version, whose authority is still trusted; but not the key of that authority. True if the
    /// Secret was written.
    async fn copy(
        &self,
        content: &CertificateSecret,
        state: &CertificateState,
        served: &TlsSecret,
    ) -> Result<bool, &'static str> {
        let data = match state.serving_certificate {
            Some(_) => content.serving_data(),
            None => CertificateSecret::read(|key| served.get(key)).serving_data(),
        };
        if served.has_exactly(&data) {
            return Ok(false);
        }
        write_secret(&self.client, &self.namespace, served, data).await.map_err(ClusterError::category)?;
        tracing::info!(secret = served.name(), "wrote the certificate for the webhook");
        Ok(true)
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
        tracing::info!(secret = secret.name(), names, authorities, until, "certificates renewed");
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
