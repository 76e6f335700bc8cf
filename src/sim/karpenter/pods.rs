//! Karpenter's predicates on pods.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};

/// A pod that outlives its deletion by so long is not waited for.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// From this priority on a pod is one of `system-cluster-critical` or `system-node-critical`.
const CRITICAL: i32 = 2_000_000_000;

/// It has neither ended nor been asked to.
pub(super) fn is_active(pod: &Pod) -> bool {
    !pod.is_terminal() && pod.deleting_at.is_none()
}

fn is_of_node(pod: &Pod) -> bool {
    pod.owner == PodOwner::Static
}

/// It needs another node when its own one goes. (Upstream also counts terminating pods of StatefulSets, which cannot be
/// told from others here.)
pub(super) fn is_reschedulable(pod: &Pod) -> bool {
    is_active(pod) && pod.owner != PodOwner::DaemonSet && !is_of_node(pod)
}

/// Its annotation does not forbid to disrupt its node now. Pods that have ended never do.
pub(super) fn is_disruptable(pod: &Pod, now: Timestamp) -> bool {
    !is_active(pod) || !pod.refuses_disruption(now)
}

/// The eviction API is called for it.
pub(super) fn is_evictable(pod: &Pod, now: Timestamp) -> bool {
    is_active(pod) && !pod.tolerates_disruption() && !is_of_node(pod) && !pod.refuses_disruption(now)
}

/// The drain waits for it.
pub(super) fn is_waited_for(pod: &Pod, now: Timestamp) -> bool {
    !pod.is_terminal() && !pod.tolerates_disruption() && !is_of_node(pod) && !is_stuck(pod, now)
}

fn is_stuck(pod: &Pod, now: Timestamp) -> bool {
    stuck_at(pod).is_some_and(|at| at < now)
}

/// When a pod that is being deleted is waited for no longer.
pub(super) fn stuck_at(pod: &Pod) -> Option<Timestamp> {
    pod.deleting_at?.saturating_add(pod.termination_grace.saturating_add(STUCK_AFTER)).ok()
}

/// Its condition Ready is true.
pub(super) fn is_ready(pod: &Pod) -> bool {
    pod.ready
}

/// The drain's order: lower tiers go first, and the next begins when all pods of the one before are gone.
pub(super) fn tier(pod: &Pod) -> u8 {
    let critical = pod.shape.priority >= CRITICAL;
    match (critical, pod.owner == PodOwner::DaemonSet) {
        (false, false) => 0,
        (false, true) => 1,
        (true, false) => 2,
        (true, true) => 3,
    }
}

/// What evicting it costs: 1 for an ordinary pod, more for a higher priority or `pod-deletion-cost`, −10 to 10.
pub(super) fn eviction_cost(pod: &Pod) -> f64 {
    const PRIORITY_PER_POD: f64 = 33_554_432.0;
    const DELETION_COST_PER_POD: f64 = 134_217_728.0;
    let by_priority = f64::from(pod.shape.priority) / PRIORITY_PER_POD;
    (1.0 + f64::from(pod.deletion_cost) / DELETION_COST_PER_POD + by_priority).clamp(-10.0, 10.0)
}
