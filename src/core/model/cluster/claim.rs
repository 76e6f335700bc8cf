//! NodeClaims.

use super::node_template::NodeTemplate;
use super::pod::{Labels, Taint};
use super::replacement::Replacement;
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::offering::OfferingKey;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::status::StatusCondition;
use crate::model::errors::OperationId;
use crate::model::names::{ArmId, ClaimName, NodeClassName, NodeName, NodePoolName, ProviderId, Uid};
use crate::model::requirements::Requirements;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name.
    pub name: ClaimName,
    /// UID.
    pub uid: Uid,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its deletion was requested.
    pub deleting_at: Option<Timestamp>,
    /// Until when its drain must be over, by the annotation `karpenter.sh/nodeclaim-termination-timestamp`: a user may end
    /// it earlier by it.
    pub termination_at: Option<Timestamp>,
    /// It has our finalizer.
    pub has_finalizer: bool,
    /// Its NodePool owns it, as earlier versions wrote: a deletion of the NodePool in the foreground would delete it at once.
    pub owned_by_pool: bool,
    /// Its spec.
    pub spec: ClaimSpec,
    /// The resources that we are about to create, or have created, for it.
    pub intent: Option<LaunchIntent>,
    /// How far it has come.
    pub status: ClaimStatus,
}

/// The spec of a NodeClaim. Immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimSpec {
    /// The NodePool it comes from; none for a standalone claim.
    pub pool: Option<NodePoolName>,
    /// The AKSNodeClass.
    pub class: NodeClassName,
    /// Which nodes satisfy it.
    pub requirements: Requirements,
    /// The requests of the pods that it was created for, daemons included.
    pub requests: Resources,
    /// Labels for the node.
    pub labels: Labels,
    /// Annotations for the node.
    pub annotations: Labels,
    /// Taints for the node.
    pub taints: Vec<Taint>,
    /// Taints that something else removes once the node is set up.
    pub startup_taints: Vec<Taint>,
    /// After this time the node is replaced; `None` is never.
    pub expire_after: Option<SignedDuration>,
    /// How long a drain may take; `None` is unlimited.
    pub termination_grace_period: Option<SignedDuration>,
    /// What it was made from; `None` where that was not recorded.
    pub made_from: Option<Arc<NodeTemplate>>,
    /// The offerings it was planned for, cheapest first.
    pub planned: Vec<PlannedOffering>,
    /// The NodeClaims that it was created to replace.
    pub replaces: Vec<ClaimName>,
    /// The other NodeClaims that are created with it to replace them.
    pub replaces_with: Vec<ClaimName>,
    /// Why it replaces others; `None` of one that replaces none, or that expire soon.
    pub replacement: Option<Replacement>,
}

impl ClaimSpec {
    /// A NodeClaim of an AKSNodeClass that demands nothing, of no NodePool.
    #[must_use]
    pub fn of_class(class: NodeClassName) -> Self {
        Self {
            pool: None,
            class,
            requirements: Requirements::new(),
            requests: Resources::default(),
            labels: Labels::new(),
            annotations: Labels::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            expire_after: None,
            termination_grace_period: None,
            made_from: None,
            planned: Vec::new(),
            replaces: Vec::new(),
            replaces_with: Vec::new(),
            replacement: None,
        }
    }
}

/// An offering with the price it was planned at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedOffering {
    /// Which.
    #[serde(flatten)]
    pub key: OfferingKey,
    /// Price in nano-USD per hour.
    pub price: HourlyPrice,
}

/// The resources about to be created in Azure for a NodeClaim: written on it before the first PUT, so that a restart
/// finds all that may exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchIntent {
    /// The offering being tried.
    pub offering: PlannedOffering,
    /// The VM.
    pub vm: ArmId,
    /// Its NIC.
    pub nic: ArmId,
    /// Its OS disk.
    pub os_disk: ArmId,
    /// The AKS Machine that they belong to, where one is requested; then AKS chooses their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ArmId>,
    /// The group of capacity reservations that the VM is to name, where the offering is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ArmId>,
    /// When this intent was written.
    pub written_at: Timestamp,
    /// Offerings of `planned` that have been refused before this one.
    pub refused: u32,
    /// The URL of the VM's create operation, once Azure has accepted it: polled after a restart, so that the reason of
    /// a late failure is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
}

