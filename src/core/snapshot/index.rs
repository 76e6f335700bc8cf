//! Indexes of a Snapshot: usage by node, pending pods by shape, Nodes and NodeClaims by provider id.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::{Pod, PodOwner, PodShape};
use crate::model::names::{ClaimName, NodeName, ObjectKey, ProviderId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Provisionable pods by shape.
pub type PendingShapes = BTreeMap<Arc<PodShape>, BTreeSet<ObjectKey>>;

/// Usage of a node by its pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeUsage {
    /// Sum of requests of pods that have not ended.
    pub pod_requests: Resources,
    /// Sum of requests of DaemonSet pods among them.
    pub daemon_set_requests: Resources,
    /// The pods that have not ended.
    pub pods: BTreeSet<ObjectKey>,
    /// Their shapes.
    pub shapes: BTreeMap<Arc<PodShape>, ShapeCount>,
}

/// How many pods have a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShapeCount {
    /// All that have not ended.
    pub pods: u32,
    /// Those that are not terminating either.
    pub staying: u32,
}

impl ShapeCount {
    fn of(pod: &Pod) -> Self {
        Self { pods: 1, staying: u32::from(pod.deleting_at.is_none()) }
    }
}

/// Names by provider id. Two may temporarily have the same: a Node that was recreated under another name.
type ByProvider<N> = Arc<BTreeMap<ProviderId, BTreeSet<N>>>;

/// Updated with every change of its tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Index {
    pub(crate) usage: Arc<BTreeMap<NodeName, Arc<NodeUsage>>>,
    pub(crate) pending: Arc<PendingShapes>,
    /// Pods without a node that kube-scheduler makes room for by preemption.
    pub(crate) nominated: Arc<BTreeSet<ObjectKey>>,
    pub(crate) node_by_provider: ByProvider<NodeName>,
    pub(crate) claim_by_provider: ByProvider<ClaimName>,
}

impl Index {
    pub(crate) fn add_pod(&mut self, pod: &Pod) {
        if let Some(node) = pod.node.as_ref().filter(|_| !pod.is_terminal()) {
            let usage = Arc::make_mut(Arc::make_mut(&mut self.usage).entry(node.clone()).or_default());
            usage.pod_requests.add(&pod.shape.requests);
            if pod.owner == PodOwner::DaemonSet {
                usage.daemon_set_requests.add(&pod.shape.requests);
            }
            usage.pods.insert(pod.key.clone());
            let (count, own) = (usage.shapes.entry(Arc::clone(&pod.shape)).or_default(), ShapeCount::of(pod));
            *count = ShapeCount { pods: count.pods + own.pods, staying: count.staying + own.staying };
        }
        if is_nominated(pod) {
            Arc::make_mut(&mut self.nominated).insert(pod.key.clone());
        }
        if pod.is_provisionable() {
            let pending = Arc::make_mut(&mut self.pending);
            pending.entry(Arc::clone(&pod.shape)).or_default().insert(pod.key.clone());
        }
    }

    pub(crate) fn remove_pod(&mut self, pod: &Pod) {
        if let Some(node) = pod.node.as_ref().filter(|_| !pod.is_terminal()) {
            let all = Arc::make_mut(&mut self.usage);
            if let Some(usage) = all.get_mut(node).map(Arc::make_mut) {
                usage.pod_requests.sub(&pod.shape.requests);
                if pod.owner == PodOwner::DaemonSet {
                    usage.daemon_set_requests.sub(&pod.shape.requests);
                }
                usage.pods.remove(&pod.key);
                usage.remove_shape(pod);
                if usage.pods.is_empty() {
                    all.remove(node);
                }
            }
        }
        if is_nominated(pod) {
            Arc::make_mut(&mut self.nominated).remove(&pod.key);
        }
        if pod.is_provisionable() {
            let pending = Arc::make_mut(&mut self.pending);
            if let Some(keys) = pending.get_mut(&pod.shape) {
                keys.remove(&pod.key);
                if keys.is_empty() {
                    pending.remove(&pod.shape);
                }
            }
        }
    }
}

impl NodeUsage {
    fn remove_shape(&mut self, pod: &Pod) {
        let Some(count) = self.shapes.get_mut(&pod.shape) else { return };
        let own = ShapeCount::of(pod);
        *count = ShapeCount {
            pods: count.pods.saturating_sub(own.pods),
            staying: count.staying.saturating_sub(own.staying),
        };
        if count.pods == 0 {
            self.shapes.remove(&pod.shape);
        }
    }
}

/// True for a pod without a node that kube-scheduler makes room for by preemption.
fn is_nominated(pod: &Pod) -> bool {
    pod.node.is_none() && pod.nominated.is_some() && !pod.is_terminal()
}

pub(crate) fn add_name<N: Ord + Clone>(index: &mut ByProvider<N>, id: &ProviderId, name: &N) {
    Arc::make_mut(index).entry(id.clone()).or_default().insert(name.clone());
}

pub(crate) fn remove_name<N: Ord + Clone>(index: &mut ByProvider<N>, id: &ProviderId, name: &N) {
    let all = Arc::make_mut(index);
    if let Some(names) = all.get_mut(id) {
        names.remove(name);
        if names.is_empty() {
            all.remove(id);
        }
    }
}
