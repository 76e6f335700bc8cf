//! Drains a Node that is being deleted and has no NodeClaim, as after a restore of a backup that lacks it.
//!
//! Its pods are evicted like those of any other node, and then our finalizer is removed; or, if it is not ready, once its
//! VM is proven to be lost. The VM is not touched: without a NodeClaim nothing proves whose it is. Once its Node is gone it
//! is an orphan, which sweeps delete with approval.

use super::ClaimReconciler;
use super::drain::first_tier;
use super::lost_node::{LookUp, VmLookUps};
use crate::model::azure::naming::{claim_in_name, resource_ids};
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Pod;
use crate::model::errors::EffectError;
use crate::model::labels;
use crate::model::names::ClaimName;
use crate::plan::{ClusterRead, ClusterWrite, Command, Effect, NothingRuns, ReleaseNode, Reply, Script, Step};
use crate::provisioning::CLAIM_SUFFIX_LENGTH;
use jiff::Timestamp;
use std::sync::Arc;

impl ClaimReconciler<'_> {
    /// Takes the next step for every such Node. During an outage of nodes only lost ones are released.
    pub(super) fn release_unclaimed_nodes(&mut self) {
        let snapshot = self.snapshot;
        for node in snapshot.nodes().values() {
            if let Some(claim) = self.lost_claim(node).filter(|_| !self.is_in_progress(node)) {
                self.release(node, claim);
            }
        }
    }

    /// The NodeClaim of which a Node that is being deleted was, if it does not exist. Whose a Node was is known by its name
    /// alone: it is that of its VM, which follows from the NodeClaim's, which begins with that of its NodePool. AKS names
    /// the VMs of Machines otherwise.
    fn lost_claim(&self, node: &Node) -> Option<ClaimName> {
        node.deleting_at.filter(|_| node.has_finalizer)?;
        let provider = node.provider_id.as_ref()?;
        let claim = ClaimName::new(claim_in_name(node.name.as_str())?).ok()?;
        let suffix = claim.as_str().strip_prefix(node.label(labels::NODEPOOL)?)?.strip_prefix('-')?;
        let vm = resource_ids(&self.settings.cluster.node_resource_group, &claim).vm;
        let is_ours = suffix.len() == CLAIM_SUFFIX_LENGTH && *provider.vm() == vm;
        let claims = self.snapshot.claims();
        let is_lost = claims.get(&claim).is_none() && self.snapshot.claim_by_provider_id(provider).is_none();
        (is_ours && is_lost && self.settings.aks_machine_pool.is_none()).then_some(claim)
    }

    fn release(&mut self, node: &Node, claim: ClaimName) {
        if !node.is_tainted(labels::TAINT_DISRUPTED) {
            return self.begin_drain(node);
        }
        let pods = self.pods_to_move(node);
        let leaving = first_tier(&pods);
        self.note_progress(node, None, &pods, &leaving);
        let proof = if self.is_lost(node) {
            NothingRuns::OutOfService
        } else if pods.is_empty() {
            NothingRuns::PodsLeft { ready_since: node.ready_from() }
        } else {
            self.wake_for_stuck(node, &pods);
            self.evict(&format!("draining node {}, which has no NodeClaim", node.name), &leaving);
            if !self.is_long_unready(node) || self.is_vm_checked(&claim, None) {
                return;
            }
            self.note_vm_check(&claim);
            NothingRuns::VmLost(resource_ids(&self.settings.cluster.node_resource_group, &claim).vm)
        };
        if self.memory.outage.is_some() && matches!(proof, NothingRuns::PodsLeft { .. }) {
            return;
        }
        let release = ReleaseNode { node: node.name.clone(), uid: node.uid.clone(), claim, proof };
        self.plan.push(Command::ReleaseNode(Box::new(release)), "it is being deleted, and has no NodeClaim");
    }
}

/// Removes our finalizer from a Node, if its NodeClaim does not exist and nothing runs on it.
#[derive(Debug)]
pub struct ReleaseNodeScript {
    command: ReleaseNode,
    look_ups: Option<VmLookUps>,
    state: State,
}

/// The last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    ClaimRead,
    PodsRead,
    Looking,
    Released,
}

impl ReleaseNodeScript {
    /// The script of a release.
    #[must_use]
    pub fn new(command: ReleaseNode) -> Self {
        let look_ups = match &command.proof {
            NothingRuns::VmLost(vm) => Some(VmLookUps::new(vm.clone())),
            NothingRuns::PodsLeft { .. } | NothingRuns::OutOfService => None,
        };
        Self { command, look_ups, state: State::Begin }
    }

    fn perform(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }

    /// Reads what proves that nothing runs on it.
    fn prove(&mut self) -> Step {
        match (&self.command.proof, &mut self.look_ups) {
            (NothingRuns::PodsLeft { .. }, _) => {
                self.perform(State::PodsRead, Effect::Read(ClusterRead::Pods(self.command.node.clone())))
            }
            (_, Some(look_ups)) => {
                self.state = State::Looking;
                look_ups.first()
            }
            (_, None) => self.delete(),
        }
    }

    fn delete(&mut self) -> Step {
        let (node, uid) = (self.command.node.clone(), self.command.uid.clone());
        self.perform(State::Released, Effect::Cluster(ClusterWrite::DeleteNode(node, uid)))
    }

    fn has_left(&self, pods: &[Arc<Pod>], now: Timestamp) -> bool {
        let NothingRuns::PodsLeft { ready_since } = self.command.proof else { return false };
        !pods.iter().any(|pod| pod.holds_drain(ready_since, now))
    }
}

impl Script for ReleaseNodeScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        match (self.state, reply) {
            (_, Some(Err(error))) => Step::failed(error),
            (State::Begin, _) => {
                self.perform(State::ClaimRead, Effect::Read(ClusterRead::Claim(self.command.claim.clone())))
            }
            (State::ClaimRead, Some(Ok(Reply::Claim(None)))) => self.prove(),
            (State::PodsRead, Some(Ok(Reply::Pods(pods)))) if self.has_left(&pods, now) => self.delete(),
            (State::Looking, reply) => match self.look_ups.as_mut().map(|l| l.next(reply.and_then(Result::ok))) {
                Some(LookUp::Next(step)) => step,
                Some(LookUp::Lost) => self.delete(),
                Some(LookUp::NotProven) | None => Step::finished(),
            },
            _ => Step::finished(),
        }
    }
}
