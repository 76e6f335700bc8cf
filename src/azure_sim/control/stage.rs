//! Stage: what do others do to the group?

use super::ControlError;
use super::bystanders::{self, Draft};
use jiff::Timestamp;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, VmSize, Zone};
use napkeeper_sim::cloud::{Cloud, DiskDraft};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Something that somebody does to the group, or that Azure does.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Act {
    /// A NIC is left over.
    LeakNic(Named),
    /// An OS disk is left over.
    LeakOsDisk(Named),
    /// A VM that is no node, with NIC and OS disk of the same name and tags, is left over.
    LeakVm(VmDraft),
    /// A NIC of another cluster.
    ForeignNic(Bare),
    /// A data disk, as the CSI driver or somebody makes it.
    DataDisk(Named),
    /// Azure gives notice to a spot VM that runs.
    EvictSpot(Bare),
    /// Somebody replaces all tags.
    Retag(Retag),
    /// Somebody deletes a resource.
    Delete(Existing),
    /// A private endpoint takes a NIC.
    ServeNic(Bare),
    /// Somebody copies a disk.
    CopyDisk(Bare),
    /// The group is another cluster's from now on, or nobody's.
    ManagedBy(Owner),
    /// A snapshot's copy is complete.
    FinishSnapshot(Bare),
    /// A Machine of an agent pool.
    Machine(bystanders::MachineDraft),
    /// An instance of a scale set.
    ScaleSetInstance(bystanders::InstanceDraft),
    /// A snapshot, still being copied or complete.
    Snapshot(bystanders::SnapshotDraft),
    /// A public IP.
    PublicIp(bystanders::PublicIpDraft),
    /// A frontend of a load balancer.
    Frontend(bystanders::FrontendDraft),
}

/// A new resource with tags.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
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

/// A resource by its name alone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bare {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Existing {
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
pub(super) struct Owner {
    cluster: Option<ArmId>,
}

/// Lets it happen now; the id of what it happened to.
pub(super) fn play(cloud: &mut Cloud, act: Act, now: Timestamp) -> Result<Value, ControlError> {
    let id = match act {
        Act::LeakNic(Named { name, tags }) => cloud.leak_nic(checked(&name)?, tags, now)?,
        Act::ForeignNic(Bare { name }) => {
            let tags = Tags::from([(Arc::from(labels::TAG_CLUSTER), Arc::from("another"))]);
            cloud.leak_nic(checked(&name)?, tags, now)?
        }
        Act::LeakOsDisk(named) => add_disk(cloud, named, true, now)?,
        Act::DataDisk(named) => add_disk(cloud, named, false, now)?,
        Act::LeakVm(draft) => leak_vm(cloud, draft, now)?,
        Act::EvictSpot(Bare { name }) => {
            let id = cloud.vm_id(checked(&name)?);
            cloud.evict_spot(&id, now)?;
            id
        }
        Act::Retag(Retag { id, tags }) => {
            cloud.retag(&id, tags, now)?;
            id
        }
        Act::Delete(Existing { id }) => {
            if cloud.related(&id).is_some() {
                cloud.remove_related(&id, now)?;
            } else {
                cloud.delete_outside(&id, now)?;
            }
            id
        }
        Act::FinishSnapshot(Bare { name }) => bystanders::finish_snapshot(cloud, &name, now)?,
        Act::Machine(draft) => Draft::Machine(draft).add(cloud, now)?,
        Act::ScaleSetInstance(draft) => Draft::ScaleSetInstance(draft).add(cloud, now)?,
        Act::Snapshot(draft) => Draft::Snapshot(draft).add(cloud, now)?,
        Act::PublicIp(draft) => Draft::PublicIp(draft).add(cloud, now)?,
        Act::Frontend(draft) => Draft::Frontend(draft).add(cloud, now)?,
        Act::ServeNic(Bare { name }) => {
            let id = cloud.nic_id(checked(&name)?);
            cloud.set_serves(&id, Some(Arc::from("a private endpoint")), now)?;
            id
        }
        Act::CopyDisk(Bare { name }) => {
            let id = cloud.disk_id(checked(&name)?);
            cloud.set_copied(&id, now)?;
            id
        }
        Act::ManagedBy(Owner { cluster }) => {
            cloud.set_group_managed_by(cluster);
            cloud.settings().group.clone()
        }
    };
    let incarnation = cloud.resources().get(&id).map(|resource| Arc::clone(&resource.incarnation));
    Ok(json!({ "id": id, "incarnation": incarnation }))
}

/// A name that is one segment of an id.
pub(super) fn checked(name: &str) -> Result<&str, ControlError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && name.len() <= 80 && name.chars().all(good) {
        return Ok(name);
    }
    Err(ControlError::Value(format!("name {name:?}: must be 1 to 80 letters, digits, '-', '_' or '.'")))
}

fn add_disk(cloud: &mut Cloud, named: Named, is_os: bool, now: Timestamp) -> Result<ArmId, ControlError> {
    let name = Arc::from(checked(&named.name)?);
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
    Ok(cloud.add_vm(checked(&draft.name)?, draft.tags, &offering, now)?)
}
