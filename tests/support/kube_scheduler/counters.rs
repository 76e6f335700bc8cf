//! Counts pods in each domain of a topology. Counts are updated with every bound pod.

use super::nodes::Node;
use super::pod_class::{PodClass, Term, Toleration};
use super::selector::{Labels, RequiredNode, Selector};
use std::collections::{BTreeMap, HashMap};

/// The domain of a node without the topology key.
pub(super) const NO_DOMAIN: u32 = u32::MAX;
/// The key of the topology whose domains are the nodes themselves, whatever their labels.
pub(super) const HOSTNAME_KEY: &str = "";

/// Domains by the value of one label.
#[derive(Debug, Clone)]
pub(super) struct Topology {
    key: String,
    /// By node.
    pub(super) domain: Vec<u32>,
    values: HashMap<String, u32>,
}

impl Topology {
    fn add(&mut self, node: &Node) {
        let value = if self.key == HOSTNAME_KEY { Some(&node.name) } else { node.labels.get(&self.key) };
        let next = u32::try_from(self.values.len()).unwrap_or(NO_DOMAIN);
        let domain = value.map_or(NO_DOMAIN, |value| *self.values.entry(value.clone()).or_insert(next));
        self.domain.push(domain);
    }
}

/// Which nodes count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct NodeFilter {
    /// Those with all of these labels,
    pub(super) keys: Vec<String>,
    /// that satisfy this,
    pub(super) required: Option<RequiredNode>,
    /// and whose taints these tolerate.
    pub(super) tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    fn has(&self, node: &Node) -> bool {
        self.keys.iter().all(|key| node.labels.contains_key(key))
            && self.required.as_ref().is_none_or(|r| r.matches(&node.name, &node.labels))
            && self.tolerations.as_ref().is_none_or(|t| node.tolerated(t))
    }
}

/// Which pods count, and how much.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum PodFilter {
    /// Pods of a namespace that a spread constraint selects.
    Selected(String, Selector),
    /// Pods that all of these terms mean.
    Meant(Vec<Term>),
    /// Pods that want to be apart from those that this term means.
    Repelling(Term),
    /// Pods that have this term as required affinity (1 each) or as a preference (by its weight).
    Attracting(Term),
}

impl PodFilter {
    fn weighs(&self, class: &PodClass, of_namespace: &Labels) -> i64 {
        let times = |terms: &[Term], term: &Term| terms.iter().filter(|t| *t == term).count() as i64;
        match self {
            // An empty selector counts none; it is the constraint that selects the pod itself all the same.
            Self::Selected(_, selector) if selector.is_everything() => 0,
            Self::Selected(namespace, selector) => {
                i64::from(!class.leaving && *namespace == class.namespace && selector.matches(&class.labels))
            }
            Self::Meant(terms) => i64::from(terms.iter().all(|t| t.means(class, of_namespace))),
            Self::Repelling(term) => times(&class.apart, term),
            Self::Attracting(term) => {
                let liked = class.likes.iter().filter(|(_, t)| t == term).map(|(weight, _)| weight);
                times(&class.near, term) + liked.sum::<i64>()
            }
        }
    }
}

/// Identity of a counter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CounterKey {
    pub(super) pod_filter: PodFilter,
    pub(super) key: String,
    pub(super) node_filter: NodeFilter,
}

/// Pods of some sort by domain.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    pub(super) key: CounterKey,
    pub(super) topology: usize,
    /// By domain.
    pub(super) counts: Vec<i64>,
    /// By node: it counts.
    counted: Vec<bool>,
    /// By domain: it has a node that counts.
    present: Vec<bool>,
    /// How many domains have one.
    pub(super) domains: usize,
    /// Something was counted.
    pub(super) any: bool,
    /// The lowest count of a domain that has a node, and how many domains have it; with 0 it must be recomputed.
    lowest: (i64, usize),
}

