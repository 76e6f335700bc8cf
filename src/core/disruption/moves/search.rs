//! Searches for moves that save money.
//!
//! First the nodes whose pods all fit on others, as many together as the budgets allow: each set is simulated as a whole.
//! If there are none, nodes that fewer or cheaper new ones can replace: the most wasteful two, three and so on together,
//! of which the best set is taken, and single ones in turn.

use super::super::candidate::Candidate;
use super::super::{BUDGET_RETRY, RemainingBudgets, VALIDATION_DELAY, allows_consolidation};
use super::components::{Component, LONGEST_LIFE, worthwhile};
use super::simulation::{Simulation, SimulationInput};
use super::{Finding, Move, MoveMemory, names_of};
use crate::catalog::CapacityType;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::{ClaimName, NodeName};
use crate::model::support::parallel::map_in_order;
use crate::plan::{Command, Plan};
use crate::provisioning::capacity_buffers::BufferCapacity;
use crate::provisioning::{ProvisionMemory, StateGenerations, claim_draft, has_unobserved_claims};
use crate::scheduling::{AvailableOfferings, NewNode};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Most simulations of sets in one pass.
const MAX_SET_SIMULATIONS: usize = 40;
/// Most simulations of single nodes in one pass.
const MAX_SINGLE_SIMULATIONS: usize = 20;
/// With how many nodes the search for a set begins.
const FIRST_SET: usize = 8;
/// How many of the most wasteful nodes are tried together.
const REPLACED_TOGETHER: [usize; 8] = [2, 3, 4, 6, 9, 14, 21, 32];

/// Inputs of consolidation.
pub(in crate::disruption) struct Search<'a> {
    pub(in crate::disruption) snapshot: &'a Snapshot,
    pub(in crate::disruption) provision: &'a ProvisionMemory,
    pub(in crate::disruption) now: Timestamp,
    pub(in crate::disruption) seed: u64,
    /// How often disruption is considered.
    pub(in crate::disruption) poll_interval: SignedDuration,
    /// How many candidates are simulated concurrently.
    pub(in crate::disruption) threads: NonZeroUsize,
    /// The available offerings, computed once on first use.
    pub(in crate::disruption) available_offerings: &'a dyn Fn() -> &'a AvailableOfferings,
    /// The capacity that CapacityBuffers have.
    pub(in crate::disruption) buffer_capacity: &'a BufferCapacity,
}

/// Nodes that may be disrupted.
#[derive(Clone, Copy)]
pub(in crate::disruption) struct Candidates<'c, 'a> {
    /// Those without pods that would have to move.
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
    let due = memory.validation_due();
    if let Some(due) = due.filter(|due| *due > now) {
        return plan.wake_at(due);
    }
    if due.is_none()
        && let Some((state, retry_at)) = memory.exhausted
        && state == generations
    {
        match retry_at {
            Some(at) if at > now => return plan.wake_at(at),
            Some(_) => memory.unconsolidatable.clear(),
            None => return,
        }
    }
    let movable = candidates.with_pods.iter().copied().filter(|c| allows_consolidation(c.pool.disruption.policy));
    let movable: Vec<&Candidate<'_>> = movable.collect();
    if movable.is_empty() || provision.deferred > 0 || has_unobserved_claims(snapshot) {
        memory.findings.clear();
        return;
    }
    let input = SimulationInput {
        snapshot,
        provision,
        available: (search.available_offerings)(),
        buffer_capacity: search.buffer_capacity,
        now,
    };
    let Some(simulation) = Simulation::new(input, nodes_being_deleted(candidates.empty, plan)) else {
        memory.findings.clear();
        return;
    };
    let mut pass = Pass { search, simulation, memory, budgets, plan, generations, simulations: 0 };
    if due.is_some() {
        pass.carry_out(&movable);
    } else {
        pass.find(movable);
    }
}

