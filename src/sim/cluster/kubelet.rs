//! Nodes that join, become ready, and are lost.

use super::{Cluster, ClusterEvent, Delta, FinalizedObject, NewNode, PodTimer, Timer};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Taint, TaintEffect};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, ObjectKey, ProviderId, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Events of a node. All but the first concern one incarnation of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeTimer {
    /// Its kubelet announces it.
    Join(ProviderId),
    /// Its kubelet is ready.
    Ready(NodeName, Uid),
    /// It has started: its startup taints are removed.
    Startup(NodeName, Uid),
    /// Its kubelet has not been heard of for long.
    Unreachable(NodeName, Uid),
    /// Its pods are given up.
    GiveUpPods(NodeName, Uid),
    /// The cloud controller finds no VM.
    Reap(NodeName, Uid),
    /// The cloud controller finds a VM that is shut down.
    TaintShutdown(NodeName, Uid),
}

/// Kubelets that have not joined yet, or are lost, or silent.
#[derive(Debug, Default)]
pub(super) struct Kubelets {
    joining: BTreeMap<ProviderId, NewNode>,
    lost: BTreeSet<NodeName>,
    /// Those that cannot reach the API server, while their pods run on; and what happens to pods once they can.
    silent: BTreeMap<NodeName, Vec<(PodTimer, ObjectKey, Uid)>>,
    /// How those of new nodes are broken.
    pub(super) broken: Option<BrokenKubelets>,
}

/// How kubelets of new nodes are broken, as with a wrong image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenKubelets {
    /// Their nodes never join.
    NeverJoin,
    /// Their nodes join, and never become ready.
    NeverReady,
}

impl Kubelets {
    /// The machine of the node is lost: nothing on it starts or ends.
    pub(super) fn is_lost(&self, node: &NodeName) -> bool {
        self.lost.contains(node)
    }

    /// The API server does not hear of the kubelet: its machine is lost, or it is silent.
    fn is_cut_off(&self, node: &NodeName) -> bool {
        self.is_lost(node) || self.silent.contains_key(node)
    }

    /// Keeps what happens to a pod of a silent kubelet until the kubelet is back; `false` if it is not silent.
    pub(super) fn hold_back(&mut self, node: &NodeName, timer: PodTimer, key: &ObjectKey, uid: &Uid) -> bool {
        let held = self.silent.get_mut(node);
        held.map(|held| held.push((timer, key.clone(), uid.clone()))).is_some()
    }
}

fn taint(key: &str, effect: TaintEffect) -> Taint {
    Taint { key: Arc::from(key), value: Arc::from(""), effect }
}

fn without(taints: &[Taint], drop: impl Fn(&Taint) -> bool) -> Vec<Taint> {
    taints.iter().filter(|t| !drop(t)).cloned().collect()
}

/// Adds taints that are not there yet.
pub(super) fn add_taints(to: &mut Vec<Taint>, taints: impl IntoIterator<Item = Taint>) {
    for taint in taints {
        if !to.contains(&taint) {
            to.push(taint);
        }
    }
}

impl Cluster {
    /// A VM runs since `at`: its kubelet will announce the node, and become ready some time later.
    pub fn kubelet_joins(&mut self, node: NewNode, at: Timestamp, now: Timestamp) {
        self.advance_clock(now);
        let delay = self.timings.node_joins.of(self.seed, "join", node.name.as_str());
        let after = (at.duration_since(self.now) + delay).max(SignedDuration::ZERO);
        let provider = node.provider_id.clone();
        self.kubelets.joining.insert(provider.clone(), node);
        self.set_timer(after, Timer::Node(NodeTimer::Join(provider)));
    }

    /// A VM was deleted, and its kubelet with it.
    pub fn kubelet_lost(&mut self, provider: &ProviderId, now: Timestamp) {
        self.lose_kubelet(provider, NodeTimer::Reap, now);
    }

    /// A VM was shut down, and its kubelet with it.
    pub fn kubelet_stopped(&mut self, provider: &ProviderId, now: Timestamp) {
        self.lose_kubelet(provider, NodeTimer::TaintShutdown, now);
    }

    /// A machine no longer runs; `noticed` is what the cloud controller does about it.
    fn lose_kubelet(
        &mut self,
        provider: &ProviderId,
        noticed: impl FnOnce(NodeName, Uid) -> NodeTimer,
        now: Timestamp,
    ) {
        self.advance_clock(now);
        self.kubelets.joining.remove(provider);
        let Some(node) = self.store.node_by_provider_id(provider).map(Arc::clone) else {
            return;
        };
        let (name, uid) = (node.name.clone(), node.uid.clone());
        self.kubelets.silent.remove(&name);
        let is_new = self.kubelets.lost.insert(name.clone());
        let reaped = self.timings.node_reaped.of(self.seed, "reap", uid.as_str());
        self.set_timer(reaped, Timer::Node(noticed(name.clone(), uid.clone())));
        if is_new {
            let unreachable = Timer::Node(NodeTimer::Unreachable(name, uid));
            self.set_timer(self.timings.node_unreachable, unreachable);
        }
    }

