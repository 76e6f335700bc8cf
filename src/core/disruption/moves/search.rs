//! Searches for moves that save money.
//!
//! First the nodes whose pods all fit on others, as many together as the budgets allow: each set is simulated as a whole.
//! Beside them, nodes that fewer or cheaper new ones can replace: the most wasteful two, three and so on together,
//! of which the best set is taken, and single ones in turn.

use super::super::balanced::BalancedPools;
use super::super::budget::RemainingBudgets;
use super::super::candidate::Candidate;
use super::super::replacement_loops::{ReplacementLoop, ReplacementLoops};
use super::super::{BUDGET_RETRY, allows_consolidation};
use super::components::{Component, MoveFilter};
use super::reserved::ReservedRoom;
use super::scatter::Rooms;
use super::simulation::{Simulation, SimulationInput};
use super::soft_taints::{is_soft_tainted, soft_taint};
use super::{Finding, MoveMemory, names_of};
use crate::catalog::CapacityType;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName};
use crate::model::settings::Settings;
use crate::model::support::parallel::map_in_order;
use crate::plan::Plan;
use crate::provisioning::capacity_buffers::BufferCapacity;
use crate::provisioning::{ProvisionMemory, StateGenerations, has_unobserved_claims};
use crate::scheduling::AvailableOfferings;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Most simulations of single nodes in one pass.
const MAX_SINGLE_SIMULATIONS: usize = 20;
/// Nothing is taken to be exhausted for longer, since not all that matters is a change of an object: Azure's refusals expire,
/// and so does `karpenter.sh/do-not-disrupt` with a duration.
const SEARCH_INTERVAL: SignedDuration = SignedDuration::from_mins(5);
/// How many of the most wasteful nodes are tried together.
const REPLACED_TOGETHER: [usize; 8] = [2, 3, 4, 6, 9, 14, 21, 32];

/// Inputs of consolidation.
pub(in crate::disruption) struct Search<'a> {
    pub(in crate::disruption) snapshot: &'a Snapshot,
    pub(in crate::disruption) provision: &'a ProvisionMemory,
    pub(in crate::disruption) settings: &'a Settings,
    pub(in crate::disruption) now: Timestamp,
    pub(in crate::disruption) seed: u64,
    /// The room of pods of nodes that are being replaced.
    pub(in crate::disruption) reserved: &'a ReservedRoom,
    /// The available offerings, computed once on first use.
    pub(in crate::disruption) available_offerings: &'a dyn Fn() -> &'a AvailableOfferings,
    /// Nodes that are replaced again and again.
    pub(in crate::disruption) loops: &'a ReplacementLoops,
    /// The capacity that CapacityBuffers have.
    pub(in crate::disruption) buffer_capacity: &'a BufferCapacity,
    /// NodePools with the policy `Balanced`.
    pub(in crate::disruption) balanced_pools: &'a BalancedPools<'a>,
}

/// Nodes that may be disrupted.
#[derive(Clone, Copy)]
pub(in crate::disruption) struct Candidates<'c, 'a> {
    /// Those without pods that would have to move, now or when `consolidateAfter` allows it.
    pub(in crate::disruption) empty: &'c [&'c Candidate<'a>],
    /// Those with such pods, or with capacity of CapacityBuffers.
    pub(in crate::disruption) with_pods: &'c [&'c Candidate<'a>],
}

/// Carries out what has been found before and still holds, and searches for more.
pub(in crate::disruption) fn consolidate(
    search: &Search<'_>,
    candidates: Candidates<'_, '_>,
    memory: &mut MoveMemory,
    budgets: &mut RemainingBudgets<'_>,
    plan: &mut Plan,
) {
    let Search { snapshot, provision, now, .. } = *search;
    memory.forget_deleted(|name| snapshot.claims().get(name).is_some());
    let generations = StateGenerations::of(snapshot, &provision.unavailable);
    if let Some((state, retry_at)) = memory.exhausted
        && state == generations
        && retry_at > now
    {
        return plan.wake_at(retry_at);
    }
    let may_move =
        |c: &&Candidate<'_>| !c.is_nominated && c.eligible_at <= now && allows_consolidation(c.pool.disruption.policy);
    let (movable, kept): (Vec<_>, Vec<_>) = candidates.with_pods.iter().copied().partition(may_move);
    let later = [kept.as_slice(), candidates.empty].concat();
    if memory.creates_soon(snapshot, now) {
        return plan.wake_at(now + search.settings.disruption_poll_interval);
    }
    let is_unsettled = provision.deferred > 0 || has_unobserved_claims(snapshot);
    let leaving = nodes_being_deleted(candidates.empty, plan);
    let simulation = (!is_unsettled).then(|| search.simulation(leaving)).flatten();
    // What has been found is simulated again before it is carried out, however long this lasts.
    memory.awaits_launch = simulation.is_none();
    let Some(simulation) = simulation else { return plan.wake_at(now + search.settings.disruption_poll_interval) };
    Pass::new(search, simulation, memory, budgets, plan).run(movable, later);
}

