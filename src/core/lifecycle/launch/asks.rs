//! Asks of a launch: which effects does it consist of, and what do they say?

use super::{LaunchScript, State};
use crate::model::cluster::claim::PlannedOffering;
use crate::model::errors::{CloudError, OperationId};
use crate::plan::{Effect, NicSpec, Step, VmSpec};
use jiff::Timestamp;
use std::sync::Arc;

impl LaunchScript {
    pub(super) fn write_intent(&mut self, then: State, operation: Option<OperationId>) -> Step {
        let machine = self.wanted.launch.intent.as_ref().and_then(|intent| intent.machine.clone());
        match self.wanted.intend(machine, operation, self.patience.started()) {
            Some(effect) => self.go(then, effect),
            None => self.finish(),
        }
    }

    pub(super) fn put_nic(&mut self) -> Step {
        // The NIC stays when the next offering is tried, so all of them must be able to use it.
        let offerings = &self.wanted.launch.offerings;
        let can = |o: &PlannedOffering| self.wanted.size(&o.key.size).is_some_and(|t| t.facts.accelerated_networking);
        let accelerated = !offerings.is_empty() && offerings.iter().all(can);
        let tags = self.wanted.launch.tags.clone();
        let nic = NicSpec {
            id: self.ids.nic.clone(),
            tags,
            accelerated,
            subnet: self.wanted.launch.subnet.clone(),
            fresh: true,
        };
        self.go(State::Nic, Effect::PutNic(Box::new(nic)))
    }

    pub(super) fn put_vm(&mut self) -> Step {
        let Some(offering) = self.wanted.offering() else { return self.finish() };
        let launch = &self.wanted.launch;
        let vm = VmSpec {
            id: self.ids.vm.clone(),
            offering: offering.key.clone(),
            nic: self.ids.nic.clone(),
            os_disk: self.ids.os_disk.clone(),
            os_disk_gb: launch.os_disk_gb,
            tags: launch.tags.clone(),
            claim: launch.claim.name.clone(),
            kubelet: self.wanted.kubelet(),
            premium_disk: self.wanted.size(&offering.key.size).is_some_and(|t| t.facts.premium_io),
            security: launch.security,
            reservation: self.wanted.reservation().cloned(),
            fresh: true,
        };
        self.go(State::Vm, Effect::PutVm(Box::new(vm)))
    }

    pub(super) fn launched(&mut self) -> Step {
        match self.wanted.launched(&self.ids.vm) {
            Some(effect) => self.note(effect),
            None => self.finish(),
        }
    }

    pub(super) fn give_up(&mut self, error: &CloudError, now: Timestamp) -> Step {
        self.note(self.wanted.failed(error.code, Arc::clone(&error.message), now))
    }

    fn note(&mut self, effect: Effect) -> Step {
        self.go(State::Noted(Box::new(effect.clone())), effect)
    }
}
