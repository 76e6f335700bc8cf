//! Disruption: expiration, emptiness and consolidation.
//!
//! In this order: expired nodes (`expireAfter`, outside budgets as in Karpenter), empty nodes, those that expire soon, those
//! whose NodePool is being deleted, those that have drifted, and sets of nodes whose pods fit elsewhere or on cheaper nodes
//! (`moves`). What is found for its price must hold for 15 s before it is acted on. While many nodes are not ready nothing is
//! disrupted.

mod balanced;
mod blockers;
mod budget;
pub mod budget_calendar;
mod candidate;
mod causes;
mod moves;
mod pool_deletion;
mod replacement_loops;

use crate::lifecycle::NodeOutage;
use crate::model::cluster::pool::{ConsolidationPolicy, DisruptionReason};
use crate::model::names::{ClaimName, NodeName, NodePoolName};
use crate::model::settings::{ControllerMode, DisruptionScope, PauseSwitch, Settings};
use crate::plan::{Command, Plan, Preconditions};
use crate::provisioning::ProvisionMemory;
use crate::provisioning::capacity_buffers::BufferCapacity;
use crate::scheduling::OfferingsCache;
use crate::snapshot::{CommandKey, Snapshot};
use balanced::BalancedPools;
pub use blockers::{DisruptionBlocker, PossibleDisruption, disruption_blockers};
use budget::RemainingBudgets;
pub(crate) use budget::initialized_nodes;
pub use budget::remaining_disruptions as budget_left;
pub use budget::{allowed_disruptions, counted_nodes, is_active};
use candidate::{Candidate, disruption_candidates, outdated_candidates};
pub(crate) use candidate::{current_price, eviction_cost, passes_blockers};
pub use causes::{DeletedPool, Drift, DriftDetector, DriftReason, Expiry, ReplacementCause, VanishedSize};
use causes::{VanishedSizes, delete_expired, expiring, of_deleted_pools, record_drift};
use jiff::{SignedDuration, Timestamp};
pub use moves::PodWithoutRoom;
use moves::{
    Move, MoveMemory, Outdated, ReservedRoom, Search, SimulationInput, consolidate, continue_moves,
    deletion_worth_from, replace_outdated, soft_taint_deleted_pools,
};
pub use pool_deletion::reconcile_pool_deletions;
pub use replacement_loops::{ReplacementLoop, ReplacementLoops};
use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a finding must hold before it is acted on, as in Karpenter.
const VALIDATION_DELAY: SignedDuration = SignedDuration::from_secs(15);

/// Retry delay of nodes that a budget blocks: its window opens without a change of any object.
pub(crate) const BUDGET_RETRY: SignedDuration = SignedDuration::from_mins(1);

/// How often disruption is considered while a budget keeps nodes that would be deleted, since each that goes makes room for
/// another; and how often at the most.
const BLOCKED_INTERVAL: SignedDuration = SignedDuration::from_secs(2);

/// Memory of disruption. After a crash a finding must hold for 15 s again; moves in progress are found on their objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DisruptionMemory {
    /// Since when each claim has been found empty without interruption.
    empty_since: BTreeMap<ClaimName, Timestamp>,
    /// When each NodePool has last launched a node for pods that waited.
    launches: BTreeMap<NodePoolName, Timestamp>,
    /// When it was last decided.
    decided_at: Option<Timestamp>,
    /// When disruption was last considered.
    last_pass: Option<Timestamp>,
    /// When the next node has been found for long enough that it may be deleted, or when that is worth it.
    next_validation: Option<Timestamp>,
    /// Sets of nodes that are disrupted together.
    moves: MoveMemory,
    vanished_sizes: VanishedSizes,
    offerings: OfferingsCache,
}

impl DisruptionMemory {
    /// Nodes that should be replaced, with pods that could be scheduled nowhere else when that was last tried.
    #[must_use]
    pub fn irreplaceable(&self) -> BTreeMap<ClaimName, PodWithoutRoom> {
        self.moves.irreplaceable()
    }

    /// How many nodes could be disrupted for each reason if budgets allowed it, by the last pass: for metrics.
    #[must_use]
    pub fn eligible(&self) -> &BTreeMap<DisruptionReason, usize> {
        &self.moves.eligible
    }

    /// In the last pass no set of nodes was looked for, since pods wait for a node that is not launched yet.
    pub(crate) fn awaits_launch(&self) -> bool {
        self.moves.awaits_launch
    }

    /// The move of which a node is a source.
    pub(crate) fn move_of(&self, claim: &ClaimName) -> Option<&Move> {
        self.moves.move_of(claim)
    }
}

