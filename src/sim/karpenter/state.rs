//! What Karpenter sees of the cluster.

use super::offerings::PoolOptions;
use super::view::{ClaimView, EvictionLimit, NodeSurface, NodeView, View, room, sort_nodes};
use super::{Karpenter, Variant};
use crate::cluster::Cluster;
use crate::workload::BudgetLimit;
use crate::world::WorldSetup;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{InstanceTypeOptions, RegionCatalog, instance_types};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Labels, Pod, PodOwner, PodShape, Taint};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::{NodeName, ObjectKey, Uid};
use napkeeper_core::model::requirements::Requirements;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::Delta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pod events on a node are noted at most this often.
const DEDUPLICATION: SignedDuration = SignedDuration::from_secs(10);

/// What was seen of the cluster.
#[derive(Debug)]
pub(super) struct Observed {
    pods: BTreeMap<ObjectKey, SeenPod>,
    /// Grows with each change that a decision can depend on.
    generation: u64,
    planned: Option<u64>,
    /// Existing nodes of the last plan.
    pub(super) destinations: Vec<NodeName>,
    /// When something last changed that consolidation depends on.
    pub(super) unconsolidated_at: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
struct SeenPod {
    uid: Uid,
    node: Option<NodeName>,
    has_ended: bool,
    is_ending: bool,
    is_provisionable: bool,
}

impl SeenPod {
    fn of(pod: &Pod) -> Self {
        Self {
            uid: pod.uid.clone(),
            node: pod.node.clone(),
            has_ended: pod.is_terminal(),
            is_ending: pod.deleting_at.is_some(),
            is_provisionable: pod.is_provisionable(),
        }
    }
}

impl Observed {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { pods: BTreeMap::new(), generation: 0, planned: None, destinations: Vec::new(), unconsolidated_at: now }
    }

    /// Something has changed.
    pub(super) fn changed(&mut self) {
        self.generation += 1;
    }

    /// NodeClaims or Nodes have come or gone, or were initialized or marked: consolidation looks again.
    pub(super) fn nodes_changed(&mut self, now: Timestamp) {
        self.generation += 1;
        self.unconsolidated_at = now;
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Nothing has changed since the last plan.
    pub(super) fn is_planned(&self) -> bool {
        self.planned == Some(self.generation)
    }

    pub(super) fn planned(&mut self, destinations: Vec<NodeName>) {
        self.planned = Some(self.generation);
        self.destinations = destinations;
    }
}

/// The NodePools in the order in which they are tried.
pub(super) fn pools(region: &RegionCatalog, setup: &WorldSetup, variant: &Variant) -> Vec<Arc<PoolOptions>> {
    let daemons: Vec<Arc<PodShape>> =
        setup.manifests.daemon_sets.iter().map(|(_, template)| Arc::clone(&template.shape)).collect();
    let mut pools: Vec<NodePool> = setup.manifests.pools.clone();
    pools.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
    let options = pools.into_iter().filter_map(|mut pool| {
        let class = setup.manifests.classes.iter().find(|class| class.name == pool.class)?;
        pool.disruption.policy = variant.consolidation.unwrap_or(pool.disruption.policy);
        let types = instance_types(region, class, &InstanceTypeOptions::default());
        Some(Arc::new(PoolOptions::new(Arc::new(pool), &types, &daemons)))
    });
    options.collect()
}

impl Karpenter {
    /// Notes changes of pods and nodes.
    pub(super) fn observe(&mut self, changes: Vec<Delta>) {
        self.observed.changed();
        for change in changes {
            match change {
                Delta::Pod(pod) => self.observe_pod(&pod),
                Delta::PodGone(key) => {
                    self.observed.pods.remove(&key);
                    self.observed.unconsolidated_at = self.now;
                }
                Delta::NodeGone(_) => self.observed.unconsolidated_at = self.now,
                _ => {}
            }
        }
        self.look_at_drains();
    }

    fn observe_pod(&mut self, pod: &Pod) {
        let new = SeenPod::of(pod);
        let old = self.observed.pods.get(&pod.key).filter(|old| old.uid == new.uid);
        let (bound, ended, ending, waited) = old.map_or((false, false, false, false), |old| {
            (old.node.is_some(), old.has_ended, old.is_ending, old.is_provisionable)
        });
        if new.is_provisionable && !waited {
            self.trigger();
        }
        if let Some(node) = &new.node {
            if !bound {
                self.observed.unconsolidated_at = self.now;
            }
            let is_event = !bound || (new.has_ended && !ended) || (new.is_ending && !ending);
            if is_event && pod.owner != PodOwner::DaemonSet {
                self.note_pod_event(node);
            }
        }
        self.observed.pods.insert(pod.key.clone(), new);
    }

    fn note_pod_event(&mut self, node: &NodeName) {
        let now = self.now;
        let Some(claim) = self.claims.get_mut(node) else { return };
        if claim.last_pod_event.is_none_or(|last| now.duration_since(last) >= DEDUPLICATION) {
            claim.last_pod_event = Some(now);
        }
    }

    /// The picture of this instant.
    pub(super) fn view(&self) -> View {
        let state = self.cluster.state();
        let daemons: Vec<Arc<PodShape>> = state.daemon_sets().values().map(|set| Arc::clone(&set.shape)).collect();
        let mut nodes: Vec<NodeView> = state.nodes().values().map(|node| self.node_view(node, &daemons)).collect();
        let coming = self.claims.values().filter(|claim| !claim.has_node());
        nodes.extend(coming.filter_map(|claim| self.coming_node(&claim.node.name, &daemons)));
        sort_nodes(&mut nodes);
        let mut view = View {
            now: self.now,
            pools: self.pools.clone(),
            nodes,
            pending: Vec::new(),
            budgets: eviction_limits(&self.cluster),
            volumes: BTreeMap::new(),
            unavailable: Arc::clone(&self.unavailable),
        };
        add_pods(&mut view, &self.cluster);
        view
    }

