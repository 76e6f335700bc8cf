//! Places pods on existing and open nodes.

use crate::scheduling::nodes::best_open_node::Search;
use crate::scheduling::nodes::existing::ExistingNodes;
use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::pod_needs::PodAddition;
use crate::scheduling::nodes::simulation_state::{NodeRef, PodConstraints, SchedulingState};
use crate::scheduling::offerings::candidate_sets::Narrowing;
use crate::scheduling::pods::pod_class::{PodClassId, PodGroup, Relaxation};
use crate::scheduling::topology::Topology;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, ZONE_KEY, zone_bit, zones_in_mask};
use std::collections::{BTreeMap, BTreeSet};

/// Searches of the open nodes, by pod class and zone.
struct Searches {
    by_class: BTreeMap<(PodClassId, Option<Domain>), Search>,
    /// How many pods they expect.
    remaining_pods: usize,
}
/// By zone: the first existing node that may still have capacity.
type ZoneCursors = BTreeMap<Option<Domain>, usize>;

impl Searches {
    fn new(pods: usize) -> Self {
        Self { by_class: BTreeMap::new(), remaining_pods: pods }
    }

    /// Updates the expected number of pods whenever it has halved.
    fn set_remaining(&mut self, pods: usize, constraints: &PodConstraints) {
        if pods * 2 <= self.remaining_pods {
            self.remaining_pods = pods;
            self.by_class.values_mut().for_each(|search| search.expect_pods(pods, constraints));
        }
    }
}

impl SchedulingState {
    /// Places pods one by one, since the placement of each affects the next.
    pub(crate) fn place_one_by_one(&mut self, group: &mut PodGroup) {
        self.set_new_node_domains(&group.relaxation);
        let (mut searches, mut from) = (Searches::new(group.pods.len()), ZoneCursors::new());
        let pods = std::mem::take(&mut group.pods);
        let mut pods = pods.into_iter();
        let first = self.placed.len();
        while let Some(pod) = pods.next() {
            searches.set_remaining(pods.len() + 1, &self.constraints);
            let mut node_ref = self.place_pod(&group.relaxation, &mut from, &mut searches);
            // A domain where no node can be launched must not hold down the minimum count of a spread constraint. Every
            // iteration but the last withdraws a domain.
            while node_ref.is_none() && self.constraints.topology.withdraw_unusable_domains(&group.relaxation.steps) {
                node_ref = self.place_pod(&group.relaxation, &mut from, &mut searches);
            }
            let Some((class, node_ref)) = node_ref else {
                // The others of its class cannot be placed either.
                group.pods.push(pod);
                break;
            };
            self.placed.push((pod, class, node_ref));
        }
        group.pods.extend(pods);
        self.shrink(first);
    }

    /// Shrinks the open nodes of pods placed from `first` on.
    fn shrink(&mut self, first: usize) {
        let node_refs = self.placed[first..].iter().filter_map(|(_, _, node_ref)| match node_ref {
            NodeRef::Open(node) => Some(*node),
            NodeRef::Existing(_) => None,
        });
        let nodes: BTreeSet<OpenNodeId> = node_refs.collect();
        nodes.into_iter().for_each(|node| self.open.shrink(node));
    }

    /// Places one pod: on existing capacity, or else on a new node with as many of its preferences as possible.
    fn place_pod(
        &mut self,
        relaxation: &Relaxation,
        from: &mut ZoneCursors,
        searches: &mut Searches,
    ) -> Option<(PodClassId, NodeRef)> {
        if let Some(index) = self.place_on_existing(relaxation.required_only, from) {
            return Some((relaxation.required_only, NodeRef::Existing(index)));
        }
        relaxation.steps.iter().find_map(|class| Some((*class, self.place_on_open(*class, searches)?)))
    }

    /// Places pods of an unconstrained class on existing and open nodes, as long as that costs no more than new nodes.
    pub(crate) fn place_identical(&mut self, group: &mut PodGroup) {
        let class = group.relaxation.required_only;
        let filter = self.constraints.classes.get(class).filter;
        let pods = std::mem::take(&mut group.pods);
        let mut waiting = pods.into_iter().peekable();
        for index in 0..self.existing.len() {
            if waiting.peek().is_none() {
                return;
            }
            let fitting = self.existing.pods_that_fit(index, self.constraints.pod_needs(class));
            if fitting <= 0 || !self.existing.matches_filter_cached(index, filter, &self.constraints.filters) {
                continue;
            }
            let taken = usize::try_from(fitting).unwrap_or(usize::MAX).min(waiting.len());
            self.add_to_existing(index, class, taken as u32);
            self.placed.extend(waiting.by_ref().take(taken).map(|pod| (pod, class, NodeRef::Existing(index))));
        }
        let (first, pods) = (self.placed.len(), waiting.len());
        let mut search = Search::new(class, None, &self.constraints, pods);
        let max_cost =
            PodAddition::max_cost_beside(search.cheapest_new_node(&mut self.open, &self.constraints).as_ref());
        while waiting.peek().is_some() {
            let Some((node, pod_addition)) = search.best(&mut self.open, &self.constraints, max_cost) else { break };
            self.add_to_open(node, pod_addition, class);
            self.placed.extend(waiting.next().map(|pod| (pod, class, NodeRef::Open(node))));
        }
        group.pods.extend(waiting);
        self.shrink(first);
    }

