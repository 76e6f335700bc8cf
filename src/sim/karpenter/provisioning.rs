//! Provisioning: collects pods for a moment, and creates the NodeClaims that they need.

use super::Karpenter;
use super::scheduling::{Request, simulate};
use super::view::NodeSet;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::names::{NameError, NodeName};

/// A batch ends when no pod has come for this long (`--batch-idle-duration`),
const IDLE: SignedDuration = SignedDuration::from_secs(1);
/// and at the latest this long after its first (`--batch-max-duration`).
const LONGEST: SignedDuration = SignedDuration::from_secs(10);
/// Pods that still wait are planned for again.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// A node that pods were planned onto is not disrupted for this long: twice the longest batch.
const NOMINATION: SignedDuration = SignedDuration::from_secs(20);

/// Pods that are being collected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    began: Timestamp,
    last: Timestamp,
}

impl Batch {
    pub(super) fn ends_at(self) -> Timestamp {
        (self.began + LONGEST).min(self.last + IDLE)
    }
}

impl Karpenter {
    /// A pod needs a node, or a node is leaving.
    pub(super) fn trigger(&mut self) {
        let began = self.batch.map_or(self.now, |batch| batch.began);
        self.batch = Some(Batch { began, last: self.now });
    }

    /// Plans when a batch ends.
    pub(super) fn provision(&mut self) -> Result<(), NameError> {
        if self.replan_at.is_some_and(|at| at <= self.now) {
            self.replan_at = None;
            self.trigger();
        }
        if self.batch.is_some_and(|batch| batch.ends_at() <= self.now) {
            self.batch = None;
            self.plan()?;
        }
        Ok(())
    }

    fn plan(&mut self) -> Result<(), NameError> {
        let view = self.view();
        let mut pods = view.pending.clone();
        pods.extend(view.pods_of_leaving_nodes());
        if pods.is_empty() {
            return Ok(());
        }
        self.replan_at = Some(self.now + AGAIN);
        if self.observed.is_planned() {
            let again = self.observed.destinations.clone();
            again.iter().for_each(|name| self.nominate(name));
            return Ok(());
        }
        let results =
            simulate(&view, Request { pods, without: &NodeSet::new(), spares_fresh: false, most_new: usize::MAX });
        let destinations: Vec<NodeName> = results.placed.keys().cloned().collect();
        destinations.iter().for_each(|name| self.nominate(name));
        self.observed.planned(destinations);
        for planned in &results.new_claims {
            if let Some(name) = self.create(planned)? {
                self.nominate(&name);
            }
        }
        Ok(())
    }

    /// Pods are planned onto a node: it is not disrupted for a while.
    pub(super) fn nominate(&mut self, name: &NodeName) {
        if let Some(claim) = self.claims.get_mut(name) {
            claim.nominated_until = Some(self.now + NOMINATION);
        }
    }
}
