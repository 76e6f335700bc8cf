//! Disruption: expiration, emptiness and consolidation.
//!
//! In this order: expired nodes (`expireAfter`, outside budgets as in Karpenter), empty nodes, and nodes whose pods fit
//! elsewhere or on a cheaper node. A finding must hold for 15 s before it is acted on. While many nodes are not ready
//! nothing is disrupted.

mod budget;
pub mod budget_calendar;
mod candidate;
mod consolidate;

use crate::disruption::consolidate::Candidates;
use crate::lifecycle::NodeOutage;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{ConsolidationPolicy, DisruptionReason};
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::{ControllerMode, PauseSwitch, Settings};
use crate::plan::{Command, Plan};
use crate::provisioning::capacity_buffers::BufferCapacity;
use crate::provisioning::{ProvisionMemory, StateGenerations};
use crate::scheduling::AvailableOfferings;
use crate::snapshot::{CommandKey, Snapshot};
pub(crate) use budget::remaining_disruptions as budget_left;
pub use budget::{allowed_disruptions, is_active};
use candidate::{Candidate, disruption_candidates};
use consolidate::{ConsolidationContext, consolidate};
use jiff::{SignedDuration, Timestamp};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// How long a finding must hold before it is acted on, as in Karpenter.
const VALIDATION_DELAY: SignedDuration = SignedDuration::from_secs(15);

/// Retry delay of nodes that a budget blocks: its window opens without a change of any object.
pub(crate) const BUDGET_RETRY: SignedDuration = SignedDuration::from_mins(1);

/// Memory of disruption. All of it is disposable: after a crash a finding must hold for 15 s again, and a replacement
/// in progress is an ordinary node, which consolidation finds again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DisruptionMemory {
    /// Since when, and for which reason, each claim has been found disruptable without interruption.
    disruptable_since: BTreeMap<ClaimName, (DisruptionReason, Timestamp)>,
    /// Claims that were found disruptable in this pass.
    found_this_pass: BTreeSet<ClaimName>,
    /// When disruption was last considered.
    last_pass: Option<Timestamp>,
    /// When each claim was last simulated without result, and in which state: the same state has the same result.
    unconsolidatable: BTreeMap<ClaimName, (Timestamp, StateGenerations)>,
    /// Claims to delete once their replacement is ready, with the replacement.
    replacements: BTreeMap<ClaimName, (ClaimName, Timestamp)>,
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
    if settings.mode == ControllerMode::Companion || snapshot.pause.blocks(PauseSwitch::Disrupt) {
        return plan;
    }
    if NodeOutage::of(snapshot, settings, now).is_some() {
        // What was found before it must be found again.
        memory.disruptable_since.clear();
        return plan;
    }
    delete_expired(snapshot, now, &mut plan);
    if let Some(due) = memory.last_pass.map(|at| at + settings.disruption_poll_interval).filter(|due| *due > now) {
        plan.wake_at(due);
        return plan;
    }
    memory.last_pass = Some(now);
    if snapshot.buffers_unsynced {
        // A node without pods may be capacity of a CapacityBuffer.
        plan.wake_at(now + settings.disruption_poll_interval);
        return plan;
    }
    let candidates_found = disruption_candidates(snapshot, provision, now, &mut plan);
    let mut budgets = RemainingBudgets::new(snapshot, now);
    let available_offerings = OnceCell::new();
    let compute =
        || AvailableOfferings::new(snapshot, &provision.unavailable, now).with_min_values(settings.min_values_policy);
    let available_offerings = || available_offerings.get_or_init(compute);
    let buffer_capacity = BufferCapacity::of(snapshot, provision, now, available_offerings);
    let (empty_nodes, used): (Vec<_>, Vec<_>) =
        candidates_found.iter().partition(|c| c.is_empty() && !buffer_capacity.nodes.contains(&c.node.name));
    delete_empty(&empty_nodes, memory, &mut budgets, now, &mut plan);
    let (every, threads) = (settings.disruption_poll_interval, settings.consolidation_threads);
    let context = ConsolidationContext {
        snapshot,
        provision,
        now,
        seed,
        poll_interval: every,
        threads,
        available_offerings: &available_offerings,
        buffer_capacity: &buffer_capacity,
    };
    consolidate(&context, Candidates { all: &candidates_found, with_pods: &used }, memory, &mut budgets, &mut plan);
    let touched = std::mem::take(&mut memory.found_this_pass);
    memory.disruptable_since.retain(|name, _| touched.contains(name));
    plan
}

