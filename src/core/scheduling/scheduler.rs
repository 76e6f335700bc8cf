//! Solving: pod by pod, where does each go?
//!
//! Demands go in order. A pod goes to a node that exists or is being made, if one takes it; else to an open node, if that
//! costs no more than a node of its own; else to a node of its own. Pods that ask nothing of their neighbours are left to
//! [`open_greedily`](super::buy), which looks at all of them together. What one pod could not have, it may have after others were
//! placed: demands are tried again while that helps.

use super::Input;
use super::available::{CandidateIndex, InstanceCandidate, PoolOfferings};
use super::candidate_sets::{CandidateSetId, CandidateSets, Narrowing};
use super::class::{PodClassId, PodClasses, PodGroup, Relaxation, sort_groups};
use super::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, TopologyKeys, ZONE_KEY};
use super::existing::ExistingNodes;
use super::existing_pods::ExistingPods;
use super::greedy::open_greedily;
use super::limits::LaunchLimits;
use super::node_filter::{NodeFilter, NodeFilterId, NodeFilters};
use super::open::{OpenNodeId, OpenNodes};
use super::repack::repack;
use super::topology::{LateDomains, Topology};
use super::volume_limits::{PodVolumes, VolumeIndex};
use crate::catalog::OfferingKey;
use crate::model::cluster::pod::{Pod, PodShape, Taint, TaintEffect, Toleration};
use crate::model::names::{ClaimName, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often demands without a place are tried again after others found theirs.
const MAX_ROUNDS: usize = 8;

/// What is known of pods, whatever may be bought for them.
pub(super) struct PodConstraints {
    pub(super) classes: PodClasses,
    pub(super) filters: NodeFilters,
    pub(super) topology: Topology,
    /// Axes that know what labels new nodes may have.
    registered_keys: BTreeSet<TopologyKeyId>,
    /// Sites below this are bins, and the others open nodes.
    existing_count: usize,
    /// By pool: filters of groups, by which some of its candidates count and others do not.
    counting_filters: Vec<Vec<NodeFilterId>>,
}

/// Where a pod was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeRef {
    Existing(usize),
    Open(OpenNodeId),
}

/// One simulation.
pub(super) struct SchedulingState {
    pub(super) constraints: PodConstraints,
    pub(super) existing: ExistingNodes,
    pub(super) open: OpenNodes,
    /// In the order in which they are to be bound.
    pub(super) placed: Vec<(Arc<Pod>, PodClassId, NodeRef)>,
}

impl PodConstraints {
    /// The filters and axes by which choices are narrowed.
    pub(super) fn filters_and_keys(&self) -> (&NodeFilters, &TopologyKeys) {
        (&self.filters, &self.topology.keys)
    }

    /// True when it is all the same to pods of a kind, and to all others, on which of several nodes they are.
    pub(super) fn is_interchangeable(&self, class: PodClassId) -> bool {
        let want = self.pod_needs(class);
        want.is_resources_only() && !self.topology.affects(class, HOSTNAME_KEY)
    }

    /// The open node at a site, if one is there.
    pub(super) fn open_node_at(&self, site: Domain) -> Option<OpenNodeId> {
        (site as usize).checked_sub(self.existing_count)
    }

    /// The site of an open node.
    pub(super) fn host_of(&self, node: OpenNodeId) -> Domain {
        (self.existing_count + node) as Domain
    }
}

