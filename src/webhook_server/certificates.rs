//! How does the webhook keep its own certificates?
//!
//! All replicas read one Secret and serve the pair in it. The one that holds the Lease asks
//! [`napkeeper_serve::rotation::next_step`] what to do, and does it: one step, then a new look. Whoever loses a race for
//! the Secret looks again.

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
    CertificateAuthority, CertificateLifetimes, CertificateState, Der, PublishedBundle, RotationStep,
    ServingCertificate, Validity, next_step,
};
use napkeeper_serve::{
    CertificatePair, Lifecycle, is_key_of, issue_authority, issue_serving_certificate, read_certificates, validity_of,
    verify_pair, write_certificates,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Name of both hook configurations.
const HOOKS: &str = "napkeeper";
const LEAF: &str = "tls.crt";
const LEAF_KEY: &str = "tls.key";
/// All authorities, the newest last.
const AUTHORITIES: &str = "ca.crt";
/// The newest one's key.
const AUTHORITY_KEY: &str = "ca.key";
/// How often the Secret is looked at, and by whom holds the Lease the hooks.
const POLL: Duration = Duration::from_secs(5);
/// The same while there is nothing to serve.
const HURRY: Duration = Duration::from_millis(500);
/// A step is begun only while the Lease is ours for at least so long: longer than a request may take.
const AT_LEAST: Duration = Duration::from_secs(11);
/// Looks that fail one after the other are made up to so many times less often.
const SLOWEST: u32 = 4;

type Seen = BTreeMap<(&'static str, String), (BTreeSet<Der>, Timestamp)>;

/// Keeps certificates in the Secret, and hands the pair in it over.
pub(crate) struct Keeper {
    pub(crate) client: kube::Client,
    /// The namespace of Secret, Lease and Service.
    pub(crate) namespace: String,
    /// Who stands for the Lease.
    pub(crate) identity: String,
    /// What the certificate is for: DNS names and addresses.
    pub(crate) names: Vec<String>,
    pub(crate) lives: CertificateLifetimes,
    /// Where the pair goes.
    pub(crate) hand: watch::Sender<Option<CertificatePair>>,
    pub(crate) metrics: Metrics,
}

/// What was done about certificates.
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

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("namespace", &self.namespace).field("names", &self.names).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Keeps certificates until the process drains; then gives the Lease back.
    pub(crate) async fn keep(self, lifecycle: Lifecycle) -> anyhow::Result<()> {
        let ends = lifecycle.clone();
        let stop = async move { ends.draining().await };
        let (lease, standing) = elect_for(WEBHOOK_LEASE, self.client.clone(), &self.namespace, &self.identity, stop);
        let (mut leads, mut seen) = (lease.leads(), Seen::new());
        let (mut missing, mut failures) = (false, 0_u32);
        loop {
            let wait = match self.look(lease.held_for(AT_LEAST), &mut seen, &mut missing).await {
                Ok(more) => {
                    failures = 0;
                    match more {
                        // Bounded: each step brings the next look nearer to rest.
                        true => Duration::from_millis(50),
                        false if self.hand.borrow().is_some() || missing => self.poll(),
                        false => HURRY,
                    }
                }
                Err(why) if why == ClusterError::Conflict.category() => HURRY,
                Err(why) => {
                    failures = failures.saturating_add(1);
                    self.metrics.count("look", "failed");
                    tracing::debug!(why, "checking certificates again");
                    self.poll() * failures.min(SLOWEST)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = leads.changed() => seen.clear(),
                () = lifecycle.draining() => break,
            }
        }
        standing.await?;
        Ok(())
    }

    /// A leaf that is due must be renewed, and taken up by all, within a third of its life.
    fn poll(&self) -> Duration {
        Duration::try_from(self.lives.serving_certificate / 20).map_or(POLL, |short| POLL.min(short))
    }

    /// Takes up what the Secret has, and, as the holder of the Lease, a step. True when there may be another.
    async fn look(&self, leads: bool, seen: &mut Seen, missing: &mut bool) -> Result<bool, &'static str> {
        let secret = read_secret(&self.client, &self.namespace).await.map_err(ClusterError::category)?;
        if secret.is_none() != *missing {
            *missing = secret.is_none();
            if *missing {
                tracing::warn!(
                    secret = TLS_SECRET,
                    namespace = self.namespace,
                    "Secret for the certificates not found; apply the empty one of kustomize/base, or use --tls-cert and --tls-key"
                );
            }
        }
        let Some(secret) = secret else { return Ok(false) };
        let now = Timestamp::now();
        let kept = self.kept(&secret, now);
        if kept.serving_certificate.is_some() {
            let pair = Some(pair(&secret));
            self.hand.send_if_modified(|old| {
                let new = *old != pair;
                old.clone_from(&pair);
                new
            });
        }
        if !leads {
            return Ok(false);
        }
        let hooks = read_bundles(&self.client, HOOKS).await.map_err(ClusterError::category)?;
        let step = next_step(&kept, &published(&hooks, seen, now), &self.lives, now);
        self.take(step, (&secret, &kept), &hooks, now).await
    }

    async fn take(
        &self,
        step: RotationStep,
        (secret, kept): (&TlsSecret, &CertificateState),
        hooks: &[HookBundle],
        now: Timestamp,
    ) -> Result<bool, &'static str> {
        let (name, done) = match step {
            RotationStep::Idle | RotationStep::WaitForPropagation => return Ok(false),
            RotationStep::IssueAuthority => ("authority", self.make_authority(secret, kept, now).await),
            RotationStep::IssueServingCertificate => ("leaf", self.make_leaf(secret, kept, now).await),
            RotationStep::Publish(wanted) => {
                let pem = write_certificates(wanted.iter().map(AsRef::as_ref));
                let done = publish_bundle(&self.client, HOOKS, hooks, pem.as_bytes()).await;
                if done.is_ok() {
                    tracing::info!(authorities = wanted.len(), hooks = hooks.len(), "published CA certificates");
                }
                ("publish", done.map_err(ClusterError::category))
            }
        };
        self.metrics.count(name, if done.is_ok() { "done" } else { "failed" });
        done.map(|()| true)
    }

    async fn make_authority(
        &self,
        secret: &TlsSecret,
        kept: &CertificateState,
        now: Timestamp,
    ) -> Result<(), &'static str> {
        let span = self.lives.authority_validity(now);
        let made = issue_authority(seconds(span)).map_err(|error| not_made(&error))?;
        let new = read_certificates(made.certificate());
        let authorities = bundle(kept, &new, now);
        let leaf = pair(secret);
        self.write(secret, [leaf.certificate(), leaf.key(), authorities.as_bytes(), made.key()]).await?;
        tracing::info!(until = %span.not_after, "created a CA");
        Ok(())
    }

    async fn make_leaf(&self, secret: &TlsSecret, kept: &CertificateState, now: Timestamp) -> Result<(), &'static str> {
        let Some(signer) = kept.authorities.last() else { return Ok(()) };
        let span = self.lives.serving_certificate_validity(now, signer.validity);
        let key = secret.get(AUTHORITY_KEY);
        let made = issue_serving_certificate(key, &self.names, seconds(span)).map_err(|error| not_made(&error))?;
        let authorities = bundle(kept, &[], now);
        self.write(secret, [made.certificate(), made.key(), authorities.as_bytes(), key]).await?;
        tracing::info!(until = %span.not_after, names = self.names.join(","), "created a certificate");
        Ok(())
    }

    async fn write(&self, secret: &TlsSecret, values: [&[u8]; 4]) -> Result<(), &'static str> {
        let keys = [LEAF, LEAF_KEY, AUTHORITIES, AUTHORITY_KEY].map(ToOwned::to_owned);
        let data = keys.into_iter().zip(values.map(<[u8]>::to_vec)).filter(|(_, value)| !value.is_empty()).collect();
        write_secret(&self.client, &self.namespace, secret, data).await.map(drop).map_err(ClusterError::category)
    }

    /// What is in the Secret; what cannot be read there is as if it were not.
    fn kept(&self, secret: &TlsSecret, now: Timestamp) -> CertificateState {
        let authorities = authorities(secret.get(AUTHORITIES));
        let can_sign = authorities.last().is_some_and(|newest| is_key_of(secret.get(AUTHORITY_KEY), &newest.der));
        let ders: Vec<&[u8]> = authorities.iter().map(|authority| &*authority.der).collect();
        let time = u64::try_from(now.as_second()).unwrap_or_default();
        let leaf = verify_pair(&pair(secret), &self.names, &ders, time);
        let leaf = leaf.and_then(|(times, by)| {
            Some(ServingCertificate { signer: Arc::clone(&authorities.get(by)?.der), validity: span(times)? })
        });
        CertificateState { can_sign, serving_certificate: leaf, authorities }
    }
}

