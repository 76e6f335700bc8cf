//! The actions of a scenario's steps.
//!
//! Each action is what users, Azure or bad luck do. Actions are data, read from a scenario file.

mod azure;
mod cluster;
mod controller_faults;
mod external_edits;
pub(crate) mod fields;
mod finalizer_faults;
mod identity_faults;
mod injected_faults;
mod load;
mod node_faults;
mod restore_faults;

use super::controller::WriteSide;
use crate::cloud::{FaultDuration, Shortage};
use crate::cluster::Propagation;
use crate::workload::Rollout;
pub use controller_faults::ControllerFault;
pub use external_edits::{ExternalEdit, TagEdit};
pub use finalizer_faults::FinalizerFault;
pub use identity_faults::IdentityFault;
pub(super) use injected_faults::InjectedState;
pub use injected_faults::{InjectedFault, SoleUser};
use jiff::SignedDuration;
pub(crate) use load::LoadTargets;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::node::ConditionStatus;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{ArmId, NodePoolName, ObjectKey, ObjectName, VmSize, Zone};
use napkeeper_core::model::orphans::sweep::SweepMode;
use napkeeper_core::model::settings::PauseKey;
pub use node_faults::{FaultyNodes, IntentEdit, NodeFault, OtherImage};
pub use restore_faults::RestoreFault;
use serde::Deserialize;
use std::sync::Arc;

/// Something that happens to the world at a time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// The replicas of a workload change.
    Scale {
        /// Namespace and name.
        #[serde(deserialize_with = "fields::key")]
        workload: ObjectKey,
        /// Replicas, or the parallelism of a Job.
        replicas: u32,
    },
    /// A suspended Job of the manifests is run once, under a separate name.
    StartJob {
        /// Namespace and name.
        #[serde(deserialize_with = "fields::key")]
        workload: ObjectKey,
    },
    /// A workload is deleted.
    Delete {
        /// Namespace and name.
        #[serde(deserialize_with = "fields::key")]
        workload: ObjectKey,
    },
    /// The replicas of a static NodePool change in Git.
    ScalePool {
        /// Its name.
        pool: NodePoolName,
        /// `spec.replicas`.
        replicas: u64,
    },
    /// The node label of a NodePool changes in Git: its existing nodes have drifted.
    LabelPool {
        /// Its name.
        pool: NodePoolName,
        /// Key of the label.
        label: Arc<str>,
        /// Its value.
        value: Arc<str>,
    },
    /// A NodePool is deleted, as when it is removed from Git.
    DeletePool {
        /// Its name.
        pool: NodePoolName,
        /// What becomes of what it owns (`propagationPolicy`).
        #[serde(default)]
        propagation: Propagation,
    },
    /// The control plane gets another version of Kubernetes.
    UpgradeKubernetes {
        /// The version, for example `v1.34.1`.
        version: Arc<str>,
        /// New nodes have it too, as with an image that follows; without this they keep the version of before.
        #[serde(default)]
        new_nodes: bool,
    },
    /// Azure takes spot VMs back.
    EvictSpot {
        /// How many.
        count: usize,
    },
    /// Azure takes spot VMs back, and the Node Problem Detector of AKS announces it on their Nodes some 30 s ahead.
    EvictSpotAnnounced {
        /// How many.
        count: usize,
    },
    /// A condition of a Node changes, as the Node Problem Detector of AKS reports it.
    SetNodeCondition {
        /// Which managed Node, counted in the order of names, modulo their number.
        nth: usize,
        /// Type of the condition.
        #[serde(rename = "type")]
        kind: Arc<str>,
        /// Its status.
        status: ConditionStatus,
        /// Its message.
        message: Arc<str>,
        /// How long after it the event begins that it announces, if it says that.
        #[serde(rename = "beginsIn", default, deserialize_with = "fields::some_duration")]
        begins_in: Option<SignedDuration>,
    },
    /// Azure's quotas change.
    Quota {
        /// Cores at the full price of a VM family.
        #[serde(default)]
        family: Option<Arc<str>>,
        /// The capacity type of the regional quota, if no family is named.
        #[serde(default)]
        capacity_type: Option<CapacityType>,
        /// Cores; absent lifts the quota.
        #[serde(default)]
        cores: Option<u32>,
    },
    /// A group of capacity reservations has VMs of a size in a zone from now on.
    Reserve {
        /// The group, by its id; an AKSNodeClass names it.
        #[serde(deserialize_with = "fields::group")]
        group: ArmId,
        /// The size.
        size: VmSize,
        /// The zone; absent is none.
        #[serde(default)]
        zone: Option<Zone>,
        /// How many; absent releases them.
        #[serde(default)]
        capacity: Option<u64>,
    },
    /// Azure refuses some offerings at once (`SkuNotAvailable`).
    Refuse(ShortageSpec),
    /// Azure accepts some offerings and then finds no hardware (`AllocationFailed`).
    NoCapacity(ShortageSpec),
    /// Azure answers 429 for a while.
    Throttle {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "fields::duration")]
        duration: SignedDuration,
    },
    /// Azure answers 500 for a while.
    AzureDown {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "fields::duration")]
        duration: SignedDuration,
    },
    /// The API server cannot be reached for a while.
    ApiServerDown {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "fields::duration")]
        duration: SignedDuration,
    },
    /// The last page of Azure's listings cannot be read for a while.
    BrokenListing {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "fields::duration")]
        duration: SignedDuration,
    },
    /// A NIC is left over from a deleted NodeClaim: tagged with this cluster and the claim's UID.
    LeakNic {
        /// Its name.
        name: ObjectName,
    },
    /// A foreign VM runs in the group, with NIC and OS disk.
    ForeignVm {
        /// Its name.
        name: ObjectName,
    },
    /// A PersistentVolume with its disk.
    AddVolume {
        /// Its name; the disk has the same.
        name: ObjectName,
        /// The PersistentVolumeClaim that it is bound to.
        #[serde(default, deserialize_with = "fields::some_key")]
        claim: Option<ObjectKey>,
        /// What becomes of the disk.
        reclaim: ReclaimPolicy,
        /// Size in GiB.
        size_gib: u32,
    },
    /// A PersistentVolume is removed with its finalizers: its disk remains.
    LoseVolume {
        /// Its name.
        name: ObjectName,
    },
    /// The API server loses NodeClaims, managed Nodes, PersistentVolumes and pods, as after a restore from an old
    /// backup.
    EmptyApiServer {},
    /// An approval of everything that waits for one is merged.
    Approve {},
    /// `breaker.clearedAt` is merged.
    ClearBreaker {},
    /// The pause switch is set.
    Pause {
        /// Its keys; an empty list lifts the pause.
        #[serde(deserialize_with = "fields::pause_keys")]
        switches: Vec<PauseKey>,
        /// For how long; absent is until the next such step.
        #[serde(rename = "for", default, deserialize_with = "fields::some_duration")]
        duration: Option<SignedDuration>,
    },
    /// The mode of every OrphanSweep changes.
    SweepMode {
        /// The mode.
        mode: SweepMode,
    },
    /// A NodeClaim is deleted with kubectl.
    DeleteClaim {
        /// Which, counted in the order of names, modulo their number.
        nth: usize,
    },
    /// A Node is deleted with kubectl.
    DeleteNode {
        /// Which managed Node, counted in the order of names, modulo their number.
        nth: usize,
    },
    /// A resource of the cluster becomes foreign: all its tags change.
    TakeOver {
        /// Which resource, counted in the order of ids, modulo their number.
        nth: usize,
        /// Of this kind.
        kind: ResourceKind,
    },
    /// VMs leave NIC and OS disk behind when they are deleted, `deleteOption` or not.
    KeepChildren {
        /// From now on, or no longer.
        on: bool,
    },
    /// Listings spell some ids in capitals.
    ShoutingIds {
        /// From now on, or no longer.
        on: bool,
    },
    /// The group is another cluster's by its `managedBy`.
    Misdirect {
        /// From now on, or no longer.
        on: bool,
    },
    /// A Deployment gets another template: no step of a scenario file.
    #[serde(skip)]
    Rollout {
        /// Namespace and name.
        workload: ObjectKey,
        /// The change, and how it is rolled out.
        rollout: Rollout,
    },
    /// A fault that only the fault search injects.
    #[serde(skip)]
    InjectFault(InjectedFault),
    /// The controller crashes.
    Crash {
        /// It is down this long.
        #[serde(rename = "for", deserialize_with = "fields::duration")]
        duration: SignedDuration,
        /// At its next write, on this side of it; absent is at once, between two writes.
        #[serde(default)]
        write: Option<WriteSide>,
    },
}