impl<'a> Search<'a> {
    /// The cluster without these nodes and those of deleted NodePools, to which no pods are moved; `None` while pods wait for a
    /// node that is not launched yet.
    pub(super) fn simulation(&self, leaving: BTreeSet<NodeName>) -> Option<Simulation<'a>> {
        let Self { snapshot, provision, reserved, buffer_capacity, now, .. } = *self;
        let available = (self.available_offerings)();
        Simulation::new(SimulationInput { snapshot, provision, reserved, available, buffer_capacity, now }, leaving)
    }
}

/// Nodes that are deleted in this very pass: no pods are moved there.
fn nodes_being_deleted(candidates: &[&Candidate<'_>], plan: &Plan) -> BTreeSet<NodeName> {
    let deleted: BTreeSet<&ClaimName> = plan.deleted_claims().collect();
    let of_deleted = candidates.iter().filter(|c| deleted.contains(&c.claim.name));
    of_deleted.map(|c| c.node.name.clone()).collect()
}

/// One pass of the search.
pub(super) struct Pass<'p, 'a, 'b> {
    pub(super) search: &'p Search<'a>,
    pub(super) simulation: Simulation<'p>,
    pub(super) filter: MoveFilter<'p>,
    pub(super) memory: &'p mut MoveMemory,
    pub(super) budgets: &'p mut RemainingBudgets<'b>,
    pub(super) plan: &'p mut Plan,
    pub(super) generations: StateGenerations,
    /// When there may be more to do although nothing changes.
    pub(super) retry_at: Timestamp,
}

/// Nodes whose pods all fit on others.
struct Deletable<'c, 'a> {
    /// Those that may be deleted once they have been such nodes for long enough.
    now: Vec<&'c Candidate<'a>>,
    /// And those that may be deleted later.
    all: Vec<&'c Candidate<'a>>,
}

impl<'p, 'a, 'b> Pass<'p, 'a, 'b> {
    pub(super) fn new(
        search: &'p Search<'a>,
        simulation: Simulation<'p>,
        memory: &'p mut MoveMemory,
        budgets: &'p mut RemainingBudgets<'b>,
        plan: &'p mut Plan,
    ) -> Self {
        let filter = MoveFilter::new((search.available_offerings)(), search.balanced_pools);
        let generations = StateGenerations::of(search.snapshot, &search.provision.unavailable);
        let retry_at = search.now + SEARCH_INTERVAL;
        Self { search, simulation, filter, memory, budgets, plan, generations, retry_at }
    }
}

impl<'p> Pass<'p, '_, '_> {
    /// Carries out what has held for long enough, and searches for more, among candidates and others that may become some
    /// later.
    fn run<'c, 'a>(mut self, mut candidates: Vec<&'c Candidate<'a>>, later: Vec<&'c Candidate<'a>>) {
        let now = self.search.now;
        let last = |c: &Candidate<'_>| self.memory.unconsolidatable.get(&c.claim.name);
        candidates.sort_by_key(|c| (last(c).map(|(at, _)| *at), Reverse(c.price_per_eviction()), c.claim.name.clone()));
        self.more_worth_at(&candidates).into_iter().for_each(|at| self.retry(at));
        later.iter().map(|c| c.eligible_at).filter(|at| *at > now).for_each(|at| self.retry(at));
        self.search.provision.next_nomination_end(now).into_iter().for_each(|at| self.retry(at));
        let deletable = self.find_deletable(&candidates, later);
        self.delete_together(&deletable.now);
        let names = names_of(&deletable.all);
        soft_taint(self.search.snapshot, &names, self.plan);
        candidates.retain(|c| !names.contains(&c.claim.name));
        match self.memory.validation_due() {
            None => self.search_replacements(&candidates, &deletable.all),
            Some(due) if due > now => {}
            Some(_) => {
                self.carry_out(&candidates, &deletable.all);
                self.retry(now + self.search.settings.disruption_poll_interval);
            }
        }
        self.memory.validation_due().into_iter().for_each(|at| self.retry(at));
        self.memory.exhausted = Some((self.generations, self.retry_at));
        self.plan.wake_at(self.retry_at);
    }

