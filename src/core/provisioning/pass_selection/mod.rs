//! Selects the pods of a scheduling pass, so that thousands of different waiting pods do not make it take minutes.
//!
//! Equal pods are next to no work, so few clusters ever need more than one pass. Beyond the limit, namespaces take turns
//! by weight; within a namespace, pods that no pass has considered come first, then those of the longest ago, then those
//! of higher priority, then older ones. Equal pods are in the same pass.

use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{Namespace, ObjectKey, ObjectName, Uid};
use crate::scheduling::{PodWeights, RunningPods};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most weight of the waiting pods of a pass, and of the constraints of those that are planned for NodeClaims in flight.
/// Such passes take up to a second with 5,000 different pods without constraints, and up to two with fewer pods that have
/// constraints on all others, measured on a machine of two cores.
const MAX_WEIGHT: u64 = 10_000;

/// Whose turn it is while pods are left out of passes; empty while none are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Turns {
    passes: u64,
    /// The last pass of each waiting pod.
    last: BTreeMap<Uid, u64>,
    /// The weight that each namespace has had.
    used: BTreeMap<Namespace, u64>,
}

/// The pods of a pass.
#[derive(Debug)]
pub(super) struct PassSelection {
    pub(super) pods: Vec<Arc<Pod>>,
    /// The waiting pods that are not among them.
    pub(super) deferred: BTreeSet<Uid>,
    /// The weight that each namespace has had, this pass included.
    used: BTreeMap<Namespace, u64>,
}

/// Selects from waiting pods, and chunks of CapacityBuffers, which are always selected. Those that a NodeClaim in flight
/// was created for, for which `is_planned` is true, keep its capacity.
pub(super) fn select_pods(
    pods: &[Arc<Pod>],
    running: RunningPods,
    turns: &Turns,
    is_planned: impl Fn(&Pod) -> bool,
) -> PassSelection {
    let weights = PodWeights::of(pods.iter(), &is_planned).beside(running);
    let competing = pods.iter().filter(|pod| !pod.is_chunk() && !is_planned(pod));
    let (deferred, used) = deferred_pods(equal_pods(competing, turns, &weights), turns);
    let mut pods: Vec<Arc<Pod>> = pods.iter().filter(|pod| !deferred.contains(&pod.uid)).cloned().collect();
    drop_excess_constraints(pods.iter_mut().filter(|pod| is_planned(pod)), &weights);
    PassSelection { pods, deferred, used }
}

/// The pods on nodes. Watched pods share equal shapes.
pub(super) fn running_pods(snapshot: &Snapshot) -> RunningPods {
    let on_nodes = snapshot.pods().values().filter(|pod| pod.node.is_some() && !pod.is_terminal());
    let mut shapes: Vec<&Arc<PodShape>> = on_nodes.map(|pod| &pod.shape).collect();
    shapes.sort_unstable_by_key(|shape| Arc::as_ptr(shape));
    shapes.dedup_by_key(|shape| Arc::as_ptr(shape));
    let terms = shapes.iter().filter_map(|shape| shape.affinity.as_ref()).flat_map(|affinity| &affinity.apart);
    let open_terms = terms.filter(|term| term.selector.single_label().is_none()).count() as u64;
    RunningPods { shapes: shapes.len() as u64, open_terms }
}

impl Turns {
    /// Records a pass.
    pub(super) fn record(&mut self, selection: &PassSelection) {
        if selection.deferred.is_empty() {
            *self = Self::default();
            return;
        }
        self.passes += 1;
        self.last.retain(|uid, _| selection.deferred.contains(uid));
        self.last.extend(selection.pods.iter().map(|pod| (pod.uid.clone(), self.passes)));
        self.used.clone_from(&selection.used);
    }
}

/// Equal pods.
struct EqualPods<'a> {
    shape: &'a PodShape,
    /// The last pass that any of them was in.
    last: Option<u64>,
    /// Age and key of the oldest.
    oldest: (Timestamp, &'a ObjectKey),
    uids: Vec<&'a Uid>,
    weight: u64,
}

/// Pods are equal that have the same shape and volumes. Watched pods share equal shapes.
type PodIdentity<'a> = (*const PodShape, &'a [ObjectName]);

