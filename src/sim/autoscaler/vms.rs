//! VMs of the baseline, from order to deletion.

use super::{Autoscaler, node_groups};
use crate::cloud::{Timings as CloudTimings, Usage};
use crate::cluster::{NewNode, Timings as ClusterTimings};
use crate::world::NewVm;
use jiff::Timestamp;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::cluster::pod::{PodOwner, PodPhase};
use napkeeper_core::model::names::{NameError, NodeName, ProviderId};
use std::sync::Arc;

/// A VM of a node group.
#[derive(Debug, Clone)]
pub(super) struct GroupVm {
    /// Index of its group.
    pub(super) group: usize,
    /// What its kubelet announces.
    pub(super) node: NewNode,
    pub(super) phase: VmPhase,
    /// When its phase ends without further action.
    pub(super) due: Option<Timestamp>,
}

/// The state of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VmPhase {
    /// Azure creates it.
    Creating,
    /// Azure creates it, and will find no hardware.
    Failing,
    /// It runs, and its node is on the way.
    Booting,
    /// Its node takes pods.
    Serving,
    /// Its pods are being evicted since this time.
    Draining(Timestamp),
    /// Azure deletes it.
    Deleting,
    /// Azure has given notice that it takes it back.
    Evicted,
}

impl VmPhase {
    /// Its node will take pods.
    pub(super) fn is_upcoming(self) -> bool {
        matches!(self, Self::Creating | Self::Failing | Self::Booting)
    }
}

impl Autoscaler {
    /// Orders VMs for a group; it backs off when Azure refuses one.
    pub(super) fn order(&mut self, group: usize, count: usize) -> Result<(), NameError> {
        for _ in 0..count {
            let wanted = &self.groups[group];
            let quota =
                self.limits.check_cores(&self.usage(), &wanted.facts, wanted.offering.capacity_type, &self.region);
            if quota.is_err() || self.faults.refuses(&wanted.offering, self.now) {
                self.groups[group].back_off(self.now);
                return Ok(());
            }
            let phase = if self.faults.lacks_capacity(&wanted.offering, self.now) {
                VmPhase::Failing
            } else {
                VmPhase::Creating
            };
            let (name, vm) = node_groups::vm_of_number(&wanted.name, self.ordered, &self.resource_group);
            let name = NodeName::new(name)?;
            let node = NewNode { name: name.clone(), provider_id: ProviderId::of_vm(&vm), ..wanted.template.clone() };
            self.ordered += 1;
            let due = Some(self.now + CloudTimings::default().vm_create.of(self.seed, "create", name.as_str()));
            self.vms.insert(name, GroupVm { group, node, phase, due });
        }
        Ok(())
    }

    /// Deletes the VM of a node.
    pub(super) fn delete(&mut self, name: &NodeName) {
        let due = self.now + CloudTimings::default().vm_delete.of(self.seed, "delete", name.as_str());
        if let Some(vm) = self.vms.get_mut(name) {
            vm.phase = VmPhase::Deleting;
            vm.due = Some(due);
        }
    }

    /// Azure gives eviction notice to spot VMs, those with running pods first.
    pub(super) fn evict_spot(&mut self, count: usize) {
        let is_spot = |m: &&GroupVm| {
            let runs = !matches!(m.phase, VmPhase::Creating | VmPhase::Failing | VmPhase::Evicted | VmPhase::Deleting);
            runs && self.groups[m.group].offering.capacity_type == CapacityType::Spot
        };
        let mut spot: Vec<NodeName> = self.vms.values().filter(is_spot).map(|vm| vm.node.name.clone()).collect();
        spot.sort_by_cached_key(|name| !self.is_busy(name));
        let due = self.now + CloudTimings::default().eviction_notice;
        for name in spot.iter().take(count) {
            if let Some(vm) = self.vms.get_mut(name) {
                vm.phase = VmPhase::Evicted;
                vm.due = Some(due);
            }
        }
    }

    /// Ends the phases that end by now.
    pub(super) fn advance_vms(&mut self) {
        let due = |m: &&GroupVm| m.due.is_some_and(|at| at <= self.now);
        let ended: Vec<GroupVm> = self.vms.values().filter(due).cloned().collect();
        for vm in ended {
            let name = vm.node.name.clone();
            match vm.phase {
                VmPhase::Creating => self.runs(vm),
                VmPhase::Booting => {
                    self.cluster.add_unmanaged_node(vm.node.clone(), self.now);
                    self.vms.insert(name, GroupVm { phase: VmPhase::Serving, due: None, ..vm });
                }
                VmPhase::Failing => {
                    self.vms.remove(&name);
                    self.groups[vm.group].back_off(self.now);
                    self.wake_at(self.now);
                }
                VmPhase::Deleting => {
                    self.stops(&name);
                    self.cluster.vm_deleted_by_policy(&name, self.now);
                    self.cluster.delete_node(&name, self.now);
                }
                VmPhase::Evicted => {
                    self.stops(&name);
                    self.cluster.kubelet_lost(&vm.node.provider_id, self.now);
                    self.wake_at(self.now);
                }
                // The autoscaler ends these.
                VmPhase::Serving | VmPhase::Draining(_) => {}
            }
        }
    }

    fn runs(&mut self, vm: GroupVm) {
        let name = vm.node.name.clone();
        let group = &self.groups[vm.group];
        self.accounting.vm_runs(NewVm {
            incarnation: name.text(),
            pool: Arc::clone(&group.name),
            offering: &group.offering,
            price: group.price + group.os_disk,
            on_demand: group.on_demand + group.os_disk,
        });
        let timings = ClusterTimings::default();
        let joins = timings.node_joins.of(self.seed, "join", name.as_str());
        let boots = joins + timings.node_ready.of(self.seed, "ready", name.as_str());
        let due = Some(self.now + boots);
        self.vms.insert(name, GroupVm { phase: VmPhase::Booting, due, ..vm });
    }

    fn stops(&mut self, name: &NodeName) {
        self.vms.remove(name);
        self.unneeded.remove(name);
        self.accounting.vm_stops(name.as_str());
    }

    /// Pods on a node that have not ended, but for those that belong to the node.
    pub(super) fn pods_on(&self, node: &NodeName) -> Vec<Arc<napkeeper_core::model::cluster::pod::Pod>> {
        let state = self.cluster.state();
        let keys = state.node_usage(node).into_iter().flat_map(|usage| &usage.pods);
        keys.filter_map(|key| state.pods().get(key))
            .filter(|pod| !matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static))
            .map(Arc::clone)
            .collect()
    }

    fn is_busy(&self, node: &NodeName) -> bool {
        self.pods_on(node).iter().any(|pod| pod.phase == PodPhase::Running)
    }

    /// The cores that all VMs take of the quotas.
    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for vm in self.vms.values() {
            let group = &self.groups[vm.group];
            usage.count(&group.facts, group.offering.capacity_type);
        }
        usage
    }
}
