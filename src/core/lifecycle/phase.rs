//! Phases of a NodeClaim.

use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;

/// How far a NodeClaim has come. It moves down this list, and from anywhere to `Draining`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimPhase {
    /// Created, and not launched.
    Created,
    /// An intent is written: its VM, NIC or disk may exist.
    Launching,
    /// Every offering was refused.
    LaunchFailed,
    /// Its VM exists, and its Node has not joined.
    Launched,
    /// Its Node has joined, without the claim's finalizer, labels and taints.
    Joined,
    /// Its Node is registered, and not yet ready for pods.
    Registered,
    /// Its Node runs pods.
    Initialized,
    /// Its Node is deleted or being deleted.
    NodeMissing,
    /// It is being deleted.
    Draining,
}

impl ClaimPhase {
    /// The phase of a claim, given its Node.
    #[must_use]
    pub fn of(claim: &Claim, node: Option<&Node>) -> Self {
        let status = &claim.status;
        if claim.deleting_at.is_some() {
            return Self::Draining;
        }
        if status.launch_failed.is_some() {
            return Self::LaunchFailed;
        }
        if status.launched.is_none() {
            return if claim.intent.is_some() { Self::Launching } else { Self::Created };
        }
        match node {
            Some(node) if node.deleting_at.is_some() => Self::NodeMissing,
            None if status.registered.is_some() => Self::NodeMissing,
            None => Self::Launched,
            Some(_) if status.registered.is_none() => Self::Joined,
            Some(_) if status.initialized.is_none() => Self::Registered,
            Some(_) => Self::Initialized,
        }
    }
}
