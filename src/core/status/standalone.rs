//! NodeClaims that somebody else has written.

use crate::model::cluster::claim::{Claim, LaunchFailure};
use crate::plan::{ClaimUpdate, Command, Plan};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// The reason of the condition `Launched`.
const REASON: &str = "StandaloneNodeClaim";
/// Its message.
const MESSAGE: &str = "napkeeper launches only NodeClaims that it creates itself for a NodePool: delete this one, and use a \
                       NodePool, with replicas for a fixed number of nodes";

/// Karpenter marks its own NodeClaims with its finalizer within seconds. One that is younger may be another Karpenter's.
const MIN_AGE: SignedDuration = SignedDuration::from_mins(1);

/// Refuses NodeClaims that neither napkeeper nor Karpenter has created, in their status: they are never launched.
pub(super) fn refuse_standalone_claims(snapshot: &Snapshot, now: Timestamp, plan: &mut Plan) {
    if snapshot.launch_hold.is_some() {
        return;
    }
    for claim in snapshot.claims().values().filter(|claim| is_standalone(claim) && is_undecided(claim)) {
        let due = claim.created_at + MIN_AGE;
        if due > now {
            plan.wake_at(due);
        } else if !snapshot.in_progress.contains(&CommandKey::Claim(claim.name.clone())) {
            let failure = LaunchFailure { at: now, code: Arc::from(REASON), message: Arc::from(MESSAGE) };
            let update = ClaimUpdate::LaunchFailed(failure);
            plan.push(Command::UpdateClaim { claim: claim.reference(), update }, "napkeeper did not create it");
        }
    }
}

fn is_standalone(claim: &Claim) -> bool {
    !claim.is_ours() && !claim.is_foreign() && claim.deleting_at.is_none()
}

fn is_undecided(claim: &Claim) -> bool {
    claim.status.launch_failed.is_none() && claim.status.launched.is_none()
}
