//! Filling: which size is best bought for pods that wait, and which of them fill it?
//!
//! Each candidate of a pool is filled with what waits, and the one with the lowest price per value of the pods it holds is
//! the best. Only candidates that no other beats in price and room are tried. What a pod is worth, and in which order pods
//! fill a candidate, is a matter of [`Style`].

use super::allowance::Allowance;
use super::bound::worths;
use super::candidates::Offers;
use super::variety::Load;
use crate::model::amounts::resources::Resources;
use crate::model::settings::MinValuesPolicy;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// By what candidates are filled and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// The largest pods first. A pod is worth the least that its share of any candidate would cost, so a candidate filled
    /// to the brim in every resource scores 1, and waste scores worse.
    Largest,
    /// Those first whose proportions are most like those of the room that is left (the dot product of Panigrahy et al.,
    /// "Heuristics for Vector Bin Packing", 2011). A pod is worth what it asks for, by the prices of the
    /// [bound](super::bound): by them no candidate is worth more than it costs.
    Even,
}

/// A candidate filled with lots: pods taken of each.
#[derive(Default)]
pub(super) struct Fill {
    pub(super) taken: Vec<usize>,
    pub(super) zones: u32,
    value: i128,
    /// What is left.
    room: Resources,
}

/// Waiting pods that are alike.
pub(super) struct Lot {
    /// Bits of the zones in which each candidate of the pool suits them.
    pub(super) accepted: Arc<[u32]>,
    /// Of one.
    pub(super) requests: Resources,
    /// How many wait.
    pub(super) waiting: usize,
}

/// A pool, and what waits for its nodes.
pub(super) struct Counter {
    offers: Arc<Offers>,
    lots: Vec<Lot>,
    style: Style,
    /// What becomes of pods for which there is less variety than the pool asks for.
    min_values: MinValuesPolicy,
    /// Candidates that are tried.
    front: Vec<usize>,
    /// Of one pod of each lot.
    values: Vec<i128>,
    /// How often a lot was looked at beside a candidate.
    pub(super) looks: u64,
}

impl Counter {
    pub(super) fn new(offers: &Arc<Offers>, lots: Vec<Lot>, style: Style, min_values: MinValuesPolicy) -> Self {
        Self { offers: Arc::clone(offers), lots, style, min_values, front: Vec::new(), values: Vec::new(), looks: 0 }
    }

    /// The candidate that is best bought now, filled; its pods wait no longer.
    pub(super) fn next(&mut self, allowance: &Allowance) -> Option<(usize, Fill)> {
        if allowance.nodes == 0 || self.is_done() {
            return None;
        }
        let pool = &self.offers.pool;
        if self.front.is_empty() || !self.front.iter().all(|c| allowance.allows(pool, &self.offers.candidates[*c])) {
            self.renew(allowance);
        }
        let (candidate, fill) = self.best(allowance)?;
        for (lot, taken) in self.lots.iter_mut().zip(&fill.taken) {
            lot.waiting -= taken;
        }
        Some((candidate, fill))
    }

    /// True when nothing waits any more.
    pub(super) fn is_done(&self) -> bool {
        self.lots.iter().all(|lot| lot.waiting == 0)
    }

    /// How many candidates are tried for each node.
    pub(super) fn width(&mut self, allowance: &Allowance) -> usize {
        self.renew(allowance);
        self.front.len()
    }

    /// Works out anew which candidates are worth trying, and what a pod is worth.
    fn renew(&mut self, allowance: &Allowance) {
        self.front = self.front(allowance);
        self.values = match self.style {
            Style::Largest => self.lots.iter().map(|lot| self.least_share(lot)).collect(),
            Style::Even => self.worths(),
        };
    }

