//! Drains the node of a NodeClaim that is being deleted: taints it, evicts its pods, and then terminates its VM.

use super::{ClaimReconciler, LAUNCH_RETRY, NODE_LOST_AFTER};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Pod;
use crate::model::labels;
use crate::model::settings::PauseSwitch;
use crate::plan::{Command, NodeUpdate, Terminate};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Pods that are still there so long after the end of the termination grace period go with their VM: neither a
/// PodDisruptionBudget nor a pod that never ends blocks a node indefinitely.
pub const FORCE_DRAIN_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// How often an eviction that a PodDisruptionBudget refused is tried again.
pub(super) const EVICTION_RETRY: SignedDuration = SignedDuration::from_secs(10);

impl ClaimReconciler<'_> {
    /// Drains the node, then deletes all that the intent names.
    pub(super) fn drain(&mut self, claim: &Claim, node: Option<&Node>) {
        let forced = claim.drain_deadline().map(|deadline| deadline + FORCE_DRAIN_AFTER);
        // The pods of a lost node cannot be moved, and past the deadline they need not be.
        let node = node.filter(|n| forced.is_none_or(|at| at > self.now) && !self.is_lost(n));
        if let Some(node) = node.filter(|n| !is_tainted(n)) {
            self.taint_disrupted(node, forced);
            return;
        }
        let pods = node.map(|n| self.pods_to_move(n)).unwrap_or_default();
        if let Some(node) = node.filter(|_| !pods.is_empty()) {
            if !node.ready {
                self.plan.wake_at(node.ready_since + NODE_LOST_AFTER);
            }
            if let Some(at) = forced {
                self.plan.wake_at(at);
            }
            self.evict(claim, &pods);
            return;
        }
        let Some(intent) = &claim.intent else {
            self.plan
                .push(Command::RemoveFinalizer { claim: claim.reference() }, "no Azure resources were created for it");
            return;
        };
        if self.snapshot.pause.blocks(PauseSwitch::Delete) {
            return;
        }
        if let Some(again) =
            self.memory.terminated.get(&claim.name).map(|at| *at + LAUNCH_RETRY).filter(|t| *t > self.now)
        {
            self.plan.wake_at(again);
            return;
        }
        self.memory.terminated.insert(claim.name.clone(), self.now);
        let node = node.map(|n| n.name.clone());
        let terminate = Terminate { claim: claim.reference(), intent: intent.clone(), drained_node: node };
        self.plan.push(Command::Terminate(Box::new(terminate)), "drained; deleting its VM, NIC and OS disk");
    }

    /// Taints a draining node, even without pods: until the taint is visible, kube-scheduler may bind pods to it.
    fn taint_disrupted(&mut self, node: &Node, forced: Option<Timestamp>) {
        if !node.ready {
            self.plan.wake_at(node.ready_since + NODE_LOST_AFTER);
        }
        if let Some(at) = forced {
            self.plan.wake_at(at);
        }
        if !self.is_in_progress(node) {
            let (name, uid) = (node.name.clone(), node.uid.clone());
            self.plan.push(
                Command::UpdateNode { node: name, uid, update: NodeUpdate::TaintDisrupted },
                "cordoning the node to drain it",
            );
        }
    }

    fn is_lost(&self, node: &Node) -> bool {
        !node.ready && self.now >= node.ready_since + NODE_LOST_AFTER
    }

    /// Pods that must be gone before the VM is deleted.
    fn pods_to_move(&self, node: &Node) -> Vec<Arc<Pod>> {
        let Some(usage) = self.snapshot.node_usage(&node.name) else { return Vec::new() };
        usage.pods.iter().filter_map(|key| self.snapshot.pods().get(key)).filter(|p| p.holds_drain()).cloned().collect()
    }

    fn evict(&mut self, claim: &Claim, pods: &[Arc<Pod>]) {
        let deadline = claim.drain_deadline();
        let overdue = deadline.is_some_and(|d| d <= self.now);
        for pod in pods.iter().filter(|p| p.deleting_at.is_none()) {
            if pod.refuses_disruption(self.now) && !overdue {
                self.plan.wake_at(deadline.unwrap_or(self.now + EVICTION_RETRY * 6));
                continue;
            }
            let due = self.memory.evicted.get(&pod.uid).map(|at| *at + EVICTION_RETRY);
            if let Some(due) = due.filter(|due| *due > self.now) {
                self.plan.wake_at(due);
                continue;
            }
            self.memory.evicted.insert(pod.uid.clone(), self.now);
            self.plan.wake_at(self.now + EVICTION_RETRY);
            let command = Command::Evict { pod: pod.key.clone(), uid: pod.uid.clone() };
            self.plan.push(command, format!("draining the node of {}", claim.name));
        }
    }
}

fn is_tainted(node: &Node) -> bool {
    node.taints.iter().any(|t| &*t.key == labels::TAINT_DISRUPTED)
}
