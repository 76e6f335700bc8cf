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
    /// A new node, by its place in [`SchedulingResult::new_nodes`].
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

/// A node to be bought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its NodePool.
    pub pool: NodePoolName,
    /// Its AKSNodeClass.
    pub class: NodeClassName,
    /// Offerings that hold its pods, cheapest first; never empty.
    pub offerings: Vec<PlannedOffering>,
    /// Sum of what its pods and daemons ask for.
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

/// Pods without a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulablePods {
    /// The pods.
    pub pods: Vec<Arc<Pod>>,
    /// Why each pool cannot help; `None` stands for all pools.
    pub reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
}

/// Why pods have no place on new nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnschedulableReason {
    /// There is no NodePool with usable offerings.
    NoNodePool,
    /// The pool's AKSNodeClass asks for what nodes of our own making do not get: these fields.
    UnsupportedClassFields(Arc<str>),
    /// The pool's nodes have a taint that the pods do not tolerate.
    UntoleratedTaint(Arc<str>),
    /// The pool's nodes cannot have the labels that the pods ask for.
    IncompatibleRequirements(Incompatible),
    /// Nothing of the pool is on offer at present.
    NoAvailableOffering,
    /// No offering of the pool has the labels that the pods ask for, these.
    NoCompatibleOffering(String),
    /// No offering of the pool is large enough.
    TooLarge,
    /// The pool's limits are reached.
    LimitsExceeded,
    /// Azure's quotas leave no capacity for any offering that would do; the one of the cheapest.
    QuotaExceeded(QuotaShortage),
    /// What is reserved for the pool's nodes is used up, and it may buy nothing else; the cheapest.
    ReservationUsedUp(ReservationShortage),
    /// The pool may have nothing but what is reserved, and has nothing.
    NoReservation(NoReservation),
    /// The subnet of the pool's nodes has no address left.
    SubnetFull(SubnetShortage),
    /// The pool asks for so many values of a label (`minValues`), and of the offerings that would do there are fewer.
    MinValues {
        /// The label.
        key: Arc<str>,
        /// How many values there are.
        found: u32,
        /// How many are asked for.
        required: u32,
    },
    /// The spread constraints leave no zone.
    TopologySpread,
    /// No node is, or would be, where the pods that they must be near to are.
    PodAffinity,
    /// Wherever a node is, or would be, there are pods that keep them away, or that they must not be near to.
    PodAntiAffinity,
    /// No node has this label, by which they spread or gather.
    MissingTopologyKey(Arc<str>),
    /// They have more volumes of a CSI driver than new nodes are known to take.
    VolumeLimit {
        /// The driver.
        driver: Arc<str>,
        /// How many each of them has.
        requested: i64,
        /// The least that a node of the cluster takes.
        limit: i64,
    },
    /// Other pods have a disk of theirs that is still to be made, and no node would be theirs in the zone where it will be.
    SharedVolume,
    /// Something is wrong with their volumes that no node cures.
    Volume(VolumeTrouble),
    /// They claim devices, which are not simulated.
    DynamicResources,
    /// The number of new nodes is limited, and used up.
    NewNodeLimit,
}

/// Why a pool that may have nothing but what is reserved has nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReservation {
    /// Its AKSNodeClass names no group of reservations.
    NoGroup(NodeClassName),
    /// Nothing is known of the group, or what is known is old.
    Unknown(ArmId),
    /// Nothing in the group is what the pool asks for, or Azure has refused it lately.
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
    /// Why they have no place, for each pool.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        self.reasons.iter().map(|(pool, why)| match pool {
            Some(pool) => format!("{pool}: {why}"),
            None => why.to_string(),
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
            Self::IncompatibleRequirements(why) => write!(f, "{why}"),
            Self::NoAvailableOffering => f.write_str(
                "no instance type available: its requirements match none, or Azure recently refused all of them",
            ),
            Self::NoCompatibleOffering(asked) => write!(f, "no instance type matches {asked}"),
            Self::TooLarge => f.write_str("no available instance type is large enough"),
            Self::LimitsExceeded => f.write_str("NodePool limits reached"),
            Self::QuotaExceeded(short) => write!(f, "{short}"),
            Self::ReservationUsedUp(short) => write!(f, "{short}"),
            Self::NoReservation(why) => write!(f, "{why}"),
            Self::SubnetFull(short) => write!(f, "{short}"),
            Self::MinValues { key, found, required: least } => {
                write!(f, "the matching instance types have {found} values of {key}, minValues requires {least}")
            }
            Self::TopologySpread => f.write_str("topology spread constraints leave no zone"),
            Self::PodAffinity => f.write_str("no node satisfies the pod affinity"),
            Self::PodAntiAffinity => f.write_str("pod anti-affinity excludes every node and zone"),
            Self::MissingTopologyKey(key) => write!(f, "no node has label {key}, the topologyKey of a constraint"),
            Self::VolumeLimit { driver, requested: asked, limit: most } => {
                write!(f, "each pod uses {asked} volumes of {driver}, more than a node can attach ({most}, CSINode)")
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

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedulingResult {
    /// Where each placed pod goes.
    pub placements: Vec<PodPlacement>,
    /// Nodes to be bought.
    pub new_nodes: Vec<NewNode>,
    /// Pods without a place.
    pub unschedulable: Vec<UnschedulablePods>,
}

impl SchedulingResult {
    /// How many pods have no place.
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
        why: Vec<(Option<NodePoolName>, UnschedulableReason)>,
    ) {
        if let Some(same) = self.unschedulable.iter_mut().find(|u| u.reasons == why) {
            same.pods.extend(pods);
        } else {
            self.unschedulable.push(UnschedulablePods { pods, reasons: why });
        }
    }
}
