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
}

/// Names by provider id. Two may temporarily have the same: a Node that was recreated under another name.
type ByProvider<N> = Arc<BTreeMap<ProviderId, BTreeSet<N>>>;

/// Updated with every change of its tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Index {
    pub(crate) usage: Arc<BTreeMap<NodeName, Arc<NodeUsage>>>,
    pub(crate) pending: Arc<PendingShapes>,
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
                if usage.pods.is_empty() {
                    all.remove(node);
                }
            }
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
