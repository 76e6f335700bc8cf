//! Placement of CapacityBuffer chunks.

use crate::model::cluster::pod::Pod;
use crate::model::names::{ClaimName, NodeName, ObjectKey};
use crate::provisioning::pods_to_schedule;
use crate::scheduling::{AvailableOfferings, Input, SchedulingResult, Target, schedule};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where the chunks of a CapacityBuffer have their capacity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BufferPlacement {
    /// How many have it on nodes that exist.
    pub on_existing_nodes: usize,
    /// On nodes that are being made.
    pub on_new_nodes: usize,
    /// Nowhere.
    pub unplaced: usize,
    /// Why those have none.
    pub reason: Option<String>,
}

/// All chunks, as pods that wait.
pub(crate) fn buffer_chunks(snapshot: &Snapshot) -> Vec<Arc<Pod>> {
    snapshot.buffers().values().flat_map(|buffer| &buffer.pods).cloned().collect()
}

/// What came of the chunks of each CapacityBuffer.
pub(crate) fn buffer_placements(
    snapshot: &Snapshot,
    outcome: &SchedulingResult,
) -> BTreeMap<ObjectKey, BufferPlacement> {
    let mut cushions = BTreeMap::new();
    let mut of_chunk: BTreeMap<&ObjectKey, &ObjectKey> = BTreeMap::new();
    for buffer in snapshot.buffers().values() {
        cushions.insert(buffer.key.clone(), BufferPlacement::default());
        of_chunk.extend(buffer.pods.iter().map(|pod| (&pod.key, &buffer.key)));
    }
    let mut note = |pod: &ObjectKey, what: &dyn Fn(&mut BufferPlacement)| {
        of_chunk.get(pod).and_then(|buffer| cushions.get_mut(*buffer)).into_iter().for_each(what);
    };
    for placement in &outcome.placements {
        match &placement.target {
            Target::Node(_) => note(&placement.pod, &|buffer_placement| buffer_placement.on_existing_nodes += 1),
            Target::Claim(_) | Target::New(_) => {
                note(&placement.pod, &|buffer_placement| buffer_placement.on_new_nodes += 1)
            }
        }
    }
    for group in &outcome.unschedulable {
        for pod in group.pods.iter().filter(|pod| pod.is_chunk()) {
            note(&pod.key, &|buffer_placement| {
                buffer_placement.unplaced += 1;
                buffer_placement.reason.get_or_insert_with(|| group.reason());
            });
        }
    }
    cushions
}

/// The capacity that chunks have on nodes that exist.
#[derive(Debug, Default)]
pub(crate) struct BufferRoom {
    pub(crate) chunks: Vec<Arc<Pod>>,
    /// Nodes that some of them are on, in thought, or what waits and would else have their capacity.
    pub(crate) nodes: BTreeSet<NodeName>,
    /// How many have no capacity there.
    unplaced: usize,
}

impl BufferRoom {
    /// Whatever waits for capacity comes before them, as it does where nodes are made. `available_offerings` is only
    /// asked for where there are chunks.
    pub(crate) fn of<'m>(
        snapshot: &Snapshot,
        promised: &BTreeMap<ObjectKey, ClaimName>,
        available_offerings: impl FnOnce() -> &'m AvailableOfferings,
    ) -> Self {
        let chunks = buffer_chunks(snapshot);
        if chunks.is_empty() {
            return Self::default();
        }
        let without = BTreeSet::new();
        let input = Input {
            snapshot,
            available: available_offerings(),
            excluded_nodes: &without,
            max_new_nodes: 0,
            claim_of_pod: promised,
        };
        let pods: Vec<Arc<Pod>> = pods_to_schedule(snapshot).into_iter().chain(chunks.iter().cloned()).collect();
        let outcome = schedule(input, &pods);
        let hosts = outcome.placements.iter().filter_map(|placement| match &placement.target {
            Target::Node(node) => Some(node.clone()),
            Target::Claim(_) | Target::New(_) => None,
        });
        let hosts = hosts.collect();
        let short = outcome.unschedulable.iter().flat_map(|group| &group.pods).filter(|pod| pod.is_chunk()).count();
        Self { nodes: hosts, unplaced: short, chunks }
    }

    /// True when what a simulation left without a place is no pod, and no chunk that has capacity now.
    pub(crate) fn is_preserved(&self, outcome: &SchedulingResult) -> bool {
        let mut unplaced = outcome.unschedulable.iter().flat_map(|group| &group.pods);
        unplaced.all(|pod| pod.is_chunk()) && outcome.unschedulable_pods() <= self.unplaced
    }
}

#[cfg(test)]
mod tests;