/// How far a NodeClaim has come. Each step is a condition of the object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimStatus {
    /// The VM exists (condition `Launched`).
    pub launched: Option<Timestamp>,
    /// AKS counts its node (condition `Billed`).
    pub billed: Option<Timestamp>,
    /// Every way to launch it failed (condition `Launched=False`).
    pub launch_failed: Option<LaunchFailure>,
    /// Its Node has joined (condition `Registered`).
    pub registered: Option<Timestamp>,
    /// Its Node is ready for pods (condition `Initialized`).
    pub initialized: Option<Timestamp>,
    /// It differs from what its NodePool and AKSNodeClass would make now (condition `Drifted`).
    pub drifted: Option<DriftedCondition>,
    /// Why it is being replaced within budgets (condition `DisruptionReason`).
    pub disrupted: Option<DisruptionReason>,
    /// Why it is deleted whatever budgets say (the same condition, so that it has only one of the two).
    pub forced: Option<ForcefulReason>,
    /// `status.providerID`.
    pub provider_id: Option<ProviderId>,
    /// `status.nodeName`.
    pub node_name: Option<NodeName>,
    /// The image of its VM (`status.imageID`); `None` where it is not known.
    pub image: Option<Arc<str>>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// When a pod last came to or left its node (`status.lastPodEventTime`).
    pub last_pod_event: Option<Timestamp>,
    /// Its pods have not changed for `consolidateAfter` (condition `Consolidatable`).
    pub consolidatable: bool,
    /// Whether its node has the resources that it was launched for (condition `ConsistentStateFound`); `None` is not set.
    pub consistent_state: Option<StatusCondition>,
    /// How far its end is.
    pub termination: TerminationConditions,
}

impl ClaimStatus {
    /// Since when the pods of its node have not changed, `None` if that is not initialized: `consolidateAfter` begins then.
    #[must_use]
    pub fn quiet_since(&self) -> Option<Timestamp> {
        self.quiet_after(self.last_pod_event)
    }

    /// The same if a pod last came or left at this time.
    #[must_use]
    pub fn quiet_after(&self, last_pod_event: Option<Timestamp>) -> Option<Timestamp> {
        let initialized = self.initialized?;
        Some(last_pod_event.map_or(initialized, |at| at.max(initialized)))
    }
}

/// Why a NodeClaim is deleted whatever budgets, PodDisruptionBudgets and `karpenter.sh/do-not-disrupt` say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForcefulReason {
    /// Its node has been unhealthy for longer than is tolerated.
    Unhealthy,
    /// Azure is about to take its VM away.
    Interrupted,
    /// Azure is about to evict its spot VM.
    Preempted,
}

impl ForcefulReason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unhealthy, Self::Interrupted, Self::Preempted];

    /// As in the condition `DisruptionReason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unhealthy => "Unhealthy",
            Self::Interrupted => "Interrupted",
            Self::Preempted => "Preempted",
        }
    }

    /// Of its kind only a share of a NodePool is deleted at once. Spot VMs Azure may evict in any number.
    #[must_use]
    pub const fn is_limited(self) -> bool {
        match self {
            Self::Unhealthy | Self::Interrupted => true,
            Self::Preempted => false,
        }
    }

    /// The category of deletions in metrics.
    #[must_use]
    pub const fn category(self) -> &'static str {
        match self {
            Self::Unhealthy => "unhealthy",
            Self::Interrupted => "interrupted",
            Self::Preempted => "preempted",
        }
    }
}

/// How a NodeClaim differs from what its NodePool and AKSNodeClass would make now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftedCondition {
    /// Since when it has.
    pub since: Timestamp,
    /// Why, as a word in CamelCase.
    pub reason: Arc<str>,
    /// The fields that have changed, for people.
    pub message: Arc<str>,
}