    fn node_view(&self, node: &Node, daemons: &[Arc<PodShape>]) -> NodeView {
        let starting = self.claims.get(&node.name).filter(|claim| claim.initialized_at.is_none());
        let startup = starting.map_or(&[][..], |claim| claim.startup_taints.as_slice());
        joined_node(self.cluster.state(), node, (self.claim_view(&node.name), startup), daemons)
    }

    /// A NodeClaim that has no Node yet: as large as its instance type says.
    fn coming_node(&self, name: &NodeName, daemons: &[Arc<PodShape>]) -> Option<NodeView> {
        let node = &self.claims.get(name)?.node;
        let coming = ComingNode {
            name,
            labels: node.labels.clone(),
            taints: node.taints.clone(),
            capacity: &node.capacity,
            allocatable: &node.allocatable,
        };
        Some(coming.view(self.claim_view(name), daemons))
    }

    fn claim_view(&self, name: &NodeName) -> Option<ClaimView> {
        let claim = self.claims.get(name)?;
        Some(ClaimView {
            pool: claim.pool.clone(),
            instance: Arc::clone(&claim.instance),
            initialized_at: claim.initialized_at,
            last_pod_event: claim.last_pod_event,
            nominated_until: claim.nominated_until,
            queued: claim.queued,
            marked: claim.is_marked(),
            terminating: claim.termination.as_ref().is_some_and(|termination| termination.vm_since.is_some()),
        })
    }
}

/// Adds the pods that wait, and where the volumes of all pods can be used.
pub(super) fn add_pods(view: &mut View, cluster: &Cluster) {
    for pod in cluster.state().pending_pods().filter(|pod| pod.is_provisionable()) {
        // Pods whose volumes are missing are not planned for.
        if add_volumes(view, cluster, pod) {
            view.pending.push(Arc::clone(pod));
        }
    }
    let bound: Vec<Arc<Pod>> = view.nodes.iter().flat_map(|node| node.pods.iter().cloned()).collect();
    for pod in &bound {
        add_volumes(view, cluster, pod);
    }
}

fn add_volumes(view: &mut View, cluster: &Cluster, pod: &Pod) -> bool {
    if pod.volumes.is_empty() {
        return true;
    }
    let Some(volumes) = cluster.volume_alternatives(pod) else { return false };
    if !volumes.is_empty() {
        view.volumes.insert(pod.key.clone(), all_combinations(&volumes));
    }
    true
}

/// A Node, and the NodeClaim that it comes from with the taints that will go.
pub(super) fn joined_node(
    state: &Snapshot,
    node: &Node,
    (claim, startup): (Option<ClaimView>, &[Taint]),
    daemons: &[Arc<PodShape>],
) -> NodeView {
    let pods: Vec<Arc<Pod>> = state.pods_on(&node.name).cloned().collect();
    let taints = node.taints.iter().filter(|taint| !startup.contains(taint)).cloned().collect();
    let surface = NodeSurface { labels: &node.labels, taints: &node.taints };
    NodeView {
        name: node.name.clone(),
        claim,
        joined: true,
        ready: node.ready,
        do_not_disrupt: node.do_not_disrupt,
        labels: Arc::new(node.labels.clone()),
        taints,
        cordoned: node.cordoned,
        capacity: node.capacity.clone(),
        room: room(&node.allocatable, &pods, daemons, &surface),
        ports: pods.iter().filter(|p| !p.is_terminal()).flat_map(|p| p.shape.ports.iter().cloned()).collect(),
        pods,
    }
}

/// What a NodeClaim without a Node will have.
pub(super) struct ComingNode<'n> {
    pub(super) name: &'n NodeName,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) capacity: &'n Resources,
    pub(super) allocatable: &'n Resources,
}

impl ComingNode<'_> {
    pub(super) fn view(self, claim: Option<ClaimView>, daemons: &[Arc<PodShape>]) -> NodeView {
        let surface = NodeSurface { labels: &self.labels, taints: &self.taints };
        let room = room(self.allocatable, &[], daemons, &surface);
        NodeView {
            name: self.name.clone(),
            claim,
            joined: false,
            ready: false,
            do_not_disrupt: false,
            labels: Arc::new(self.labels),
            taints: self.taints,
            cordoned: false,
            capacity: self.capacity.clone(),
            room,
            ports: Vec::new(),
            pods: Vec::new(),
        }
    }
}

/// What PodDisruptionBudgets allow.
pub(super) fn eviction_limits(cluster: &Cluster) -> Vec<EvictionLimit> {
    cluster.budgets().map(|(budget, allows_one)| eviction_limit(budget, allows_one)).collect()
}

fn eviction_limit(budget: &crate::workload::PodBudget, allows_one: bool) -> EvictionLimit {
    EvictionLimit {
        namespace: budget.namespace.clone(),
        selector: budget.selector.clone(),
        allows_one,
        blocks_for_ever: matches!(
            budget.limit,
            BudgetLimit::MaxUnavailable(0)
                | BudgetLimit::MaxUnavailablePercent(0)
                | BudgetLimit::MinAvailablePercent(100)
        ),
        frees_unready: budget.always_allows_unready,
    }
}

/// One alternative of each volume, in all combinations.
fn all_combinations(volumes: &[Vec<Requirements>]) -> Vec<Requirements> {
    let with = |all: Vec<Requirements>, alternatives: &Vec<Requirements>| {
        all.iter().flat_map(|one| alternatives.iter().map(|other| one.intersect(other))).collect()
    };
    volumes.iter().fold(vec![Requirements::new()], with)
}
