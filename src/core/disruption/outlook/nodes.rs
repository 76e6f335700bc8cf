//! What keeps each node from being disrupted.

use super::super::candidate::eviction_cost;
use super::super::causes::{DriftReason, Expiry};
use super::obstacle::Obstacle;
use super::obstacles::Obstacles;
use super::{NextMove, NodeOutlook, consolidatable_from, expires_at, is_in_progress};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::{ConsolidationPolicy, DisruptionReason, NodePool};
use crate::snapshot::Snapshot;
use std::sync::Arc;

/// All nodes, with what keeps them; `awaits_launch`: pods wait for a node that is not launched yet.
pub(super) fn node_outlooks(obstacles: &Obstacles<'_>, moves: &[NextMove], awaits_launch: bool) -> Vec<NodeOutlook> {
    let joined = obstacles.input.snapshot.claims().values().filter(|claim| claim.status.registered.is_some());
    let outlook = |claim: &Arc<Claim>| {
        let is_of = |one: &NextMove| one.sources.iter().any(|source| source.claim == claim.name);
        let next_move = moves.iter().position(is_of);
        let of_move = next_move.and_then(|n| moves.get(n));
        let reason = of_move.and_then(|one| one.reason).unwrap_or_else(|| reason_of(obstacles, claim));
        NodeOutlook {
            claim: Arc::clone(claim),
            next_move,
            reason,
            obstacles: obstacles_of_node(obstacles, (claim, reason), of_move, awaits_launch),
            expires_at: expires_at(obstacles.input, claim),
        }
    };
    joined.map(outlook).collect()
}

/// What keeps a node, and what its move waits for.
fn obstacles_of_node(
    obstacles: &Obstacles<'_>,
    (claim, reason): (&Arc<Claim>, DisruptionReason),
    of_move: Option<&NextMove>,
    awaits_launch: bool,
) -> Vec<Obstacle> {
    let mut found = obstacles_of(obstacles, claim, reason);
    // A loop keeps only nodes that are replaced: those of which a move waits for it say so below.
    found.retain(|obstacle| of_move.is_none() || !obstacle.is_replacement_loop());
    match of_move {
        Some(one) if one.obstacles.is_empty() => {
            // It is among those that budgets allow.
            found.retain(|obstacle| !matches!(obstacle, Obstacle::Budget { .. }));
        }
        // One that expires goes whatever keeps it.
        Some(one) if one.reason.is_none() => {}
        Some(one) => {
            let more = one.obstacles.iter().filter(|obstacle| !found.contains(obstacle)).cloned();
            found.extend(more.collect::<Vec<_>>());
        }
        None if claim.is_ours() => {
            found.extend(obstacles.of_all());
            // Empty nodes are deleted all the same.
            found.extend((awaits_launch && reason != DisruptionReason::Empty).then_some(Obstacle::PendingPods));
        }
        None => {}
    }
    if found.is_empty() && of_move.is_none() {
        let is_for_price = matches!(reason, DisruptionReason::Empty | DisruptionReason::Underutilized);
        found.push(if is_for_price { Obstacle::NothingSaves } else { Obstacle::NoneFound });
    }
    found
}

/// The reason by which a node would be disrupted first.
fn reason_of(obstacles: &Obstacles<'_>, claim: &Claim) -> DisruptionReason {
    let input = obstacles.input;
    let is_told = |claim: &Claim| match claim.is_ours() {
        true => unseen_drift(input.snapshot, claim).is_some(),
        false => claim.status.drifted.is_some(),
    };
    if input.snapshot.deleted_pool_of(claim).is_some() && claim.is_ours() {
        DisruptionReason::NodePoolDeleted
    } else if Expiry::soon(claim, input.settings, input.now).is_some() && claim.is_ours() {
        DisruptionReason::Expiring
    } else if obstacles.drift_of(claim).is_some() || is_told(claim) {
        DisruptionReason::Drifted
    } else if is_empty(input.snapshot, claim) {
        DisruptionReason::Empty
    } else {
        DisruptionReason::Underutilized
    }
}

