//! Edits by users, Git and accidents.

use crate::cluster::pods::{PodOrigin, PodRuntime};
use crate::cluster::{BrokenKubelets, Cluster, Delta};
use crate::workload::{PodBudget, PodTemplate, Workload};
use jiff::Timestamp;
use napkeeper_core::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, LaunchIntent};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{Pod, PodOwner};
use napkeeper_core::model::cluster::pool::DaemonSet;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodeName, ObjectKey, ObjectName, ProviderId};
use napkeeper_core::model::orphans::record::OrphanRecords;
use napkeeper_core::model::orphans::sweep::{Sweep, UnreadableSweeps};
use napkeeper_core::model::settings::Pause;
use std::sync::Arc;

impl Cluster {
    /// Adds or replaces an OrphanSweep. The controller does not see a version that it cannot read.
    pub fn apply_sweep(&mut self, sweep: Sweep) {
        let sweep = Arc::new(sweep);
        self.store.put_sweep(sweep.name.clone(), Arc::clone(&sweep));
        if !self.store.unreadable_sweeps.contains(sweep.name.as_str()) {
            self.deltas.push(Delta::Sweep(sweep));
        }
    }

    /// An OrphanSweep has a schedule that the controller cannot read, until [`Cluster::repair_sweeps`].
    pub fn break_sweep(&mut self, name: &ObjectName) {
        let reason = Arc::from("spec.schedule: weekday \"7\" must be values, ranges or steps from 0 to 6");
        let others = self.store.unreadable_sweeps.iter().map(|(name, reason)| (Arc::clone(name), Arc::clone(reason)));
        self.set_unreadable_sweeps(UnreadableSweeps::of(others.chain([(name.text(), reason)])));
    }

    /// The controller can read every OrphanSweep again, with all that has changed since.
    pub fn repair_sweeps(&mut self) {
        if self.store.unreadable_sweeps.is_empty() {
            return;
        }
        let sweeps = self.store.sweeps().values().cloned().map(Delta::Sweep);
        self.deltas.extend(sweeps);
        self.set_unreadable_sweeps(UnreadableSweeps::default());
    }

    fn set_unreadable_sweeps(&mut self, sweeps: UnreadableSweeps) {
        self.store.unreadable_sweeps = sweeps.clone();
        self.deltas.push(Delta::UnreadableSweeps(sweeps));
    }

    /// Deletes an OrphanSweep.
    pub fn delete_sweep(&mut self, name: &ObjectName) {
        self.store.remove_sweep(name);
        self.reports.remove(name);
        self.deltas.push(Delta::SweepGone(name.clone()));
    }

    /// Sets the pause switch.
    pub fn set_pause(&mut self, pause: Pause) {
        self.store.pause = pause.clone();
        self.deltas.push(Delta::Pause(pause));
    }

    /// Adds or replaces a DaemonSet: one pod on every node that accepts it. Existing pods are unchanged.
    pub fn apply_daemon_set(&mut self, key: ObjectKey, template: &PodTemplate, now: Timestamp) {
        self.advance_clock(now);
        let set = Arc::new(DaemonSet { shape: Arc::clone(&template.shape) });
        self.daemon_sets.put(key.clone(), template);
        self.store.put_daemon_set(key.clone(), Arc::clone(&set));
        self.deltas.push(Delta::DaemonSet(key, set));
        let nodes = self.store.nodes().values().map(|n| n.name.clone());
        self.dirty.nodes.extend(nodes);
    }

    /// Deletes a DaemonSet and its pods.
    pub fn delete_daemon_set(&mut self, key: &ObjectKey, now: Timestamp) {
        self.advance_clock(now);
        for pod in self.daemon_sets.take(key) {
            self.end_pod(&pod);
        }
        self.store.remove_daemon_set(key);
        self.deltas.push(Delta::DaemonSetGone(key.clone()));
    }

    /// Adds a workload, or replaces it; existing pods keep their shape.
    pub fn apply_workload(&mut self, key: ObjectKey, workload: Workload, now: Timestamp) {
        self.advance_clock(now);
        self.workloads.put(key.clone(), workload);
        self.dirty.workloads.insert(key);
    }

    /// Changes how many pods a workload has; nothing happens when there is no such workload.
    pub fn scale(&mut self, key: &ObjectKey, to: u32, now: Timestamp) {
        self.advance_clock(now);
        if let Some(entry) = self.workloads.all.get_mut(key) {
            entry.workload.scale(to);
            self.dirty.workloads.insert(key.clone());
        }
    }

