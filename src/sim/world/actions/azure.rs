//! Applies actions to Azure.

use crate::cloud::ListingFault;
use crate::world::timeline::EventKind;
use crate::world::{Action, World};
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::azure::cloud::{ResourceKind, Tags};
use napkeeper_core::model::cluster::pod::PodPhase;
use napkeeper_core::model::names::{ArmId, ObjectName, ProviderId, Zone};
use std::sync::Arc;

impl World {
    pub(in crate::world) fn apply_in_azure(&mut self, action: Action) {
        let now = self.now;
        let faults = &mut self.cloud.faults;
        let text = match action {
            Action::Refuse(shortage) => {
                faults.refused.push(shortage.shortage(now));
                "refuses some sizes"
            }
            Action::NoCapacity(shortage) => {
                faults.unallocatable.push(shortage.shortage(now));
                "has no hardware for some sizes"
            }
            Action::Throttle { duration } => {
                faults.throttled = Some((now + duration, SignedDuration::from_secs(20)));
                "throttles"
            }
            Action::AzureDown { duration } => {
                faults.unavailable_until = Some(now + duration);
                "fails"
            }
            Action::BrokenListing { duration } => {
                faults.listing = Some((now + duration, ListingFault::BrokenPage));
                "truncates its listings"
            }
            Action::KeepChildren { on } => {
                faults.keep_children = on;
                if on { "leaks NICs and disks" } else { "stops leaking NICs and disks" }
            }
            Action::ShoutingIds { on } => {
                faults.uppercase_ids = on;
                "returns ids in another case"
            }
            Action::ApiServerDown { duration } => {
                self.cluster.unavailable(now + duration);
                return self.log(EventKind::Scenario, "API server", "unreachable");
            }
            Action::Quota { family, capacity_type, cores } => return self.set_quota(family, capacity_type, cores),
            Action::Reserve { group, size, zone, capacity } => {
                let zone = zone.unwrap_or_else(Zone::regional);
                self.cloud.reserve_vms(&group, &size, &zone, capacity);
                let text = format!("{} VMs of {size} are reserved in {zone}", capacity.unwrap_or(0));
                return self.log(EventKind::Scenario, group.name(), text);
            }
            Action::EvictSpot { count } => return self.evict_spot(count, false),
            Action::EvictSpotAnnounced { count } => return self.evict_spot(count, true),
            Action::LeakNic { name } => return self.leak_nic(&name),
            Action::ForeignVm { name } => return self.add_foreign_vm(&name),
            Action::TakeOver { nth, kind } => return self.take_over(nth, kind),
            Action::Misdirect { on } => {
                let other = ArmId::new("/subscriptions/other/resourceGroups/other/providers/Microsoft.ContainerService/managedClusters/other").ok();
                let owner = if on { other } else { self.cloud.settings().managed_by.clone() };
                self.truth.group_is_foreign = on;
                self.cloud.set_group_managed_by(owner);
                return self.log(EventKind::Scenario, "node resource group", "its managedBy changes");
            }
            _ => return,
        };
        self.log(EventKind::Scenario, "Azure", text);
    }

    fn set_quota(&mut self, family: Option<Arc<str>>, capacity_type: Option<CapacityType>, cores: Option<u32>) {
        let limits = &mut self.cloud.limits;
        let subject = match (&family, capacity_type) {
            (Some(family), _) => {
                match cores {
                    Some(cores) => drop(limits.families.insert(Arc::clone(family), cores)),
                    None => drop(limits.families.remove(family)),
                }
                format!("family {family}")
            }
            (None, Some(CapacityType::Spot)) => {
                limits.spot = cores;
                "spot".to_owned()
            }
            (None, _) => {
                limits.regional = cores;
                "regional".to_owned()
            }
        };
        let text = cores.map_or_else(|| "quota lifted".to_owned(), |n| format!("quota is {n} cores"));
        self.log(EventKind::Scenario, subject, text);
    }

    /// Takes spot VMs back, those with running pods first; their Nodes may announce it.
    fn evict_spot(&mut self, count: usize, is_announced: bool) {
        let busy = |vm: &&ArmId| {
            let node = self.cluster.state().node_by_provider_id(&ProviderId::of_vm(vm));
            let usage = node.and_then(|n| self.cluster.state().node_usage(&n.name));
            usage.is_some_and(|u| {
                u.pods.iter().filter_map(|k| self.cluster.state().pods().get(k)).any(|p| p.phase == PodPhase::Running)
            })
        };
        let spot: Vec<ArmId> = self
            .cloud
            .resources()
            .values()
            .filter(|r| crate::world::invariants::capacity_type(r) == Some(CapacityType::Spot))
            .map(|r| r.id.clone())
            .collect();
        let mut chosen: Vec<ArmId> = spot.iter().filter(busy).take(count).cloned().collect();
        chosen.extend(
            spot.iter()
                .filter(|id| !chosen.contains(id))
                .take(count - chosen.len().min(count))
                .cloned()
                .collect::<Vec<_>>(),
        );
        let mut evicted = 0;
        for vm in chosen {
            if self.cloud.evict_spot(&vm, self.now).is_ok() {
                evicted += 1;
                self.log(EventKind::Scenario, vm.name(), "Azure announces a spot eviction");
                if is_announced {
                    self.announce_eviction(&ProviderId::of_vm(&vm));
                }
            }
        }
        if evicted < count {
            let text = format!("{evicted} of {count} evictions: no more spot VMs exist");
            self.log(EventKind::Scenario, "spot VMs", text);
        }
    }

    fn leak_nic(&mut self, name: &ObjectName) {
        let tags = self.tags_of_deleted_claim();
        if self.cloud.leak_nic(name.as_str(), tags, self.now).is_err() {
            return;
        }
        self.log(EventKind::Scenario, name, "leftover NIC of a deleted NodeClaim");
    }

    fn add_foreign_vm(&mut self, name: &ObjectName) {
        let size =
            self.catalog.sizes.iter().find(|s| s.facts.vcpus == 4 && !s.zones.is_empty() && s.on_demand.is_some());
        let Some(size) = size else { return };
        let offering = OfferingKey {
            size: size.facts.name.clone(),
            zone: size.zones[0].clone(),
            capacity_type: CapacityType::OnDemand,
        };
        // The value of a tag names Karpenter's key: a text search would match it.
        let tags = Tags::from([(Arc::from("copied-from"), Arc::from("karpenter.sh_nodepool"))]);
        if self.cloud.add_vm(name.as_str(), tags, &offering, self.now).is_err() {
            return;
        }
        for id in [self.cloud.vm_id(name.as_str()), self.cloud.nic_id(name.as_str()), self.cloud.disk_id(name.as_str())]
        {
            if let Some(resource) = self.cloud.resources().get(&id) {
                let incarnation = Arc::clone(&resource.incarnation);
                self.truth.set_foreign(&incarnation);
            }
        }
        self.log(EventKind::Scenario, name, "another owner runs a VM in the node resource group");
    }

    fn take_over(&mut self, nth: usize, kind: ResourceKind) {
        let of_kind: Vec<_> = self.cloud.resources().values().filter(|r| r.kind() == kind).cloned().collect();
        let Some(resource) = of_kind.get(nth % of_kind.len().max(1)) else { return };
        let tags = Tags::from([(Arc::from("owner"), Arc::from("another owner"))]);
        if self.cloud.retag(&resource.id, tags, self.now).is_ok() {
            self.mark_foreign(&resource.id);
            self.log(EventKind::Scenario, resource.id.name(), format!("another owner takes over the {kind}"));
        }
    }
}
