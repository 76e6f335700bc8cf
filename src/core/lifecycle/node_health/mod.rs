//! Deletes NodeClaims whose nodes are unhealthy (repair) or about to be lost (interruption), by the configured signs.
//!
//! Like Karpenter's forceful methods, neither waits for budgets, PodDisruptionBudgets, `karpenter.sh/do-not-disrupt` or a
//! replacement; but the nodes count in budgets. The reason is written on the NodeClaim first. It is deleted once that is to be
//! seen and a fresh read of the Node shows the sign, and then gets the deadline of its drain: a restart finds both, and a mark
//! whose node is healthy again is removed.

mod delete;
mod signs;
mod unhealthy_share;

use super::ClaimReconciler;
use crate::catalog::CapacityType;
use crate::model::cluster::claim::{Claim, ForcefulReason};
use crate::model::cluster::node::Node;
use crate::model::names::NodeName;
use crate::model::settings::{DisruptionScope, NodeHealthAction, NodeHealthRule, NodeSign};
use crate::plan::{ClaimUpdate, Command, SignOnNode};
pub use delete::DeleteIfUnhealthyScript;
use jiff::{SignedDuration, Timestamp};
use signs::Sign;
use std::collections::BTreeMap;
use std::sync::Arc;
use unhealthy_share::counts_no_longer;
pub(super) use unhealthy_share::{RecentRepairs, UnhealthyShares};
pub use unhealthy_share::{RepairBlock, UnhealthyShare};

/// How long a notice of Azure is, where it does not say it: that of a spot VM.
const NOTICE: SignedDuration = SignedDuration::from_secs(30);

/// A NodeClaim is tried to be deleted at most this often, each time after a fresh read of its Node.
const DELETION_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// For how long a spot node must have been in use for its eviction to be believed however many there are.
const EVICTED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Since when configured taints have been seen on nodes, by their keys. Disposable: the API server does not record it for
/// most taints, so that after a restart one is tolerated anew.
pub(super) type TaintedSince = BTreeMap<(NodeName, Arc<str>), Timestamp>;

