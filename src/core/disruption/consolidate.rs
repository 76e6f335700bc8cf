//! Consolidation: removes nodes whose pods fit elsewhere, or replaces them by a cheaper one.
//!
//! One node at a time, the one with the highest price per pod to reschedule first. Its pods are placed by the same
//! simulation as in provisioning, with the node excluded: if they all fit on existing nodes, it is deleted; if one new
//! and cheaper node holds them, that node is launched first, and the old one is deleted once it is ready.

use super::candidate::Candidate;
use super::{BUDGET_RETRY, DisruptionMemory, RemainingBudgets, allows_consolidation};
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName, NodePoolName};
use crate::model::support::parallel::map_in_order;
use crate::plan::{ClaimDraft, Command, Plan};
use crate::provisioning::capacity_buffers::BufferCapacity;
use crate::provisioning::{ProvisionMemory, StateGenerations, claim_draft};
use crate::scheduling::{AvailableOfferings, Input, NewNode, schedule};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Most simulations of one pass.
const MAX_SIMULATIONS: usize = 20;
/// A replacement that is not ready after this time has failed; the old node is kept.
const REPLACEMENT_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
/// A spot node is only replaced by spot where at least this many cheaper sizes are on offer, as in Karpenter: fewer
/// would walk down to the size that is evicted next. But where half of its price is saved, that walk is soon over.
const MIN_SPOT_TO_SPOT_SIZES: usize = 15;

/// Inputs of consolidation.
pub(super) struct ConsolidationContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) provision: &'a ProvisionMemory,
    pub(super) now: Timestamp,
    pub(super) seed: u64,
    /// How often disruption is considered.
    pub(super) poll_interval: SignedDuration,
    /// How many candidates are simulated concurrently.
    pub(super) threads: NonZeroUsize,
    /// The available offerings, computed once on first use.
    pub(super) available_offerings: &'a dyn Fn() -> &'a AvailableOfferings,
    /// The capacity that CapacityBuffers have.
    pub(super) buffer_capacity: &'a BufferCapacity,
}

/// The consolidation of a candidate.
enum ConsolidationAction {
    /// Its pods fit on nodes that exist.
    Delete,
    /// This new, cheaper node would hold them.
    Replace(Box<NewNode>, HourlyPrice),
}

/// Nodes that may be disrupted.
#[derive(Clone, Copy)]
pub(super) struct Candidates<'a> {
    /// All of them.
    pub(super) all: &'a [Candidate<'a>],
    /// Those of them that run pods which would have to move.
    pub(super) with_pods: &'a [&'a Candidate<'a>],
}

pub(super) fn consolidate(
    context: &ConsolidationContext<'_>,
    candidates: Candidates<'_>,
    memory: &mut DisruptionMemory,
    budgets: &mut RemainingBudgets<'_>,
    plan: &mut Plan,
) {
    finish_replacements(context, candidates.all, memory, budgets, plan);
    // Pending pods and claims in flight come first: they may need the free capacity.
    let settled = no_placeable_pods_pending(context)
        && context.snapshot.claims().values().all(|c| c.status.initialized.is_some() && c.deleting_at.is_none());
    if !settled || !memory.replacements.is_empty() {
        return;
    }
    let generations = StateGenerations::of(context.snapshot, &context.provision.unavailable);
    let deleted = nodes_being_deleted(candidates.all, plan);
    let order = ordered_candidates(context, candidates.with_pods, memory, generations)
        .into_iter()
        .filter(|c| !deleted.contains(&c.node.name));
    let mut order: Vec<&Candidate<'_>> = order.collect();
    if order.is_empty() {
        return;
    }
    let more = order.len() > MAX_SIMULATIONS;
    order.truncate(MAX_SIMULATIONS);
    let available_offerings = (context.available_offerings)();
    let (snapshot, buffer_capacity) = (context.snapshot, context.buffer_capacity);
    let actions = map_in_order(context.threads, &order, |candidate| {
        simulate(snapshot, buffer_capacity, (available_offerings, &deleted), candidate)
    });
    let mut blocked = false;
    for (candidate, action) in order.iter().zip(actions) {
        let Some(action) = action else {
            memory.unconsolidatable.insert(candidate.claim.name.clone(), (context.now, generations));
            continue;
        };
        if !memory.is_validated(&candidate.claim.name, DisruptionReason::Underutilized, context.now, plan) {
            return;
        }
        if budgets.consume(candidate, DisruptionReason::Underutilized) {
            execute(context, candidate, action, memory, plan);
            return;
        }
        blocked = true;
    }
    if more {
        plan.wake_at(context.now + context.poll_interval);
    } else if blocked {
        plan.wake_at(context.now + BUDGET_RETRY);
    }
}

