//! Kubelets that cannot reach the API server, and VMs that users shut down.

use crate::cluster::BrokenKubelets;
use crate::world::timeline::EventKind;
use crate::world::{Action, InjectedFault, World};
use jiff::SignedDuration;
use napkeeper_core::model::azure::cloud::PowerState;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::{ConditionStatus, Node, NodeCondition};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodeName, NodePoolName, ProviderId};
use std::sync::Arc;

/// What happens to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeFault {
    /// Kubelets cannot reach the API server for a while. Their pods run on.
    Silence(FaultyNodes, SignedDuration),
    /// These reach it again.
    Reconnect(Vec<NodeName>),
    /// A user shuts the VM of a node down.
    ShutDown {
        /// Which node in use, counted in the order of names, modulo their number.
        nth: usize,
        /// It is deallocated, not only stopped.
        deallocate: bool,
    },
    /// New nodes do not come up, as with a wrong image.
    BreakKubelets(BrokenKubelets),
    /// New nodes come up again.
    RepairKubelets,
    /// The image of a NodePool's nodes has another kubelet than the rest: nodes that join from now on are so.
    OtherImage(OtherImage),
    /// A user edits the launch intent of a node's NodeClaim.
    EditIntent {
        /// Which node in use, counted in the order of names, modulo their number.
        nth: usize,
        /// What becomes of it.
        edit: IntentEdit,
    },
    /// A user declares all nodes out of service that are not ready and whose VM is shut down.
    OutOfService,
    /// An upgrade replaces the nodes of the system pool.
    ReplaceSystemNodes,
    /// A user deletes the NodeClaims of every nth node that is not ready.
    DeleteUnready {
        /// 1 is all of them.
        every: usize,
    },
}

/// The image of a NodePool whose nodes are not what is expected of new ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherImage {
    /// The NodePool.
    pub pool: NodePoolName,
    /// The version of the kubelet.
    pub kubelet_version: Arc<str>,
    /// What pods may use of what they were expected to, in thousandths.
    pub allocatable_permille: i64,
}

/// What a user does to a launch intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentEdit {
    /// It is removed.
    Remove,
    /// It names the resources of another node.
    NameAnother,
}

/// Which nodes of NodeClaims in use a fault strikes, in the order of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultyNodes {
    /// This one, modulo their number.
    Nth(usize),
    /// Every nth; 1 is all of them.
    Every(usize),
}

impl World {
    pub(in crate::world) fn strike_nodes(&mut self, fault: NodeFault) {
        match fault {
            NodeFault::Silence(nodes, duration) => self.silence(nodes, duration),
            NodeFault::Reconnect(names) => {
                names.iter().for_each(|name| self.cluster.reconnect_kubelet(name, self.now));
            }
            NodeFault::ShutDown { nth, deallocate } => {
                let nodes = self.nodes_in_use();
                if let Some(vm) = nodes.get(nth % nodes.len().max(1)).and_then(|node| vm_of(node)) {
                    // One that is being deleted is not shut down.
                    drop(self.cloud.shut_down_vm(&vm, deallocate, self.now));
                }
            }
            NodeFault::BreakKubelets(broken) => {
                self.cluster.break_kubelets(Some(broken));
                self.truth.kubelets_broken_since = Some(self.now);
            }
            NodeFault::RepairKubelets => {
                self.cluster.break_kubelets(None);
                self.truth.kubelets_broken_since = None;
            }
            NodeFault::OtherImage(image) => self.injected.other_image = Some(image),
            NodeFault::EditIntent { nth, edit } => self.edit_intent(nth, edit),
            NodeFault::OutOfService => self.put_out_of_service(),
            NodeFault::ReplaceSystemNodes => self.cluster.replace_system_nodes(self.now),
            NodeFault::DeleteUnready { every } => self.delete_unready_claims(every),
        }
    }

    fn silence(&mut self, nodes: FaultyNodes, duration: SignedDuration) {
        let all = self.nodes_in_use();
        let names: Vec<NodeName> = match nodes {
            FaultyNodes::Nth(nth) => all.get(nth % all.len().max(1)).map(|n| n.name.clone()).into_iter().collect(),
            FaultyNodes::Every(nth) => all.iter().step_by(nth.max(1)).map(|n| n.name.clone()).collect(),
        };
        for name in &names {
            self.cluster.silence_kubelet(name, self.now);
            self.log(EventKind::Scenario, name, "its kubelet cannot reach the API server");
        }
        let reconnect = Action::InjectFault(InjectedFault::Nodes(NodeFault::Reconnect(names)));
        self.schedule_action(self.now + duration, reconnect);
    }