fn not_made(error: &napkeeper_serve::IssueError) -> &'static str {
    tracing::warn!(%error, "cannot create a certificate");
    "issue"
}

fn pair(secret: &TlsSecret) -> CertificatePair {
    CertificatePair::new(secret.get(LEAF).to_vec(), secret.get(LEAF_KEY).to_vec())
}

fn authorities(pem: &[u8]) -> Vec<CertificateAuthority> {
    let read = |der: Vec<u8>| Some(CertificateAuthority { validity: span(validity_of(&der)?)?, der: Arc::from(der) });
    read_certificates(pem).into_iter().filter_map(read).collect()
}

/// Authorities that live, and new ones after them.
fn bundle(kept: &CertificateState, new: &[Vec<u8>], now: Timestamp) -> String {
    let live = kept.authorities.iter().filter(|authority| authority.validity.not_after > now);
    write_certificates(live.map(|authority| &*authority.der).chain(new.iter().map(Vec::as_slice)))
}

/// What each hook trusts, and since when this process has seen it so.
fn published(hooks: &[HookBundle], seen: &mut Seen, now: Timestamp) -> Vec<PublishedBundle> {
    let mut all = Vec::new();
    for hook in hooks {
        let authorities = authorities(&hook.pem);
        let ders: BTreeSet<Der> = authorities.iter().map(|authority| Arc::clone(&authority.der)).collect();
        let entry = seen.entry((hook.kind, hook.hook.clone())).or_insert_with(|| (ders.clone(), now));
        if entry.0 != ders {
            *entry = (ders, now);
        }
        all.push(PublishedBundle { authorities, since: entry.1 });
    }
    all
}

fn span((from, until): (i64, i64)) -> Option<Validity> {
    Some(Validity { not_before: Timestamp::from_second(from).ok()?, not_after: Timestamp::from_second(until).ok()? })
}

fn seconds(span: Validity) -> (u64, u64) {
    let seconds = |time: Timestamp| u64::try_from(time.as_second()).unwrap_or_default();
    (seconds(span.not_before), seconds(span.not_after))
}
