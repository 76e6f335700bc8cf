//! What the deletion of a NodePool waits for.
//!
//! Without more Kubernetes would delete all its NodeClaims at once. So each NodePool has our finalizer, and no NodePool owns its
//! NodeClaims: its nodes are taken away within its last budgets, and then the finalizer is removed.

use super::is_in_progress;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::status::PoolDeletion;
use crate::model::names::{NodePoolName, Uid};
use crate::model::settings::{ControllerMode, DisruptionScope, Settings};
use crate::plan::{Command, Plan, PoolRelease};
use crate::provisioning::CLAIM_SUFFIX_LENGTH;
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Puts our finalizer on NodePools, and takes it off those whose nodes are gone. Deletes NodeClaims of deleted NodePools that
/// have no node yet.
pub fn reconcile_pool_deletions(snapshot: &Snapshot, settings: &Settings, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if settings.mode == ControllerMode::Companion {
        return plan;
    }
    let pools = pools(snapshot);
    for (name, (uid, deletion)) in &pools {
        if !snapshot.in_progress.contains(&CommandKey::Pool(NodePoolName::clone(name))) {
            reconcile_finalizer(snapshot, (name, uid), *deletion, &mut plan);
        }
    }
    let claims = snapshot.claims().values().filter(|claim| claim.is_ours() && claim.deleting_at.is_none());
    for claim in claims.filter(|claim| !is_in_progress(snapshot, &claim.name)) {
        let Some((_, deletion)) = claim.spec.pool.as_ref().and_then(|name| pools.get(name)) else { continue };
        if deletion.takes_nodes() && claim.status.registered.is_none() {
            delete_without_node(snapshot, claim, now, &mut plan);
        } else if claim.owned_by_pool && deletion.has_finalizer {
            let command = Command::DisownClaim { claim: claim.reference() };
            plan.push(command, "its NodePool waits for it by a finalizer instead");
        }
    }
    plan
}

/// All NodePools, also those that cannot be read, and how far their deletion is.
fn pools(snapshot: &Snapshot) -> BTreeMap<&NodePoolName, (&Uid, PoolDeletion)> {
    let valid = snapshot.pools().values().map(|pool| (&pool.name, (&pool.uid, pool.deletion)));
    let invalid = snapshot.invalid_pools().values().map(|pool| (&pool.name, (&pool.uid, pool.deletion)));
    valid.chain(invalid).collect()
}

fn reconcile_finalizer(
    snapshot: &Snapshot,
    (name, uid): (&NodePoolName, &Uid),
    deletion: PoolDeletion,
    plan: &mut Plan,
) {
    let PoolDeletion { requested_at, has_finalizer, keeps_nodes } = deletion;
    let release = || PoolRelease { pool: name.clone(), uid: uid.clone(), keeps_nodes };
    let release = || Command::ReleasePool(Box::new(release()));
    match (requested_at, has_finalizer) {
        // While nothing may be launched, the NodePools may be another Karpenter's.
        (None, false) if snapshot.launch_hold.is_none() => {
            let command = Command::HoldPool { pool: name.clone(), uid: uid.clone() };
            plan.push(command, "its deletion has to wait for its nodes");
        }
        (Some(_), true) if keeps_nodes => {
            plan.push(release(), "it is deleted with --cascade=orphan: its nodes are kept")
        }
        (Some(_), true) if !has_claims(snapshot, name) => {
            plan.push(release(), "it is being deleted, and has no nodes left")
        }
        _ => {}
    }
}

/// A NodeClaim of ours of this NodePool exists, or may be created right now.
fn has_claims(snapshot: &Snapshot, pool: &NodePoolName) -> bool {
    let is_of = |claim: &Arc<Claim>| claim.is_ours() && claim.spec.pool.as_ref() == Some(pool);
    let may_be_created = |key: &CommandKey| match key {
        CommandKey::Claim(name) => {
            let stem =
                name.as_str().len().checked_sub(CLAIM_SUFFIX_LENGTH + 1).and_then(|end| name.as_str().get(..end));
            stem == Some(pool.as_str()) && snapshot.claims().get(name).is_none()
        }
        _ => false,
    };
    snapshot.claims().values().any(is_of) || snapshot.in_progress.iter().any(may_be_created)
}

fn delete_without_node(snapshot: &Snapshot, claim: &Claim, now: Timestamp, plan: &mut Plan) {
    let reason = DisruptionReason::NodePoolDeleted;
    if !snapshot.pause.blocks_disruption(&DisruptionScope::of(claim, Some(reason)), now) {
        let command = Command::delete_claim(claim.reference(), reason.category());
        plan.push(command, "its NodePool is being deleted, and it has no node yet");
    }
}