/// Since when the deletion of nodes for their price has been worth it, by NodeClaim; without those of which it is not.
pub(crate) fn deletions_worth_from(
    snapshot: &Snapshot,
    provision: &ProvisionMemory,
    memory: &DisruptionMemory,
    now: Timestamp,
) -> BTreeMap<ClaimName, Timestamp> {
    let candidates = disruption_candidates(snapshot, provision, &memory.launches, now, &mut Plan::default());
    let worth = candidates.iter().filter_map(|c| Some((c.claim.name.clone(), deletion_worth_from(c, now)?)));
    worth.collect()
}

/// Decides which nodes to disrupt now.
#[expect(clippy::too_many_arguments, reason = "the arguments of every decider, and the memory of provisioning")]
pub fn disrupt(
    snapshot: &Snapshot,
    memory: &mut DisruptionMemory,
    provision: &ProvisionMemory,
    settings: &Settings,
    now: Timestamp,
    seed: u64,
) -> Plan {
    let mut plan = Plan::default();
    if settings.mode == ControllerMode::Companion {
        return plan;
    }
    if memory.decided_at > Some(now) {
        // The clock has been set back: times that are remembered may be hours ahead. It begins anew, as after a restart.
        *memory = DisruptionMemory::default();
    }
    memory.decided_at = Some(now);
    let is_paused = snapshot.pause.blocks(PauseSwitch::Disrupt, now);
    if is_paused || NodeOutage::of(snapshot, settings, now).is_some() {
        // Nothing is looked for meanwhile, so what was found before must be found again.
        memory.empty_since.clear();
        memory.moves.eligible.clear();
        memory.moves.forget_findings();
        if !is_paused {
            // Pods of nodes that are not ready may need the room of those that were going to be replaced.
            memory.moves.give_up();
        }
        // Those of a pause stand still, and its time does not count.
        continue_moves(snapshot, &mut memory.moves, now, &mut plan);
        return plan;
    }
    delete_expired(snapshot, now, &mut plan);
    let interval = if memory.moves.is_blocked() { BLOCKED_INTERVAL } else { settings.disruption_poll_interval };
    let poll_due = memory.last_pass.map(|at| at + interval);
    let earliest = memory.last_pass.map_or(now, |at| at + BLOCKED_INTERVAL);
    let found_due = [memory.next_validation, memory.moves.validation_due()].into_iter().flatten().min();
    let due = [poll_due, found_due.map(|at| at.max(earliest))].into_iter().flatten().min().filter(|due| *due > now);
    if let Some(due) = due {
        plan.wake_at(due);
    } else if snapshot.buffers_unsynced {
        // A node without pods may be capacity of a CapacityBuffer.
        plan.wake_at(now + settings.disruption_poll_interval);
    } else {
        memory.last_pass = Some(now);
        consider(PassInput { snapshot, provision, settings, now, seed }, memory, &mut plan);
    }
    continue_moves(snapshot, &mut memory.moves, now, &mut plan);
    plan
}

/// What a pass decides about.
struct PassInput<'a> {
    snapshot: &'a Snapshot,
    provision: &'a ProvisionMemory,
    settings: &'a Settings,
    now: Timestamp,
    seed: u64,
}