impl Counter {
    fn new(key: CounterKey, topology: usize) -> Self {
        let (counts, counted, present) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, topology, counts, counted, present, domains: 0, any: false, lowest: (0, 0) }
    }

    fn add_node(&mut self, node: &Node, domain: u32) {
        let counts = domain != NO_DOMAIN && self.key.node_filter.has(node);
        self.counted.push(counts);
        if domain == NO_DOMAIN {
            return;
        }
        let domain = domain as usize;
        if domain >= self.counts.len() {
            self.counts.resize(domain + 1, 0);
            self.present.resize(domain + 1, false);
        }
        if counts && !self.present[domain] {
            self.present[domain] = true;
            self.domains += 1;
            self.lowest.1 = 0;
        }
    }

    fn count(&mut self, node: usize, domain: u32, weight: i64) {
        if !self.counted[node] {
            return;
        }
        let domain = domain as usize;
        if self.counts[domain] == self.lowest.0 {
            self.lowest.1 = self.lowest.1.saturating_sub(1);
        }
        self.counts[domain] += weight;
        self.any = true;
    }

    /// The lowest count over all domains that have a node which counts. Only where no weight is negative.
    pub(super) fn lowest(&mut self) -> i64 {
        if self.lowest.1 == 0 {
            let counts = || self.counts.iter().zip(&self.present).filter(|(_, present)| **present).map(|(n, _)| *n);
            let lowest = counts().min().unwrap_or(0);
            self.lowest = (lowest, counts().filter(|n| *n == lowest).count());
        }
        self.lowest.0
    }
}

/// All counters and the topologies that they count by.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    pub(super) topologies: Vec<Topology>,
    pub(super) all: Vec<Counter>,
    ids: HashMap<CounterKey, usize>,
    /// Labels of namespaces.
    namespaces: BTreeMap<String, Labels>,
    /// The weights that the pods of a class add to counters, and how many counters were checked.
    feeds: Vec<(Vec<(usize, i64)>, usize)>,
}

impl Counters {
    /// Sets the labels of a namespace. To be called before pods are added.
    pub(super) fn add_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.to_owned(), labels);
    }

    pub(super) fn labels_of(&self, namespace: &str) -> Labels {
        self.namespaces.get(namespace).cloned().unwrap_or_default()
    }

    pub(super) fn add_node(&mut self, node: &Node) {
        for topology in &mut self.topologies {
            topology.add(node);
        }
        for counter in &mut self.all {
            let domain = self.topologies[counter.topology].domain.last();
            counter.add_node(node, domain.copied().unwrap_or(NO_DOMAIN));
        }
    }

    /// The topology of a key.
    pub(super) fn topology(&mut self, key: &str, nodes: &[Node]) -> usize {
        self.topologies.iter().position(|t| t.key == key).unwrap_or_else(|| {
            let mut topology = Topology { key: key.to_owned(), domain: Vec::new(), values: HashMap::new() };
            nodes.iter().for_each(|n| topology.add(n));
            self.topologies.push(topology);
            self.topologies.len() - 1
        })
    }

    /// The counter of a key. A new one counts the pods that are already `bound` (class and node).
    pub(super) fn counter(
        &mut self,
        key: CounterKey,
        nodes: &[Node],
        bound: &[(usize, usize)],
        pod_classes: &[PodClass],
    ) -> usize {
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let topology = self.topology(&key.key, nodes);
        let domain = &self.topologies[topology].domain;
        let mut counter = Counter::new(key.clone(), topology);
        for (node, domain) in nodes.iter().zip(domain) {
            counter.add_node(node, *domain);
        }
        let nothing = Labels::new();
        let weights: Vec<i64> = pod_classes
            .iter()
            .map(|k| counter.key.pod_filter.weighs(k, self.namespaces.get(&k.namespace).unwrap_or(&nothing)))
            .collect();
        for (class, node) in bound.iter().filter(|(class, _)| weights[*class] != 0) {
            counter.count(*node, domain[*node], weights[*class]);
        }
        self.all.push(counter);
        self.ids.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    /// Counts a pod that was bound.
    pub(super) fn bind(&mut self, id: usize, class: &PodClass, node: usize) {
        if self.feeds.len() <= id {
            self.feeds.resize(id + 1, (Vec::new(), 0));
        }
        let nothing = Labels::new();
        let labels = self.namespaces.get(&class.namespace).unwrap_or(&nothing);
        let (feeds, counted) = &mut self.feeds[id];
        for (i, counter) in self.all.iter().enumerate().skip(*counted) {
            let weight = counter.key.pod_filter.weighs(class, labels);
            if weight != 0 {
                feeds.push((i, weight));
            }
        }
        *counted = self.all.len();
        for &(i, weight) in feeds.iter() {
            let counter = &mut self.all[i];
            counter.count(node, self.topologies[counter.topology].domain[node], weight);
        }
    }
}
