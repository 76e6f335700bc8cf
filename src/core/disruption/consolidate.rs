//! Consolidation: which node's pods fit elsewhere, or on one cheaper node?
//!
//! One node at a time, the one with the most money per pod to be moved first. Its pods are placed by the same
//! simulation that provisions, with the node taken as gone: if they all fit on nodes that exist, it goes; if one new
//! and cheaper node holds them, that node is launched first, and the old one goes once it is ready.

use super::candidate::Candidate;
use super::parallel::ahead;
use super::{BUDGET_RETRY, Budgets, DisruptionMemory, consolidates};
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName};
use crate::plan::{ClaimDraft, Command, Plan};
use crate::provisioning::capacity_buffers::Kept;
use crate::provisioning::{Generations, ProvisionMemory, draft};
use crate::scheduling::{Input, Market, NewNode, schedule};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Most simulations of one pass.
const MOST_SIMULATIONS: usize = 20;
/// A replacement that is not ready after this time is given up; the old node stays.
const REPLACEMENT_TIMEOUT: SignedDuration = SignedDuration::from_mins(20);
/// A spot node is only replaced by spot where at least this many cheaper sizes are on offer, as in Karpenter: fewer
/// would walk down to the size that is evicted next. But where half of its price is saved, that walk is soon over.
const SPOT_FLEXIBILITY: usize = 15;

/// What consolidation looks at.
pub(super) struct Context<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) provision: &'a ProvisionMemory,
    pub(super) now: Timestamp,
    pub(super) seed: u64,
    /// How often disruption is considered.
    pub(super) every: SignedDuration,
    /// How many candidates are looked at at once.
    pub(super) threads: NonZeroUsize,
    /// What may be bought, for whoever asks: it is made once.
    pub(super) market: &'a dyn Fn() -> &'a Market,
    /// The room that CapacityBuffers have.
    pub(super) kept: &'a Kept,
}

/// What would become of a candidate.
enum Move {
    /// Its pods fit on nodes that exist.
    Delete,
    /// This new, cheaper node would hold them.
    Replace(Box<NewNode>, HourlyPrice),
}

pub(super) fn consolidate(
    context: &Context<'_>,
    (found, used): (&[Candidate<'_>], &[&Candidate<'_>]),
    memory: &mut DisruptionMemory,
    budgets: &mut Budgets<'_>,
    plan: &mut Plan,
) {
    finish_replacements(context, found, memory, budgets, plan);
    // Waiting pods and claims in flight come first: what is free now may be theirs.
    let settled = all_placed_or_hopeless(context)
        && context.snapshot.claims().values().all(|c| c.status.initialized.is_some() && c.deleting_at.is_none());
    if !settled || !memory.replacing.is_empty() {
        return;
    }
    let sight = Generations::of(context.snapshot, &context.provision.unavailable);
    let gone = gone(found, plan);
    let order = in_turn(context, used, memory, sight).into_iter().filter(|c| !gone.contains(&c.node.name));
    let mut order: Vec<&Candidate<'_>> = order.collect();
    if order.is_empty() {
        return;
    }
    let more = order.len() > MOST_SIMULATIONS;
    order.truncate(MOST_SIMULATIONS);
    let market = (context.market)();
    let (snapshot, kept) = (context.snapshot, context.kept);
    let choices = ahead(context.threads, &order, |candidate| simulate(snapshot, kept, (market, &gone), candidate));
    let mut blocked = false;
    for (candidate, choice) in order.iter().zip(choices) {
        let Some(choice) = choice else {
            memory.in_vain.insert(candidate.claim.name.clone(), (context.now, sight));
            continue;
        };
        if !memory.holds(&candidate.claim.name, DisruptionReason::Underutilized, context.now, plan) {
            return;
        }
        if budgets.take(candidate, DisruptionReason::Underutilized) {
            act(context, candidate, choice, memory, plan);
            return;
        }
        blocked = true;
    }
    if more {
        plan.wake_at(context.now + context.every);
    } else if blocked {
        plan.wake_at(context.now + BUDGET_RETRY);
    }
}

/// Nodes that go by this very pass: nobody's pods are moved there.
fn gone(found: &[Candidate<'_>], plan: &Plan) -> BTreeSet<NodeName> {
    let goes = |c: &&Candidate<'_>| {
        plan.commands.iter().any(|planned| match &planned.command {
            Command::DeleteClaim { claim, .. } => claim.name == c.claim.name,
            _ => false,
        })
    };
    found.iter().filter(goes).map(|c| c.node.name.clone()).collect()
}

/// No pod waits, but those that the last pass of provisioning found no place for: room that is free is no use to them.
fn all_placed_or_hopeless(context: &Context<'_>) -> bool {
    let hopeless: BTreeSet<_> = context.provision.unplaced.iter().flat_map(|u| &u.pods).map(|p| &p.key).collect();
    context.snapshot.pending().values().flatten().all(|key| hopeless.contains(key))
}