    /// A kubelet that is ready cannot reach the API server any more; its pods run on. Nothing happens if it is lost, or
    /// silent already.
    pub fn silence_kubelet(&mut self, name: &NodeName, now: Timestamp) {
        self.advance_clock(now);
        let node = self.store.nodes().get(name).filter(|n| n.ready && !self.kubelets.is_cut_off(name));
        let Some(uid) = node.map(|n| n.uid.clone()) else { return };
        self.kubelets.silent.insert(name.clone(), Vec::new());
        let unreachable = Timer::Node(NodeTimer::Unreachable(name.clone(), uid));
        self.set_timer(self.timings.node_unreachable, unreachable);
    }

    /// A silent kubelet reaches the API server again. It learns what has happened to its pods meanwhile: those that were
    /// deleted get their grace period.
    pub fn reconnect_kubelet(&mut self, name: &NodeName, now: Timestamp) {
        self.advance_clock(now);
        let Some(held) = self.kubelets.silent.remove(name) else { return };
        for (timer, key, uid) in held {
            let after = if timer == PodTimer::End { self.grace_of(&key) } else { SignedDuration::ZERO };
            self.set_timer(after, Timer::Pod(timer, key, uid));
        }
        let Some(node) = self.store.nodes().get(name) else { return };
        let mut node = Node::clone(node);
        if !node.ready {
            node.ready = true;
            node.ready_since = self.now;
            node.taints = without(&node.taints, |t| &*t.key == labels::TAINT_UNREACHABLE);
        }
        self.start_up(&node);
        self.put_node(node);
    }

    /// True while the kubelet of a node cannot reach the API server, and its pods run on.
    #[must_use]
    pub fn is_silent(&self, node: &NodeName) -> bool {
        self.kubelets.silent.contains_key(node)
    }

    /// A user declares a node out of service; the pod garbage collector deletes its pods if it is not ready. Nothing
    /// happens if it is ready.
    pub fn put_out_of_service(&mut self, name: &NodeName, now: Timestamp) {
        self.advance_clock(now);
        let Some(node) = self.store.nodes().get(name).filter(|n| !n.ready) else { return };
        let mut node = Node::clone(node);
        add_taints(&mut node.taints, [taint(labels::TAINT_OUT_OF_SERVICE, TaintEffect::NoExecute)]);
        self.put_node(node);
        self.pods_on(name).iter().for_each(|key| self.take_pod(key));
    }

    /// Adds an unmanaged node, ready at once.
    pub fn add_unmanaged_node(&mut self, node: NewNode, now: Timestamp) {
        self.advance_clock(now);
        let taints = node.taints.clone();
        let node = self.node_object(node, taints, true);
        self.put_node(node);
    }

    fn node_object(&mut self, node: NewNode, taints: Vec<Taint>, ready: bool) -> Node {
        let uid = self.ids.uid();
        Node { taints, ready, ..node.into_node(uid, self.now) }
    }

    pub(super) fn node_timer(&mut self, timer: NodeTimer) {
        match timer {
            NodeTimer::Join(provider) => self.node_joins(&provider),
            NodeTimer::Ready(name, uid) => self.with_node(&name, &uid, false, Self::node_ready),
            NodeTimer::Startup(name, uid) => {
                self.with_node(&name, &uid, false, Self::drop_startup_taints);
            }
            NodeTimer::Unreachable(name, uid) => {
                self.with_node(&name, &uid, true, Self::node_unreachable);
            }
            NodeTimer::GiveUpPods(name, uid) => {
                self.with_node(&name, &uid, true, Self::give_up_pods);
            }
            NodeTimer::Reap(name, uid) => {
                self.with_node(&name, &uid, true, |cluster, node| {
                    if cluster.kubelets.is_lost(&node.name) {
                        cluster.delete_node_object(&node.name);
                    }
                });
            }
            NodeTimer::TaintShutdown(name, uid) => {
                self.with_node(&name, &uid, true, |cluster, mut node| {
                    add_taints(&mut node.taints, [taint(labels::TAINT_SHUTDOWN, TaintEffect::NoSchedule)]);
                    cluster.put_node(node);
                });
            }
        }
    }

    /// Acts on a node if that very incarnation is still there, and its kubelet cut off or not as expected.
    fn with_node(&mut self, name: &NodeName, uid: &Uid, cut_off: bool, act: impl FnOnce(&mut Self, Node)) {
        if let Some(node) = self.store.nodes().get(name).filter(|n| n.uid == *uid) {
            let node = Node::clone(node);
            if self.kubelets.is_cut_off(name) == cut_off {
                act(self, node);
            }
        }
    }