/// Searches for nodes to disrupt, and disrupts those that were found before.
fn consider(input: PassInput<'_>, memory: &mut DisruptionMemory, plan: &mut Plan) {
    let PassInput { snapshot, provision, settings, now, seed } = input;
    note_launches(snapshot, &mut memory.launches);
    memory.next_validation = None;
    let candidates = disruption_candidates(snapshot, provision, &memory.launches, now, plan);
    let mut budgets = RemainingBudgets::new(snapshot, now);
    memory.moves.unmarked_sources(snapshot).for_each(|pool| budgets.count(pool));
    let (available_offerings, cache) = (OnceCell::new(), RefCell::new(std::mem::take(&mut memory.offerings)));
    let compute = || {
        let offerings = cache.borrow_mut().get(snapshot, &provision.unavailable, now);
        offerings.with_min_values(settings.min_values_policy)
    };
    let available_offerings = || available_offerings.get_or_init(compute);
    let buffer_capacity = BufferCapacity::of(snapshot, provision, now, available_offerings);
    let none = ReservedRoom::default();
    let reserved = ReservedRoom::of(&memory.moves, || {
        let (reserved, available, buffer_capacity) = (&none, available_offerings(), &buffer_capacity);
        SimulationInput { snapshot, provision, reserved, available, buffer_capacity, now }
    });
    let movable = candidates.iter().filter(|c| !memory.moves.holds(c.claim));
    let (mut empty_nodes, mut used): (Vec<_>, Vec<_>) =
        movable.partition(|c| c.is_empty() && !buffer_capacity.nodes.contains(&c.node.name));
    // No other node is kept because the pods of one that is not disrupted could take its place.
    empty_nodes.retain(|c| !is_paused(snapshot, c, DisruptionReason::Empty, now) && !reserved.is_on(&c.node.name));
    used.retain(|c| !is_paused(snapshot, c, DisruptionReason::Underutilized, now));
    memory.moves.eligible = eligible(&empty_nodes, &used, now);
    // Where a budget does not allow all of them, the most expensive go first.
    empty_nodes.sort_by_key(|c| (Reverse(c.price), c.claim.name.clone()));
    delete_empty(&empty_nodes, memory, &mut budgets, plan);
    let balanced_pools = BalancedPools::of(snapshot, &candidates);
    let loops = ReplacementLoops::of(snapshot, now);
    loops.next_at().into_iter().for_each(|at| plan.wake_at(at));
    let search = Search {
        loops: &loops,
        snapshot,
        provision,
        now,
        seed,
        reserved: &reserved,
        settings,
        available_offerings: &available_offerings,
        buffer_capacity: &buffer_capacity,
        balanced_pools: &balanced_pools,
    };
    soft_taint_deleted_pools(snapshot, now, plan);
    let windows = &settings.maintenance_windows;
    let drifted = record_drift(snapshot, windows, &mut memory.vanished_sizes, now, plan);
    if !replace_all_outdated(&search, drifted, &mut memory.moves, &mut budgets, plan) {
        let nodes = moves::Candidates { empty: &empty_nodes, with_pods: &used };
        consolidate(&search, nodes, &mut memory.moves, &mut budgets, plan);
        memory.next_validation = memory.next_validation.into_iter().chain(memory.moves.next_deletable_at(now)).min();
    }
    memory.offerings = cache.take();
}

/// The pause switch holds the disruption of a node for this reason back.
fn is_paused(snapshot: &Snapshot, candidate: &Candidate<'_>, reason: DisruptionReason, now: Timestamp) -> bool {
    snapshot.pause.blocks_disruption(&DisruptionScope::new(&candidate.pool.name, reason), now)
}

/// How many of these nodes, empty ones and those with pods, could be consolidated now.
fn eligible(empty: &[&Candidate<'_>], used: &[&Candidate<'_>], now: Timestamp) -> BTreeMap<DisruptionReason, usize> {
    let is_due = |candidate: &&&Candidate<'_>| candidate.eligible_at <= now && !candidate.is_nominated;
    let may_be_moved = |candidate: &&&Candidate<'_>| candidate.pool.disruption.policy != ConsolidationPolicy::WhenEmpty;
    let empty = empty.iter().filter(is_due).filter(|candidate| !candidate.is_awaited).count();
    let used = used.iter().filter(is_due).filter(may_be_moved).count();
    [(DisruptionReason::Empty, empty), (DisruptionReason::Underutilized, used)].into()
}

/// Begins to replace nodes that expire soon, which have a deadline, or else those of deleted NodePools, or drifted ones. True if
/// there are any: what is left of the cluster is seen in the next pass.
fn replace_all_outdated(
    search: &Search<'_>,
    mut drifted: BTreeMap<ClaimName, Drift>,
    memory: &mut MoveMemory,
    budgets: &mut RemainingBudgets<'_>,
    plan: &mut Plan,
) -> bool {
    let (snapshot, now) = (search.snapshot, search.now);
    let windows = &search.settings.maintenance_windows;
    drifted.retain(|_, drift| drift.maintenance_hold(windows, now).is_none());
    let mut expiring = expiring(snapshot, search.settings, now, plan);
    let deleted = of_deleted_pools(snapshot);
    drifted.retain(|name, _| !deleted.contains_key(name));
    expiring.retain(|name, _| !deleted.contains_key(name));
    memory.retain_irreplaceable(|name| {
        drifted.contains_key(name) || expiring.contains_key(name) || deleted.contains_key(name)
    });
    let expiring = expiring.into_iter().map(|(name, expiry)| (name, ReplacementCause::Expiry(expiry))).collect();
    let deleted = deleted.into_iter().map(|(name, pool)| (name, ReplacementCause::PoolDeleted(pool))).collect();
    let drifted = drifted.into_iter().map(|(name, drift)| (name, ReplacementCause::Drift(drift))).collect();
    let causes: [(DisruptionReason, BTreeMap<ClaimName, ReplacementCause>); 3] = [
        (DisruptionReason::Expiring, expiring),
        (DisruptionReason::NodePoolDeleted, deleted),
        (DisruptionReason::Drifted, drifted),
    ];
    let outdated = causes.map(|(reason, causes)| {
        let candidates = outdated_candidates(snapshot, search.provision, &causes, now);
        let free = candidates.iter().filter(|candidate| !is_paused(snapshot, candidate, reason, now)).count();
        memory.eligible.insert(reason, free);
        (reason, causes, candidates)
    });
    outdated.into_iter().filter(|(_, causes, _)| !causes.is_empty()).any(|(reason, causes, candidates)| {
        let leaving = nodes_deleted_by(snapshot, plan);
        let outdated = Outdated { reason, candidates: &candidates, causes: &causes, leaving };
        replace_outdated(search, outdated, memory, budgets, plan)
    })
}

