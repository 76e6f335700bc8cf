//! What keeps each node from being disrupted.

use super::obstacle::Obstacle;
use super::obstacles::Obstacles;
use super::{NextMove, NextMoveReason, NodeOutlook, Source, consolidatable_from, expires_at, is_in_progress};
use crate::disruption::{DriftReason, Expiry, eviction_cost};
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pod::{Pod, PodOwner};
use crate::model::cluster::pool::{ConsolidationPolicy, DisruptionReason, NodePool};
use crate::snapshot::Snapshot;
use crate::static_capacity::PoolShortage;
use std::sync::Arc;

/// What the runs of the decider have found.
pub(super) struct Found<'a> {
    pub(super) moves: &'a [NextMove],
    /// NodePools of fixed size whose nodes cannot be replaced.
    pub(super) shortages: &'a [PoolShortage],
    /// Pods wait for a node that is not launched yet.
    pub(super) awaits_launch: bool,
}

/// All nodes, with what keeps them.
pub(super) fn node_outlooks(obstacles: &Obstacles<'_>, found: &Found<'_>) -> Vec<NodeOutlook> {
    let moves = found.moves;
    let joined = obstacles.input.snapshot.claims().values().filter(|claim| claim.status.registered.is_some());
    let outlook = |claim: &Arc<Claim>| {
        let is_of = |one: &NextMove| one.sources.iter().any(|source| source.claim == claim.name);
        let next_move = moves.iter().position(is_of);
        let of_move = next_move.and_then(|n| moves.get(n));
        let reason = of_move.and_then(|one| one.reason.disruption()).unwrap_or_else(|| reason_of(obstacles, claim));
        let (reason, obstacles_of_node) = match of_move {
            // Whatever else would be said of it, it goes.
            Some(one) if one.reason == NextMoveReason::ScaledDown => (one.reason, one.obstacles.clone()),
            _ => {
                let of_node = obstacles_of_node(obstacles, (claim, reason), of_move, found);
                (NextMoveReason::Disrupted(reason), of_node)
            }
        };
        let expires_at = expires_at(obstacles.input, claim);
        NodeOutlook { claim: Arc::clone(claim), next_move, reason, obstacles: obstacles_of_node, expires_at }
    };
    joined.map(outlook).collect()
}

/// What keeps a node, and what its move waits for.
fn obstacles_of_node(
    obstacles: &Obstacles<'_>,
    (claim, reason): (&Arc<Claim>, DisruptionReason),
    of_move: Option<&NextMove>,
    all: &Found<'_>,
) -> Vec<Obstacle> {
    let snapshot = obstacles.input.snapshot;
    let mut found = obstacles_of(obstacles, claim, reason);
    // A loop keeps only nodes that are replaced: those of which a move waits for it say so below.
    found.retain(|obstacle| of_move.is_none() || !obstacle.is_replacement_loop());
    match of_move {
        Some(one) if one.obstacles.is_empty() => {
            // It is among those that budgets allow.
            found.retain(|obstacle| !matches!(obstacle, Obstacle::Budget { .. }));
        }
        // One that expires goes whatever keeps it.
        Some(one) if one.reason.disruption().is_none() => {}
        Some(one) => {
            let more = one.obstacles.iter().filter(|obstacle| !found.contains(obstacle)).cloned();
            found.extend(more.collect::<Vec<_>>());
        }
        None if claim.is_ours() => {
            found.extend(obstacles.of_all());
            // Empty nodes are deleted, and those of a fixed size replaced, all the same.
            let waits = all.awaits_launch && reason != DisruptionReason::Empty && !is_of_fixed_size(snapshot, claim);
            found.extend(waits.then_some(Obstacle::PendingPods));
        }
        None => {}
    }
    if found.is_empty() && of_move.is_none() {
        let is_for_price = matches!(reason, DisruptionReason::Empty | DisruptionReason::Underutilized);
        let is_fixed = is_of_fixed_size(snapshot, claim);
        found.push(match (is_for_price, is_fixed) {
            (true, _) => Obstacle::NothingSaves,
            (false, true) => why_not_replaced(claim, all),
            (false, false) => Obstacle::NoneFound,
        });
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
    let is_fixed = is_of_fixed_size(input.snapshot, claim);
    found.extend((is_fixed && is_for_price).then_some(Obstacle::FixedSize));
    // That it is not outdated any more does not end it before the new node is ready.
    let replaced_for = if is_for_price { DisruptionReason::Drifted } else { reason };
    let is_replaced = is_fixed && obstacles.being_replaced(&pool.name).contains(&claim.name);
    found.extend(is_replaced.then_some(Obstacle::BeingReplaced(replaced_for)));
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
    let is_expected = is_nominated || is_in_progress(input.snapshot, &claim.name);
    // The replacement of a node of a fixed size is for pods that are expected on it too.
    found.extend((is_expected && (is_for_price || !is_fixed)).then_some(Obstacle::Nominated));
    found.extend(obstacles.of_budgets(&[claim], reason));
    found
}

/// Why no replacement of an outdated node was found whose NodePool has a fixed size.
fn why_not_replaced(claim: &Claim, all: &Found<'_>) -> Obstacle {
    let is_of_pool = |source: &Source| source.pool == claim.spec.pool;
    if all.moves.iter().flat_map(|one| &one.sources).any(is_of_pool) {
        return Obstacle::EarlierMoves;
    }
    let short = all.shortages.iter().find(|short| Some(&short.pool) == claim.spec.pool.as_ref());
    short.map_or(Obstacle::NoReplacement, |short| Obstacle::NotReplaceable(short.reason.clone()))
}

/// Its NodePool has a fixed number of nodes, which are replaced one for one; those of one that is deleted are not.
pub(super) fn is_of_fixed_size(snapshot: &Snapshot, claim: &Claim) -> bool {
    let pool = claim.spec.pool.as_ref().and_then(|name| snapshot.pools().get(name));
    pool.is_some_and(|pool| pool.replicas.is_some() && pool.deletion.requested_at.is_none())
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
