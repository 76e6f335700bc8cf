//! Generates a cluster of any size with all resources of its node resource group.

use super::domain::model::amounts::money::HourlyPrice;
use super::domain::model::amounts::resources::Resources;
use super::domain::model::azure::cloud::{
    CloudResource, Disk, DiskState, Nic, ProvisioningState, ResourceDetail, Tags, Vm,
};
use super::domain::model::azure::inventory::Inventory;
use super::domain::model::azure::naming::{DISK_TYPE, NIC_TYPE, resource_ids};
use super::domain::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, LaunchIntent, PlannedOffering};
use super::domain::model::cluster::node::Node;
use super::domain::model::cluster::offering::{CapacityType, OfferingKey};
use super::domain::model::cluster::volume::{ReclaimPolicy, Volume};
use super::domain::model::labels;
use super::domain::model::names::{
    ArmId, ClaimName, NameError, NodeClassName, NodeName, ObjectName, ProviderId, Uid, VmSize, Zone,
};
use super::domain::model::orphans::record::{OrphanRecords, VolumeRecord};
use super::domain::model::settings::Settings;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much of everything there is. Each node has a VM, a NIC and an OS disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    /// NodeClaims, Nodes, VMs and NICs.
    pub(super) nodes: usize,
    /// OS disks and data disks together.
    pub(super) disks: usize,
    /// PersistentVolumes. Those beyond the data disks name disks that lie elsewhere.
    pub(super) volumes: usize,
    /// Leaked NICs.
    pub(super) leaks: usize,
}

/// The inventory of such a cluster, and the records of the volumes that it has had.
pub(super) fn cluster(
    counts: Counts,
    settings: &Settings,
    at: Timestamp,
) -> Result<(Inventory, OrphanRecords), NameError> {
    let mut inventory = Inventory {
        started_at: at,
        finished_at: at,
        group_managed_by: Ok(Some(settings.cluster.id.clone())),
        resources: Ok(Vec::new()),
        related: Ok(Vec::new()),
        claims: Ok(Vec::new()),
        nodes: Ok(Vec::new()),
        volumes: Ok(Vec::new()),
        attachments: Ok(Vec::new()),
        disk_uses: Ok(Vec::new()),
    };
    let mut records = OrphanRecords::default();
    let (Ok(cloud), Ok(claims), Ok(nodes), Ok(volumes)) =
        (&mut inventory.resources, &mut inventory.claims, &mut inventory.nodes, &mut inventory.volumes)
    else {
        return Ok((inventory, records));
    };
    for n in 0..counts.nodes {
        let (claim, parts) = node_of(n, settings, at)?;
        nodes.push(Arc::new(node(&claim, at)?));
        claims.push(Arc::new(claim));
        cloud.extend(parts.map(Arc::new));
    }
    let group = &settings.cluster.node_resource_group;
    let own = counts.disks.saturating_sub(counts.nodes);
    for n in 0..counts.volumes {
        let name = format!("pvc-{n:08x}-9c4e-4f6b-8d5a-1f0e2d3c4b5a");
        let disk = group.resource(DISK_TYPE, &name);
        let volume = ObjectName::new(&name)?;
        let seen = VolumeRecord {
            name: volume.clone(),
            reclaim: ReclaimPolicy::Delete,
            last_seen: at,
            gone_since: None,
            unique_id: None,
        };
        records.volumes.insert(disk.clone(), seen);
        volumes.push(Arc::new(Volume {
            uid: Uid::new(format!("volume-{n}"))?,
            handle: Some(disk.clone()),
            reclaim: ReclaimPolicy::Delete,
            claim: None,
            affinity: Vec::new(),
            driver: None,
            deleting: false,
            name: volume,
        }));
        if n < own {
            cloud.push(Arc::new(resource(disk, Tags::new(), at, a_disk(false, None))));
        }
    }
    for n in 0..counts.leaks {
        let id = group.resource(NIC_TYPE, &format!("aks-gone-{n}"));
        let nic = ResourceDetail::Nic(Nic { vm: None, serves: None, addresses: 1, subnet: None });
        cloud.push(Arc::new(resource(id, tags(settings, &format!("gone-{n}"), "gone"), at, nic)));
    }
    Ok((inventory, records))
}

