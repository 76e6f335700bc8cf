//! Attempts: what did a sweep try on a cloud resource, and what came of it?

use crate::model::azure::cloud::{CloudResource, ResourceKind};
use crate::model::errors::PortError;
use crate::model::names::ArmId;
use jiff::Timestamp;

/// What a sweep does to a cloud resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Deed {
    /// Deletes it.
    Delete,
    /// Puts our mark on it, or takes it off.
    Tag,
}

impl Deed {
    /// What is done, for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Delete => "deleting",
            Self::Tag => "tagging",
        }
    }
}

/// A try, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The resource.
    pub id: ArmId,
    /// Its kind.
    pub kind: ResourceKind,
    /// What was tried.
    pub deed: Deed,
    /// When it ended.
    pub at: Timestamp,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Azure did it.
    Done,
    /// There was nothing to do any more, or somebody else is at work on it: no failure.
    Skipped,
    /// It failed.
    Failed(PortError),
}

impl Attempt {
    /// What came of a try on this resource.
    pub(crate) fn on(resource: &CloudResource, deed: Deed, outcome: Outcome, at: Timestamp) -> Self {
        Self { id: resource.id.clone(), kind: resource.kind(), deed, at, outcome }
    }
}
