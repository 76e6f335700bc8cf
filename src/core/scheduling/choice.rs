//! Choices: what may a node that is not bought yet still become?
//!
//! A choice is a pool's candidates that suit all pods that were thought of for the node so far, in the zones that suit
//! them. Nodes with the same history of constraints share one choice, so narrowing it is mostly a matter of looking it
//! up, and a node itself remembers little more than what its pods ask for.

use super::allowance::Allowance;
use super::axes::{Axes, AxisId, Domain};
use super::candidates::{Candidate, Offers, Place};
use super::filter::{FilterId, Filters};
use super::variety::Load;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pool::NodePool;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a choice.
pub(super) type ChoiceId = u32;

/// What narrows a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Narrowing {
    /// What a filter lets through.
    Filter(FilterId),
    /// One of these zones, by bits.
    Zones(u32),
    /// A value of a label.
    Label(AxisId, Domain),
    /// What a filter lets through in the zones that are left, or what it does not.
    Counted(FilterId, bool),
}

/// Pods that are in view when a node is chosen for the first of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next<'a> {
    /// Of one.
    pub(super) requests: &'a Resources,
    /// How many may come to the node, the first included.
    pub(super) pods: u32,
}

impl Next<'_> {
    /// What each pod pays of a price where the first has its place, so much of a room being used.
    pub(super) fn price_each(&self, price: i64, used: &Resources, room: &Resources) -> i64 {
        if price == 0 || self.pods <= 1 {
            return price;
        }
        price / (self.requests.copies_that_fit_beside(used, room).clamp(0, i64::from(self.pods) - 1) + 1)
    }
}

/// Candidates of one pool.
pub(super) struct Choice {
    /// The pool, by its place in the market.
    pub(super) offers: usize,
    /// Zones in which at least one candidate remains.
    pub(super) zones: u32,
    /// Candidates with their zones.
    all: Arc<[(Place, u32)]>,
    /// Those that no cheaper one beats: only they are ever the cheapest for anything.
    front: Vec<Place>,
}

/// All choices that came up.
pub(super) struct Choices {
    offers: Vec<Arc<Offers>>,
    all: Vec<Choice>,
    roots: Vec<ChoiceId>,
    narrowed: BTreeMap<(ChoiceId, Narrowing), Option<ChoiceId>>,
    /// By pool and filter: the zones of each candidate that the filter lets through.
    accepted: BTreeMap<(usize, FilterId), Arc<[u32]>>,
}

impl Choices {
    pub(super) fn new(offers: &[Arc<Offers>]) -> Self {
        let mut choices = Self {
            offers: offers.to_vec(),
            all: Vec::new(),
            roots: Vec::new(),
            narrowed: BTreeMap::new(),
            accepted: BTreeMap::new(),
        };
        for (number, offers) in offers.iter().enumerate() {
            let root = choices.add(number, offers.all().into(), offers.front.clone());
            choices.roots.push(root);
        }
        choices
    }

    pub(super) fn offers(&self, pool: usize) -> &Arc<Offers> {
        &self.offers[pool]
    }

    /// How many pools there are.
    pub(super) fn pools(&self) -> usize {
        self.offers.len()
    }

    /// All that a pool may buy.
    pub(super) fn root(&self, pool: usize) -> ChoiceId {
        self.roots[pool]
    }

    pub(super) fn get(&self, choice: ChoiceId) -> &Choice {
        &self.all[choice as usize]
    }

    pub(super) fn candidate(&self, choice: ChoiceId, place: Place) -> &Candidate {
        &self.offers[self.get(choice).offers].candidates[place as usize]
    }

    /// Candidates that remain, with their zones, cheapest first.
    pub(super) fn each(&self, choice: ChoiceId) -> impl Iterator<Item = (&Candidate, u32)> + Clone {
        let candidates = &self.offers[self.get(choice).offers].candidates;
        self.get(choice).all.iter().map(|(place, zones)| (&candidates[*place as usize], *zones))
    }

    /// The zones that each candidate of the pool of a choice has there, by its place; none where it is not among them.
    pub(super) fn zones_by_place(&self, choice: ChoiceId) -> Vec<u32> {
        let Choice { offers, all, .. } = self.get(choice);
        let mut zones = vec![0; self.offers[*offers].candidates.len()];
        all.iter().for_each(|(place, of)| zones[*place as usize] = *of);
        zones
    }

