//! Invariants about nodes: no VM is deleted under live pods, and nothing is disrupted during an outage of nodes.

use super::Violation;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::lifecycle::FORCE_DRAIN_AFTER;
use napkeeper_core::model::azure::cloud::{PowerState, ProvisioningState, ResourceDetail};
use napkeeper_core::model::cluster::node::{ConditionStatus, Node, NodeCondition};
use napkeeper_core::model::cluster::pod::{Pod, PodOwner, Taint};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodeName, ProviderId};
use napkeeper_core::plan::Command;
use napkeeper_core::snapshot::CommandKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From this time on a node that is not ready counts in an outage.
const NOT_READY_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Most VMs of a NodePool within two hours, from an hour after the first with its present template that did not come up. What is
/// launched together before that is one failure.
const MAX_FAILED_LAUNCHES: usize = 6;

impl World {
    /// Nodes that do not come up are not bought for ever.
    pub(super) fn check_failed_launches(&self) -> Result<(), Violation> {
        let Some(broken_since) = self.truth.kubelets_broken_since else { return Ok(()) };
        let mut launches: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
        for (at, pool) in self.truth.broken_launches.values() {
            let changed = self.truth.templates_changed.get(pool).copied();
            if *at >= changed.map_or(broken_since, |changed| changed.max(broken_since)) {
                launches.entry(pool).or_default().push(*at);
            }
        }
        let mut by_pool = launches.into_iter().map(|(pool, all)| {
            let first = all.iter().min().copied().unwrap_or(self.now);
            let counts = |at: &&Timestamp| {
                **at >= first + SignedDuration::from_hours(1)
                    && self.now.duration_since(**at) < SignedDuration::from_hours(2)
            };
            (pool, all.iter().filter(counts).count())
        });
        match by_pool.find(|(_, launches)| *launches > MAX_FAILED_LAUNCHES) {
            Some((pool, launches)) => Err(self.violation(
                "failed-launches",
                format!("{launches} VMs of {pool} in two hours, of nodes that never come up"),
            )),
            None => Ok(()),
        }
    }

    /// No pod that could have moved is killed with its node, whether its kubelet reports or not.
    pub(super) fn check_drained(&self, id: &ArmId) -> Result<(), Violation> {
        let cluster = self.cluster.state();
        let provider = ProviderId::of_vm(id);
        let Some(node) = cluster.node_by_provider_id(&provider) else { return Ok(()) };
        // Nothing runs on a VM that is shut down, or that does not exist.
        if !matches!(self.cloud.power_state(id), Some(PowerState::Running | PowerState::Starting)) {
            return Ok(());
        }
        // After the termination grace period of the NodePool, pods may be deleted with their node.
        let deadline = cluster.claim_by_provider_id(&provider).and_then(|claim| claim.drain_deadline());
        if deadline.is_some_and(|deadline| deadline + FORCE_DRAIN_AFTER <= self.now + self.truth.clock_error) {
            return Ok(());
        }
        match self.live_pods(node).next() {
            Some(pod) => Err(self.violation("drained", format!("{id} is deleted under pod {}", pod.key))),
            None => Ok(()),
        }
    }

    /// A Node is deleted, and its pods with it, only when nothing runs on it.
    pub(super) fn check_node_delete(&self, name: &NodeName) -> Result<(), Violation> {
        let node = self.cluster.state().nodes().get(name);
        node.and_then(|node| node.provider_id.as_ref()).map_or(Ok(()), |id| self.check_drained(id.vm()))
    }

    /// A Node is released without its NodeClaim only when that does not exist, a user has deleted the Node, and nothing
    /// runs on it.
    pub(super) fn check_node_release(&self, name: &NodeName) -> Result<(), Violation> {
        self.check_node_delete(name)?;
        let cluster = self.cluster.state();
        let Some(node) = cluster.nodes().get(name) else { return Ok(()) };
        let provider = node.provider_id.as_ref();
        let creator = provider.and_then(|id| self.cloud.resources().get(id.vm())).and_then(|vm| self.truth.creator(vm));
        let claims = cluster.claims();
        let claim = provider
            .and_then(|id| cluster.claim_by_provider_id(id))
            .or_else(|| claims.values().find(|claim| Some(&claim.uid) == creator));
        match claim {
            Some(claim) => Err(self.violation("released", format!("{name} is released, and has {}", claim.name))),
            None if node.deleting_at.is_none() => {
                Err(self.violation("released", format!("{name} is released, and nobody has deleted it")))
            }
            None => Ok(()),
        }
    }

