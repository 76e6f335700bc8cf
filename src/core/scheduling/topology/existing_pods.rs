//! Running pods per node, counted once for all topology groups.

use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{PodShape, PodTerm};
use crate::model::names::{NodeName, ObjectKey};
use crate::scheduling::topology::group::{CountedPods, GroupsByLabel};
use crate::snapshot::{ShapeCount, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Indices of nodes, each with its number of pods.
type PodsPerNode = Vec<(u32, u32)>;

/// Nodes that are not excluded, and their pods.
#[derive(Debug, Default)]
pub(crate) struct ExistingPods {
    /// By name.
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Each running shape, with the indices in `nodes` of its pods.
    pods: Vec<(Arc<PodShape>, PodsPerNode)>,
    /// Indices in `pods`, by each of their labels.
    by_label: BTreeMap<(Arc<str>, Arc<str>), Vec<usize>>,
    /// Required anti-affinity, with the indices in `pods` of those that have it.
    anti_affinity: Vec<(PodTerm, Vec<usize>)>,
    /// Indices in `anti_affinity`, by a label of the pods that are excluded.
    anti_affinity_by_label: GroupsByLabel,
}

impl ExistingPods {
    /// All nodes except `without`, and their pods except those that are leaving or terminating.
    pub(crate) fn of(snapshot: &Snapshot, without: &BTreeSet<NodeName>, leaving: &BTreeSet<&ObjectKey>) -> Self {
        let nodes: Vec<Arc<Node>> =
            snapshot.nodes().values().filter(|n| !without.contains(&n.name)).map(Arc::clone).collect();
        let mut leaving_shapes: BTreeMap<&NodeName, Vec<&Arc<PodShape>>> = BTreeMap::new();
        let leaving = leaving.iter().filter_map(|key| snapshot.pods().get(key));
        for pod in leaving.filter(|pod| !pod.is_terminal() && pod.deleting_at.is_none()) {
            pod.node.iter().for_each(|node| leaving_shapes.entry(node).or_default().push(&pod.shape));
        }
        let mut counts: Vec<(&Arc<PodShape>, u32, u32)> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let leaving = leaving_shapes.get(&node.name).map_or(&[][..], Vec::as_slice);
            let shapes = snapshot.node_usage(&node.name).into_iter().flat_map(|usage| &usage.shapes);
            let left = |(shape, count): (_, &ShapeCount)| {
                let leaving = leaving.iter().filter(|leaving| **leaving == shape).count() as u32;
                (shape, index as u32, count.staying.saturating_sub(leaving))
            };
            counts.extend(shapes.map(left).filter(|(_, _, pods)| *pods > 0));
        }
        // Watched pods share equal shapes, so comparing addresses suffices.
        counts.sort_unstable_by_key(|(shape, node, _)| (Arc::as_ptr(shape), *node));
        let mut pods: Vec<(Arc<PodShape>, PodsPerNode)> = Vec::new();
        for (shape, node, count) in counts {
            match pods.last_mut() {
                Some((last, nodes)) if Arc::ptr_eq(last, shape) => nodes.push((node, count)),
                _ => pods.push((Arc::clone(shape), vec![(node, count)])),
            }
        }
        Self { nodes, pods, ..Self::default() }.indexed()
    }

    fn indexed(mut self) -> Self {
        let mut terms: BTreeMap<&PodTerm, Vec<usize>> = BTreeMap::new();
        for (index, (shape, _)) in self.pods.iter().enumerate() {
            for (key, value) in &shape.labels {
                self.by_label.entry((Arc::clone(key), Arc::clone(value))).or_default().push(index);
            }
            for term in shape.affinity.iter().flat_map(|affinity| &affinity.apart) {
                let pods = terms.entry(term).or_default();
                // One may list a term twice.
                if pods.last() != Some(&index) {
                    pods.push(index);
                }
            }
        }
        self.anti_affinity = terms.into_iter().map(|(term, pods)| (term.clone(), pods)).collect();
        for (id, (term, _)) in self.anti_affinity.iter().enumerate() {
            self.anti_affinity_by_label.add(&term.selector, id as u32);
        }
        self
    }

    /// Required anti-affinity that may exclude pods of a shape.
    pub(crate) fn anti_affinity_about(&self, shape: &PodShape) -> impl Iterator<Item = &PodTerm> {
        let ids = self.anti_affinity_by_label.matching(&shape.labels);
        ids.into_iter().filter_map(|id| self.anti_affinity.get(id as usize)).map(|(term, _)| term)
    }

    /// Pods among which are all that a group counts: those with a label that they must have, or with the anti-affinity.
    pub(crate) fn candidates(&self, counted: &CountedPods) -> impl Iterator<Item = &(Arc<PodShape>, PodsPerNode)> {
        let indexed = match counted {
            CountedPods::InverseAntiAffinity(term) => {
                let found = self.anti_affinity.binary_search_by(|(known, _)| known.cmp(term));
                Some(found.map_or(&[][..], |at| self.anti_affinity[at].1.as_slice()))
            }
            _ => {
                counted.selector().single_label().map(|label| self.by_label.get(&label).map_or(&[][..], Vec::as_slice))
            }
        };
        let all = if indexed.is_some() { &[][..] } else { self.pods.as_slice() };
        indexed.into_iter().flatten().map(|index| &self.pods[*index]).chain(all)
    }

    /// True when some pod on a node has required anti-affinity.
    pub(crate) fn has_anti_affinity(snapshot: &Snapshot) -> bool {
        let apart = |shape: &Arc<PodShape>| shape.affinity.as_ref().is_some_and(|affinity| !affinity.apart.is_empty());
        snapshot.bound_shapes().any(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Dice, cluster, node, pool, running, shape, start};
    use crate::model::cluster::pod::{Pod, PodPhase};

    /// How many pods of each app run on each node that is left, by a walk over all pods.
    fn walked(
        snapshot: &Snapshot,
        without: &BTreeSet<NodeName>,
        leaving: &BTreeSet<&ObjectKey>,
    ) -> BTreeMap<(NodeName, Arc<str>), u32> {
        let runs = |pod: &&Arc<Pod>| !pod.is_terminal() && pod.deleting_at.is_none() && !leaving.contains(&pod.key);
        let mut counts = BTreeMap::new();
        for pod in snapshot.pods().values().filter(runs) {
            let Some(node) = pod.node.clone().filter(|node| !without.contains(node)) else { continue };
            if snapshot.nodes().get(&node).is_some() {
                *counts.entry((node, Arc::clone(&pod.shape.labels["app"]))).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn pods_are_counted_as_by_a_walk_over_all_of_them() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let mut snapshot = cluster([pool("general")]);
            let nodes: Vec<_> = (0..4).map(|n| node(&format!("n{n}"), 1, 8)).collect();
            // The Node of some pods is not known.
            nodes.iter().skip(1).for_each(|node| snapshot.put_node(node.clone()));
            let shapes = ["a", "b"].map(|app| Arc::new(shape(app, 100, 1)));
            for n in 0..dice.roll(30) {
                let mut pod = running(&format!("p{n}"), &shapes[dice.roll(2)], &nodes[dice.roll(4)]);
                pod.deleting_at = dice.one_in(4).then(start);
                pod.phase = if dice.one_in(5) { PodPhase::Failed } else { pod.phase };
                snapshot.put_pod(pod);
            }
            let without: BTreeSet<NodeName> = dice.one_in(2).then(|| nodes[3].name.clone()).into_iter().collect();
            let leaving = snapshot.pods().values().filter(|_| dice.one_in(3)).map(|pod| &pod.key).collect();
            let found = ExistingPods::of(&snapshot, &without, &leaving);
            let mut counts = BTreeMap::new();
            for (shape, nodes) in &found.pods {
                for (node, pods) in nodes {
                    let name = found.nodes[*node as usize].name.clone();
                    *counts.entry((name, Arc::clone(&shape.labels["app"]))).or_default() += pods;
                }
            }
            assert_eq!(counts, walked(&snapshot, &without, &leaving), "seed {seed}");
        }
    }
}
