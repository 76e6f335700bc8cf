//! Chooses the pods that a controller deletes when there are too many.

use napkeeper_core::model::cluster::pod::{Pod, PodPhase};
use napkeeper_core::model::names::NodeName;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The `count` pods that a ReplicaSet deletes first: those without a node, those that do not run, those
/// that are not ready, those on the nodes with the most pods of the set, then the newest (`ActivePodsWithRanks`,
/// kubernetes `pkg/controller/controller_utils.go`; deletion costs and restarts are not simulated). Ties are broken by
/// name, the last first.
#[must_use]
pub fn surplus(mut pods: Vec<Arc<Pod>>, count: usize) -> Vec<Arc<Pod>> {
    let mut on: BTreeMap<NodeName, usize> = BTreeMap::new();
    for node in pods.iter().filter_map(|p| p.node.clone()) {
        *on.entry(node).or_default() += 1;
    }
    let rank = |pod: &Pod| pod.node.as_ref().and_then(|n| on.get(n)).copied();
    pods.sort_by_cached_key(|pod| {
        (
            pod.node.is_some(),
            pod.phase == PodPhase::Running,
            pod.ready,
            Reverse(rank(pod)),
            Reverse(pod.started_at),
            Reverse(pod.created_at),
            Reverse(pod.key.clone()),
        )
    });
    pods.truncate(count);
    pods
}
