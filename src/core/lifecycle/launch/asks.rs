//! Asks of a launch: which effects does it consist of, and what do they say?

use super::{LaunchScript, State};
use crate::catalog::{InstanceType, Offering, OfferingKey, node_labels};
use crate::cluster::claim::{ClaimRef, LaunchFailure, LaunchIntent, PlannedOffering};
use crate::names::{ProviderId, VmSize};
use crate::plan::{ClaimStep, Effect, KubeletSpec, NicSpec, Step, VmSpec};
use crate::ports::{CloudError, OperationId};
use jiff::Timestamp;
use std::sync::Arc;

impl LaunchScript {
    pub(super) fn write_intent(&mut self, then: State, operation: Option<OperationId>) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering).cloned() else { return self.finish() };
        let intent = LaunchIntent {
            offering,
            vm: self.ids.vm.clone(),
            nic: self.ids.nic.clone(),
            os_disk: self.ids.os_disk.clone(),
            machine: self.launch.intent.as_ref().and_then(|intent| intent.machine.clone()),
            written_at: self.started.unwrap_or_default(),
            refused: u32::try_from(self.offering).unwrap_or(u32::MAX),
            operation,
        };
        self.go(then, Effect::WriteIntent(self.launch.claim.clone(), Box::new(intent)))
    }

    pub(super) fn put_nic(&mut self) -> Step {
        // The NIC stays when the next offering is tried, so all of them must be able to use it.
        let accelerated = !self.launch.offerings.is_empty()
            && self
                .launch
                .offerings
                .iter()
                .all(|o| self.size(&o.key.size).is_some_and(|t| t.facts.accelerated_networking));
        let tags = self.launch.tags.clone();
        let nic = NicSpec { id: self.ids.nic.clone(), tags, accelerated, fresh: true };
        self.go(State::Nic, Effect::PutNic(Box::new(nic)))
    }

    pub(super) fn put_vm(&mut self) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering) else { return self.finish() };
        let vm = VmSpec {
            id: self.ids.vm.clone(),
            offering: offering.key.clone(),
            nic: self.ids.nic.clone(),
            os_disk: self.ids.os_disk.clone(),
            os_disk_gb: self.launch.os_disk_gb,
            tags: self.launch.tags.clone(),
            claim: self.launch.claim.name.clone(),
            kubelet: self.kubelet(offering),
            premium_disk: self.size(&offering.key.size).is_some_and(|t| t.facts.premium_io),
            encryption_at_host: self.launch.encryption_at_host,
            fresh: true,
        };
        self.go(State::Vm, Effect::PutVm(Box::new(vm)))
    }

    pub(super) fn size(&self, name: &VmSize) -> Option<&InstanceType> {
        self.sizes.iter().find(|t| t.facts.name == *name)
    }

    pub(super) fn kubelet(&self, offering: &PlannedOffering) -> KubeletSpec {
        let Some(size) = self.size(&offering.key.size) else { return KubeletSpec::default() };
        let OfferingKey { zone, capacity_type, .. } = offering.key.clone();
        let labels = node_labels(size, &Offering { zone, capacity_type, price: offering.price });
        KubeletSpec { labels, max_pods: u32::try_from(size.capacity.pods).unwrap_or(u32::MAX) }
    }

    pub(super) fn launched(&mut self) -> Step {
        let Some(offering) = self.launch.offerings.get(self.offering) else { return self.finish() };
        let size = self.size(&offering.key.size);
        let (capacity, allocatable) = size.map(|t| (t.capacity.clone(), t.allocatable.clone())).unwrap_or_default();
        let step = ClaimStep::Launched {
            provider_id: ProviderId::of_vm(&self.ids.vm),
            offering: offering.key.clone(),
            capacity,
            allocatable,
        };
        let claim = self.launch.claim.clone();
        self.note(Effect::AdvanceClaim(claim, step))
    }

    pub(super) fn give_up(&mut self, error: &CloudError, now: Timestamp) -> Step {
        let failure =
            LaunchFailure { at: now, code: Arc::from(error.code.category()), message: Arc::clone(&error.message) };
        let claim: ClaimRef = self.launch.claim.clone();
        self.note(Effect::AdvanceClaim(claim, ClaimStep::LaunchFailed(failure)))
    }

    fn note(&mut self, effect: Effect) -> Step {
        self.go(State::Noted(Box::new(effect.clone())), effect)
    }
}
