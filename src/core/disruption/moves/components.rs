//! Divides a simulation into moves that share nothing: a node and the new nodes that its pods go to, and all others whose
//! pods go there too.

use super::super::balanced::BalancedPools;
use super::super::candidate::Candidate;
use super::simulation::Simulation;
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::ObjectKey;
use crate::scheduling::{AvailableOfferings, NewNode, SchedulingResult, Target};
use jiff::SignedDuration;
use std::collections::{BTreeMap, BTreeSet};

/// A spot node is only replaced by spot where at least this many cheaper sizes are on offer, as in Karpenter: fewer
/// would walk down to the size that is evicted next. But where half of its price is saved, that walk is soon over.
const MIN_SPOT_TO_SPOT_SIZES: usize = 15;
/// For how long both a replacement and what it replaces are paid for: until the VM runs, its node is ready and the pods have
/// left.
const DOUBLE_RUNNING: SignedDuration = SignedDuration::from_mins(3);
/// What the eviction of a pod is worth where its node is deleted: so long what its requests cost.
const EVICTION_WORTH: SignedDuration = SignedDuration::from_mins(3);
/// The same where its node is replaced. A node that is kept may soon be deleted without a replacement, and a replacement
/// may soon be deleted itself, which evicts its pods once more.
const EVICTION_WORTH_OF_REPLACED: SignedDuration = SignedDuration::from_mins(7);
/// The longest time for which a saving is expected to last. A replacement saves at least 7.5 % of its own price so.
pub(super) const LONGEST_LIFE: SignedDuration = SignedDuration::from_mins(40);

/// Nodes that are disrupted together, and what replaces them.
#[derive(Debug)]
pub(super) struct Component<'c, 'a> {
    pub(super) sources: Vec<&'c Candidate<'a>>,
    pub(super) new_nodes: Vec<NewNode>,
}

/// Decides which moves are worth it, and which need not be simulated since none can be.
#[derive(Clone, Copy)]
pub(super) struct MoveFilter<'p> {
    available: &'p AvailableOfferings,
    pub(super) balanced_pools: &'p BalancedPools<'p>,
    /// The lowest price of a new node.
    lowest_price: Option<HourlyPrice>,
}

impl<'p> MoveFilter<'p> {
    pub(super) fn new(available: &'p AvailableOfferings, balanced_pools: &'p BalancedPools<'p>) -> Self {
        Self { available, balanced_pools, lowest_price: available.lowest_price() }
    }

    /// The moves that replace some of these nodes, by at most so many new ones, and are worth it.
    pub(super) fn replacements<'c, 'a>(
        &self,
        simulation: &Simulation<'_>,
        sources: &[&'c Candidate<'a>],
        max_new_nodes: usize,
    ) -> Vec<Component<'c, 'a>> {
        if !self.may_be_worthwhile(sources) {
            return Vec::new();
        }
        let Some(outcome) = simulation.without(sources, max_new_nodes) else { return Vec::new() };
        let worthwhile = components(sources, outcome).into_iter().filter_map(|found| found.worthwhile(self.available));
        let approved = worthwhile.filter(|found| self.balanced_pools.approve(&found.sources, found.saving()));
        // One that needs no new node is found among those that can be deleted, if it holds however pods are placed.
        approved.filter(|found| !found.new_nodes.is_empty()).collect()
    }

    /// False if no replacement of any of these nodes can pay back by [`Component::pays_back_after`].
    ///
    /// An upper bound of what is gained: for each node what it costs for as long as nothing has changed there, less the
    /// evictions, where that is positive. A lower bound of what is paid: one new node at the lowest price of all, for the
    /// shortest of these times and while both run.
    pub(super) fn may_be_worthwhile(&self, sources: &[&Candidate<'_>]) -> bool {
        let Some(lowest) = self.lowest_price else { return false };
        let life = |source: &Candidate<'_>| source.quiet_for.min(LONGEST_LIFE).as_nanos();
        let gain = |source: &&Candidate<'_>| {
            let counted = i128::from((source.price + source.per_node).nanos());
            counted * life(source) - source.used_price() * EVICTION_WORTH_OF_REPLACED.as_nanos()
        };
        let per_node = sources.first().map_or(HourlyPrice::ZERO, |source| source.per_node);
        let shortest = sources.iter().map(|source| life(source)).min().unwrap_or_default();
        let new_node =
            i128::from((lowest + per_node).nanos()) * shortest + i128::from(lowest.nanos()) * DOUBLE_RUNNING.as_nanos();
        sources.iter().map(gain).filter(|gain| *gain > 0).sum::<i128>() >= new_node
    }
}

fn components<'c, 'a>(sources: &[&'c Candidate<'a>], outcome: SchedulingResult) -> Vec<Component<'c, 'a>> {
    let mut source_of: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
    for (i, source) in sources.iter().enumerate() {
        source_of.extend(source.pods.iter().map(|pod| (&pod.key, i)));
    }
    // The component of each source and of each new node after them; joined ones have the lowest number of any.
    let mut groups: Vec<usize> = (0..sources.len() + outcome.new_nodes.len()).collect();
    for placement in &outcome.placements {
        let Target::New(node) = placement.target else { continue };
        // What belongs to no source, as a chunk of a CapacityBuffer, may have been on any.
        let of_pod = source_of.get(&placement.pod).map_or(0..sources.len(), |source| *source..*source + 1);
        for source in of_pod {
            join(&mut groups, source, sources.len() + node);
        }
    }
    let mut found: BTreeMap<usize, Component<'c, 'a>> = BTreeMap::new();
    let component = || Component { sources: Vec::new(), new_nodes: Vec::new() };
    for (source, group) in sources.iter().zip(&groups) {
        found.entry(*group).or_insert_with(component).sources.push(source);
    }
    for (node, group) in outcome.new_nodes.into_iter().zip(&groups[sources.len()..]) {
        found.entry(*group).or_insert_with(component).new_nodes.push(node);
    }
    found.into_values().collect()
}

