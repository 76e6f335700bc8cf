//! Finds the open node with the lowest added cost for a pod class.
//!
//! All pods of a class have the same needs, and between two of them only nodes that took a pod change. So every
//! [bucket](super::utilization_buckets) is searched once, the emptiest node first, as far as it may contain the best node; after
//! that only changed nodes are evaluated.

use crate::scheduling::nodes::new_node::{OpenNodeId, OpenNodes};
use crate::scheduling::nodes::pod_needs::{PodAddition, PodNeeds};
use crate::scheduling::nodes::simulation_state::PodConstraints;
use crate::scheduling::nodes::utilization_buckets::{NodeBucketId, NodeByUtilization};
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, Narrowing};
use crate::scheduling::pods::pod_class::{PodClass, PodClassId};
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, ZONE_KEY};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// By cost, then utilization, then node; with the version of the node that it was computed for.
type CostEntry = Reverse<(i64, u32, OpenNodeId, u32)>;

/// What a queued entry refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SearchLead {
    /// A node, valid for this version.
    Node(OpenNodeId, u32),
    /// The nodes of a bucket after this one, if given; narrowed to a candidate set.
    Bucket(NodeBucketId, Option<NodeByUtilization>, CandidateSetId),
}

/// Most nodes per pod for which the cost of growing them is computed: those with the lowest bounds.
const MAX_EVALUATIONS: usize = 16;

/// The search of one pod class among open nodes, in one zone if one is given.
pub(crate) struct Search {
    class: PodClassId,
    zone: Option<Domain>,
    /// Nodes whose cost is computed.
    exact: BinaryHeap<CostEntry>,
    /// Buckets whose nodes may take a pod without growing, by the least utilization of the next one.
    fitting: BinaryHeap<Reverse<(u32, SearchLead)>>,
    /// Nodes that would have to grow, by a lower bound of the cost, the emptiest first.
    lower_bounds: BinaryHeap<Reverse<(i64, u32, SearchLead)>>,
    /// How many entries of `NodeBuckets::changed` have been evaluated; `None` before the first search.
    changes_seen: Option<usize>,
    /// By candidate set: what it is narrowed to for this class, where that has been computed.
    narrowed_sets: Vec<Option<Option<CandidateSetId>>>,
    /// Topology keys, other than hostname and zone, that concern these pods.
    label_keys: Vec<TopologyKeyId>,
    /// How many pods of the class are expected on one node.
    expected_pods: u32,
}

impl Search {
    /// A search for a class with `pods` pending pods.
    pub(crate) fn new(class: PodClassId, zone: Option<Domain>, constraints: &PodConstraints, pods: usize) -> Self {
        let other_keys = ZONE_KEY + 1..constraints.topology.keys.len();
        let label_keys: Vec<TopologyKeyId> =
            other_keys.filter(|topology_key| constraints.topology.affects(class, *topology_key)).collect();
        let expected_pods = constraints.topology.expected_pods_per_node(class, pods);
        Self {
            class,
            zone,
            exact: BinaryHeap::new(),
            fitting: BinaryHeap::new(),
            lower_bounds: BinaryHeap::new(),
            changes_seen: None,
            narrowed_sets: Vec::new(),
            label_keys,
            expected_pods,
        }
    }

    /// Sets a smaller number of pending pods. Costs computed for more pods are lower bounds.
    pub(crate) fn expect_pods(&mut self, pods: usize, constraints: &PodConstraints) {
        self.expected_pods = constraints.topology.expected_pods_per_node(self.class, pods);
    }

    /// The open node that takes a pod at the lowest cost, if that is at most `max_cost`.
    pub(crate) fn best(
        &mut self,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
        max_cost: i64,
    ) -> Option<(OpenNodeId, PodAddition)> {
        let hosts = constraints.topology.affinity_domains(self.class, HOSTNAME_KEY);
        let best = match hosts {
            Some(hosts) => self.best_among(
                hosts.into_iter().filter_map(|host| constraints.open_node_at(host)),
                open_nodes,
                constraints,
            ),
            // Labels decide too which nodes are allowed for the next pod.
            None if !self.label_keys.is_empty() => self.best_among(0..open_nodes.nodes.len(), open_nodes, constraints),
            None => self.best_incremental(open_nodes, constraints, max_cost),
        };
        best.filter(|(_, pod_addition)| pod_addition.added_cost <= max_cost)
    }

