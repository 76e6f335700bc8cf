//! kube-scheduler: which pod goes to which node?
//!
//! Filters and scores are kube-scheduler's (NodeAffinity, TaintToleration, NodeResourcesFit with LeastAllocated,
//! NodePorts, PodTopologySpread, InterPodAffinity without what is preferred, VolumeBinding). Pods that differ in nothing
//! that matters form a class: when one of them finds no node, the rest of the class is not tried, and later only the nodes
//! that have changed since are looked at, so that one event does not cost pods times nodes.

mod book;
mod neighbours;
mod view;
mod who;

use super::volumes::Reach;
pub(super) use book::Book;
pub(crate) use book::Slot;
use book::{counts_for_spread, takes_room};
use jiff::Timestamp;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::{NodeName, ObjectKey, ObjectName};
pub(super) use neighbours::Neighbours;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub(super) use view::{Asks, View};
pub(super) use who::Who;

/// What is decided about the next pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pod goes to the node.
    Bind(ObjectKey, NodeName),
    /// These pods find no node.
    Unschedulable(Vec<ObjectKey>),
}

type ClassId = usize;
/// Order of the queue: priority, then age, then name.
type Head = (Reverse<i32>, Timestamp, ObjectKey, ClassId);

/// Pods that the scheduler cannot tell apart.
#[derive(Debug)]
struct Class {
    shape: Arc<PodShape>,
    volumes: Vec<ObjectName>,
    /// Groups of its spread constraints, in their order.
    spread_groups: Vec<usize>,
    neighbours: Neighbours,
    /// Groups that its pods count in.
    member_of: Vec<usize>,
    /// Pods without a node, oldest first.
    queue: BTreeSet<(Timestamp, ObjectKey)>,
    /// Those of them that nothing has been said about.
    fresh: BTreeSet<ObjectKey>,
    /// No node had room in the last pass, so that only changed nodes can have.
    parked: bool,
}

impl Class {
    /// More than the change of a node can make room for it.
    fn is_intricate(&self) -> bool {
        !self.shape.spread.is_empty() || !self.volumes.is_empty() || !self.neighbours.is_empty()
    }
}

/// kube-scheduler with its cache.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    book: Book,
    classes: Vec<Class>,
    class_of: BTreeMap<(Arc<PodShape>, Vec<ObjectName>), ClassId>,
    /// Classes with waiting pods.
    waiting: BTreeSet<ClassId>,
    /// Nodes on which there may be more room than in the last pass.
    touched: BTreeSet<Slot>,
    /// Something has changed that may help classes with spread constraints or volumes.
    stirred: bool,
    pass: Option<Pass>,
}

/// What one pass remembers.
#[derive(Debug, Default)]
struct Pass {
    touched: BTreeSet<Slot>,
    heads: BTreeSet<Head>,
    views: BTreeMap<ClassId, View>,
}

impl Scheduler {
    /// What is free where, as the scheduler knows it.
    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// A node is new or has changed.
    pub(super) fn put_node(&mut self, node: &Arc<Node>) {
        let slot = self.book.put(node);
        self.touched.insert(slot);
        self.stirred = true;
    }

    /// A node is gone. Its pods must be gone already.
    pub(super) fn take_node(&mut self, name: &NodeName) {
        self.book.take(name);
        self.stirred = true;
    }

    /// Volumes have changed.
    pub(super) fn volumes_changed(&mut self) {
        self.stirred = true;
    }

