//! Where does the webhook's picture of the cluster come from?
//!
//! It watches as the controller does, and publishes what it sees. Without a cluster it answers all the same: verdicts
//! need none, and hints then say nothing.

use anyhow::Context;
use jiff::Timestamp;
use napkeeper_api::facts::Published;
use napkeeper_core::admission::blockers::ClusterBlockers;
use napkeeper_core::admission::placement_policy::PlacementPolicies;
use napkeeper_core::catalog::live::{AzureFacts, PriceSheet, Quota, STALE_AFTER, catalog_from_facts};
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions, RegionCatalog};
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::engine::controller::Controller;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Region;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::watch::{WatchEvent, WatchOptions, WatchedKind, watch as watch_cluster};
use napkeeper_kube::{connect, follow_blockers, follow_facts, follow_placement};
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_serve::{Check, Lifecycle};
use napkeeper_webhook::SourcedValidator;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Changes that may wait to be taken in; then the watches wait.
const CHANGES: usize = 10_000;
/// Snapshots are published at most this often: each one makes the next change copy a table.
const PUBLISH_EVERY: Duration = Duration::from_millis(500);

/// Longest that a process which can answer waits for the cluster before it says that it is ready. Verdicts by rule need no
/// cluster, and a replica that never gets ready is worse than one without hints.
const WARMING: Duration = Duration::from_secs(30);

/// Longest wait for the API server's version: one rule asks for it, and all else waits meanwhile.
const ASKING: Duration = Duration::from_secs(2);

/// What a hint depends on. kustomize/base/webhook-rbac.yaml lets the webhook read no more.
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

/// Since when what is known has not been looked at, as metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ages {
    snapshot: Gauge,
    facts: Gauge,
}

impl Ages {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let ages = Self::default();
        let help = "Time when all watches were last in sync, in seconds since the Unix epoch; 0 for never";
        registry.register("webhook_snapshot_timestamp_seconds", help, ages.snapshot.clone());
        let help = "Time of the oldest of the sizes, quota and prices published by the controller, in seconds since the Unix epoch; 0 for none";
        registry.register("webhook_facts_timestamp_seconds", help, ages.facts.clone());
        ages
    }

    fn of_facts(&self, known: &AzureFacts) {
        let times = [
            known.sizes.as_ref().map(|fact| fact.as_of),
            known.quota.as_ref().map(|quota| quota.as_of),
            known.prices.as_ref().map(|fact| fact.as_of),
        ];
        self.facts.set(times.into_iter().flatten().min().map_or(0, Timestamp::as_second));
    }
}

/// Follows the cluster for placement hints.
#[derive(Debug)]
pub(crate) struct Source {
    /// How to reach the cluster; absent is the pod's service account.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The namespace of the pause switch.
    pub(crate) namespace: String,
    /// The clock that objects' ages are measured by.
    pub(crate) clock: Arc<dyn Clock>,
    /// The Azure region; absent is what the nodes' labels say.
    pub(crate) region: Option<Region>,
    /// The cluster's version of Kubernetes, once that is known.
    pub(crate) kubernetes: Option<String>,
    /// Where the latest Snapshot goes, with its instance types, once all kinds have been listed.
    pub(crate) snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    /// Where PlacementPolicies and Namespaces go.
    pub(crate) placement: watch::Sender<Arc<PlacementPolicies>>,
    /// Where goes what stands in the way of nodes.
    pub(crate) hindrances: watch::Sender<Arc<ClusterBlockers>>,
    /// Where rules and facts go that objects are judged by.
    pub(crate) basis: watch::Sender<Arc<SourcedValidator>>,
    /// How old what it knows is.
    pub(crate) ages: Ages,
    /// Passes once all kinds have been listed, or have not for so long that nobody should wait for them.
    pub(crate) warm: Check,
}

