//! Watch events applied to the Snapshot.

use super::Snapshot;
use crate::catalog::overlay::Overlay;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Labels, Pod};
use crate::model::cluster::pool::{DaemonSet, NodeClass, NodePool};
use crate::model::cluster::status::{InvalidClass, InvalidOverlay, InvalidPool};
use crate::model::cluster::volume::{AttachLimits, Attachment, StorageClass, Volume, VolumeClaim};
use crate::model::names::{ClaimName, Namespace, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName};
use crate::model::orphans::record::OrphanRecords;
use crate::model::orphans::sweep::{Sweep, UnreadableSweeps};
use crate::model::settings::Pause;
use crate::snapshot::spread_defaults::SchedulerProfiles;
use std::sync::Arc;

/// One change of one object: its new state, or its deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// A pod is new or has changed.
    Pod(Arc<Pod>),
    /// A pod was deleted.
    PodGone(ObjectKey),
    /// A node is new or has changed.
    Node(Arc<Node>),
    /// A node was deleted.
    NodeGone(NodeName),
    /// A NodeClaim is new or has changed.
    Claim(Arc<Claim>),
    /// A NodeClaim was deleted.
    ClaimGone(ClaimName),
    /// A NodePool is new or has changed.
    Pool(Arc<NodePool>),
    /// A NodePool cannot be used, or is wrong in another way than before.
    InvalidPool(Arc<InvalidPool>),
    /// A NodePool was deleted.
    PoolGone(NodePoolName),
    /// An AKSNodeClass is new or has changed.
    Class(Arc<NodeClass>),
    /// An AKSNodeClass cannot be read, or is wrong in another way than before.
    InvalidClass(Arc<InvalidClass>),
    /// An AKSNodeClass was deleted.
    ClassGone(NodeClassName),
    /// A DaemonSet is new or has changed.
    DaemonSet(ObjectKey, Arc<DaemonSet>),
    /// A DaemonSet was deleted.
    DaemonSetGone(ObjectKey),
    /// A PodDisruptionBudget is new or has changed, or what it allows.
    DisruptionBudget(Arc<PodDisruptionBudget>),
    /// A PodDisruptionBudget was deleted.
    DisruptionBudgetGone(ObjectKey),
    /// An OrphanSweep is new or has changed.
    Sweep(Arc<Sweep>),
    /// An OrphanSweep was deleted.
    SweepGone(ObjectName),
    /// Other OrphanSweeps than before cannot be read: all of them.
    UnreadableSweeps(UnreadableSweeps),
    /// A PersistentVolume is new or has changed.
    Volume(Arc<Volume>),
    /// A PersistentVolume was deleted.
    VolumeGone(ObjectName),
    /// A PersistentVolumeClaim is new or has changed.
    VolumeClaim(Arc<VolumeClaim>),
    /// A PersistentVolumeClaim was deleted.
    VolumeClaimGone(ObjectKey),
    /// A StorageClass is new or has changed.
    StorageClass(Arc<StorageClass>),
    /// A StorageClass was deleted.
    StorageClassGone(ObjectName),
    /// A VolumeAttachment is new or has changed.
    Attachment(Arc<Attachment>),
    /// A VolumeAttachment was deleted.
    AttachmentGone(ObjectName),
    /// The volume limits of a node are known, or have changed.
    AttachLimits(Arc<AttachLimits>),
    /// The volume limits of a node are not known any more.
    AttachLimitsGone(NodeName),
    /// A Namespace is new, or its labels have changed.
    Namespace(Namespace, Arc<Labels>),
    /// A Namespace was deleted.
    NamespaceGone(Namespace),
    /// A Service is new, or its selector has changed.
    Service(ObjectKey, Arc<Labels>),
    /// A Service was deleted.
    ServiceGone(ObjectKey),
    /// A SchedulerConfiguration is new or has changed.
    Scheduler(ObjectName, Arc<SchedulerProfiles>),
    /// A SchedulerConfiguration was deleted.
    SchedulerGone(ObjectName),
    /// A NodeOverlay is new or has changed.
    Overlay(Arc<Overlay>),
    /// A NodeOverlay cannot be read, or is wrong in another way than before.
    InvalidOverlay(Arc<InvalidOverlay>),
    /// A NodeOverlay was deleted.
    OverlayGone(ObjectName),
    /// The durable records have changed.
    Records(Arc<OrphanRecords>),
    /// The pause switch has changed.
    Pause(Pause),
}