impl ClaimReconciler<'_> {
    /// Takes the next step towards the deletion of a NodeClaim whose node is unhealthy or about to be lost; false where
    /// there is none to take.
    pub(super) fn disrupt_forcefully(&mut self, claim: &Claim, node: &Node) -> bool {
        let found = self.interruption(claim, node).or_else(|| self.repair(claim, node));
        let (Some((reason, sign)), Some(vm)) = (found, &node.provider_id) else { return self.take_back(claim, node) };
        if claim.status.forced != Some(reason) {
            let update = ClaimUpdate::Forced(reason);
            self.plan.push(Command::UpdateClaim { claim: claim.reference(), update }, sign.to_string());
            return true;
        }
        let tried = self.memory.forced_deletions_tried.get(&claim.name).map(|at| *at + DELETION_RETRY);
        if let Some(again) = tried.filter(|again| *again > self.now) {
            self.plan.wake_at(again);
            return true;
        }
        self.memory.forced_deletions_tried.insert(claim.name.clone(), self.now);
        let only_if = Some(Box::new(SignOnNode { vm: vm.clone(), uid: node.uid.clone(), rule: sign.rule.clone() }));
        let command = Command::DeleteClaim { claim: claim.reference(), category: reason.category(), only_if };
        self.plan.push(command, format!("node {}: {sign}", node.name));
        true
    }

    /// When the drain of a NodeClaim must be over because of its node: at once where it is deleted for being unhealthy, as with
    /// Karpenter, unless it is healthy again; and when Azure takes the VM away, as far as that is known, for whatever reason it
    /// is drained.
    pub(super) fn forceful_deadline(&mut self, claim: &Claim, node: Option<&Node>) -> Option<Timestamp> {
        let deleting_at = claim.deleting_at?;
        let is_interrupted = match claim.status.forced {
            Some(ForcefulReason::Unhealthy) => {
                let is_unhealthy = node.is_none_or(|node| self.first_sign(node, NodeHealthAction::Repair).is_some());
                return is_unhealthy.then_some(deleting_at);
            }
            Some(ForcefulReason::Interrupted | ForcefulReason::Preempted) => true,
            None => {
                self.interruption(claim, node?)?;
                false
            }
        };
        let announced = node.and_then(|node| self.announced_end(node, deleting_at));
        // Where nothing is recorded, what was announced is not known any more.
        announced.or_else(|| (is_interrupted && claim.termination_at.is_none()).then_some(deleting_at + NOTICE))
    }

    /// When Azure takes a VM away, by the earliest of all notices. Where one is over and the VM is still there, the pods get as
    /// long again.
    fn announced_end(&mut self, node: &Node, deleting_at: Timestamp) -> Option<Timestamp> {
        let signs = self.signs(node, NodeHealthAction::Interruption);
        let ends = signs.iter().filter(|sign| sign.due <= self.now).map(|sign| {
            let known = [sign.not_before, Some(sign.since + NOTICE)].into_iter().flatten();
            known.into_iter().find(|at| *at > deleting_at).unwrap_or(deleting_at + NOTICE)
        });
        ends.min()
    }

    /// Why Azure is about to take the VM of a node in use away. During an outage only where the node reports it itself; and, but
    /// for evictions of spot VMs, not while too many are unhealthy.
    fn interruption(&mut self, claim: &Claim, node: &Node) -> Option<(ForcefulReason, Sign)> {
        claim.status.initialized.filter(|_| !self.is_paused(claim))?;
        let mut due = self.signs(node, NodeHealthAction::Interruption);
        due.retain(|sign| self.is_due(sign));
        if due.is_empty() || !(node.ready || self.memory.outage.is_none()) {
            return None;
        }
        // Of several notices that of an eviction is for the next moments.
        if let Some(eviction) = due.iter().find(|sign| is_eviction(claim, sign, self.now)) {
            return Some((ForcefulReason::Preempted, eviction.clone()));
        }
        match self.share_block(claim) {
            Some(block) => self.note_blocked(node, block),
            None => Some((ForcefulReason::Interrupted, due.into_iter().min_by_key(|sign| sign.due)?)),
        }
    }

    /// Why a node is unhealthy for longer than is tolerated; not while too many are. One that is not in use yet has other
    /// limits.
    fn repair(&mut self, claim: &Claim, node: &Node) -> Option<(ForcefulReason, Sign)> {
        claim.status.initialized.filter(|_| !self.is_paused(claim))?;
        let sign = self.first_sign(node, NodeHealthAction::Repair)?;
        if !self.is_due(&sign) {
            return None;
        }
        match self.repair_block(claim, node) {
            Some(block) => self.note_blocked(node, block),
            None => Some((ForcefulReason::Unhealthy, sign)),
        }
    }

    /// A node has been unhealthy for longer than is tolerated.
    pub(super) fn is_unhealthy(&mut self, node: &Node) -> bool {
        let sign = self.first_sign(node, NodeHealthAction::Repair);
        sign.is_some_and(|sign| self.is_due(&sign))
    }

    /// Notes why nothing follows from what a node shows.
    fn note_blocked<T>(&mut self, node: &Node, block: RepairBlock) -> Option<T> {
        self.memory.blocked_repairs.insert(node.name.clone(), block);
        if let Some(end) = self.memory.recent_repairs.next_end() {
            self.plan.wake_at(end);
        }
        None
    }

    /// A pause of a reason of budgets is none of these reasons.
    fn is_paused(&self, claim: &Claim) -> bool {
        let disrupted = DisruptionScope::of(claim, None);
        self.snapshot.pause.blocks_disruption(&disrupted, self.now)
    }

    /// Why an unhealthy node is not repaired now.
    fn repair_block(&mut self, claim: &Claim, node: &Node) -> Option<RepairBlock> {
        if let Some(outage) = self.memory.outage {
            return Some(RepairBlock::Outage(outage));
        }
        self.launch_block(claim, node).or_else(|| self.share_block(claim))
    }

    /// Why no node would be launched in the place of an unhealthy one.
    fn launch_block(&self, claim: &Claim, node: &Node) -> Option<RepairBlock> {
        let snapshot = self.snapshot;
        if snapshot.holds_launches(self.now) {
            let held = snapshot.launch_hold.as_ref().map(|hold| Arc::from(hold.to_string()));
            let reason = held.unwrap_or_else(|| Arc::from("launches are paused"));
            return Some(RepairBlock::NoLaunches { pool: None, reason });
        }
        let pool = claim.spec.pool.as_ref()?;
        let reason = match snapshot.pool_hold(pool) {
            // Its pods may have nowhere else to go, but where it is not ready they do not serve here either.
            Some(_) if !node.ready && snapshot.deleted_pool_of(claim).is_some() => return None,
            Some(held) => held,
            None if snapshot.is_unreadable_pool(pool) => Arc::from(format!("NodePool {pool} cannot be read")),
            None => return None,
        };
        Some(RepairBlock::NoLaunches { pool: Some(pool.clone()), reason })
    }

    /// Why no more nodes of its NodePool are deleted for what they show.
    fn share_block(&mut self, claim: &Claim) -> Option<RepairBlock> {
        let Self { snapshot, settings, memory, now, .. } = self;
        let is_unhealthy = |node: &Node, claim: Option<&Claim>| {
            let mut signs = settings
                .node_health
                .all()
                .iter()
                .filter_map(|rule| Some((rule.action, signs::seen(rule, node, &memory.tainted_since, *now)?)));
            signs.any(|(action, sign)| match action {
                NodeHealthAction::Repair => true,
                NodeHealthAction::Interruption => {
                    !claim.is_some_and(|claim| is_eviction(claim, &sign, *now) || counts_no_longer(claim, *now))
                }
            })
        };
        let count = || UnhealthyShares::of(snapshot, &memory.recent_repairs, is_unhealthy, *now);
        let shares = self.unhealthy.get_or_insert_with(count);
        shares.block(claim.spec.pool.as_ref())
    }

    /// The sign of this action that is tolerated for the shortest time from now on.
    fn first_sign(&mut self, node: &Node, action: NodeHealthAction) -> Option<Sign> {
        self.signs(node, action).into_iter().min_by_key(|sign| sign.due)
    }

    /// The signs of this action that are seen on a node.
    fn signs(&mut self, node: &Node, action: NodeHealthAction) -> Vec<Sign> {
        self.note_taints(node);
        let (rules, tainted) = (&self.settings.node_health, &self.memory.tainted_since);
        rules.of(action).filter_map(|rule| signs::seen(rule, node, tainted, self.now)).collect()
    }

    /// Notes since when configured taints have been seen on a node.
    fn note_taints(&mut self, node: &Node) {
        let (rules, now) = (Arc::clone(&self.settings.node_health), self.now);
        let is_seen = |rule: &&NodeHealthRule| matches!(&rule.sign, NodeSign::Taint(key) if node.is_tainted(key));
        for rule in rules.all().iter().filter(is_seen) {
            if let NodeSign::Taint(key) = &rule.sign {
                let since = self.memory.tainted_since.entry((node.name.clone(), Arc::clone(key))).or_insert(now);
                // Later ones are from before the clock was set back.
                *since = now.min(*since);
            }
        }
    }

    /// True when a sign is tolerated no longer.
    fn is_due(&mut self, sign: &Sign) -> bool {
        if sign.due > self.now {
            self.plan.wake_at(sign.due);
        }
        sign.due <= self.now
    }

    /// Removes the mark of a NodeClaim whose node is healthy again, or must not be repaired now.
    fn take_back(&mut self, claim: &Claim, node: &Node) -> bool {
        if claim.status.forced.is_none() {
            return false;
        }
        // A taint that a move is writing would stay.
        if !self.is_in_progress(node) {
            let command = Command::UpdateClaim { claim: claim.reference(), update: ClaimUpdate::NotDisrupted };
            self.plan.push(command, "it is not deleted after all");
        }
        true
    }
}

/// Azure announces the eviction of a spot VM that has run for a while. One after the other it evicts seldom: a sign that new
/// nodes show at once is limited as any other.
fn is_eviction(claim: &Claim, sign: &Sign, now: Timestamp) -> bool {
    let capacity_type = claim.intent.as_ref().map(|intent| intent.offering.key.capacity_type);
    let has_run = claim.status.initialized.is_some_and(|at| now.duration_since(at) >= EVICTED_AFTER);
    sign.is_preemption && capacity_type == Some(CapacityType::Spot) && has_run
}