impl Source {
    /// Publishes Snapshots until the process drains.
    ///
    /// # Errors
    /// When the embedded catalogue cannot be read.
    pub(crate) async fn follow(mut self, lifecycle: Lifecycle) -> anyhow::Result<()> {
        let client = match connect(self.kubeconfig.as_deref()).await {
            Ok(client) => client,
            Err(error) => {
                tracing::warn!(%error, "cannot reach the cluster: pods get no placement hints");
                self.warm.pass();
                lifecycle.draining().await;
                return Ok(());
            }
        };
        self.warm.fail("the initial listing is not complete yet");
        self.kubernetes = version(&client).await;
        self.basis.send_replace(Arc::new(self.embedded()?));
        let (sender, changes) = mpsc::channel(CHANGES);
        let (facts, published) = watch::channel(None);
        let options =
            WatchOptions { kinds: KINDS.into(), ..WatchOptions::new(Arc::clone(&self.clock), self.namespace.clone()) };
        tokio::select! {
            () = watch_cluster(client.clone(), options, sender) => Ok(()),
            () = follow_facts(client.clone(), &self.namespace, facts) => Ok(()),
            () = follow_placement(client.clone(), self.placement.clone()) => Ok(()),
            () = follow_blockers(client, self.hindrances.clone()) => Ok(()),
            published = self.publish(changes, published) => published,
            never = self.give_up_waiting() => match never {},
            () = lifecycle.draining() => Ok(()),
        }
    }

    /// What is built in, for this cluster.
    fn embedded(&self) -> anyhow::Result<SourcedValidator> {
        Ok(SourcedValidator::embedded()?.for_kubernetes(self.kubernetes.clone()))
    }

    /// Says after a while that it is ready all the same.
    async fn give_up_waiting(&self) -> Infallible {
        tokio::time::sleep(WARMING).await;
        if self.warm.why().is_some() {
            let seconds = WARMING.as_secs();
            tracing::warn!(seconds, "the cluster is not listed yet: ready without placement hints");
            self.warm.pass();
        }
        std::future::pending().await
    }

