//! The pods that need a node.

use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::Pod;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// The deadline of a drain is near when there is no more time than a node needs to start.
const DEADLINE_IS_NEAR: SignedDuration = SignedDuration::from_mins(1);

/// Pods that wait for a node, and pods of nodes that are being removed, which soon will.
pub(crate) fn pods_to_schedule(snapshot: &Snapshot, now: Timestamp) -> Vec<Arc<Pod>> {
    let leaving = snapshot
        .claims()
        .values()
        .filter(|c| c.deleting_at.is_some())
        .filter_map(|c| Some((ends_whatever_holds(c, now), snapshot.node_usage(c.status.node_name.as_ref()?)?)))
        .flat_map(|(is_forced, usage)| usage.pods.iter().map(move |key| (is_forced, key)))
        .filter_map(|(is_forced, key)| Some((is_forced, snapshot.pods().get(key)?)))
        .filter(|(is_forced, pod)| will_leave(snapshot, pod, *is_forced, now))
        .map(|(_, pod)| pod);
    snapshot.pending_pods().chain(leaving).cloned().collect()
}

/// True when the drain of a NodeClaim ends whatever holds its pods: it is deleted because of its node, or its deadline, which a
/// notice of Azure may have brought forward, is near.
fn ends_whatever_holds(claim: &Claim, now: Timestamp) -> bool {
    claim.status.forced.is_some() || claim.drain_deadline().is_some_and(|deadline| deadline <= now + DEADLINE_IS_NEAR)
}

/// True when a pod of a node that is being removed will be evicted, and needs another node then. One that refuses to be
/// disrupted, or that a PodDisruptionBudget never lets go, holds its node for now: a new one would stay empty. Where its
/// drain ends all the same, neither holds it.
fn will_leave(snapshot: &Snapshot, pod: &Pod, is_forced: bool, now: Timestamp) -> bool {
    let holds =
        || pod.refuses_disruption(now) || snapshot.eviction_blocker(pod).is_some_and(|blocker| blocker.is_permanent());
    pod.needs_another_node() && (is_forced || !holds())
}
