//! Running pods per node, counted once for all topology groups.

use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{NodeName, ObjectKey};
use crate::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Places of nodes, each with how many pods are there.
type PodsPerNode = Vec<(u32, u32)>;

/// Nodes that stay, and the pods on them.
#[derive(Debug, Default)]
pub(crate) struct ExistingPods {
    /// By name.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Each shape that runs, with the places of its pods in `nodes`.
    pub(crate) pods: Vec<(Arc<PodShape>, PodsPerNode)>,
}

impl ExistingPods {
    /// All nodes but some, and all pods on them but those that leave and those that end.
    pub(crate) fn of(snapshot: &Snapshot, without: &BTreeSet<NodeName>, leaving: &BTreeSet<&ObjectKey>) -> Self {
        let nodes: Vec<Arc<Node>> =
            snapshot.nodes().values().filter(|n| !without.contains(&n.name)).map(Arc::clone).collect();
        let place = |pod: &Pod| {
            let name = pod.node.as_ref()?;
            nodes.binary_search_by(|node| node.name.cmp(name)).ok().map(|place| place as u32)
        };
        let stays = |pod: &&Arc<Pod>| !pod.is_terminal() && pod.deleting_at.is_none() && !leaving.contains(&pod.key);
        let mut bound: Vec<(&Arc<PodShape>, u32)> =
            snapshot.pods().values().filter(stays).filter_map(|pod| Some((&pod.shape, place(pod)?))).collect();
        // Pods that are watched share equal shapes: by address those need not be compared in depth.
        bound.sort_unstable_by_key(|(shape, place)| (Arc::as_ptr(shape), *place));
        let mut pods: Vec<(Arc<PodShape>, PodsPerNode)> = Vec::new();
        for alike in bound.chunk_by(|a, b| Arc::ptr_eq(a.0, b.0) && a.1 == b.1) {
            let Some((shape, place)) = alike.first() else { continue };
            let here = (*place, alike.len() as u32);
            match pods.last_mut() {
                Some((last, places)) if Arc::ptr_eq(last, shape) => places.push(here),
                _ => pods.push((Arc::clone(shape), vec![here])),
            }
        }
        Self { nodes, pods }
    }

    /// True when some pod that runs keeps others away.
    pub(crate) fn has_anti_affinity(snapshot: &Snapshot) -> bool {
        let apart = |pod: &Arc<Pod>| pod.shape.affinity.as_ref().is_some_and(|affinity| !affinity.apart.is_empty());
        snapshot.pods().values().any(apart)
    }
}