    /// Searches again at this time, or earlier if that was requested already.
    pub(super) fn retry(&mut self, at: Timestamp) {
        self.retry_at = self.retry_at.min(at);
    }

    /// Searches for sets of nodes that cheaper ones can replace, which must hold for a while.
    fn search_replacements(&mut self, candidates: &[&Candidate<'_>], deletable: &[&Candidate<'_>]) {
        let open = self.replaceable(candidates);
        if self.are_tried(&open) {
            // Nothing has changed but the time: all are tried once more, those first that were tried longest ago.
            self.memory.unconsolidatable.values_mut().for_each(|(_, state)| *state = None);
        }
        let found = self.find_replacements(&open, deletable);
        let found_at = self.search.now;
        self.memory.findings = found.into_iter().map(|sources| Finding { sources, found_at }).collect();
        if !self.are_tried(&open) {
            self.retry(self.search.now + self.search.settings.disruption_poll_interval);
        }
    }

    /// Each has been simulated alone in this state.
    fn are_tried(&self, candidates: &[&Candidate<'_>]) -> bool {
        candidates.iter().all(|c| last_state(self.memory, c) == Some(self.generations))
    }

    /// When more may be worth it although nothing changes: after a quarter of the time for which nothing has.
    fn more_worth_at(&self, candidates: &[&Candidate<'_>]) -> Option<Timestamp> {
        let quiet_for = candidates.iter().map(|c| c.quiet_for).min()?;
        self.search.now.checked_add((quiet_for / 4).max(self.search.settings.disruption_poll_interval)).ok()
    }

    /// Those that the budgets of their pools allow to be disrupted, and no loop of replacements holds, in order. Requests another
    /// search for when there may be more.
    fn replaceable<'c, 'a>(&mut self, candidates: &[&'c Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
        let now = self.search.now;
        let mut found = Vec::new();
        for candidate in candidates {
            if let Some(waits) = ReplacementLoop::of_consolidated(candidate.claim, now) {
                self.retry(waits.next_at);
            } else if self.budgets.left(candidate.pool, DisruptionReason::Underutilized) > 0 {
                found.push(*candidate);
            } else {
                self.retry(now + BUDGET_RETRY);
            }
        }
        found
    }

    /// As many as the budgets allow to be disrupted together, in order.
    fn as_budgets_allow<'c, 'a>(&self, candidates: Vec<&'c Candidate<'a>>) -> Vec<&'c Candidate<'a>> {
        let mut budgets = self.budgets.clone();
        candidates.into_iter().filter(|c| budgets.consume(c, DisruptionReason::Underutilized)).collect()
    }

    /// Nodes whose pods all fit on others, together; and with them all others that may be deleted later, since what keeps them
    /// will pass.
    fn find_deletable<'c, 'a>(
        &mut self,
        candidates: &[&'c Candidate<'a>],
        mut later: Vec<&'c Candidate<'a>>,
    ) -> Deletable<'c, 'a> {
        let rooms = Rooms::new(self.search.snapshot);
        let balanced_pools = self.filter.balanced_pools;
        let fits = |c: &&Candidate<'_>| {
            let is_approved = c.is_empty() || balanced_pools.approve(&[c], c.price);
            is_approved && rooms.may_take_pods_of(c)
        };
        let (mut now, early): (Vec<_>, Vec<_>) = candidates.iter().copied().filter(fits).partition(|c| pays_back(c));
        now.sort_by_key(|c| self.memory.deletable_since.get(&c.claim.name).copied().unwrap_or(Timestamp::MAX));
        let set = self.simulation.largest_set(Vec::new(), &each(now), 0);
        later.retain(fits);
        later.extend(&early);
        later.sort_by_key(|c| (!is_soft_tainted(c), Reverse(c.price_per_eviction()), c.claim.name.clone()));
        let all = self.simulation.largest_set(set.clone(), &each(later), 0).concat();
        let names = names_of(&all);
        let worth_at = early.iter().filter(|c| names.contains(&c.claim.name)).filter_map(|c| self.worth_at(c)).min();
        worth_at.into_iter().for_each(|at| self.retry(at));
        self.memory.worth_at = worth_at;
        let before = std::mem::take(&mut self.memory.deletable_since);
        let since = |name: &ClaimName| before.get(name).copied().unwrap_or(self.search.now);
        let found = all.iter().filter(|c| !c.is_nominated).map(|c| c.claim.name.clone());
        self.memory.deletable_since = found.map(|name| (name.clone(), since(&name))).collect();
        Deletable { now: set.concat(), all }
    }

    /// When it will be worth it to delete a node if nothing changes until then.
    fn worth_at(&self, candidate: &Candidate<'_>) -> Option<Timestamp> {
        let component = deletion(candidate);
        let left = component.pays_back_after()? - component.quiet_for();
        self.search.now.checked_add(left).ok()
    }

    /// Sets of nodes that cheaper ones can replace, beside nodes that are deleted.
    fn find_replacements(
        &mut self,
        candidates: &[&Candidate<'_>],
        deleted: &[&Candidate<'_>],
    ) -> Vec<BTreeSet<ClaimName>> {
        let simulation = self.simulation.beside(deleted);
        let together = self.most_wasteful(&simulation, &self.as_budgets_allow(by_waste(candidates)));
        let is_new = |c: &&&Candidate<'_>| {
            last_state(self.memory, c) != Some(self.generations)
                && !together.iter().any(|set| set.contains(&c.claim.name))
        };
        let singles: Vec<&Candidate<'_>> =
            candidates.iter().filter(is_new).take(MAX_SINGLE_SIMULATIONS).copied().collect();
        let filter = self.filter;
        let results: Vec<_> = map_in_order(self.search.settings.consolidation_threads, &singles, |candidate| {
            let components = filter.replacements(&simulation, std::slice::from_ref(candidate), 1);
            components.first().map(|component| names_of(&component.sources))
        })
        .collect();
        let mut found = together;
        for (candidate, result) in singles.iter().zip(results) {
            match result {
                Some(sources) if found.is_empty() => found.push(sources),
                // It is found again when the others have gone.
                Some(_) => {}
                None => {
                    let tried = (self.search.now, Some(self.generations));
                    self.memory.unconsolidatable.insert(candidate.claim.name.clone(), tried);
                }
            }
        }
        found
    }

    /// The best of the sets of the most wasteful nodes.
    fn most_wasteful(&self, simulation: &Simulation<'_>, order: &[&Candidate<'_>]) -> Vec<BTreeSet<ClaimName>> {
        let mut sizes: Vec<usize> = REPLACED_TOGETHER.into_iter().filter(|size| *size <= order.len()).collect();
        let all = order.len().min(REPLACED_TOGETHER.last().copied().unwrap_or_default());
        sizes.extend((all > 1 && !sizes.contains(&all)).then_some(all));
        let filter = self.filter;
        let results = map_in_order(self.search.settings.consolidation_threads, &sizes, |size| {
            let components = filter.replacements(simulation, &order[..*size], *size);
            let saving = components.iter().map(|component| i128::from(component.saving().nanos())).sum::<i128>();
            let sets = components.iter().map(|component| names_of(&component.sources)).collect::<Vec<_>>();
            (saving > 0).then_some((saving, sets))
        });
        results
            .flatten()
            .max_by_key(|(saving, sets)| (*saving, Reverse(sets.len())))
            .map(|(_, sets)| sets)
            .unwrap_or_default()
    }
}

/// The most wasteful nodes first, for each pod that would have to move. Reserved ones are paid for anyway.
fn by_waste<'c, 'a>(candidates: &[&'c Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
    let mut order: Vec<&Candidate<'_>> =
        candidates.iter().copied().filter(|c| c.capacity_type != CapacityType::Reserved).collect();
    order.sort_by_key(|c| (Reverse(c.waste_per_eviction()), c.claim.name.clone()));
    order
}

/// Each of these as a group of its own.
pub(super) fn each<'c, 'a>(candidates: Vec<&'c Candidate<'a>>) -> Vec<Vec<&'c Candidate<'a>>> {
    candidates.into_iter().map(|candidate| vec![candidate]).collect()
}

/// True when it is worth it to delete a node, and move its pods to others.
pub(super) fn pays_back(candidate: &Candidate<'_>) -> bool {
    deletion(candidate).pays_back()
}

/// Since when it has been worth it to delete a node; `None` if it is not yet.
pub(in crate::disruption) fn deletion_worth_from(candidate: &Candidate<'_>, now: Timestamp) -> Option<Timestamp> {
    deletion(candidate).worth_from(now)
}

fn deletion<'c, 'a>(candidate: &'c Candidate<'a>) -> Component<'c, 'a> {
    Component { sources: vec![candidate], new_nodes: Vec::new() }
}

/// The state in which a node was last simulated alone without result.
fn last_state(memory: &MoveMemory, candidate: &Candidate<'_>) -> Option<StateGenerations> {
    memory.unconsolidatable.get(&candidate.claim.name).and_then(|(_, state)| *state)
}
