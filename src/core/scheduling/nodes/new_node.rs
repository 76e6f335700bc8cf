//! Open nodes: new nodes of this simulation, and the cost of adding a pod.
//!
//! An open node grows with its pods: it is always the cheapest candidate of its candidate set that holds them.

use super::pod_needs::{PodAddition, PodNeeds};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::HostPort;
use crate::model::settings::MinValuesPolicy;
use crate::scheduling::nodes::utilization_buckets::{NodeBucket, NodeBucketId, NodeBuckets, NodeByUtilization};
use crate::scheduling::offerings::available::CandidateIndex;
use crate::scheduling::offerings::candidate_sets::CandidateSearch;
use crate::scheduling::offerings::candidate_sets::ExpectedPods;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, CandidateSets};
use crate::scheduling::offerings::limits::LaunchLimits;
use crate::scheduling::offerings::min_values::ChosenCandidate;
use crate::scheduling::offerings::min_values::Load;
use crate::scheduling::pods::volume_limits::VolumeUsage;
use crate::scheduling::topology::domain::{Domain, MAX_ZONES, TopologyKeyId, TopologyKeys, ZONE_KEY};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of an open node, in the order in which they were opened.
pub(crate) type OpenNodeId = usize;

/// A node that is not launched yet.
#[derive(Debug)]
pub(crate) struct OpenNode {
    pub(crate) candidate_set: CandidateSetId,
    /// The candidate that it would be now.
    pub(crate) candidate: CandidateIndex,
    /// The requests of its pods, without daemons.
    pub(crate) requests: Resources,
    /// Data disks that are attached to it.
    pub(crate) disks: u32,
    /// How many values of each `minValues` label of its pool must remain.
    pub(crate) min_values: Arc<[u32]>,
    /// Grows with every pod.
    pub(crate) version: u32,
    /// kube-scheduler may give it other pods than planned: nothing cheaper may stand in for it.
    pub(crate) holds_any: bool,
    /// It was closed.
    pub(crate) is_closed: bool,
}

/// The candidates for new nodes, and the open nodes.
pub(crate) struct OpenNodes {
    pub(crate) candidate_sets: CandidateSets,
    pub(crate) limits: LaunchLimits,
    /// How `minValues` of pools are applied.
    pub(crate) min_values_policy: MinValuesPolicy,
    pub(crate) nodes: Vec<OpenNode>,
    /// Those that are not closed.
    pub(crate) buckets: NodeBuckets,
    /// Host ports in use on open nodes.
    ports: Vec<(OpenNodeId, HostPort)>,
    /// Tracked volumes of open nodes; nodes without any use `new_node_volumes`.
    volume_usage: BTreeMap<OpenNodeId, VolumeUsage>,
    new_node_volumes: VolumeUsage,
    /// By zone: open nodes that can only be in that zone.
    nodes_per_zone: Vec<u32>,
}

impl OpenNodes {
    pub(crate) fn new(sets: CandidateSets, limits: LaunchLimits, min_values: MinValuesPolicy) -> Self {
        Self {
            candidate_sets: sets,
            limits,
            min_values_policy: min_values,
            nodes: Vec::new(),
            buckets: NodeBuckets::default(),
            ports: Vec::new(),
            volume_usage: BTreeMap::new(),
            new_node_volumes: VolumeUsage::default(),
            nodes_per_zone: vec![0; MAX_ZONES],
        }
    }

    /// Sets the volume limits of new nodes.
    pub(crate) fn with_new_node_volumes(self, limits: VolumeUsage) -> Self {
        Self { new_node_volumes: limits, ..self }
    }

    /// True when an open node of a candidate set takes one more pod without becoming another candidate. Ports are not
    /// checked.
    pub(crate) fn fits_unchanged(&self, node: OpenNodeId, candidate_set: CandidateSetId, needs: PodNeeds<'_>) -> bool {
        let OpenNode { candidate_set: before, candidate: best, requests, disks, .. } = &self.nodes[node];
        let candidate = self.candidate_sets.candidate(candidate_set, *best);
        *before == candidate_set
            && needs.requests.copies_that_fit_beside(requests, &candidate.pod_capacity) > 0
            && disks + self.new_disks(node, needs) <= candidate.instance.facts.max_data_disks
    }

    /// A lower bound of the utilization of a node with one more pod; `None` when it cannot take it without growing.
    pub(crate) fn min_utilization(
        &self,
        bucket: NodeBucketId,
        (load, _): NodeByUtilization,
        needs: PodNeeds<'_>,
    ) -> Option<u32> {
        let NodeBucket { candidate_set, candidate: best, .. } = self.buckets.buckets[bucket];
        let share =
            min_share_permille(needs.requests, &self.candidate_sets.candidate(candidate_set, best).pod_capacity);
        load.checked_add(share).filter(|load| *load <= PERMILLE)
    }

