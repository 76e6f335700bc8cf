//! Drains the node of a NodeClaim that is being deleted: taints it, evicts its pods, and then terminates its VM.
//!
//! A node that is not ready is drained like any other, since its pods may run on. Its VM is terminated when they have
//! left, when the termination grace period is over, or when the node is proven to be lost ([`super::lost_node`]); with a
//! Node, none of it during a [`super::NodeOutage`].

mod conditions;
mod deadline;
mod evictions;
mod hold;
mod progress;
mod tiers;
mod volumes;

use super::terminate::{LATE_REQUEST, READ_LAG};
use super::{ClaimReconciler, LAUNCH_RETRY};
use crate::model::azure::naming::{ResourceIds, aks_machine_id, is_aks_machine_of, resource_ids};
use crate::model::cluster::claim::{Claim, TerminationConditions};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, Taint};
use crate::model::labels;
use crate::model::names::ArmId;
use crate::model::settings::PauseSwitch;
use crate::plan::{Command, DrainedNode, NodeUpdate, Terminate};
use crate::snapshot::CommandKey;
pub(super) use conditions::WrittenConditions;
pub use evictions::EvictionScript;
pub(super) use evictions::{Evictions, EvictionsInFlight};
use jiff::{SignedDuration, Timestamp};
pub use progress::BlockedDrain;
pub(super) use progress::DrainProgress;
use std::sync::Arc;
pub(super) use tiers::first_tier;
use volumes::DetachState;

/// Pods that are still there so long after the end of the termination grace period, and after they were asked to end, go with
/// their VM: neither a PodDisruptionBudget nor a pod that never ends blocks a node indefinitely.
pub const FORCE_DRAIN_AFTER: SignedDuration = SignedDuration::from_mins(1);

