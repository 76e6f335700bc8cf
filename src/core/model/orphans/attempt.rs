//! Attempts of a sweep to change a cloud resource, with their outcome.

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::errors::EffectError;
use crate::model::names::ArmId;
use jiff::Timestamp;

/// What a sweep does to a cloud resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SweepAction {
    /// Deletes it.
    Delete,
    /// Add our mark, or remove it.
    Tag,
}

impl SweepAction {
    /// Its description for people.
    #[must_use]
    pub fn as_gerund(self) -> &'static str {
        match self {
            Self::Delete => "deleting",
            Self::Tag => "tagging",
        }
    }
}

/// An attempt and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepAttempt {
    /// The resource.
    pub id: ArmId,
    /// Its kind.
    pub kind: ResourceKind,
    /// The attempted action.
    pub action: SweepAction,
    /// When it ended.
    pub at: Timestamp,
    /// Its outcome.
    pub outcome: AttemptOutcome,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// Azure did it.
    Done,
    /// Nothing was left to do, or another actor is working on it: no failure.
    Skipped,
    /// It failed.
    Failed(EffectError),
}

impl SweepAttempt {
    /// The outcome of an attempt on this resource.
    pub(crate) fn new(resource: &CloudResource, action: SweepAction, outcome: AttemptOutcome, at: Timestamp) -> Self {
        Self { id: resource.id.clone(), kind: resource.kind(), action, at, outcome }
    }
}
