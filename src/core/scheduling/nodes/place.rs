//! Places pods on existing and open nodes.

use crate::scheduling::nodes::existing::ExistingNodes;
use crate::scheduling::nodes::new_node::OpenNodeId;
use crate::scheduling::nodes::pod_needs::PodAddition;
use crate::scheduling::nodes::search::Search;
use crate::scheduling::nodes::state::{NodeRef, PodConstraints, SchedulingState};
use crate::scheduling::offerings::candidate_sets::Narrowing;
use crate::scheduling::pods::class::{PodClassId, PodGroup, Relaxation};
use crate::scheduling::topology::Topology;
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, ZONE_KEY, zone_bit, zones_in_mask};
use std::collections::{BTreeMap, BTreeSet};

/// What pod classes know of the open nodes, by zone.
struct Searches {
    by_class: BTreeMap<(PodClassId, Option<Domain>), Search>,
    /// How many pods they reckon with.
    remaining_pods: usize,
}
/// By zone: the first existing node that may still have room.
type ZoneCursors = BTreeMap<Option<Domain>, usize>;

impl Searches {
    fn new(pods: usize) -> Self {
        Self { by_class: BTreeMap::new(), remaining_pods: pods }
    }

    /// Reckons with fewer when only half of the pods are left.
    fn set_remaining(&mut self, pods: usize, constraints: &PodConstraints) {
        if pods * 2 <= self.remaining_pods {
            self.remaining_pods = pods;
            self.by_class.values_mut().for_each(|search| search.expect_pods(pods, constraints));
        }
    }
}

impl SchedulingState {
    /// Places pods one by one, since the place of each matters to the next.
    pub(crate) fn place_one_by_one(&mut self, group: &mut PodGroup) {
        self.set_new_node_domains(&group.relaxation);
        let (mut searches, mut from) = (Searches::new(group.pods.len()), ZoneCursors::new());
        let pods = std::mem::take(&mut group.pods);
        let mut pods = pods.into_iter();
        let first = self.placed.len();
        while let Some(pod) = pods.next() {
            searches.set_remaining(pods.len() + 1, &self.constraints);
            let mut node_ref = self.place_pod(&group.relaxation, &mut from, &mut searches);
            // Where no node can be had, that nobody is there is no reason to go nowhere else. Every turn but the last takes a
            // domain from those on offer.
            while node_ref.is_none() && self.constraints.topology.withdraw_unusable_domains(&group.relaxation.steps) {
                node_ref = self.place_pod(&group.relaxation, &mut from, &mut searches);
            }
            let Some((class, node_ref)) = node_ref else {
                // What this one could not have, the others of its class cannot have either.
                group.pods.push(pod);
                break;
            };
            self.placed.push((pod, class, node_ref));
        }
        group.pods.extend(pods);
        self.shrink(first);
    }

    /// Makes open nodes that took a pod, of those placed from `first` on, no larger than they must be.
    fn shrink(&mut self, first: usize) {
        let node_refs = self.placed[first..].iter().filter_map(|(_, _, node_ref)| match node_ref {
            NodeRef::Open(node) => Some(*node),
            NodeRef::Existing(_) => None,
        });
        let nodes: BTreeSet<OpenNodeId> = node_refs.collect();
        nodes.into_iter().for_each(|node| self.open.shrink(node));
    }

    /// A place for one pod, which is taken: where there is room, or else on a new node with as much of what it prefers as can
    /// be had.
    fn place_pod(
        &mut self,
        relaxation: &Relaxation,
        from: &mut ZoneCursors,
        searches: &mut Searches,
    ) -> Option<(PodClassId, NodeRef)> {
        if let Some(node_index) = self.place_on_existing(relaxation.required_only, from) {
            return Some((relaxation.required_only, NodeRef::Existing(node_index)));
        }
        relaxation.steps.iter().find_map(|class| Some((*class, self.place_on_open(*class, searches)?)))
    }

    /// Places pods of a plain class on nodes that exist or are open, as many as there is room for at a reasonable
    /// price.
    pub(crate) fn place_identical(&mut self, group: &mut PodGroup) {
        let class = group.relaxation.required_only;
        let filter = self.constraints.classes.get(class).filter;
        let pods = std::mem::take(&mut group.pods);
        let mut waiting = pods.into_iter().peekable();
        for site in 0..self.existing.len() {
            if waiting.peek().is_none() {
                return;
            }
            let room = self.existing.pods_that_fit(site, self.constraints.pod_needs(class));
            if room <= 0 || !self.existing.matches_filter_cached(site, filter, &self.constraints.filters) {
                continue;
            }
            let taken = usize::try_from(room).unwrap_or(usize::MAX).min(waiting.len());
            self.add_to_existing(site, class, taken as u32);
            self.placed.extend(waiting.by_ref().take(taken).map(|pod| (pod, class, NodeRef::Existing(site))));
        }
        let (first, pods) = (self.placed.len(), waiting.len());
        let mut search = Search::new(class, None, &self.constraints, pods);
        let most = PodAddition::max_cost_beside(search.cheapest_new_node(&mut self.open, &self.constraints).as_ref());
        while waiting.peek().is_some() {
            let Some((node, pod_addition)) = search.best(&mut self.open, &self.constraints, most) else { break };
            self.add_to_open(node, pod_addition, class);
            self.placed.extend(waiting.next().map(|pod| (pod, class, NodeRef::Open(node))));
        }
        group.pods.extend(waiting);
        self.shrink(first);
    }

