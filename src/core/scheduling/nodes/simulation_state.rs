//! The state of one simulation: existing and open nodes, pod classes, and what was placed.

use crate::catalog::OfferingKey;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::ObjectKey;
use crate::scheduling::nodes::existing::ExistingNodes;
use crate::scheduling::nodes::new_node::{OpenNodeId, OpenNodes};
use crate::scheduling::offerings::available::{CandidateIndex, InstanceCandidate, PoolOfferings};
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, CandidateSets, Narrowing};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::pods::node_filter::{NodeFilter, NodeFilterId, NodeFilters};
use crate::scheduling::pods::pod_class::PodClassKey;
use crate::scheduling::pods::pod_class::{PodClassId, PodClasses, PodGroup, Relaxation};
use crate::scheduling::pods::volume_limits::{PodVolumes, VolumeIndex};
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, TopologyKeys, ZONE_KEY};
use crate::scheduling::topology::existing_pods::ExistingPods;
use crate::scheduling::topology::{LateDomains, Topology};
use crate::scheduling::{Input, Target, UnschedulableReason};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pod classes with their filters and topology constraints.
pub(crate) struct PodConstraints {
    pub(crate) classes: PodClasses,
    pub(crate) filters: NodeFilters,
    pub(crate) topology: Topology,
    /// Topology keys for which the label values of new nodes are registered.
    registered_keys: BTreeSet<TopologyKeyId>,
    /// Hostname domains below this are existing nodes, and the others open nodes.
    existing_count: usize,
    /// By pool: filters of topology groups that only some of its candidates match.
    counting_filters: Vec<Vec<NodeFilterId>>,
}

/// The node of a placed pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeRef {
    Existing(usize),
    Open(OpenNodeId),
}

/// One simulation.
pub(crate) struct SchedulingState {
    pub(crate) constraints: PodConstraints,
    pub(crate) existing: ExistingNodes,
    pub(crate) open: OpenNodes,
    /// In the order in which they are to be bound.
    pub(crate) placed: Vec<(Arc<Pod>, PodClassId, NodeRef)>,
}

impl PodConstraints {
    /// The filters and topology keys by which candidate sets are narrowed.
    pub(crate) fn filters_and_keys(&self) -> (&NodeFilters, &TopologyKeys) {
        (&self.filters, &self.topology.keys)
    }

    /// True when pods of a class can be moved between nodes without an effect on constraints.
    pub(crate) fn is_interchangeable(&self, class: PodClassId) -> bool {
        let needs = self.pod_needs(class);
        needs.is_resources_only() && !self.topology.affects(class, HOSTNAME_KEY)
    }

    /// The open node of a hostname domain, if it is one.
    pub(crate) fn open_node_at(&self, host: Domain) -> Option<OpenNodeId> {
        (host as usize).checked_sub(self.existing_count)
    }

    /// The hostname domain of an open node.
    pub(crate) fn host_of(&self, node: OpenNodeId) -> Domain {
        (self.existing_count + node) as Domain
    }
}

/// A finished simulation.
pub(crate) struct Solution {
    pub(crate) state: SchedulingState,
    /// Pods that were not placed.
    pub(crate) unschedulable: Vec<PodGroup>,
    pub(crate) rejected: Vec<RejectedPod>,
}

/// A pod that no node can help, and why.
pub(crate) type RejectedPod = (Arc<Pod>, UnschedulableReason);