    /// The zones of each candidate of a pool that a filter lets through.
    pub(super) fn accepted(&mut self, pool: usize, filter: FilterId, filters: &Filters) -> Arc<[u32]> {
        let (offers, filter_of) = (&self.offers[pool], filters.get(filter));
        Arc::clone(self.accepted.entry((pool, filter)).or_insert_with(|| offers.accepted(filter_of).into()))
    }

    /// A choice narrowed; `None` when nothing remains.
    pub(super) fn narrow(
        &mut self,
        choice: ChoiceId,
        by: Narrowing,
        (filters, axes): (&Filters, &Axes),
    ) -> Option<ChoiceId> {
        if let Some(known) = self.narrowed.get(&(choice, by)) {
            return *known;
        }
        let pool = self.get(choice).offers;
        let all = Arc::clone(&self.get(choice).all);
        let kept: Vec<(Place, u32)> = match by {
            Narrowing::Zones(mask) => kept(&all, |_| mask),
            Narrowing::Filter(filter) => {
                let accepted = self.accepted(pool, filter, filters);
                kept(&all, |place| accepted[place as usize])
            }
            Narrowing::Label(axis, domain) => {
                let has = |place: Place| self.domain_of(pool, place, axis, axes) == Some(domain);
                kept(&all, |place| if has(place) { u32::MAX } else { 0 })
            }
            Narrowing::Counted(filter, counted) => {
                let (accepted, zones) = (self.accepted(pool, filter, filters), self.get(choice).zones);
                kept(&all, |place| if (accepted[place as usize] & zones != 0) == counted { u32::MAX } else { 0 })
            }
        };
        let narrowed = if kept.is_empty() {
            None
        } else if kept[..] == all[..] {
            Some(choice)
        } else {
            let front = self.offers[pool].front_of(&kept, |_| true);
            Some(self.add(pool, kept.into(), front))
        };
        self.narrowed.insert((choice, by), narrowed);
        narrowed
    }

    /// Values of a label that nodes of a choice may have, by number; only those that an axis knows.
    pub(super) fn domains(&self, choice: ChoiceId, axis: AxisId, axes: &Axes) -> Vec<Domain> {
        let Choice { offers, all, .. } = self.get(choice);
        let mut domains: Vec<Domain> =
            all.iter().filter_map(|(place, _)| self.domain_of(*offers, *place, axis, axes)).collect();
        domains.sort_unstable();
        domains.dedup();
        domains
    }

    /// Where a node lies on an axis if it becomes one of the candidates of a choice.
    pub(super) fn label_of(&self, choice: ChoiceId, place: Place, axis: AxisId, axes: &Axes) -> Option<Domain> {
        self.domain_of(self.get(choice).offers, place, axis, axes)
    }

    /// Makes the values of a label known that nodes of any pool may have.
    pub(super) fn teach(&self, axis: AxisId, axes: &mut Axes) {
        let key = Arc::clone(axes.key(axis));
        for offers in &self.offers {
            let own = offers.labels.get(&key).into_iter();
            let of_sizes = offers.candidates.iter().filter_map(|c| offers.label(c, &key));
            for value in own.cloned().chain(of_sizes) {
                axes.domain(axis, &value);
            }
        }
    }

    /// The cheapest candidate of a choice that holds so much and that is allowed; not cheaper than the one at `from`. In
    /// place of `own`, if that is given.
    pub(super) fn cheapest(
        &mut self,
        choice: ChoiceId,
        from: Place,
        load: Load<'_>,
        own: (&Allowance, Option<Place>),
    ) -> Option<Place> {
        self.best_value(choice, from, (load, Next { requests: load.requests, pods: 1 }), own)
    }

