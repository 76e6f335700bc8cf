//! NodePools and AKSNodeClasses.

use super::pod::{Labels, Taint};
use super::status::{Conditions, PoolDeletion, PoolStatus};
use crate::model::amounts::resources::Resources;
use crate::model::names::{ArmId, NodeClassName, NodePoolName, Uid};
use crate::model::requirements::Requirements;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A NodePool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePool {
    /// Name.
    pub name: NodePoolName,
    /// UID.
    pub uid: Uid,
    /// How far its deletion is.
    pub deletion: PoolDeletion,
    /// Higher is tried first; absent is 0.
    pub weight: i32,
    /// Which nodes it may make: requirements and template labels together.
    pub requirements: Requirements,
    /// Labels for its nodes.
    pub labels: Labels,
    /// Annotations for its nodes.
    pub annotations: Labels,
    /// Taints for its nodes.
    pub taints: Vec<Taint>,
    /// Taints that something else removes once a node is set up.
    pub startup_taints: Vec<Taint>,
    /// The AKSNodeClass.
    pub class: NodeClassName,
    /// Limits of all its nodes together, by resource name.
    pub limits: Limits,
    /// After this time a node is replaced; `None` is never.
    pub expire_after: Option<SignedDuration>,
    /// How long a drain may take; `None` is unlimited.
    pub termination_grace_period: Option<SignedDuration>,
    /// When nodes may be disrupted.
    pub disruption: Disruption,
    /// Fixed number of nodes: a static pool, which the scheduler does not use.
    pub replicas: Option<u64>,
    /// `metadata.generation`: it grows with every change of the spec.
    pub generation: i64,
    /// Its status, as far as it is ours.
    pub status: PoolStatus,
}

impl NodePool {
    /// True when nodes of both are made alike.
    #[must_use]
    pub fn has_template_of(&self, other: &Self) -> bool {
        let template = |pool: &'_ Self| {
            let Self { class, requirements, labels, annotations, taints, startup_taints, .. } = pool.clone();
            (class, requirements, labels, annotations, taints, startup_taints)
        };
        template(self) == template(other)
    }

    /// From when on a node may be consolidated whose pods have not changed since a time, by `consolidateAfter`. `None` with
    /// `Never`, of a fixed number of nodes, and where the deletion of the NodePool takes its nodes away.
    #[must_use]
    pub fn consolidatable_from(&self, quiet_since: Timestamp) -> Option<Timestamp> {
        let after = self.disruption.consolidate_after.filter(|_| self.replicas.is_none())?;
        quiet_since.saturating_add(after).ok().filter(|_| !self.deletion.takes_nodes())
    }

    /// True if both differ in nothing but their status: nothing is decided anew then.
    #[must_use]
    pub fn has_spec_of(&self, other: &Self) -> bool {
        let spec = |pool: &Self| Self { status: PoolStatus::default(), ..pool.clone() };
        spec(self) == spec(other)
    }
}

/// Limits of all nodes of a pool together. A resource without an entry is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Most nodes.
    pub nodes: Option<i64>,
    /// By resource name, in the units of [`Resources`].
    pub resources: BTreeMap<Arc<str>, i64>,
}

/// When nodes of a pool may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    /// Which nodes may be consolidated.
    pub policy: ConsolidationPolicy,
    /// Quiet time before a node may be consolidated; `None` is never.
    pub consolidate_after: Option<SignedDuration>,
    /// How many nodes may be disrupted at once.
    pub budgets: Vec<Budget>,
}

/// Which nodes may be consolidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsolidationPolicy {
    /// Only those without pods.
    WhenEmpty,
    /// Those without pods, and those whose pods fit elsewhere or on something cheaper.
    WhenEmptyOrUnderutilized,
    /// As before, but only where the saving outweighs the disruption.
    Balanced,
}

/// Why a node is disrupted within budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DisruptionReason {
    /// Its pods fit elsewhere or on something cheaper.
    Underutilized,
    /// It has no pods.
    Empty,
    /// It no longer matches its pool and class.
    Drifted,
    /// It is going to be older than `expireAfter`. Budgets for `Drifted` apply: it is replaced by one of the present.
    Expiring,
    /// Its NodePool is being deleted. Budgets for `Drifted` apply, as Git does not want it any more.
    NodePoolDeleted,
}

impl DisruptionReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Underutilized, Self::Empty, Self::Drifted, Self::Expiring, Self::NodePoolDeleted];

    /// The reason by which budgets know it; Karpenter's have no other.
    #[must_use]
    pub const fn in_budgets(self) -> Self {
        match self {
            Self::Underutilized | Self::Empty | Self::Drifted => self,
            Self::Expiring | Self::NodePoolDeleted => Self::Drifted,
        }
    }

    /// As in budgets and conditions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
            Self::Expiring => "Expiring",
            Self::NodePoolDeleted => "NodePoolDeleted",
        }
    }

    /// The category of deletions in metrics.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Underutilized => "underutilized",
            Self::Empty => "empty",
            Self::Drifted => "drifted",
            Self::Expiring => "expiring",
            Self::NodePoolDeleted => "nodepool_deleted",
        }
    }

    /// The reason of deletions of this category; `None` where budgets do not limit them.
    #[must_use]
    pub fn of_category(category: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.category() == category)
    }

    /// True where nodes are replaced or removed whatever that costs.
    #[must_use]
    pub const fn is_outdated(self) -> bool {
        matches!(self, Self::Drifted | Self::Expiring | Self::NodePoolDeleted)
    }
}

