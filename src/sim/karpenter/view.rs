//! A frozen picture of the cluster, from which every decision is made.

use super::offerings::{PoolOptions, Unavailable};
use super::pods;
use jiff::Timestamp;
use napkeeper_core::catalog::{CapacityType, InstanceType};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{HostPort, Labels, Pod, PodOwner, PodShape, Taint};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{Namespace, NodeName, NodePoolName, ObjectKey};
use napkeeper_core::model::requirements::Requirements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that a decision rests on.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub(super) now: Timestamp,
    /// NodePools in the order in which they are tried: the highest weight first, then the last name.
    pub(super) pools: Vec<Arc<PoolOptions>>,
    /// NodeClaims, with or without their Node, and nodes that are not Karpenter's; initialized ones first, then by name.
    pub(super) nodes: Vec<NodeView>,
    /// Pods that wait for a node and that a new node may help.
    pub(super) pending: Vec<Arc<Pod>>,
    /// PodDisruptionBudgets.
    pub(super) budgets: Vec<EvictionLimit>,
    /// Where the volumes of a pod can be used: one of these must hold. Pods without an entry can go anywhere.
    pub(super) volumes: BTreeMap<ObjectKey, Vec<Requirements>>,
    /// Offerings that Azure has refused lately.
    pub(super) unavailable: Arc<Unavailable>,
}

/// A NodeClaim and its Node, or a node that is not Karpenter's.
#[derive(Debug, Clone)]
pub(super) struct NodeView {
    pub(super) name: NodeName,
    /// What is known of its NodeClaim; `None` for nodes that are not Karpenter's.
    pub(super) claim: Option<ClaimView>,
    /// It has a Node.
    pub(super) joined: bool,
    pub(super) ready: bool,
    pub(super) do_not_disrupt: bool,
    pub(super) labels: Arc<Labels>,
    /// Taints that keep pods away once it is set up.
    pub(super) taints: Vec<Taint>,
    pub(super) cordoned: bool,
    pub(super) capacity: Resources,
    /// What its pods, and the DaemonSet pods still to come, leave free.
    pub(super) room: Resources,
    /// Ports that its pods take.
    pub(super) ports: Vec<HostPort>,
    /// Pods bound to it.
    pub(super) pods: Vec<Arc<Pod>>,
}

/// What is known of a NodeClaim.
#[derive(Debug, Clone)]
pub(super) struct ClaimView {
    pub(super) pool: NodePoolName,
    pub(super) instance: Arc<InstanceType>,
    pub(super) initialized_at: Option<Timestamp>,
    pub(super) last_pod_event: Option<Timestamp>,
    /// Pods were planned onto it lately: it is not disrupted until then.
    pub(super) nominated_until: Option<Timestamp>,
    /// A command disrupts it.
    pub(super) queued: bool,
    /// A command has marked it for deletion, or it is being deleted.
    pub(super) marked: bool,
    /// Its VM is being deleted.
    pub(super) terminating: bool,
}

/// What a PodDisruptionBudget allows.
#[derive(Debug, Clone)]
pub(super) struct EvictionLimit {
    pub(super) namespace: Namespace,
    pub(super) selector: Requirements,
    /// A pod may be evicted now.
    pub(super) allows_one: bool,
    /// It never allows an eviction: `maxUnavailable` of 0 or 0 %, or `minAvailable` of 100 %.
    pub(super) blocks_for_ever: bool,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub(super) frees_unready: bool,
}

impl View {
    pub(super) fn pool(&self, name: &NodePoolName) -> Option<&Arc<PoolOptions>> {
        self.pools.iter().find(|pool| pool.pool.name == *name)
    }

    pub(super) fn node(&self, name: &NodeName) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    /// Pods of nodes that are marked for deletion and that will really move.
    pub(super) fn pods_of_leaving_nodes(&self) -> Vec<Arc<Pod>> {
        let leaving = self.nodes.iter().filter(|node| node.is_marked() && node.joined);
        let moving = leaving.flat_map(|node| &node.pods).filter(|pod| self.will_move(pod));
        moving.cloned().collect()
    }

