//! The scheduler's cache of nodes: free resources, ports, and pods per selector.

use super::pod_selection::PodSelection;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{HostPort, Pod, PodShape};
use napkeeper_core::model::names::NodeName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a node in the cache.
pub(crate) type NodeIndex = usize;

/// A node with what its pods leave free.
#[derive(Debug, Clone)]
pub(super) struct NodeInfo {
    pub(super) node: Arc<Node>,
    pub(super) free: Resources,
    /// Ports that its pods take.
    ports: Vec<HostPort>,
}

impl NodeInfo {
    /// It takes new pods at all.
    pub(super) fn is_open(&self) -> bool {
        self.node.is_open()
    }

    /// Its pods leave it these ports.
    pub(super) fn has_ports(&self, ports: &[HostPort]) -> bool {
        HostPort::all_free(ports, &self.ports)
    }

    /// The score of kube-scheduler for a pod by the resources of this node: LeastAllocated and BalancedAllocation, of one
    /// weight each.
    pub(super) fn resource_score(&self, requests: &Resources) -> i64 {
        let all = &self.node.allocatable;
        let cpu = Share { free: self.free.cpu_millis, requested: requests.cpu_millis, all: all.cpu_millis };
        let memory = Share { free: self.free.memory, requested: requests.memory, all: all.memory };
        i64::midpoint(cpu.left(), memory.left()) + balance_score(cpu, memory)
    }
}

/// A resource of a node.
#[derive(Debug, Clone, Copy)]
struct Share {
    free: i64,
    /// By the pod.
    requested: i64,
    all: i64,
}

impl Share {
    /// What the pod would leave free, in hundredths, rounded down as by kube-scheduler.
    fn left(self) -> i64 {
        if self.all > 0 { (self.free - self.requested).max(0) * 100 / self.all } else { 0 }
    }

    /// The part of it that is used, with so much more.
    fn used(self, more: i64) -> f64 {
        ((self.all - self.free + more) as f64 / self.all.max(1) as f64).min(1.0)
    }
}

/// The BalancedAllocation score (`noderesources/balanced_allocation.go` of Kubernetes 1.36): how much a pod brings the used
/// parts of CPU and memory together; 75 where it changes nothing.
fn balance_score(cpu: Share, memory: Share) -> i64 {
    let balance = |cpu_part: f64, memory_part: f64| ((1.0 - ((cpu_part - memory_part) / 2.0).abs()) * 100.0) as i64;
    let with_pod = balance(cpu.used(cpu.requested), memory.used(memory.requested));
    let without_pod = balance(cpu.used(0), memory.used(0));
    50 + (50 + with_pod - without_pod) / 2
}

/// Pods of a selector, counted per node.
#[derive(Debug, Clone)]
struct CountedPods {
    selection: PodSelection,
    on: Vec<u32>,
}

/// Nodes by index, with free capacity and the number of pods of each group.
#[derive(Debug, Clone, Default)]
pub(in crate::cluster) struct NodeCache {
    entries: Vec<Option<NodeInfo>>,
    slots: BTreeMap<NodeName, NodeIndex>,
    groups: Vec<CountedPods>,
}

impl NodeCache {
    pub(super) fn slot(&self, name: &NodeName) -> Option<NodeIndex> {
        self.slots.get(name).copied()
    }

    pub(super) fn entry(&self, slot: NodeIndex) -> Option<&NodeInfo> {
        self.entries.get(slot)?.as_ref()
    }