    /// Candidates within limits that no other for the same lots in the same zones beats: at most its price, at least its
    /// room. A purchase that puts one of them out of limits calls for a new front: the next best were beaten by it.
    fn front(&self, allowance: &Allowance) -> Vec<usize> {
        // Lots with the same filter accept the same.
        let mut distinct: Vec<&Arc<[u32]>> = Vec::new();
        for Lot { accepted, .. } in &self.lots {
            if !distinct.iter().any(|known| Arc::ptr_eq(known, accepted)) {
                distinct.push(accepted);
            }
        }
        let candidates = &self.offers.candidates;
        let mut groups: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for (c, candidate) in candidates.iter().enumerate() {
            let suits: Vec<u32> = distinct.iter().map(|accepted| accepted[c]).collect();
            if suits.iter().all(|zones| *zones == 0) || !allowance.allows(&self.offers.pool, candidate) {
                continue;
            }
            let group = groups.entry(suits).or_default();
            if !group.iter().any(|&kept| candidate.room.fits(&candidates[kept].room)) {
                group.push(c);
            }
        }
        let mut front: Vec<usize> = groups.into_values().flatten().collect();
        front.sort_unstable();
        front
    }

    /// The value of one pod of a lot, in nano-USD per hour: its greatest share of any resource of a candidate times the
    /// candidate's price, at the cheapest candidate for it. 0 where no candidate holds it.
    fn least_share(&self, lot: &Lot) -> i128 {
        let suiting = self.front.iter().filter(|c| lot.accepted[**c] != 0);
        let shares = suiting.filter_map(|&c| {
            let candidate = &self.offers.candidates[c];
            share_of(&lot.requests, &candidate.room, i128::from(candidate.price.nanos()))
        });
        shares.min().map_or(0, |v| v.max(1))
    }

    /// The value of one pod of each lot by the prices of the bound.
    fn worths(&self) -> Vec<i128> {
        let mut demand = Resources::default();
        self.lots.iter().for_each(|lot| demand.add(&lot.requests.times(lot.waiting as i64)));
        let rooms = self.front.iter().map(|c| &self.offers.candidates[*c]).map(|c| (&c.room, c.price));
        let worths = worths(&demand, rooms);
        self.lots.iter().map(|lot| worths.of(&lot.requests).max(1)).collect()
    }

    /// The candidate that is best bought now. Two fills are made use of again and again: there may be thousands of nodes.
    fn best(&mut self, allowance: &Allowance) -> Option<(usize, Fill)> {
        let (mut best, mut fill, mut found) = (Fill::default(), Fill::default(), None);
        let mut looks = 0;
        let waiting: Vec<usize> = (0..self.lots.len()).filter(|d| self.lots[*d].waiting > 0).collect();
        for &c in &self.front {
            self.empty(c, &mut fill);
            match self.style {
                Style::Largest => self.fill_with_largest(c, &waiting, &mut fill),
                Style::Even => self.fill_evenly(c, &mut fill, &mut looks),
            }
            looks += self.lots.len() as u64;
            if fill.value > 0
                && found.is_none_or(|b| self.beats((c, &fill), (b, &best)))
                && self.has_variety(c, &fill, allowance)
            {
                std::mem::swap(&mut best, &mut fill);
                found = Some(c);
            }
        }
        self.looks += looks;
        Some((found?, best))
    }

    fn fill_with_largest(&self, c: usize, waiting: &[usize], fill: &mut Fill) {
        for d in waiting {
            let fits = self.fits(c, *d, fill);
            if fits > 0 {
                self.take(*d, fits, fill, c);
            }
        }
    }

    fn fill_evenly(&self, c: usize, fill: &mut Fill, looks: &mut u64) {
        let whole = &self.offers.candidates[c].room;
        let mut open: Vec<usize> = (0..self.lots.len()).collect();
        loop {
            *looks += open.len() as u64;
            open.retain(|d| self.fits(c, *d, fill) > 0);
            let likeness = |d: usize| likeness(&self.lots[d].requests, &fill.room, whole);
            let Some(best) = open.iter().copied().max_by(|a, b| likeness(*a).total_cmp(&likeness(*b)).then(b.cmp(a)))
            else {
                return;
            };
            // A quarter of what would fit, so that few steps fill the node, and what is left is looked at again.
            let pods = self.fits(c, best, fill).div_ceil(4);
            self.take(best, pods, fill, c);
        }
    }

