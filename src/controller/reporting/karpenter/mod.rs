//! Metrics by Karpenter's names and labels, so that dashboards and alerts made for it keep working.
//!
//! Counters and durations follow the commands, and the NodeClaims and pods that come and go; gauges are read from the last
//! Snapshot when they are scraped. `upstream.txt` has all metrics of Karpenter's, docs/karpenter.md those that are exported.

mod azure;
mod cluster_state;
mod commands;
mod conditions;
mod pods;
mod summary;
#[cfg(test)]
mod tests;

use azure::AzureMetrics;
pub(super) use azure::is_capacity;
use cluster_state::ClusterState;
use commands::{CommandMetrics, pool_text};
use conditions::ObjectConditions;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::engine::decide::Memory;
use napkeeper_core::engine::decision::DecisionKind;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::ClaimName;
use napkeeper_core::plan::{Command, CommandReport, Effect};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_serve::prometheus_client::metrics::counter::Counter;
use napkeeper_serve::prometheus_client::metrics::family::Family;
use napkeeper_serve::prometheus_client::metrics::gauge::Gauge;
use napkeeper_serve::prometheus_client::metrics::histogram::Histogram;
use napkeeper_serve::prometheus_client::registry::Registry;
use pods::PodDurations;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the Snapshot that gauges are read from is replaced. To keep one makes the next change of each table copy it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// Upper bounds of the buckets of durations, in seconds (Karpenter, `pkg/metrics/constants.go`, `DurationBuckets`).
const DURATIONS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 120.0,
    150.0, 300.0, 450.0, 600.0,
];
/// The same of terminations (`nodeclaim/lifecycle/metrics.go`).
const TERMINATIONS: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];
/// The same of lifetimes, in hours (`node/termination/metrics.go`).
const LIFETIME_HOURS: [f64; 21] = [
    0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 48.0, 72.0, 120.0, 240.0, 360.0, 480.0,
    600.0, 720.0,
];

/// A label and its value.
type Label = (&'static str, Arc<str>);

/// Counters by labels.
type Counters = Family<Vec<Label>, Counter>;

/// Histograms by labels.
type Histograms = Family<Vec<Label>, Histogram, fn() -> Histogram>;

/// A registry, and the ways in which metrics are registered there.
#[derive(Debug)]
struct Registered<'r>(&'r mut Registry);

impl Registered<'_> {
    fn counters(&mut self, name: &str, help: &str) -> Counters {
        let family = Counters::default();
        self.0.register(name, help, family.clone());
        family
    }

    fn gauges(&mut self, name: &str, help: &str) -> Family<Vec<Label>, Gauge> {
        let family = Family::default();
        self.0.register(name, help, family.clone());
        family
    }

    fn durations(&mut self, name: &str, help: &str) -> Histograms {
        self.histograms(name, help, || Histogram::new(DURATIONS))
    }

    fn terminations(&mut self, name: &str, help: &str) -> Histograms {
        self.histograms(name, help, || Histogram::new(TERMINATIONS))
    }

    fn lifetimes(&mut self, name: &str, help: &str) -> Histograms {
        self.histograms(name, help, || Histogram::new(LIFETIME_HOURS.map(|hours| hours * 3600.0)))
    }

    fn histograms(&mut self, name: &str, help: &str, new: fn() -> Histogram) -> Histograms {
        let family = Histograms::new_with_constructor(new);
        self.0.register(name, help, family.clone());
        family
    }
}