    /// A lower bound of the cost of growing an open node for one more pod: it is candidate `best` of the set `before`,
    /// and narrowed to `candidate_set`.
    pub(crate) fn min_added_cost(
        &self,
        (before, best): (CandidateSetId, CandidateIndex),
        candidate_set: CandidateSetId,
        needs: PodNeeds<'_>,
    ) -> Option<i64> {
        // When narrowed, it may become a candidate at the same price.
        let from = if before == candidate_set { best + 1 } else { best };
        let added = self.candidate_sets.lowest_cost_from(candidate_set, from)?
            - self.candidate_sets.candidate(candidate_set, best).cost();
        Some((added / i64::from(needs.expected_pods)).max(0))
    }

    /// What an open node would become with one more pod, narrowed to `candidate_set`; `None` when it cannot take it.
    pub(crate) fn can_add(
        &mut self,
        node: OpenNodeId,
        candidate_set: CandidateSetId,
        needs: PodNeeds<'_>,
    ) -> Option<PodAddition> {
        let open = &self.nodes[node];
        let (best, mut requests) = (open.candidate, open.requests.clone());
        requests.add(needs.requests);
        if !self.ports_are_free(node, needs.ports)
            || needs.tracked_volumes.is_some_and(|tracked| !self.volume_usage(node).has_capacity_for(tracked))
        {
            return None;
        }
        let disks = self.nodes[node].disks + self.new_disks(node, needs);
        let load = Load { requests: &requests, disks, min_values: &self.nodes[node].min_values };
        let fits = self.fits_unchanged(node, candidate_set, needs)
            && self.candidate_sets.meets_min_values(candidate_set, best, load, &self.limits);
        let grown = if fits {
            best
        } else {
            let expected = needs.expected();
            let search = CandidateSearch { from: best, load, expected, limits: &self.limits, replaced: Some(best) };
            self.candidate_sets.cheapest(candidate_set, search)?
        };
        let [old, new] = [best, grown].map(|index| self.candidate_sets.candidate(candidate_set, index));
        let cost = needs.expected().price_per_pod(new.cost() - old.cost(), &requests, &new.pod_capacity);
        Some(PodAddition {
            added_cost: cost,
            utilization: utilization_permille(&requests, &new.pod_capacity),
            candidate_set,
            candidate: grown,
        })
    }

    /// The cheapest new node of a pool for one pod, narrowed to `candidate_set`.
    pub(crate) fn cheapest_new_node(
        &mut self,
        candidate_set: CandidateSetId,
        needs: PodNeeds<'_>,
    ) -> Option<PodAddition> {
        let pool_offerings = self.candidate_sets.pool_offerings(self.candidate_sets.get(candidate_set).pool);
        let volumes_fit = needs.tracked_volumes.is_none_or(|tracked| self.new_node_volumes.has_capacity_for(tracked));
        if self.limits.new_nodes_left == 0
            || !volumes_fit
            || !HostPort::all_free(needs.ports, &pool_offerings.daemon_set_ports)
        {
            return None;
        }
        let needed = pool_offerings.required_values(self.min_values_policy);
        let load = Load { min_values: &needed, ..needs.load() };
        let search =
            CandidateSearch { from: 0, load, expected: needs.expected(), limits: &self.limits, replaced: None };
        let best = self.candidate_sets.cheapest(candidate_set, search)?;
        let candidate = self.candidate_sets.candidate(candidate_set, best);
        let cost = needs.expected().price_per_pod(candidate.cost(), needs.requests, &candidate.pod_capacity);
        Some(PodAddition {
            added_cost: cost,
            utilization: utilization_permille(needs.requests, &candidate.pod_capacity),
            candidate_set,
            candidate: best,
        })
    }

    /// Opens a node for such a pod.
    pub(crate) fn open(
        &mut self,
        candidate_set: CandidateSetId,
        candidate: CandidateIndex,
        first: PodNeeds<'_>,
    ) -> OpenNodeId {
        let pool = self.candidate_sets.get(candidate_set).pool;
        let pool_offerings = self.candidate_sets.pool_offerings(pool);
        let chosen = &pool_offerings.candidates[candidate as usize];
        let all = self.candidate_sets.candidates_in(candidate_set);
        let first = ChosenCandidate { candidate: chosen, load: first.load() };
        let needed =
            pool_offerings.required_values_for_first_pod(self.min_values_policy, all, first, &self.limits).into();
        self.limits.take(pool_offerings, chosen);
        self.nodes.push(OpenNode {
            candidate_set,
            candidate,
            requests: Resources::default(),
            disks: 0,
            min_values: needed,
            version: 0,
            holds_any: false,
            is_closed: false,
        });
        self.count_in_zone(candidate_set);
        let node = self.nodes.len() - 1;
        self.insert_into_bucket(node);
        node
    }

