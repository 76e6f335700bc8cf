//! kube-scheduler.
//!
//! Filters are kube-scheduler's (NodeAffinity, TaintToleration, NodeResourcesFit, NodePorts, PodTopologySpread,
//! InterPodAffinity, VolumeBinding), and so are three of its scores: TaintToleration, LeastAllocated and BalancedAllocation.
//! Preferences of pods, ImageLocality and the default topology constraints are left out. Equivalent pods form a class: if
//! one of them finds no node, the rest of the class is not tried, and later only changed nodes are tried, so that one
//! event does not cost pods times nodes.

mod feasible_nodes;
mod inter_pod_affinity;
mod node_cache;
mod pod_selection;
mod simulation;

use crate::cluster::controllers::VolumeTopology;
pub(super) use feasible_nodes::{FeasibleNodes, PodConstraints};
pub(super) use inter_pod_affinity::InterPodAffinity;
use jiff::Timestamp;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::{NodeName, ObjectKey, ObjectName, Uid};
pub(super) use node_cache::NodeCache;
pub(crate) use node_cache::NodeIndex;
use node_cache::{counts_for_spread, takes_room};
pub(super) use pod_selection::PodSelection;
pub(crate) use simulation::SchedulingSimulation;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The decision on the next pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The pod is bound to the node.
    Bind(ObjectKey, NodeName),
    /// These pods find no node.
    Unschedulable(Vec<ObjectKey>),
}

type ClassId = usize;
/// Order of the queue: priority, then age; of one age pods come in any order, as controllers create them side by side.
type QueueKey = (Reverse<i32>, QueuedPod, ClassId);
/// A pod in a queue: of one age those with lower UIDs come first.
type QueuedPod = (Timestamp, Uid, ObjectKey);

/// Pods that are equal to the scheduler.
#[derive(Debug)]
struct PodClass {
    shape: Arc<PodShape>,
    volumes: Vec<ObjectName>,
    /// Groups of its spread constraints, in their order.
    spread_groups: Vec<usize>,
    affinity: InterPodAffinity,
    /// Groups that its pods count in.
    member_of: Vec<usize>,
    /// Pods without a node, oldest first.
    queue: BTreeSet<QueuedPod>,
    /// Those of them that are not reported unschedulable yet.
    unreported: BTreeSet<ObjectKey>,
    /// No node was feasible in the last cycle, so that only changed nodes can be.
    parked: bool,
}

impl PodClass {
    /// Changes other than that of a node can make a node feasible.
    fn depends_on_other_nodes(&self) -> bool {
        !self.shape.spread.is_empty() || !self.volumes.is_empty() || !self.affinity.is_empty()
    }
}

/// kube-scheduler with its cache.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    cache: NodeCache,
    classes: Vec<PodClass>,
    class_of: BTreeMap<(Arc<PodShape>, Vec<ObjectName>), ClassId>,
    /// Classes with waiting pods.
    waiting: BTreeSet<ClassId>,
    /// Nodes that may have more free capacity than in the last cycle.
    changed_nodes: BTreeSet<NodeIndex>,
    /// Something has changed that may help classes with spread constraints or volumes.
    cluster_changed: bool,
    cycle: Option<Cycle>,
}

/// What one cycle remembers.
#[derive(Debug, Default)]
struct Cycle {
    changed_nodes: BTreeSet<NodeIndex>,
    queue: BTreeSet<QueueKey>,
    feasible: BTreeMap<ClassId, FeasibleNodes>,
}

impl Scheduler {
    /// The scheduler's cache of free capacity.
    pub(super) fn cache(&self) -> &NodeCache {
        &self.cache
    }

    /// A node is new or has changed.
    pub(super) fn put_node(&mut self, node: &Arc<Node>) {
        let slot = self.cache.put(node);
        self.changed_nodes.insert(slot);
        self.cluster_changed = true;
    }

