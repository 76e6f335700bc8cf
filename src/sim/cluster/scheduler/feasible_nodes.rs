//! The nodes that pods of a class can use, and the best of them for the next pod.

use super::inter_pod_affinity::InterPodAffinity;
use super::node_cache::{NodeCache, NodeIndex, NodeInfo};
use super::pod_selection::PodSelection;
use crate::cluster::controllers::VolumeTopology;
use napkeeper_core::model::cluster::pod::{PodShape, Spread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The weight of the scores of TaintToleration; those of the resources of nodes have 1.
const TAINT_TOLERATION_WEIGHT: i64 = 3;

/// The nodes that a class of pods may use in one cycle. Nodes do not change during a cycle; their free capacity does.
#[derive(Debug)]
pub(in crate::cluster) struct FeasibleNodes {
    /// Nodes that have every topology key and that are open, or count for some spread constraint.
    nodes: Vec<CandidateNode>,
    spreads: Vec<SpreadConstraint>,
    affinity: InterPodAffinity,
}

/// The constraints of the pods of a class.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster) struct PodConstraints<'a> {
    pub(in crate::cluster) shape: &'a PodShape,
    /// The groups of its spread constraints, in their order.
    pub(in crate::cluster) spread_groups: &'a [usize],
    pub(in crate::cluster) affinity: &'a InterPodAffinity,
    pub(in crate::cluster) volumes: &'a VolumeTopology,
}

#[derive(Debug)]
struct CandidateNode {
    slot: NodeIndex,
    /// Accepted, ready, tolerated, and in reach of the pod's volumes.
    open: bool,
    /// How many of its `PreferNoSchedule` taints the pods do not tolerate.
    avoided_taints: i64,
    /// The domain in each spread constraint, and whether the node's pods count there.
    domains: Vec<(usize, bool)>,
}

#[derive(Debug)]
struct SpreadConstraint {
    group: usize,
    max_skew: i64,
    min_domains: usize,
    honors_affinity: bool,
    honors_taints: bool,
    /// 1 when the pod itself counts, else 0.
    own: i64,
    ids: BTreeMap<Arc<str>, usize>,
}

impl FeasibleNodes {
    /// Filters all nodes, or only some if the others are known to be full.
    pub(in crate::cluster) fn new(
        constraints: PodConstraints<'_>,
        cache: &NodeCache,
        only: Option<&BTreeSet<NodeIndex>>,
    ) -> Self {
        let spreads = constraints.shape.spread.iter().zip(constraints.spread_groups);
        let spreads = spreads.map(|(spread, group)| SpreadConstraint::of(constraints.shape, spread, *group)).collect();
        let mut feasible = Self { nodes: Vec::new(), spreads, affinity: constraints.affinity.clone() };
        match only {
            Some(only) => only.iter().for_each(|slot| feasible.look_at(*slot, constraints, cache)),
            None => cache.entries().for_each(|(slot, _)| feasible.look_at(slot, constraints, cache)),
        }
        feasible
    }

    fn look_at(
        &mut self,
        slot: NodeIndex,
        PodConstraints { shape, volumes, .. }: PodConstraints<'_>,
        cache: &NodeCache,
    ) {
        let Some(entry) = cache.entry(slot) else {
            return;
        };
        let accepted = shape.accepts_labels(&entry.node.labels);
        if !accepted && self.spreads.iter().all(|s| s.honors_affinity) {
            return;
        }
        let tolerated = shape.untolerated(&entry.node.taints).is_none();
        let open = accepted && entry.is_open() && tolerated && volumes.holds(&entry.node.labels);
        let values: Option<Vec<&Arc<str>>> =
            shape.spread.iter().map(|s| entry.node.labels.get(&s.topology_key)).collect();
        // A node that is closed matters only as a domain.
        let Some(values) = values.filter(|_| open || !self.spreads.is_empty()) else {
            return;
        };
        // A node that is not ready, or cordoned, has a taint of Kubernetes' own.
        let tolerated = tolerated && entry.node.ready && !entry.node.cordoned;
        let domains = self
            .spreads
            .iter_mut()
            .zip(values)
            .map(|(spread, value)| {
                let next = spread.ids.len();
                let counts = (accepted || !spread.honors_affinity) && (tolerated || !spread.honors_taints);
                (*spread.ids.entry(Arc::clone(value)).or_insert(next), counts)
            })
            .collect();
        let avoided = entry.node.taints.iter().filter(|taint| shape.avoids(taint)).count();
        let avoided_taints = i64::try_from(avoided).unwrap_or(i64::MAX);
        self.nodes.push(CandidateNode { slot, open, avoided_taints, domains });
    }