    /// The condition by which the Node Problem Detector of AKS announces that Azure evicts a spot VM.
    pub(super) fn announce_eviction(&mut self, provider: &ProviderId) {
        let Some(node) = self.cluster.state().node_by_provider_id(provider).map(|node| node.name.clone()) else {
            return;
        };
        let not_before = self.now + self.cloud.settings().timings.eviction_notice;
        let condition = NodeCondition {
            kind: Arc::from("VMEventScheduled"),
            status: ConditionStatus::True,
            since: self.now,
            reason: Arc::from("VMEventScheduled"),
            message: Arc::from(format!("Preempt Scheduled: {not_before}. DurationInSeconds: -1.")),
            not_before: Some(not_before),
        };
        self.cluster.set_node_condition(&node, condition, self.now);
    }

    /// Sets a condition of the nth managed Node.
    pub(super) fn set_node_condition(&mut self, nth: usize, condition: NodeCondition) {
        let managed = |node: &&Arc<Node>| node.label(labels::NODEPOOL).is_some();
        let names: Vec<_> = self.cluster.state().nodes().values().filter(managed).map(|n| n.name.clone()).collect();
        let Some(name) = names.get(nth % names.len().max(1)) else { return };
        let NodeCondition { kind, status, message, .. } = &condition;
        self.log(EventKind::Scenario, name, format!("condition {kind} is {} {message}", status.as_str()));
        self.cluster.set_node_condition(name, condition, self.now);
    }

    fn edit_intent(&mut self, nth: usize, edit: IntentEdit) {
        let claim_of = |nth: usize| self.claims_in_use(nth, 1).pop();
        let Some(claim) = claim_of(nth) else { return };
        let intent = match edit {
            IntentEdit::Remove => None,
            IntentEdit::NameAnother => claim_of(nth + 1).and_then(|another| another.intent.clone()),
        };
        self.cluster.set_intent(&claim.name, intent, self.now);
    }

    fn put_out_of_service(&mut self) {
        let is_off =
            |vm: &ArmId| matches!(self.cloud.power_state(vm), Some(PowerState::Stopped | PowerState::Deallocated));
        let nodes = self.nodes_in_use();
        let off = nodes.iter().filter(|node| vm_of(node).is_some_and(|vm| is_off(&vm)));
        for name in off.map(|node| node.name.clone()).collect::<Vec<_>>() {
            self.cluster.put_out_of_service(&name, self.now);
        }
    }

    fn delete_unready_claims(&mut self, every: usize) {
        let cluster = self.cluster.state();
        let unready = |provider: &ProviderId| cluster.node_by_provider_id(provider).is_some_and(|node| !node.ready);
        let of_unready = cluster.claims().values().filter(|c| c.status.provider_id.as_ref().is_some_and(unready));
        let names: Vec<ClaimName> = of_unready.step_by(every.max(1)).map(|claim| claim.name.clone()).collect();
        for name in names {
            self.log(EventKind::Scenario, &name, "NodeClaim of a node that is not ready deleted by a user");
            self.delete_claim_as_user(&name);
        }
    }

    /// NodeClaims of nodes in use, from the nth on, modulo their number.
    pub(super) fn claims_in_use(&self, nth: usize, count: usize) -> Vec<Arc<Claim>> {
        let nodes = self.nodes_in_use();
        let from = nth % nodes.len().max(1);
        let some = nodes.iter().cycle().skip(from).take(count.min(nodes.len()));
        let providers = some.filter_map(|node| node.provider_id.as_ref());
        providers.filter_map(|id| self.cluster.state().claim_by_provider_id(id).cloned()).collect()
    }

    /// Nodes of NodeClaims in use, by name.
    fn nodes_in_use(&self) -> Vec<Arc<Node>> {
        let cluster = self.cluster.state();
        let in_use = |node: &&Arc<Node>| {
            let claim = cluster.claim_of(node);
            claim.is_some_and(|claim| claim.status.initialized.is_some())
        };
        cluster.nodes().values().filter(in_use).cloned().collect()
    }
}

fn vm_of(node: &Node) -> Option<ArmId> {
    node.provider_id.as_ref().map(|id| id.vm().clone())
}