    /// Removes a deleted node. Its pods must be deleted before.
    pub(super) fn take_node(&mut self, name: &NodeName) {
        self.cache.take(name);
        self.cluster_changed = true;
    }

    /// Volumes have changed.
    pub(super) fn volumes_changed(&mut self) {
        self.cluster_changed = true;
    }

    /// A pod was created, changed or deleted. `all` are the other pods, to count those that a new selector selects.
    pub(super) fn pod_changed<'p>(
        &mut self,
        old: Option<&Pod>,
        new: Option<&Pod>,
        all: impl Iterator<Item = &'p Arc<Pod>>,
    ) {
        let Some(some) = new.or(old) else { return };
        if old.map(scheduling_state) == new.map(scheduling_state) {
            return;
        }
        let class = self.class(some, all);
        if let Some(old) = old {
            self.remove_pod(class, old);
        }
        if let Some(new) = new {
            self.add_pod(class, new);
        }
        if self.classes[class].queue.is_empty() {
            self.waiting.remove(&class);
            // Changed nodes are not recorded while no pod waits.
            self.classes[class].parked = false;
        }
    }

    fn remove_pod(&mut self, class: ClassId, pod: &Pod) {
        let slot = pod.node.as_ref().and_then(|n| self.cache.slot(n));
        let of = &mut self.classes[class];
        of.queue.remove(&queued(pod));
        of.unreported.remove(&pod.key);
        if let Some(slot) = slot.filter(|_| takes_room(pod)) {
            self.cache.release(slot, &of.shape.requests);
            self.cache.release_ports(slot, &of.shape.ports);
            self.changed_nodes.insert(slot);
            self.cluster_changed = true;
            self.cache.count_pod(&of.member_of, slot, false, !counts_for_spread(pod));
        }
    }

    fn add_pod(&mut self, class: ClassId, pod: &Pod) {
        let slot = pod.node.as_ref().and_then(|n| self.cache.slot(n));
        let of = &mut self.classes[class];
        if let Some(slot) = slot.filter(|_| takes_room(pod)) {
            self.cache.occupy(slot, &of.shape.requests);
            self.cache.take_ports(slot, &of.shape.ports);
            self.cache.count_pod(&of.member_of, slot, true, !counts_for_spread(pod));
            self.cluster_changed |= !of.member_of.is_empty();
        } else if pod.node.is_none() && pod.deleting_at.is_none() && !pod.is_terminal() {
            of.queue.insert(queued(pod));
            if !pod.unschedulable {
                of.unreported.insert(pod.key.clone());
            }
            self.waiting.insert(class);
        }
    }

    fn class<'p>(&mut self, pod: &Pod, all: impl Iterator<Item = &'p Arc<Pod>>) -> ClassId {
        let key = (Arc::clone(&pod.shape), pod.volumes.clone());
        if let Some(known) = self.class_of.get(&key) {
            return *known;
        }
        let shape = Arc::clone(&pod.shape);
        let counts = !shape.spread.is_empty() || shape.affinity.is_some();
        let all: Vec<&Arc<Pod>> = if counts { all.collect() } else { Vec::new() };
        let groups = self.cache.group_count();
        let like = |selector| PodSelection::Spread(shape.namespace.clone(), selector);
        let spread_groups: Vec<usize> =
            shape.spread.iter().map(|s| self.cache.group(like(s.selector.clone()), all.iter().copied())).collect();
        let affinity = InterPodAffinity::of(&mut self.cache, &shape, &all);
        if self.cache.group_count() > groups {
            for class in &mut self.classes {
                class.member_of = self.cache.groups_of(&class.shape);
                class.affinity.refresh(&self.cache, &class.shape);
            }
        }
        self.classes.push(PodClass {
            member_of: self.cache.groups_of(&shape),
            affinity,
            volumes: pod.volumes.clone(),
            shape,
            spread_groups,
            queue: BTreeSet::new(),
            unreported: BTreeSet::new(),
            parked: false,
        });
        self.class_of.insert(key, self.classes.len() - 1);
        self.classes.len() - 1
    }

    /// True when a cycle could bind a pod, or has to report that it cannot.
    pub(super) fn has_work(&self) -> bool {
        self.waiting.iter().any(|class| self.is_due(*class))
    }

    fn is_due(&self, class: ClassId) -> bool {
        let class = &self.classes[class];
        !class.unreported.is_empty()
            || !class.parked
            || !self.changed_nodes.is_empty()
            || (self.cluster_changed && class.depends_on_other_nodes())
    }

    /// The next decision of the running cycle, or of a new one. The caller must carry it out before the next call;
    /// `None` ends the cycle. `volume_topology` is the node affinity of a pod's volumes; `None` if they cannot be used
    /// yet.
    pub(super) fn next(
        &mut self,
        volume_topology: impl Fn(&PodShape, &[ObjectName]) -> Option<VolumeTopology>,
    ) -> Option<Decision> {
        let mut cycle = match self.cycle.take() {
            Some(cycle) => cycle,
            None => self.begin(),
        };
        while let Some((_, (.., key), id)) = cycle.queue.pop_first() {
            let slot = self.place(&mut cycle, id, &volume_topology);
            let class = &mut self.classes[id];
            class.parked = slot.is_none();
            let node = slot.and_then(|slot| self.cache.entry(slot));
            if let Some(node) = node.map(|entry| entry.node.name.clone()) {
                let next = class.queue.iter().find(|(.., k)| *k != key);
                cycle.queue.extend(next.map(|n| head(class, n, id)));
                self.cycle = Some(cycle);
                return Some(Decision::Bind(key, node));
            }
            if !class.unreported.is_empty() {
                let unreported = std::mem::take(&mut class.unreported);
                self.cycle = Some(cycle);
                return Some(Decision::Unschedulable(unreported.into_iter().collect()));
            }
        }
        None
    }

    fn begin(&mut self) -> Cycle {
        let due = self.waiting.iter().filter(|class| self.is_due(**class));
        let queue = due
            .filter_map(|id| {
                let class = &self.classes[*id];
                Some(head(class, class.queue.first()?, *id))
            })
            .collect();
        self.cluster_changed = false;
        Cycle { changed_nodes: std::mem::take(&mut self.changed_nodes), queue, feasible: BTreeMap::new() }
    }

    fn place(
        &self,
        cycle: &mut Cycle,
        id: ClassId,
        volume_topology: impl Fn(&PodShape, &[ObjectName]) -> Option<VolumeTopology>,
    ) -> Option<NodeIndex> {
        let class = &self.classes[id];
        if !cycle.feasible.contains_key(&id) {
            let volumes = if class.volumes.is_empty() {
                VolumeTopology::default()
            } else {
                volume_topology(&class.shape, &class.volumes)?
            };
            let only = (class.parked && !class.depends_on_other_nodes()).then_some(&cycle.changed_nodes);
            let PodClass { shape, spread_groups, affinity, .. } = class;
            let feasible = FeasibleNodes::new(
                PodConstraints { shape, spread_groups, affinity, volumes: &volumes },
                &self.cache,
                only,
            );
            cycle.feasible.insert(id, feasible);
        }
        cycle.feasible.get(&id)?.best(&class.shape, &self.cache)
    }
}

/// The part of a pod by which the scheduler notices changes. Shape, volumes and age never change.
fn scheduling_state(pod: &Pod) -> (Option<&NodeName>, bool, bool, bool) {
    let waits = pod.node.is_none() && pod.deleting_at.is_none() && !pod.is_terminal();
    (pod.node.as_ref().filter(|_| takes_room(pod)), counts_for_spread(pod), waits, waits && pod.unschedulable)
}

fn head(class: &PodClass, pod: &QueuedPod, id: ClassId) -> QueueKey {
    (Reverse(class.shape.priority), pod.clone(), id)
}

fn queued(pod: &Pod) -> QueuedPod {
    (pod.created_at, pod.uid.clone(), pod.key.clone())
}