    /// Places one pod on an existing node.
    fn place_on_existing(&mut self, class: PodClassId, from: &mut ZoneCursors) -> Option<usize> {
        for zone in self.zones_in_order(class, self.existing.zones().iter().copied()) {
            let start = from.entry(zone).or_insert(0);
            if let Some(index) = find_existing(&self.constraints, &mut self.existing, (class, zone), start) {
                self.add_to_existing(index, class, 1);
                return Some(index);
            }
        }
        None
    }

    /// Places one pod on an open node, or on a new one where that is cheaper.
    fn place_on_open(&mut self, class: PodClassId, searches: &mut Searches) -> Option<NodeRef> {
        for zone in self.zones_in_order(class, zones_in_mask(self.new_node_zones())) {
            let search = {
                let (by, pods) = (&mut searches.by_class, searches.remaining_pods);
                by.entry((class, zone)).or_insert_with(|| Search::new(class, zone, &self.constraints, pods))
            };
            let alone = search.cheapest_new_node(&mut self.open, &self.constraints);
            let best = search.best(&mut self.open, &self.constraints, PodAddition::max_cost_beside(alone.as_ref()));
            let opened = best.or_else(|| self.open_node(class, alone?));
            if let Some((node, pod_addition)) = opened {
                self.add_to_open(node, pod_addition, class);
                return Some(NodeRef::Open(node));
            }
        }
        None
    }

    /// The cheapest new node for a pod of a class, in one zone if one is given.
    pub(crate) fn cheapest_new_node(&mut self, class: PodClassId, zone: Option<Domain>) -> Option<PodAddition> {
        let open = self.constraints.topology.allows(class, HOSTNAME_KEY, Some(self.next_new_host()));
        open.then(|| {
            Search::new(class, zone, &self.constraints, 1).cheapest_new_node(&mut self.open, &self.constraints)
        })
        .flatten()
    }

    /// Opens a new node for a pod of a class, if its constraints allow it an empty host.
    fn open_node(&mut self, class: PodClassId, alone: PodAddition) -> Option<(OpenNodeId, PodAddition)> {
        let open = self.constraints.topology.allows(class, HOSTNAME_KEY, Some(self.next_new_host()));
        open.then(|| (self.open.open(alone.candidate_set, alone.candidate, self.constraints.pod_needs(class)), alone))
    }

    /// The host that the next new node would be.
    pub(crate) fn next_new_host(&self) -> Domain {
        self.constraints.host_of(self.open.nodes.len())
    }

    /// The zones that are allowed for the next pod of a class, best first; a single `None` where its zone does not
    /// matter.
    pub(crate) fn zones_in_order(&self, class: PodClassId, all: impl Iterator<Item = Domain>) -> Vec<Option<Domain>> {
        let topology = &self.constraints.topology;
        if topology.constrained_keys(class).all(|topology_key| topology_key != ZONE_KEY) {
            return vec![None];
        }
        let weighted = all.map(|zone| (self.open.node_count_in(zone), zone));
        topology.domains_in_order(class, ZONE_KEY, weighted).into_iter().map(Some).collect()
    }

    /// Takes the capacity of an existing node, and counts the pods there.
    pub(crate) fn add_to_existing(&mut self, index: usize, class: PodClassId, pods: u32) {
        let SchedulingState { constraints, existing, .. } = self;
        existing.add_pods(index, (class as u32, pods), constraints.pod_needs(class));
        count_on_existing(&mut constraints.topology, existing, (class, pods), index);
    }

    /// Places a pod on an open node, and counts it there.
    pub(crate) fn add_to_open(&mut self, node: OpenNodeId, addition: PodAddition, class: PodClassId) {
        let pod_addition = self.pin_domains(node, addition, class);
        self.open.add_pods(node, pod_addition, self.constraints.pod_needs(class), 1);
        self.count_on_open(node, class, 1);
    }

