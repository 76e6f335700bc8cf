//! Denials: what does Azure not let us do for now?
//!
//! A lost permission, a lock, a lockdown or a policy is nothing that the next try mends. So one such answer holds back
//! what is tried on all resources of that kind, and a single try from time to time finds out whether it has passed.

use crate::model::azure::cloud::ResourceKind;
use crate::model::errors::{CloudErrorCode, PortError};
use crate::model::orphans::attempt::{Attempt, Deed, Outcome};
use crate::model::orphans::report::Denial;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// So long nothing is tried after a denial; then one resource is.
const TRY_AGAIN: SignedDuration = SignedDuration::from_mins(20);
/// A denial that nothing has put to the test for so long is forgotten.
const FORGET: SignedDuration = SignedDuration::from_hours(24);

/// Denials that are not known to have passed. Disposable: lost, one more try is denied.
#[derive(Debug, Clone, Default)]
pub(super) struct Denials(BTreeMap<(Deed, ResourceKind), Denial>);

impl Denials {
    /// Learns from a try.
    pub(super) fn note(&mut self, attempt: &Attempt) {
        let key = (attempt.deed, attempt.kind);
        let error = match &attempt.outcome {
            Outcome::Failed(PortError::Cloud(error)) if is_denial(error.code) => error,
            Outcome::Done => return drop(self.0.remove(&key)),
            Outcome::Skipped | Outcome::Failed(_) => return,
        };
        let denial = Denial {
            deed: attempt.deed,
            kind: attempt.kind,
            code: error.code,
            message: Arc::clone(&error.message),
            since: self.0.get(&key).map_or(attempt.at, |known| known.since),
            until: attempt.at.saturating_add(TRY_AGAIN).unwrap_or(Timestamp::MAX),
        };
        self.0.insert(key, denial);
    }

    /// Forgets what is too old to be true.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, denial| now.duration_since(denial.until) < FORGET);
    }

    /// Until when this is held back, if it is.
    pub(super) fn held(&self, deed: Deed, kind: ResourceKind, now: Timestamp) -> Option<Timestamp> {
        Some(self.0.get(&(deed, kind))?.until).filter(|until| *until > now)
    }

    /// A try begins: until its outcome is known, it is the only one.
    pub(super) fn put_to_test(&mut self, deed: Deed, kind: ResourceKind, now: Timestamp) {
        if let Some(denial) = self.0.get_mut(&(deed, kind)) {
            denial.until = now.saturating_add(TRY_AGAIN).unwrap_or(Timestamp::MAX);
        }
    }

    /// Kinds of which nothing may be deleted now.
    pub(super) fn undeletable(&self, now: Timestamp) -> impl Iterator<Item = ResourceKind> + '_ {
        ResourceKind::ALL.into_iter().filter(move |kind| self.held(Deed::Delete, *kind, now).is_some())
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Denial> {
        self.0.values()
    }
}

/// True for an answer that means that somebody does not want it done.
#[must_use]
pub(super) fn is_denial(code: CloudErrorCode) -> bool {
    matches!(
        code,
        CloudErrorCode::Permission | CloudErrorCode::Locked | CloudErrorCode::Lockdown | CloudErrorCode::Policy
    )
}
