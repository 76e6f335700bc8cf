//! Offers: where may new nodes for a kind lie, and what leaves it no place?

use super::available::InstanceCandidate;
use super::candidate_sets::Narrowing;
use super::class::{PodClassId, Relaxation};
use super::constraint::UnmetConstraint;
use super::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, ZONE_KEY};
use super::open::OpenNodeId;
use super::result::UnschedulableReason;
use super::scheduler::SchedulingState;
use super::topology::zones_in_mask;
use super::unschedulable::reason_of;
use std::collections::BTreeSet;
use std::sync::Arc;

impl SchedulingState {
    /// The constraint on neighbours that keeps pods of a kind from every node that a pool could make for them.
    pub(super) fn topology_reason(&mut self, class: PodClassId, pool: usize) -> UnschedulableReason {
        let by = Narrowing::Filter(self.constraints.classes.get(class).filter);
        let choices = &mut self.open.candidate_sets;
        let choice = choices.narrow(choices.root(pool), by, self.constraints.filters_and_keys());
        let topology = &self.constraints.topology;
        let mut worst = topology.unmet_constraint(class, HOSTNAME_KEY, Some(self.next_new_host()));
        if let Some(unmet) = worst {
            return reason_of(unmet);
        }
        for axis in topology.constrained_keys(class).filter(|axis| *axis != HOSTNAME_KEY) {
            let choices = &self.open.candidate_sets;
            let domains: Vec<Domain> = match choice {
                Some(choice) if axis == ZONE_KEY => zones_in_mask(choices.get(choice).zones).collect(),
                Some(choice) => choices.domains(choice, axis, &topology.keys),
                None => Vec::new(),
            };
            if domains.is_empty() && topology.unmet_constraint(class, axis, None).is_some() {
                return UnschedulableReason::MissingTopologyKey(Arc::clone(topology.keys.key(axis)));
            }
            let unmet: Vec<Option<UnmetConstraint>> =
                domains.iter().map(|d| topology.unmet_constraint(class, axis, Some(*d))).collect();
            if let Some(unmet) = unmet.iter().copied().min().flatten() {
                return reason_of(unmet);
            }
            worst = worst.max(unmet.into_iter().flatten().max());
        }
        // Each label has a value that would do, but no node has them all.
        worst.map_or(UnschedulableReason::TopologySpread, reason_of)
    }

    /// Works out where new nodes for pods may lie: whatever they prefer, all that they may have is a domain.
    pub(super) fn set_new_node_domains(&mut self, relaxation: &Relaxation) {
        relaxation.steps.iter().for_each(|kind| self.set_class_domains(*kind, relaxation.required_only));
    }

    fn set_class_domains(&mut self, class: PodClassId, bare: PodClassId) {
        let axes: BTreeSet<TopologyKeyId> =
            self.constraints.topology.constrained_keys(class).filter(|axis| *axis != HOSTNAME_KEY).collect();
        for axis in axes {
            let mut domains: BTreeSet<Domain> = BTreeSet::new();
            let (filter, want) = (self.constraints.classes.get(bare).filter, self.constraints.pod_needs(bare));
            for pool in 0..self.open.candidate_sets.pool_count() {
                let by = Narrowing::Filter(filter);
                let Some(choice) = self.open.candidate_sets.narrow(
                    self.open.candidate_sets.root(pool),
                    by,
                    self.constraints.filters_and_keys(),
                ) else {
                    continue;
                };
                let holds = |candidate: &InstanceCandidate| {
                    candidate.holds(want.requests, want.disks) && self.open.limits.quota_allows(candidate)
                };
                if axis == ZONE_KEY {
                    let open = self.open.candidate_sets.candidates_in(choice).filter(|(candidate, _)| holds(candidate));
                    domains.extend(zones_in_mask(open.fold(0, |mask, (_, zones)| mask | zones)));
                } else {
                    domains.extend(self.open.candidate_sets.domains(choice, axis, &self.constraints.topology.keys));
                }
            }
            self.constraints.topology.set_new_node_domains(class, axis, domains.into_iter().collect());
        }
    }

    /// How many constraints would see a zone for the first time if an open node were there.
    pub(super) fn groups_gaining_domain(&self, node: OpenNodeId, zone: Domain) -> u32 {
        let open = &self.open.nodes[node];
        let pool = self.open.candidate_sets.pool_offerings(self.open.candidate_sets.get(open.candidate_set).pool);
        let best = &pool.candidates[open.candidate as usize];
        self.constraints
            .topology
            .groups_without_domain(ZONE_KEY, zone, |filter| pool.matches_filter(filter, best, 1 << zone))
    }

    /// Bits of the zones of everything that may be bought.
    pub(super) fn new_node_zones(&self) -> u32 {
        let choices = &self.open.candidate_sets;
        (0..choices.pool_count()).fold(0, |mask, pool| mask | choices.get(choices.root(pool)).zones)
    }
}
