//! Converts ARM's resources to the domain's.
//!
//! An unreadable resource is an error, never a partial resource: sweeps depend on complete ones.

use super::nic::NetworkInterface;
use crate::arm::error::unreadable;
use azure_mgmt_compute::package_2024_07_01::models;
use jiff::Timestamp;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::azure::cloud::{
    CloudResource, Disk, DiskState, Nic, PowerState, ProvisioningState, ResourceDetail, Tags, Vm,
};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::{ArmId, Region, VmSize, Zone};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A VM.
pub(crate) fn vm(vm: models::VirtualMachine) -> Result<CloudResource, CloudError> {
    let head = ResourceHead::of(vm.resource)?;
    let properties = vm.properties.unwrap_or_default();
    let size = properties.hardware_profile.and_then(|h| h.vm_size).map(|size| text(&size)).unwrap_or_default();
    let storage = properties.storage_profile.unwrap_or_default();
    let data_disks = storage.data_disks.into_iter().filter_map(|disk| managed_disk(disk.managed_disk));
    let nics = properties.network_profile.map(|n| n.network_interfaces).unwrap_or_default();
    let spot = matches!(properties.priority, Some(models::Priority::Spot | models::Priority::Low));
    let group = properties.capacity_reservation.and_then(|c| c.capacity_reservation_group).and_then(|g| g.id);
    let capacity_type = match group {
        Some(_) => CapacityType::Reserved,
        None if spot => CapacityType::Spot,
        None => CapacityType::OnDemand,
    };
    let detail = Vm {
        size: VmSize::new(size).map_err(|e| head.unreadable(&e))?,
        capacity_type,
        state: state(properties.provisioning_state.as_deref()),
        nics: head.ids(nics.into_iter().filter_map(|nic| nic.sub_resource.id))?,
        os_disk: storage.os_disk.and_then(managed_os_disk).map(|id| head.id(&id)).transpose()?,
        data_disks: head.ids(data_disks)?,
        image: storage.image_reference.and_then(image_id),
    };
    let zone = head.zone(&vm.zones)?;
    head.resource(properties.vm_id, timestamp(properties.time_created), zone, ResourceDetail::Vm(detail))
}

/// The id of the image that a VM was created from. One of the marketplace has none.
fn image_id(image: models::ImageReference) -> Option<Arc<str>> {
    image.community_gallery_image_id.or(image.sub_resource.id).map(Arc::from)
}

/// The id of an OS disk. Azure gives an ephemeral one an id too, of which there is no resource.
pub(crate) fn managed_os_disk(disk: models::OsDisk) -> Option<String> {
    managed_disk(disk.managed_disk.filter(|_| disk.diff_disk_settings.is_none()))
}

/// The id of a managed disk.
pub(crate) fn managed_disk(disk: Option<models::ManagedDiskParameters>) -> Option<String> {
    disk.and_then(|disk| disk.sub_resource.id)
}

/// The power state of a VM that was read with its instance view.
pub(crate) fn power_state(vm: models::VirtualMachine) -> PowerState {
    let view = vm.properties.and_then(|properties| properties.instance_view).unwrap_or_default();
    PowerState::of_status_codes(view.statuses.iter().filter_map(|status| status.code.as_deref()))
}

/// A managed disk.
pub(crate) fn disk(disk: models::Disk) -> Result<CloudResource, CloudError> {
    let head = ResourceHead::of(disk.resource)?;
    let Some(properties) = disk.properties else { return Err(head.unreadable(&"it has no properties")) };
    let holders = if disk.managed_by_extended.is_empty() {
        disk.managed_by.into_iter().collect()
    } else {
        disk.managed_by_extended
    };
    let size = properties.disk_size_gb.and_then(|gb| u32::try_from(gb).ok());
    let detail = Disk {
        is_os: properties.os_type.is_some(),
        size_gib: size.unwrap_or_default(),
        sku: disk.sku.and_then(|sku| sku.name).map(|name| text(&name)).unwrap_or_default().into(),
        state: disk_state(&properties.disk_state.map(|state| text(&state)).unwrap_or_default()),
        managed_by: head.ids(holders)?,
        max_shares: properties.max_shares.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        last_ownership_update: timestamp(properties.last_ownership_update_time),
    };
    let zone = head.zone(&disk.zones)?;
    head.resource(properties.unique_id, timestamp(properties.time_created), zone, ResourceDetail::Disk(detail))
}

/// A NIC. Azure returns its age only in the listing of the whole group.
pub(crate) fn nic(nic: NetworkInterface, created_at: Option<Timestamp>) -> Result<CloudResource, CloudError> {
    let resource = models::Resource {
        id: Some(nic.id),
        name: None,
        type_: None,
        location: nic.location.unwrap_or_default(),
        tags: None,
    };
    let head = ResourceHead { tags: nic.tags.unwrap_or_default(), ..ResourceHead::of(resource)? };
    let serves = nic.properties.serves().map(Arc::from);
    let addresses = nic.properties.ip_configurations.unwrap_or_default();
    let subnet = addresses.iter().find_map(|a| a["properties"]["subnet"]["id"].as_str());
    let vm = nic.properties.virtual_machine.and_then(|vm| vm.id);
    let detail = Nic {
        vm: vm.map(|id| head.id(&id)).transpose()?,
        serves,
        addresses: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
        subnet: subnet.map(|id| head.id(id)).transpose()?,
    };
    head.resource(nic.properties.resource_guid, created_at, None, ResourceDetail::Nic(detail))
}