/// A NodeClaim with its VM, NIC and OS disk.
fn node_of(n: usize, settings: &Settings, at: Timestamp) -> Result<(Claim, [CloudResource; 3]), NameError> {
    let name = ClaimName::new(format!("general-{n:06}"))?;
    let uid = format!("{n:08x}-1b2c-4d3e-8f90-a1b2c3d4e5f6");
    let ids = resource_ids(&settings.cluster.node_resource_group, &name);
    let key = OfferingKey {
        size: VmSize::new("Standard_D4s_v5")?,
        zone: Zone::of(&settings.cluster.region, 1),
        capacity_type: CapacityType::OnDemand,
    };
    let tags = tags(settings, name.as_str(), &uid);
    let vm = ResourceDetail::Vm(Vm {
        size: key.size.clone(),
        capacity_type: key.capacity_type,
        state: ProvisioningState::Succeeded,
        nics: vec![ids.nic.clone()],
        os_disk: Some(ids.os_disk.clone()),
        data_disks: Vec::new(),
        image: None,
    });
    let nic = ResourceDetail::Nic(Nic { vm: Some(ids.vm.clone()), serves: None, addresses: 1, subnet: None });
    let parts = [
        resource(ids.vm.clone(), tags.clone(), at, vm),
        resource(ids.nic.clone(), tags.clone(), at, nic),
        resource(ids.os_disk.clone(), tags, at, a_disk(true, Some(&ids.vm))),
    ];
    let intent = LaunchIntent {
        offering: PlannedOffering { key, price: HourlyPrice::ZERO },
        vm: ids.vm.clone(),
        nic: ids.nic,
        os_disk: ids.os_disk,
        machine: None,
        reservation: None,
        written_at: at,
        refused: 0,
        operation: None,
    };
    let provider_id = Some(ProviderId::of_vm(&ids.vm));
    let status = ClaimStatus { launched: Some(at), registered: Some(at), provider_id, ..ClaimStatus::default() };
    Ok((claim(name, Uid::new(uid)?, intent, status)?, parts))
}

fn claim(name: ClaimName, uid: Uid, intent: LaunchIntent, status: ClaimStatus) -> Result<Claim, NameError> {
    let spec = ClaimSpec::of_class(NodeClassName::new("default")?);
    let created_at = intent.written_at - SignedDuration::from_hours(100);
    let (deleting_at, termination_at, intent) = (None, None, Some(intent));
    let (has_finalizer, owned_by_pool) = (true, false);
    Ok(Claim { name, uid, created_at, deleting_at, termination_at, has_finalizer, owned_by_pool, spec, intent, status })
}

fn node(claim: &Claim, at: Timestamp) -> Result<Node, NameError> {
    let name = format!("aks-{}", claim.name);
    Ok(Node {
        uid: Uid::new(format!("node-{name}"))?,
        name: NodeName::new(name)?,
        provider_id: claim.status.provider_id.clone(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        capacity: Resources::default(),
        allocatable: Resources::default(),
        ready: true,
        ready_since: at,
        created_at: at,
        deleting_at: None,
        cordoned: false,
        has_finalizer: true,
        kubelet_version: None,
        do_not_disrupt: false,
        conditions: Vec::new(),
    })
}

fn tags(settings: &Settings, claim: &str, uid: &str) -> Tags {
    let tag = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
    Tags::from([
        tag(labels::TAG_CLUSTER, &settings.cluster.tag_value),
        tag(labels::TAG_CLAIM, claim),
        tag(labels::TAG_CLAIM_UID, uid),
    ])
}

fn resource(id: ArmId, tags: Tags, at: Timestamp, detail: ResourceDetail) -> CloudResource {
    let incarnation = Arc::from(format!("incarnation of {}", id.name()));
    CloudResource { id, incarnation, tags, created_at: Some(at), zone: None, detail }
}

fn a_disk(is_os: bool, vm: Option<&ArmId>) -> ResourceDetail {
    ResourceDetail::Disk(Disk {
        is_os,
        size_gib: 128,
        sku: Arc::from("Premium_LRS"),
        state: if vm.is_some() { DiskState::Attached } else { DiskState::Unattached },
        managed_by: vm.into_iter().cloned().collect(),
        max_shares: 1,
        last_ownership_update: None,
    })
}
