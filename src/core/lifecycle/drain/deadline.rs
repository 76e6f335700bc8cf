//! Ends a drain in time: records when its termination grace period is over, and deletes pods early enough before.

use crate::lifecycle::{ClaimReconciler, LAUNCH_RETRY};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::Pod;
use crate::plan::Command;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Least time that a pod gets to end. With 0 it would be removed at once, while its containers run.
const LEAST_GRACE: SignedDuration = SignedDuration::from_secs(1);

impl ClaimReconciler<'_> {
    /// Has the deadline written on the NodeClaim where it has none, or a later one; true if it is written now. It is known
    /// without it: a failed write delays nothing.
    pub(super) fn record_deadline(&mut self, claim: &Claim, deadline: Timestamp) -> bool {
        let is_recorded = claim.termination_at.is_some_and(|recorded| recorded <= deadline);
        let tried = self.memory.deadlines_recorded.get(&claim.name).map(|at| *at + LAUNCH_RETRY);
        if is_recorded || tried.is_some_and(|again| again > self.now) {
            return false;
        }
        self.memory.deadlines_recorded.insert(claim.name.clone(), self.now);
        let command = Command::RecordDeadline { claim: claim.reference(), deadline };
        self.plan.push(command, "its pods must leave until then");
        true
    }

    /// Deletes pods for which only their own grace period is left, or less, past PodDisruptionBudgets and
    /// `karpenter.sh/do-not-disrupt`.
    pub(super) fn delete_expiring(&mut self, deadline: Timestamp, pods: &[Arc<Pod>]) {
        for pod in pods.iter().filter(|pod| pod.deleting_at.is_none()) {
            let due = deadline.saturating_sub(pod.termination_grace).unwrap_or(Timestamp::MIN);
            if due > self.now {
                self.plan.wake_at(due);
            } else {
                let grace = deadline.duration_since(self.now).max(LEAST_GRACE);
                self.delete_pod(pod, grace, "the termination grace period of its node ends");
            }
        }
    }
}
