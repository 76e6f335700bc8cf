//! Simulates where the pods of nodes go if these are disrupted together.

use super::super::candidate::Candidate;
use super::reserved::ReservedRoom;
use super::scatter::finds_room;
use crate::model::cluster::pod::Pod;
use crate::model::names::{NodeName, ObjectKey};
use crate::provisioning::ProvisionMemory;
use crate::provisioning::capacity_buffers::BufferCapacity;
use crate::scheduling::{
    AvailableOfferings, Input, MAX_NEW_NODES, PodPlacement, SchedulingResult, Target, schedule_around,
};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Most simulations in the search for one set.
const MAX_SET_SIMULATIONS: usize = 40;
/// With how many nodes the search for a set begins.
const FIRST_SET: usize = 8;

/// A pod that keeps its node, as it can be scheduled nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodWithoutRoom {
    /// The pod.
    pub pod: ObjectKey,
    /// Why, for people.
    pub why: Arc<str>,
}

impl fmt::Display for PodWithoutRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} can be scheduled nowhere else: {}", self.pod, self.why)
    }
}

/// The cluster as it is before anything is disrupted.
#[derive(Clone)]
pub(super) struct Simulation<'a> {
    snapshot: &'a Snapshot,
    provision: &'a ProvisionMemory,
    available: &'a AvailableOfferings,
    buffer_capacity: &'a BufferCapacity,
    /// The room of pods of nodes that are being replaced.
    reserved: &'a ReservedRoom,
    /// Nodes that are deleted or replaced anyway.
    leaving: BTreeSet<NodeName>,
    /// Pods that wait, and those of nodes that are being deleted.
    waiting: Vec<Arc<Pod>>,
    /// How many of those cannot be scheduled.
    unschedulable: usize,
    /// Pods of nodes that are disrupted beside those that are asked about.
    beside: Vec<Arc<Pod>>,
}

/// What a pod needs that has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// A node that is not launched yet.
    NewNode,
    /// No node would do.
    Nothing,
}

/// What a simulation is made of.
#[derive(Clone, Copy)]
pub(in crate::disruption) struct SimulationInput<'a> {
    pub(in crate::disruption) snapshot: &'a Snapshot,
    pub(in crate::disruption) provision: &'a ProvisionMemory,
    pub(in crate::disruption) reserved: &'a ReservedRoom,
    pub(in crate::disruption) available: &'a AvailableOfferings,
    pub(in crate::disruption) buffer_capacity: &'a BufferCapacity,
    pub(in crate::disruption) now: Timestamp,
}

impl<'a> Simulation<'a> {
    /// The cluster without these nodes and those that are being replaced, with the pods that wait.
    pub(super) fn around(input: SimulationInput<'a>, mut leaving: BTreeSet<NodeName>) -> Self {
        let SimulationInput { snapshot, provision, reserved, available, buffer_capacity, now } = input;
        let waiting = provision.placeable_pods(snapshot, now);
        leaving.extend(reserved.replaced.iter().cloned());
        let (unschedulable, beside) = Default::default();
        Self { snapshot, provision, available, buffer_capacity, reserved, leaving, waiting, unschedulable, beside }
    }

    /// The cluster without these nodes and those of deleted NodePools, to which no pods are moved; `None` while pods wait for a
    /// node that is not launched yet: what is disrupted then might be what they get.
    pub(super) fn new(input: SimulationInput<'a>, leaving: BTreeSet<NodeName>) -> Option<Self> {
        let snapshot = input.snapshot;
        let mut base = Self::around(input, leaving);
        let with_deleted_pools = base.clone();
        base.leaving.extend(snapshot.nodes_of_deleted_pools().map(|node| node.name.clone()));
        if base.waiting.is_empty() {
            return Some(base);
        }
        let mut without_room = base.without_room();
        if !without_room.is_empty() && base.leaving != with_deleted_pools.leaving {
            // As in provisioning these may take nodes of deleted NodePools. The others keep their room elsewhere, which
            // kube-scheduler prefers.
            let nowhere = with_deleted_pools.without_room();
            let has_room = |pod: &ObjectKey| without_room.contains_key(pod) && !nowhere.contains_key(pod);
            base.waiting.retain(|pod| !has_room(&pod.key));
            if nowhere.values().any(|wants| *wants == Wants::NewNode) {
                return None;
            }
            without_room.retain(|pod, _| nowhere.contains_key(pod));
        } else if without_room.values().any(|wants| *wants == Wants::NewNode) {
            return None;
        }
        base.unschedulable = without_room.len();
        Some(base)
    }

    /// The pods that wait and have no room on nodes that are there or launched. What CapacityBuffers lack is not among them.
    fn without_room(&self) -> BTreeMap<ObjectKey, Wants> {
        let outcome = self.schedule(&BTreeSet::new(), &[], MAX_NEW_NODES);
        let waiting: BTreeSet<&ObjectKey> = self.waiting.iter().map(|pod| &pod.key).collect();
        let is_new = |placement: &&PodPlacement| matches!(placement.target, Target::New(_));
        let on_new = outcome.placements.iter().filter(is_new).map(|placement| (&placement.pod, Wants::NewNode));
        let on_none = unplaced(&outcome).map(|pod| (&pod.key, Wants::Nothing));
        let all = on_new.chain(on_none).filter(|(pod, _)| waiting.contains(pod));
        all.map(|(pod, wants)| (pod.clone(), wants)).collect()
    }