/// Nodes with pods or with room that is kept, those that have waited longest for their turn first, and then those with the most money per pod.
/// Those that this very sight has no use for are left out.
fn in_turn<'c, 'a>(
    context: &Context<'_>,
    used: &[&'c Candidate<'a>],
    memory: &mut DisruptionMemory,
    sight: Generations,
) -> Vec<&'c Candidate<'a>> {
    memory.in_vain.retain(|name, _| context.snapshot.claims().get(name).is_some());
    let last = |c: &Candidate<'_>| memory.in_vain.get(&c.claim.name);
    let open = |c: &&Candidate<'_>| last(c).is_none_or(|(_, seen)| *seen != sight);
    let movable = used.iter().copied().filter(|c| consolidates(c.pool.disruption.policy));
    let mut order: Vec<&Candidate<'_>> = movable.filter(open).collect();
    order.sort_by_key(|c| {
        let per_pod = i128::from(c.price.nanos()) / (1 + c.pods.len() as i128);
        (last(c).map(|(at, _)| *at), std::cmp::Reverse(per_pod), c.claim.name.clone())
    });
    order
}

fn simulate(
    snapshot: &Snapshot,
    kept: &Kept,
    (market, gone): (&Market, &BTreeSet<NodeName>),
    candidate: &Candidate<'_>,
) -> Option<Move> {
    let mut without = gone.clone();
    without.insert(candidate.node.name.clone());
    let promised = BTreeMap::new();
    let input = Input { snapshot, market, without: &without, new_nodes: 1, promised: &promised };
    let pods: Vec<_> = candidate.pods.iter().chain(&kept.chunks).cloned().collect();
    let mut outcome = schedule(input, &pods);
    if !kept.is_whole(&outcome) {
        return None;
    }
    let Some(mut node) = outcome.new.pop() else { return Some(Move::Delete) };
    if candidate.capacity_type == CapacityType::Reserved {
        // It is paid for: nothing saves money in its place.
        return None;
    }
    node.offerings.retain(|o| o.price < candidate.price);
    let best = node.offerings.first()?;
    if !market.has_variety(&node) {
        return None;
    }
    let spot = CapacityType::Spot;
    if candidate.capacity_type == spot && best.key.capacity_type == spot {
        let sizes: BTreeSet<_> = node.offerings.iter().map(|o| &o.key.size).collect();
        let saves_half = best.price.nanos().saturating_mul(2) <= candidate.price.nanos();
        if sizes.len() < SPOT_FLEXIBILITY && !saves_half {
            return None;
        }
    }
    let saving = candidate.price - best.price;
    Some(Move::Replace(Box::new(node), saving))
}

fn act(context: &Context<'_>, candidate: &Candidate<'_>, choice: Move, memory: &mut DisruptionMemory, plan: &mut Plan) {
    let pods = candidate.pods.len();
    match choice {
        Move::Delete => {
            let command = Command::DeleteClaim { claim: candidate.claim.reference(), category: "underutilized" };
            let gain = match candidate.capacity_type {
                CapacityType::Reserved => "leaves what is reserved to others".to_owned(),
                CapacityType::Spot | CapacityType::OnDemand => format!("saves {}/h", candidate.price),
            };
            let fit = if pods == 1 { "its pod fits".to_owned() } else { format!("its {pods} pods fit") };
            plan.push(command, format!("{fit} on other nodes, which {gain}"));
        }
        Move::Replace(node, saving) => {
            let best = node.offerings.first().map(|o| o.key.to_string()).unwrap_or_default();
            let Some(draft) = draft(context.snapshot, *node, context.seed, context.now, usize::MAX) else { return };
            let reason = format!("{best} would hold the {pods} pods of {} and save {saving}/h", candidate.node.name);
            memory.replacing.insert(candidate.claim.name.clone(), (draft.name.clone(), context.now));
            plan.push(Command::CreateClaim(Box::<ClaimDraft>::new(draft)), reason);
        }
    }
}

/// Lets nodes go whose replacement is ready, and forgets replacements that failed.
fn finish_replacements(
    context: &Context<'_>,
    found: &[Candidate<'_>],
    memory: &mut DisruptionMemory,
    budgets: &mut Budgets<'_>,
    plan: &mut Plan,
) {
    let mut over: Vec<ClaimName> = Vec::new();
    for (old, (new, since)) in &memory.replacing {
        let Some(claim) = context.snapshot.claims().get(old).filter(|c| c.deleting_at.is_none()) else {
            over.push(old.clone());
            continue;
        };
        let waited = context.now.duration_since(*since);
        match context.snapshot.claims().get(new) {
            Some(ready) if ready.status.initialized.is_some() => {
                // It may have become one that must not be disrupted, or the budget may be used up: then it waits.
                let candidate = found.iter().find(|c| c.claim.name == *old);
                if candidate.is_some_and(|c| budgets.take(c, DisruptionReason::Underutilized)) {
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
        memory.replacing.remove(&old);
    }
}
