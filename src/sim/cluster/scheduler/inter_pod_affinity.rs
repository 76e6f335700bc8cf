//! Required pod affinity and anti-affinity.
//!
//! As kube-scheduler's InterPodAffinity filters, in both directions: what a pod requires, and what running pods
//! keep away.

use super::node_cache::NodeCache;
use super::pod_selection::PodSelection;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The groups of pods that matter to pods of one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cluster) struct InterPodAffinity {
    near: Option<RequiredAffinity>,
    /// Groups that its own terms keep away from, with the node label of their domains.
    apart: Vec<(usize, Arc<str>)>,
    /// Groups that keep it away.
    existing_anti_affinity: Vec<(usize, Arc<str>)>,
}

/// Pods that it has to be near to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequiredAffinity {
    /// Those that all of its terms mean.
    group: usize,
    keys: Vec<Arc<str>>,
    /// It is one of them, so that the first need not find another.
    own: bool,
}

impl InterPodAffinity {
    /// The groups that a shape requires, created where they are new, and those that keep it away so far. New groups
    /// count `pods`.
    pub(in crate::cluster) fn of(cache: &mut NodeCache, shape: &PodShape, pods: &[&Arc<Pod>]) -> Self {
        let mut all = Self::default();
        if let Some(affinity) = &shape.affinity {
            let pods = || pods.iter().copied();
            if !affinity.near.is_empty() {
                let selection = PodSelection::Affinity(affinity.near.clone());
                let own = selection.holds(shape);
                let keys = affinity.near.iter().map(|term| Arc::clone(&term.topology_key)).collect();
                all.near = Some(RequiredAffinity { group: cache.group(selection, pods()), keys, own });
            }
            for term in &affinity.apart {
                let group = cache.group(PodSelection::Affinity(vec![term.clone()]), pods());
                all.apart.push((group, Arc::clone(&term.topology_key)));
                cache.group(PodSelection::AntiAffinity(term.clone()), pods());
            }
        }
        all.refresh(cache, shape);
        all
    }

    /// Learns which groups keep the shape away by now.
    pub(super) fn refresh(&mut self, cache: &NodeCache, shape: &PodShape) {
        self.existing_anti_affinity = cache.anti_affinity_of_running(shape);
    }

    /// True when where other pods are does not matter.
    pub(in crate::cluster) fn is_empty(&self) -> bool {
        self.near.is_none() && self.apart.is_empty() && self.existing_anti_affinity.is_empty()
    }

    /// Where those pods are now.
    pub(super) fn allowed_domains(&self, cache: &NodeCache) -> AllowedDomains {
        let mut allowed_domains = AllowedDomains::default();
        for (group, key) in self.apart.iter().chain(&self.existing_anti_affinity) {
            allowed_domains.closed.entry(Arc::clone(key)).or_default().extend(domains(cache, *group, key));
        }
        if let Some(required) = &self.near {
            let of = |key: &Arc<str>| (Arc::clone(key), domains(cache, required.group, key).collect());
            let open: Vec<_> = required.keys.iter().map(of).collect();
            let no_domain = open.iter().all(|(_, values): &(_, BTreeSet<_>)| values.is_empty());
            if no_domain && required.own {
                allowed_domains.labelled = required.keys.clone();
            } else {
                allowed_domains.open = open;
            }
        }
        allowed_domains
    }
}

/// The values of a node label where pods of a group are.
fn domains<'b>(cache: &'b NodeCache, group: usize, key: &'b str) -> impl Iterator<Item = Arc<str>> + 'b {
    let with_pods = cache.entries().filter(move |(slot, _)| cache.count(group, *slot) > 0);
    with_pods.filter_map(move |(_, entry)| entry.node.labels.get(key).cloned())
}

/// SpreadConstraint that are open or closed to a pod.
#[derive(Debug, Default)]
pub(super) struct AllowedDomains {
    /// By node label, the values that it must not have.
    closed: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Of each of these node labels, the values of which it must have one.
    open: Vec<(Arc<str>, BTreeSet<Arc<str>>)>,
    /// Node labels that must be there.
    labelled: Vec<Arc<str>>,
}

impl AllowedDomains {
    pub(super) fn admit(&self, node: &Node) -> bool {
        let value = |key: &Arc<str>| node.labels.get(key);
        self.labelled.iter().all(|key| value(key).is_some())
            && self.open.iter().all(|(key, values)| value(key).is_some_and(|v| values.contains(v)))
            && self.closed.iter().all(|(key, values)| value(key).is_none_or(|v| !values.contains(v)))
    }
}