    /// The node for the next pod: of those with capacity that keep every skew, the one with the highest score; among
    /// equals the first by name.
    pub(in crate::cluster) fn best(&self, shape: &PodShape, cache: &NodeCache) -> Option<NodeIndex> {
        let feasible = || self.feasible(shape, cache);
        let has_avoided = self.nodes.iter().any(|node| node.avoided_taints > 0);
        let most_avoided = if has_avoided { feasible().map(|(node, _)| node.avoided_taints).max()? } else { 0 };
        let score = |node: &CandidateNode, entry: &NodeInfo| {
            TAINT_TOLERATION_WEIGHT * toleration_score(node.avoided_taints, most_avoided)
                + entry.resource_score(&shape.requests)
        };
        feasible()
            .max_by_key(|(node, entry)| (score(node, entry), Reverse(&entry.node.name)))
            .map(|(node, _)| node.slot)
    }

    /// The first node by number with capacity that keeps every skew, of those that `among` holds.
    pub(in crate::cluster) fn first(
        &self,
        shape: &PodShape,
        cache: &NodeCache,
        among: impl Fn(NodeIndex) -> bool,
    ) -> Option<NodeIndex> {
        self.feasible(shape, cache).map(|(node, _)| node.slot).find(|slot| among(*slot))
    }

    /// The nodes with capacity and free ports that keep every skew and every affinity.
    fn feasible<'v>(
        &'v self,
        shape: &'v PodShape,
        cache: &'v NodeCache,
    ) -> impl Iterator<Item = (&'v CandidateNode, &'v NodeInfo)> {
        let room = self.room_in_domains(cache);
        let fits_spread = move |c: &CandidateNode| c.domains.iter().zip(&room).all(|((domain, _), room)| room[*domain]);
        let allowed_domains = self.affinity.allowed_domains(cache);
        self.nodes
            .iter()
            .filter(move |c| c.open && fits_spread(c))
            .filter_map(|c| Some((c, cache.entry(c.slot)?)))
            .filter(|(_, entry)| shape.requests.fits(&entry.free) && entry.has_ports(&shape.ports))
            .filter(move |(_, entry)| allowed_domains.admit(&entry.node))
    }

    /// For each spread constraint, the domains that may take one more pod.
    fn room_in_domains(&self, cache: &NodeCache) -> Vec<Vec<bool>> {
        let room = |(i, spread): (usize, &SpreadConstraint)| {
            let mut counts = vec![None; spread.ids.len()];
            for node in &self.nodes {
                if let (domain, true) = node.domains[i] {
                    *counts[domain].get_or_insert(0_i64) += cache.count(spread.group, node.slot);
                }
            }
            let some = counts.iter().copied().flatten();
            let enough = some.clone().count() >= spread.min_domains;
            let least = some.min().filter(|_| enough).unwrap_or(0);
            counts.into_iter().map(|n| n.unwrap_or(0) + spread.own - least <= spread.max_skew).collect()
        };
        self.spreads.iter().enumerate().map(room).collect()
    }
}

/// The TaintToleration score of kube-scheduler: 100 without taints that pods would avoid, 0 with the most of them.
fn toleration_score(avoided: i64, most_avoided: i64) -> i64 {
    100 - avoided * 100 / most_avoided.max(1)
}

impl SpreadConstraint {
    fn of(shape: &PodShape, spread: &Spread, group: usize) -> Self {
        let own = PodSelection::Spread(shape.namespace.clone(), spread.selector.clone()).holds(shape);
        Self {
            group,
            max_skew: i64::from(spread.max_skew),
            min_domains: spread.min_domains as usize,
            honors_affinity: spread.honors_affinity,
            honors_taints: spread.honors_taints,
            own: i64::from(own),
            ids: BTreeMap::new(),
        }
    }
}
