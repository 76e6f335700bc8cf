//! Finds the open node with the lowest added cost for a pod class.
//!
//! All pods of a class ask the same, and between two of them only nodes have changed that took a pod since. So every
//! [bucket](super::buckets) is gone through once, the emptiest node first, as far as it may hold the best; and then
//! only nodes that have changed are looked at.

use crate::scheduling::nodes::buckets::{NodeBucketId, NodeByUtilization};
use crate::scheduling::nodes::new_node::{OpenNodeId, OpenNodes};
use crate::scheduling::nodes::pod_needs::{PodAddition, PodNeeds};
use crate::scheduling::nodes::state::PodConstraints;
use crate::scheduling::offerings::candidate_sets::{CandidateSetId, Narrowing};
use crate::scheduling::pods::class::{PodClass, PodClassId};
use crate::scheduling::topology::domain::{Domain, HOSTNAME_KEY, TopologyKeyId, ZONE_KEY};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// By cost, then by load, then by number; with the version of the node that it was worked out for.
type CostEntry = Reverse<(i64, u32, OpenNodeId, u32)>;

/// What a place in a search leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SearchLead {
    /// A node, as long as it is of this version.
    Node(OpenNodeId, u32),
    /// What is in a bucket, after this if that is given, narrowed to a candidate set.
    Bucket(NodeBucketId, Option<NodeByUtilization>, CandidateSetId),
}

/// For how many nodes at the most it is worked out, for one pod, what it would cost to make them larger: those of which it
/// may be least.
const MAX_EVALUATIONS: usize = 16;

/// One pod class's look at the open nodes, in one zone if one is given.
pub(crate) struct Search {
    class: PodClassId,
    zone: Option<Domain>,
    /// Nodes whose cost is worked out.
    exact: BinaryHeap<CostEntry>,
    /// Shelves whose nodes may take a pod as they are, by how full the next one would be at the least.
    fitting: BinaryHeap<Reverse<(u32, SearchLead)>>,
    /// Nodes that would have to be larger, by the least that this may cost, the emptiest first.
    lower_bounds: BinaryHeap<Reverse<(i64, u32, SearchLead)>>,
    /// How much of the news of nodes has been looked at; nothing yet.
    changes_seen: Option<usize>,
    /// What a candidate set is narrowed to for this class, by number, where that was asked.
    narrowed_sets: Vec<Option<Option<CandidateSetId>>>,
    /// Axes, other than hosts and zones, on which the place of these pods matters.
    label_keys: Vec<TopologyKeyId>,
    /// How many pods of the class may come to one node.
    expected_pods: u32,
}

impl Search {
    /// `pods` of the class are to be placed, as far as that is known.
    pub(crate) fn new(class: PodClassId, zone: Option<Domain>, constraints: &PodConstraints, pods: usize) -> Self {
        let known_keys = ZONE_KEY + 1..constraints.topology.keys.len();
        let labelled: Vec<TopologyKeyId> =
            known_keys.filter(|topology_key| constraints.topology.affects(class, *topology_key)).collect();
        let in_view = constraints.topology.expected_pods_per_node(class, pods);
        Self {
            class,
            zone,
            exact: BinaryHeap::new(),
            fitting: BinaryHeap::new(),
            lower_bounds: BinaryHeap::new(),
            changes_seen: None,
            narrowed_sets: Vec::new(),
            label_keys: labelled,
            expected_pods: in_view,
        }
    }

    /// Reckons with so many pods from now on, which are fewer: costs that were worked out for more are low estimates.
    pub(crate) fn expect_pods(&mut self, pods: usize, constraints: &PodConstraints) {
        self.expected_pods = constraints.topology.expected_pods_per_node(self.class, pods);
    }

