//! Registers the node of a launched NodeClaim, and initializes it when it is ready for pods.

use super::ClaimReconciler;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Taint, TaintEffect};
use crate::model::labels;
use crate::plan::{ClaimUpdate, Command, NodeUpdate};
use std::sync::Arc;

impl ClaimReconciler<'_> {
    pub(super) fn await_node(&mut self, claim: &Claim) {
        let since = claim.status.launched.unwrap_or(claim.created_at);
        let deadline = since + self.settings.registration_timeout;
        if self.now >= deadline {
            let minutes = self.settings.registration_timeout.as_mins();
            let reason = format!("node did not register within {minutes} minutes");
            self.delete_unjoined(claim, "registration_timeout", &reason);
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
            let (labels, annotations) = (claim.spec.labels.clone(), claim.spec.annotations.clone());
            let step = NodeUpdate::Register { labels, annotations, taints };
            self.plan.update_node(node, step, format!("the node of {} registered", claim.name));
        }
    }

    pub(super) fn initialize(&mut self, claim: &Claim, node: Option<&Node>) {
        let Some(node) = node else { return };
        if self.is_in_progress(node) {
            return;
        }
        if !is_ready_for_pods(claim, node) {
            return self.await_initialization(claim, node);
        }
        if node.label(labels::INITIALIZED) == Some("true") {
            let command = Command::UpdateClaim { claim: claim.reference(), update: ClaimUpdate::Initialized };
            self.plan.push(command, format!("node {} is ready for pods", node.name));
        } else {
            self.plan.update_node(node, NodeUpdate::Initialize, "ready, startup taints removed");
        }
    }
}

impl ClaimReconciler<'_> {
    /// Gives up a node that does not become ready for pods. One that runs pods is of use all the same.
    fn await_initialization(&mut self, claim: &Claim, node: &Node) {
        let Some(since) = claim.status.registered else { return };
        let deadline = since + self.settings.initialization_timeout;
        if self.now < deadline {
            self.plan.wake_at(deadline);
        } else if !self.snapshot.pods_on(&node.name).any(|pod| pod.is_reschedulable()) {
            let minutes = self.settings.initialization_timeout.as_mins();
            let reason =
                format!("node was not ready for pods within {minutes} minutes: {}", what_is_missing(claim, node));
            self.delete_unjoined(claim, "initialization_timeout", &reason);
        }
    }
}

/// Why a node is not ready for pods.
fn what_is_missing(claim: &Claim, node: &Node) -> String {
    if !node.ready {
        return "its kubelet does not report Ready".to_owned();
    }
    let missing = |(name, need): &&(Arc<str>, i64)| *need > 0 && node.allocatable.extended(name) <= 0;
    match node.taints.iter().find(|taint| claim.spec.startup_taints.contains(taint) || is_ephemeral(taint)) {
        Some(taint) => format!("taint {} is still there", taint.key),
        None => match claim.spec.requests.extended.iter().find(missing) {
            Some((name, _)) => format!("it has no {name}"),
            None => "it has become so now".to_owned(),
        },
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
    node.ready
        && claim.spec.startup_taints.iter().all(is_removed)
        && !node.taints.iter().any(is_ephemeral)
        && claim.spec.requests.extended.iter().all(|(name, need)| *need <= 0 || node.allocatable.extended(name) > 0)
}

/// A taint that Kubernetes itself removes from a node that is ready.
fn is_ephemeral(taint: &Taint) -> bool {
    taint.effect != TaintEffect::PreferNoSchedule
        && matches!(&*taint.key, labels::TAINT_NOT_READY | labels::TAINT_UNREACHABLE | labels::TAINT_UNINITIALIZED)
}