    fn best_incremental(
        &mut self,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
        max_cost: i64,
    ) -> Option<(OpenNodeId, PodAddition)> {
        self.update(open_nodes, constraints);
        let mut evaluated = 0;
        loop {
            let (cost, load) = self.exact.peek().map_or((i64::MAX, 0), |Reverse((cost, load, ..))| (*cost, *load));
            if let Some(Reverse((emptiest, _))) = self.fitting.peek()
                && (0, *emptiest) <= (cost, load)
            {
                self.next_fitting(open_nodes, constraints);
                continue;
            }
            if let Some(Reverse((least, ..))) = self.lower_bounds.peek()
                && *least <= max_cost
                && *least < cost
                && evaluated < MAX_EVALUATIONS
            {
                evaluated += usize::from(self.next_lower_bound(open_nodes, constraints));
                continue;
            }
            let Reverse((cost, _, node, version)) = *self.exact.peek()?;
            if open_nodes.nodes[node].version == version {
                if cost > max_cost {
                    return None;
                }
                // A host that is excluded once remains so: counts only grow.
                if let Some(pod_addition) = self.can_add(node, open_nodes, constraints) {
                    return Some((node, pod_addition));
                }
            }
            // It is excluded, or it has changed and was evaluated again.
            self.exact.pop();
        }
    }