impl SchedulingState {
    /// A simulation before its first pod. `leaving` are pods that run and are to be placed anew; `foreseen` are domains that
    /// an earlier attempt came upon.
    pub(super) fn new(
        (input, book): (Input<'_>, &VolumeIndex),
        leaving: &BTreeSet<&ObjectKey>,
        is_topological: bool,
        late_domains: LateDomains,
    ) -> Self {
        let mut axes = TopologyKeys::new(&input.available.zones);
        let bins = ExistingNodes::new((input, book), &mut axes);
        let ground = if is_topological || ExistingPods::has_anti_affinity(input.snapshot) {
            ExistingPods::of(input.snapshot, input.excluded_nodes, leaving)
        } else {
            ExistingPods::default()
        };
        let topology = Topology::new(axes, ground, input.snapshot.namespaces().clone(), &bins, late_domains);
        let shop = OpenNodes::new(
            CandidateSets::new(&input.available.pools),
            LaunchLimits::new(input),
            input.available.min_values_policy,
        )
        .with_new_node_volumes(book.new_node.clone());
        let (kinds, filters) = (PodClasses::default(), NodeFilters::default());
        let known = PodConstraints {
            classes: kinds,
            filters,
            topology,
            registered_keys: BTreeSet::new(),
            existing_count: bins.len(),
            counting_filters: Default::default(),
        };
        Self { constraints: known, existing: bins, open: shop, placed: Vec::new() }
    }

    /// Places a pod on the claim that was made for it, if that is in flight and still has the room.
    pub(super) fn place_on_planned_claim(&mut self, pod: &Arc<Pod>, volumes: &PodVolumes, claim: &ClaimName) -> bool {
        let Some(site) = self.existing.index_of_claim(claim) else { return false };
        let kind = self.register_shape(&pod.shape, volumes.clone()).required_only;
        let filter = self.constraints.classes.get(kind).filter;
        let kept = self.existing.pods_that_fit(site, self.constraints.pod_needs(kind)) > 0
            && self.existing.matches_filter_cached(site, filter, &self.constraints.filters);
        if kept {
            self.add_to_existing(site, kind, 1);
            self.placed.push((Arc::clone(pod), kind, NodeRef::Existing(site)));
        }
        kept
    }

    /// Places what has a place. The rest comes back.
    pub(super) fn solve(&mut self, pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        let (chunks, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(|(pod, _)| pod.is_chunk());
        let mut left = self.place_all(pods);
        if !chunks.is_empty() {
            // After all pods, which are not tried again: a chunk is nobody's neighbour.
            left.extend(self.place_all(chunks));
        }
        left
    }

    fn place_all(&mut self, pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        let mut demands = self.group_pods(pods);
        self.find_counting_filters();
        sort_groups(&mut demands, &self.constraints.classes, &self.constraints.topology);
        let mut left: Vec<PodGroup> = Vec::new();
        for tier in priority_tiers(demands, &self.constraints.classes) {
            left.extend(self.place_round(tier));
        }
        for _ in 0..MAX_ROUNDS {
            let before = self.placed.len();
            if left.is_empty() {
                break;
            }
            left = self.place_round(left);
            if self.placed.len() == before {
                break;
            }
        }
        if repack(self) && !left.is_empty() {
            // Cheaper nodes may have left room below a limit.
            left = self.place_round(left);
        }
        left
    }

    /// Tries each demand once; those who find no place come back.
    fn place_round(&mut self, groups: Vec<PodGroup>) -> Vec<PodGroup> {
        let (mut left, mut plain) = (Vec::new(), Vec::new());
        for mut demand in groups {
            if self.is_unconstrained(&demand) {
                self.place_identical(&mut demand);
                plain.extend((!demand.pods.is_empty()).then_some(demand));
            } else {
                self.place_one_by_one(&mut demand);
                left.extend((!demand.pods.is_empty()).then_some(demand));
            }
        }
        open_greedily(self, &mut plain);
        let choices = &self.open.candidate_sets;
        let varied = (0..choices.pool_count()).any(|pool| !choices.pool_offerings(pool).min_values.is_empty());
        for mut demand in plain.into_iter().filter(|demand| !demand.pods.is_empty()) {
            // A node that is filled to the brim may have too few others that would do in its place.
            if varied {
                self.place_one_by_one(&mut demand);
            }
            left.extend((!demand.pods.is_empty()).then_some(demand));
        }
        left
    }

    /// True when nothing but the node itself matters to the pods.
    fn is_unconstrained(&self, group: &PodGroup) -> bool {
        let kind = group.relaxation.required_only;
        group.relaxation.steps.len() == 1
            && self.constraints.pod_needs(kind).is_resources_only()
            && self.constraints.topology.constrained_keys(kind).next().is_none()
    }

    /// Groups pods by what they ask for; of equals the oldest comes first.
    fn group_pods(&mut self, mut pods: Vec<(Arc<Pod>, PodVolumes)>) -> Vec<PodGroup> {
        // Pods that are watched share equal shapes: by address those need not be compared in depth.
        pods.sort_unstable_by(|(a, v), (b, w)| (Arc::as_ptr(&a.shape), v).cmp(&(Arc::as_ptr(&b.shape), w)));
        let mut by_kind: BTreeMap<PodClassId, PodGroup> = BTreeMap::new();
        for alike in pods.chunk_by(|(a, v), (b, w)| Arc::ptr_eq(&a.shape, &b.shape) && v == w) {
            let Some((first, volumes)) = alike.first() else { continue };
            let family = self.register_shape(&first.shape, volumes.clone());
            let demand = by_kind
                .entry(family.required_only)
                .or_insert_with(|| PodGroup { relaxation: family, pods: Vec::new() });
            demand.pods.extend(alike.iter().map(|(pod, _)| Arc::clone(pod)));
        }
        let mut demands: Vec<PodGroup> = by_kind.into_values().collect();
        for demand in &mut demands {
            demand.pods.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
        }
        demands
    }

    /// The kinds of a shape whose pods have such volumes.
    pub(super) fn register_shape(&mut self, shape: &Arc<PodShape>, volumes: PodVolumes) -> Relaxation {
        let PodConstraints { classes: kinds, filters, topology, registered_keys: taught, .. } = &mut self.constraints;
        let (bins, choices) = (&self.existing, &self.open.candidate_sets);
        let avoids =
            (0..choices.pool_count()).any(|pool| has_avoided_taint(&choices.pool_offerings(pool).pool.taints, shape));
        let to_be_made = volumes.tracked.as_ref().map_or_else(Vec::new, |more| more.unprovisioned.clone());
        kinds.classes_of(shape, (volumes, avoids), filters, |asked, own| {
            for key in topology_keys(asked) {
                let axis = topology.keys.key_id(key);
                if taught.insert(axis) {
                    choices.register_domains(axis, &mut topology.keys);
                }
            }
            topology.register_class(asked, own, (&to_be_made, bins));
        })
    }

    /// Finds out for which groups it matters what a node of each pool becomes.
    fn find_counting_filters(&mut self) {
        let Self {
            constraints: PodConstraints { topology, filters, counting_filters: counted_by, .. },
            open: OpenNodes { candidate_sets: choices, .. },
            ..
        } = self;
        let distinct: BTreeSet<&Arc<NodeFilter>> = topology.filters().collect();
        let all: BTreeSet<NodeFilterId> = distinct.into_iter().map(|f| filters.intern(NodeFilter::clone(f))).collect();
        *counted_by = (0..choices.pool_count())
            .map(|pool| {
                let mut splits = |filter: NodeFilterId| {
                    let accepted = choices.accepted_zones(pool, filter, filters);
                    accepted.contains(&0) && accepted.iter().any(|zones| *zones != 0)
                };
                all.iter().copied().filter(|filter| splits(*filter)).collect()
            })
            .collect();
    }

    /// What a choice becomes when a node is a candidate of it: a group that counts the one, or does not, does so whatever it
    /// becomes.
    pub(super) fn pin_counting(&mut self, candidate_set: CandidateSetId, candidate: CandidateIndex) -> CandidateSetId {
        let Self {
            constraints: PodConstraints { counting_filters: counted_by, .. },
            open: OpenNodes { candidate_sets: choices, .. },
            ..
        } = self;
        let pool = choices.get(candidate_set).pool;
        let Some(filters) = counted_by.get(pool).filter(|filters| !filters.is_empty()).cloned() else {
            return candidate_set;
        };
        filters.into_iter().fold(candidate_set, |choice, filter| {
            let names = self.constraints.filters_and_keys();
            let choices = &mut self.open.candidate_sets;
            let zones = choices.get(choice).zones;
            let counted = choices.accepted_zones(pool, filter, names.0)[candidate as usize] & zones != 0;
            choices.narrow(choice, Narrowing::CountedByFilter(filter, counted), names).unwrap_or(choice)
        })
    }

    /// Forgets open nodes that are thought of no more: the others get new numbers.
    pub(super) fn remove_closed_nodes(&mut self) {
        let numbers = self.open.remove_closed();
        for (_, _, seat) in &mut self.placed {
            if let NodeRef::Open(node) = seat {
                *node = numbers[*node].unwrap_or_default();
            }
        }
        let bins = self.constraints.existing_count;
        self.constraints.topology.renumber(HOSTNAME_KEY, |host| match (host as usize).checked_sub(bins) {
            Some(node) => numbers[node].map(|node| (bins + node) as Domain),
            None => Some(host),
        });
    }

    /// Adds a node that is as good as bought: a bin from now on.
    pub(super) fn add_planned_node(
        &mut self,
        number: usize,
        key: &OfferingKey,
        pool_offerings: &Arc<PoolOfferings>,
        of: &InstanceCandidate,
    ) {
        self.open.limits.take(pool_offerings, of);
        self.existing.push_planned(number, key.clone(), pool_offerings, of);
        self.constraints.existing_count = self.existing.len();
        let (bins, site) = (&self.existing, self.existing.len() - 1);
        if let Some(zone) = bins.zone(site) {
            self.constraints.topology.add_domain(ZONE_KEY, zone, |filter| bins.matches_filter(site, filter));
        }
    }
}

/// True when pods of a shape had better not come to nodes with these taints.
fn has_avoided_taint(taints: &[Taint], shape: &PodShape) -> bool {
    let soft = taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    soft.into_iter().any(|taint| !Toleration::any_covers(&shape.tolerations, taint))
}

/// Topology keys that a shape names.
fn topology_keys(shape: &PodShape) -> impl Iterator<Item = &Arc<str>> {
    let affinity = shape.affinity.iter().flat_map(|affinity| affinity.near.iter().chain(&affinity.apart));
    shape.spread.iter().map(|spread| &spread.topology_key).chain(affinity.map(|term| &term.topology_key))
}

/// Demands of one priority each, in order.
fn priority_tiers(groups: Vec<PodGroup>, classes: &PodClasses) -> Vec<Vec<PodGroup>> {
    let mut tiers: Vec<(i32, Vec<PodGroup>)> = Vec::new();
    for demand in groups {
        let priority = classes.get(demand.relaxation.required_only).shape.priority;
        match tiers.last_mut() {
            Some((last, tier)) if *last == priority => tier.push(demand),
            _ => tiers.push((priority, vec![demand])),
        }
    }
    tiers.into_iter().map(|(_, tier)| tier).collect()
}