/// Nodes that are deleted in this very pass: no pods are moved there.
fn nodes_being_deleted(found: &[Candidate<'_>], plan: &Plan) -> BTreeSet<NodeName> {
    let is_deleted = |c: &&Candidate<'_>| {
        plan.commands.iter().any(|planned| match &planned.command {
            Command::DeleteClaim { claim, .. } => claim.name == c.claim.name,
            _ => false,
        })
    };
    found.iter().filter(is_deleted).map(|c| c.node.name.clone()).collect()
}

/// True when no pods are pending except those that the last provisioning passes could not schedule, for which free
/// capacity is of no use.
fn no_placeable_pods_pending(context: &ConsolidationContext<'_>) -> bool {
    if context.provision.deferred > 0 {
        return false;
    }
    let unschedulable: BTreeSet<_> = context.provision.unplaced.iter().flat_map(|u| &u.pods).map(|p| &p.key).collect();
    context.snapshot.pending().values().flatten().all(|key| unschedulable.contains(key))
}

/// Nodes with pods or with capacity of CapacityBuffers, those that have waited longest first, and then those with the
/// highest price per pod. Those already simulated in this state are left out.
fn ordered_candidates<'c, 'a>(
    context: &ConsolidationContext<'_>,
    used: &[&'c Candidate<'a>],
    memory: &mut DisruptionMemory,
    generations: StateGenerations,
) -> Vec<&'c Candidate<'a>> {
    memory.unconsolidatable.retain(|name, _| context.snapshot.claims().get(name).is_some());
    let last = |c: &Candidate<'_>| memory.unconsolidatable.get(&c.claim.name);
    let open = |c: &&Candidate<'_>| last(c).is_none_or(|(_, seen)| *seen != generations);
    let movable = used.iter().copied().filter(|c| allows_consolidation(c.pool.disruption.policy));
    let mut order: Vec<&Candidate<'_>> = movable.filter(open).collect();
    order.sort_by_key(|c| {
        let per_pod = i128::from(c.price.nanos()) / (1 + c.pods.len() as i128);
        (last(c).map(|(at, _)| *at), std::cmp::Reverse(per_pod), c.claim.name.clone())
    });
    order
}

fn simulate(
    snapshot: &Snapshot,
    buffer_capacity: &BufferCapacity,
    (available_offerings, deleted): (&AvailableOfferings, &BTreeSet<NodeName>),
    candidate: &Candidate<'_>,
) -> Option<ConsolidationAction> {
    let mut excluded_nodes = deleted.clone();
    excluded_nodes.insert(candidate.node.name.clone());
    let claim_of_pod = BTreeMap::new();
    let input = Input {
        snapshot,
        available: available_offerings,
        excluded_nodes: &excluded_nodes,
        max_new_nodes: 1,
        claim_of_pod: &claim_of_pod,
    };
    let pods: Vec<_> = candidate.pods.iter().chain(&buffer_capacity.chunks).cloned().collect();
    let mut outcome = schedule(input, &pods);
    if !buffer_capacity.is_preserved(&outcome) {
        return None;
    }
    let Some(mut node) = outcome.new_nodes.pop() else { return Some(ConsolidationAction::Delete) };
    if candidate.capacity_type == CapacityType::Reserved {
        // It is paid for anyway: replacing it saves nothing.
        return None;
    }
    node.offerings.retain(|o| o.price < candidate.price);
    let best = node.offerings.first()?;
    if !available_offerings.meets_min_values(&node) {
        return None;
    }
    let spot = CapacityType::Spot;
    if candidate.capacity_type == spot && best.key.capacity_type == spot {
        let sizes: BTreeSet<_> = node.offerings.iter().map(|o| &o.key.size).collect();
        let saves_half = best.price.nanos().saturating_mul(2) <= candidate.price.nanos();
        if sizes.len() < MIN_SPOT_TO_SPOT_SIZES && !saves_half {
            return None;
        }
    }
    let saving = candidate.price - best.price;
    Some(ConsolidationAction::Replace(Box::new(node), saving))
}