/// Nodes that are deleted in this very pass: no pods are moved there.
fn nodes_being_deleted(candidates: &[&Candidate<'_>], plan: &Plan) -> BTreeSet<NodeName> {
    let deleted: BTreeSet<&ClaimName> = plan
        .commands
        .iter()
        .filter_map(|planned| match &planned.command {
            Command::DeleteClaim { claim, .. } => Some(&claim.name),
            _ => None,
        })
        .collect();
    let of_deleted = candidates.iter().filter(|c| deleted.contains(&c.claim.name));
    of_deleted.map(|c| c.node.name.clone()).collect()
}

struct Pass<'p, 'a, 'b> {
    search: &'p Search<'a>,
    simulation: Simulation<'p>,
    memory: &'p mut MoveMemory,
    budgets: &'p mut RemainingBudgets<'b>,
    plan: &'p mut Plan,
    generations: StateGenerations,
    simulations: usize,
}

impl<'p> Pass<'p, '_, '_> {
    /// Simulates again what was found, and carries out what is still worth it.
    fn carry_out(&mut self, candidates: &[&Candidate<'_>]) {
        let by_name: BTreeMap<&ClaimName, &Candidate<'_>> = candidates.iter().map(|c| (&c.claim.name, *c)).collect();
        let findings = std::mem::take(&mut self.memory.findings);
        let groups = findings.iter().filter_map(|finding| {
            let sources: Vec<&Candidate<'_>> = finding.sources.iter().filter_map(|n| by_name.get(n).copied()).collect();
            (sources.len() == finding.sources.len()).then_some(sources)
        });
        let groups: Vec<Vec<&Candidate<'_>>> = groups.collect();
        let new_nodes = groups.iter().map(Vec::len).sum();
        let sources: Vec<&Candidate<'_>> = self.largest_set(&groups, new_nodes).into_iter().flatten().collect();
        let Some(outcome) = self.simulation.without(&sources, sources.len()) else { return };
        let components = worthwhile(&sources, outcome, self.available());
        let deleted = components.iter().filter(|component| component.new_nodes.is_empty());
        let deleted: Vec<&Candidate<'_>> = deleted.flat_map(|component| component.sources.iter().copied()).collect();
        let finds_room = self.simulation.finds_room_without(&deleted);
        let holds = |component: &Component<'_, '_>| finds_room || !component.new_nodes.is_empty();
        for (index, component) in components.into_iter().filter(holds).enumerate() {
            if self.budgets.consume_all(&component.sources, DisruptionReason::Underutilized) {
                self.start(component, index);
            } else {
                self.plan.wake_at(self.search.now + BUDGET_RETRY);
            }
        }
    }

    /// As many groups of nodes as can be disrupted together, in order.
    fn largest_set<'c, 'a>(
        &mut self,
        groups: &[Vec<&'c Candidate<'a>>],
        new_nodes: usize,
    ) -> Vec<Vec<&'c Candidate<'a>>> {
        let mut accepted: Vec<Vec<&Candidate<'_>>> = Vec::new();
        let (mut next, mut size) = (0, FIRST_SET);
        while next < groups.len() && self.simulations < MAX_SET_SIMULATIONS {
            let end = groups.len().min(next + size);
            let tried = &groups[next..end];
            let sources: Vec<&Candidate<'_>> = accepted.iter().chain(tried).flatten().copied().collect();
            self.simulations += 1;
            let finds_room = || new_nodes > 0 || self.simulation.finds_room_without(&sources);
            if self.simulation.without(&sources, new_nodes).is_some() && finds_room() {
                accepted.extend(tried.iter().cloned());
                (next, size) = (end, size * 2);
            } else if tried.len() > 1 {
                size = tried.len() / 2;
            } else {
                next = end;
            }
        }
        accepted
    }

    /// Searches for moves, which must hold for a while.
    fn find(&mut self, mut candidates: Vec<&Candidate<'_>>) {
        let last = |c: &Candidate<'_>| self.memory.unconsolidatable.get(&c.claim.name);
        candidates.sort_by_key(|c| {
            let per_pod = i128::from(c.price.nanos()) / (1 + c.pods.len() as i128);
            (last(c).map(|(at, _)| *at), Reverse(per_pod), c.claim.name.clone())
        });
        let (candidates, is_blocked) = self.within_budgets(candidates);
        if is_blocked {
            self.plan.wake_at(self.search.now + BUDGET_RETRY);
        }
        let mut found = self.find_deletions(&candidates);
        if found.is_empty() {
            found = self.find_replacements(&candidates);
        }
        if found.is_empty() {
            let is_done = candidates.iter().all(|c| last_state(self.memory, c) == Some(self.generations));
            let retry_at = self.retry_at(&candidates);
            self.memory.exhausted = (is_done && !is_blocked).then_some((self.generations, retry_at));
            retry_at.into_iter().for_each(|at| self.plan.wake_at(at));
            return;
        }
        let found_at = self.search.now;
        self.memory.findings = found.into_iter().map(|sources| Finding { sources, found_at }).collect();
        self.plan.wake_at(found_at + VALIDATION_DELAY);
    }

    /// When more may be worth it although nothing changes: after a quarter of the time for which nothing has.
    fn retry_at(&self, candidates: &[&Candidate<'_>]) -> Option<Timestamp> {
        let quiet_for = candidates.iter().map(|c| c.quiet_for).filter(|time| *time < LONGEST_LIFE).min()?;
        self.search.now.checked_add((quiet_for / 4).max(self.search.poll_interval)).ok()
    }

    /// Those that the budgets of their pools allow to be disrupted, in order, and whether there are others.
    fn within_budgets<'c, 'a>(&mut self, candidates: Vec<&'c Candidate<'a>>) -> (Vec<&'c Candidate<'a>>, bool) {
        let count = candidates.len();
        let budgets = &mut *self.budgets;
        let is_open = |c: &&Candidate<'_>| budgets.left(c.pool, DisruptionReason::Underutilized) > 0;
        let open: Vec<&Candidate<'_>> = candidates.into_iter().filter(is_open).collect();
        let is_blocked = open.len() < count;
        (open, is_blocked)
    }

    /// As many as the budgets allow to be disrupted together, in order.
    fn as_budgets_allow<'c, 'a>(&self, candidates: Vec<&'c Candidate<'a>>) -> Vec<&'c Candidate<'a>> {
        let mut budgets = self.budgets.clone();
        candidates.into_iter().filter(|c| budgets.consume(c, DisruptionReason::Underutilized)).collect()
    }

    /// Nodes whose pods all fit on others, each a set of its own.
    fn find_deletions(&mut self, candidates: &[&Candidate<'_>]) -> Vec<BTreeSet<ClaimName>> {
        let is_worth_it = |c: &&&Candidate<'_>| Component { sources: vec![**c], new_nodes: Vec::new() }.pays_back();
        let singles: Vec<Vec<&Candidate<'_>>> = candidates.iter().filter(is_worth_it).map(|c| vec![*c]).collect();
        let deleted: Vec<&Candidate<'_>> = self.largest_set(&singles, 0).into_iter().flatten().collect();
        self.as_budgets_allow(deleted).iter().map(|c| [c.claim.name.clone()].into()).collect()
    }

    /// Sets of nodes that cheaper ones can replace.
    fn find_replacements(&mut self, candidates: &[&Candidate<'_>]) -> Vec<BTreeSet<ClaimName>> {
        let together = self.most_wasteful(&self.as_budgets_allow(by_waste(candidates)));
        let is_new = |c: &&&Candidate<'_>| {
            last_state(self.memory, c) != Some(self.generations)
                && !together.iter().any(|set| set.contains(&c.claim.name))
        };
        let singles: Vec<&Candidate<'_>> =
            candidates.iter().filter(is_new).take(MAX_SINGLE_SIMULATIONS).copied().collect();
        let (simulation, available) = (&self.simulation, self.available());
        let results: Vec<_> = map_in_order(self.search.threads, &singles, |candidate| {
            let sources = std::slice::from_ref(candidate);
            let components = worthwhile(sources, simulation.without(sources, 1)?, available);
            // Where none is needed, the pods do not find room however they are placed.
            let component = components.first().filter(|component| !component.new_nodes.is_empty())?;
            Some(names_of(&component.sources))
        })
        .collect();
        let mut found = together;
        for (candidate, result) in singles.iter().zip(results) {
            match result {
                Some(sources) if found.is_empty() => found.push(sources),
                // It is found again when the others have gone.
                Some(_) => {}
                None => {
                    let tried = (self.search.now, self.generations);
                    self.memory.unconsolidatable.insert(candidate.claim.name.clone(), tried);
                }
            }
        }
        if candidates.len() > MAX_SINGLE_SIMULATIONS {
            self.plan.wake_at(self.search.now + self.search.poll_interval);
        }
        found
    }

    /// The best of the sets of the most wasteful nodes.
    fn most_wasteful(&self, order: &[&Candidate<'_>]) -> Vec<BTreeSet<ClaimName>> {
        let mut sizes: Vec<usize> = REPLACED_TOGETHER.into_iter().filter(|size| *size <= order.len()).collect();
        let all = order.len().min(REPLACED_TOGETHER.last().copied().unwrap_or_default());
        sizes.extend((all > 1 && !sizes.contains(&all)).then_some(all));
        let (simulation, available) = (&self.simulation, self.available());
        let results = map_in_order(self.search.threads, &sizes, |size| {
            let sources = &order[..*size];
            let mut components = worthwhile(sources, simulation.without(sources, *size)?, available);
            components.retain(|component| !component.new_nodes.is_empty());
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

    fn available(&self) -> &'p AvailableOfferings {
        (self.search.available_offerings)()
    }

    /// Begins a move.
    fn start(&mut self, component: Component<'_, '_>, index: usize) {
        let saving = component.saving();
        let pods = component.pods();
        if component.new_nodes.is_empty() {
            component.sources.iter().for_each(|source| self.delete(source));
            return;
        }
        let may_launch = |node: &NewNode| {
            // One node that is tried is for pods that wait.
            !self.search.snapshot.holds_launches() && !self.search.snapshot.pool_holds.contains_key(&node.pool)
        };
        if !component.new_nodes.iter().all(may_launch) {
            return;
        }
        let old: Vec<&str> = component.sources.iter().map(|source| source.node.name.as_str()).collect();
        let mut drafts = Vec::new();
        for (i, node) in component.new_nodes.into_iter().enumerate() {
            let best = node.offerings.first().map(|o| o.key.to_string()).unwrap_or_default();
            let reason = format!("replacing {} with {best} for {pods} pods saves {saving}/h", old.join(", "));
            let number = usize::MAX - index * 1_000 - i;
            let Some(mut draft) = claim_draft(self.search.snapshot, node, self.search.seed, self.search.now, number)
            else {
                return;
            };
            draft.spec.replaces = component.sources.iter().map(|source| source.claim.name.clone()).collect();
            drafts.push((draft, reason));
        }
        let sources: Vec<_> = component.sources.iter().map(|source| source.claim.reference()).collect();
        let Some(first) = sources.first().map(|source| source.name.clone()) else { return };
        let one = Move { sources, drafts, replacements: Vec::new(), since: self.search.now };
        self.memory.moves.insert(first, one);
    }

    fn delete(&mut self, source: &Candidate<'_>) {
        let command = Command::DeleteClaim { claim: source.claim.reference(), category: "underutilized" };
        let gain = match source.capacity_type {
            CapacityType::Reserved => "frees reserved capacity".to_owned(),
            CapacityType::Spot | CapacityType::OnDemand => format!("saves {}/h", source.price),
        };
        let pods = source.pods.len();
        let fit = if pods == 1 { "its pod can move to".to_owned() } else { format!("its {pods} pods can move to") };
        self.plan.push(command, format!("{fit} other nodes, which {gain}"));
    }
}

/// The most wasteful nodes first, for each pod that would have to move. Reserved ones are paid for anyway.
fn by_waste<'c, 'a>(candidates: &[&'c Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
    let mut order: Vec<&Candidate<'_>> =
        candidates.iter().copied().filter(|c| c.capacity_type != CapacityType::Reserved).collect();
    order.sort_by_key(|c| (Reverse(c.waste() / (1 + c.pods.len() as i128)), c.claim.name.clone()));
    order
}

/// The state in which a node was last simulated alone without result.
fn last_state(memory: &MoveMemory, candidate: &Candidate<'_>) -> Option<StateGenerations> {
    memory.unconsolidatable.get(&candidate.claim.name).map(|(_, state)| *state)
}