    /// The pod is reschedulable, and neither an annotation nor a budget that never allows an eviction holds it.
    pub(super) fn will_move(&self, pod: &Pod) -> bool {
        pods::is_reschedulable(pod)
            && pods::is_disruptable(pod, self.now)
            && !self.blocks_eviction(pod, |limit| limit.blocks_for_ever)
    }

    /// True when the budgets let every pod that would be evicted go, each by itself.
    pub(super) fn lets_evict(&self, pods: &[Arc<Pod>]) -> bool {
        !pods.iter().any(|pod| self.blocks_eviction(pod, |limit| !limit.allows_one))
    }

    /// A pod with more than one budget cannot be evicted at all.
    fn blocks_eviction(&self, pod: &Pod, blocks: impl Fn(&EvictionLimit) -> bool) -> bool {
        if !pods::is_evictable(pod, self.now) {
            return false;
        }
        let guards = |limit: &&EvictionLimit| {
            limit.namespace == pod.shape.namespace && limit.selector.satisfied_by(&pod.shape.labels)
        };
        let limits: Vec<&EvictionLimit> = self.budgets.iter().filter(guards).collect();
        limits.len() > 1 || limits.iter().any(|limit| (pods::is_ready(pod) || !limit.frees_unready) && blocks(limit))
    }
}

impl NodeView {
    /// A command has marked it for deletion, or it is being deleted.
    pub(super) fn is_marked(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.marked)
    }

    /// Nodes that are not Karpenter's count as initialized.
    pub(super) fn is_initialized(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.initialized_at.is_some())
    }

    pub(super) fn hostname(&self) -> Arc<str> {
        self.labels.get(labels::HOSTNAME).map_or_else(|| self.name.text(), Arc::clone)
    }

    pub(super) fn capacity_type(&self) -> Option<CapacityType> {
        self.labels.get(labels::CAPACITY_TYPE)?.parse().ok()
    }

    /// What the offering costs that it was launched from; 0 where the catalogue does not have it.
    pub(super) fn price(&self) -> HourlyPrice {
        let Some(claim) = &self.claim else { return HourlyPrice::ZERO };
        let zone = self.labels.get(labels::ZONE);
        let of = |o: &&napkeeper_core::catalog::Offering| {
            Some(o.capacity_type) == self.capacity_type() && zone.is_some_and(|zone| **zone == *o.zone.as_str())
        };
        claim.instance.offerings.iter().find(of).map_or(HourlyPrice::ZERO, |offering| offering.price)
    }
}

/// What a node has left for pods: its allocatable, less its pods, less the DaemonSet pods that are still to come.
pub(super) fn room(
    allocatable: &Resources,
    pods: &[Arc<Pod>],
    daemons: &[Arc<PodShape>],
    node: &NodeSurface<'_>,
) -> Resources {
    let mut room = allocatable.clone();
    let mut expected = Resources::default();
    for daemon in daemons.iter().filter(|daemon| node.takes(daemon)) {
        expected.add(&daemon.requests);
    }
    for pod in pods.iter().filter(|pod| !pod.is_terminal()) {
        room.sub(&pod.shape.requests);
        if pod.owner == PodOwner::DaemonSet {
            expected.sub(&pod.shape.requests);
        }
    }
    expected.raise_to_at_least(&Resources::default());
    room.minus(&expected)
}

/// What decides about DaemonSet pods on a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeSurface<'n> {
    pub(super) labels: &'n Labels,
    pub(super) taints: &'n [Taint],
}

impl NodeSurface<'_> {
    pub(super) fn takes(&self, daemon: &PodShape) -> bool {
        daemon.accepts_labels(self.labels) && daemon.untolerated(self.taints).is_none()
    }
}

/// Initialized nodes first, then by name.
pub(super) fn sort_nodes(nodes: &mut [NodeView]) {
    nodes.sort_by(|a, b| b.is_initialized().cmp(&a.is_initialized()).then_with(|| a.name.cmp(&b.name)));
}

/// The names of some nodes.
pub(super) type NodeSet = BTreeSet<NodeName>;