    /// All nodes with their numbers.
    pub(super) fn entries(&self) -> impl Iterator<Item = (NodeIndex, &NodeInfo)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// Adds a node, or takes note of its change.
    pub(in crate::cluster) fn put(&mut self, node: &Arc<Node>) -> NodeIndex {
        if let Some(slot) = self.slot(&node.name) {
            if let Some(Some(entry)) = self.entries.get_mut(slot) {
                entry.free.add(&node.allocatable.minus(&entry.node.allocatable));
                entry.node = Arc::clone(node);
            }
            return slot;
        }
        let entry = Some(NodeInfo { node: Arc::clone(node), free: node.allocatable.clone(), ports: Vec::new() });
        let slot = match self.entries.iter().position(Option::is_none) {
            Some(hole) => {
                self.entries[hole] = entry;
                hole
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        for group in &mut self.groups {
            group.on.resize(self.entries.len(), 0);
        }
        self.slots.insert(node.name.clone(), slot);
        slot
    }

    /// Forgets a node; its pods must have left it before.
    pub(in crate::cluster) fn take(&mut self, name: &NodeName) {
        if let Some(slot) = self.slots.remove(name) {
            self.entries[slot] = None;
        }
    }

    /// Adds requests to a node.
    pub(in crate::cluster) fn occupy(&mut self, slot: NodeIndex, requests: &Resources) {
        if let Some(Some(entry)) = self.entries.get_mut(slot) {
            entry.free.sub(requests);
        }
    }

    /// Takes requests off a node.
    pub(super) fn release(&mut self, slot: NodeIndex, requests: &Resources) {
        if let Some(Some(entry)) = self.entries.get_mut(slot) {
            entry.free.add(requests);
        }
    }

    /// Reserves ports of a node for a pod.
    pub(in crate::cluster) fn take_ports(&mut self, slot: NodeIndex, ports: &[HostPort]) {
        if let Some(Some(entry)) = self.entries.get_mut(slot) {
            entry.ports.extend_from_slice(ports);
        }
    }

    /// Takes ports of a node back.
    pub(super) fn release_ports(&mut self, slot: NodeIndex, ports: &[HostPort]) {
        let Some(Some(entry)) = self.entries.get_mut(slot) else { return };
        for port in ports {
            if let Some(taken) = entry.ports.iter().position(|taken| taken == port) {
                entry.ports.swap_remove(taken);
            }
        }
    }

    /// The number of a group, counted from the pods given when it is new.
    pub(in crate::cluster) fn group<'p>(
        &mut self,
        selection: PodSelection,
        pods: impl Iterator<Item = &'p Arc<Pod>>,
    ) -> usize {
        if let Some(known) = self.groups.iter().position(|g| g.selection == selection) {
            return known;
        }
        let mut on = vec![0; self.entries.len()];
        for pod in pods.filter(|p| takes_room(p) && (selection.counts_ending() || counts_for_spread(p))) {
            let slot = pod.node.as_ref().and_then(|n| self.slot(n));
            if let Some(slot) = slot.filter(|_| selection.holds(&pod.shape)) {
                on[slot] += 1;
            }
        }
        self.groups.push(CountedPods { selection, on });
        self.groups.len() - 1
    }

    /// How many groups there are.
    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The groups that pods of a shape count in.
    pub(in crate::cluster) fn groups_of(&self, shape: &PodShape) -> Vec<usize> {
        (0..self.groups.len()).filter(|i| self.groups[*i].selection.holds(shape)).collect()
    }

    /// The groups of pods with anti-affinity against a shape, each with its topology key.
    pub(super) fn anti_affinity_of_running(&self, shape: &PodShape) -> Vec<(usize, Arc<str>)> {
        let groups = self.groups.iter().enumerate();
        groups.filter_map(|(i, g)| Some((i, Arc::clone(g.selection.keeps_away(shape)?)))).collect()
    }

    /// How many pods of a group are on a node.
    pub(super) fn count(&self, group: usize, slot: NodeIndex) -> i64 {
        i64::from(self.groups[group].on[slot])
    }

    /// One pod more or less on a node, for these groups. One that is being deleted counts in some of them only.
    pub(in crate::cluster) fn count_pod(&mut self, groups: &[usize], slot: NodeIndex, more: bool, ending: bool) {
        for group in groups {
            let group = &mut self.groups[*group];
            if ending && !group.selection.counts_ending() {
                continue;
            }
            let count = &mut group.on[slot];
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
        }
    }
}

/// True when the pod uses resources of its node.
pub(super) fn takes_room(pod: &Pod) -> bool {
    pod.node.is_some() && !pod.is_terminal()
}

/// True when spread constraints count the pod: kube-scheduler leaves out pods that are being deleted.
pub(super) fn counts_for_spread(pod: &Pod) -> bool {
    takes_room(pod) && pod.deleting_at.is_none()
}