    /// The open node that takes a pod at the least cost, if that is at most so much.
    pub(crate) fn best(
        &mut self,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
        most: i64,
    ) -> Option<(OpenNodeId, PodAddition)> {
        let hosts = constraints.topology.affinity_domains(self.class, HOSTNAME_KEY);
        let best = match hosts {
            Some(hosts) => self.best_among(
                hosts.into_iter().filter_map(|host| constraints.open_node_at(host)),
                open_nodes,
                constraints,
            ),
            // Room alone does not tell which nodes are open to the next pod.
            None if !self.label_keys.is_empty() => self.best_among(0..open_nodes.nodes.len(), open_nodes, constraints),
            None => self.best_incremental(open_nodes, constraints, most),
        };
        best.filter(|(_, pod_addition)| pod_addition.added_cost <= most)
    }

    fn best_incremental(
        &mut self,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
        most: i64,
    ) -> Option<(OpenNodeId, PodAddition)> {
        self.update(open_nodes, constraints);
        let mut worked_out = 0;
        loop {
            let (cost, load) = self.exact.peek().map_or((i64::MAX, 0), |Reverse((cost, load, ..))| (*cost, *load));
            if let Some(Reverse((emptiest, _))) = self.fitting.peek()
                && (0, *emptiest) <= (cost, load)
            {
                self.next_fitting(open_nodes, constraints);
                continue;
            }
            if let Some(Reverse((least, ..))) = self.lower_bounds.peek()
                && *least <= most
                && *least < cost
                && worked_out < MAX_EVALUATIONS
            {
                worked_out += usize::from(self.next_lower_bound(open_nodes, constraints));
                continue;
            }
            let Reverse((cost, _, node, version)) = *self.exact.peek()?;
            if open_nodes.nodes[node].version == version {
                if cost > most {
                    return None;
                }
                // What keeps a pod from a host stays in its way: counts only grow.
                if let Some(pod_addition) = self.can_add(node, open_nodes, constraints) {
                    return Some((node, pod_addition));
                }
            }
            // It is gone, or it has changed and was looked at as news.
            self.exact.pop();
        }
    }

