//! Watches the cluster, and keeps the view of it up to date that hints and verdicts use.
//!
//! It watches as the controller does. Without a cluster the webhook answers as well: verdicts do not need one, and
//! there are no hints.

use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_core::admission::pdb_blockers::ClusterBlockers;
use napkeeper_core::admission::placement_policy::PlacementPolicies;
use napkeeper_core::catalog::InstanceTypeOptions;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::Region;
use napkeeper_core::snapshot::delta::Delta;
use napkeeper_kube::watch::{WatchEvent, WatchOptions, WatchedKind, watch as watch_cluster};
use napkeeper_kube::{connect, follow_blockers, follow_facts, follow_placement};
use napkeeper_serve::{Check, Lifecycle};
use napkeeper_webhook::{ClusterView, ViewMetrics, ViewOutputs, ViewSettings};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Changes that may be queued; then the watches wait.
const CHANGE_QUEUE: usize = 10_000;
/// Snapshots are published at most this often, except for AKSNodeClasses: each one makes the next change copy a table.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);

/// Longest that a process which can answer waits for the cluster before it is ready. Verdicts by rule do not need the
/// cluster, and a replica that never becomes ready is worse than one without hints.
const MAX_LISTING_TIME: Duration = Duration::from_secs(30);
/// A watch that has failed for longer leaves the cluster unknown. Most failures are over after a few seconds.
const MAX_WATCH_FAILURE: Duration = Duration::from_secs(60);

/// Longest wait for the API server's version: one rule uses it, and everything else waits meanwhile.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);

/// The kinds that hints depend on. kustomize/base/webhook-rbac.yaml allows the webhook no others.
const KINDS: [WatchedKind; 10] = [
    WatchedKind::Pods,
    WatchedKind::Nodes,
    WatchedKind::NodeClaims,
    WatchedKind::NodePools,
    WatchedKind::NodeClasses,
    WatchedKind::NodeOverlays,
    WatchedKind::DaemonSets,
    WatchedKind::Namespaces,
    WatchedKind::Services,
    WatchedKind::Schedulers,
];

/// The task that watches the cluster.
#[derive(Debug)]
pub(crate) struct ClusterWatch {
    /// Path of the kubeconfig; without one the pod's service account is used.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of the pause switch and the published facts.
    pub(crate) namespace: String,
    /// The clock that objects' ages are measured by.
    pub(crate) clock: Arc<dyn Clock>,
    /// The Azure region; by default that of the nodes' labels.
    pub(crate) region: Option<Region>,
    /// Settings of the nodes.
    pub(crate) nodes: InstanceTypeOptions,
    /// Receives Snapshots, and the facts of verdicts.
    pub(crate) outputs: ViewOutputs,
    /// Receives PlacementPolicies and Namespaces.
    pub(crate) placement: watch::Sender<Arc<PlacementPolicies>>,
    /// Receives what blocks nodes.
    pub(crate) blockers: watch::Sender<Arc<ClusterBlockers>>,
    pub(crate) metrics: ViewMetrics,
    /// Passes once all kinds have been listed; unless that is required, after [`MAX_LISTING_TIME`] anyway.
    pub(crate) listed: Check,
    /// Objects are refused while the cluster is not known, so the process is not ready before it is.
    pub(crate) required: bool,
}

impl ClusterWatch {
    /// Watches until the process drains.
    ///
    /// # Errors
    /// When the embedded facts cannot be read.
    pub(crate) async fn run(self, lifecycle: Lifecycle) -> anyhow::Result<()> {
        let client = match connect(self.kubeconfig.as_deref()).await {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(%error, "cannot reach the cluster: pods get no placement hints");
                let reason = format!("cannot reach the cluster: {error}");
                if self.required {
                    self.listed.fail(&reason)
                } else {
                    self.listed.pass()
                }
                self.outputs.unreadable.send_replace(Some(reason));
                lifecycle.draining().await;
                return Ok(());
            }
        };
        self.listed.fail("the initial listing is not complete yet");
        let Self { namespace, clock, region, nodes, outputs, placement, blockers, metrics, listed, required, .. } =
            self;
        let settings = ViewSettings { region, kubernetes: version(&client).await, nodes };
        let view = ClusterView::new(settings, outputs, metrics)?;
        let (sender, changes) = mpsc::channel(CHANGE_QUEUE);
        let (facts, published) = watch::channel(None);
        let readiness = ViewReadiness { listed: &listed, required };
        let options = WatchOptions { kinds: KINDS.into(), ..WatchOptions::new(clock, namespace.clone()) };
        tokio::select! {
            () = watch_cluster(client.clone(), options, sender) => Ok(()),
            () = follow_facts(client.clone(), &namespace, facts) => Ok(()),
            () = follow_placement(client.clone(), placement) => Ok(()),
            () = follow_blockers(client, blockers) => Ok(()),
            updated = update(view, changes, published, &readiness) => updated,
            never = stop_waiting(&listed), if !required => match never {},
            () = lifecycle.draining() => Ok(()),
        }
    }
}

/// Makes the process ready after a while, even if the cluster is not listed.
async fn stop_waiting(listed: &Check) -> Infallible {
    tokio::time::sleep(MAX_LISTING_TIME).await;
    if listed.failure().is_some() {
        let seconds = MAX_LISTING_TIME.as_secs();
        tracing::warn!(seconds, "the cluster is not listed yet: ready without placement hints");
        listed.pass();
    }
    std::future::pending().await
}

