//! Selects the pods of a scheduling pass, so that no pass takes long, whatever pods exist.
//!
//! Equal pods are next to no work, so only clusters with thousands of different waiting pods need more than one pass.
//! Then pods that have not been considered yet come first, by priority; of one priority, namespaces take turns. Equal
//! pods are in the same pass.

use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{Namespace, ObjectKey, ObjectName, Uid};
use crate::scheduling::PodWeights;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most weight of the pods of a pass, and of the constraints of those that are planned for NodeClaims in flight.
/// Such passes take up to a second with 5,000 different pods without constraints, and up to two with fewer pods that have
/// constraints on all others, measured on one core.
const MAX_WEIGHT: u64 = 10_000;

/// The pods of a pass.
#[derive(Debug)]
pub(crate) struct PassSelection {
    pub(crate) pods: Vec<Arc<Pod>>,
    /// The waiting pods that are not among them.
    pub(crate) deferred: BTreeSet<Uid>,
}

/// Selects from waiting pods, and chunks of CapacityBuffers, which are always selected. `considered` are pods of earlier
/// passes. Those that a NodeClaim in flight was created for, for which `is_planned` is true, keep its capacity.
pub(crate) fn select_pods(
    pods: &[Arc<Pod>],
    considered: &BTreeSet<Uid>,
    is_planned: impl Fn(&ObjectKey) -> bool,
) -> PassSelection {
    let weights = PodWeights::of(pods.iter(), |pod| is_planned(&pod.key));
    let competing = pods.iter().filter(|pod| !pod.is_chunk() && !is_planned(&pod.key));
    let deferred = deferred_pods(equal_pods(competing, considered, &weights));
    let mut pods: Vec<Arc<Pod>> = pods.iter().filter(|pod| !deferred.contains(&pod.uid)).cloned().collect();
    drop_excess_constraints(pods.iter_mut().filter(|pod| is_planned(&pod.key)), &weights);
    PassSelection { pods, deferred }
}

/// Equal pods.
struct EqualPods<'a> {
    shape: &'a PodShape,
    /// Age and key of the oldest.
    oldest: (Timestamp, &'a ObjectKey),
    /// All of them have been considered.
    is_considered: bool,
    uids: Vec<&'a Uid>,
    weight: u64,
}

/// Pods are equal that have the same shape and volumes. Watched pods share equal shapes.
type PodIdentity<'a> = (*const PodShape, &'a [ObjectName]);

/// The pods that are too many for this pass.
fn deferred_pods(groups: Vec<EqualPods<'_>>) -> BTreeSet<Uid> {
    if groups.iter().map(|group| group.weight).sum::<u64>() <= MAX_WEIGHT {
        return BTreeSet::new();
    }
    let mut sum = 0;
    let mut deferred = BTreeSet::new();
    for group in in_turn(groups) {
        // What is above the limit on its own has a pass of its own.
        if sum > 0 && sum + group.weight > MAX_WEIGHT {
            sum = MAX_WEIGHT;
            deferred.extend(group.uids.into_iter().cloned());
        } else {
            sum += group.weight;
        }
    }
    deferred
}

fn equal_pods<'a>(
    pods: impl Iterator<Item = &'a Arc<Pod>>,
    considered: &BTreeSet<Uid>,
    weights: &PodWeights,
) -> Vec<EqualPods<'a>> {
    let mut groups: BTreeMap<PodIdentity<'a>, EqualPods<'a>> = BTreeMap::new();
    for pod in pods {
        let age = (pod.created_at, &pod.key);
        let group = groups.entry((Arc::as_ptr(&pod.shape), &pod.volumes)).or_insert_with(|| EqualPods {
            shape: &pod.shape,
            oldest: age,
            is_considered: true,
            uids: Vec::new(),
            weight: weights.weight(&pod.shape),
        });
        group.oldest = group.oldest.min(age);
        group.is_considered &= considered.contains(&pod.uid);
        group.uids.push(&pod.uid);
    }
    groups.into_values().collect()
}

/// Sorts groups: those with new pods first, then by priority, and then so that each namespace has the same weight.
fn in_turn(mut groups: Vec<EqualPods<'_>>) -> Vec<EqualPods<'_>> {
    let tier = |group: &EqualPods<'_>| (group.is_considered, Reverse(group.shape.priority));
    groups.sort_by_key(|group| (tier(group), group.oldest));
    // The weight of the namespace's groups before each one, in its tier.
    let mut before: BTreeMap<(bool, Reverse<i32>, &Namespace), u64> = BTreeMap::new();
    let mut turns: Vec<(u64, EqualPods<'_>)> = Vec::with_capacity(groups.len());
    for group in groups {
        let (is_considered, priority) = tier(&group);
        let turn = before.entry((is_considered, priority, &group.shape.namespace)).or_default();
        turns.push((*turn, group));
        *turn += turns.last().map_or(0, |(_, group)| group.weight);
    }
    turns.sort_by_key(|(turn, group)| (tier(group), *turn, group.oldest));
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
            let is_excess = weight > 0 && sum > 0 && sum + weight > MAX_WEIGHT;
            sum += weight;
            is_excess.then(|| Arc::new(without_constraints(&pod.shape)))
        });
        if let Some(shape) = shape {
            *pod = Arc::new(Pod { shape: Arc::clone(shape), ..Pod::clone(pod) });
        }
    }
}

/// The same requests on a node with the same labels.
fn without_constraints(shape: &PodShape) -> PodShape {
    PodShape { spread: Vec::new(), affinity: None, preferences: None, ports: Vec::new(), ..shape.clone() }
}

#[cfg(test)]
mod tests;