    /// A pod is new, has changed or is gone. `all` are the other pods, to count those that a new selector selects.
    pub(super) fn pod_changed<'p>(
        &mut self,
        old: Option<&Pod>,
        new: Option<&Pod>,
        all: impl Iterator<Item = &'p Arc<Pod>>,
    ) {
        let Some(some) = new.or(old) else { return };
        if old.map(standing) == new.map(standing) {
            return;
        }
        let class = self.class(some, all);
        if let Some(old) = old {
            self.forget(class, old);
        }
        if let Some(new) = new {
            self.learn(class, new);
        }
        if self.classes[class].queue.is_empty() {
            self.waiting.remove(&class);
            // Nodes that change while no pod waits are not looked at.
            self.classes[class].parked = false;
        }
    }

    fn forget(&mut self, class: ClassId, pod: &Pod) {
        let slot = pod.node.as_ref().and_then(|n| self.book.slot(n));
        let of = &mut self.classes[class];
        of.queue.remove(&(pod.created_at, pod.key.clone()));
        of.fresh.remove(&pod.key);
        if let Some(slot) = slot.filter(|_| takes_room(pod)) {
            self.book.release(slot, &of.shape.requests);
            self.book.release_ports(slot, &of.shape.ports);
            self.touched.insert(slot);
            self.stirred = true;
            self.book.tally(&of.member_of, slot, false, !counts_for_spread(pod));
        }
    }

    fn learn(&mut self, class: ClassId, pod: &Pod) {
        let slot = pod.node.as_ref().and_then(|n| self.book.slot(n));
        let of = &mut self.classes[class];
        if let Some(slot) = slot.filter(|_| takes_room(pod)) {
            self.book.occupy(slot, &of.shape.requests);
            self.book.take_ports(slot, &of.shape.ports);
            self.book.tally(&of.member_of, slot, true, !counts_for_spread(pod));
            self.stirred |= !of.member_of.is_empty();
        } else if pod.node.is_none() && pod.deleting_at.is_none() && !pod.is_terminal() {
            of.queue.insert((pod.created_at, pod.key.clone()));
            if !pod.unschedulable {
                of.fresh.insert(pod.key.clone());
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
        let groups = self.book.group_count();
        let like = |selector| Who::Like(shape.namespace.clone(), selector);
        let spread_groups: Vec<usize> =
            shape.spread.iter().map(|s| self.book.group(like(s.selector.clone()), all.iter().copied())).collect();
        let neighbours = Neighbours::of(&mut self.book, &shape, &all);
        if self.book.group_count() > groups {
            for class in &mut self.classes {
                class.member_of = self.book.groups_of(&class.shape);
                class.neighbours.look_again(&self.book, &class.shape);
            }
        }
        self.classes.push(Class {
            member_of: self.book.groups_of(&shape),
            neighbours,
            volumes: pod.volumes.clone(),
            shape,
            spread_groups,
            queue: BTreeSet::new(),
            fresh: BTreeSet::new(),
            parked: false,
        });
        self.class_of.insert(key, self.classes.len() - 1);
        self.classes.len() - 1
    }

    /// True when a pass could place a pod, or has to say that it cannot.
    pub(super) fn has_work(&self) -> bool {
        self.waiting.iter().any(|class| self.is_due(*class))
    }

    fn is_due(&self, class: ClassId) -> bool {
        let class = &self.classes[class];
        !class.fresh.is_empty() || !class.parked || !self.touched.is_empty() || (self.stirred && class.is_intricate())
    }

    /// The next verdict of the running pass, or of a new one. The caller must carry it out before it asks again;
    /// `None` ends the pass. `reach` says where the volumes of a pod can be used; `None` is nowhere yet.
    pub(super) fn next(&mut self, reach: impl Fn(&PodShape, &[ObjectName]) -> Option<Reach>) -> Option<Verdict> {
        let mut pass = match self.pass.take() {
            Some(pass) => pass,
            None => self.begin(),
        };
        while let Some((.., key, id)) = pass.heads.pop_first() {
            let slot = self.place(&mut pass, id, &reach);
            let class = &mut self.classes[id];
            class.parked = slot.is_none();
            let node = slot.and_then(|slot| self.book.entry(slot));
            if let Some(node) = node.map(|entry| entry.node.name.clone()) {
                let next = class.queue.iter().find(|(_, k)| *k != key);
                pass.heads.extend(next.map(|n| head(class, n, id)));
                self.pass = Some(pass);
                return Some(Verdict::Bind(key, node));
            }
            if !class.fresh.is_empty() {
                let fresh = std::mem::take(&mut class.fresh);
                self.pass = Some(pass);
                return Some(Verdict::Unschedulable(fresh.into_iter().collect()));
            }
        }
        None
    }

    fn begin(&mut self) -> Pass {
        let due = self.waiting.iter().filter(|class| self.is_due(**class));
        let heads = due
            .filter_map(|id| {
                let class = &self.classes[*id];
                Some(head(class, class.queue.first()?, *id))
            })
            .collect();
        self.stirred = false;
        Pass { touched: std::mem::take(&mut self.touched), heads, views: BTreeMap::new() }
    }

    fn place(
        &self,
        pass: &mut Pass,
        id: ClassId,
        reach: impl Fn(&PodShape, &[ObjectName]) -> Option<Reach>,
    ) -> Option<Slot> {
        let class = &self.classes[id];
        if !pass.views.contains_key(&id) {
            let volumes =
                if class.volumes.is_empty() { Reach::default() } else { reach(&class.shape, &class.volumes)? };
            let only = (class.parked && !class.is_intricate()).then_some(&pass.touched);
            let Class { shape, spread_groups, neighbours, .. } = class;
            let view = View::new(Asks { shape, spread_groups, neighbours, volumes: &volumes }, &self.book, only);
            pass.views.insert(id, view);
        }
        pass.views.get(&id)?.best(&class.shape, &self.book)
    }
}

/// All of a pod that the scheduler tells changes by. Shape, volumes and age never change.
fn standing(pod: &Pod) -> (Option<&NodeName>, bool, bool, bool) {
    let waits = pod.node.is_none() && pod.deleting_at.is_none() && !pod.is_terminal();
    (pod.node.as_ref().filter(|_| takes_room(pod)), counts_for_spread(pod), waits, waits && pod.unschedulable)
}

fn head(class: &Class, (created, key): &(Timestamp, ObjectKey), id: ClassId) -> Head {
    (Reverse(class.shape.priority), *created, key.clone(), id)
}