    /// The cluster in which these candidates are deleted too. Their pods go to nodes that are ready.
    pub(super) fn beside(&self, deleted: &[&Candidate<'_>]) -> Self {
        let mut one = self.clone();
        one.leaving.extend(deleted.iter().map(|candidate| candidate.node.name.clone()));
        one.beside.extend(deleted.iter().flat_map(|candidate| candidate.pods.iter().cloned()));
        one
    }

    /// The same without the nodes of these candidates, of whose pods is decided elsewhere.
    pub(super) fn excluding(&self, others: &[&Candidate<'_>]) -> Self {
        let mut one = self.clone();
        one.leaving.extend(others.iter().map(|candidate| candidate.node.name.clone()));
        one
    }

    /// Where the pods of these candidates go, with at most so many new nodes; `None` if one of them, or one of those that
    /// wait, cannot be scheduled then, or if it would have to go to a node that is not ready for pods.
    pub(super) fn without(&self, sources: &[&Candidate<'_>], max_new_nodes: usize) -> Option<SchedulingResult> {
        let nodes: BTreeSet<NodeName> = sources.iter().map(|candidate| candidate.node.name.clone()).collect();
        let of_sources = sources.iter().flat_map(|candidate| &candidate.pods);
        let pods: Vec<Arc<Pod>> = self.beside.iter().chain(of_sources).cloned().collect();
        let moving: BTreeSet<&ObjectKey> = pods.iter().map(|pod| &pod.key).collect();
        let kept = self.waiting.iter().chain(&self.reserved.pods).chain(&self.beside);
        let kept: BTreeSet<&ObjectKey> = kept.map(|pod| &pod.key).collect();
        let outcome = self.schedule(&nodes, &pods, max_new_nodes);
        // Pods of disrupted nodes go to nodes that are ready, and none but those of these candidates to new ones.
        let is_allowed = |placement: &PodPlacement| match placement.target {
            Target::Node(_) => true,
            Target::Claim(_) => !moving.contains(&placement.pod),
            Target::New(_) => !kept.contains(&placement.pod),
        };
        let is_allowed = outcome.placements.iter().all(is_allowed);
        (is_allowed && self.is_preserved(&outcome, &moving)).then_some(outcome)
    }

    /// The first pod of a candidate that can be scheduled nowhere else.
    pub(super) fn pod_without_room(&self, source: &Candidate<'_>) -> Option<PodWithoutRoom> {
        let outcome = self.schedule(&BTreeSet::from([source.node.name.clone()]), &source.pods, MAX_NEW_NODES);
        let keys: BTreeSet<&ObjectKey> = source.pods.iter().map(|pod| &pod.key).collect();
        outcome.unschedulable.iter().find_map(|group| {
            let pod = group.pods.iter().find(|pod| keys.contains(&pod.key))?;
            Some(PodWithoutRoom { pod: pod.key.clone(), why: Arc::from(group.reason()) })
        })
    }

    /// These groups of nodes, and as many others as can be disrupted together with them, in order. Where no new nodes are
    /// allowed, their pods find room on others however they are placed.
    pub(super) fn largest_set<'c, 'b>(
        &self,
        mut accepted: Vec<Vec<&'c Candidate<'b>>>,
        groups: &[Vec<&'c Candidate<'b>>],
        max_new_nodes: usize,
    ) -> Vec<Vec<&'c Candidate<'b>>> {
        let (mut next, mut size, mut simulations) = (0, FIRST_SET, 0);
        while next < groups.len() && simulations < MAX_SET_SIMULATIONS {
            let end = groups.len().min(next + size);
            let tried = &groups[next..end];
            let sources: Vec<&Candidate<'_>> = accepted.iter().chain(tried).flatten().copied().collect();
            simulations += 1;
            let finds_room = || max_new_nodes > 0 || finds_room(self.snapshot, self.reserved, &self.leaving, &sources);
            if self.without(&sources, max_new_nodes).is_some() && finds_room() {
                accepted.extend(tried.iter().cloned());
                (next, size) = (end, size * 2);
            } else if tried.len() > 1 {
                size = tried.len() / 2;
            } else {
                next = end;
            }
        }
        accepted
    }

    fn schedule(&self, without: &BTreeSet<NodeName>, pods: &[Arc<Pod>], max_new_nodes: usize) -> SchedulingResult {
        self.schedule_around(&self.reserved.targets, without, pods, max_new_nodes)
    }

    /// Places the pods that wait, those of nodes that are being replaced, and these; some where they are known to go.
    pub(super) fn schedule_around(
        &self,
        known: &BTreeMap<ObjectKey, Target>,
        without: &BTreeSet<NodeName>,
        pods: &[Arc<Pod>],
        max_new_nodes: usize,
    ) -> SchedulingResult {
        let excluded_nodes: BTreeSet<NodeName> = self.leaving.union(without).cloned().collect();
        let input = Input {
            snapshot: self.snapshot,
            available: self.available,
            excluded_nodes: &excluded_nodes,
            max_new_nodes,
            claim_of_pod: self.provision.claim_of_pod(),
        };
        let (waiting, chunks) = (&self.waiting, &self.buffer_capacity.chunks);
        let all: Vec<Arc<Pod>> = waiting.iter().chain(&self.reserved.pods).chain(pods).chain(chunks).cloned().collect();
        schedule_around(input, known, &all)
    }

    fn is_preserved(&self, outcome: &SchedulingResult, moving: &BTreeSet<&ObjectKey>) -> bool {
        let (chunks, pods): (Vec<_>, Vec<_>) = unplaced(outcome).partition(|pod| pod.is_chunk());
        pods.len() <= self.unschedulable
            && !pods.iter().any(|pod| moving.contains(&pod.key))
            && self.buffer_capacity.allows_unplaced(chunks.len())
    }
}

fn unplaced(outcome: &SchedulingResult) -> impl Iterator<Item = &Arc<Pod>> {
    outcome.unschedulable.iter().flat_map(|group| &group.pods)
}