fn join(groups: &mut [usize], one: usize, other: usize) {
    let (from, to) = (groups[one].max(groups[other]), groups[one].min(groups[other]));
    groups.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
}

impl Component<'_, '_> {
    /// What it saves, with the cheapest offerings of its new nodes.
    pub(super) fn saving(&self) -> HourlyPrice {
        self.old_price() - self.new_price()
    }

    /// The same with what each node counts beside its price, which is one setting of the cluster; in nano-USD per hour.
    fn compared_saving(&self) -> i64 {
        let per_node = self.sources.first().map_or(HourlyPrice::ZERO, |source| source.per_node);
        let fewer = self.sources.len() as i64 - self.new_nodes.len() as i64;
        (self.saving() + per_node * fewer).nanos()
    }

    fn old_price(&self) -> HourlyPrice {
        self.sources.iter().map(|source| source.price).sum()
    }

    fn new_price(&self) -> HourlyPrice {
        self.new_nodes.iter().filter_map(|node| node.offerings.first()).map(|offering| offering.price).sum()
    }

    /// How many pods it evicts.
    pub(super) fn pods(&self) -> usize {
        self.sources.iter().map(|source| source.pods.len()).sum()
    }

    /// The same with the offerings that save money, if there are any.
    fn worthwhile(mut self, available: &AvailableOfferings) -> Option<Self> {
        if !self.pays_back() {
            return None;
        }
        if self.new_nodes.is_empty() {
            return Some(self);
        }
        // A reserved node is paid for anyway: replacing it saves nothing.
        if self.sources.iter().any(|source| source.capacity_type == CapacityType::Reserved) {
            return None;
        }
        let saving = self.saving();
        if saving.nanos() <= 0 {
            return None;
        }
        // Whichever of them Azure has, the new nodes cost less than the old ones.
        let share = saving.nanos() / i64::try_from(self.new_nodes.len()).unwrap_or(i64::MAX);
        for node in &mut self.new_nodes {
            let best = node.offerings.first()?.price;
            let limit = best + HourlyPrice::from_nanos(share);
            node.offerings.retain(|offering| offering.price == best || offering.price < limit);
            let meets_min_values = available.meets_min_values(node);
            if !meets_min_values {
                return None;
            }
        }
        (!self.repeats_an_offering() && self.may_replace_spot()).then_some(self)
    }

    /// What it saves for as long as that may last is worth more than what it costs.
    pub(super) fn pays_back(&self) -> bool {
        self.pays_back_after().is_some_and(|least| self.quiet_for() >= least)
    }

    /// For how long nothing has changed.
    pub(super) fn quiet_for(&self) -> SignedDuration {
        self.sources.iter().map(|source| source.quiet_for).min().unwrap_or_default()
    }

    /// For how long nothing must have changed for it to be worth what it costs; `None` if it is not worth that after
    /// any time. Nobody knows for how long it will save; what has not changed for some time is expected not to change
    /// for as long again, so that at the worst twice the cost of the best decision is paid, as with any rule for when
    /// to buy instead of rent (Karlin et al., 1988).
    pub(super) fn pays_back_after(&self) -> Option<SignedDuration> {
        let saving = i128::from(self.compared_saving());
        let paid_twice = i128::from(self.new_price().nanos()) * DOUBLE_RUNNING.as_nanos();
        let used: i128 = self.sources.iter().map(|source| source.used_price()).sum();
        let eviction_worth = if self.new_nodes.is_empty() { EVICTION_WORTH } else { EVICTION_WORTH_OF_REPLACED };
        let cost = paid_twice + used * eviction_worth.as_nanos();
        match (cost, saving) {
            (0, 0..) => Some(SignedDuration::ZERO),
            (_, 1..) => {
                let nanos = i64::try_from((cost + saving - 1) / saving).ok()?;
                Some(SignedDuration::from_nanos(nanos)).filter(|after| *after <= LONGEST_LIFE)
            }
            _ => None,
        }
    }

    /// A new node would be what one of the old ones is, which might as well be kept.
    fn repeats_an_offering(&self) -> bool {
        let of_source = |candidate: &&Candidate<'_>| candidate.claim.intent.as_ref().map(|i| i.offering.key.clone());
        let old: BTreeSet<_> = self.sources.iter().filter_map(of_source).collect();
        self.new_nodes.iter().filter_map(|node| node.offerings.first()).any(|offering| old.contains(&offering.key))
    }

    fn may_replace_spot(&self) -> bool {
        let spot = CapacityType::Spot;
        let mut spot_nodes =
            self.new_nodes.iter().filter(|n| n.offerings.first().is_some_and(|o| o.key.capacity_type == spot));
        if !self.sources.iter().any(|source| source.capacity_type == spot) {
            return true;
        }
        let saves_half = self.saving().nanos().saturating_mul(2) >= self.old_price().nanos();
        spot_nodes.all(|node| {
            let sizes: BTreeSet<_> = node.offerings.iter().map(|offering| &offering.key.size).collect();
            saves_half || sizes.len() >= MIN_SPOT_TO_SPOT_SIZES
        })
    }
}
