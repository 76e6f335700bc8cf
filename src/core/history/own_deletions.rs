//! Which NodeClaims this run of the controller has deleted, and why.
//!
//! Nothing on a NodeClaim tells who has requested its deletion. That is known from the requests that were sent.

use crate::model::cluster::claim::ClaimRef;
use crate::model::errors::{ClusterError, EffectError};
use crate::model::names::Uid;
use crate::plan::{ClusterWrite, Command, Effect, PlannedCommand, Reply};
use crate::snapshot::{CommandKey, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The deletions of NodeClaims that were requested, by their UIDs. Disposable: after a crash it is not known who has deleted
/// the NodeClaims without the condition `DisruptionReason`.
#[derive(Debug, Clone, Default)]
pub struct OwnDeletions(BTreeMap<Uid, OwnDeletion>);

/// A deletion that was requested.
#[derive(Debug, Clone)]
pub(super) struct OwnDeletion {
    claim: ClaimRef,
    /// The category for metrics.
    pub(super) category: &'static str,
    /// Why, for people.
    pub(super) reason: Arc<str>,
    /// The API server has not answered yet.
    is_open: bool,
}

impl OwnDeletions {
    /// An effect of a command begins.
    pub fn effect_started(&mut self, effect: &Effect, planned: Option<&PlannedCommand>, snapshot: &Snapshot) {
        let (Effect::Cluster(ClusterWrite::DeleteClaim(claim)), Some(planned)) = (effect, planned) else { return };
        self.0.retain(|uid, known| snapshot.claims().get(&known.claim.name).is_some_and(|claim| claim.uid == *uid));
        let category = match &planned.command {
            Command::DeleteClaim { category, .. } => category,
            _ => VM_LOST,
        };
        let reason = Arc::clone(&planned.reason);
        self.0.insert(claim.uid.clone(), OwnDeletion { claim: claim.clone(), category, reason, is_open: true });
    }

    /// An effect of a command has a reply. What was refused was not done by us.
    pub fn effect_replied(&mut self, key: &CommandKey, reply: &Result<Reply, EffectError>) {
        let CommandKey::Claim(name) = key else { return };
        let may_be_done = matches!(reply, Ok(_) | Err(EffectError::Cluster(ClusterError::Unavailable)));
        self.0.retain(|_, deletion| deletion.claim.name != *name || !deletion.is_open || may_be_done);
        self.0.values_mut().filter(|deletion| deletion.claim.name == *name).for_each(|one| one.is_open = false);
    }

    /// The deletion of a NodeClaim, if it was ours.
    pub(super) fn get(&self, uid: &Uid) -> Option<&OwnDeletion> {
        self.0.get(uid)
    }
}

/// The category of a NodeClaim that was deleted since Azure proved that its VM is lost.
pub(super) const VM_LOST: &str = "vm_lost";