    fn node_joins(&mut self, provider: &ProviderId) {
        // A VM deleted in the meantime does not join; nor does one whose name is taken.
        let Some(new) = self.kubelets.joining.remove(provider) else {
            return;
        };
        if self.store.nodes().get(&new.name).is_some() || self.kubelets.broken == Some(BrokenKubelets::NeverJoin) {
            return;
        }
        let mut taints = new.taints.clone();
        add_taints(
            &mut taints,
            [
                taint(labels::TAINT_UNREGISTERED, TaintEffect::NoExecute),
                taint(labels::TAINT_NOT_READY, TaintEffect::NoSchedule),
            ],
        );
        let node = self.node_object(new, taints, false);
        let delay = self.timings.node_ready.of(self.seed, "ready", node.name.as_str());
        let ready = NodeTimer::Ready(node.name.clone(), node.uid.clone());
        if self.kubelets.broken.is_none() {
            self.set_timer(delay, Timer::Node(ready));
        }
        self.put_node(node);
    }

    fn node_ready(&mut self, mut node: Node) {
        node.ready = true;
        node.ready_since = self.now;
        node.taints = without(&node.taints, |t| &*t.key == labels::TAINT_NOT_READY);
        self.emit(ClusterEvent::NodeReady { node: node.name.clone() });
        self.start_up(&node);
        self.put_node(node);
    }

    /// Something that sets the node up begins once it is ready and registered.
    pub(super) fn start_up(&mut self, node: &Node) {
        if node.ready && node.label(labels::REGISTERED).is_some() {
            let delay = self.timings.startup.of(self.seed, "startup", node.name.as_str());
            let timer = NodeTimer::Startup(node.name.clone(), node.uid.clone());
            self.set_timer(delay, Timer::Node(timer));
        }
    }

    fn drop_startup_taints(&mut self, mut node: Node) {
        let claim = self.store.claim_of(&node);
        let Some(claim) = claim else { return };
        let startup = &claim.spec.startup_taints;
        let left = without(&node.taints, |t| startup.contains(t));
        if left.len() < node.taints.len() {
            node.taints = left;
            self.put_node(node);
        }
    }

    fn node_unreachable(&mut self, mut node: Node) {
        if node.is_tainted(labels::TAINT_UNREACHABLE) {
            return;
        }
        node.ready = false;
        node.ready_since = self.now;
        add_taints(
            &mut node.taints,
            [
                taint(labels::TAINT_UNREACHABLE, TaintEffect::NoSchedule),
                taint(labels::TAINT_UNREACHABLE, TaintEffect::NoExecute),
            ],
        );
        let give_up = NodeTimer::GiveUpPods(node.name.clone(), node.uid.clone());
        self.set_timer(self.timings.pods_given_up, Timer::Node(give_up));
        self.put_node(node);
    }

    fn give_up_pods(&mut self, node: Node) {
        let unreachable = taint(labels::TAINT_UNREACHABLE, TaintEffect::NoExecute);
        for key in self.pods_on(&node.name) {
            let tolerates =
                |shape: &napkeeper_core::model::cluster::pod::PodShape| shape.untolerated([&unreachable]).is_none();
            let pod = self.store.pods().get(&key);
            if pod.is_some_and(|pod| !tolerates(&pod.shape)) {
                self.end_pod(&key);
            }
        }
    }

    fn pods_on(&self, node: &NodeName) -> Vec<ObjectKey> {
        let usage = self.store.node_usage(node);
        usage.map_or_else(Vec::new, |u| u.pods.iter().cloned().collect())
    }

    /// Adds or replaces a node: the only way in which one changes.
    pub(super) fn put_node(&mut self, node: Node) {
        let node = Arc::new(node);
        self.store.put_node(Arc::clone(&node));
        self.scheduler.put_node(&node);
        self.dirty.nodes.insert(node.name.clone());
        self.deltas.push(Delta::Node(node));
    }

    /// Deletes a Node object: at once, unless a finalizer holds it.
    pub(super) fn delete_node_object(&mut self, name: &NodeName) {
        let Some(node) = self.store.nodes().get(name) else {
            return;
        };
        if !node.has_finalizer && !self.is_held(&FinalizedObject::Node(name.clone())) {
            self.take_node(name);
        } else if node.deleting_at.is_none() {
            let node = Node { deleting_at: Some(self.now), ..Node::clone(node) };
            self.put_node(node);
        }
    }

    /// Removes a Node object; the pod garbage collector removes its pods.
    pub(super) fn take_node(&mut self, name: &NodeName) {
        for key in self.pods_on(name) {
            self.take_pod(&key);
        }
        self.store.remove_node(name);
        self.measures.node_removed(name);
        self.scheduler.take_node(name);
        self.kubelets.lost.remove(name);
        self.kubelets.silent.remove(name);
        self.dirty.volumes = true;
        self.deltas.push(Delta::NodeGone(name.clone()));
        self.emit(ClusterEvent::NodeGone { node: name.clone() });
    }
}
