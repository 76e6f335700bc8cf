//! The Snapshot: everything that the deciders know at one instant, with indexes.
//!
//! Cheap to clone: tables share their rows until one side changes. The indexes are updated with every change, so that a
//! decision after one event does not read twenty thousand pods; [`Snapshot::reindexed`] rebuilds them, and a test
//! compares the two.

mod command_key;
pub mod delta;
mod index;
mod overlays;
mod pending_pods;
mod pools;
pub mod spread_defaults;
mod table;
#[cfg(test)]
mod tests;
pub mod volume_needs;
mod volumes;

use self::index::{Index, add_name, remove_name};
use crate::catalog::InstanceTypes;
use crate::catalog::live::{Fact, InfrastructureFacts, Quota};
use crate::catalog::overlay::Overlay;
use crate::model::amounts::resources::Resources;
use crate::model::azure::inventory::Inventory;
use crate::model::cluster::buffer::Buffer;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::disruption_budget::{EvictionBlocker, PodDisruptionBudget};
use crate::model::cluster::launch_hold::{LaunchHold, PoolHold};
use crate::model::cluster::node::Node;
use crate::model::cluster::node_base::NodeBase;
use crate::model::cluster::pod::{Labels, Pod, PodShape};
use crate::model::cluster::pool::{DaemonSet, NodeClass, NodePool};
use crate::model::cluster::status::{InvalidClass, InvalidOverlay, InvalidPool};
use crate::model::cluster::volume::{AttachLimits, Attachment, StorageClass, Volume, VolumeClaim};
use crate::model::names::{
    ArmId, ClaimName, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName, ProviderId,
};
use crate::model::orphans::record::OrphanRecords;
use crate::model::orphans::sweep::{Sweep, UnreadableSweeps};
use crate::model::settings::{Pause, PauseSwitch};
use crate::snapshot::spread_defaults::SchedulerProfiles;
pub use command_key::CommandKey;
pub use index::{NodeUsage, PendingShapes, ShapeCount};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use table::Table;

/// All that the deciders know at one instant.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pods: Table<ObjectKey, Pod>,
    nodes: Table<NodeName, Node>,
    claims: Table<ClaimName, Claim>,
    pools: Table<NodePoolName, NodePool>,
    classes: Table<NodeClassName, NodeClass>,
    invalid_pools: Table<NodePoolName, InvalidPool>,
    invalid_classes: Table<NodeClassName, InvalidClass>,
    daemon_sets: Table<ObjectKey, DaemonSet>,
    disruption_budgets: Table<ObjectKey, PodDisruptionBudget>,
    sweeps: Table<ObjectName, Sweep>,
    volumes: Table<ObjectName, Volume>,
    /// By disk. A restart forgets them.
    unrecorded_retained_volumes: BTreeMap<ArmId, Arc<Volume>>,
    volume_claims: Table<ObjectKey, VolumeClaim>,
    storage_classes: Table<ObjectName, StorageClass>,
    attach_limits: Table<NodeName, AttachLimits>,
    attachments: Table<ObjectName, Attachment>,
    namespaces: Table<Namespace, Labels>,
    services: Table<ObjectKey, Labels>,
    schedulers: Table<ObjectName, SchedulerProfiles>,
    overlays: Table<ObjectName, Overlay>,
    invalid_overlays: Table<ObjectName, InvalidOverlay>,
    buffers: Table<ObjectKey, Buffer>,
    /// Instance types by AKSNodeClass, computed where class or catalogue changes.
    pub instance_types: BTreeMap<NodeClassName, InstanceTypes>,
    /// OrphanSweeps whose current version cannot be read, and why. The last readable version, if any, is among the
    /// sweeps.
    pub unreadable_sweeps: UnreadableSweeps,
    /// The durable records of sweeps.
    pub records: Arc<OrphanRecords>,
    /// The last complete inventory since the start, if any.
    pub inventory: Option<Arc<Inventory>>,
    /// Commands that the executor is busy with.
    pub in_progress: BTreeSet<CommandKey>,
    /// The pause switch.
    pub pause: Pause,
    /// Why nothing is launched in this cluster, if it must not be.
    pub launch_hold: Option<LaunchHold>,
    /// NodePools whose nodes did not come up, and how they may launch now.
    pub pool_holds: BTreeMap<NodePoolName, PoolHold>,
    /// Azure's vCPU quotas; `None` where they are not known, and then nothing is limited.
    pub quota: Option<Arc<Quota>>,
    /// CapacityBuffers have not been read yet, so the capacity to keep free is not known.
    pub buffers_unsynced: bool,
    /// Subnet addresses, reservations and locks, as last known.
    pub infrastructure: Arc<InfrastructureFacts>,
    /// What nodes are made from beside their NodePool and AKSNodeClass.
    pub node_base: Arc<NodeBase>,
    /// Grows when quota, subnets, reservations or instance types change: unschedulable pods may be schedulable then.
    facts_generation: u64,
    index: Index,
}