    /// Makes a fill that of a candidate with nothing on it.
    fn empty(&self, c: usize, fill: &mut Fill) {
        let candidate = &self.offers.candidates[c];
        fill.taken.clear();
        fill.taken.resize(self.lots.len(), 0);
        fill.room.clone_from(&candidate.room);
        (fill.zones, fill.value) = (candidate.zones, 0);
    }

    /// How many pods of a lot would go to a candidate that is filled so far.
    fn fits(&self, c: usize, d: usize, fill: &Fill) -> usize {
        let lot = &self.lots[d];
        let left = lot.waiting - fill.taken[d];
        if left == 0 || fill.zones & lot.accepted[c] == 0 {
            return 0;
        }
        usize::try_from(lot.requests.copies_that_fit(&fill.room).unwrap_or(i64::MAX)).unwrap_or(0).min(left)
    }

    fn take(&self, d: usize, pods: usize, fill: &mut Fill, c: usize) {
        let lot = &self.lots[d];
        fill.room.sub_times(&lot.requests, pods as i64);
        fill.taken[d] += pods;
        fill.zones &= lot.accepted[c];
        fill.value += self.values[d] * pods as i128;
    }

    /// True when a candidate that is filled keeps as many values on offer as the pool asks for.
    fn has_variety(&self, c: usize, fill: &Fill, allowance: &Allowance) -> bool {
        if self.offers.least.is_empty() {
            return true;
        }
        let taken: Vec<(usize, &Lot)> = self.lots.iter().enumerate().filter(|(d, _)| fill.taken[*d] > 0).collect();
        let suiting = self.offers.candidates.iter().enumerate().map(|(c, candidate)| {
            (candidate, taken.iter().fold(candidate.zones, |zones, (_, lot)| zones & lot.accepted[c]))
        });
        let suiting = suiting.filter(|(_, zones)| *zones != 0);
        let mut requests = Resources::default();
        taken.iter().for_each(|(d, lot)| requests.add(&lot.requests.times(fill.taken[*d] as i64)));
        let chosen = &self.offers.candidates[c];
        let first = taken.first().map_or(&requests, |(_, first)| &first.requests);
        let first = Load { requests: first, disks: 0, needed: &[] };
        let needed = self.offers.needed_from(self.min_values, suiting.clone(), (chosen, first), allowance);
        let load = Load { requests: &requests, disks: 0, needed: &needed };
        self.offers.has_variety(suiting, chosen, load, allowance)
    }

    /// A lower price per value wins; then more value; then the earlier candidate.
    fn beats(&self, (c, a): (usize, &Fill), (d, b): (usize, &Fill)) -> bool {
        let price = |c: usize| i128::from(self.offers.candidates[c].price.nanos().max(1));
        let (ours, theirs) = (price(c) * b.value, price(d) * a.value);
        (ours, Reverse(a.value), c) < (theirs, Reverse(b.value), d)
    }
}

/// What share of a room a request takes, by the resource that takes most, times a price; `None` when it does not fit.
fn share_of(requests: &Resources, room: &Resources, price: i128) -> Option<i128> {
    if !requests.fits(room) {
        return None;
    }
    let shares =
        requests.requested_with_available(room).map(|(need, room)| price * i128::from(need) / i128::from(room.max(1)));
    Some(shares.max().unwrap_or(0))
}

/// How much the proportions of a request are like those of the room that is left of a whole: the cosine of the angle
/// between them, in shares of the whole.
fn likeness(requests: &Resources, room: &Resources, whole: &Resources) -> f64 {
    let shares = requests.requested_with_available(whole).zip(requests.requested_with_available(room));
    let (mut dot, mut norm) = (0.0, 0.0);
    for ((need, whole), (_, left)) in shares {
        let (need, left) = (need as f64 / whole.max(1) as f64, left as f64 / whole.max(1) as f64);
        dot += need * left;
        norm += need * need;
    }
    dot / norm.sqrt().max(f64::MIN_POSITIVE)
}
