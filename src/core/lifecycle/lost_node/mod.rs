//! Decides which nodes are lost, and has Azure asked for those that are not ready.
//!
//! A node that is not ready may run its pods all the same. It is lost only if that is proven: Azure has no such VM, or
//! has deallocated it, or a person has put the taint `node.kubernetes.io/out-of-service` on the Node. The proof by Azure
//! is durable: the Node, or the NodeClaim that is not being deleted yet, is deleted ([`CheckVmScript`]).

mod check_vm;
mod node_outage;

use super::ClaimReconciler;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::labels;
use crate::model::names::ClaimName;
use crate::model::settings::{DeletionRule, PauseSwitch};
use crate::plan::{CheckVm, Command, IfVmLost};
pub use check_vm::CheckVmScript;
pub(super) use check_vm::{LookUp, VmLookUps};
use jiff::{SignedDuration, Timestamp};
pub use node_outage::NodeOutage;
pub(super) use node_outage::{MAX_UNREADY_PERCENT, is_in_use};

/// A node that is not ready for this long is looked up in Azure, and counts in an outage.
const NOT_READY_FOR: SignedDuration = SignedDuration::from_secs(60);
/// How often the VM of a node that is missing or not ready is looked up in Azure.
pub(super) const VM_CHECK_INTERVAL: SignedDuration = SignedDuration::from_mins(2);

impl ClaimReconciler<'_> {
    /// True when it is proven that nothing runs on a node whose Node still exists.
    pub(super) fn is_lost(&self, node: &Node) -> bool {
        if !self.settings.deletion_rules.enforces(DeletionRule::LostNodeProven) {
            return node.unready_from().is_some_and(|since| self.now >= since + NOT_READY_FOR);
        }
        !node.ready && node.is_tainted(labels::TAINT_OUT_OF_SERVICE)
    }

    /// Has Azure asked for the VM of a node that has not been ready for a while.
    pub(super) fn check_unready(&mut self, claim: &Claim, node: &Node) {
        if self.is_long_unready(node) {
            self.check_vm(claim, Some(node));
        }
    }

    /// True for a node that has not been ready for a while.
    pub(super) fn is_long_unready(&mut self, node: &Node) -> bool {
        let Some(due) = node.unready_from().map(|since| since + NOT_READY_FOR) else { return false };
        if due > self.now {
            self.plan.wake_at(due);
        }
        due <= self.now
    }

    /// Has Azure asked for the VM of a Node that is missing or not ready. What was asked before the NodeClaim's deletion
    /// does not count for its drain.
    pub(super) fn check_vm(&mut self, claim: &Claim, node: Option<&Node>) {
        let Some(vm) = claim.status.provider_id.as_ref().map(|id| id.vm().clone()) else { return };
        if self.is_vm_checked(&claim.name, claim.deleting_at) {
            return;
        }
        let if_lost = match node {
            Some(node) if claim.deleting_at.is_some() => {
                if self.snapshot.pause.blocks(PauseSwitch::Delete, self.now) {
                    return;
                }
                let (name, uid) = (node.name.clone(), node.uid.clone());
                if self.snapshot.attachments_of(&node.name).next().is_some() {
                    IfVmLost::TaintOutOfService { name, uid }
                } else {
                    IfVmLost::DeleteNode { name, uid }
                }
            }
            _ => IfVmLost::DeleteClaim,
        };
        self.note_vm_check(&claim.name);
        let reason = if node.is_some() { "node is not ready" } else { "Node no longer exists" };
        self.plan.push(Command::CheckVm(Box::new(CheckVm { claim: claim.reference(), vm, if_lost })), reason);
    }

    /// True if the VM of this NodeClaim has been looked up lately, and since this time.
    pub(super) fn is_vm_checked(&mut self, claim: &ClaimName, since: Option<Timestamp>) -> bool {
        let checked = self.memory.vm_checked.get(claim).filter(|at| since.is_none_or(|since| **at >= since));
        let again = checked.map(|at| *at + VM_CHECK_INTERVAL).filter(|again| *again > self.now);
        again.inspect(|again| self.plan.wake_at(*again)).is_some()
    }

    /// The VM of this NodeClaim is looked up now.
    pub(super) fn note_vm_check(&mut self, claim: &ClaimName) {
        self.memory.vm_checked.insert(claim.clone(), self.now);
        self.plan.wake_at(self.now + VM_CHECK_INTERVAL);
    }
}
