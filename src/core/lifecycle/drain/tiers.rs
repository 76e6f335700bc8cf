//! The order in which the pods of a node are drained.

use crate::model::cluster::pod::{Pod, PodOwner};
use std::sync::Arc;

/// Pods of a tier are evicted when all pods of the tiers before it are gone (Karpenter core, `groupPodsByPriority`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum DrainTier {
    /// Pods that are neither critical nor of a DaemonSet.
    Pods,
    /// Pods of DaemonSets, which may serve those of the tier before.
    Daemons,
    /// Critical pods, such as DNS servers.
    CriticalPods,
    /// Critical pods of DaemonSets, such as CSI drivers.
    CriticalDaemons,
}

impl DrainTier {
    fn of(pod: &Pod) -> Self {
        match (pod.is_critical(), pod.owner == PodOwner::DaemonSet) {
            (false, false) => Self::Pods,
            (false, true) => Self::Daemons,
            (true, false) => Self::CriticalPods,
            (true, true) => Self::CriticalDaemons,
        }
    }
}

/// Of the pods that hold a drain, those of the first tier. One that is being deleted keeps the tiers after its own
/// waiting.
pub(in crate::lifecycle) fn first_tier(pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let first = pods.iter().map(|pod| DrainTier::of(pod)).min();
    pods.iter().filter(|pod| Some(DrainTier::of(pod)) == first).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, node, running, shape};
    use crate::model::cluster::pod::PodShape;

    fn pod(name: &str, owner: PodOwner, priority: i32) -> Arc<Pod> {
        let shape = PodShape { priority, ..shape("a", 100, 1) };
        Arc::new(Pod { owner, ..running(name, &Arc::new(shape), &node("n", 1, 4)) })
    }

    #[test]
    fn critical_pods_and_daemons_leave_after_those_that_they_serve() {
        // The priorities of the highest class that users may define, of system-cluster-critical and of
        // system-node-critical.
        let mut pods = vec![
            pod("csi", PodOwner::DaemonSet, 2_000_001_000),
            pod("dns", PodOwner::Controller, 2_000_000_000),
            pod("logs", PodOwner::DaemonSet, 1_000_000_000),
            pod("bare", PodOwner::Nobody, 0),
            pod("web", PodOwner::Controller, 1_000_000_000),
        ];
        let mut order = Vec::new();
        while !pods.is_empty() {
            let tier = first_tier(&pods);
            order.push(tier.iter().map(|pod| pod.key.name.to_string()).collect::<Vec<_>>());
            pods.retain(|pod| !tier.contains(pod));
        }
        assert_eq!(order, [vec!["bare", "web"], vec!["logs"], vec!["dns"], vec!["csi"]]);
        assert!(first_tier(&[]).is_empty());
    }

    #[test]
    fn a_pod_that_is_being_deleted_keeps_the_next_tier_waiting() {
        let leaving = Pod { deleting_at: Some(at(0)), ..Pod::clone(&pod("web", PodOwner::Controller, 0)) };
        let tier = first_tier(&[pod("dns", PodOwner::Controller, 2_000_000_000), Arc::new(leaving.clone())]);
        assert_eq!(tier, [Arc::new(leaving)]);
    }
}