/// The conditions of a NodeClaim whose node is being drained; `None` is not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationConditions {
    /// The pods have left the node (condition `Drained`).
    pub drained: Option<TerminationCondition>,
    /// The volumes are detached from the node (condition `VolumesDetached`).
    pub volumes_detached: Option<TerminationCondition>,
    /// The VM is being deleted (condition `InstanceTerminating`).
    pub instance_terminating: Option<TerminationCondition>,
}

/// A condition of a NodeClaim whose node is being drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminationCondition {
    /// Its status; `None` is `Unknown`.
    pub holds: Option<bool>,
    /// Why, as a word in CamelCase.
    pub reason: Arc<str>,
    /// The message for people.
    pub message: Arc<str>,
}

impl TerminationCondition {
    /// A condition without a message.
    #[must_use]
    pub fn new(holds: Option<bool>, reason: &str) -> Self {
        Self { holds, reason: Arc::from(reason), message: Arc::from("") }
    }
}

impl TerminationConditions {
    /// True when all conditions that the others set are set here just so.
    #[must_use]
    pub fn include(&self, others: &Self) -> bool {
        let includes = |own: &Option<_>, other: &Option<TerminationCondition>| other.is_none() || own == other;
        includes(&self.drained, &others.drained)
            && includes(&self.volumes_detached, &others.volumes_detached)
            && includes(&self.instance_terminating, &others.instance_terminating)
    }

    /// Sets the conditions that the others set.
    pub fn set(&mut self, others: &Self) {
        for (own, other) in [
            (&mut self.drained, &others.drained),
            (&mut self.volumes_detached, &others.volumes_detached),
            (&mut self.instance_terminating, &others.instance_terminating),
        ] {
            if other.is_some() {
                own.clone_from(other);
            }
        }
    }
}

/// Why a NodeClaim could not be launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchFailure {
    /// When it failed.
    pub at: Timestamp,
    /// The error code of the last refusal.
    pub code: Arc<str>,
    /// The message for people.
    pub message: Arc<str>,
}

impl Claim {
    /// When its drain must be over: its deletion plus its termination grace period, or the time that is recorded on it
    /// if that is earlier. `None` while it is not being deleted, or where its drain is unlimited.
    #[must_use]
    pub fn drain_deadline(&self) -> Option<Timestamp> {
        let deleting_at = self.deleting_at?;
        let of_spec = self.spec.termination_grace_period.and_then(|grace| deleting_at.saturating_add(grace).ok());
        of_spec.into_iter().chain(self.termination_at).min()
    }

    /// True if both differ in nothing but conditions by which nothing is decided.
    #[must_use]
    pub fn is_decided_like(&self, other: &Self) -> bool {
        let (consolidatable, consistent_state) = (other.status.consolidatable, other.status.consistent_state.clone());
        let status = ClaimStatus { consolidatable, consistent_state, ..self.status.clone() };
        status == other.status && Self { status, ..self.clone() } == *other
    }

    /// It is being deleted, or is about to be because of its node, which waits for no replacement.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.deleting_at.is_some() || self.status.forced.is_some()
    }

    /// We launched it, or are about to: it has our plan or our intent. Karpenter's claims carry neither, though
    /// the same finalizer, and are Karpenter's to look after.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.intent.is_some() || !self.spec.planned.is_empty()
    }

    /// True while its node is not ready for pods.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.deleting_at.is_none() && self.status.launch_failed.is_none() && self.status.initialized.is_none()
    }

    /// Another Karpenter has created it, and works on it or has left it behind. A NodeClaim that nobody works on, as one
    /// that a person has written, has neither finalizer nor VM.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        !self.is_ours() && (self.has_finalizer || self.status.provider_id.is_some())
    }

    /// Name and UID together, since a name may be reused.
    #[must_use]
    pub fn reference(&self) -> ClaimRef {
        ClaimRef { name: self.name.clone(), uid: self.uid.clone() }
    }
}

/// Name and UID of a NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Name.
    pub name: ClaimName,
    /// UID.
    pub uid: Uid,
}
