//! Long-running operations and their results.

use super::refusal::Refusal;
use jiff::Timestamp;
use napkeeper_core::model::errors::OperationId;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::Reply;
use std::collections::BTreeMap;

/// The result of an operation at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Completion {
    /// Brings a VM up, or fails.
    Create(Result<(), Refusal>),
    /// Takes a resource away, or fails.
    Delete(Result<(), Refusal>),
}

impl Completion {
    fn deletes(&self) -> bool {
        matches!(self, Self::Delete(_))
    }
}

/// An operation that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningOperation {
    /// Its id.
    pub id: OperationId,
    /// The resource that it changes.
    pub target: ArmId,
    /// It takes its target away; else it brings it up.
    pub deletes: bool,
    /// When it ends.
    pub ends_at: Timestamp,
}

/// All operations. A resource has at most one that has not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations {
    ended: BTreeMap<OperationId, Result<(), Refusal>>,
    running: BTreeMap<OperationId, (ArmId, Completion)>,
    of: BTreeMap<ArmId, OperationId>,
}

impl Operations {
    pub(super) fn begin(&mut self, id: OperationId, target: ArmId, completion: Completion) {
        self.of.insert(target.clone(), id.clone());
        self.running.insert(id, (target, completion));
    }

    /// The operation on a resource that has not ended.
    pub(super) fn on(&self, target: &ArmId) -> Option<&OperationId> {
        self.of.get(target)
    }

    /// True while a resource is being deleted.
    pub(super) fn deletes(&self, target: &ArmId) -> bool {
        self.on(target).and_then(|id| self.running.get(id)).is_some_and(|(_, completion)| completion.deletes())
    }

    /// An operation that ends at this time; `None` when it has been ended before.
    pub(super) fn running(&self, id: &OperationId, ends_at: Timestamp) -> Option<RunningOperation> {
        let (target, completion) = self.running.get(id)?;
        Some(RunningOperation { id: id.clone(), target: target.clone(), deletes: completion.deletes(), ends_at })
    }

    /// Ends an operation that is due; `None` if it has been ended before.
    pub(super) fn finish(&mut self, id: &OperationId) -> Option<(ArmId, Completion)> {
        let (target, completion) = self.running.remove(id)?;
        self.of.remove(&target);
        let outcome = match &completion {
            Completion::Create(outcome) | Completion::Delete(outcome) => outcome.clone(),
        };
        self.ended.insert(id.clone(), outcome);
        Some((target, completion))
    }

    /// Cancels the operation on a resource: it was deleted, or another operation preempts it.
    pub(super) fn cancel(&mut self, target: &ArmId) {
        let Some(id) = self.of.remove(target) else {
            return;
        };
        let outcome = match self.running.remove(&id) {
            Some((_, Completion::Delete(_))) => Ok(()),
            _ => Err(Refusal::Preempted),
        };
        self.ended.insert(id, outcome);
    }

    /// True when the operation has ended in this refusal.
    pub(super) fn ended_in(&self, id: &OperationId, refusal: &Refusal) -> bool {
        matches!(self.ended.get(id), Some(Err(known)) if known == refusal)
    }

    pub(super) fn poll(&self, id: &OperationId) -> Result<Reply, Refusal> {
        if self.running.contains_key(id) {
            return Ok(Reply::Running);
        }
        match self.ended.get(id) {
            Some(outcome) => outcome.clone().map(|()| Reply::Done),
            None => Err(Refusal::OperationNotFound(id.0.clone())),
        }
    }
}