impl SchedulingState {
    /// A simulation before its first pod. `leaving` are running pods that are to be rescheduled; `late_domains` are
    /// those of an earlier attempt.
    pub(crate) fn new(
        (input, volume_index): (Input<'_>, &VolumeIndex),
        leaving: &BTreeSet<&ObjectKey>,
        is_topological: bool,
        late_domains: LateDomains,
    ) -> Self {
        let mut topology_keys = TopologyKeys::new(&input.available.zones);
        let existing_nodes = ExistingNodes::new((input, volume_index), &mut topology_keys);
        let existing_pods = if is_topological || ExistingPods::has_anti_affinity(input.snapshot) {
            ExistingPods::of(input.snapshot, input.excluded_nodes, leaving)
        } else {
            ExistingPods::default()
        };
        let topology = Topology::new(topology_keys, existing_pods, input.snapshot.namespaces().clone(), late_domains);
        let open_nodes = OpenNodes::new(
            CandidateSets::new(&input.available.pools),
            LaunchLimits::new(input),
            input.available.min_values_policy,
        )
        .with_new_node_volumes(volume_index.new_node.clone());
        let (classes, filters) = (PodClasses::default(), NodeFilters::default());
        let constraints = PodConstraints {
            classes,
            filters,
            topology,
            registered_keys: BTreeSet::new(),
            existing_count: existing_nodes.len(),
            counting_filters: Default::default(),
        };
        Self { constraints, existing: existing_nodes, open: open_nodes, placed: Vec::new() }
    }

    /// Places a pod on a node, or on a claim that is in flight, if that still has the capacity.
    pub(crate) fn place_on(&mut self, pod: &Arc<Pod>, volumes: &PodVolumes, target: &Target) -> bool {
        let Some(index) = self.existing.index_of(target) else { return false };
        let class = self.register_shape(&pod.shape, volumes.clone()).required_only;
        let filter = self.constraints.classes.get(class).filter;
        let fits = self.existing.pods_that_fit(index, self.constraints.pod_needs(class)) > 0
            && self.existing.matches_filter_cached(index, filter, &self.constraints.filters);
        if fits {
            self.add_to_existing(index, class, 1);
            self.placed.push((Arc::clone(pod), class, NodeRef::Existing(index)));
        }
        fits
    }

    /// The pod classes of a shape whose pods have such volumes.
    pub(crate) fn register_shape(&mut self, shape: &Arc<PodShape>, volumes: PodVolumes) -> Relaxation {
        let PodConstraints { classes, filters, topology, registered_keys: registered, .. } = &mut self.constraints;
        let (existing_nodes, sets) = (&self.existing, &self.open.candidate_sets);
        let avoids = (0..sets.pool_count())
            .any(|pool| sets.pool_offerings(pool).pool.taints.iter().any(|taint| shape.avoids(taint)));
        let unprovisioned = volumes.tracked.as_ref().map_or_else(Vec::new, |tracked| tracked.unprovisioned.clone());
        classes.classes_of(PodClassKey { shape: Arc::clone(shape), volumes }, avoids, filters, |step, own| {
            for key in topology_keys(step) {
                let topology_key = topology.keys.key_id(key);
                if registered.insert(topology_key) {
                    sets.register_domains(topology_key, &mut topology.keys);
                }
            }
            topology.register_class(step, own, (&unprovisioned, existing_nodes));
        })
    }

    /// Computes the `counting_filters` of each pool.
    pub(crate) fn find_counting_filters(&mut self) {
        let Self {
            constraints: PodConstraints { topology, filters, counting_filters: counting_by_pool, .. },
            open: OpenNodes { candidate_sets: sets, .. },
            ..
        } = self;
        let distinct: BTreeSet<&Arc<NodeFilter>> = topology.filters().collect();
        let all: BTreeSet<NodeFilterId> = distinct.into_iter().map(|f| filters.intern(NodeFilter::clone(f))).collect();
        *counting_by_pool = (0..sets.pool_count())
            .map(|pool| {
                let mut splits = |filter: NodeFilterId| {
                    let accepted = sets.accepted_zones(pool, filter, filters);
                    accepted.contains(&0) && accepted.iter().any(|zones| *zones != 0)
                };
                all.iter().copied().filter(|filter| splits(*filter)).collect()
            })
            .collect();
    }

    /// Narrows the candidate set of a node that is `candidate` to those that count in the same topology groups.
    pub(crate) fn pin_counting(&mut self, candidate_set: CandidateSetId, candidate: CandidateIndex) -> CandidateSetId {
        let Self {
            constraints: PodConstraints { counting_filters: counting_by_pool, .. },
            open: OpenNodes { candidate_sets: sets, .. },
            ..
        } = self;
        let pool = sets.get(candidate_set).pool;
        let Some(filters) = counting_by_pool.get(pool).filter(|filters| !filters.is_empty()).cloned() else {
            return candidate_set;
        };
        filters.into_iter().fold(candidate_set, |set, filter| {
            let names = self.constraints.filters_and_keys();
            let sets = &mut self.open.candidate_sets;
            let zones = sets.get(set).zones;
            let counted = sets.accepted_zones(pool, filter, names.0)[candidate as usize] & zones != 0;
            sets.narrow(set, Narrowing::CountedByFilter(filter, counted), names).unwrap_or(set)
        })
    }

    /// Removes closed nodes and renumbers the others.
    pub(crate) fn remove_closed_nodes(&mut self) {
        let indices = self.open.remove_closed();
        for (_, _, node_ref) in &mut self.placed {
            if let NodeRef::Open(node) = node_ref {
                *node = indices[*node].unwrap_or_default();
            }
        }
        let existing_nodes = self.constraints.existing_count;
        self.constraints.topology.renumber(HOSTNAME_KEY, |host| match (host as usize).checked_sub(existing_nodes) {
            Some(node) => indices[node].map(|node| (existing_nodes + node) as Domain),
            None => Some(host),
        });
    }

    /// Adds a planned node, which is treated as existing from now on.
    pub(crate) fn add_planned_node(
        &mut self,
        planned_index: usize,
        key: &OfferingKey,
        pool_offerings: &Arc<PoolOfferings>,
        of: &InstanceCandidate,
    ) {
        self.open.limits.take(pool_offerings, of);
        self.existing.push_planned(planned_index, key.clone(), pool_offerings, of);
        self.constraints.existing_count = self.existing.len();
        let (existing_nodes, index) = (&self.existing, self.existing.len() - 1);
        if let Some(zone) = existing_nodes.zone(index) {
            self.constraints.topology.add_domain(ZONE_KEY, zone, |filter| existing_nodes.matches_filter(index, filter));
        }
    }
}

/// Topology keys of a shape's constraints.
fn topology_keys(shape: &PodShape) -> impl Iterator<Item = &Arc<str>> {
    let affinity = shape.affinity.iter().flat_map(|affinity| affinity.near.iter().chain(&affinity.apart));
    shape.spread.iter().map(|spread| &spread.topology_key).chain(affinity.map(|term| &term.topology_key))
}