    /// The cheapest new node, of the first pool that has one.
    pub(crate) fn cheapest_new_node(
        &mut self,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<PodAddition> {
        let want = self.pod_needs(constraints);
        (0..open_nodes.candidate_sets.pool_count()).find_map(|pool| {
            let root = open_nodes.candidate_sets.root(pool);
            let set_id = self.narrow(root, open_nodes, constraints)?;
            open_nodes.cheapest_new_node(set_id, want)
        })
    }

    fn best_among(
        &mut self,
        nodes: impl Iterator<Item = OpenNodeId>,
        open_nodes: &mut OpenNodes,
        constraints: &PodConstraints,
    ) -> Option<(OpenNodeId, PodAddition)> {
        let growths = nodes.filter_map(|node| Some((node, self.can_add(node, open_nodes, constraints)?)));
        growths.min_by_key(|(node, pod_addition)| (pod_addition.added_cost, pod_addition.utilization, *node))
    }

    /// Looks at all buckets the first time, and then at the nodes that have changed since.
    fn update(&mut self, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        let from = self.changes_seen.replace(open_nodes.buckets.changed.len());
        let Some(from) = from else {
            (0..open_nodes.buckets.buckets.len()).for_each(|bucket| self.start_bucket(bucket, open_nodes, constraints));
            return;
        };
        for news in from..open_nodes.buckets.changed.len() {
            let node = open_nodes.buckets.changed[news];
            let Some(set_id) = self.narrow(open_nodes.nodes[node].candidate_set, open_nodes, constraints) else {
                continue;
            };
            if open_nodes.fits_unchanged(node, set_id, self.pod_needs(constraints)) {
                self.evaluate(node, open_nodes, constraints);
            } else if self.host_allows(node, constraints) {
                let (load, lead) =
                    (open_nodes.utilization(node).0, SearchLead::Node(node, open_nodes.nodes[node].version));
                let like = (open_nodes.nodes[node].candidate_set, open_nodes.nodes[node].candidate);
                let least = open_nodes.min_added_cost(like, set_id, self.pod_needs(constraints));
                self.lower_bounds.extend(least.map(|cost| Reverse((cost, load, lead))));
            }
        }
    }

    /// Begins with the emptiest node of a bucket.
    fn start_bucket(&mut self, bucket: NodeBucketId, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        let (before, best) =
            (open_nodes.buckets.buckets[bucket].candidate_set, open_nodes.buckets.buckets[bucket].candidate);
        let (Some(set_id), Some(first)) =
            (self.narrow(before, open_nodes, constraints), open_nodes.buckets.buckets[bucket].next_after(None))
        else {
            return;
        };
        let lead = SearchLead::Bucket(bucket, None, set_id);
        let load = open_nodes.min_utilization(bucket, first, self.pod_needs(constraints)).filter(|_| set_id == before);
        self.fitting.extend(load.map(|load| Reverse((load, lead))));
        let least = open_nodes.min_added_cost((before, best), set_id, self.pod_needs(constraints));
        self.lower_bounds.extend(least.map(|cost| Reverse((cost, first.0, lead))));
    }

    /// Looks at the next node of the bucket that may have the emptiest which takes a pod as it is.
    fn next_fitting(&mut self, open_nodes: &mut OpenNodes, constraints: &PodConstraints) {
        let Some(Reverse((_, SearchLead::Bucket(bucket, last, set_id)))) = self.fitting.pop() else { return };
        let Some(spot) = open_nodes.buckets.buckets[bucket].next_after(last) else { return };
        let Some(load) = open_nodes.min_utilization(bucket, spot, self.pod_needs(constraints)) else { return };
        self.fitting.push(Reverse((load, SearchLead::Bucket(bucket, Some(spot), set_id))));
        if open_nodes.fits_unchanged(spot.1, set_id, self.pod_needs(constraints)) {
            self.evaluate(spot.1, open_nodes, constraints);
        }
    }

    /// Works out the next of the nodes that would have to be larger; says whether there was one.
    fn next_lower_bound(&mut self, open_nodes: &mut OpenNodes, constraints: &PodConstraints) -> bool {
        match self.lower_bounds.pop() {
            Some(Reverse((_, _, SearchLead::Node(node, version)))) => {
                let is_open = open_nodes.nodes[node].version == version && self.host_allows(node, constraints);
                if is_open {
                    self.evaluate(node, open_nodes, constraints);
                }
                is_open
            }
            Some(Reverse((least, _, SearchLead::Bucket(bucket, last, set_id)))) => {
                let Some(spot) = open_nodes.buckets.buckets[bucket].next_after(last) else { return false };
                self.lower_bounds.push(Reverse((least, spot.0, SearchLead::Bucket(bucket, Some(spot), set_id))));
                let is_larger = self.host_allows(spot.1, constraints)
                    && !open_nodes.fits_unchanged(spot.1, set_id, self.pod_needs(constraints));
                if is_larger {
                    self.evaluate(spot.1, open_nodes, constraints);
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

    /// True when the pods there leave the host to this class.
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
        let set_id = self.narrow(open_nodes.nodes[node].candidate_set, open_nodes, constraints)?;
        open_nodes.can_add(node, set_id, self.pod_needs(constraints))
    }

    fn pod_needs<'k>(&self, known: &'k PodConstraints) -> PodNeeds<'k> {
        PodNeeds { expected_pods: self.expected_pods, ..known.pod_needs(self.class) }
    }

    /// What a candidate set becomes with a pod of this class.
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
            let narrowed = by.try_fold(candidate_set, |set_id, by| {
                open_nodes.candidate_sets.narrow(set_id, by, constraints.filters_and_keys())
            });
            self.narrowed_sets[candidate_set as usize] = Some(narrowed);
            narrowed
        };
        self.label_keys
            .iter()
            .try_fold(plain?, |set_id, topology_key| self.pin_label(set_id, *topology_key, open_nodes, constraints))
    }

    /// Settles on one value of a label, where a node may have several.
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
    /// What a pod of a class takes of a node, whoever comes after it.
    pub(crate) fn pod_needs(&self, class: PodClassId) -> PodNeeds<'_> {
        let PodClass { shape, disks, tracked_volumes: more, .. } = self.classes.get(class);
        PodNeeds {
            requests: &shape.requests,
            ports: &shape.ports,
            disks: *disks,
            tracked_volumes: more.as_deref(),
            expected_pods: 1,
        }
    }
}