    /// Counts pods that were placed on an open node.
    pub(crate) fn count_on_open(&mut self, node: OpenNodeId, class: PodClassId, pods: u32) {
        let (host, open_nodes) = (self.constraints.host_of(node), &self.open);
        let domains: Vec<Option<Domain>> = (0..self.constraints.topology.keys.len())
            .map(|topology_key| match topology_key {
                HOSTNAME_KEY => Some(host),
                ZONE_KEY => open_nodes.zone(node),
                _ => open_nodes.domain(node, topology_key, &self.constraints.topology.keys),
            })
            .collect();
        let pool = open_nodes
            .candidate_sets
            .pool_offerings(open_nodes.candidate_sets.get(open_nodes.nodes[node].candidate_set).pool);
        let best = &pool.candidates[open_nodes.nodes[node].candidate as usize];
        let zone = zone_bit(domains[ZONE_KEY]);
        for (topology_key, domain) in domains.iter().enumerate().skip(ZONE_KEY) {
            domain.iter().for_each(|domain| {
                self.constraints
                    .topology
                    .add_domain(topology_key, *domain, |filter| pool.matches_filter(filter, best, zone));
            });
        }
        self.constraints.topology.count(
            class,
            pods,
            |topology_key| domains[topology_key],
            |filter| pool.matches_filter(filter, best, zone),
        );
    }

    /// Narrows a node to one domain of every topology key (of zones only if a constraint concerns them), and to
    /// candidates that count alike in every group.
    pub(crate) fn pin_domains(&mut self, node: OpenNodeId, addition: PodAddition, class: PodClassId) -> PodAddition {
        let mut pod_addition = self.pin_zone(node, addition, class);
        for topology_key in ZONE_KEY + 1..self.constraints.topology.keys.len() {
            let sets = &mut self.open.candidate_sets;
            let Some(domain) = sets.candidate_domain(
                pod_addition.candidate_set,
                pod_addition.candidate,
                topology_key,
                &self.constraints.topology.keys,
            ) else {
                continue;
            };
            let narrowed = sets.narrow(
                pod_addition.candidate_set,
                Narrowing::Label(topology_key, domain),
                self.constraints.filters_and_keys(),
            );
            pod_addition.candidate_set = narrowed.unwrap_or(pod_addition.candidate_set);
        }
        pod_addition.candidate_set = self.pin_counting(pod_addition.candidate_set, pod_addition.candidate);
        pod_addition
    }

    /// Narrows a node whose pods are counted by zone to one zone: of several the one with the fewest nodes.
    fn pin_zone(&mut self, node: OpenNodeId, addition: PodAddition, class: PodClassId) -> PodAddition {
        let open = self.open.candidate_sets.get(addition.candidate_set).zones;
        if open.is_power_of_two() || !self.constraints.topology.affects(class, ZONE_KEY) {
            return addition;
        }
        let Some(zone) = self.open.least_used_zone(open) else { return addition };
        let by = Narrowing::Zones(1 << zone);
        let narrowed = self.open.candidate_sets.narrow(addition.candidate_set, by, self.constraints.filters_and_keys());
        let pinned = narrowed
            .and_then(|candidate_set| self.open.can_add(node, candidate_set, self.constraints.pod_needs(class)));
        pinned.unwrap_or(addition)
    }
}

/// Counts pods that were placed on an existing node.
fn count_on_existing(
    topology: &mut Topology,
    existing: &ExistingNodes,
    (class, pods): (PodClassId, u32),
    index: usize,
) {
    let domains: Vec<Option<Domain>> =
        (0..topology.keys.len()).map(|topology_key| existing.domain(index, topology_key, &mut topology.keys)).collect();
    topology.count(class, pods, |topology_key| domains[topology_key], |filter| existing.matches_filter(index, filter));
}

/// The first existing node from index `from` on that takes a pod of a class; `from` advances past nodes that never will
/// again.
pub(crate) fn find_existing(
    constraints: &PodConstraints,
    existing: &mut ExistingNodes,
    (class, zone): (PodClassId, Option<Domain>),
    from: &mut usize,
) -> Option<usize> {
    let (needs, filter) = (constraints.pod_needs(class), constraints.classes.get(class).filter);
    let mut all_full = true;
    for index in *from..existing.len() {
        let excluded = zone.is_some() && existing.zone(index) != zone
            || existing.pods_that_fit(index, needs) <= 0
            || !existing.matches_filter_cached(index, filter, &constraints.filters);
        if !excluded {
            let open = constraints.topology.constrained_keys(class).all(|topology_key| match topology_key {
                HOSTNAME_KEY => constraints.topology.allows(class, HOSTNAME_KEY, Some(index as Domain)),
                ZONE_KEY => constraints.topology.allows(class, ZONE_KEY, existing.zone(index)),
                _ => constraints.topology.allows(
                    class,
                    topology_key,
                    existing.known_domain(index, topology_key, &constraints.topology.keys),
                ),
            });
            if open {
                return Some(index);
            }
            all_full = false;
        }
        if all_full {
            *from = index + 1;
        }
    }
    None
}
