//! `POST /control/stage`: changes the group as other users, other clusters or Azure would.

use super::ControlError;
use super::related_resources::{self, RelatedDraft};
use jiff::Timestamp;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, VmSize, Zone};
use napkeeper_sim::cloud::{Cloud, DiskDraft};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A change of the group by others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum StagedChange {
    /// A NIC is left over.
    LeakNic(NewResource),
    /// An OS disk is left over.
    LeakOsDisk(NewResource),
    /// A VM that is not a node, with NIC and OS disk of the same name and tags, is left over.
    LeakVm(VmDraft),
    /// A NIC of another cluster.
    ForeignNic(ByName),
    /// A data disk, as the CSI driver or a user creates it.
    DataDisk(NewResource),
    /// Azure announces the eviction of a running spot VM.
    EvictSpot(ByName),
    /// Another client replaces all tags.
    Retag(Retag),
    /// Another client deletes a resource.
    Delete(ById),
    /// A private endpoint takes a NIC.
    ServeNic(ByName),
    /// Another client copies a disk.
    CopyDisk(ByName),
    /// The group belongs to another cluster from now on, or to none.
    ManagedBy(GroupOwner),
    /// A snapshot's copy is complete.
    FinishSnapshot(ByName),
    /// A Machine of an agent pool.
    Machine(related_resources::MachineDraft),
    /// An instance of a scale set.
    ScaleSetInstance(related_resources::InstanceDraft),
    /// A snapshot, still being copied or complete.
    Snapshot(related_resources::SnapshotDraft),
    /// A public IP.
    PublicIp(related_resources::PublicIpDraft),
    /// A frontend of a load balancer.
    Frontend(related_resources::FrontendDraft),
}

/// A new resource with tags.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewResource {
    name: String,
    #[serde(default)]
    tags: Tags,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct VmDraft {
    name: String,
    #[serde(default)]
    tags: Tags,
    size: VmSize,
    zone: Option<Zone>,
    capacity_type: Option<CapacityType>,
}

/// A resource by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByName {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ById {
    id: ArmId,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retag {
    id: ArmId,
    tags: Tags,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupOwner {
    cluster: Option<ArmId>,
}

/// Makes the change; returns the id of the changed resource.
pub(super) fn apply(cloud: &mut Cloud, change: StagedChange, now: Timestamp) -> Result<Value, ControlError> {
    let id = match change {
        StagedChange::LeakNic(NewResource { name, tags }) => cloud.leak_nic(valid_name(&name)?, tags, now)?,
        StagedChange::ForeignNic(ByName { name }) => {
            let tags = Tags::from([(Arc::from(labels::TAG_CLUSTER), Arc::from("another"))]);
            cloud.leak_nic(valid_name(&name)?, tags, now)?
        }
        StagedChange::LeakOsDisk(named) => add_disk(cloud, named, true, now)?,
        StagedChange::DataDisk(named) => add_disk(cloud, named, false, now)?,
        StagedChange::LeakVm(draft) => leak_vm(cloud, draft, now)?,
        StagedChange::EvictSpot(ByName { name }) => {
            let id = cloud.vm_id(valid_name(&name)?);
            cloud.evict_spot(&id, now)?;
            id
        }
        StagedChange::Retag(Retag { id, tags }) => {
            cloud.retag(&id, tags, now)?;
            id
        }
        StagedChange::Delete(ById { id }) => {
            if cloud.related(&id).is_some() {
                cloud.remove_related(&id, now)?;
            } else {
                cloud.delete_outside(&id, now)?;
            }
            id
        }
        StagedChange::FinishSnapshot(ByName { name }) => related_resources::finish_snapshot(cloud, &name, now)?,
        StagedChange::Machine(draft) => RelatedDraft::Machine(draft).add(cloud, now)?,
        StagedChange::ScaleSetInstance(draft) => RelatedDraft::ScaleSetInstance(draft).add(cloud, now)?,
        StagedChange::Snapshot(draft) => RelatedDraft::Snapshot(draft).add(cloud, now)?,
        StagedChange::PublicIp(draft) => RelatedDraft::PublicIp(draft).add(cloud, now)?,
        StagedChange::Frontend(draft) => RelatedDraft::Frontend(draft).add(cloud, now)?,
        StagedChange::ServeNic(ByName { name }) => {
            let id = cloud.nic_id(valid_name(&name)?);
            cloud.set_serves(&id, Some(Arc::from("a private endpoint")), now)?;
            id
        }
        StagedChange::CopyDisk(ByName { name }) => {
            let id = cloud.disk_id(valid_name(&name)?);
            cloud.set_copied(&id, now)?;
            id
        }
        StagedChange::ManagedBy(GroupOwner { cluster }) => {
            cloud.set_group_managed_by(cluster);
            cloud.settings().group.clone()
        }
    };
    let incarnation = cloud.resources().get(&id).map(|resource| Arc::clone(&resource.incarnation));
    Ok(json!({ "id": id, "incarnation": incarnation }))
}

/// Checks a name that is one segment of an id.
pub(super) fn valid_name(name: &str) -> Result<&str, ControlError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 80 && name.chars().all(good) {
        return Ok(name);
    }
    Err(ControlError::Value(format!("name {name:?}: must be 1 to 80 letters, digits, '-', '_' or '.'")))
}

fn add_disk(cloud: &mut Cloud, named: NewResource, is_os: bool, now: Timestamp) -> Result<ArmId, ControlError> {
    let name = Arc::from(valid_name(&named.name)?);
    let sku = Arc::from("Premium_LRS");
    let draft = DiskDraft { name, tags: named.tags, size_gib: 128, sku, is_os, zone: None };
    Ok(cloud.add_disk(draft, now)?)
}

fn leak_vm(cloud: &mut Cloud, draft: VmDraft, now: Timestamp) -> Result<ArmId, ControlError> {
    if !cloud.settings().sizes.contains_key(&draft.size) {
        return Err(ControlError::Value(format!("size {}: the region does not have it", draft.size)));
    }
    let offering = OfferingKey {
        size: draft.size,
        zone: draft.zone.unwrap_or_else(Zone::regional),
        capacity_type: draft.capacity_type.unwrap_or(CapacityType::OnDemand),
    };
    Ok(cloud.add_vm(valid_name(&draft.name)?, draft.tags, &offering, now)?)
}
