//! Nodes, including unmanaged ones.

use super::pod::{Labels, Taint};
use crate::model::amounts::resources::Resources;
use crate::model::labels::NODEPOOL;
use crate::model::names::{ArmId, NodeName, ProviderId, Uid};
use jiff::Timestamp;
use std::sync::Arc;

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Name.
    pub name: NodeName,
    /// UID.
    pub uid: Uid,
    /// The VM behind it.
    pub provider_id: Option<ProviderId>,
    /// Labels.
    pub labels: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
    /// All that it has.
    pub capacity: Resources,
    /// Capacity that pods may use.
    pub allocatable: Resources,
    /// Its condition Ready; and since when it has its current status.
    pub ready: bool,
    /// When `ready` last changed.
    pub ready_since: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its deletion was requested.
    pub deleting_at: Option<Timestamp>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// It has our finalizer.
    pub has_finalizer: bool,
    /// The version of its kubelet, for example `v1.33.2`; `None` if it does not say.
    pub kubelet_version: Option<Arc<str>>,
    /// It has the annotation `karpenter.sh/do-not-disrupt: "true"`.
    pub do_not_disrupt: bool,
    /// Its other conditions, as far as a [rule](crate::model::settings::NodeHealthRule) concerns them: of most nodes none.
    pub conditions: Vec<NodeCondition>,
}

/// A condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its type.
    pub kind: Arc<str>,
    /// Its status.
    pub status: ConditionStatus,
    /// Since when it has this status.
    pub since: Timestamp,
    /// Why, as a word.
    pub reason: Arc<str>,
    /// The message for people.
    pub message: Arc<str>,
    /// Before which time an event of Azure that the message announces does not begin (its `NotBefore`).
    pub not_before: Option<Timestamp>,
}

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows.
    Unknown,
}

impl ConditionStatus {
    /// As in objects.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Node {
    /// Value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|v| &**v)
    }

    /// kube-scheduler may bind pods to it, as far as their tolerations allow.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.ready && !self.cordoned && self.deleting_at.is_none()
    }

    /// Since when it has been ready; `None` if it is not.
    #[must_use]
    pub fn ready_from(&self) -> Option<Timestamp> {
        self.ready.then_some(self.ready_since)
    }

    /// Since when it has not been ready; `None` if it is.
    #[must_use]
    pub fn unready_from(&self) -> Option<Timestamp> {
        (!self.ready).then_some(self.ready_since)
    }

    /// True when its VM or scale-set instance is in this resource group.
    #[must_use]
    pub fn is_in_group(&self, group: &ArmId) -> bool {
        self.provider_id.as_ref().is_some_and(|id| id.vm().is_in(group))
    }

    /// True for a ready Node of an agent pool in this resource group, as each AKS cluster has at least one: no NodeClaim
    /// stands for it (`is_claimed`), and none did when it joined. A VM that was launched into the group by mistake is
    /// no proof that the group is the cluster's.
    #[must_use]
    pub fn is_ready_agent_node(&self, group: &ArmId, is_claimed: impl Fn(&ProviderId) -> bool) -> bool {
        self.ready
            && self.deleting_at.is_none()
            && self.label(NODEPOOL).is_none()
            && self.is_in_group(group)
            && !self.provider_id.as_ref().is_some_and(is_claimed)
    }

    /// True when it has a taint of this key.
    #[must_use]
    pub fn is_tainted(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| &*taint.key == key)
    }
}