    /// An existing node for one pod, which is taken.
    fn place_on_existing(&mut self, class: PodClassId, from: &mut ZoneCursors) -> Option<usize> {
        for zone in self.zones_in_order(class, self.existing.zones().iter().copied()) {
            let start = from.entry(zone).or_insert(0);
            if let Some(site) = find_existing(&self.constraints, &mut self.existing, (class, zone), start) {
                self.add_to_existing(site, class, 1);
                return Some(site);
            }
        }
        None
    }

    /// An open node for one pod, which is taken; opened for it, where that is cheaper.
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

    /// The cheapest node of its own for a pod of a class, in one zone if one is given.
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

    /// The zones that are open to the next pod of a class, best first; once none in particular where no zone
    /// matters to it.
    pub(crate) fn zones_in_order(&self, class: PodClassId, all: impl Iterator<Item = Domain>) -> Vec<Option<Domain>> {
        let topology = &self.constraints.topology;
        if topology.constrained_keys(class).all(|topology_key| topology_key != ZONE_KEY) {
            return vec![None];
        }
        let weighed = all.map(|zone| (self.open.node_count_in(zone), zone));
        topology.domains_in_order(class, ZONE_KEY, weighed).into_iter().map(Some).collect()
    }

    /// Takes the capacity of an existing node, and counts the pods there.
    pub(crate) fn add_to_existing(&mut self, site: usize, class: PodClassId, pods: u32) {
        let SchedulingState { constraints: known, existing: existing_nodes, .. } = self;
        existing_nodes.add_pods(site, (class as u32, pods), known.pod_needs(class));
        count_on_existing(&mut known.topology, existing_nodes, (class, pods), site);
    }

    /// Puts a pod on an open node, and counts it there.
    pub(crate) fn add_to_open(&mut self, node: OpenNodeId, addition: PodAddition, class: PodClassId) {
        let pod_addition = self.pin_domains(node, addition, class);
        self.open.add_pods(node, pod_addition, self.constraints.pod_needs(class), 1);
        self.count_on_open(node, class, 1);
    }

    /// Counts pods that were put on an open node.
    pub(crate) fn count_on_open(&mut self, node: OpenNodeId, class: PodClassId, pods: u32) {
        let (host, open_nodes) = (self.constraints.host_of(node), &self.open);
        let known_keys: Vec<Option<Domain>> = (0..self.constraints.topology.keys.len())
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
        let zone = zone_bit(known_keys[ZONE_KEY]);
        for (topology_key, domain) in known_keys.iter().enumerate().skip(ZONE_KEY) {
            domain.iter().for_each(|domain| {
                self.constraints
                    .topology
                    .add_domain(topology_key, *domain, |filter| pool.matches_filter(filter, best, zone));
            });
        }
        self.constraints.topology.count(
            class,
            pods,
            |topology_key| known_keys[topology_key],
            |filter| pool.matches_filter(filter, best, zone),
        );
    }

    /// A node is one domain of every label that pods spread or gather by, of zones where that matters to its pods, and counts
    /// or does not.
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

    /// A node whose pods are counted by zone must be in one: where it may be in several, the one with the fewest nodes.
    fn pin_zone(&mut self, node: OpenNodeId, addition: PodAddition, class: PodClassId) -> PodAddition {
        let open = self.open.candidate_sets.get(addition.candidate_set).zones;
        if open.is_power_of_two() || !self.constraints.topology.affects(class, ZONE_KEY) {
            return addition;
        }
        let Some(zone) = self.open.least_used_zone(open) else { return addition };
        let by = Narrowing::Zones(1 << zone);
        let narrowed = self.open.candidate_sets.narrow(addition.candidate_set, by, self.constraints.filters_and_keys());
        let again = narrowed.and_then(|set_id| self.open.can_add(node, set_id, self.constraints.pod_needs(class)));
        again.unwrap_or(addition)
    }
}

/// Counts pods that were put in an existing node.
fn count_on_existing(topology: &mut Topology, existing: &ExistingNodes, (class, pods): (PodClassId, u32), site: usize) {
    let known_keys: Vec<Option<Domain>> =
        (0..topology.keys.len()).map(|topology_key| existing.domain(site, topology_key, &mut topology.keys)).collect();
    topology.count(
        class,
        pods,
        |topology_key| known_keys[topology_key],
        |filter| existing.matches_filter(site, filter),
    );
}

/// The first existing node from the site `from` on that takes a pod of a class. Those that never will again are
/// left behind.
pub(crate) fn find_existing(
    constraints: &PodConstraints,
    existing: &mut ExistingNodes,
    (class, zone): (PodClassId, Option<Domain>),
    from: &mut usize,
) -> Option<usize> {
    let (want, filter) = (constraints.pod_needs(class), constraints.classes.get(class).filter);
    let mut all_full = true;
    for site in *from..existing.len() {
        let hopeless = zone.is_some() && existing.zone(site) != zone
            || existing.pods_that_fit(site, want) <= 0
            || !existing.matches_filter_cached(site, filter, &constraints.filters);
        if !hopeless {
            let open = constraints.topology.constrained_keys(class).all(|topology_key| match topology_key {
                HOSTNAME_KEY => constraints.topology.allows(class, HOSTNAME_KEY, Some(site as Domain)),
                ZONE_KEY => constraints.topology.allows(class, ZONE_KEY, existing.zone(site)),
                _ => constraints.topology.allows(
                    class,
                    topology_key,
                    existing.known_domain(site, topology_key, &constraints.topology.keys),
                ),
            });
            if open {
                return Some(site);
            }
            all_full = false;
        }
        if all_full {
            *from = site + 1;
        }
    }
    None
}
