//! The result of a simulation.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::{Labels, Pod};
use crate::model::names::{ArmId, ClaimName, NodeClassName, NodeName, NodePoolName, ObjectKey, Zone};
use crate::model::requirements::Incompatible;
use crate::scheduling::offerings::headroom::{QuotaShortage, ReservationShortage, SubnetShortage};
use crate::snapshot::volume_needs::VolumeTrouble;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A node that exists.
    Node(NodeName),
    /// A NodeClaim in flight.
    Claim(ClaimName),
    /// A new node, by its index in [`SchedulingResult::new_nodes`].
    New(usize),
}

/// A pod and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodPlacement {
    /// The pod.
    pub pod: ObjectKey,
    /// Where it goes.
    pub target: Target,
}

/// A node to launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its NodePool.
    pub pool: NodePoolName,
    /// Its AKSNodeClass.
    pub class: NodeClassName,
    /// Offerings that hold its pods, cheapest first; never empty.
    pub offerings: Vec<PlannedOffering>,
    /// Requests of its pods and daemons.
    pub requests: Resources,
    /// Labels that the pool gives it.
    pub labels: Labels,
    /// Its pods.
    pub pods: Vec<Arc<Pod>>,
}

impl NewNode {
    /// The zone, when all its offerings are in the same.
    #[must_use]
    pub fn zone(&self) -> Option<Zone> {
        let mut zones = self.offerings.iter().map(|o| &o.key.zone);
        let first = zones.next()?;
        zones.all(|z| z == first).then(|| first.clone())
    }
}

/// Pods that cannot be scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulablePods {
    /// The pods.
    pub pods: Vec<Arc<Pod>>,
    /// Why each pool cannot help; `None` stands for all pools.
    pub reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
}

/// Why pods cannot be scheduled on new nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnschedulableReason {
    /// There is no NodePool with usable offerings.
    NoNodePool,
    /// The pool's AKSNodeClass sets these fields, which are not supported.
    UnsupportedClassFields(Arc<str>),
    /// The pool launches nothing after nodes of it did not come up.
    PoolHeld(Arc<str>),
    /// The pool's nodes have a taint that the pods do not tolerate.
    UntoleratedTaint(Arc<str>),
    /// The pool's requirements are incompatible with those of the pods.
    IncompatibleRequirements(Incompatible),
    /// No offering of the pool is available.
    NoAvailableOffering,
    /// No offering of the pool has these labels, which the pods require.
    NoCompatibleOffering(String),
    /// No offering of the pool is large enough.
    TooLarge,
    /// The pool's limits are reached.
    LimitsExceeded,
    /// Azure's quotas forbid all compatible offerings; the quota of the cheapest.
    QuotaExceeded(QuotaShortage),
    /// The pool's reservations are used up, and it allows nothing else; that of the cheapest offering.
    ReservationUsedUp(ReservationShortage),
    /// The pool allows only reserved capacity, and has none.
    NoReservation(NoReservation),
    /// The subnet of the pool's nodes has no address left.
    SubnetFull(SubnetShortage),
    /// The compatible offerings have fewer values of a label than `minValues`.
    MinValues {
        /// The label.
        key: Arc<str>,
        /// How many values there are.
        found: u32,
        /// How many are required.
        required: u32,
    },
    /// The spread constraints leave no zone.
    TopologySpread,
    /// No existing or new node satisfies the pod affinity.
    PodAffinity,
    /// Pod anti-affinity excludes every existing and new node.
    PodAntiAffinity,
    /// No node has this label, the topology key of a constraint.
    MissingTopologyKey(Arc<str>),
    /// They have more volumes of a CSI driver than a new node can attach.
    VolumeLimit {
        /// The driver.
        driver: Arc<str>,
        /// How many each of them has.
        requested: i64,
        /// The least limit of any node of the cluster.
        limit: i64,
    },
    /// They share an unprovisioned disk with pods in another zone, where no node can run them.
    SharedVolume,
    /// Their volumes have a problem that no node can solve.
    Volume(VolumeTrouble),
    /// They claim devices, which are not simulated.
    DynamicResources,
    /// The limit of new nodes is reached.
    NewNodeLimit,
}

/// Why a pool that allows only reserved capacity has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReservation {
    /// Its AKSNodeClass names no capacity reservation group.
    NoGroup(NodeClassName),
    /// The group is unknown, or its numbers are stale.
    Unknown(ArmId),
    /// No reservation in the group satisfies the pool's requirements, or Azure has recently refused those that do.
    NoneSuitable(ArmId),
}