/// The node of a NodeClaim is empty as the decider sees it: the eviction of its pods costs nothing.
pub(super) fn is_empty(snapshot: &Snapshot, claim: &Claim) -> bool {
    let Some(node) = snapshot.node_of(claim) else { return true };
    let is_evicted = |pod: &&Arc<Pod>| matches!(pod.owner, PodOwner::Controller | PodOwner::Nobody);
    eviction_cost(snapshot.pods_on(&node.name).filter(is_evicted)) == 0
}

/// Why a NodeClaim has drifted as it says, where that cannot be seen since image or version of new nodes, or the sizes that have vanished, are not known.
pub(super) fn unseen_drift<'a>(snapshot: &Snapshot, claim: &'a Claim) -> Option<&'a Arc<str>> {
    let (recorded, base) = (claim.status.drifted.as_ref()?, &snapshot.node_base);
    let is = |reason: DriftReason| *recorded.reason == *reason.as_str();
    let is_unseen = (is(DriftReason::ImageDrift) && base.image.is_none())
        || (is(DriftReason::K8sVersionDrift) && base.kubernetes_version.is_none())
        || (is(DriftReason::InstanceTypeNotFound) && snapshot.infrastructure.vanished_sizes.is_none());
    is_unseen.then_some(&recorded.reason)
}

/// What keeps one node.
fn obstacles_of(obstacles: &Obstacles<'_>, claim: &Arc<Claim>, reason: DisruptionReason) -> Vec<Obstacle> {
    let input = obstacles.input;
    let mut found: Vec<Obstacle> = Vec::new();
    found.extend((!claim.is_ours()).then_some(Obstacle::OtherKarpenter));
    found.extend(claim.status.disrupted.map(Obstacle::BeingReplaced));
    found.extend(obstacles.blockers(claim, reason));
    let Some(pool) = claim.spec.pool.as_ref().and_then(|name| obstacles.pool(name)) else {
        found.push(Obstacle::NoPool);
        return found;
    };
    let is_for_price = matches!(reason, DisruptionReason::Empty | DisruptionReason::Underutilized);
    let is_fixed = pool.replicas.filter(|_| !pool.deletion.takes_nodes());
    found.extend(is_fixed.map(|_| if is_for_price { Obstacle::FixedSize } else { Obstacle::FixedSizeReplaced }));
    if is_for_price {
        found.extend(of_consolidation(obstacles, claim, pool));
    } else {
        let unseen = unseen_drift(input.snapshot, claim).filter(|_| reason != DisruptionReason::NodePoolDeleted);
        found.extend(unseen.cloned().map(Obstacle::DriftNotSeen));
        found.extend(obstacles.maintenance(claim).filter(|_| reason == DisruptionReason::Drifted));
    }
    let node = input.snapshot.node_of(claim).map(|node| &node.name);
    let is_awaited = || input.provision.awaited_claims(input.snapshot).contains(&claim.name);
    let is_nominated = input.provision.is_nominated(&claim.name, node, input.now)
        || (reason == DisruptionReason::Empty && is_awaited());
    found.extend((is_nominated || is_in_progress(input.snapshot, &claim.name)).then_some(Obstacle::Nominated));
    found.extend(obstacles.of_budgets(&[claim], reason));
    found
}

/// What `spec.disruption` of its NodePool says against the consolidation of a node.
fn of_consolidation(obstacles: &Obstacles<'_>, claim: &Claim, pool: &NodePool) -> Option<Obstacle> {
    let input = obstacles.input;
    if pool.disruption.consolidate_after.is_none() {
        return Some(Obstacle::NeverConsolidated);
    }
    if pool.disruption.policy == ConsolidationPolicy::WhenEmpty && !is_empty(input.snapshot, claim) {
        return Some(Obstacle::OnlyWhenEmpty);
    }
    let from = consolidatable_from(input.snapshot, claim)?;
    (from > input.now).then_some(Obstacle::ConsolidateAfter(from))
}