/// An id that is read without the resource that it is in.
pub(crate) fn id(text: &str) -> Result<ArmId, CloudError> {
    ArmId::new(text).map_err(|e| unreadable(format!("a resource cannot be read: {e}")))
}

/// What every resource has.
pub(crate) struct ResourceHead {
    id: ArmId,
    location: String,
    tags: Tags,
}

impl ResourceHead {
    pub(crate) fn of(resource: models::Resource) -> Result<Self, CloudError> {
        let text = resource.id.unwrap_or_default();
        let id = id(&text)?;
        let location = resource.location.to_ascii_lowercase().replace(' ', "");
        let mut head = Self { id, location, tags: Tags::new() };
        for (key, value) in resource.tags.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let Some(value) = value.as_str() else { return Err(head.unreadable(&"a tag is not a string")) };
            head.tags.insert(Arc::from(key.as_str()), Arc::from(value));
        }
        Ok(head)
    }

    pub(crate) fn unreadable(&self, reason: &dyn std::fmt::Display) -> CloudError {
        unreadable(format!("{} cannot be read: {reason}", self.id))
    }

    pub(crate) fn id(&self, text: &str) -> Result<ArmId, CloudError> {
        ArmId::new(text).map_err(|e| self.unreadable(&e))
    }

    pub(crate) fn ids(&self, texts: impl IntoIterator<Item = String>) -> Result<Vec<ArmId>, CloudError> {
        texts.into_iter().map(|text| self.id(&text)).collect()
    }

    /// The zone; a resource in several is in none.
    fn zone(&self, zones: &[String]) -> Result<Option<Zone>, CloudError> {
        let [zone] = zones else { return Ok(None) };
        let region = Region::new(&self.location).map_err(|e| self.unreadable(&e))?;
        let n = zone.parse().map_err(|_| self.unreadable(&format!("{zone:?} is not a zone")))?;
        Ok(Some(Zone::of(&region, n)))
    }

    pub(crate) fn related(self, created_at: Option<Timestamp>, detail: RelatedDetail) -> RelatedResource {
        RelatedResource { id: self.id, tags: self.tags, created_at, detail }
    }

    fn resource(
        self,
        incarnation: Option<String>,
        created_at: Option<Timestamp>,
        zone: Option<Zone>,
        detail: ResourceDetail,
    ) -> Result<CloudResource, CloudError> {
        let Some(incarnation) = incarnation.filter(|text| !text.is_empty()) else {
            return Err(self.unreadable(&"it has no unique id to distinguish it from another of the same name"));
        };
        let incarnation = Arc::from(incarnation);
        Ok(CloudResource { id: self.id, incarnation, tags: self.tags, created_at, zone, detail })
    }
}

/// An enumeration of the ARM crates as Azure spells it, values that the crates do not know included.
pub(crate) fn text(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// A time of the ARM crates.
pub(crate) fn timestamp(at: Option<impl Into<std::time::SystemTime>>) -> Option<Timestamp> {
    at.and_then(|at| Timestamp::try_from(at.into()).ok())
}

/// `provisioningState`. A VM that is being updated exists; an unknown state is read again later.
pub(crate) fn state(text: Option<&str>) -> ProvisioningState {
    match text {
        Some("Succeeded" | "Updating") => ProvisioningState::Succeeded,
        Some("Failed" | "Canceled") => ProvisioningState::Failed,
        Some("Deleting") => ProvisioningState::Deleting,
        _ => ProvisioningState::Creating,
    }
}

fn disk_state(text: &str) -> DiskState {
    match text {
        "Unattached" => DiskState::Unattached,
        "Attached" => DiskState::Attached,
        "Reserved" => DiskState::Reserved,
        other => DiskState::Other(Arc::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_image_is_that_of_a_gallery() {
        let image = |reference: Value| image_id(serde_json::from_value(reference).unwrap());
        let community = "/CommunityGalleries/g/images/i/versions/1.0.0";
        let own = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g/images/i/versions/1.0.0";
        assert_eq!(
            image(json!({ "communityGalleryImageId": community, "exactVersion": "1.0.0" })).as_deref(),
            Some(community)
        );
        assert_eq!(image(json!({ "id": own })).as_deref(), Some(own));
        assert_eq!(image(json!({ "publisher": "Canonical", "offer": "o", "sku": "s", "version": "latest" })), None);
    }

    #[test]
    fn the_power_state_is_read_from_the_instance_view() {
        let status = |code: &str| json!({ "code": code, "level": "Info", "displayStatus": "VM", "time": "2026-03-01T10:00:00.1+00:00" });
        let read = |view: Value| {
            let vm = json!({ "location": "westeurope", "properties": { "vmId": "1", "instanceView": view } });
            power_state(serde_json::from_value(vm).unwrap())
        };
        let with = |codes: &[&str]| read(json!({ "statuses": codes.iter().map(|c| status(c)).collect::<Vec<_>>() }));
        for state in PowerState::ALL {
            let code = format!("PowerState/{}", state.as_str());
            assert_eq!(with(&["ProvisioningState/succeeded", &code]), state);
        }
        assert_eq!(with(&["powerstate/Deallocated"]), PowerState::Deallocated);
        for codes in [&[][..], &["ProvisioningState/deallocated"], &["PowerState/hibernated"], &["deallocated"]] {
            assert_eq!(with(codes), PowerState::Unknown, "{codes:?}");
        }
        assert_eq!(read(Value::Null), PowerState::Unknown);
    }
}
