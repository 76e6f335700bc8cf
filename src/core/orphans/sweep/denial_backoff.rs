//! Backoff per action and kind after a permission, lock or policy denial.
//!
//! A lost permission, a lock, a lockdown or a policy is not fixed by a retry. So one such denial suspends the action on
//! all resources of that kind, and a single attempt from time to time checks whether it has passed.

use crate::model::azure::cloud::ResourceKind;
use crate::model::errors::EffectError;
use crate::model::orphans::attempt::{AttemptOutcome, SweepAction, SweepAttempt};
use crate::model::orphans::report::Denial;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long nothing is tried after a denial; then one resource is.
const DENIAL_RETRY: SignedDuration = SignedDuration::from_mins(20);
/// How long a denial is retained without a new attempt.
const DENIAL_TTL: SignedDuration = SignedDuration::from_hours(24);

/// Denials that are not known to have passed. Disposable: if lost, one more attempt is denied.
#[derive(Debug, Clone, Default)]
pub(in crate::orphans) struct Denials(BTreeMap<(SweepAction, ResourceKind), Denial>);

impl Denials {
    /// Records an attempt.
    pub(in crate::orphans) fn record(&mut self, attempt: &SweepAttempt) {
        let key = (attempt.action, attempt.kind);
        let error = match &attempt.outcome {
            AttemptOutcome::Failed(EffectError::Cloud(error)) if error.code.is_denial() => error,
            AttemptOutcome::Done => return drop(self.0.remove(&key)),
            AttemptOutcome::Skipped | AttemptOutcome::Failed(_) => return,
        };
        let denial = Denial {
            action: attempt.action,
            kind: attempt.kind,
            code: error.code,
            message: Arc::clone(&error.message),
            since: self.0.get(&key).map_or(attempt.at, |known| known.since),
            retry_at: attempt.at.saturating_add(DENIAL_RETRY).unwrap_or(Timestamp::MAX),
        };
        self.0.insert(key, denial);
    }

    /// Removes outdated denials.
    pub(in crate::orphans) fn expire(&mut self, now: Timestamp) {
        self.0.retain(|_, denial| now.duration_since(denial.retry_at) < DENIAL_TTL);
    }

    /// Until when this is blocked, if it is.
    pub(in crate::orphans) fn blocked_until(
        &self,
        action: SweepAction,
        kind: ResourceKind,
        now: Timestamp,
    ) -> Option<Timestamp> {
        Some(self.0.get(&(action, kind))?.retry_at).filter(|until| *until > now)
    }

    /// Records the start of an attempt: until its outcome is known, it is the only one.
    pub(in crate::orphans) fn mark_retrying(&mut self, action: SweepAction, kind: ResourceKind, now: Timestamp) {
        if let Some(denial) = self.0.get_mut(&(action, kind)) {
            denial.retry_at = now.saturating_add(DENIAL_RETRY).unwrap_or(Timestamp::MAX);
        }
    }

    /// Kinds that must not be deleted now.
    pub(in crate::orphans) fn undeletable_kinds(&self, now: Timestamp) -> impl Iterator<Item = ResourceKind> + '_ {
        ResourceKind::ALL.into_iter().filter(move |kind| self.blocked_until(SweepAction::Delete, *kind, now).is_some())
    }

    /// All of them.
    pub(in crate::orphans) fn all(&self) -> impl Iterator<Item = &Denial> {
        self.0.values()
    }
}
