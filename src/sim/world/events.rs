//! Passes events between Azure and the cluster.

use super::timeline::EventKind;
use super::{NewVm, World};
use crate::cloud::{ChangeCause, CloudEvent, DiskDraft};
use crate::cluster::{ClusterEvent, NewNode};
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodeName, ProviderId, VmSize};
use std::sync::Arc;

impl World {
    /// Carries events from one side to the other; true when there was one.
    pub(super) fn exchange(&mut self) -> bool {
        let cloud = self.cloud.take_events();
        let cluster = self.cluster.take_events();
        let any = !cloud.is_empty() || !cluster.is_empty();
        for event in cloud {
            self.cloud_event(event);
        }
        for (at, event) in cluster {
            self.cluster_event(at, event);
        }
        any
    }

    fn cloud_event(&mut self, event: CloudEvent) {
        match event {
            CloudEvent::VmRunning { at, vm, incarnation, claim, kubelet, offering, price, os_disk } => {
                let on_demand = self.catalog.size(&offering.size).and_then(|s| s.on_demand).unwrap_or(price) + os_disk;
                let price = price + os_disk;
                if let Some(claim) = claim {
                    let pool = self.cluster.state().claims().get(&claim).and_then(|claim| claim.spec.pool.clone());
                    let pool = pool.map_or_else(|| Arc::from(""), |pool| pool.text());
                    self.accounting.vm_runs(NewVm { incarnation, pool, offering: &offering, price, on_demand });
                    if let Some(node) = self.new_node(&claim, &vm, &offering.size, kubelet.labels) {
                        self.cluster.kubelet_joins(node, at, self.now);
                    }
                }
            }
            CloudEvent::VmStopped { vm, incarnation, deallocated, .. } => {
                if deallocated {
                    self.accounting.vm_stops(&incarnation);
                }
                let word = if deallocated { "deallocated" } else { "stopped" };
                self.log(EventKind::Scenario, vm.name(), format!("its VM is {word} by a user"));
                self.cluster.kubelet_stopped(&ProviderId::of_vm(&vm), self.now);
            }
            CloudEvent::VmGone { vm, incarnation, cause, .. } => {
                self.accounting.vm_stops(&incarnation);
                if cause == ChangeCause::Eviction {
                    self.accounting.spot_evictions += 1;
                    self.log(EventKind::Evicted, vm.name(), "Azure evicted the spot VM");
                } else if cause == ChangeCause::Request
                    && let Some(node) = self.cluster.state().node_by_provider_id(&ProviderId::of_vm(&vm)).cloned()
                {
                    self.cluster.vm_deleted_by_policy(&node.name, self.now);
                }
                self.cluster.kubelet_lost(&ProviderId::of_vm(&vm), self.now);
            }
        }
    }

    /// The Node of a VM of a NodeClaim, with the labels of its kubelet's configuration.
    fn new_node(&self, claim: &ClaimName, vm: &ArmId, size: &VmSize, labels: Labels) -> Option<NewNode> {
        let spec = &self.cluster.state().claims().get(claim)?.spec;
        let types = self.controller.inner.instance_types_of(&spec.class)?;
        let instance = types.iter().find(|t| t.facts.name == *size)?;
        let other = self.injected.other_image.as_ref().filter(|image| spec.pool.as_ref() == Some(&image.pool));
        let mut allocatable = instance.allocatable.clone();
        if let Some(image) = other {
            allocatable.cpu_millis = allocatable.cpu_millis * image.allocatable_permille / 1_000;
        }
        Some(NewNode {
            name: NodeName::new(vm.name()).ok()?,
            provider_id: ProviderId::of_vm(vm),
            labels,
            taints: Vec::new(),
            capacity: instance.capacity.clone(),
            allocatable,
            kubelet_version: Some(Arc::clone(other.map_or(&self.kubelet_version, |image| &image.kubelet_version))),
        })
    }

    fn cluster_event(&mut self, _at: Timestamp, event: ClusterEvent) {
        let now = self.now;
        match event {
            ClusterEvent::DiskWanted { volume, claim, zone, size_gib } => {
                let tag = |k: &str, v: &str| (Arc::from(k), Arc::from(v));
                let tags = Tags::from([
                    tag("k8s-azure-created-by", "kubernetes-azure-dd"),
                    tag("kubernetes.io-created-for-pv-name", volume.as_str()),
                    tag("kubernetes.io-created-for-pvc-name", claim.name.as_str()),
                    tag("kubernetes.io-created-for-pvc-namespace", claim.namespace.as_str()),
                ]);
                let draft = DiskDraft {
                    name: volume.text(),
                    tags,
                    size_gib,
                    sku: Arc::from("StandardSSD_LRS"),
                    is_os: false,
                    zone,
                };
                if let Ok(disk) = self.cloud.add_disk(draft, now) {
                    self.cluster.disk_created(&volume, disk, now);
                }
            }
            // The CSI driver retries until the disk can be deleted; here the event is emitted only then.
            ClusterEvent::DiskReleased { disk } => drop(self.cloud.delete_outside(&disk, now)),
            ClusterEvent::DiskAttached { disk, vm } => drop(self.cloud.attach_disk(&disk, vm.vm(), now)),
            ClusterEvent::DiskDetached { disk, vm } => self.cloud.detach_disk(&disk, vm.vm(), now),
            ClusterEvent::NodeReady { node } => {
                let labels = self.cluster.state().nodes().get(&node).map(|n| n.labels.clone()).unwrap_or_default();
                let label = |key: &str| labels.get(key).map_or("", |v| v).to_owned();
                let size = label(napkeeper_core::model::labels::INSTANCE_TYPE);
                if !size.is_empty() {
                    self.log(EventKind::Ready, &node, size + " " + &label(napkeeper_core::model::labels::ZONE));
                }
            }
            ClusterEvent::NodeGone { node } => self.log(EventKind::Gone, &node, "the Node no longer exists"),
            _ => {}
        }
    }
}
