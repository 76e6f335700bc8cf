//! Taints nodes that may soon be deleted, so that kube-scheduler prefers other nodes for new and evicted pods.
//!
//! kube-scheduler prefers nodes with much free capacity: exactly those that consolidation is about to delete, where each new
//! pod has to move again. So nodes that can be deleted together with those that are deleted now, but must wait for
//! `consolidateAfter`, a budget or the payback, get the taint `napkeeper.io/underutilized` with the effect
//! `PreferNoSchedule`; and so do the nodes of deleted NodePools. It keeps no pod away: where nothing else has room, they are used
//! like any other. Without the taint nothing is lost but this preference, so it is not remembered.

use super::super::candidate::Candidate;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::Taint;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::labels::{TAINT_DISRUPTED, TAINT_UNDERUTILIZED};
use crate::model::names::ClaimName;
use crate::model::settings::DisruptionScope;
use crate::plan::{NodeUpdate, Plan};
use crate::snapshot::{CommandKey, Snapshot};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most writes of soft taints in one pass, as in the cluster autoscaler (`--max-bulk-soft-taint-count`).
const MAX_WRITES: usize = 10;
/// The same for nodes of deleted NodePools: evicted pods must not go from one to the next.
const MAX_WRITES_OF_DELETED: usize = 100;

/// True when a node has the taint.
pub(super) fn is_soft_tainted(candidate: &Candidate<'_>) -> bool {
    candidate.node.is_tainted(TAINT_UNDERUTILIZED)
}

/// Taints the nodes of these NodeClaims, and removes the taint from all others.
pub(super) fn soft_taint(snapshot: &Snapshot, wanted: &BTreeSet<ClaimName>, plan: &mut Plan) {
    let mut writes = 0;
    let in_plan: BTreeSet<CommandKey> = plan.commands.iter().map(|planned| planned.command.key()).collect();
    let is_standing = |claim: &&Arc<Claim>| claim.is_ours() && claim.deleting_at.is_none();
    for claim in snapshot.claims().values().filter(is_standing) {
        if snapshot.deleted_pool_of(claim).is_some() {
            continue;
        }
        let Some(node) = snapshot.node_of(claim) else { continue };
        let is_wanted = wanted.contains(&claim.name);
        let is_tainted = node.taints.contains(&Taint::underutilized());
        let is_busy = node.deleting_at.is_some()
            || node.is_tainted(TAINT_DISRUPTED)
            || in_plan.contains(&CommandKey::Claim(claim.name.clone()))
            || snapshot.in_progress.contains(&CommandKey::Node(node.name.clone()));
        if is_wanted == is_tainted || is_busy || writes == MAX_WRITES {
            continue;
        }
        writes += 1;
        let taint = Taint::underutilized();
        if is_wanted {
            let reason = "it may soon be deleted: new pods prefer other nodes";
            plan.update_node(node, NodeUpdate::AddTaint(taint), reason);
        } else {
            let reason = "its pods or pending ones have no room on other nodes, or it must not be disrupted";
            plan.update_node(node, NodeUpdate::RemoveTaint(taint), reason);
        }
    }
}

/// Taints our nodes of deleted NodePools, which stay tainted.
pub(in crate::disruption) fn soft_taint_deleted_pools(snapshot: &Snapshot, now: Timestamp, plan: &mut Plan) {
    let is_free = |node: &&Arc<Node>| {
        let is_tainted = node.taints.contains(&Taint::underutilized()) || node.is_tainted(TAINT_DISRUPTED);
        let is_paused = |claim| {
            let disrupted = DisruptionScope::of(claim, Some(DisruptionReason::NodePoolDeleted));
            snapshot.pause.blocks_disruption(&disrupted, now)
        };
        !is_tainted
            && node.deleting_at.is_none()
            && !snapshot.in_progress.contains(&CommandKey::Node(node.name.clone()))
            && snapshot.claim_of(node).is_some_and(|claim| claim.is_ours() && !is_paused(claim))
    };
    for node in snapshot.nodes_of_deleted_pools().filter(is_free).take(MAX_WRITES_OF_DELETED) {
        let reason = "its NodePool is being deleted: new pods prefer other nodes";
        plan.update_node(node, NodeUpdate::AddTaint(Taint::underutilized()), reason);
    }
}