    /// Deletes a workload and its pods. PersistentVolumeClaims are kept, as those of a StatefulSet.
    pub fn delete_workload(&mut self, key: &ObjectKey, now: Timestamp) {
        self.advance_clock(now);
        self.measures.workload_settled(key, |_| false, now);
        if let Some(entry) = self.workloads.all.remove(key) {
            for pod in entry.pods {
                self.end_pod(&pod);
            }
        }
    }

    /// Creates a pod that no controller recreates, using these PersistentVolumeClaims; nothing happens when the name is
    /// taken.
    pub fn run_pod(&mut self, key: ObjectKey, template: &PodTemplate, volumes: Vec<ObjectName>, now: Timestamp) {
        self.advance_clock(now);
        if let Some(pod) = self.new_unmanaged_pod(key, template, PodOwner::Nobody, volumes) {
            self.put_pod(pod);
        }
    }

    /// Runs a static pod on a node, without kube-scheduler; nothing happens when the name is taken.
    pub fn run_static_pod(&mut self, key: ObjectKey, template: &PodTemplate, node: NodeName, now: Timestamp) {
        self.advance_clock(now);
        if let Some(pod) = self.new_unmanaged_pod(key, template, PodOwner::Static, Vec::new()) {
            self.bind(pod, node);
        }
    }

    fn new_unmanaged_pod(
        &mut self,
        key: ObjectKey,
        template: &PodTemplate,
        owner: PodOwner,
        volumes: Vec<ObjectName>,
    ) -> Option<Pod> {
        if self.store.pods().get(&key).is_some() {
            return None;
        }
        let runtime = PodRuntime::of(PodOrigin::Unmanaged, template);
        self.workloads.runtimes.insert(key.clone(), runtime);
        self.workloads.bare.insert(key.clone());
        Some(self.new_pod(key, template, owner, volumes))
    }

    /// Deletes a pod past all budgets.
    pub fn delete_pod(&mut self, key: &ObjectKey, now: Timestamp) {
        self.advance_clock(now);
        self.end_pod(key);
    }

    /// Adds or replaces a PodDisruptionBudget.
    pub fn apply_budget(&mut self, key: ObjectKey, budget: PodBudget) {
        self.budgets.insert(key.clone(), budget);
        self.dirty.budgets.insert(key);
    }

    /// Edits a Node: cordons it, taints it, annotates it. Name and UID are unchanged.
    pub fn edit_node(&mut self, name: &NodeName, edit: impl FnOnce(&mut Node), now: Timestamp) {
        self.advance_clock(now);
        if let Some(node) = self.store.nodes().get(name) {
            let mut edited = Node::clone(node);
            edit(&mut edited);
            edited.name = node.name.clone();
            edited.uid = node.uid.clone();
            self.put_node(edited);
        }
    }

    /// Deletes a Node object; our finalizer holds it.
    pub fn delete_node(&mut self, name: &NodeName, now: Timestamp) {
        self.advance_clock(now);
        self.delete_node_object(name);
    }

    /// Deletes a NodeClaim; our finalizer holds it.
    pub fn delete_claim(&mut self, name: &ClaimName, now: Timestamp) {
        self.advance_clock(now);
        if let Some(claim) = self.store.claims().get(name).map(|c| c.reference()) {
            // The claim of this UID has just been read.
            let _ = self.delete_claim_object(&claim);
        }
    }

    /// A user changes the launch intent of a NodeClaim.
    pub fn set_intent(&mut self, claim: &ClaimName, intent: Option<LaunchIntent>, now: Timestamp) {
        self.advance_clock(now);
        if let Some(claim) = self.store.claims().get(claim).cloned() {
            self.put_claim(Claim { intent, ..Claim::clone(&claim) });
        }
    }

    /// A user removes from a NodeClaim why it has replaced others, and how often in a row.
    pub fn remove_replacement(&mut self, claim: &ClaimName, now: Timestamp) {
        self.advance_clock(now);
        if let Some(claim) = self.store.claims().get(claim).filter(|claim| claim.spec.replacement.is_some()).cloned() {
            let spec = ClaimSpec { replacement: None, ..claim.spec.clone() };
            self.put_claim(Claim { spec, ..Claim::clone(&claim) });
        }
    }

    /// Kubelets of nodes that join from now on are broken in this way, or no longer.
    pub fn break_kubelets(&mut self, broken: Option<BrokenKubelets>) {
        self.kubelets.broken = broken;
    }

    /// Another Karpenter creates a NodeClaim, or its NodeClaim is removed.
    pub fn set_foreign_claim(&mut self, name: ClaimName, exists: bool, now: Timestamp) {
        self.advance_clock(now);
        let class = self.store.classes().values().next().map(|class| class.name.clone());
        match class.filter(|_| exists) {
            Some(class) => self.put_foreign_claim(name, class),
            None => self.forget_claim(&name),
        }
    }

