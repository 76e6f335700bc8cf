//! Offers: where may new nodes for a kind lie, and what leaves it no place?

use super::asks::Unmet;
use super::axes::{AxisId, Domain, HOST, ZONE};
use super::candidates::Candidate;
use super::choice::Narrowing;
use super::kinds::{Family, KindId};
use super::open::NodeId;
use super::outcome::WhyNot;
use super::solve::Solver;
use super::topology::zones;
use super::why::topology_of;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Solver {
    /// The constraint on neighbours that keeps pods of a kind from every node that a pool could make for them.
    pub(super) fn unmet(&mut self, kind: KindId, pool: usize) -> WhyNot {
        let by = Narrowing::Filter(self.known.kinds.get(kind).filter);
        let choices = &mut self.shop.choices;
        let choice = choices.narrow(choices.root(pool), by, self.known.names());
        let topology = &self.known.topology;
        let mut worst = topology.unmet(kind, HOST, Some(self.empty_host()));
        if let Some(unmet) = worst {
            return topology_of(unmet);
        }
        for axis in topology.asked_axes(kind).filter(|axis| *axis != HOST) {
            let choices = &self.shop.choices;
            let domains: Vec<Domain> = match choice {
                Some(choice) if axis == ZONE => zones(choices.get(choice).zones).collect(),
                Some(choice) => choices.domains(choice, axis, &topology.axes),
                None => Vec::new(),
            };
            if domains.is_empty() && topology.unmet(kind, axis, None).is_some() {
                return WhyNot::TopologyKey(Arc::clone(topology.axes.key(axis)));
            }
            let unmet: Vec<Option<Unmet>> = domains.iter().map(|d| topology.unmet(kind, axis, Some(*d))).collect();
            if let Some(unmet) = unmet.iter().copied().min().flatten() {
                return topology_of(unmet);
            }
            worst = worst.max(unmet.into_iter().flatten().max());
        }
        // Each label has a value that would do, but no node has them all.
        worst.map_or(WhyNot::Spread, topology_of)
    }

    /// Works out where new nodes for pods may lie: whatever they prefer, all that they may have is a domain.
    pub(super) fn offer(&mut self, family: &Family) {
        family.steps.iter().for_each(|kind| self.offer_to(*kind, family.bare));
    }

    fn offer_to(&mut self, kind: KindId, bare: KindId) {
        let axes: BTreeSet<AxisId> = self.known.topology.asked_axes(kind).filter(|axis| *axis != HOST).collect();
        for axis in axes {
            let mut domains: BTreeSet<Domain> = BTreeSet::new();
            let (filter, want) = (self.known.kinds.get(bare).filter, self.known.want(bare));
            for pool in 0..self.shop.choices.pools() {
                let by = Narrowing::Filter(filter);
                let Some(choice) = self.shop.choices.narrow(self.shop.choices.root(pool), by, self.known.names())
                else {
                    continue;
                };
                let holds = |candidate: &Candidate| {
                    candidate.holds(want.requests, want.disks) && self.shop.allowance.quota_allows(candidate)
                };
                if axis == ZONE {
                    let open = self.shop.choices.each(choice).filter(|(candidate, _)| holds(candidate));
                    domains.extend(zones(open.fold(0, |mask, (_, zones)| mask | zones)));
                } else {
                    domains.extend(self.shop.choices.domains(choice, axis, &self.known.topology.axes));
                }
            }
            self.known.topology.offer(kind, axis, domains.into_iter().collect());
        }
    }

    /// How many constraints would see a zone for the first time if an open node were there.
    pub(super) fn would_open(&self, node: NodeId, zone: Domain) -> u32 {
        let open = &self.shop.nodes[node];
        let pool = self.shop.choices.offers(self.shop.choices.get(open.choice).offers);
        let best = &pool.candidates[open.best as usize];
        self.known.topology.would_be_new(ZONE, zone, |filter| pool.lets(filter, best, 1 << zone))
    }

    /// Bits of the zones of everything that may be bought.
    pub(super) fn all_zones(&self) -> u32 {
        let choices = &self.shop.choices;
        (0..choices.pools()).fold(0, |mask, pool| mask | choices.get(choices.root(pool)).zones)
    }
}
