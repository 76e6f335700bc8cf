//! An emulation of kube-scheduler: the node on which it would put a pod.
//!
//! An emulation of the default profile of kube-scheduler v1.36, written from its documentation and behaviour, on the
//! objects of the wire. It shares no scheduling code with napkeeper-core, so that the two can be compared, and it is
//! itself compared with the real program.
//!
//! Filters: NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit, PodTopologySpread,
//! InterPodAffinity, VolumeRestrictions, NodeVolumeLimits, VolumeBinding. Scores: NodeResourcesFit (LeastAllocated) and
//! NodeResourcesBalancedAllocation at weight 1, TaintToleration at 3, NodeAffinity, PodTopologySpread and
//! InterPodAffinity at 2; ImageLocality is the same for all nodes, as if none had the image. All nodes are tried for
//! every pod (`percentageOfNodesToScore: 100`), and one of those with the highest score is chosen at random.
//!
//! Profiles give pods that a Service or a controller selects spread constraints: those of the profile
//! (`defaultingType: List`), else the built-in ones. Devices, preemption, in-place resizing and batches of equal pods
//! are not emulated.

mod counters;
mod defaults;
mod nodes;
mod pod_class;
mod requests;
mod rules;
mod score;
mod selector;
#[cfg(test)]
mod tests;
mod volumes;

use counters::Counters;
use defaults::Defaults;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    Node as WireNode, PersistentVolume, PersistentVolumeClaim, Pod, Service, TopologySpreadConstraint,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use napkeeper_sim::random::Random;
use nodes::{FixedAnswers, LoadScores, NO_ROOM, Node};
use pod_class::{Fixed, PodClass};
use requests::Requests;
use rules::{Bound, Existing, Rules};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use volumes::Storage;

/// A node, by its index in the order of addition.
pub type NodeIndex = usize;

/// Why a node is infeasible for a pod: the first filter that rejects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It is cordoned.
    Cordoned,
    /// The pod names another node.
    NodeName,
    /// It has a taint that the pod does not tolerate.
    Taint,
    /// It does not have the labels that the pod requires.
    NodeAffinity,
    /// A port of the pod is taken.
    Ports,
    /// There is not enough free capacity.
    Resources,
    /// Another pod has a claim that is for one pod.
    VolumeInUse,
    /// The driver of a volume takes no more of them there.
    VolumeLimit,
    /// A volume cannot be used there, or is not there.
    Volume,
    /// It does not have the label of a spread constraint.
    SpreadLabel,
    /// A spread constraint would be broken.
    Spread,
    /// None of the pods of its affinity is there.
    Affinity,
    /// A pod of its anti-affinity is there.
    AntiAffinity,
    /// A pod with anti-affinity against it is there.
    OthersAntiAffinity,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cordoned => "is cordoned",
            Self::NodeName => "is not the node that is named",
            Self::Taint => "has a taint that is not tolerated",
            Self::NodeAffinity => "does not have the labels that are asked for",
            Self::Ports => "has a port taken",
            Self::Resources => "has not enough room",
            Self::VolumeInUse => "does not help while another pod has the claim",
            Self::VolumeLimit => "takes no more volumes",
            Self::Volume => "is not where a volume can be used",
            Self::SpreadLabel => "does not have the label of a spread constraint",
            Self::Spread => "would break a spread constraint",
            Self::Affinity => "is not near the pods that are asked for",
            Self::AntiAffinity => "is not apart from the pods that are asked for",
            Self::OthersAntiAffinity => "has pods that want to be apart from this one",
        })
    }
}

/// Nodes, the pods on them, and the scheduler that puts pods there.
#[derive(Debug, Clone)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// PodClass and node of every pod, in the order in which they were bound.
    bound: Vec<(usize, NodeIndex)>,
    /// Nodes that have changed, in order.
    changes: Vec<NodeIndex>,
    pod_classes: Vec<PodClass>,
    pod_class_ids: HashMap<PodClass, usize>,
    rules: Vec<Rules>,
    counters: Counters,
    fixed: Vec<FixedAnswers>,
    fixed_ids: HashMap<Fixed, usize>,
    loads: Vec<LoadScores>,
    load_ids: HashMap<Requests, usize>,
    storage: Storage,
    defaults: Defaults,
    chance: Random,
}