    /// The Nodes of the system pool move to another resource group, given by its id.
    pub fn move_system_nodes(&mut self, group: &str, now: Timestamp) {
        self.advance_clock(now);
        let nodes: Vec<_> = self.store.nodes().values().filter(|node| is_of_system_pool(node)).cloned().collect();
        for node in nodes {
            let path = node.provider_id.as_ref().and_then(|id| id.vm().as_str().split_once("/providers/"));
            let moved = path.and_then(|(_, path)| ArmId::new(format!("{group}/providers/{path}")).ok());
            let provider_id = moved.map(|id| ProviderId::of_vm(&id));
            self.put_node(Node { provider_id, ..Node::clone(&node) });
        }
    }

    /// An upgrade replaces the nodes of the system pool: their successors join before they leave.
    pub fn replace_system_nodes(&mut self, now: Timestamp) {
        self.advance_clock(now);
        let old: Vec<_> = self.store.nodes().values().filter(|node| is_of_system_pool(node)).cloned().collect();
        for node in &old {
            if let Some((name, provider_id)) = successor(node, old.len()) {
                let (uid, provider_id) = (self.ids.uid(), Some(provider_id));
                let mut next = Node { name, uid, provider_id, created_at: now, ready_since: now, ..Node::clone(node) };
                next.labels.insert(Arc::from(labels::HOSTNAME), next.name.text());
                self.put_node(next);
            }
        }
        old.iter().for_each(|node| self.take_node(&node.name));
    }

    /// A NodeClaim is missing from a restored backup, and its Node too if so said. No finalizer holds them.
    pub fn lose_claim(&mut self, name: &ClaimName, with_node: bool, now: Timestamp) {
        self.advance_clock(now);
        let claim = self.store.claims().get(name).cloned();
        self.forget_claim(name);
        let provider = claim.as_ref().filter(|_| with_node).and_then(|claim| claim.status.provider_id.as_ref());
        if let Some(node) = provider.and_then(|id| self.store.node_by_provider_id(id)).cloned() {
            self.take_node(&node.name);
        }
    }

    /// A NodeClaim is deleted and created again from a backup, with its annotations and a new UID.
    pub fn recreate_claim(&mut self, name: &ClaimName, with_status: bool, now: Timestamp) {
        self.advance_clock(now);
        if let Some(claim) = self.store.claims().get(name).cloned() {
            let status = if with_status { claim.status.clone() } else { ClaimStatus::default() };
            self.forget_claim(name);
            let uid = self.ids.uid();
            self.put_claim(Claim { uid, created_at: now, deleting_at: None, status, ..Claim::clone(&claim) });
        }
    }

    /// OrphanRecords are restored from a backup.
    pub fn restore_records(&mut self, records: Arc<OrphanRecords>) {
        self.store.records = Arc::clone(&records);
        self.deltas.push(Delta::Records(records));
    }

    /// The API server is recreated: NodeClaims, Nodes, PersistentVolumes, their claims and attachments are lost, and
    /// with them the pods on the nodes. Nodes of the system pool, NodePools, OrphanSweeps, workloads and records are
    /// restored from Git and backups. No disk is deleted.
    pub fn empty(&mut self, now: Timestamp) {
        self.advance_clock(now);
        let claims: Vec<ClaimName> = self.store.claims().iter().map(|(k, _)| k.clone()).collect();
        claims.iter().for_each(|name| self.forget_claim(name));
        self.forget_volume_claims();
        let volumes: Vec<ObjectName> = self.store.volumes().iter().map(|(k, _)| k.clone()).collect();
        volumes.iter().for_each(|name| self.take_volume(name));
        let others = self.store.nodes().values().filter(|node| !is_of_system_pool(node));
        let nodes: Vec<NodeName> = others.map(|node| node.name.clone()).collect();
        nodes.iter().for_each(|name| self.take_node(name));
    }
}

fn is_of_system_pool(node: &Node) -> bool {
    node.label(labels::MODE) == Some("system")
}

/// Name and VM of the scale-set instance that replaces this one, with an index so much higher.
fn successor(node: &Node, higher: usize) -> Option<(NodeName, ProviderId)> {
    let (set, index) = node.provider_id.as_ref()?.vm().as_str().rsplit_once('/')?;
    let index = index.parse::<usize>().ok()? + higher;
    let vm = ArmId::new(format!("{set}/{index}")).ok()?;
    let (prefix, _) = node.name.as_str().split_at_checked(node.name.as_str().len().checked_sub(6)?)?;
    Some((NodeName::new(format!("{prefix}{index:06}")).ok()?, ProviderId::of_vm(&vm)))
}
