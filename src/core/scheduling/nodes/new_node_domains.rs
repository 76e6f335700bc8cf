//! Topology domains in which new nodes for a class can be launched.

use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::simulation_state::SchedulingState;
use crate::scheduling::offerings::available::InstanceCandidate;
use crate::scheduling::offerings::candidate_sets::Narrowing;
use crate::scheduling::pods::pod_class::{PodClassId, Relaxation};
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, ZONE_KEY, zones_in_mask};
use std::collections::BTreeSet;

impl SchedulingState {
    /// Computes the domains of new nodes for pods. Preferences are ignored: every possible domain counts.
    pub(crate) fn set_new_node_domains(&mut self, relaxation: &Relaxation) {
        relaxation.steps.iter().for_each(|class| self.set_class_domains(*class, relaxation.required_only));
    }

    fn set_class_domains(&mut self, class: PodClassId, required_only: PodClassId) {
        let topology_keys: BTreeSet<TopologyKeyId> = self
            .constraints
            .topology
            .constrained_keys(class)
            .filter(|topology_key| *topology_key != HOSTNAME_KEY)
            .collect();
        for topology_key in topology_keys {
            let mut domains: BTreeSet<Domain> = BTreeSet::new();
            let (filter, needs) =
                (self.constraints.classes.get(required_only).filter, self.constraints.pod_needs(required_only));
            for pool in 0..self.open.candidate_sets.pool_count() {
                let by = Narrowing::Filter(filter);
                let Some(candidate_set) = self.open.candidate_sets.narrow(
                    self.open.candidate_sets.root(pool),
                    by,
                    self.constraints.filters_and_keys(),
                ) else {
                    continue;
                };
                let holds = |candidate: &InstanceCandidate| {
                    candidate.holds(needs.requests, needs.disks) && self.open.limits.quota_allows(candidate)
                };
                if topology_key == ZONE_KEY {
                    let all = self.open.candidate_sets.get(candidate_set).zones;
                    let mut open = 0;
                    for (candidate, zones) in self.open.candidate_sets.candidates_in(candidate_set) {
                        if open == all {
                            break;
                        }
                        if zones & !open != 0 && holds(candidate) {
                            open |= zones;
                        }
                    }
                    domains.extend(zones_in_mask(open));
                } else {
                    domains.extend(self.open.candidate_sets.domains(
                        candidate_set,
                        topology_key,
                        &self.constraints.topology.keys,
                    ));
                }
            }
            self.constraints.topology.set_new_node_domains(class, topology_key, domains.into_iter().collect());
        }
    }

    /// How many groups have no domain in a zone yet, and would have one if an open node were there.
    pub(crate) fn groups_gaining_domain(&self, node: OpenNodeId, zone: Domain) -> u32 {
        let open = &self.open.nodes[node];
        let pool = self.open.candidate_sets.pool_offerings(self.open.candidate_sets.get(open.candidate_set).pool);
        let best = &pool.candidates[open.candidate as usize];
        self.constraints
            .topology
            .groups_without_domain(ZONE_KEY, zone, |filter| pool.matches_filter(filter, best, 1 << zone))
    }

    /// Bits of the zones of all available offerings.
    pub(crate) fn new_node_zones(&self) -> u32 {
        let sets = &self.open.candidate_sets;
        (0..sets.pool_count()).fold(0, |mask, pool| mask | sets.get(sets.root(pool)).zones)
    }
}
