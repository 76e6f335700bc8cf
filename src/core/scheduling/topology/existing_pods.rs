//! Running pods per node, counted once for all topology groups.

use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{NodeName, ObjectKey};
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Indices of nodes, each with its number of pods.
type PodsPerNode = Vec<(u32, u32)>;

/// Nodes that are not excluded, and their pods.
#[derive(Debug, Default)]
pub(crate) struct ExistingPods {
    /// By name.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Each running shape, with the indices in `nodes` of its pods.
    pub(crate) pods: Vec<(Arc<PodShape>, PodsPerNode)>,
}

impl ExistingPods {
    /// All nodes except `without`, and their pods except those that are leaving or terminating.
    pub(crate) fn of(snapshot: &Snapshot, without: &BTreeSet<NodeName>, leaving: &BTreeSet<&ObjectKey>) -> Self {
        let nodes: Vec<Arc<Node>> =
            snapshot.nodes().values().filter(|n| !without.contains(&n.name)).map(Arc::clone).collect();
        let node_index = |pod: &Pod| {
            let name = pod.node.as_ref()?;
            nodes.binary_search_by(|node| node.name.cmp(name)).ok().map(|index| index as u32)
        };
        let is_running =
            |pod: &&Arc<Pod>| !pod.is_terminal() && pod.deleting_at.is_none() && !leaving.contains(&pod.key);
        let mut bound: Vec<(&Arc<PodShape>, u32)> = snapshot
            .pods()
            .values()
            .filter(is_running)
            .filter_map(|pod| Some((&pod.shape, node_index(pod)?)))
            .collect();
        // Watched pods share equal shapes, so comparing addresses suffices.
        bound.sort_unstable_by_key(|(shape, node)| (Arc::as_ptr(shape), *node));
        let mut pods: Vec<(Arc<PodShape>, PodsPerNode)> = Vec::new();
        for equal in bound.chunk_by(|a, b| Arc::ptr_eq(a.0, b.0) && a.1 == b.1) {
            let Some((shape, node)) = equal.first() else { continue };
            let pods_on_node = (*node, equal.len() as u32);
            match pods.last_mut() {
                Some((last, nodes)) if Arc::ptr_eq(last, shape) => nodes.push(pods_on_node),
                _ => pods.push((Arc::clone(shape), vec![pods_on_node])),
            }
        }
        Self { nodes, pods }
    }

    /// True when some pod has required anti-affinity.
    pub(crate) fn has_anti_affinity(snapshot: &Snapshot) -> bool {
        let apart = |pod: &Arc<Pod>| pod.shape.affinity.as_ref().is_some_and(|affinity| !affinity.apart.is_empty());
        snapshot.pods().values().any(apart)
    }
}