    /// The same where more pods are in view: the candidate at which each pays least, since those that follow share what it
    /// is dearer. Disks and variety are not shared.
    pub(super) fn best_value(
        &mut self,
        choice: ChoiceId,
        from: Place,
        (load, next): (Load<'_>, Next<'_>),
        (allowance, own): (&Allowance, Option<Place>),
    ) -> Option<Place> {
        if load.disks > 0 || !load.needed.is_empty() {
            return self.cheapest_of_all(choice, from, load, (allowance, own));
        }
        if own.is_none() && !allowance.has_place(&self.offers[self.get(choice).offers].pool) {
            return None;
        }
        loop {
            let Choice { offers, front, .. } = &self.all[choice as usize];
            let Offers { candidates, pool, .. } = &*self.offers[*offers];
            let own = own.map(|own| &candidates[own as usize]);
            let paid = own.map_or(0, |own| own.price.nanos());
            let start = front.partition_point(|place| *place < from);
            let mut best: Option<(i64, Place)> = None;
            for place in &front[start..] {
                let candidate = &candidates[*place as usize];
                let more = candidate.price.nanos() - paid;
                // Those that follow are no cheaper, and shared by no more pods than are in view.
                if best.is_some_and(|(each, _)| more / i64::from(next.pods) >= each) {
                    break;
                }
                if load.requests.fits(&candidate.room) {
                    let each = next.price_each(more, load.requests, &candidate.room);
                    best = best.filter(|(least, _)| *least <= each).or(Some((each, *place)));
                }
            }
            let (_, found) = best?;
            if is_allowed(allowance, pool, &candidates[found as usize], own) {
                return Some(found);
            }
            // It beats others that may be bought: they come to the fore without it, and of those all are allowed.
            self.renew_front(choice, allowance);
        }
    }

    /// The same as [`Self::cheapest`] for what takes disks or must keep its variety, which the front does not look at.
    fn cheapest_of_all(
        &self,
        choice: ChoiceId,
        from: Place,
        load: Load<'_>,
        (allowance, own): (&Allowance, Option<Place>),
    ) -> Option<Place> {
        let Choice { offers, all, .. } = &self.all[choice as usize];
        let Offers { candidates, pool, .. } = &*self.offers[*offers];
        let own = own.map(|own| &candidates[own as usize]);
        let holds = |place: &Place| candidates[*place as usize].holds(load.requests, load.disks);
        let mut places = all.iter().map(|(place, _)| *place).filter(|place| *place >= from).filter(holds);
        places.find(|place| {
            is_allowed(allowance, pool, &candidates[*place as usize], own)
                && self.has_variety(choice, *place, load, allowance)
        })
    }

    /// True when a node of a choice that becomes a candidate keeps as many values on offer as it needs.
    pub(super) fn has_variety(&self, choice: ChoiceId, place: Place, load: Load<'_>, allowance: &Allowance) -> bool {
        let offers = &self.offers[self.get(choice).offers];
        load.needed.is_empty() || offers.has_variety(self.each(choice), self.candidate(choice, place), load, allowance)
    }

    /// The lowest price from a candidate of a choice on.
    pub(super) fn next_price(&self, choice: ChoiceId, from: Place) -> Option<i64> {
        let Choice { offers, all, .. } = self.get(choice);
        let next = all.get(all.partition_point(|(place, _)| *place < from))?;
        Some(self.offers[*offers].candidates[next.0 as usize].price.nanos())
    }

    /// Drops what there is no room for any more from the front, and those that it beat come to the fore. Whether there is a
    /// place for one node more is not asked: nodes that have one may still become another candidate.
    fn renew_front(&mut self, choice: ChoiceId, allowance: &Allowance) {
        let Choice { offers, all, .. } = &self.all[choice as usize];
        let offers = &self.offers[*offers];
        let front = offers.front_of(all, |candidate| allowance.has_room(&offers.pool, candidate));
        self.all[choice as usize].front = front;
    }

    fn add(&mut self, pool: usize, all: Arc<[(Place, u32)]>, front: Vec<Place>) -> ChoiceId {
        let zones = all.iter().fold(0, |mask, (_, zones)| mask | zones);
        self.all.push(Choice { offers: pool, zones, all, front });
        self.all.len() as ChoiceId - 1
    }

    fn domain_of(&self, pool: usize, place: Place, axis: AxisId, axes: &Axes) -> Option<Domain> {
        let offers = &self.offers[pool];
        let key = axes.key(axis);
        let value = match offers.labels.get(key) {
            Some(own) => Arc::clone(own),
            None => offers.label(&offers.candidates[place as usize], key)?,
        };
        axes.known(axis, &value)
    }
}

/// True when a candidate may be bought; in place of `own`, if that is given.
fn is_allowed(allowance: &Allowance, pool: &NodePool, candidate: &Candidate, own: Option<&Candidate>) -> bool {
    allowance.allows(pool, candidate) || own.is_some_and(|own| allowance.allows_instead(pool, candidate, own))
}

/// Candidates with those of their zones that are in a mask, as far as there are any.
fn kept(all: &[(Place, u32)], mask: impl Fn(Place) -> u32) -> Vec<(Place, u32)> {
    all.iter().map(|(place, zones)| (*place, zones & mask(*place))).filter(|(_, zones)| *zones != 0).collect()
}
