//! Divides a simulation into moves that share nothing: a node and the new nodes that its pods go to, and all others whose
//! pods go there too.

use super::super::balanced::BalancedPools;
use super::super::candidate::Candidate;
use super::payback::{
    DOUBLE_RUNNING, EVICTION_WORTH, is_cheaper_type, may_pay_back, quiet_for_life, worth_of_replaced,
};
use super::simulation::Simulation;
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::ObjectKey;
use crate::scheduling::{AvailableOfferings, NewNode, SchedulingResult, Target};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A spot node is only replaced by spot where at least this many cheaper sizes are on offer, as in Karpenter: fewer
/// would walk down to the size that is evicted next. But where half of its price is saved, that walk is soon over.
const MIN_SPOT_TO_SPOT_SIZES: usize = 15;

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
    /// The lowest price of a new on-demand node.
    lowest_on_demand: Option<HourlyPrice>,
    /// The lowest price of a new spot or reserved one.
    lowest_of_cheaper_type: Option<HourlyPrice>,
}

impl<'p> MoveFilter<'p> {
    pub(super) fn new(available: &'p AvailableOfferings, balanced_pools: &'p BalancedPools<'p>) -> Self {
        let lowest_on_demand = available.lowest_price(|capacity_type| !is_cheaper_type(capacity_type));
        let lowest_of_cheaper_type = available.lowest_price(is_cheaper_type);
        Self { available, balanced_pools, lowest_on_demand, lowest_of_cheaper_type }
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

    /// The moves that take all of these nodes away, by at most so many new ones, whatever they cost.
    pub(super) fn all_moves<'c, 'a>(
        &self,
        simulation: &Simulation<'_>,
        sources: &[&'c Candidate<'a>],
        max_new_nodes: usize,
    ) -> Vec<Component<'c, 'a>> {
        let outcome = simulation.without(sources, max_new_nodes);
        outcome.map(|outcome| components(sources, outcome)).unwrap_or_default()
    }

    /// False if no replacement of any of these nodes can pay back by [`Component::pays_back_after`].
    pub(super) fn may_be_worthwhile(&self, sources: &[&Candidate<'_>]) -> bool {
        let may = |lowest: Option<HourlyPrice>, is_cheaper_type| {
            lowest.is_some_and(|lowest| may_pay_back(sources, lowest, is_cheaper_type))
        };
        may(self.lowest_on_demand, false) || may(self.lowest_of_cheaper_type, true)
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
        // Whichever of them Azure has, the new nodes cost less than the old ones, and are spot or reserved if it is not worth
        // it otherwise.
        let share = saving.nanos() / i64::try_from(self.new_nodes.len()).unwrap_or(i64::MAX);
        let rests_on_type = !self.pays_back_if(false);
        for node in &mut self.new_nodes {
            let first = node.offerings.first()?;
            let (best, limit) = (first.price, first.price + HourlyPrice::from_nanos(share));
            let must_be_cheaper_type = rests_on_type && is_cheaper_type(first.key.capacity_type);
            node.offerings.retain(|offering| {
                (offering.price == best || offering.price < limit)
                    && (!must_be_cheaper_type || is_cheaper_type(offering.key.capacity_type))
            });
            let meets_min_values = available.meets_min_values(node);
            if !meets_min_values {
                return None;
            }
        }
        (!self.repeats_an_offering() && self.may_replace_spot()).then_some(self)
    }

    /// What it saves for as long as that may last is worth more than what it costs.
    pub(super) fn pays_back(&self) -> bool {
        self.pays_back_if(self.is_by_cheaper_type())
    }

    /// The same if spot or reserved nodes are among the new ones, or none such.
    fn pays_back_if(&self, is_by_cheaper_type: bool) -> bool {
        self.pays_back_after_if(is_by_cheaper_type).is_some_and(|least| self.quiet_for() >= least)
    }

    /// For how long nothing has changed.
    pub(super) fn quiet_for(&self) -> SignedDuration {
        self.sources.iter().map(|source| source.quiet_for).min().unwrap_or_default()
    }

    /// For how long nothing must have changed for it to be worth what it costs; `None` if it is not worth that after
    /// any time.
    pub(super) fn pays_back_after(&self) -> Option<SignedDuration> {
        self.pays_back_after_if(self.is_by_cheaper_type())
    }

    /// Since when it has been worth what it costs, if it is; all that changes without an event is for how long nothing has.
    pub(super) fn worth_from(&self, now: Timestamp) -> Option<Timestamp> {
        let longer = self.quiet_for() - self.pays_back_after()?;
        // Whole seconds, as times are shown; not sooner.
        let since = now.checked_sub(SignedDuration::from_secs(longer.as_secs())).ok();
        since.filter(|_| !longer.is_negative())
    }

    fn pays_back_after_if(&self, is_by_cheaper_type: bool) -> Option<SignedDuration> {
        let saving = i128::from(self.compared_saving());
        let paid_twice = i128::from(self.new_price().nanos()) * DOUBLE_RUNNING.as_nanos();
        match (paid_twice + self.evictions_worth(is_by_cheaper_type), saving) {
            (0, 0..) => Some(SignedDuration::ZERO),
            (cost, 1..) => {
                let nanos = i64::try_from((cost + saving - 1) / saving).ok()?;
                quiet_for_life(SignedDuration::from_nanos(nanos))
            }
            _ => None,
        }
    }

    /// What its evictions are worth: nano-USD per hour, for so many nanoseconds.
    fn evictions_worth(&self, is_by_cheaper_type: bool) -> i128 {
        let worth = |source: &Candidate<'_>| match self.new_nodes.is_empty() {
            true => EVICTION_WORTH,
            false => worth_of_replaced(source, is_by_cheaper_type),
        };
        self.sources.iter().map(|source| source.used_price() * worth(source).as_nanos()).sum()
    }

    /// Spot or reserved nodes are among the new ones.
    fn is_by_cheaper_type(&self) -> bool {
        let mut first_offerings = self.new_nodes.iter().filter_map(|node| node.offerings.first());
        first_offerings.any(|offering| is_cheaper_type(offering.key.capacity_type))
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
