//! Requests of a launch.

use super::{LaunchScript, State};
use crate::catalog::OsDiskStorage;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::errors::{CloudError, OperationId};
use crate::plan::{CloudRequest, Effect, NicSpec, Step, VmSpec};
use jiff::Timestamp;
use std::sync::Arc;

impl LaunchScript {
    pub(super) fn write_intent(&mut self, then: State, operation: Option<OperationId>) -> Step {
        let machine = self.progress.launch.intent.as_ref().and_then(|intent| intent.machine.clone());
        match self.progress.write_intent(machine, operation, self.retry_budget.started()) {
            Some(effect) => self.perform(then, effect),
            None => self.finish(),
        }
    }

    pub(super) fn put_nic(&mut self) -> Step {
        // The NIC is reused for the next offering, so all of them must support it.
        let offerings = &self.progress.launch.offerings;
        let can = |o: &PlannedOffering| {
            self.progress.instance_type(&o.key.size).is_some_and(|t| t.facts.accelerated_networking)
        };
        let accelerated = !offerings.is_empty() && offerings.iter().all(can);
        let tags = self.progress.launch.tags.clone();
        let nic = NicSpec {
            id: self.ids.nic.clone(),
            tags,
            accelerated,
            subnet: self.progress.launch.subnet.clone(),
            create_only: true,
        };
        self.perform(State::NicPut, Effect::Cloud(CloudRequest::PutNic(Box::new(nic))))
    }

    pub(super) fn put_vm(&mut self) -> Step {
        let Some(offering) = self.progress.current_offering() else { return self.finish() };
        let launch = &self.progress.launch;
        let Some(instance) = self.progress.instance_type(&offering.key.size) else { return self.finish() };
        let vm = VmSpec {
            id: self.ids.vm.clone(),
            offering: offering.key.clone(),
            nic: self.ids.nic.clone(),
            os_disk: self.ids.os_disk.clone(),
            os_disk_gb: launch.os_disk_gb,
            tags: launch.tags.clone(),
            claim: launch.claim.name.clone(),
            kubelet: self.progress.kubelet_spec(),
            os_disk_storage: OsDiskStorage::of(&instance.facts, launch.os_disk_gb),
            security: launch.security,
            capacity_reservation_group: self.progress.reservation().cloned(),
            create_only: true,
        };
        self.perform(State::VmPut, Effect::Cloud(CloudRequest::PutVm(Box::new(vm))))
    }

    pub(super) fn mark_launched(&mut self) -> Step {
        match self.progress.mark_launched(&self.ids.vm) {
            Some(effect) => self.update_claim(effect),
            None => self.finish(),
        }
    }

    pub(super) fn give_up(&mut self, error: &CloudError, now: Timestamp) -> Step {
        self.update_claim(self.progress.mark_failed(error.code, Arc::clone(&error.message), now))
    }

    fn update_claim(&mut self, effect: Effect) -> Step {
        self.perform(State::ClaimUpdated(Box::new(effect.clone())), effect)
    }
}
