//! Holds the pods of a node back that Azure takes away some time later, until other nodes have room for them.
//!
//! They count as waiting from the deletion of the NodeClaim on, so that new nodes are launched; but as long as there is time
//! for it, a pod leaves only when a node in use has room for it, and load balancers go on using the node.

use super::tiers::first_tier;
use crate::lifecycle::ClaimReconciler;
use crate::model::cluster::claim::{Claim, ForcefulReason};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::labels;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// How long before its end a drain begins at the latest, beside the longest time that one of its pods takes to end:
/// PodDisruptionBudgets let pods go one after the other.
const DRAIN_TIME: SignedDuration = SignedDuration::from_mins(5);

impl ClaimReconciler<'_> {
    /// The pods that are to leave now, of those that hold a drain.
    pub(super) fn leaving_pods(&self, pods: &[Arc<Pod>], held_until: Option<Timestamp>) -> Vec<Arc<Pod>> {
        let mut leaving = first_tier(pods);
        if held_until.is_some() && !self.have_room(pods) {
            // Daemons serve the pods that stay.
            leaving.retain(|pod| !is_daemon(pod) && self.has_room(pod));
        }
        leaving
    }

    /// Until when pods of a node may be held back: Azure takes the VM away so much later that all of them can leave after it.
    /// Once load balancers leave it out, none is held back any more: so that is known after a restart.
    pub(super) fn held_until(&mut self, claim: &Claim, node: &Node, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let announced = [ForcefulReason::Interrupted, ForcefulReason::Preempted];
        claim.status.forced.filter(|reason| announced.contains(reason))?;
        if node.deleting_at.is_some() || is_left_out(node) || self.may_not_serve(node) {
            return None;
        }
        let end = self.drain_end(claim, Some(node))?;
        let longest = pods.iter().map(|pod| pod.termination_grace).max()?;
        let until = end.saturating_sub(longest.saturating_add(DRAIN_TIME)).ok()?;
        if until <= self.now {
            return None;
        }
        self.plan.wake_at(until);
        Some(until)
    }

    /// All pods of a node have room elsewhere, but for daemons, or are leaving.
    pub(super) fn have_room(&self, pods: &[Arc<Pod>]) -> bool {
        pods.iter().all(|pod| is_daemon(pod) || pod.deleting_at.is_some() || self.has_room(pod))
    }

    fn has_room(&self, pod: &Pod) -> bool {
        self.provision.with_room().contains(&pod.uid)
    }

    /// Pods of this node may not serve.
    fn may_not_serve(&mut self, node: &Node) -> bool {
        let is_silent = self.is_long_unready(node) && self.memory.outage.is_none();
        is_silent || self.is_unhealthy(node)
    }
}

fn is_daemon(pod: &Pod) -> bool {
    pod.owner == PodOwner::DaemonSet
}

/// Load balancers leave a node out because of its drain.
fn is_left_out(node: &Node) -> bool {
    node.label(labels::EXCLUDE_FROM_LOAD_BALANCERS) == Some(labels::EXCLUDED_BY)
}
