//! Waits until the volumes of a drained node are detached, so that they can be attached elsewhere at once.
//!
//! A VM that is deleted with volumes attached leaves their VolumeAttachments behind: kube-controller-manager then waits for 6
//! min before it detaches them by force.

use crate::lifecycle::ClaimReconciler;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::names::ObjectName;
use jiff::SignedDuration;
use std::collections::BTreeSet;

/// Volumes are waited for at most so long after the pods have left: from then on kube-controller-manager detaches them by
/// force (`maxWaitForUnmountDuration`), so that waiting gains nothing.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(6);

/// The volumes of a node whose pods have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DetachState {
    /// They are waited for.
    Attached,
    /// They are attached, and have been waited for long enough.
    TimedOut,
    /// They are attached, and the termination grace period is over.
    GracePeriodElapsed,
    /// They are detached.
    Detached,
}

impl ClaimReconciler<'_> {
    /// Whether the volumes of a node are waited for.
    pub(super) fn detach_state(&mut self, claim: &Claim, node: &Node) -> DetachState {
        if !self.has_volumes(node) {
            return DetachState::Detached;
        }
        let since = *self.memory.volumes_awaited.entry(node.name.clone()).or_insert(self.now);
        let end = since.saturating_add(LONGEST_WAIT).unwrap_or(since);
        let deadline = claim.drain_deadline();
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            return DetachState::GracePeriodElapsed;
        }
        if end <= self.now {
            return DetachState::TimedOut;
        }
        self.plan.wake_at(deadline.map_or(end, |deadline| end.min(deadline)));
        DetachState::Attached
    }

    /// True while a volume is attached to a node that no pod there keeps, as one does that tolerates the taint.
    pub(in crate::lifecycle) fn has_volumes(&self, node: &Node) -> bool {
        let mut attached = self.snapshot.attachments_of(&node.name).peekable();
        if attached.peek().is_none() {
            return false;
        }
        let remaining = self.snapshot.pods_on(&node.name).filter(|pod| !pod.is_terminal());
        let claims = remaining.flat_map(|pod| pod.claims().collect::<Vec<_>>());
        let kept: BTreeSet<ObjectName> =
            claims.filter_map(|claim| self.snapshot.volume_claims().get(&claim)?.volume.clone()).collect();
        let is_awaited = |volume: &Option<ObjectName>| volume.as_ref().is_none_or(|volume| !kept.contains(volume));
        attached.any(|attachment| is_awaited(&attachment.volume))
    }
}