/// Deletes expired nodes.
fn delete_expired(snapshot: &Snapshot, now: Timestamp, plan: &mut Plan) {
    for claim in snapshot.claims().values().filter(|c| c.is_ours() && c.deleting_at.is_none()) {
        let Some(after) = claim.spec.expire_after else { continue };
        let at = claim.created_at.saturating_add(after).unwrap_or(Timestamp::MAX);
        if at > now {
            plan.wake_at(at);
        } else if !is_in_progress(snapshot, claim) {
            let command = Command::DeleteClaim { claim: claim.reference(), category: "expired" };
            plan.push(command, format!("older than expireAfter ({}h)", after.as_hours()));
        }
    }
}

/// Deletes empty nodes, within budgets.
fn delete_empty(
    idle: &[&Candidate<'_>],
    memory: &mut DisruptionMemory,
    budgets: &mut RemainingBudgets<'_>,
    now: Timestamp,
    plan: &mut Plan,
) {
    for candidate in idle {
        if !memory.is_validated(&candidate.claim.name, DisruptionReason::Empty, now, plan) {
            continue;
        }
        if budgets.consume(candidate, DisruptionReason::Empty) {
            let command = Command::DeleteClaim { claim: candidate.claim.reference(), category: "empty" };
            plan.push(
                command,
                format!("node {} is empty (only DaemonSet pods), saves {}/h", candidate.node.name, candidate.price),
            );
        } else {
            plan.wake_at(now + BUDGET_RETRY);
        }
    }
}

fn is_in_progress(snapshot: &Snapshot, claim: &Claim) -> bool {
    snapshot.in_progress.contains(&CommandKey::Claim(claim.name.clone()))
}

impl DisruptionMemory {
    /// True when a finding has held for long enough; otherwise records it and requests a wake-up.
    fn is_validated(&mut self, claim: &ClaimName, reason: DisruptionReason, now: Timestamp, plan: &mut Plan) -> bool {
        self.found_this_pass.insert(claim.clone());
        let entry = self.disruptable_since.entry(claim.clone()).or_insert((reason, now));
        if entry.0 != reason {
            *entry = (reason, now);
        }
        let due = entry.1 + VALIDATION_DELAY;
        if due > now {
            plan.wake_at(due);
        }
        due <= now
    }
}

/// Remaining disruptions of each pool in this pass.
struct RemainingBudgets<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    /// Disruptions of this pass, for any reason.
    consumed: BTreeMap<NodePoolName, u32>,
    /// Remaining disruptions by the Snapshot, computed on first use.
    remaining: BTreeMap<(NodePoolName, DisruptionReason), u32>,
}

impl<'a> RemainingBudgets<'a> {
    fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        Self { snapshot, now, consumed: BTreeMap::new(), remaining: BTreeMap::new() }
    }

    /// Takes one disruption from the pool's budget; `false` when none is left.
    fn consume(&mut self, candidate: &Candidate<'_>, reason: DisruptionReason) -> bool {
        let (snapshot, pool, now) = (self.snapshot, candidate.pool, self.now);
        let left = self.remaining.entry((pool.name.clone(), reason));
        let left = *left.or_insert_with(|| budget::remaining_disruptions(snapshot, pool, reason, now));
        let taken = self.consumed.entry(candidate.pool.name.clone()).or_insert(0);
        let allowed = *taken < left;
        *taken += u32::from(allowed);
        allowed
    }
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
