//! The conditions of a NodeClaim whose node is being drained, as Karpenter names them.

use super::progress::BlockedDrain;
use super::volumes::DetachState;
use crate::lifecycle::ClaimReconciler;
use crate::model::cluster::claim::{Claim, TerminationCondition, TerminationConditions};
use crate::plan::{ClaimUpdate, Command};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Conditions whose write has had no effect are written again after this time.
const REWRITE_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// The counts of a PodDisruptionBudget are written at most this often.
const MESSAGE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Why a condition is `False`: the NodeClaim's termination grace period was over first.
const GRACE_PERIOD_ELAPSED: &str = "TerminationGracePeriodElapsed";

/// Conditions that were last written, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lifecycle) struct WrittenConditions {
    conditions: TerminationConditions,
    at: Timestamp,
}

/// Its pods have not left, and may be held back until then.
pub(super) fn draining(blocked: Option<&BlockedDrain>, held_until: Option<Timestamp>) -> TerminationConditions {
    let drained = match (blocked, held_until) {
        (Some(blocked), _) => {
            let condition = TerminationCondition::new(Some(false), "Blocked");
            TerminationCondition { message: Arc::from(blocked.to_string()), ..condition }
        }
        (None, Some(until)) => {
            let message = format!("pods leave when other nodes have room for them, at the latest from {until:.0} on");
            TerminationCondition { message: Arc::from(message), ..TerminationCondition::new(None, "Draining") }
        }
        (None, None) => TerminationCondition::new(None, "Draining"),
    };
    TerminationConditions { drained: Some(drained), ..TerminationConditions::default() }
}

/// Its pods have left, and their volumes have not.
pub(super) fn awaiting_volumes() -> TerminationConditions {
    TerminationConditions {
        drained: Some(TerminationCondition::new(Some(true), "Drained")),
        volumes_detached: Some(TerminationCondition::new(None, "AwaitingVolumeDetachment")),
        instance_terminating: None,
    }
}

/// Its VM is being deleted. `is_late` is past the end of the termination grace period.
pub(super) fn terminating(is_late: bool, volumes: DetachState) -> TerminationConditions {
    let drained = if is_late {
        TerminationCondition::new(Some(false), GRACE_PERIOD_ELAPSED)
    } else {
        TerminationCondition::new(Some(true), "Drained")
    };
    let volumes_detached = match volumes {
        DetachState::Detached => TerminationCondition::new(Some(true), "VolumesDetached"),
        DetachState::GracePeriodElapsed => TerminationCondition::new(Some(false), GRACE_PERIOD_ELAPSED),
        DetachState::Attached | DetachState::TimedOut => TerminationCondition::new(Some(false), "TimedOut"),
    };
    TerminationConditions {
        drained: Some(drained),
        volumes_detached: Some(volumes_detached),
        instance_terminating: Some(TerminationCondition::new(Some(true), "InstanceTerminating")),
    }
}

impl ClaimReconciler<'_> {
    /// Has the conditions of a NodeClaim written, if they have changed. Nothing waits for it.
    pub(super) fn tell(&mut self, claim: &Claim, conditions: TerminationConditions) {
        if claim.status.termination.include(&conditions) {
            return;
        }
        if let Some(written) = self.memory.conditions_written.get(&claim.name) {
            let status = |of: &TerminationConditions| of.drained.as_ref().and_then(|drained| drained.holds);
            let interval = if written.conditions == conditions {
                REWRITE_AFTER
            } else if status(&written.conditions) == status(&conditions) {
                MESSAGE_INTERVAL
            } else {
                SignedDuration::ZERO
            };
            let due = written.at + interval;
            if due > self.now {
                return self.plan.wake_at(due);
            }
        }
        let written = WrittenConditions { conditions: conditions.clone(), at: self.now };
        self.memory.conditions_written.insert(claim.name.clone(), written);
        let update = ClaimUpdate::Terminating(Box::new(conditions));
        let reason = "the state of its drain has changed";
        self.plan.push(Command::UpdateClaim { claim: claim.reference(), update }, reason);
    }
}