    /// The cheapest new node, of the first pool that has one.
    pub(crate) fn cheapest_new_node(
        &mut self,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<PodAddition> {
        let needs = self.pod_needs(constraints);
        (0..open_nodes.candidate_sets.pool_count()).find_map(|pool| {
            let root = open_nodes.candidate_sets.root(pool);
            let narrowed = self.narrow(root, open_nodes, constraints)?;
            open_nodes.cheapest_new_node(narrowed, needs)
        })
    }

    fn best_among(
        &mut self,
        nodes: impl Iterator<Item = OpenNodeId>,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<(OpenNodeId, PodAddition)> {
        let additions = nodes.filter_map(|node| Some((node, self.can_add(node, open_nodes, constraints)?)));
        additions.min_by_key(|(node, pod_addition)| (pod_addition.added_cost, pod_addition.utilization, *node))
    }

    /// Adds all buckets the first time, and then the nodes that have changed since.
    fn update(&mut self, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        let from = self.changes_seen.replace(open_nodes.buckets.changed.len());
        let Some(from) = from else {
            (0..open_nodes.buckets.buckets.len()).for_each(|bucket| self.start_bucket(bucket, open_nodes, constraints));
            return;
        };
        for change in from..open_nodes.buckets.changed.len() {
            let node = open_nodes.buckets.changed[change];
            let Some(narrowed) = self.narrow(open_nodes.nodes[node].candidate_set, open_nodes, constraints) else {
                continue;
            };
            if open_nodes.fits_unchanged(node, narrowed, self.pod_needs(constraints)) {
                self.evaluate(node, open_nodes, constraints);
            } else if self.host_allows(node, constraints) {
                let (load, lead) =
                    (open_nodes.utilization(node).0, SearchLead::Node(node, open_nodes.nodes[node].version));
                let key = (open_nodes.nodes[node].candidate_set, open_nodes.nodes[node].candidate);
                let least = open_nodes.min_added_cost(key, narrowed, self.pod_needs(constraints));
                self.lower_bounds.extend(least.map(|cost| Reverse((cost, load, lead))));
            }
        }
    }

    /// Queues a bucket, from its emptiest node.
    fn start_bucket(&mut self, bucket: NodeBucketId, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        let (before, best) =
            (open_nodes.buckets.buckets[bucket].candidate_set, open_nodes.buckets.buckets[bucket].candidate);
        let (Some(narrowed), Some(first)) =
            (self.narrow(before, open_nodes, constraints), open_nodes.buckets.buckets[bucket].next_after(None))
        else {
            return;
        };
        let lead = SearchLead::Bucket(bucket, None, narrowed);
        let load =
            open_nodes.min_utilization(bucket, first, self.pod_needs(constraints)).filter(|_| narrowed == before);
        self.fitting.extend(load.map(|load| Reverse((load, lead))));
        let least = open_nodes.min_added_cost((before, best), narrowed, self.pod_needs(constraints));
        self.lower_bounds.extend(least.map(|cost| Reverse((cost, first.0, lead))));
    }

    /// Evaluates the next node of the bucket with the least utilization.
    fn next_fitting(&mut self, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        let Some(Reverse((_, SearchLead::Bucket(bucket, last, narrowed)))) = self.fitting.pop() else { return };
        let Some(next) = open_nodes.buckets.buckets[bucket].next_after(last) else { return };
        let Some(load) = open_nodes.min_utilization(bucket, next, self.pod_needs(constraints)) else { return };
        self.fitting.push(Reverse((load, SearchLead::Bucket(bucket, Some(next), narrowed))));
        if open_nodes.fits_unchanged(next.1, narrowed, self.pod_needs(constraints)) {
            self.evaluate(next.1, open_nodes, constraints);
        }
    }

    /// Evaluates the next node that would have to grow; false if it does not.
    fn next_lower_bound(&mut self, open_nodes: &mut OpenNodes, constraints: &PodConstraints) -> bool {
        match self.lower_bounds.pop() {
            Some(Reverse((_, _, SearchLead::Node(node, version)))) => {
                let is_open = open_nodes.nodes[node].version == version && self.host_allows(node, constraints);
                if is_open {
                    self.evaluate(node, open_nodes, constraints);
                }
                is_open
            }
            Some(Reverse((least, _, SearchLead::Bucket(bucket, last, narrowed)))) => {
                let Some(next) = open_nodes.buckets.buckets[bucket].next_after(last) else { return false };
                self.lower_bounds.push(Reverse((least, next.0, SearchLead::Bucket(bucket, Some(next), narrowed))));
                let is_larger = self.host_allows(next.1, constraints)
                    && !open_nodes.fits_unchanged(next.1, narrowed, self.pod_needs(constraints));
                if is_larger {
                    self.evaluate(next.1, open_nodes, constraints);
                }
                is_larger
            }
            None => false,
        }
    }

    fn evaluate(&mut self, node: OpenNodeId, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        if let Some(PodAddition { added_cost: cost, utilization: load, .. }) =
            self.can_add(node, open_nodes, constraints)
        {
            self.exact.push(Reverse((cost, load, node, open_nodes.nodes[node].version)));
        }
    }

    /// True when hostname constraints allow the node for this class.
    fn host_allows(&self, node: OpenNodeId, constraints: &PodConstraints) -> bool {
        constraints.topology.allows(self.class, HOSTNAME_KEY, Some(constraints.host_of(node)))
    }

    fn can_add(
        &mut self,
        node: OpenNodeId,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<PodAddition> {
        if !self.host_allows(node, constraints) {
            return None;
        }
        let narrowed = self.narrow(open_nodes.nodes[node].candidate_set, open_nodes, constraints)?;
        open_nodes.can_add(node, narrowed, self.pod_needs(constraints))
    }

    fn pod_needs<'k>(&self, constraints: &'k PodConstraints) -> PodNeeds<'k> {
        PodNeeds { expected_pods: self.expected_pods, ..constraints.pod_needs(self.class) }
    }

    /// A candidate set narrowed for a pod of this class.
    fn narrow(
        &mut self,
        candidate_set: CandidateSetId,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<CandidateSetId> {
        if self.narrowed_sets.len() <= candidate_set as usize {
            self.narrowed_sets.resize(candidate_set as usize + 1, None);
        }
        let plain = if let Some(narrowed) = self.narrowed_sets[candidate_set as usize] {
            narrowed
        } else {
            let by = [Narrowing::Filter(constraints.classes.get(self.class).filter)].into_iter();
            let mut by = by.chain(self.zone.map(|zone| Narrowing::Zones(1 << zone)));
            let narrowed = by.try_fold(candidate_set, |set, by| {
                open_nodes.candidate_sets.narrow(set, by, constraints.filters_and_keys())
            });
            self.narrowed_sets[candidate_set as usize] = Some(narrowed);
            narrowed
        };
        self.label_keys
            .iter()
            .try_fold(plain?, |set, topology_key| self.pin_label(set, *topology_key, open_nodes, constraints))
    }

    /// Narrows to one value of a label, where a node may have several.
    fn pin_label(
        &self,
        candidate_set: CandidateSetId,
        key_id: TopologyKeyId,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<CandidateSetId> {
        let domains = open_nodes.candidate_sets.domains(candidate_set, key_id, &constraints.topology.keys);
        if domains.is_empty() {
            return constraints.topology.allows(self.class, key_id, None).then_some(candidate_set);
        }
        let order =
            constraints.topology.domains_in_order(self.class, key_id, domains.into_iter().map(|domain| (0, domain)));
        open_nodes.candidate_sets.narrow(
            candidate_set,
            Narrowing::Label(key_id, *order.first()?),
            constraints.filters_and_keys(),
        )
    }
}

impl PodConstraints {
    /// What a pod of a class needs of a node, without expected pods.
    pub(crate) fn pod_needs(&self, class: PodClassId) -> PodNeeds<'_> {
        let PodClass { shape, disks, tracked_volumes, .. } = self.classes.get(class);
        PodNeeds {
            requests: &shape.requests,
            ports: &shape.ports,
            disks: *disks,
            tracked_volumes: tracked_volumes.as_deref(),
            expected_pods: 1,
        }
    }
}
