//! Installs the AKS billing extension on launched VMs.
//!
//! AKS counts Linux nodes by an extension of their VMs. *Guarantees*: the extension of a launched claim is requested
//! until it was accepted and the claim records it, whatever crashes in between; nothing waits for it, since a node is
//! more important than its count. *Assumptions*: the PUT may be repeated. The VM of an AKS Machine is AKS's own
//! responsibility.

use super::ClaimReconciler;
use crate::model::cluster::claim::{Claim, ClaimRef};
use crate::model::errors::{CloudErrorCode, EffectError};
use crate::model::names::ArmId;
use crate::model::settings::PauseSwitch;
use crate::plan::{ClaimUpdate, CloudRequest, ClusterWrite, Command, Effect, Reply, Script, Step};
use jiff::{SignedDuration, Timestamp};

/// An extension that could not be put is tried again after this time.
const BILLING_EXTENSION_RETRY: SignedDuration = SignedDuration::from_mins(5);

impl ClaimReconciler<'_> {
    /// Requests the extension of a VM that has none yet; `true` where a command of the claim is running for it.
    pub(super) fn ensure_billing_extension(&mut self, claim: &Claim) -> bool {
        let by_aks = claim.intent.as_ref().is_some_and(|intent| intent.machine.is_some());
        let done = claim.status.billed.is_some() || by_aks || !self.settings.billing_extension;
        if done || self.snapshot.pause.blocks(PauseSwitch::Launch, self.now) {
            return false;
        }
        let Some(vm) = claim.status.provider_id.as_ref().map(|id| id.vm().clone()) else { return false };
        let due = self.memory.billing_attempted.get(&claim.name).map(|at| *at + BILLING_EXTENSION_RETRY);
        if let Some(due) = due.filter(|due| *due > self.now) {
            self.plan.wake_at(due);
            return false;
        }
        self.memory.billing_attempted.insert(claim.name.clone(), self.now);
        self.plan.push(
            Command::InstallBillingExtension { claim: claim.reference(), vm },
            "the AKS billing extension is missing",
        );
        true
    }
}

/// Puts the extension by which AKS counts a node, and notes on the claim that it was accepted.
#[derive(Debug)]
pub struct BillingExtensionScript {
    claim: ClaimRef,
    vm: ArmId,
    state: State,
}

/// The last effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begin,
    Put,
    ClaimUpdated,
}

impl BillingExtensionScript {
    /// The script of a bill command.
    #[must_use]
    pub fn new(claim: ClaimRef, vm: ArmId) -> Self {
        Self { claim, vm, state: State::Begin }
    }
}

impl Script for BillingExtensionScript {
    fn step(&mut self, reply: Option<Result<Reply, EffectError>>, _now: Timestamp) -> Step {
        match (self.state, reply) {
            (State::Begin, _) => {
                self.state = State::Put;
                Step::perform(Effect::Cloud(CloudRequest::PutBillingExtension(self.vm.clone())))
            }
            // There is no VM to count; the check for lost VMs handles the claim.
            (State::Put, Some(Err(EffectError::Cloud(error)))) if error.code == CloudErrorCode::NotFound => {
                Step::finished()
            }
            (_, Some(Err(error))) => Step::failed(error),
            (State::Put, _) => {
                self.state = State::ClaimUpdated;
                Step::perform(Effect::Cluster(ClusterWrite::UpdateClaim(
                    self.claim.clone(),
                    ClaimUpdate::BillingExtensionInstalled,
                )))
            }
            (State::ClaimUpdated, _) => Step::finished(),
        }
    }
}
