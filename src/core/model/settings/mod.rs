//! Settings of the deciders.

mod deletion_rules;
mod maintenance_window;
mod node_health;
mod pause;

use super::names::{ArmId, Region};
pub use deletion_rules::{DeletionRule, DeletionRules};
use jiff::SignedDuration;
pub use maintenance_window::{MaintenanceHold, MaintenanceSchedule, MaintenanceWindow, MaintenanceWindows, WeekIndex};
pub use node_health::{
    NODE_READY, NodeHealthAction, NodeHealthRule, NodeHealthRules, NodeSign, PREEMPTION_SCHEDULED, VM_EVENT_SCHEDULED,
};
pub use pause::{DisruptionScope, Pause, PauseEnd, PauseKey, PauseSwitch, Paused};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Settings of the deciders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which cluster this is.
    pub cluster: ClusterIdentity,
    /// What the deciders may do beside managed NAP or instead of it.
    pub mode: ControllerMode,
    /// Quiet time after which waiting pods are placed.
    pub batch_idle_duration: SignedDuration,
    /// Longest that pods wait to be placed together.
    pub batch_max_duration: SignedDuration,
    /// How `minValues` of pools are applied.
    pub min_values_policy: MinValuesPolicy,
    /// How often disruption is considered.
    pub disruption_poll_interval: SignedDuration,
    /// How long before the end of `expireAfter` nodes are replaced at most; a tenth of `expireAfter` where that is less.
    pub expiry_lead: SignedDuration,
    /// Threads that search for a node to consolidate. The result does not depend on their number.
    pub consolidation_threads: NonZeroUsize,
    /// A NodeClaim without a VM after this time has failed.
    pub launch_timeout: SignedDuration,
    /// A NodeClaim whose Node has not joined after this time has failed.
    pub registration_timeout: SignedDuration,
    /// A NodeClaim whose Node has not become ready for pods this long after it joined has failed.
    pub initialization_timeout: SignedDuration,
    /// The agent pool in which NodeClaims become Machines of AKS; experimental. `None` is VMs of our own.
    pub aks_machine_pool: Option<ArmId>,
    /// Nodes that we launch are counted by AKS: their VMs get its extension.
    pub billing_extension: bool,
    /// When rolls of the image of nodes and of the Kubernetes version may begin.
    pub maintenance_windows: MaintenanceWindows,
    /// The deletion rules.
    pub deletion_rules: DeletionRules,
    /// Which nodes are unhealthy or about to be lost.
    pub node_health: Arc<NodeHealthRules>,
}

/// Which cluster this is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterIdentity {
    /// The managed cluster.
    pub id: ArmId,
    /// Value of the cluster tag on resources of this cluster.
    pub tag_value: Arc<str>,
    /// The node resource group, `/subscriptions/…/resourceGroups/…`.
    pub node_resource_group: ArmId,
    /// The region.
    pub region: Region,
}

/// What the deciders may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerMode {
    /// Beside managed NAP: report on VMs, sweep NICs and disks, launch nothing.
    Companion,
    /// Instead of it.
    Provisioner,
}

/// How long before the end of `expireAfter` nodes are replaced at most, unless `napkeeper.yaml` says otherwise.
pub const DEFAULT_EXPIRY_LEAD: SignedDuration = SignedDuration::from_hours(24);

impl Settings {
    /// Karpenter's defaults: batch window 1 s to 10 s, disruption every 10 s, launch within 5 min, registration within
    /// 15 min (`karpenter-core` v1.14, operator options and nodeclaim liveness). Karpenter has no limit for what follows;
    /// drivers that startup taints wait for may take a quarter of an hour.
    #[must_use]
    pub fn new(cluster: ClusterIdentity) -> Self {
        Self {
            cluster,
            mode: ControllerMode::Provisioner,
            batch_idle_duration: SignedDuration::from_secs(1),
            batch_max_duration: SignedDuration::from_secs(10),
            min_values_policy: MinValuesPolicy::Strict,
            disruption_poll_interval: SignedDuration::from_secs(10),
            expiry_lead: DEFAULT_EXPIRY_LEAD,
            maintenance_windows: MaintenanceWindows::default(),
            consolidation_threads: NonZeroUsize::MIN,
            launch_timeout: SignedDuration::from_mins(5),
            registration_timeout: SignedDuration::from_mins(15),
            initialization_timeout: SignedDuration::from_mins(30),
            aks_machine_pool: None,
            billing_extension: false,
            deletion_rules: DeletionRules::all(),
            node_health: Arc::default(),
        }
    }
}

/// How `minValues` of pools are applied (Karpenter's `--min-values-policy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinValuesPolicy {
    /// The pool launches no node for them.
    #[default]
    Strict,
    /// It launches one, with as many values as are available for its first pod.
    BestEffort,
}
