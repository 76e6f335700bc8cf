//! Neighbours: next to which pods may a pod be, and next to which may it not?
//!
//! As kube-scheduler's InterPodAffinity filters, in both directions: what a pod asks for, and what pods that run already
//! keep away.

use super::book::Book;
use super::who::Who;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The groups of pods that matter to pods of one shape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cluster) struct Neighbours {
    near: Option<Near>,
    /// Groups that its own terms keep away from, with the node label of their domains.
    apart: Vec<(usize, Arc<str>)>,
    /// Groups that keep it away.
    keepers: Vec<(usize, Arc<str>)>,
}

/// Pods that it has to be near to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Near {
    /// Those that all of its terms mean.
    group: usize,
    keys: Vec<Arc<str>>,
    /// It is one of them, so that the first need not find another.
    own: bool,
}

impl Neighbours {
    /// The groups that a shape asks for, made where they are new, and those that keep it away so far. `pods` are those
    /// that are counted in new groups.
    pub(in crate::cluster) fn of(book: &mut Book, shape: &PodShape, pods: &[&Arc<Pod>]) -> Self {
        let mut all = Self::default();
        if let Some(affinity) = &shape.affinity {
            let pods = || pods.iter().copied();
            if !affinity.near.is_empty() {
                let who = Who::Meant(affinity.near.clone());
                let own = who.holds(shape);
                let keys = affinity.near.iter().map(|term| Arc::clone(&term.topology_key)).collect();
                all.near = Some(Near { group: book.group(who, pods()), keys, own });
            }
            for term in &affinity.apart {
                let group = book.group(Who::Meant(vec![term.clone()]), pods());
                all.apart.push((group, Arc::clone(&term.topology_key)));
                book.group(Who::Wary(term.clone()), pods());
            }
        }
        all.look_again(book, shape);
        all
    }

    /// Learns which groups keep the shape away by now.
    pub(super) fn look_again(&mut self, book: &Book, shape: &PodShape) {
        self.keepers = book.keepers_away(shape);
    }

    /// True when where other pods are does not matter.
    pub(in crate::cluster) fn is_empty(&self) -> bool {
        self.near.is_none() && self.apart.is_empty() && self.keepers.is_empty()
    }

    /// Where those pods are now.
    pub(super) fn places(&self, book: &Book) -> Places {
        let mut places = Places::default();
        for (group, key) in self.apart.iter().chain(&self.keepers) {
            places.closed.entry(Arc::clone(key)).or_default().extend(domains(book, *group, key));
        }
        if let Some(near) = &self.near {
            let of = |key: &Arc<str>| (Arc::clone(key), domains(book, near.group, key).collect());
            let open: Vec<_> = near.keys.iter().map(of).collect();
            let nowhere = open.iter().all(|(_, values): &(_, BTreeSet<_>)| values.is_empty());
            if nowhere && near.own {
                places.labelled = near.keys.clone();
            } else {
                places.open = open;
            }
        }
        places
    }
}

/// The values of a node label where pods of a group are.
fn domains<'b>(book: &'b Book, group: usize, key: &'b str) -> impl Iterator<Item = Arc<str>> + 'b {
    let there = book.entries().filter(move |(slot, _)| book.count(group, *slot) > 0);
    there.filter_map(move |(_, entry)| entry.node.labels.get(key).cloned())
}

/// Domains that are open or closed to a pod.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By node label, the values that it must not have.
    closed: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Of each of these node labels, the values of which it must have one.
    open: Vec<(Arc<str>, BTreeSet<Arc<str>>)>,
    /// Node labels that must be there.
    labelled: Vec<Arc<str>>,
}

impl Places {
    pub(super) fn admit(&self, node: &Node) -> bool {
        let value = |key: &Arc<str>| node.labels.get(key);
        self.labelled.iter().all(|key| value(key).is_some())
            && self.open.iter().all(|(key, values)| value(key).is_some_and(|v| values.contains(v)))
            && self.closed.iter().all(|(key, values)| value(key).is_none_or(|v| !values.contains(v)))
    }
}