/// Read access to a table, and its upsert and removal, for kinds without an index.
macro_rules! plain_table {
    ($field:ident, $key:ty, $row:ty, $put:ident, $remove:ident, $rows:literal) => {
        #[doc = concat!("All ", $rows, ".")]
        #[must_use]
        pub fn $field(&self) -> &Table<$key, $row> {
            &self.$field
        }

        #[doc = concat!("Adds or replaces one of the ", $rows, ".")]
        pub fn $put(&mut self, key: $key, row: impl Into<Arc<$row>>) {
            self.$field.put(key, row.into());
        }

        #[doc = concat!("Removes one of the ", $rows, ".")]
        pub fn $remove(&mut self, key: &$key) {
            self.$field.remove(key);
        }
    };
}

impl Snapshot {
    plain_table!(buffers, ObjectKey, Buffer, put_buffer, remove_buffer, "CapacityBuffers");
    plain_table!(daemon_sets, ObjectKey, DaemonSet, put_daemon_set, remove_daemon_set, "DaemonSets");
    plain_table!(
        disruption_budgets,
        ObjectKey,
        PodDisruptionBudget,
        put_disruption_budget,
        remove_disruption_budget,
        "PodDisruptionBudgets"
    );
    plain_table!(sweeps, ObjectName, Sweep, put_sweep, remove_sweep, "OrphanSweeps");
    plain_table!(
        volume_claims,
        ObjectKey,
        VolumeClaim,
        put_volume_claim,
        remove_volume_claim,
        "PersistentVolumeClaims"
    );
    plain_table!(storage_classes, ObjectName, StorageClass, put_storage_class, remove_storage_class, "StorageClasses");
    plain_table!(attachments, ObjectName, Attachment, put_attachment, remove_attachment, "VolumeAttachments");
    plain_table!(attach_limits, NodeName, AttachLimits, put_attach_limits, remove_attach_limits, "CSINodes");
    plain_table!(namespaces, Namespace, Labels, put_namespace, remove_namespace, "Namespaces, by their labels");
    plain_table!(services, ObjectKey, Labels, put_service, remove_service, "Services, by their selectors");
    plain_table!(schedulers, ObjectName, SchedulerProfiles, put_scheduler, remove_scheduler, "SchedulerConfigurations");

    /// True while nothing may be launched: by the pause switch, or by [`LaunchHold`].
    #[must_use]
    pub fn holds_launches(&self, now: Timestamp) -> bool {
        self.pause.blocks(PauseSwitch::Launch, now) || self.launch_hold.is_some()
    }

    /// Grows with every change that affects the needs of pods: volumes and their classes, namespaces, and the sources
    /// of default spread constraints.
    #[must_use]
    pub fn needs_generation(&self) -> u64 {
        let volumes = self.volumes.generation() + self.volume_claims.generation() + self.storage_classes.generation();
        let spread = self.services.generation() + self.schedulers.generation();
        volumes + spread + self.attach_limits.generation() + self.namespaces.generation()
    }

    /// Why the eviction API would refuse to evict a pod now; `None` if it would not.
    #[must_use]
    pub fn eviction_blocker(&self, pod: &Pod) -> Option<EvictionBlocker> {
        let budgets = self.disruption_budgets.of_namespace(&pod.key.namespace);
        EvictionBlocker::of(pod, budgets.map(|budget| &**budget))
    }

