//! The status of NodePools, AKSNodeClasses and NodeOverlays, as far as it is ours, and objects that cannot be used.

use crate::model::amounts::resources::Resources;
use crate::model::names::{NodeClassName, NodePoolName, ObjectName, Uid};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The `type` of a condition that we write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Whether the object can be used: [`Self::ValidationSucceeded`] and, of a NodePool, [`Self::NodeClassReady`].
    Ready,
    /// Whether the object can be read, and means something.
    ValidationSucceeded,
    /// Of a NodePool: whether its AKSNodeClass is ready.
    NodeClassReady,
    /// Of a NodePool: whether its nodes come up.
    NodeRegistrationHealthy,
    /// Of a NodePool: whether anything may be launched in this cluster. It is napkeeper's own.
    LaunchesAllowed,
    /// Of a NodePool: whether what replaces its nodes stays. It is napkeeper's own.
    ReplacementsEffective,
    /// Of a NodePool: whether all its nodes are as it and its AKSNodeClass would make them now. It is napkeeper's own.
    NodesUpToDate,
    /// Of a NodePool that is being deleted: whether its nodes are gone. It is napkeeper's own.
    NodesRemoved,
}

impl ConditionType {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Ready,
        Self::ValidationSucceeded,
        Self::NodeClassReady,
        Self::NodeRegistrationHealthy,
        Self::LaunchesAllowed,
        Self::ReplacementsEffective,
        Self::NodesUpToDate,
        Self::NodesRemoved,
    ];

    /// As in `status.conditions[].type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::ValidationSucceeded => "ValidationSucceeded",
            Self::NodeClassReady => "NodeClassReady",
            Self::NodeRegistrationHealthy => "NodeRegistrationHealthy",
            Self::LaunchesAllowed => "LaunchesAllowed",
            Self::ReplacementsEffective => "ReplacementsEffective",
            Self::NodesUpToDate => "NodesUpToDate",
            Self::NodesRemoved => "NodesRemoved",
        }
    }
}

/// A condition that is True or False.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCondition {
    /// True or False.
    pub holds: bool,
    /// A word for the reason.
    pub reason: Arc<str>,
    /// The message, for people.
    pub message: Arc<str>,
}

impl StatusCondition {
    /// One that is True.
    #[must_use]
    pub fn holding(reason: &str) -> Self {
        Self { holds: true, reason: Arc::from(reason), message: Arc::from("") }
    }

    /// One that is False, and why.
    #[must_use]
    pub fn failing(reason: &str, message: &str) -> Self {
        let message: String = message.chars().take(MAX_MESSAGE).collect();
        Self { holds: false, reason: Arc::from(reason), message: Arc::from(message) }
    }
}

/// Longest message of a condition, in characters. The API server takes eight times as much.
const MAX_MESSAGE: usize = 4_096;

/// The conditions of an object that are ours. One that is Unknown counts as absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// By type.
    pub by_type: BTreeMap<ConditionType, StatusCondition>,
    /// The `metadata.generation` that all of them are about; `None` if there are none, or they are about several.
    pub observed_generation: Option<i64>,
}

impl Conditions {
    /// The condition of a type.
    #[must_use]
    pub fn get(&self, kind: ConditionType) -> Option<&StatusCondition> {
        self.by_type.get(&kind)
    }

    /// True unless they are about another generation than this one of the object.
    #[must_use]
    pub fn may_be_about(&self, generation: Option<i64>) -> bool {
        self.observed_generation.is_none_or(|observed| observed == generation.unwrap_or_default())
    }

    /// True if the same conditions are True, the same are False, and they are about the same generation. Reasons and
    /// messages may differ.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let holds =
            |all: &Self| all.by_type.iter().map(|(kind, condition)| (*kind, condition.holds)).collect::<Vec<_>>();
        self.observed_generation == other.observed_generation && holds(self) == holds(other)
    }
}

/// The status of a NodePool, as far as it is ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// Its conditions.
    pub conditions: Conditions,
    /// `nodeClassObservedGeneration`: the generation of the AKSNodeClass that was last looked at.
    pub class_generation: Option<i64>,
    /// `nodes`: how many nodes it has, also those that have not joined yet or are being deleted; `None` if it is not set.
    pub nodes: Option<i64>,
    /// `resources`: the capacity of all of them.
    pub resources: Resources,
}

/// How far the deletion of a NodePool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolDeletion {
    /// When it was requested; `None` if it was not. Nothing is launched for the NodePool since.
    pub requested_at: Option<Timestamp>,
    /// It waits for our finalizer ([`POOL_FINALIZER`](crate::model::labels::POOL_FINALIZER)).
    pub has_finalizer: bool,
    /// Its nodes are to be kept: it was requested with `--cascade=orphan`.
    pub keeps_nodes: bool,
}

impl PoolDeletion {
    /// This, after an earlier version of the same NodePool: Kubernetes soon removes the finalizer by which it is known that
    /// nodes are to be kept.
    #[must_use]
    pub fn after(self, earlier: Self) -> Self {
        Self { keeps_nodes: self.keeps_nodes || self.requested_at.is_some() && earlier.keeps_nodes, ..self }
    }

    /// Its nodes are to be taken away.
    #[must_use]
    pub fn takes_nodes(self) -> bool {
        self.requested_at.is_some() && !self.keeps_nodes
    }
}

/// An object that cannot be used, because it cannot be read. Nothing is decided by it but its own status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidObject<N, S, D = ()> {
    /// Name.
    pub name: N,
    /// UID.
    pub uid: Uid,
    /// `metadata.generation`.
    pub generation: i64,
    /// All that is wrong with it, each with the path of its field.
    pub reason: Arc<str>,
    /// Its status, as far as that can be read.
    pub status: S,
    /// Of a NodePool: how far its deletion is.
    pub deletion: D,
}

impl<N, S> InvalidObject<N, S> {
    /// The same with how far its deletion is.
    #[must_use]
    pub fn with_deletion<D>(self, deletion: D) -> InvalidObject<N, S, D> {
        let Self { name, uid, generation, reason, status, deletion: () } = self;
        InvalidObject { name, uid, generation, reason, status, deletion }
    }
}

/// A NodePool that cannot be used.
pub type InvalidPool = InvalidObject<NodePoolName, PoolStatus, PoolDeletion>;
/// An AKSNodeClass that cannot be used.
pub type InvalidClass = InvalidObject<NodeClassName, Conditions>;
/// A NodeOverlay that cannot be used.
pub type InvalidOverlay = InvalidObject<ObjectName, Conditions>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_for_the_same_state_say_the_same() {
        let conditions = |condition: StatusCondition, generation| Conditions {
            by_type: [(ConditionType::Ready, condition)].into(),
            observed_generation: Some(generation),
        };
        let failing = conditions(StatusCondition::failing("A", "1 of 2"), 1);
        assert!(failing.says_the_same(&conditions(StatusCondition::failing("B", "2 of 2"), 1)));
        assert!(!failing.says_the_same(&conditions(StatusCondition::failing("A", "1 of 2"), 2)));
        assert!(!failing.says_the_same(&conditions(StatusCondition::holding("A"), 1)));
        assert!(!failing.says_the_same(&Conditions::default()));
    }

    #[test]
    fn a_message_is_never_longer_than_a_condition_takes() {
        let condition = StatusCondition::failing("A", &"é".repeat(40_000));
        assert_eq!(condition.message.chars().count(), MAX_MESSAGE);
    }
}
