//! The room that pods of nodes that are being replaced will take.
//!
//! While replacements start, nothing on the objects says where those pods will go. What else is disrupted meanwhile must leave
//! them the room that their move counts on: on the replacements, and on other nodes.

use super::MoveMemory;
use super::simulation::{Simulation, SimulationInput};
use crate::model::cluster::pod::Pod;
use crate::model::names::{NodeName, ObjectKey};
use crate::scheduling::Target;
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods of nodes that are being replaced, and where they will go.
#[derive(Debug, Clone, Default)]
pub(in crate::disruption) struct ReservedRoom {
    /// Those that have room. What replaces the nodes of others is too small by now.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Where each of them goes.
    pub(super) targets: BTreeMap<ObjectKey, Target>,
    /// The nodes that some of them go to.
    nodes: BTreeSet<NodeName>,
    /// The nodes that are being replaced: no pods are moved there.
    pub(super) replaced: BTreeSet<NodeName>,
}

impl ReservedRoom {
    /// What the moves take that have ordered their replacements. Pods that wait, and chunks of CapacityBuffers, keep the room that
    /// they have.
    pub(in crate::disruption) fn of<'a>(memory: &MoveMemory, input: impl FnOnce() -> SimulationInput<'a>) -> Self {
        if memory.moves.values().all(|one| !one.drafts.is_empty()) {
            return Self::default();
        }
        let input = input();
        let snapshot = input.snapshot;
        let (replaced, moving) = replaced_nodes(memory, snapshot);
        let simulation = Simulation::around(input, replaced.clone());
        let mut known = targets(&simulation, &BTreeMap::new(), &[]);
        known.extend(planned(memory, snapshot));
        let mut targets = targets(&simulation, &known, &moving);
        let pods: Vec<Arc<Pod>> = moving.into_iter().filter(|pod| targets.contains_key(&pod.key)).collect();
        let keys: BTreeSet<&ObjectKey> = pods.iter().map(|pod| &pod.key).collect();
        targets.retain(|pod, _| keys.contains(pod));
        let node = |target: &Target| match target {
            Target::Node(node) => Some(node.clone()),
            Target::Claim(_) | Target::New(_) => None,
        };
        let nodes = targets.values().filter_map(node).collect();
        Self { pods, targets, nodes, replaced }
    }

    /// Some of these pods will go to this node.
    pub(in crate::disruption) fn is_on(&self, node: &NodeName) -> bool {
        self.nodes.contains(node)
    }

    /// The pods that will go to nodes that are there.
    pub(super) fn on_nodes(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(|pod| matches!(self.targets.get(&pod.key), Some(Target::Node(_))))
    }
}

/// The nodes that are being replaced, and their pods that will move.
fn replaced_nodes(memory: &MoveMemory, snapshot: &Snapshot) -> (BTreeSet<NodeName>, Vec<Arc<Pod>>) {
    let ordered = memory.moves.values().filter(|one| one.drafts.is_empty());
    let nodes = ordered.flat_map(|one| one.sources_left(snapshot)).filter_map(|claim| snapshot.node_of(claim));
    let nodes: BTreeSet<NodeName> = nodes.map(|node| node.name.clone()).collect();
    let pods = nodes.iter().flat_map(|node| snapshot.pods_on(node));
    let moving = pods.filter(|pod| pod.needs_another_node()).cloned().collect();
    (nodes, moving)
}

/// The replacements for which the moves have planned pods. After a restart that is not known.
fn planned(memory: &MoveMemory, snapshot: &Snapshot) -> BTreeMap<ObjectKey, Target> {
    let planned = memory.moves.values().flat_map(|one| &one.planned);
    let target = |claim| {
        let claim = snapshot.claims().get(claim)?;
        let node = snapshot.node_of(claim).filter(|_| !claim.is_in_flight());
        Some(node.map_or_else(|| Target::Claim(claim.name.clone()), |node| Target::Node(node.name.clone())))
    };
    planned.filter_map(|(pod, claim)| Some((pod.clone(), target(claim)?))).collect()
}

/// Where pods that wait, and these, go on nodes that are there or ordered.
fn targets(
    simulation: &Simulation<'_>,
    known: &BTreeMap<ObjectKey, Target>,
    pods: &[Arc<Pod>],
) -> BTreeMap<ObjectKey, Target> {
    let outcome = simulation.schedule_around(known, &BTreeSet::new(), pods, 0);
    outcome.placements.into_iter().map(|placement| (placement.pod, placement.target)).collect()
}