/// The pods that are too many for this pass, and the weight that each namespace has had after it.
fn deferred_pods(groups: Vec<EqualPods<'_>>, turns: &Turns) -> (BTreeSet<Uid>, BTreeMap<Namespace, u64>) {
    if groups.iter().map(|group| group.weight).sum::<u64>() <= MAX_WEIGHT {
        return Default::default();
    }
    let mut used = starts(&groups, turns);
    let (mut sum, mut deferred) = (0, BTreeSet::new());
    for group in in_turn(groups, &used) {
        // What is above the limit on its own has a pass of its own.
        if sum > 0 && sum + group.weight > MAX_WEIGHT {
            sum = MAX_WEIGHT;
            deferred.extend(group.uids.into_iter().cloned());
        } else {
            sum += group.weight;
            *used.entry(group.shape.namespace.clone()).or_default() += group.weight;
        }
    }
    (deferred, used)
}

/// What each namespace with waiting pods has had. A new one begins like the one that has had least: it does not catch up.
fn starts(groups: &[EqualPods<'_>], turns: &Turns) -> BTreeMap<Namespace, u64> {
    let namespaces: BTreeSet<&Namespace> = groups.iter().map(|group| &group.shape.namespace).collect();
    let known = |namespace: &&Namespace| turns.used.get(*namespace).copied();
    let least = namespaces.iter().filter_map(known).min().unwrap_or_default();
    namespaces.iter().map(|namespace| ((*namespace).clone(), known(namespace).unwrap_or(least))).collect()
}

fn equal_pods<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>, turns: &Turns, weights: &PodWeights) -> Vec<EqualPods<'a>> {
    let mut groups: BTreeMap<PodIdentity<'a>, EqualPods<'a>> = BTreeMap::new();
    for pod in pods {
        let age = (pod.created_at, &pod.key);
        let group = groups.entry((Arc::as_ptr(&pod.shape), &pod.volumes)).or_insert_with(|| EqualPods {
            shape: &pod.shape,
            last: None,
            oldest: age,
            uids: Vec::new(),
            weight: weights.weight(&pod.shape),
        });
        group.last = group.last.max(turns.last.get(&pod.uid).copied());
        group.oldest = group.oldest.min(age);
        group.uids.push(&pod.uid);
    }
    groups.into_values().collect()
}

/// Sorts groups so that each namespace has the same weight, from what it has had.
fn in_turn<'a>(mut groups: Vec<EqualPods<'a>>, used: &BTreeMap<Namespace, u64>) -> Vec<EqualPods<'a>> {
    groups.sort_by_key(|group| (group.last, Reverse(group.shape.priority), group.oldest));
    let mut had = used.clone();
    let mut turns: Vec<(u64, EqualPods<'a>)> = Vec::with_capacity(groups.len());
    for group in groups {
        let had = had.entry(group.shape.namespace.clone()).or_default();
        let turn = *had;
        *had += group.weight;
        turns.push((turn, group));
    }
    // Of the same turn, what comes first in its namespace.
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, group)| group).collect()
}

/// Drops the constraints of pods that are planned for NodeClaims in flight, from the limit on: they keep their capacity,
/// and count for the constraints of others.
fn drop_excess_constraints<'a>(planned: impl Iterator<Item = &'a mut Arc<Pod>>, weights: &PodWeights) {
    let mut sum = 0;
    // By identity: the shape without constraints, for those above the limit.
    let mut shapes: BTreeMap<(*const PodShape, Vec<ObjectName>), Option<Arc<PodShape>>> = BTreeMap::new();
    for pod in planned {
        let shape = shapes.entry((Arc::as_ptr(&pod.shape), pod.volumes.clone())).or_insert_with(|| {
            let weight = weights.of_constraints(&pod.shape);
            let is_excess = sum + weight > MAX_WEIGHT;
            sum += if is_excess { 0 } else { weight };
            is_excess.then(|| Arc::new(without_constraints(&pod.shape)))
        });
        if let Some(shape) = shape {
            *pod = Arc::new(Pod { shape: Arc::clone(shape), ..Pod::clone(pod) });
        }
    }
}

/// The same requests and ports on a node with the same labels.
fn without_constraints(shape: &PodShape) -> PodShape {
    PodShape { spread: Vec::new(), affinity: None, preferences: None, ..shape.clone() }
}

#[cfg(test)]
mod tests;