    /// Closes an open node; its pods are placed on others.
    pub(crate) fn close(&mut self, node: OpenNodeId) {
        self.remove_from_bucket(node);
        let OpenNode { candidate_set, candidate: best, .. } = self.nodes[node];
        let pool_offerings =
            Arc::clone(self.candidate_sets.pool_offerings(self.candidate_sets.get(candidate_set).pool));
        self.limits.give_back(&pool_offerings, &pool_offerings.candidates[best as usize]);
        if let Some(zone) = self.zone(node) {
            self.nodes_per_zone[zone as usize] -= 1;
        }
        self.nodes[node].is_closed = true;
    }

    /// Removes closed nodes; returns the new index of each node, if it is still open.
    pub(crate) fn remove_closed(&mut self) -> Vec<Option<OpenNodeId>> {
        let mut left = 0..;
        let indices: Vec<Option<OpenNodeId>> =
            self.nodes.iter().map(|node| if node.is_closed { None } else { left.next() }).collect();
        self.nodes.retain(|node| !node.is_closed);
        self.ports.retain_mut(|(node, _)| {
            let index = indices[*node];
            *node = index.unwrap_or_default();
            index.is_some()
        });
        let attached = std::mem::take(&mut self.volume_usage).into_iter();
        self.volume_usage = attached.filter_map(|(node, attached)| Some((indices[node]?, attached))).collect();
        self.buckets = NodeBuckets::default();
        (0..self.nodes.len()).for_each(|node| self.insert_into_bucket(node));
        indices
    }

    /// Shrinks an open node to the requests of its pods: expected pods may have been placed elsewhere.
    pub(crate) fn shrink(&mut self, node: OpenNodeId) {
        let OpenNode { candidate_set, candidate: best, requests, disks, min_values: needed, .. } = &self.nodes[node];
        let (candidate_set, best) = (*candidate_set, *best);
        let load = Load { requests, disks: *disks, min_values: needed };
        let expected = ExpectedPods { requests, count: 1 };
        let search = CandidateSearch { from: 0, load, expected, limits: &self.limits, replaced: Some(best) };
        let least = self.candidate_sets.cheapest(candidate_set, search);
        if let Some(least) = least.filter(|least| *least < best) {
            self.remove_from_bucket(node);
            self.set_candidate(node, candidate_set, least);
            self.nodes[node].version += 1;
            self.insert_into_bucket(node);
        }
    }

    /// The utilization of an open node, and its index.
    pub(crate) fn utilization(&self, node: OpenNodeId) -> NodeByUtilization {
        let OpenNode { candidate_set, candidate: best, requests, .. } = &self.nodes[node];
        (utilization_permille(requests, &self.candidate_sets.candidate(*candidate_set, *best).pod_capacity), node)
    }

    fn insert_into_bucket(&mut self, node: OpenNodeId) {
        let OpenNode { candidate_set, candidate: best, .. } = self.nodes[node];
        self.buckets.insert((candidate_set, best), self.utilization(node));
    }

    fn remove_from_bucket(&mut self, node: OpenNodeId) {
        let OpenNode { candidate_set, candidate: best, .. } = self.nodes[node];
        self.buckets.remove((candidate_set, best), self.utilization(node));
    }

    /// Changes the candidate of an open node.
    fn set_candidate(&mut self, node: OpenNodeId, candidate_set: CandidateSetId, candidate: CandidateIndex) {
        let open = &mut self.nodes[node];
        let before = open.candidate;
        (open.candidate_set, open.candidate) = (candidate_set, candidate);
        if before != candidate {
            let pool_offerings = self.candidate_sets.pool_offerings(self.candidate_sets.get(candidate_set).pool);
            let [old, new] = [before, candidate].map(|index| &pool_offerings.candidates[index as usize]);
            self.limits.swap(pool_offerings, new, old);
        }
    }