impl ClaimReconciler<'_> {
    /// Drains the node, then deletes all that was created for it.
    pub(super) fn drain(&mut self, claim: &Claim, node: Option<&Node>) {
        let planned = self.plan.commands.len();
        let conditions = self.advance(claim, node);
        // What is told can wait for what is done about the NodeClaim, and holds up none of it.
        let key = CommandKey::Claim(claim.name.clone());
        if self.plan.commands[planned..].iter().any(|planned| planned.command.key() == key)
            || self.snapshot.in_progress.contains(&CommandKey::Drain(claim.name.clone()))
        {
            return;
        }
        if self.drain_end(claim, node).is_some_and(|deadline| self.record_deadline(claim, deadline)) {
            return;
        }
        if let Some(conditions) = conditions {
            self.tell(claim, conditions);
        }
    }

    /// Takes the next step of the drain or of the termination. Returns the conditions of a drain that has not ended.
    fn advance(&mut self, claim: &Claim, node: Option<&Node>) -> Option<TerminationConditions> {
        let pods = node.map(|node| self.pods_to_move(node)).unwrap_or_default();
        let forced = self.forced_at(claim, &pods);
        // Nothing runs on a lost node, and past the deadline pods need not be moved.
        let draining = node.filter(|n| forced.is_none_or(|at| at > self.now) && !self.is_lost(n));
        if let Some(at) = forced.filter(|_| draining.is_some()) {
            self.plan.wake_at(at);
        }
        let held_until = draining.and_then(|node| self.held_until(claim, node, &pods));
        if let Some(node) = draining
            && self.is_draining(claim, node, &pods, held_until)
        {
            let blocked = self.memory.blocked_drains.get(&node.name);
            return node.is_tainted(labels::TAINT_DISRUPTED).then(|| conditions::draining(blocked, held_until));
        }
        let mut volumes = DetachState::Detached;
        if let Some(node) = node {
            self.forget_progress(&node.name);
            volumes = self.detach_state(claim, node);
            if volumes == DetachState::Attached {
                self.check_unready(claim, node);
                return Some(conditions::awaiting_volumes());
            }
            if self.memory.outage.is_some() {
                // Its VM is kept until the outage is over, or Azure proves that it is lost.
                self.check_unready(claim, node);
                return None;
            }
        }
        let is_late = forced.is_some_and(|at| at <= self.now);
        let told = node.map(|_| conditions::terminating(is_late, volumes));
        self.terminate(claim, draining, told);
        None
    }

    /// Takes the next step of the drain; `false` when the node is drained.
    fn is_draining(&mut self, claim: &Claim, node: &Node, pods: &[Arc<Pod>], held_until: Option<Timestamp>) -> bool {
        if let Some(deadline) = claim.drain_deadline() {
            self.delete_expiring(deadline, pods);
        }
        if !node.is_tainted(labels::TAINT_DISRUPTED) {
            self.begin(node, held_until);
            self.check_unready(claim, node);
            return true;
        }
        let leaving = self.leaving_pods(pods, held_until);
        self.note_progress(node, Some(claim), pods, &leaving);
        if held_until.is_none() || self.have_room(pods) {
            self.exclude_from_load_balancers(node);
        }
        if pods.is_empty() {
            let end = self.earliest_end(node);
            if end > self.now {
                self.plan.wake_at(end);
            }
            return end > self.now;
        }
        self.wake_for_stuck(node, pods);
        self.evict(&format!("draining the node of {}", claim.name), &leaving);
        self.check_unready(claim, node);
        true
    }

    /// Decides again when pods of a ready node count as stuck.
    pub(super) fn wake_for_stuck(&mut self, node: &Node, pods: &[Arc<Pod>]) {
        let Some(since) = node.ready_from() else { return };
        pods.iter().filter_map(|pod| pod.stuck_terminating_at(since)).for_each(|at| self.plan.wake_at(at));
    }

    /// Deletes all that was created for it. `drained` is its Node, unless that is lost or past its deadline.
    fn terminate(&mut self, claim: &Claim, drained: Option<&Node>, told: Option<TerminationConditions>) {
        // Another controller's finalizer keeps it: ours is removed once nothing is left.
        if !claim.has_finalizer {
            return;
        }
        // If the intent was removed before the VM was recorded, sweeps find what is left.
        if claim.intent.is_none() && claim.status.provider_id.is_none() {
            self.plan
                .push(Command::RemoveFinalizer { claim: claim.reference() }, "no Azure resources were created for it");
            return;
        }
        if self.snapshot.pause.blocks(PauseSwitch::Delete, self.now) {
            return;
        }
        if let Some(again) =
            self.memory.terminated.get(&claim.name).map(|at| *at + LAUNCH_RETRY).filter(|t| *t > self.now)
        {
            self.plan.wake_at(again);
            return;
        }
        let held = match self.memory.termination_denials.held_for(&claim.name, self.now) {
            Ok(held) => held,
            Err(retry_at) => return self.plan.wake_at(retry_at),
        };
        self.memory.terminated.insert(claim.name.clone(), self.now);
        let drained_node = drained.map(|n| DrainedNode { name: n.name.clone(), ready_since: n.ready_from() });
        let (ids, machine) = self.launched_resources(claim);
        let look_again = self.may_appear(claim);
        let conditions = told.filter(|told| !claim.status.termination.include(told)).map(Box::new);
        let terminate =
            Terminate { claim: claim.reference(), ids, machine, drained_node, held, look_again, conditions };
        let reason = match drained {
            Some(_) => "drained; deleting its VM, NIC and OS disk",
            None => "deleting its VM, NIC and OS disk",
        };
        self.plan.push(Command::Terminate(Box::new(terminate)), reason);
    }

    /// For how long what a launch has created may appear: it was interrupted, so that a request for the VM may still be on
    /// its way, however old the intent is, or it has ended only now. `None` where a GET shows all of it.
    fn may_appear(&self, claim: &Claim) -> Option<SignedDuration> {
        let status = &claim.status;
        let failed = status.launch_failed.as_ref().map(|failure| failure.at);
        match failed.max(status.launched) {
            Some(ended) => (self.now.duration_since(ended) < READ_LAG).then_some(READ_LAG),
            None => status.provider_id.is_none().then_some(LATE_REQUEST + READ_LAG),
        }
    }

    /// What a launch of this NodeClaim may have created, and the Machine that it may belong to, by the names that follow
    /// from its own: others may have changed or removed the intent. Only what has the NodeClaim's UID is deleted.
    fn launched_resources(&self, claim: &Claim) -> (ResourceIds, Option<ArmId>) {
        let mut ids = resource_ids(&self.settings.cluster.node_resource_group, &claim.name);
        let configured = || self.settings.aks_machine_pool.as_ref().map(|pool| aks_machine_id(pool, &claim.name));
        let intended = claim.intent.as_ref().and_then(|intent| intent.machine.clone());
        let machine = intended.filter(|machine| is_aks_machine_of(machine, &claim.name)).or_else(configured);
        // AKS chooses the name of a Machine's VM.
        if let Some(id) = claim.status.provider_id.as_ref().filter(|_| machine.is_some()) {
            ids.vm = id.vm().clone();
        }
        (ids, machine)
    }

    /// Taints a draining node. Load balancers use it as long as its pods are held back.
    fn begin(&mut self, node: &Node, held_until: Option<Timestamp>) {
        if held_until.is_none() {
            self.begin_drain(node);
        } else if !self.is_in_progress(node) {
            let update = NodeUpdate::AddTaint(Taint::disrupted());
            self.plan.update_node(node, update, "no new pods: Azure takes it away later");
        }
    }

    /// Taints a draining node, even without pods: until the taint is visible, kube-scheduler may bind pods to it.
    pub(super) fn begin_drain(&mut self, node: &Node) {
        if !self.is_in_progress(node) {
            self.plan.update_node(node, NodeUpdate::BeginDrain, "cordoning the node to drain it");
        }
    }

    /// Labels a node that was tainted before its drain began, as one is that is going to be replaced. Nothing waits for it.
    fn exclude_from_load_balancers(&mut self, node: &Node) {
        let tried = self.memory.labels_tried.get(&node.name).map(|at| *at + LAUNCH_RETRY);
        let is_excluded = node.label(labels::EXCLUDE_FROM_LOAD_BALANCERS).is_some();
        if !is_excluded && tried.is_none_or(|again| again <= self.now) {
            self.memory.labels_tried.insert(node.name.clone(), self.now);
            self.begin_anew(&node.name);
            self.begin_drain(node);
        }
    }

    /// Pods that must be gone before the VM is deleted.
    pub(super) fn pods_to_move(&self, node: &Node) -> Vec<Arc<Pod>> {
        let holding = |pod: &&Arc<Pod>| pod.holds_drain(node.ready_from(), self.now);
        self.snapshot.pods_on(&node.name).filter(holding).cloned().collect()
    }
}