    /// No VM of a node is deleted during an outage. One that has not registered runs no pods: its launch has failed.
    pub(super) fn check_no_outage_at_termination(&self, id: &ArmId) -> Result<(), Violation> {
        let node = self.cluster.state().node_by_provider_id(&ProviderId::of_vm(id));
        let has_node = node.is_some_and(|node| node.label(labels::REGISTERED).is_some());
        let begun = self.cloud.resources().get(id).is_some_and(|vm| match &vm.detail {
            // Its deletion has begun, and may have failed.
            ResourceDetail::Vm(vm) => matches!(vm.state, ProvisioningState::Deleting | ProvisioningState::Failed),
            ResourceDetail::Nic(_) | ResourceDetail::Disk(_) => true,
        });
        match self.outage().filter(|_| has_node && !begun) {
            Some(outage) => Err(self.violation("outage", format!("{id} is deleted while {outage}"))),
            None => Ok(()),
        }
    }

    /// No NodeClaim is disrupted during an outage.
    pub(super) fn check_no_outage_at_disruption(&self, claim: &ClaimName) -> Result<(), Violation> {
        let planned = self.controller.inner.running(&CommandKey::Claim(claim.clone()));
        let Some(Command::DeleteClaim { category, .. }) = planned.map(|p| &p.command) else { return Ok(()) };
        let voluntary = ["expired", "expiring", "empty", "underutilized", "drifted", "scaled_down", "unhealthy"];
        let is_disruption = voluntary.contains(category);
        match self.outage().filter(|_| is_disruption) {
            Some(outage) => Err(self.violation("outage", format!("{claim} is deleted ({category}) while {outage}"))),
            None => Ok(()),
        }
    }

    /// No sick node is replaced while more than 20 % of its NodePool are sick, rounded up, and have been for a while.
    pub(super) fn check_few_repairs(&self, claim: &ClaimName) -> Result<(), Violation> {
        let planned = self.controller.inner.running(&CommandKey::Claim(claim.clone()));
        let is_repair = matches!(planned.map(|p| &p.command), Some(Command::DeleteClaim { category: "unhealthy", .. }));
        let cluster = self.cluster.state();
        let known = cluster.claims().get(claim).filter(|claim| is_repair && claim.deleting_at.is_none());
        let Some(pool) = known.and_then(|claim| claim.spec.pool.as_ref()) else { return Ok(()) };
        let late = NOT_READY_FOR + self.truth.clock_error + self.controller.watches.longest_lag();
        let is_long = |since: Timestamp| self.now.duration_since(since) >= late;
        let is_late = !self.controller.watches.longest_lag().is_zero();
        let (mut sick, mut all) = (0_usize, 0_usize);
        for node in cluster.nodes().values() {
            let other = cluster.claim_of(node);
            // As in Karpenter, a Node that has lost its NodeClaim counts too.
            let is_of_pool = other.map_or_else(
                || node.label(labels::NODEPOOL) == Some(pool.as_str()),
                |other| other.spec.pool.as_ref() == Some(pool),
            );
            if !is_of_pool || other.is_some_and(|other| other.status.initialized.is_none()) {
                continue;
            }
            all += 1;
            let is_deleted = other.is_some_and(|other| other.deleting_at.is_some());
            // To a late watch its last pods have not come yet.
            let is_drained = is_deleted && (is_late || self.live_pods(node).next().is_none());
            let says_so = |condition: &NodeCondition| {
                &*condition.kind == "kubernetes.azure.com/NodeHealthy"
                    && condition.status == ConditionStatus::False
                    && is_long(condition.since)
            };
            let is_sick = !node.ready && is_long(node.ready_since) || node.conditions.iter().any(says_so);
            sick += usize::from(is_sick && !is_drained && node.deleting_at.is_none());
        }
        if sick <= all.div_ceil(5) || self.controller.watches.is_silent(self.now) {
            return Ok(());
        }
        Err(self
            .violation("few-repairs", format!("{claim} is repaired while {sick} of {all} nodes of {pool} are sick")))
    }

    /// Many kubelets cannot reach the API server, while VMs and pods run on: more than 20 % of all nodes, and at least
    /// 3. Nodes on which nothing runs do not count.
    fn outage(&self) -> Option<String> {
        let cluster = self.cluster.state();
        let counts = |node: &&Arc<Node>| {
            let claim = cluster.claim_of(node);
            let has_ended = claim.is_some_and(|c| c.deleting_at.is_some()) && self.live_pods(node).next().is_none();
            let is_long =
                !node.ready && self.now.duration_since(node.ready_since) >= NOT_READY_FOR + self.truth.clock_error;
            self.cluster.is_silent(&node.name) && is_long && !has_ended && node.deleting_at.is_none()
        };
        let silent = cluster.nodes().values().filter(counts).count();
        let all = cluster.nodes().len();
        (silent >= 3 && silent * 5 > all).then(|| format!("{silent} of {all} kubelets are silent"))
    }

    /// Pods of a node that could move: not those that tolerate its taint, and could come back to it.
    fn live_pods(&self, node: &Node) -> impl Iterator<Item = &Arc<Pod>> {
        let moves = |pod: &&Arc<Pod>| {
            let stays = matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static);
            !pod.is_terminal() && !stays && pod.shape.untolerated([&Taint::disrupted()]).is_some()
        };
        self.cluster.state().pods_on(&node.name).filter(moves)
    }
}
