//! Metrics by Karpenter's names and labels, so that dashboards and alerts made for it keep working.
//!
//! Counters follow the commands, and the NodeClaims that come and go; gauges are read from the last Snapshot when they are
//! scraped.

mod cluster_state;

use cluster_state::ClusterState;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::ClaimName;
use napkeeper_core::plan::{Command, CommandReport};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the Snapshot that gauges are read from is replaced. To keep one makes the next change of each table copy it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// A label and its value.
type Label = (&'static str, Arc<str>);

/// Counters by labels.
type Counters = Family<Vec<Label>, Counter>;

/// Karpenter's metrics.
#[derive(Debug)]
pub(crate) struct KarpenterMetrics {
    claims_created: Counters,
    claims_disrupted: Counters,
    claims_terminated: Counters,
    nodes_created: Counters,
    nodes_terminated: Counters,
    state: Arc<ClusterState>,
    /// When the Snapshot was last kept.
    refreshed: Option<Instant>,
    /// The NodeClaims of the last Snapshot that was kept.
    known: BTreeMap<ClaimName, KnownClaim>,
}

/// What is counted of a NodeClaim once it is gone.
#[derive(Debug)]
struct KnownClaim {
    pool: Arc<str>,
    zone: Arc<str>,
    capacity_type: Arc<str>,
    has_node: bool,
}

impl KarpenterMetrics {
    /// The metrics, and the registry to scrape them from.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> (Self, Registry) {
        let mut registry = Registry::with_prefix("karpenter");
        let state = Arc::new(ClusterState::new(clock));
        registry.register_collector(Box::new(Arc::clone(&state)));
        let mut counters = |name: &str, help: &str| {
            let family = Counters::default();
            registry.register(name, help, family.clone());
            family
        };
        let metrics = Self {
            claims_created: counters("nodeclaims_created", "NodeClaims created"),
            claims_disrupted: counters("nodeclaims_disrupted", "NodeClaims whose deletion has begun, by reason"),
            claims_terminated: counters("nodeclaims_terminated", "NodeClaims that are gone"),
            nodes_created: counters("nodes_created", "Nodes that have registered"),
            nodes_terminated: counters("nodes_terminated", "Nodes whose NodeClaim is gone"),
            state,
            refreshed: None,
            known: BTreeMap::new(),
        };
        (metrics, registry)
    }

    /// What this replica knew as a leader is not so any more: another one reports it now.
    pub(super) fn clear(&mut self) {
        self.state.set(None);
        self.refreshed = None;
        self.known.clear();
    }

    /// Learns the state of the cluster, now and then.
    pub(super) fn observe(&mut self, snapshot: &Snapshot) {
        if self.refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return;
        }
        let is_first = self.refreshed.replace(Instant::now()).is_none();
        self.count_changes(snapshot, is_first);
        self.state.set(Some(snapshot.clone()));
    }

    /// Counts the nodes that have come since the last time, and the NodeClaims that have gone.
    fn count_changes(&mut self, snapshot: &Snapshot, is_first: bool) {
        let ours = snapshot.claims().values().filter(|claim| claim.is_ours());
        let now: BTreeMap<_, _> = ours.map(|claim| (claim.name.clone(), KnownClaim::of(claim, snapshot))).collect();
        let before = std::mem::replace(&mut self.known, now);
        if is_first {
            return;
        }
        for (name, claim) in self.known.iter().filter(|(_, claim)| claim.has_node) {
            if !before.get(name).is_some_and(|claim| claim.has_node) {
                self.nodes_created.get_or_create(&claim.node_labels()).inc();
            }
        }
        for (_, claim) in before.iter().filter(|(name, _)| !self.known.contains_key(*name)) {
            self.claims_terminated.get_or_create(&claim.labels()).inc();
            if claim.has_node {
                self.nodes_terminated.get_or_create(&claim.node_labels()).inc();
            }
        }
    }

    /// Counts the NodeClaims that a command has created, or whose deletion it has begun.
    pub(super) fn command_ended(&self, command: Option<&Command>, report: &CommandReport, snapshot: &Snapshot) {
        match command.filter(|_| report.error.is_none()) {
            Some(Command::CreateClaim(draft)) => {
                let source = draft.spec.replaces.iter().find_map(|name| snapshot.claims().get(name));
                let replaced = source.and_then(|claim| claim.status.disrupted);
                let reason = replaced.map_or("provisioned", |reason| reason_of(reason.category()));
                let pool = draft.spec.pool.as_ref().map_or_else(|| Arc::from(""), |pool| pool.text());
                let relaxed = Arc::from("false");
                let labels = vec![("reason", Arc::from(reason)), ("nodepool", pool), ("min_values_relaxed", relaxed)];
                self.claims_created.get_or_create(&labels).inc();
            }
            Some(Command::DeleteClaim { claim, category, .. }) => {
                let Some(claim) = snapshot.claims().get(&claim.name) else { return };
                let KnownClaim { pool, capacity_type, .. } = KnownClaim::of(claim, snapshot);
                let reason = Arc::from(reason_of(category));
                let labels = vec![("reason", reason), ("nodepool", pool), ("capacity_type", capacity_type)];
                self.claims_disrupted.get_or_create(&labels).inc();
            }
            _ => {}
        }
    }
}

impl KnownClaim {
    fn of(claim: &Claim, snapshot: &Snapshot) -> Self {
        let node = snapshot.node_of(claim);
        let label = |key: &str| Arc::from(node.and_then(|node| node.label(key)).unwrap_or_default());
        let planned = claim.intent.as_ref().map(|intent| &intent.offering.key);
        Self {
            pool: claim.spec.pool.as_ref().map_or_else(|| Arc::from(""), |pool| pool.text()),
            zone: planned.map_or_else(|| label(labels::ZONE), |key| Arc::from(key.zone.as_str())),
            capacity_type: planned
                .map_or_else(|| label(labels::CAPACITY_TYPE), |key| Arc::from(key.capacity_type.as_str())),
            has_node: claim.status.registered.is_some(),
        }
    }

    fn labels(&self) -> Vec<Label> {
        let capacity_type = ("capacity_type", Arc::clone(&self.capacity_type));
        vec![("nodepool", Arc::clone(&self.pool)), capacity_type, ("zone", Arc::clone(&self.zone))]
    }

    fn node_labels(&self) -> Vec<Label> {
        vec![("nodepool", Arc::clone(&self.pool)), ("zone", Arc::clone(&self.zone))]
    }
}

/// Karpenter's word for a reason, where it has one.
fn reason_of(category: &'static str) -> &'static str {
    match category {
        "expiring" => "expired",
        "launch_failed" => "insufficient_capacity",
        "node_deleted" => "garbage_collected",
        other => other,
    }
}