/// When the process is ready, as far as the view goes.
struct ViewReadiness<'a> {
    listed: &'a Check,
    /// See [`ClusterWatch::required`].
    required: bool,
}

impl ViewReadiness<'_> {
    /// The view has been published, as far as it can be.
    fn update(&self, view: &ClusterView) {
        if view.is_published() || !self.required {
            self.listed.pass();
        } else {
            self.listed.fail("the region is not known: set --region");
        }
    }
}

/// Watches that fail: since when, and the first error.
#[derive(Default)]
struct FailedWatches(BTreeMap<WatchedKind, (Instant, String)>);

impl FailedWatches {
    /// What has failed for too long, as text.
    fn overdue(&self) -> Option<String> {
        let late = self.0.iter().find(|(_, (since, _))| since.elapsed() > MAX_WATCH_FAILURE);
        late.map(|(kind, (_, error))| format!("the watch of {} fails: {error}", kind.resource()))
    }
}

/// Updates the view, and publishes it.
async fn update(
    mut view: ClusterView,
    mut changes: mpsc::Receiver<WatchEvent>,
    mut facts: watch::Receiver<Option<PublishedFacts>>,
    readiness: &ViewReadiness<'_>,
) -> anyhow::Result<()> {
    let mut synced = false;
    let mut failed_watches = FailedWatches::default();
    let mut tick = tokio::time::interval(PUBLISH_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = changes.recv() => match event {
                None => return Ok(()),
                Some(WatchEvent::Changed(delta)) => {
                    view.apply(&delta);
                    // A NodePool that names it, applied together with it, is reviewed a moment later.
                    if matches!(delta, Delta::Class(_)) {
                        tick.reset_immediately();
                    }
                }
                Some(WatchEvent::Synced) => {
                    tracing::info!("initial listing of the cluster complete");
                    synced = true;
                    view.mark_listed();
                    // The process is ready as soon as the view is published.
                    tick.reset_immediately();
                }
                Some(WatchEvent::Failing { kind, error }) => {
                    tracing::warn!(kind = kind.resource(), error, "watch failed: hints use the last known state");
                    failed_watches.0.entry(kind).or_insert_with(|| (Instant::now(), error.to_string()));
                }
                Some(WatchEvent::Recovered { kind }) => {
                    failed_watches.0.remove(&kind);
                    tracing::info!(kind = kind.resource(), "watch recovered");
                }
                Some(WatchEvent::Unreadable { kind, name, reason }) => {
                    tracing::warn!(kind = kind.resource(), name, why = reason, "ignoring an invalid object");
                }
            },
            Ok(()) = facts.changed() => view.set_facts(facts.borrow_and_update().as_ref())?,
            _ = tick.tick() => {
                view.set_failing(failed_watches.overdue());
                if synced && failed_watches.0.is_empty() {
                    view.mark_in_sync();
                }
                if synced && view.publish()? {
                    readiness.update(&view);
                }
            }
        }
    }
}

/// The API server's version without vendors' suffixes; `None` if it does not answer in time.
async fn version(client: &kube::Client) -> Option<String> {
    let info = tokio::time::timeout(VERSION_TIMEOUT, client.apiserver_version()).await.ok()?.ok()?;
    let version = info.git_version.trim_start_matches('v');
    version.split(['-', '+']).next().filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::cluster::pool::NodeClass;
    use napkeeper_core::model::names::{NodeClassName, Uid};
    use napkeeper_serve::Health;
    use napkeeper_webhook::SourcedValidator;

    /// Less than [`PUBLISH_INTERVAL`], after which it would be known anyway.
    const SOON: Duration = Duration::from_millis(250);
    /// The machine may be busy.
    const TRIES: usize = 3;

    /// How long after a regular publication an AKSNodeClass is known that came right after it.
    async fn known_after() -> anyhow::Result<Duration> {
        let (snapshots, mut published) = watch::channel(None);
        let validator = watch::channel(Arc::new(SourcedValidator::embedded()?)).0;
        let outputs = ViewOutputs { snapshots, validator, unreadable: watch::channel(None).0 };
        let settings = ViewSettings {
            region: Some(Region::new("westeurope")?),
            kubernetes: None,
            nodes: InstanceTypeOptions::default(),
        };
        let view = ClusterView::new(settings, outputs, ViewMetrics::default())?;
        let (changes, received) = mpsc::channel(8);
        let facts = watch::channel(None);
        let listed = Health::new(&Lifecycle::default()).check("test");
        let updating = tokio::spawn(async move {
            update(view, received, facts.1, &ViewReadiness { listed: &listed, required: false }).await
        });
        changes.send(WatchEvent::Synced).await?;
        published.wait_for(Option::is_some).await?;
        let class = NodeClass::with_defaults(NodeClassName::new("late")?, Uid::new("late")?);
        let sent = Instant::now();
        changes.send(WatchEvent::Changed(Delta::Class(Arc::new(class)))).await?;
        published.wait_for(|snapshot| snapshot.as_ref().is_some_and(|one| one.classes().len() == 1)).await?;
        let took = sent.elapsed();
        updating.abort();
        Ok(took)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_class_is_known_before_the_next_publication() -> anyhow::Result<()> {
        let mut took = Vec::new();
        for _ in 0..TRIES {
            took.push(known_after().await?);
        }
        assert!(took.iter().any(|took| *took < SOON), "{took:?}");
        Ok(())
    }
}