/// Offerings that cannot be had, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShortageSpec {
    /// Of this size; absent is any.
    #[serde(default)]
    pub size: Option<VmSize>,
    /// In this zone; absent is any.
    #[serde(default)]
    pub zone: Option<Zone>,
    /// LaunchReason this way; absent is any.
    #[serde(default)]
    pub capacity_type: Option<CapacityType>,
    /// For how long; absent is for the next VM.
    #[serde(default, rename = "for", deserialize_with = "fields::some_duration")]
    pub duration: Option<SignedDuration>,
}

impl Action {
    /// How the steps of a scenario file are called.
    pub const NAMES: [&str; 34] = [
        "scale",
        "startJob",
        "delete",
        "scalePool",
        "labelPool",
        "deletePool",
        "upgradeKubernetes",
        "evictSpot",
        "evictSpotAnnounced",
        "setNodeCondition",
        "quota",
        "reserve",
        "refuse",
        "noCapacity",
        "throttle",
        "azureDown",
        "apiServerDown",
        "brokenListing",
        "leakNic",
        "foreignVm",
        "addVolume",
        "loseVolume",
        "emptyApiServer",
        "approve",
        "clearBreaker",
        "pause",
        "sweepMode",
        "deleteClaim",
        "deleteNode",
        "takeOver",
        "keepChildren",
        "shoutingIds",
        "misdirect",
        "crash",
    ];
}

impl ShortageSpec {
    pub(crate) fn shortage(&self, now: jiff::Timestamp) -> Shortage {
        let duration = self.duration.map_or(FaultDuration::Times(1), |time| FaultDuration::Until(now + time));
        Shortage { size: self.size.clone(), zone: self.zone.clone(), capacity_type: self.capacity_type, duration }
    }
}