impl Cluster {
    /// An empty cluster. The seed decides ties between nodes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            bound: Vec::new(),
            changes: Vec::new(),
            pod_classes: Vec::new(),
            pod_class_ids: HashMap::new(),
            rules: Vec::new(),
            counters: Counters::default(),
            fixed: Vec::new(),
            fixed_ids: HashMap::new(),
            loads: Vec::new(),
            load_ids: HashMap::new(),
            storage: Storage::default(),
            defaults: Defaults::default(),
            chance: Random::new(seed),
        }
    }

    /// Sets the labels of a namespace. To be called before any pod is added.
    pub fn add_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) {
        self.counters.add_namespace(name, labels);
    }

    /// Sets the default spread constraints of a profile.
    pub fn add_profile(&mut self, name: &str, constraints: Vec<TopologySpreadConstraint>) {
        self.defaults.add_profile(name, constraints);
    }

    /// Adds a Service, by which pods that belong together are known.
    pub fn add_service(&mut self, service: &Service) {
        self.defaults.add_service(service);
    }

    /// Adds a ReplicaSet, by which pods that belong together are known.
    pub fn add_set(&mut self, set: &ReplicaSet) {
        self.defaults.add_set(set);
    }

    /// Adds a StorageClass.
    pub fn add_class(&mut self, class: &StorageClass) {
        self.storage.add_class(class);
    }

    /// Adds a PersistentVolume.
    pub fn add_volume(&mut self, volume: &PersistentVolume) {
        self.storage.add_volume(volume);
    }

    /// Adds a PersistentVolumeClaim.
    pub fn add_claim(&mut self, claim: &PersistentVolumeClaim) {
        self.storage.add_claim(claim);
    }

    /// Sets the volume limits of a node.
    pub fn add_csi_node(&mut self, node: &CSINode) {
        self.storage.add_csi_node(node);
    }

    /// Adds a node.
    pub fn add_node(&mut self, node: &WireNode) -> NodeIndex {
        let node = Node::read(node);
        self.counters.add_node(&node);
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The name of a node.
    #[must_use]
    pub fn name(&self, node: NodeIndex) -> &str {
        &self.nodes[node].name
    }

    /// Takes a pod as running on a node, whether it would be put there or not.
    pub fn bind(&mut self, pod: &Pod, node: NodeIndex) {
        let mut class = PodClass::read(pod);
        // What runs is of the same class as what waited: it names a node now because it was bound.
        class.fixed.node = None;
        let id = self.learn(class);
        self.take(id, node);
    }

    /// Binds a pod to the node that kube-scheduler would choose.
    ///
    /// # Errors
    /// When no node does: for each reason, how many nodes it keeps the pod from.
    pub fn schedule(&mut self, pod: &Pod) -> Result<NodeIndex, BTreeMap<Reason, usize>> {
        let id = self.learn(self.defaults.class_of(pod));
        let scored = self.scored(id);
        match score::best(scored.into_iter(), &mut self.chance) {
            Some(node) => {
                self.take(id, node);
                Ok(node)
            }
            None => Err(self.reasons(id)),
        }
    }

    /// The nodes that would do for a pod, with their scores; nothing is bound. ImageLocality is left out.
    pub fn scores(&mut self, pod: &Pod) -> Vec<(NodeIndex, i64)> {
        let id = self.learn(self.defaults.class_of(pod));
        self.scored(id)
    }

    fn learn(&mut self, class: PodClass) -> usize {
        if let Some(id) = self.pod_class_ids.get(&class) {
            return *id;
        }
        let id = self.pod_classes.len();
        let existing = Existing { nodes: &self.nodes, bound: &self.bound, pod_classes: &self.pod_classes };
        let mut rules = Rules::new(&class, &mut self.counters, &existing);
        let (fixed, loads) = (&mut self.fixed, &mut self.loads);
        rules.fixed = *self.fixed_ids.entry(class.fixed.clone()).or_insert_with_key(|key| {
            fixed.push(FixedAnswers::new(key.clone()));
            fixed.len() - 1
        });
        rules.load = *self.load_ids.entry(class.requests.clone()).or_insert_with_key(|key| {
            loads.push(LoadScores::new(key.clone()));
            loads.len() - 1
        });
        self.rules.push(rules);
        self.pod_classes.push(class.clone());
        self.pod_class_ids.insert(class, id);
        id
    }

    fn take(&mut self, id: usize, node: NodeIndex) {
        let class = &self.pod_classes[id];
        self.nodes[node].take(class);
        self.storage.bind(&class.claims, &self.nodes[node]);
        self.counters.bind(id, class, node);
        self.bound.push((id, node));
        self.changes.push(node);
    }

    /// Updates the cached state of a class.
    fn refresh(&mut self, id: usize) {
        let rules = &mut self.rules[id];
        rules.refresh(&self.pod_classes[id], &self.counters);
        self.fixed[rules.fixed].refresh(&self.nodes);
        self.loads[rules.load].refresh(&self.nodes, &self.changes);
    }

    fn scored(&mut self, id: usize) -> Vec<(NodeIndex, i64)> {
        self.refresh(id);
        let rules = &self.rules[id];
        let (fixed, load) = (&self.fixed[rules.fixed], &self.loads[rules.load].scores);
        let bounds = rules.bounds(&mut self.counters);
        let class = &self.pod_classes[id];
        let does = |node: &NodeIndex| {
            load[*node] != NO_ROOM
                && fixed.refused[*node].is_none()
                && bounds.iter().all(|b| b.refuses(*node).is_none())
                && (class.ports.is_empty() || self.nodes[*node].has_ports_for(class))
                && (class.claims.is_empty() || self.storage.refuses(&class.claims, &self.nodes[*node]).is_none())
        };
        let nodes: Vec<NodeIndex> = (0..self.nodes.len()).filter(does).collect();
        let mut scored: Vec<(NodeIndex, i64)> = nodes.iter().map(|n| (*n, i64::from(load[*n]))).collect();
        let mut add = |weight: i64, scores: Vec<i64>| {
            scored.iter_mut().zip(scores).for_each(|((_, sum), score)| *sum += weight * score);
        };
        // If it is the same for all nodes it is skipped: most clusters have no such taints.
        let disliked = if fixed.likes_all { vec![0; nodes.len()] } else { of(&fixed.disliked, &nodes) };
        add(3, score::least(disliked));
        if fixed.prefers() {
            add(2, score::most(of(&fixed.preferred, &nodes)));
        }
        if let Some(scores) = rules.affinity_scores(&self.counters, &nodes) {
            add(2, scores);
        }
        if let Some(scores) = rules.spread_scores(&self.counters, &nodes) {
            add(2, scores);
        }
        scored
    }

    /// For each reason, how many nodes it keeps a pod from.
    fn reasons(&mut self, id: usize) -> BTreeMap<Reason, usize> {
        let rules = &self.rules[id];
        let (fixed, load) = (&self.fixed[rules.fixed], &self.loads[rules.load].scores);
        let bounds: Vec<Bound<'_>> = rules.bounds(&mut self.counters);
        let class = &self.pod_classes[id];
        let reason_of = |node: NodeIndex| {
            fixed.refused[node]
                .or_else(|| (!self.nodes[node].has_ports_for(class)).then_some(Reason::Ports))
                .or_else(|| (load[node] == NO_ROOM).then_some(Reason::Resources))
                .or_else(|| self.storage.refuses(&class.claims, &self.nodes[node]))
                .or_else(|| bounds.iter().find_map(|b| b.refuses(node)))
        };
        let mut reasons = BTreeMap::new();
        for reason in (0..self.nodes.len()).filter_map(reason_of) {
            *reasons.entry(reason).or_insert(0) += 1;
        }
        reasons
    }
}

fn of(all: &[i64], nodes: &[NodeIndex]) -> Vec<i64> {
    nodes.iter().map(|n| all[*n]).collect()
}