    /// The VolumeAttachments of a node.
    pub fn attachments_of(&self, node: &NodeName) -> impl Iterator<Item = &Arc<Attachment>> {
        self.attachments.values().filter(move |attachment| attachment.node == *node)
    }

    /// The PodDisruptionBudgets that protect a pod.
    pub fn budgets_of(&self, pod: &Pod) -> impl Iterator<Item = &Arc<PodDisruptionBudget>> {
        self.disruption_budgets.of_namespace(&pod.key.namespace).filter(|budget| budget.protects(pod))
    }

    /// All pods.
    #[must_use]
    pub fn pods(&self) -> &Table<ObjectKey, Pod> {
        &self.pods
    }

    /// The pods of a namespace.
    pub fn pods_of(&self, namespace: &Namespace) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.of_namespace(namespace)
    }

    /// All nodes, including unmanaged ones.
    #[must_use]
    pub fn nodes(&self) -> &Table<NodeName, Node> {
        &self.nodes
    }

    /// All NodeClaims.
    #[must_use]
    pub fn claims(&self) -> &Table<ClaimName, Claim> {
        &self.claims
    }

    /// Usage of a node by its pods; `None` when it has none.
    #[must_use]
    pub fn node_usage(&self, node: &NodeName) -> Option<&NodeUsage> {
        self.index.usage.get(node).map(Arc::as_ref)
    }

    /// What pods may still request of a node.
    #[must_use]
    pub fn free_capacity(&self, node: &Node) -> Resources {
        let usage = self.node_usage(&node.name);
        usage.map_or_else(|| node.allocatable.clone(), |usage| node.allocatable.minus(&usage.pod_requests))
    }

    /// The pods that are bound to a node.
    pub fn pods_on(&self, node: &NodeName) -> impl Iterator<Item = &Arc<Pod>> {
        self.node_usage(node).into_iter().flat_map(|usage| &usage.pods).filter_map(|key| self.pods.get(key))
    }

    /// The shapes of pods on any node that have not ended.
    pub(crate) fn bound_shapes(&self) -> impl Iterator<Item = &Arc<PodShape>> {
        self.index.usage.values().flat_map(|usage| usage.shapes.keys())
    }

    /// Pods without a node that kube-scheduler makes room for by preemption.
    pub(crate) fn nominated_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.index.nominated.iter().filter_map(|key| self.pods.get(key))
    }

    /// The provisionable pods, by shape.
    #[must_use]
    pub fn pending(&self) -> &PendingShapes {
        &self.index.pending
    }

    /// The node with this provider id; the first by name where several have it.
    #[must_use]
    pub fn node_by_provider_id(&self, provider: &ProviderId) -> Option<&Arc<Node>> {
        self.nodes.get(self.index.node_by_provider.get(provider)?.first()?)
    }

    /// The node of a NodeClaim; `None` while its VM has not joined.
    #[must_use]
    pub fn node_of(&self, claim: &Claim) -> Option<&Arc<Node>> {
        self.node_by_provider_id(claim.status.provider_id.as_ref()?)
    }

    /// The NodeClaim with this provider id; the first by name where several have it.
    #[must_use]
    pub fn claim_by_provider_id(&self, provider: &ProviderId) -> Option<&Arc<Claim>> {
        self.claims.get(self.index.claim_by_provider.get(provider)?.first()?)
    }

    /// The NodeClaim of a Node; `None` where it has lost it, or never had one.
    #[must_use]
    pub fn claim_of(&self, node: &Node) -> Option<&Arc<Claim>> {
        self.claim_by_provider_id(node.provider_id.as_ref()?)
    }

    /// Learns how many cores Azure sells now.
    pub fn set_quota(&mut self, quota: Option<Arc<Quota>>) {
        let same = match (&self.quota, &quota) {
            (Some(old), Some(new)) => old.same_usages(new),
            (old, new) => old.is_none() && new.is_none(),
        };
        self.facts_generation += u64::from(!same);
        self.quota = quota;
    }

    /// Sets the facts about the node resource group and its region.
    pub fn set_infrastructure(&mut self, infrastructure: Arc<InfrastructureFacts>) {
        fn same<T: PartialEq>(old: Option<&Fact<T>>, new: Option<&Fact<T>>) -> bool {
            old.map(|fact| &fact.value) == new.map(|fact| &fact.value)
        }
        let (old, new) = (&self.infrastructure, &infrastructure);
        let same = same(old.subnets.as_ref(), new.subnets.as_ref())
            && same(old.reservations.as_ref(), new.reservations.as_ref());
        self.facts_generation += u64::from(!same);
        self.infrastructure = infrastructure;
    }

    /// Forgets the instance types of all classes, because their catalogue has changed.
    pub fn invalidate_instance_types(&mut self) {
        self.facts_generation += 1;
        self.instance_types.clear();
    }

    /// Grows with every change of quota, addresses in subnets and reservations, catalogue or overlays.
    #[must_use]
    pub fn facts_generation(&self) -> u64 {
        self.facts_generation + self.overlays.generation()
    }

    /// Adds or replaces a pod.
    pub fn put_pod(&mut self, pod: impl Into<Arc<Pod>>) {
        let pod = pod.into();
        if let Some(old) = self.pods.put(pod.key.clone(), Arc::clone(&pod)) {
            self.index.remove_pod(&old);
        }
        self.index.add_pod(&pod);
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, key: &ObjectKey) {
        if let Some(old) = self.pods.remove(key) {
            self.index.remove_pod(&old);
        }
    }

    /// Adds or replaces a node.
    pub fn put_node(&mut self, node: impl Into<Arc<Node>>) {
        let node = node.into();
        let old = self.nodes.put(node.name.clone(), Arc::clone(&node));
        if let Some(id) = old.and_then(|n| n.provider_id.clone()) {
            remove_name(&mut self.index.node_by_provider, &id, &node.name);
        }
        if let Some(id) = &node.provider_id {
            add_name(&mut self.index.node_by_provider, id, &node.name);
        }
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &NodeName) {
        if let Some(id) = self.nodes.remove(name).and_then(|n| n.provider_id.clone()) {
            remove_name(&mut self.index.node_by_provider, &id, name);
        }
    }

    /// Adds or replaces a NodeClaim. If it only says something else by which nothing is decided, what is computed from the
    /// NodeClaims stays.
    pub fn put_claim(&mut self, claim: impl Into<Arc<Claim>>) {
        let claim = claim.into();
        if self.claims.get(&claim.name).is_some_and(|known| known.is_decided_like(&claim)) {
            let name = claim.name.clone();
            return self.claims.put_status(&name, claim);
        }
        let old = self.claims.put(claim.name.clone(), Arc::clone(&claim));
        if let Some(id) = old.and_then(|c| c.status.provider_id.clone()) {
            remove_name(&mut self.index.claim_by_provider, &id, &claim.name);
        }
        if let Some(id) = &claim.status.provider_id {
            add_name(&mut self.index.claim_by_provider, id, &claim.name);
        }
    }

    /// Removes a NodeClaim.
    pub fn remove_claim(&mut self, name: &ClaimName) {
        if let Some(id) = self.claims.remove(name).and_then(|c| c.status.provider_id.clone()) {
            remove_name(&mut self.index.claim_by_provider, &id, name);
        }
    }

    /// The same Snapshot with its indexes rebuilt. They must equal the incrementally updated ones.
    #[must_use]
    pub fn reindexed(&self) -> Self {
        let mut fresh = self.clone();
        fresh.index = Index::default();
        for pod in self.pods.values() {
            fresh.index.add_pod(pod);
        }
        let nodes = self.nodes.values().filter_map(|node| Some((node.provider_id.as_ref()?, &node.name)));
        nodes.for_each(|(id, name)| add_name(&mut fresh.index.node_by_provider, id, name));
        let claims = self.claims.values().filter_map(|claim| Some((claim.status.provider_id.as_ref()?, &claim.name)));
        claims.for_each(|(id, name)| add_name(&mut fresh.index.claim_by_provider, id, name));
        fresh
    }

    /// True when both Snapshots have the same indexes.
    #[must_use]
    pub fn same_indexes(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