    /// Places pods on an open node, which grows as `addition` says.
    pub(crate) fn add_pods(&mut self, node: OpenNodeId, addition: PodAddition, needs: PodNeeds<'_>, pods: u32) {
        self.remove_from_bucket(node);
        let disks = self.new_disks(node, needs);
        if let Some(tracked) = needs.tracked_volumes {
            self.volume_usage.entry(node).or_insert_with(|| self.new_node_volumes.clone()).add(tracked);
        }
        let open = &mut self.nodes[node];
        let before = open.candidate_set;
        open.requests.add(&needs.requests.times(i64::from(pods)));
        open.disks += disks * pods;
        open.version += 1;
        self.set_candidate(node, addition.candidate_set, addition.candidate);
        if self.candidate_sets.get(before).zones != self.candidate_sets.get(addition.candidate_set).zones {
            self.count_in_zone(addition.candidate_set);
        }
        self.ports.extend(needs.ports.iter().map(|port| (node, port.clone())));
        self.insert_into_bucket(node);
    }

    /// The zone of an open node, once it has only one.
    pub(crate) fn zone(&self, node: OpenNodeId) -> Option<Domain> {
        single_zone(self.zones(node))
    }

    /// Bits of the zones that an open node may still be in.
    fn zones(&self, node: OpenNodeId) -> u32 {
        self.candidate_sets.get(self.nodes[node].candidate_set).zones
    }

    /// How many open nodes can only be in a zone.
    pub(crate) fn node_count_in(&self, zone: Domain) -> u32 {
        self.nodes_per_zone.get(zone as usize).copied().unwrap_or(0)
    }

    /// Of some zones, the one with the fewest new nodes.
    pub(crate) fn least_used_zone(&self, zones: u32) -> Option<Domain> {
        crate::scheduling::topology::domain::zones_in_mask(zones)
            .min_by_key(|zone| (self.nodes_per_zone[*zone as usize], *zone))
    }

    /// The domain of an open node by a topology key; `None` while several are possible, or without the label.
    pub(crate) fn domain(&self, node: OpenNodeId, key_id: TopologyKeyId, keys: &TopologyKeys) -> Option<Domain> {
        if key_id == ZONE_KEY {
            return self.zone(node);
        }
        let domains = self.candidate_sets.domains(self.nodes[node].candidate_set, key_id, keys);
        domains.first().copied().filter(|_| domains.len() == 1)
    }

    /// Volume limits of new nodes that do not depend on their size.
    pub(crate) fn new_node_volumes(&self) -> &VolumeUsage {
        &self.new_node_volumes
    }

    fn volume_usage(&self, node: OpenNodeId) -> &VolumeUsage {
        self.volume_usage.get(&node).unwrap_or(&self.new_node_volumes)
    }

    /// How many data disks must be attached to an open node for such a pod.
    fn new_disks(&self, node: OpenNodeId, needs: PodNeeds<'_>) -> u32 {
        needs
            .tracked_volumes
            .map_or(needs.disks, |tracked| needs.disks - self.volume_usage(node).attached_shared_disks(tracked))
    }

    fn ports_are_free(&self, node: OpenNodeId, ports: &[HostPort]) -> bool {
        let pool = self.candidate_sets.get(self.nodes[node].candidate_set).pool;
        let daemons = self.candidate_sets.pool_offerings(pool).daemon_set_ports.iter();
        let pods = self.ports.iter().filter(|(other, _)| *other == node).map(|(_, port)| port);
        HostPort::all_free(ports, daemons.chain(pods))
    }

    fn count_in_zone(&mut self, candidate_set: CandidateSetId) {
        if let Some(zone) = single_zone(self.candidate_sets.get(candidate_set).zones) {
            self.nodes_per_zone[zone as usize] += 1;
        }
    }
}

/// The only zone of a mask.
fn single_zone(zones: u32) -> Option<Domain> {
    zones.is_power_of_two().then(|| zones.trailing_zeros())
}

/// The denominator of shares of a capacity.
const PERMILLE: u32 = 1_000;

/// The greater of the requested shares of CPU and memory, in thousandths.
fn utilization_permille(requests: &Resources, capacity: &Resources) -> u32 {
    shares_permille(requests, capacity).into_iter().fold(0, u32::max)
}

/// The lesser share.
fn min_share_permille(requests: &Resources, capacity: &Resources) -> u32 {
    shares_permille(requests, capacity).into_iter().fold(u32::MAX, u32::min)
}

fn shares_permille(requests: &Resources, capacity: &Resources) -> [u32; 2] {
    [(requests.cpu_millis, capacity.cpu_millis), (requests.memory, capacity.memory)].map(|(need, capacity)| {
        let share = if need > 0 { need.saturating_mul(PERMILLE.into()) / capacity.max(1) } else { 0 };
        u32::try_from(share).unwrap_or(u32::MAX)
    })
}