fn execute(
    context: &ConsolidationContext<'_>,
    candidate: &Candidate<'_>,
    action: ConsolidationAction,
    memory: &mut DisruptionMemory,
    plan: &mut Plan,
) {
    let pods = candidate.pods.len();
    match action {
        ConsolidationAction::Delete => {
            let command = Command::DeleteClaim { claim: candidate.claim.reference(), category: "underutilized" };
            let gain = match candidate.capacity_type {
                CapacityType::Reserved => "frees reserved capacity".to_owned(),
                CapacityType::Spot | CapacityType::OnDemand => format!("saves {}/h", candidate.price),
            };
            let fit = if pods == 1 { "its pod can move to".to_owned() } else { format!("its {pods} pods can move to") };
            plan.push(command, format!("{fit} other nodes, which {gain}"));
        }
        ConsolidationAction::Replace(node, _) if !may_launch(context.snapshot, &node.pool) => {}
        ConsolidationAction::Replace(node, saving) => {
            let best = node.offerings.first().map(|o| o.key.to_string()).unwrap_or_default();
            let Some(draft) = claim_draft(context.snapshot, *node, context.seed, context.now, usize::MAX) else {
                return;
            };
            let reason = format!("replacing {} with {best} for its {pods} pods saves {saving}/h", candidate.node.name);
            memory.replacements.insert(candidate.claim.name.clone(), (draft.name.clone(), context.now));
            plan.push(Command::CreateClaim(Box::<ClaimDraft>::new(draft)), reason);
        }
    }
}

/// True when a replacement may be launched in this pool. One node that is tried is for pods that wait.
fn may_launch(snapshot: &Snapshot, pool: &NodePoolName) -> bool {
    !snapshot.holds_launches() && !snapshot.pool_holds.contains_key(pool)
}

/// Deletes nodes whose replacement is ready, and forgets failed replacements.
fn finish_replacements(
    context: &ConsolidationContext<'_>,
    found: &[Candidate<'_>],
    memory: &mut DisruptionMemory,
    budgets: &mut RemainingBudgets<'_>,
    plan: &mut Plan,
) {
    let mut over: Vec<ClaimName> = Vec::new();
    for (old, (new, since)) in &memory.replacements {
        let Some(claim) = context.snapshot.claims().get(old).filter(|c| c.deleting_at.is_none()) else {
            over.push(old.clone());
            continue;
        };
        let waited = context.now.duration_since(*since);
        match context.snapshot.claims().get(new) {
            Some(ready) if ready.status.initialized.is_some() => {
                // It may have become one that must not be disrupted, or the budget may be used up: then it waits.
                let candidate = found.iter().find(|c| c.claim.name == *old);
                if candidate.is_some_and(|c| budgets.consume(c, DisruptionReason::Underutilized)) {
                    let command = Command::DeleteClaim { claim: claim.reference(), category: "underutilized" };
                    plan.push(command, format!("its cheaper replacement {new} is ready"));
                } else if waited >= REPLACEMENT_TIMEOUT {
                    over.push(old.clone());
                }
            }
            Some(_) if waited < REPLACEMENT_TIMEOUT => {}
            None if waited < SignedDuration::from_mins(1) => {}
            _ => over.push(old.clone()),
        }
    }
    for old in over {
        memory.replacements.remove(&old);
    }
}