/// Brings a Snapshot up to date with a change.
pub fn apply_delta(delta: &Delta, to: &mut Snapshot) {
    match delta {
        Delta::Pod(pod) => to.put_pod(Arc::clone(pod)),
        Delta::PodGone(key) => to.remove_pod(key),
        Delta::Node(node) => to.put_node(Arc::clone(node)),
        Delta::NodeGone(name) => to.remove_node(name),
        Delta::Claim(claim) => to.put_claim(Arc::clone(claim)),
        Delta::ClaimGone(name) => to.remove_claim(name),
        Delta::Pool(pool) => to.put_pool(pool.name.clone(), Arc::clone(pool)),
        Delta::InvalidPool(pool) => to.put_invalid_pool(Arc::clone(pool)),
        Delta::PoolGone(name) => to.remove_pool(name),
        Delta::Class(class) => to.put_class(class.name.clone(), Arc::clone(class)),
        Delta::InvalidClass(class) => to.put_invalid_class(Arc::clone(class)),
        Delta::ClassGone(name) => to.remove_class(name),
        Delta::DaemonSet(key, set) => to.put_daemon_set(key.clone(), Arc::clone(set)),
        Delta::DaemonSetGone(key) => to.remove_daemon_set(key),
        Delta::DisruptionBudget(budget) => to.put_disruption_budget(budget.key.clone(), Arc::clone(budget)),
        Delta::DisruptionBudgetGone(key) => to.remove_disruption_budget(key),
        Delta::Sweep(sweep) => to.put_sweep(sweep.name.clone(), Arc::clone(sweep)),
        Delta::SweepGone(name) => to.remove_sweep(name),
        Delta::UnreadableSweeps(sweeps) => to.unreadable_sweeps = sweeps.clone(),
        Delta::Volume(volume) => to.put_volume(volume.name.clone(), Arc::clone(volume)),
        Delta::VolumeGone(name) => to.remove_volume(name),
        Delta::VolumeClaim(claim) => to.put_volume_claim(claim.key.clone(), Arc::clone(claim)),
        Delta::VolumeClaimGone(key) => to.remove_volume_claim(key),
        Delta::StorageClass(class) => to.put_storage_class(class.name.clone(), Arc::clone(class)),
        Delta::StorageClassGone(name) => to.remove_storage_class(name),
        Delta::Attachment(attachment) => to.put_attachment(attachment.name.clone(), Arc::clone(attachment)),
        Delta::AttachmentGone(name) => to.remove_attachment(name),
        Delta::AttachLimits(limits) => to.put_attach_limits(limits.node.clone(), Arc::clone(limits)),
        Delta::AttachLimitsGone(node) => to.remove_attach_limits(node),
        Delta::Namespace(name, labels) => to.put_namespace(name.clone(), Arc::clone(labels)),
        Delta::NamespaceGone(name) => to.remove_namespace(name),
        Delta::Service(key, selector) => to.put_service(key.clone(), Arc::clone(selector)),
        Delta::ServiceGone(key) => to.remove_service(key),
        Delta::Scheduler(name, profiles) => to.put_scheduler(name.clone(), Arc::clone(profiles)),
        Delta::SchedulerGone(name) => to.remove_scheduler(name),
        Delta::Overlay(overlay) => to.put_overlay(overlay.name.clone(), Arc::clone(overlay)),
        Delta::InvalidOverlay(overlay) => to.put_invalid_overlay(Arc::clone(overlay)),
        Delta::OverlayGone(name) => to.remove_overlay(name),
        Delta::Records(records) => to.set_records(Arc::clone(records)),
        Delta::Pause(pause) => to.pause = pause.clone(),
    }
}
