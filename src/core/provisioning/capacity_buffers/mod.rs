//! Placement of CapacityBuffer chunks.

use crate::model::cluster::pod::Pod;
use crate::model::names::{NodeName, ObjectKey};
use crate::provisioning::ProvisionMemory;
use crate::scheduling::{AvailableOfferings, Input, SchedulingResult, Target, schedule};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Placement of the chunks of a CapacityBuffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BufferPlacement {
    /// Chunks on existing nodes.
    pub on_existing_nodes: usize,
    /// Chunks on NodeClaims in flight and new nodes.
    pub on_new_nodes: usize,
    /// Chunks without capacity.
    pub unplaced: usize,
    /// Why those have none.
    pub reason: Option<String>,
}

/// All chunks, as pending pods.
pub(crate) fn buffer_chunks(snapshot: &Snapshot) -> Vec<Arc<Pod>> {
    snapshot.buffers().values().flat_map(|buffer| &buffer.pods).cloned().collect()
}

/// Placements of the chunks of each CapacityBuffer.
pub(crate) fn buffer_placements(
    snapshot: &Snapshot,
    outcome: &SchedulingResult,
) -> BTreeMap<ObjectKey, BufferPlacement> {
    let mut placements = BTreeMap::new();
    let mut of_chunk: BTreeMap<&ObjectKey, &ObjectKey> = BTreeMap::new();
    for buffer in snapshot.buffers().values() {
        placements.insert(buffer.key.clone(), BufferPlacement::default());
        of_chunk.extend(buffer.pods.iter().map(|pod| (&pod.key, &buffer.key)));
    }
    let mut update = |pod: &ObjectKey, change: &dyn Fn(&mut BufferPlacement)| {
        of_chunk.get(pod).and_then(|buffer| placements.get_mut(*buffer)).into_iter().for_each(change);
    };
    for placement in &outcome.placements {
        match &placement.target {
            Target::Node(_) => update(&placement.pod, &|buffer_placement| buffer_placement.on_existing_nodes += 1),
            Target::Claim(_) | Target::New(_) => {
                update(&placement.pod, &|buffer_placement| buffer_placement.on_new_nodes += 1)
            }
        }
    }
    for group in &outcome.unschedulable {
        for pod in group.pods.iter().filter(|pod| pod.is_chunk()) {
            update(&pod.key, &|buffer_placement| {
                buffer_placement.unplaced += 1;
                buffer_placement.reason.get_or_insert_with(|| group.reason());
            });
        }
    }
    placements
}

/// The capacity that chunks use on existing nodes.
#[derive(Debug, Default)]
pub(crate) struct BufferCapacity {
    pub(crate) chunks: Vec<Arc<Pod>>,
    /// Nodes of chunks, and of pending pods that would otherwise take their capacity.
    pub(crate) nodes: BTreeSet<NodeName>,
    /// How many chunks have none.
    unplaced: usize,
}

impl BufferCapacity {
    /// Pending pods come before chunks, as in provisioning. Nodes of deleted NodePools have no capacity for chunks. `available_offerings` is only called if there are chunks.
    pub(crate) fn of<'m>(
        snapshot: &Snapshot,
        provision: &ProvisionMemory,
        now: Timestamp,
        available_offerings: impl FnOnce() -> &'m AvailableOfferings,
    ) -> Self {
        let chunks = buffer_chunks(snapshot);
        if chunks.is_empty() {
            return Self::default();
        }
        // In no simulation of a disruption is there room on them.
        let excluded_nodes = snapshot.nodes_of_deleted_pools().map(|node| node.name.clone()).collect();
        let input = Input {
            snapshot,
            available: available_offerings(),
            excluded_nodes: &excluded_nodes,
            max_new_nodes: 0,
            claim_of_pod: provision.claim_of_pod(),
        };
        let pods: Vec<Arc<Pod>> =
            provision.placeable_pods(snapshot, now).into_iter().chain(chunks.iter().cloned()).collect();
        let outcome = schedule(input, &pods);
        let nodes = outcome.placements.iter().filter_map(|placement| match &placement.target {
            Target::Node(node) => Some(node.clone()),
            Target::Claim(_) | Target::New(_) => None,
        });
        let nodes = nodes.collect();
        let unplaced = outcome.unschedulable.iter().flat_map(|group| &group.pods).filter(|pod| pod.is_chunk()).count();
        Self { nodes, unplaced, chunks }
    }

    /// True when no more chunks than now have no capacity.
    pub(crate) fn allows_unplaced(&self, chunks: usize) -> bool {
        chunks <= self.unplaced
    }
}

#[cfg(test)]
mod tests;
