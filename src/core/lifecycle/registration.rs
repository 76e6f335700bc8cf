//! Registers the node of a launched NodeClaim, and initializes it when it is ready for pods.

use super::ClaimReconciler;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Taint, TaintEffect};
use crate::model::labels;
use crate::plan::{ClaimUpdate, Command, NodeUpdate};

impl ClaimReconciler<'_> {
    pub(super) fn await_node(&mut self, claim: &Claim) {
        let since = claim.status.launched.unwrap_or(claim.created_at);
        let deadline = since + self.settings.registration_timeout;
        if self.now >= deadline {
            let minutes = self.settings.registration_timeout.as_mins();
            self.delete(claim, "registration_timeout", &format!("node did not register within {minutes} minutes"));
        } else {
            self.plan.wake_at(deadline);
            self.ensure_billing_extension(claim);
        }
    }

    /// The Node is changed before the claim: after a crash between the two only idempotent steps are repeated.
    pub(super) fn register(&mut self, claim: &Claim, node: Option<&Node>) {
        let Some(node) = node else { return };
        if self.is_in_progress(node) {
            return;
        }
        if is_registered(node) {
            let step = ClaimUpdate::Registered { node: node.name.clone() };
            self.plan.push(
                Command::UpdateClaim { claim: claim.reference(), update: step },
                format!("node {} registered", node.name),
            );
        } else {
            let taints = claim.spec.taints.iter().chain(&claim.spec.startup_taints).cloned().collect();
            let step = NodeUpdate::Register { labels: claim.spec.labels.clone(), taints };
            let command = Command::UpdateNode { node: node.name.clone(), uid: node.uid.clone(), update: step };
            self.plan.push(command, format!("the node of {} registered", claim.name));
        }
    }

    pub(super) fn initialize(&mut self, claim: &Claim, node: Option<&Node>) {
        let Some(node) = node else { return };
        if !is_ready_for_pods(claim, node) || self.is_in_progress(node) {
            return;
        }
        if node.label(labels::INITIALIZED) == Some("true") {
            let command = Command::UpdateClaim { claim: claim.reference(), update: ClaimUpdate::Initialized };
            self.plan.push(command, format!("node {} is ready for pods", node.name));
        } else {
            let step = NodeUpdate::Initialize;
            let command = Command::UpdateNode { node: node.name.clone(), uid: node.uid.clone(), update: step };
            self.plan.push(command, "ready, startup taints removed");
        }
    }
}

fn is_registered(node: &Node) -> bool {
    node.has_finalizer
        && node.label(labels::REGISTERED) == Some("true")
        && !node.taints.iter().any(|t| &*t.key == labels::TAINT_UNREGISTERED)
}

/// Ready, without startup and ephemeral taints, and with all requested resources.
fn is_ready_for_pods(claim: &Claim, node: &Node) -> bool {
    let is_removed = |taint: &Taint| !node.taints.contains(taint);
    let ephemeral = |t: &Taint| {
        t.effect != TaintEffect::PreferNoSchedule
            && matches!(&*t.key, labels::TAINT_NOT_READY | labels::TAINT_UNREACHABLE | labels::TAINT_UNINITIALIZED)
    };
    node.ready
        && claim.spec.startup_taints.iter().all(is_removed)
        && !node.taints.iter().any(ephemeral)
        && claim.spec.requests.extended.iter().all(|(name, need)| *need <= 0 || node.allocatable.extended(name) > 0)
}