/// Karpenter's metrics.
#[derive(Debug)]
pub(crate) struct KarpenterMetrics {
    claims_terminated: Counters,
    nodes_created: Counters,
    nodes_terminated: Counters,
    eligible_nodes: Family<Vec<Label>, Gauge>,
    waiting_pods: Family<Vec<Label>, Gauge>,
    unschedulable_pods: Family<Vec<Label>, Gauge>,
    scheduling_seconds: Histograms,
    disruption_seconds: Histograms,
    commands: CommandMetrics,
    azure: AzureMetrics,
    pods: PodDurations,
    state: Arc<ClusterState>,
    clock: Arc<dyn Clock>,
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
    /// The metrics, and the registries to scrape them from.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> (Self, Vec<Registry>) {
        let (mut registry, mut conditions) = (Registry::with_prefix("karpenter"), Registry::with_prefix("operator"));
        let state = Arc::new(ClusterState::new(Arc::clone(&clock)));
        registry.register_collector(Box::new(Arc::clone(&state)));
        conditions.register_collector(Box::new(ObjectConditions(Arc::clone(&state))));
        let mut registered = Registered(&mut registry);
        let bound =
            registered.durations("pods_bound_duration_seconds", "The time from a pod's creation until it is bound");
        let metrics = Self {
            claims_terminated: registered.counters("nodeclaims_terminated", "NodeClaims that are gone"),
            nodes_created: registered.counters("nodes_created", "Nodes that have registered"),
            nodes_terminated: registered.counters("nodes_terminated", "Nodes whose NodeClaim is gone"),
            eligible_nodes: registered
                .gauges("voluntary_disruption_eligible_nodes", "Nodes that could be disrupted, by reason"),
            waiting_pods: registered.gauges("scheduler_queue_depth", "Pods that wait for a node to be planned"),
            unschedulable_pods: registered
                .gauges("scheduler_unschedulable_pods_count", "Pods that cannot be scheduled"),
            scheduling_seconds: registered
                .durations("scheduler_scheduling_duration_seconds", "Duration of decisions, which simulate scheduling"),
            disruption_seconds: registered.durations(
                "voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of decisions on disruption, for all reasons together",
            ),
            commands: CommandMetrics::new(&mut registered),
            azure: AzureMetrics::new(&mut registered),
            pods: PodDurations::new(bound),
            state,
            clock,
            refreshed: None,
            known: BTreeMap::new(),
        };
        registry.register_collector(Box::new(Arc::clone(&metrics.pods.startup)));
        registry.register_collector(Box::new(Arc::clone(&metrics.commands.node_terminations)));
        (metrics, vec![registry, conditions])
    }

    /// What this replica knew as a leader is not so any more: another one reports it now.
    pub(super) fn clear(&mut self) {
        self.state.set(None);
        self.refreshed = None;
        self.known.clear();
        self.commands.clear();
        self.forget_commands();
        self.pods.clear();
        [&self.eligible_nodes, &self.waiting_pods, &self.unschedulable_pods].into_iter().for_each(Family::clear);
    }

    /// The commands that were running are forgotten: none of them will end.
    pub(super) fn forget_commands(&mut self) {
        self.commands.forget_running();
        self.azure.clear();
    }

    /// Learns the state of the cluster, now and then.
    pub(super) fn observe(&mut self, snapshot: &Snapshot, memory: &Memory) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let unplaced = memory.provision.unplaced.iter().map(|group| group.pods.len()).sum::<usize>();
        let controller = || ("controller", Arc::from("provisioner"));
        self.unschedulable_pods.get_or_create(&vec![controller()]).set(count(unplaced));
        // Karpenter tells each pass by an id of its own. A new series for each would never end.
        let labels = vec![controller(), ("scheduling_id", Arc::from(""))];
        self.waiting_pods.get_or_create(&labels).set(count(unplaced + memory.provision.deferred));
        if self.refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return;
        }
        let is_first = self.refreshed.replace(Instant::now()).is_none();
        self.count_changes(snapshot, is_first);
        self.commands.forget(snapshot);
        self.pods.observe(snapshot, self.state.kept().map(|(before, _)| before).as_ref());
        self.state.set(Some(snapshot.clone()));
    }

    /// Learns how many nodes could be disrupted for each reason.
    pub(super) fn observe_eligible(&self, eligible: &BTreeMap<DisruptionReason, usize>) {
        for reason in DisruptionReason::ALL {
            let nodes = eligible.get(&reason).copied().unwrap_or_default();
            let labels = vec![("reason", Arc::from(reason.category()))];
            self.eligible_nodes.get_or_create(&labels).set(i64::try_from(nodes).unwrap_or(i64::MAX));
        }
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

    /// A decision was made.
    pub(super) fn decision_made(&self, kind: DecisionKind, took: Duration) {
        let controller = match kind {
            DecisionKind::Reconciliation => "provisioner",
            DecisionKind::Disruption => "disruption",
        };
        let labels = vec![("controller", Arc::from(controller))];
        self.scheduling_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        if kind == DecisionKind::Disruption {
            // One pass looks for nodes to disrupt for any reason.
            let labels = vec![("reason", Arc::from("")), ("consolidation_type", Arc::from(""))];
            self.disruption_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        }
    }

    /// A command has started.
    pub(super) fn command_started(&mut self, command: &Command, snapshot: &Snapshot) {
        self.azure.command_started(command);
        self.commands.command_started(command, snapshot, self.clock.now());
    }

    /// An effect is about to be performed.
    pub(super) fn effect_started(&mut self, effect: &Effect, snapshot: &Snapshot) {
        self.azure.effect_started(effect, snapshot);
        self.commands.effect_started(effect, snapshot, self.clock.now());
    }

    /// A command has ended.
    pub(super) fn command_ended(&mut self, command: &Command, report: &CommandReport, snapshot: &Snapshot) {
        let took = self.azure.command_ended(command, report, snapshot);
        self.commands.command_ended(command, report, snapshot, took);
    }
}

impl KnownClaim {
    fn of(claim: &Claim, snapshot: &Snapshot) -> Self {
        let node = snapshot.node_of(claim);
        let label = |key: &str| Arc::from(node.and_then(|node| node.label(key)).unwrap_or_default());
        let planned = claim.intent.as_ref().map(|intent| &intent.offering.key);
        Self {
            pool: pool_text(claim.spec.pool.as_ref()),
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