    async fn publish(
        &self,
        mut changes: mpsc::Receiver<WatchEvent>,
        mut facts: watch::Receiver<Option<Published>>,
    ) -> anyhow::Result<()> {
        let catalog = Catalog::embedded().context("cannot read the embedded catalogue")?;
        let mut region: Option<RegionCatalog> = None;
        let mut seen = Controller::default();
        let (mut synced, mut news, mut warned) = (false, false, false);
        let mut troubled = BTreeSet::new();
        let mut beat = tokio::time::interval(PUBLISH_EVERY);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = changes.recv() => match event {
                    None => return Ok(()),
                    Some(WatchEvent::Changed(delta)) => {
                        seen.apply(&delta);
                        news = true;
                    }
                    Some(WatchEvent::Synced) => {
                        tracing::info!("initial listing of the cluster complete");
                        (synced, news) = (true, true);
                    }
                    Some(WatchEvent::Failing { kind, error }) => {
                        troubled.insert(kind);
                        tracing::warn!(kind = kind.resource(), error, "watch failed: hints use the last known state");
                    }
                    Some(WatchEvent::Recovered { kind }) => {
                        troubled.remove(&kind);
                        tracing::info!(kind = kind.resource(), "watch recovered");
                    }
                    Some(WatchEvent::Unreadable { kind, name, why }) => {
                        tracing::warn!(kind = kind.resource(), name, why, "ignoring an invalid object");
                    }
                },
                Ok(()) = facts.changed() => {
                    let published = facts.borrow_and_update().clone();
                    if let Some(changed) = self.learn(published.as_ref(), &catalog, &mut seen)? {
                        (region, warned) = (changed, false);
                        seen.invalidate_instance_types();
                    }
                    news = true;
                }
                _ = beat.tick(), if synced => {
                    if troubled.is_empty() {
                        self.ages.snapshot.set(Timestamp::now().as_second());
                    }
                    if !std::mem::take(&mut news) {
                        continue;
                    }
                    if region.is_none() {
                        region = self.types_of(&catalog, seen.snapshot(), !warned)?;
                        warned = true;
                    }
                    // Without sizes every pod would seem to fit nowhere.
                    if let Some(region) = &region {
                        seen.refresh_instance_types(region, &InstanceTypeOptions::default());
                        self.snapshots.send_replace(Some(Arc::new(seen.snapshot().clone())));
                    }
                    self.warm.pass();
                }
            }
        }
    }

    /// Takes up what the controller has published. Where that changes what is offered: the catalogue, or none while the
    /// region is not known by it.
    fn learn(
        &self,
        published: Option<&Published>,
        catalog: &Catalog,
        seen: &mut Controller,
    ) -> anyhow::Result<Option<Option<RegionCatalog>>> {
        let ours = |published: &&Published| self.region.as_ref().is_none_or(|region| *region == published.region);
        let found = published.filter(ours).and_then(|p| Some((p, catalog.region(&p.region)?)));
        let nothing = AzureFacts::default();
        self.ages.of_facts(found.as_ref().map_or(&nothing, |(published, _)| &published.facts));
        let Some((Published { facts: known, .. }, embedded)) = found else {
            tracing::info!("no published facts for this region: using the embedded catalogue");
            seen.set_quota(None);
            seen.set_infrastructure(Arc::default());
            if self.basis.borrow().matches(&AzureFacts::default(), catalog.as_of()) {
                return Ok(None);
            }
            self.basis.send_replace(Arc::new(self.embedded()?));
            return Ok(Some(None));
        };
        // A hint is no promise: old numbers are no reason to say that there is no place.
        let fresh = |quota: &&Arc<Quota>| Timestamp::now().duration_since(quota.as_of) <= STALE_AFTER;
        seen.set_quota(known.quota.as_ref().filter(fresh).cloned());
        seen.set_infrastructure(Arc::new(known.infrastructure()));
        if self.basis.borrow().matches(known, catalog.as_of()) {
            return Ok(None);
        }
        let basis = SourcedValidator::live(known, &embedded, catalog.as_of())?.for_kubernetes(self.kubernetes.clone());
        tracing::info!(facts = basis.describe_sources(Timestamp::now()), "using published facts");
        self.basis.send_replace(Arc::new(basis));
        Ok(Some(Some(catalog_from_facts(known, &embedded, &PriceSheet::default()))))
    }

    /// The sizes of the region, once that is known; says whether they are.
    fn types_of(&self, catalog: &Catalog, snapshot: &Snapshot, warn: bool) -> anyhow::Result<Option<RegionCatalog>> {
        let region = self.region_of(snapshot);
        let types = region.as_ref().and_then(|region| catalog.region(region));
        if let Some(types) = &types {
            self.judge_in(&types.region, catalog)?;
            tracing::info!(region = types.region.as_str(), "placement hints enabled");
        } else if warn {
            tracing::warn!(
                region = region.as_ref().map(Region::as_str),
                "unknown region: no hints until a node has a region label; see --region"
            );
        }
        Ok(types)
    }

    /// Judges by the sizes of the region from now on, where nothing is known that is newer than what is built in.
    fn judge_in(&self, region: &Region, catalog: &Catalog) -> anyhow::Result<()> {
        if !self.basis.borrow().matches(&AzureFacts::default(), catalog.as_of()) {
            return Ok(());
        }
        let basis = SourcedValidator::embedded_in(region)?.for_kubernetes(self.kubernetes.clone());
        self.basis.send_replace(Arc::new(basis));
        Ok(())
    }

    fn region_of(&self, snapshot: &Snapshot) -> Option<Region> {
        let of_nodes = || snapshot.nodes().values().find_map(|node| Region::new(node.label(labels::REGION)?).ok());
        self.region.clone().or_else(of_nodes)
    }
}

/// What the API server says of its version, without what vendors add; `None` when it does not say it in time.
async fn version(client: &kube::Client) -> Option<String> {
    let said = tokio::time::timeout(ASKING, client.apiserver_version()).await.ok()?.ok()?;
    let version = said.git_version.trim_start_matches('v');
    version.split(['-', '+']).next().filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}