/// How many nodes may be disrupted at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// A number of nodes, or a percentage of the pool rounded up.
    pub nodes: BudgetNodes,
    /// Reasons that it limits; `None` is all.
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When it holds (cron, UTC) and for how long; `None` is always.
    pub window: Option<(Arc<str>, SignedDuration)>,
}

/// Size of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetNodes {
    /// A number of nodes.
    Count(u32),
    /// A percentage, 0 to 100.
    Percent(u32),
}

impl Budget {
    /// True when it limits disruption for this reason.
    #[must_use]
    pub fn covers(&self, reason: DisruptionReason) -> bool {
        self.reasons.as_ref().is_none_or(|r| r.is_empty() || r.contains(&reason.in_budgets()))
    }
}

impl BudgetNodes {
    /// True when it allows no node, however large the pool.
    #[must_use]
    pub fn is_none(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

/// An AKSNodeClass, as far as it decides about instance types and launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClass {
    /// Name.
    pub name: NodeClassName,
    /// UID.
    pub uid: Uid,
    /// Image family: `Ubuntu`, `Ubuntu2204`, `Ubuntu2404` or `AzureLinux`.
    pub image_family: Arc<str>,
    /// OS disk in GB.
    pub os_disk_gb: u32,
    /// Most pods on a node; `None` is the default of the network mode.
    pub max_pods: Option<u32>,
    /// Subnet for the nodes; `None` is the cluster's.
    pub subnet: Option<Arc<str>>,
    /// Capacity reservation group of its nodes.
    pub reservations: Option<ArmId>,
    /// Encryption at host is required.
    pub encryption_at_host: bool,
    /// vTPM or secure boot is enabled.
    pub trusted_launch: bool,
    /// Secure boot is enabled.
    pub secure_boot: bool,
    /// A virtual TPM is enabled.
    pub vtpm: bool,
    /// FIPS images are required.
    pub fips: bool,
    /// GPU drivers are installed.
    pub gpu_drivers: bool,
    /// Local DNS is required.
    pub local_dns: bool,
    /// Artifact streaming is enabled.
    pub artifact_streaming: bool,
    /// Tags for the VMs.
    pub tags: BTreeMap<Arc<str>, Arc<str>>,
    /// Fields that it sets and that are not supported for nodes that napkeeper launches itself, as spelled.
    pub unhonoured: Vec<Arc<str>>,
    /// `metadata.generation`: it grows with every change of the spec.
    pub generation: i64,
    /// Its conditions that are ours.
    pub conditions: Conditions,
}

impl NodeClass {
    /// A class with the API's defaults.
    #[must_use]
    pub fn with_defaults(name: NodeClassName, uid: Uid) -> Self {
        Self {
            name,
            uid,
            image_family: Arc::from("Ubuntu"),
            os_disk_gb: 128,
            max_pods: None,
            subnet: None,
            reservations: None,
            encryption_at_host: false,
            trusted_launch: false,
            secure_boot: false,
            vtpm: false,
            fips: false,
            gpu_drivers: true,
            local_dns: false,
            artifact_streaming: false,
            tags: BTreeMap::new(),
            unhonoured: Vec::new(),
            generation: 0,
            conditions: Conditions::default(),
        }
    }

    /// True if both differ in nothing but their status: nodes are made alike, and nothing is decided anew.
    #[must_use]
    pub fn has_spec_of(&self, other: &Self) -> bool {
        let spec = |class: &Self| Self { conditions: Conditions::default(), ..class.clone() };
        spec(self) == spec(other)
    }
}

/// A DaemonSet: it puts one pod on every node that it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    /// Scheduling constraints of its pods.
    pub shape: Arc<super::pod::PodShape>,
}

impl Limits {
    /// The limits as amounts of a resource vector, `i64::MAX` where there is none.
    #[must_use]
    pub fn free(&self, resource: &str, used: &Resources) -> Option<i64> {
        let limit = self.resources.get(resource)?;
        Some(limit.saturating_sub(amount(used, resource)))
    }
}

/// The amount of a resource by the name that manifests use.
#[must_use]
pub fn amount(resources: &Resources, name: &str) -> i64 {
    match name {
        "cpu" => resources.cpu_millis,
        "memory" => resources.memory,
        "ephemeral-storage" => resources.ephemeral_storage,
        "pods" => resources.pods,
        other => resources.extended(other),
    }
}
