//! The bill: does AKS count every node that we launched?
//!
//! AKS counts Linux nodes by an extension of their VMs. *Guarantees*: a claim that counts as launched is asked about
//! until its extension was accepted and the claim says so, whatever crashes in between; nothing waits for it, since a
//! node is worth more than its count. *Assumptions*: the PUT may be repeated. A Machine's VM is AKS's own affair.

use super::Stepper;
use crate::model::cluster::claim::{Claim, ClaimRef};
use crate::model::errors::{CloudErrorCode, PortError};
use crate::model::names::ArmId;
use crate::model::settings::Switch;
use crate::plan::{ClaimStep, Command, Effect, Reply, Script, Step};
use jiff::{SignedDuration, Timestamp};

/// An extension that could not be put is tried again after this time.
const BILL_AGAIN: SignedDuration = SignedDuration::from_mins(5);

impl Stepper<'_> {
    /// Asks for the extension of a VM that has none yet; `true` where the claim is busy with it from now on.
    pub(super) fn bill(&mut self, claim: &Claim) -> bool {
        let by_aks = claim.intent.as_ref().is_some_and(|intent| intent.machine.is_some());
        let done = claim.status.billed.is_some() || by_aks || !self.settings.billing;
        if done || self.snapshot.pause.holds(Switch::Launch) {
            return false;
        }
        let Some(vm) = claim.status.provider_id.as_ref().map(|id| id.vm().clone()) else { return false };
        let due = self.memory.billed.get(&claim.name).map(|at| *at + BILL_AGAIN);
        if let Some(due) = due.filter(|due| *due > self.now) {
            self.plan.wake_at(due);
            return false;
        }
        self.memory.billed.insert(claim.name.clone(), self.now);
        self.plan.push(Command::Bill { claim: claim.reference(), vm }, "AKS counts its node by an extension");
        true
    }
}

/// Puts the extension by which AKS counts a node, and notes on the claim that it was accepted.
#[derive(Debug)]
pub struct BillScript {
    claim: ClaimRef,
    vm: ArmId,
    state: State,
}

/// What the last effect was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    Put,
    Noted,
}

impl BillScript {
    /// The script of a bill command.
    #[must_use]
    pub fn new(claim: ClaimRef, vm: ArmId) -> Self {
        Self { claim, vm, state: State::Begin }
    }
}

impl Script for BillScript {
    fn step(&mut self, reply: Option<Result<Reply, PortError>>, _now: Timestamp) -> Step {
        match (self.state, reply) {
            (State::Begin, _) => {
                self.state = State::Put;
                Step::perform(Effect::PutBilling(self.vm.clone()))
            }
            // There is no VM to count: whoever looks after lost nodes sees to it.
            (State::Put, Some(Err(PortError::Cloud(error)))) if error.code == CloudErrorCode::NotFound => {
                Step::finished()
            }
            (_, Some(Err(error))) => Step::failed(error),
            (State::Put, _) => {
                self.state = State::Noted;
                Step::perform(Effect::AdvanceClaim(self.claim.clone(), ClaimStep::Billed))
            }
            (State::Noted, _) => Step::finished(),
        }
    }
}