impl fmt::Display for NoReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("only reserved capacity is allowed, and ")?;
        match self {
            Self::NoGroup(class) => {
                let key = crate::model::labels::RESERVATION_GROUP;
                write!(f, "AKSNodeClass {class} has no annotation {key} with a capacity reservation group")
            }
            Self::Unknown(group) => {
                write!(f, "group {} is unknown: check that it exists and that napkeeper can read it", group.name())
            }
            Self::NoneSuitable(group) => write!(
                f,
                "no reservation in group {} satisfies its requirements, or Azure recently refused those that do",
                group.name()
            ),
        }
    }
}

impl UnschedulablePods {
    /// Why they cannot be scheduled, for each pool.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        self.reasons.iter().map(|(pool, reason)| match pool {
            Some(pool) => format!("{pool}: {reason}"),
            None => reason.to_string(),
        })
    }

    /// The same in one line.
    #[must_use]
    pub fn reason(&self) -> String {
        self.reasons().collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for UnschedulableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodePool => f.write_str("no NodePool has a usable instance type"),
            Self::UnsupportedClassFields(fields) => write!(
                f,
                "its AKSNodeClass sets {fields}, which napkeeper does not support: remove it, or use another \
                 AKSNodeClass"
            ),
            Self::UntoleratedTaint(key) => write!(f, "taint {key} is not tolerated"),
            Self::IncompatibleRequirements(incompatible) => write!(f, "{incompatible}"),
            Self::NoAvailableOffering => f.write_str(
                "no instance type available: its requirements match none, or Azure recently refused all of them",
            ),
            Self::NoCompatibleOffering(labels) => write!(f, "no instance type matches {labels}"),
            Self::TooLarge => f.write_str("no available instance type is large enough"),
            Self::LimitsExceeded => f.write_str("NodePool limits reached"),
            Self::QuotaExceeded(short) => write!(f, "{short}"),
            Self::ReservationUsedUp(short) => write!(f, "{short}"),
            Self::PoolHeld(reason) => f.write_str(reason),
            Self::NoReservation(reason) => write!(f, "{reason}"),
            Self::SubnetFull(short) => write!(f, "{short}"),
            Self::MinValues { key, found, required } => {
                write!(f, "the matching instance types have {found} values of {key}, minValues requires {required}")
            }
            Self::TopologySpread => f.write_str("topology spread constraints leave no zone"),
            Self::PodAffinity => f.write_str("no node satisfies the pod affinity"),
            Self::PodAntiAffinity => f.write_str("pod anti-affinity excludes every node and zone"),
            Self::MissingTopologyKey(key) => write!(f, "no node has label {key}, the topologyKey of a constraint"),
            Self::VolumeLimit { driver, requested, limit } => {
                write!(
                    f,
                    "each pod uses {requested} volumes of {driver}, more than a node can attach ({limit}, CSINode)"
                )
            }
            Self::SharedVolume => f.write_str(
                "they share a volume that is not yet provisioned with pods in another zone, where no node can run them",
            ),
            Self::Volume(trouble) => write!(f, "{trouble}"),
            Self::DynamicResources => {
                f.write_str("resourceClaims (DRA) are not supported: no node is launched for these pods")
            }
            Self::NewNodeLimit => f.write_str("no more nodes can be launched in this pass"),
        }
    }
}

/// The result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulingResult {
    /// Where each placed pod goes.
    pub placements: Vec<PodPlacement>,
    /// Nodes to launch.
    pub new_nodes: Vec<NewNode>,
    /// Pods that cannot be scheduled.
    pub unschedulable: Vec<UnschedulablePods>,
}

impl SchedulingResult {
    /// How many pods cannot be scheduled.
    #[must_use]
    pub fn unschedulable_pods(&self) -> usize {
        self.unschedulable.iter().map(|u| u.pods.len()).sum()
    }

    /// Existing nodes and claims that pods were placed on, with their number.
    #[must_use]
    pub fn targets(&self) -> BTreeMap<&Target, usize> {
        let mut targets = BTreeMap::new();
        for placement in &self.placements {
            *targets.entry(&placement.target).or_insert(0) += 1;
        }
        targets
    }

    pub(super) fn add_unschedulable(
        &mut self,
        pods: Vec<Arc<Pod>>,
        reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
    ) {
        if let Some(same) = self.unschedulable.iter_mut().find(|u| u.reasons == reasons) {
            same.pods.extend(pods);
        } else {
            self.unschedulable.push(UnschedulablePods { pods, reasons });
        }
    }
}
