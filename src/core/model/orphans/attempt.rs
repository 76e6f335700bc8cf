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
    /// Puts our mark on it, or takes it off.
    Tag,
}

impl SweepAction {
    /// What is done, for people.
    #[must_use]
    pub fn as_gerund(self) -> &'static str {
        match self {
            Self::Delete => "deleting",
            Self::Tag => "tagging",
        }
    }
}

/// A try, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepAttempt {
    /// The resource.
    pub id: ArmId,
    /// Its kind.
    pub kind: ResourceKind,
    /// What was tried.
    pub action: SweepAction,
    /// When it ended.
    pub at: Timestamp,
    /// What came of it.
    pub outcome: AttemptOutcome,
}

/// What came of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// Azure did it.
    Done,
    /// There was nothing to do any more, or somebody else is at work on it: no failure.
    Skipped,
    /// It failed.
    Failed(EffectError),
}

impl SweepAttempt {
    /// What came of a try on this resource.
    pub(crate) fn new(resource: &CloudResource, deed: SweepAction, outcome: AttemptOutcome, at: Timestamp) -> Self {
        Self { id: resource.id.clone(), kind: resource.kind(), action: deed, at, outcome }
    }
}