/// The nodes of NodeClaims that a plan deletes: no pods are moved there.
fn nodes_deleted_by(snapshot: &Snapshot, plan: &Plan) -> BTreeSet<NodeName> {
    let deleted = plan.deleted_claims().filter_map(|name| snapshot.claims().get(name));
    deleted.filter_map(|claim| Some(snapshot.node_of(claim)?.name.clone())).collect()
}

/// Takes note of the latest launch of each NodePool that was no replacement.
fn note_launches(snapshot: &Snapshot, launches: &mut BTreeMap<NodePoolName, Timestamp>) {
    for claim in snapshot.claims().values().filter(|claim| claim.is_ours() && claim.spec.replaces.is_empty()) {
        if let Some(pool) = claim.spec.pool.clone() {
            let latest = launches.entry(pool).or_insert(claim.created_at);
            *latest = claim.created_at.max(*latest);
        }
    }
    launches.retain(|pool, _| snapshot.pools().get(pool).is_some());
}

/// Deletes nodes that have been empty for long enough, as far as `consolidateAfter` and budgets allow.
fn delete_empty(
    empty: &[&Candidate<'_>],
    memory: &mut DisruptionMemory,
    budgets: &mut RemainingBudgets<'_>,
    plan: &mut Plan,
) {
    let (snapshot, now) = (budgets.snapshot, budgets.now);
    let before = std::mem::take(&mut memory.empty_since);
    // None could be launched again for pods that are about to leave.
    let is_kept = snapshot.holds_launches(now) && snapshot.claims().values().any(|claim| claim.deleting_at.is_some());
    let may_go = |candidate: &&&Candidate<'_>| !(is_kept || candidate.is_nominated || candidate.is_awaited);
    for candidate in empty.iter().filter(may_go) {
        let since = before.get(&candidate.claim.name).copied().unwrap_or(now);
        memory.empty_since.insert(candidate.claim.name.clone(), since);
        let due = candidate.eligible_at.max(since + VALIDATION_DELAY);
        if due > now {
            plan.wake_at(due);
            memory.next_validation = Some(memory.next_validation.map_or(due, |earlier| earlier.min(due)));
        } else if budgets.consume(candidate, DisruptionReason::Empty) {
            let category = DisruptionReason::Empty.category();
            let command = Command::delete_claim(candidate.claim.reference(), category);
            let preconditions = Preconditions::same_pods(snapshot, [&candidate.node.name]);
            plan.push_if(&Arc::new(preconditions), command, reason_of_emptiness(candidate));
        } else {
            plan.wake_at(now + BUDGET_RETRY);
        }
    }
}

fn reason_of_emptiness(candidate: &Candidate<'_>) -> String {
    let Candidate { node, price, pods, .. } = candidate;
    let why = match pods.len() {
        0 => "only DaemonSet pods".to_owned(),
        count => format!("by their priority or pod-deletion-cost, evicting its {count} pods costs nothing"),
    };
    format!("node {} is empty ({why}), saves {price}/h", node.name)
}

pub(crate) fn is_in_progress(snapshot: &Snapshot, claim: &ClaimName) -> bool {
    snapshot.in_progress.contains(&CommandKey::Claim(claim.clone()))
}

/// True when the policy allows disruption of nodes with pods.
fn allows_consolidation(policy: ConsolidationPolicy) -> bool {
    match policy {
        ConsolidationPolicy::WhenEmpty => false,
        ConsolidationPolicy::WhenEmptyOrUnderutilized | ConsolidationPolicy::Balanced => true,
    }
}

#[cfg(test)]
mod tests;
