//! Drains a Node that is being deleted and has no NodeClaim, as after a restore of a backup that lacks it.
//!
//! Its pods are evicted like those of any other node, and then our finalizer is removed. Its VM is not touched: without a
//! NodeClaim nothing proves whose it is. Once its Node is gone it is an orphan, which sweeps delete with approval.

use super::ClaimReconciler;
use crate::model::azure::naming::claim_of_resource;
use crate::model::cluster::node::Node;
use crate::model::errors::EffectError;
use crate::model::labels;
use crate::model::names::ClaimName;
use crate::plan::{ClusterRead, ClusterWrite, Command, DrainedNode, Effect, ReleaseNode, Reply, Script, Step};
use jiff::Timestamp;

impl ClaimReconciler<'_> {
    /// Takes the next step for every such Node. During an outage of nodes none is released.
    pub(super) fn release_unclaimed_nodes(&mut self) {
        let snapshot = self.snapshot;
        for node in snapshot.nodes().values() {
            if let Some(claim) = self.lost_claim(node).filter(|_| !self.is_in_progress(node)) {
                self.release(node, claim);
            }
        }
    }

    /// The NodeClaim of which a Node that is being deleted was, if it does not exist.
    fn lost_claim(&self, node: &Node) -> Option<ClaimName> {
        node.deleting_at.filter(|_| node.has_finalizer)?;
        node.label(labels::NODEPOOL)?;
        let provider = node.provider_id.as_ref()?;
        let claim = claim_of_resource(&self.settings.cluster.node_resource_group, provider.vm())?;
        let claims = self.snapshot.claims();
        (claims.get(&claim).is_none() && self.snapshot.claim_by_provider_id(provider).is_none()).then_some(claim)
    }

    fn release(&mut self, node: &Node, claim: ClaimName) {
        if !node.is_tainted(labels::TAINT_DISRUPTED) {
            return self.taint_disrupted(node);
        }
        let pods = self.pods_to_move(node);
        if !pods.is_empty() {
            self.wake_for_stuck(node, &pods);
            return self.evict(&format!("draining node {}, which has no NodeClaim", node.name), None, &pods);
        }
        if self.memory.outage.is_some() {
            return;
        }
        let drained = DrainedNode { name: node.name.clone(), ready_since: node.ready_from() };
        let release = ReleaseNode { node: drained, uid: node.uid.clone(), claim };
        self.plan.push(Command::ReleaseNode(Box::new(release)), "drained, and it has no NodeClaim");
    }
}

/// Removes our finalizer from a Node, if its NodeClaim does not exist and nothing runs on it.
#[derive(Debug)]
pub struct ReleaseNodeScript {
    command: ReleaseNode,
    state: State,
}

/// The last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    ClaimRead,
    PodsRead,
    Released,
}

impl ReleaseNodeScript {
    /// The script of a release.
    #[must_use]
    pub fn new(command: ReleaseNode) -> Self {
        Self { command, state: State::Begin }
    }

    fn perform(&mut self, state: State, effect: Effect) -> Step {
        self.state = state;
        Step::perform(effect)
    }
}

impl Script for ReleaseNodeScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, now: Timestamp) -> Step {
        let (node, uid) = (self.command.node.clone(), self.command.uid.clone());
        match (self.state, reply) {
            (_, Some(Err(error))) => Step::failed(error),
            (State::Begin, _) => {
                self.perform(State::ClaimRead, Effect::Read(ClusterRead::Claim(self.command.claim.clone())))
            }
            (State::ClaimRead, Some(Ok(Reply::Claim(None)))) => {
                self.perform(State::PodsRead, Effect::Read(ClusterRead::Pods(node.name)))
            }
            (State::PodsRead, Some(Ok(Reply::Pods(pods))))
                if !pods.iter().any(|pod| pod.holds_drain(node.ready_since, now)) =>
            {
                self.perform(State::Released, Effect::Cluster(ClusterWrite::DeleteNode(node.name, uid)))
            }
            _ => Step::finished(),
        }
    }
}
