//! Ends a drain in time: records when its termination grace period is over, and deletes pods early enough before.

use super::FORCE_DRAIN_AFTER;
use crate::lifecycle::ClaimReconciler;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Pod;
use crate::model::settings::DisruptionScope;
use crate::plan::Command;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// A deadline that could not be written is written again after this time. A notice of Azure leaves 30 s.
const DEADLINE_RETRY: SignedDuration = SignedDuration::from_secs(2);
/// Least time that a pod gets to end. With 0 it would be removed at once, while its containers run.
const LEAST_GRACE: SignedDuration = SignedDuration::from_secs(1);

impl ClaimReconciler<'_> {
    /// When the drain of a NodeClaim must be over, as far as is known, whether that is recorded yet or not.
    pub(super) fn drain_end(&mut self, claim: &Claim, node: Option<&Node>) -> Option<Timestamp> {
        claim.drain_deadline().into_iter().chain(self.forceful_deadline(claim, node)).min()
    }

    /// Has the deadline written on the NodeClaim where it has none, or a later one; true if it is written now.
    pub(super) fn record_deadline(&mut self, claim: &Claim, deadline: Timestamp) -> bool {
        let is_recorded = claim.termination_at.is_some_and(|recorded| recorded <= deadline);
        let tried = self.memory.deadlines_recorded.get(&claim.name).map(|at| *at + DEADLINE_RETRY);
        if is_recorded || tried.is_some_and(|again| again > self.now) {
            return false;
        }
        self.memory.deadlines_recorded.insert(claim.name.clone(), self.now);
        let command = Command::RecordDeadline { claim: claim.reference(), deadline };
        self.plan.push(command, "its pods must leave until then");
        true
    }

    /// Deletes pods for which only their own grace period is left, or less, past PodDisruptionBudgets and
    /// `karpenter.sh/do-not-disrupt`. Those that are being deleted get less time if theirs ends too late.
    pub(super) fn delete_expiring(&mut self, deadline: Timestamp, pods: &[Arc<Pod>]) {
        let latest = deadline.max(self.now).saturating_add(LEAST_GRACE).unwrap_or(Timestamp::MAX);
        for pod in pods.iter().filter(|pod| ends_by(pod).is_none_or(|end| end > latest)) {
            let due = must_be_asked_at(pod, deadline);
            if due > self.now {
                self.plan.wake_at(due);
            } else {
                let grace = deadline.duration_since(self.now).max(LEAST_GRACE);
                self.delete_pod(pod, grace, "the termination grace period of its node ends");
            }
        }
    }

    /// When the VM is deleted although pods are left; `None` while these need not end yet, or must not be asked to. They get
    /// time to end also where nothing could be decided around the deadline.
    pub(super) fn forced_at(&mut self, claim: &Claim, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let deadline = claim.drain_deadline()?;
        if self.snapshot.pause.blocks_disruption(&DisruptionScope::of(claim, claim.status.disrupted), self.now) {
            self.memory.expiring_since.remove(&claim.name);
            return None;
        }
        if !pods.iter().any(|pod| must_be_asked_at(pod, deadline) <= self.now) {
            return None;
        }
        let since = *self.memory.expiring_since.entry(claim.name.clone()).or_insert(self.now);
        Some(deadline.max(since) + FORCE_DRAIN_AFTER)
    }
}

/// When a pod that was asked to end does so at the latest; `None` for others.
fn ends_by(pod: &Pod) -> Option<Timestamp> {
    Some(pod.deleting_at?.saturating_add(pod.termination_grace).unwrap_or(Timestamp::MAX))
}

/// When a pod must be asked to end, so that it does by the deadline.
fn must_be_asked_at(pod: &Pod, deadline: Timestamp) -> Timestamp {
    deadline.saturating_sub(pod.termination_grace).unwrap_or(Timestamp::MIN)
}
