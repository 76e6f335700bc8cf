//! JSON of the group and of VMs, NICs and disks.

use super::facts::skus::zone_number;
use super::route::ResourceType;
use crate::cloud::{Cloud, CloudSettings, EphemeralOsDisk};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::azure::cloud::{CloudResource, Disk, DiskState, Nic, ProvisioningState, ResourceDetail, Vm};
use napkeeper_core::model::names::ArmId;
use serde_json::{Map, Value, json};

pub(super) fn group(settings: &CloudSettings, managed_by: Option<&ArmId>) -> Value {
    let mut group = json!({
        "id": settings.group.as_str(),
        "name": settings.group.name(),
        "type": "Microsoft.Resources/resourceGroups",
        "location": settings.region.as_str(),
        "properties": { "provisioningState": "Succeeded" },
    });
    if let Some(managed_by) = managed_by {
        group["managedBy"] = Value::from(managed_by.as_str());
    }
    group
}

/// A resource as the listing of all resources of a group has it.
pub(super) fn summary(cloud: &Cloud, resource: &CloudResource, expand: &str) -> Value {
    let mut summary = head(cloud, resource);
    if let ResourceDetail::Disk(disk) = &resource.detail {
        holders(&mut summary, disk);
    }
    for property in expand.split(',') {
        match (property.trim(), resource.created_at) {
            ("createdTime", Some(at)) => summary.insert("createdTime".to_owned(), at.to_string().into()),
            ("provisioningState", _) => summary.insert("provisioningState".to_owned(), state(cloud, resource).into()),
            _ => None,
        };
    }
    Value::Object(summary)
}

/// A resource as its own provider has it.
pub(super) fn resource(cloud: &Cloud, resource: &CloudResource) -> Value {
    let mut whole = head(cloud, resource);
    let mut properties = match &resource.detail {
        ResourceDetail::Vm(vm) => {
            let mut properties = vm_properties(resource, vm);
            if let Some(disk) = cloud.ephemeral_os_disk(&resource.id) {
                properties["storageProfile"]["osDisk"] = ephemeral_os_disk(disk);
            }
            if let Some(group) = cloud.group_of(&resource.id) {
                properties["capacityReservation"] = json!({ "capacityReservationGroup": { "id": group.as_str() } });
            }
            properties
        }
        ResourceDetail::Nic(nic) => nic_properties(cloud, resource, nic),
        ResourceDetail::Disk(disk) => {
            holders(&mut whole, disk);
            whole.insert("sku".to_owned(), json!({ "name": &*disk.sku }));
            disk_properties(resource, disk)
        }
    };
    properties["provisioningState"] = state(cloud, resource).into();
    if !matches!(resource.detail, ResourceDetail::Disk(_)) {
        whole.insert("etag".to_owned(), etag(cloud, resource).into());
    }
    whole.insert("properties".to_owned(), properties);
    Value::Object(whole)
}

/// Adds the instance view of a VM to its JSON.
pub(super) fn put_instance_view(body: &mut Value, cloud: &Cloud, vm: &CloudResource) {
    let Some(power) = cloud.power_state(&vm.id) else { return };
    let provisioning = state(cloud, vm).to_ascii_lowercase();
    body["properties"]["instanceView"] = json!({
        "statuses": [
            { "code": format!("ProvisioningState/{provisioning}"), "level": "Info" },
            { "code": format!("PowerState/{}", power.as_str()), "level": "Info" },
        ],
    });
}

/// The etag of a VM or NIC: another one after every change.
pub(super) fn etag(cloud: &Cloud, resource: &CloudResource) -> String {
    let revision = cloud.revision(&resource.id);
    match resource.detail {
        ResourceDetail::Nic(_) => format!("W/\"{}-{revision}\"", resource.incarnation),
        ResourceDetail::Vm(_) | ResourceDetail::Disk(_) => format!("\"{revision}\""),
    }
}

fn head(cloud: &Cloud, resource: &CloudResource) -> Map<String, Value> {
    let mut head = Map::new();
    let mut put = |key: &str, value: Value| drop(head.insert(key.to_owned(), value));
    put("id", resource.id.as_str().into());
    put("name", resource.id.name().into());
    put("type", ResourceType::of(resource).as_str().into());
    put("location", cloud.settings().region.as_str().into());
    put("tags", json!(resource.tags));
    if let Some(zone) = &resource.zone {
        put("zones", json!([zone_number(zone)]));
    }
    head
}

fn state(cloud: &Cloud, resource: &CloudResource) -> &'static str {
    match &resource.detail {
        ResourceDetail::Vm(vm) => match vm.state {
            ProvisioningState::Creating => "Creating",
            ProvisioningState::Succeeded => "Succeeded",
            ProvisioningState::Failed => "Failed",
            ProvisioningState::Deleting => "Deleting",
        },
        _ if cloud.is_deleting(&resource.id) => "Deleting",
        _ => "Succeeded",
    }
}

fn vm_properties(resource: &CloudResource, vm: &Vm) -> Value {
    let nics = vm
        .nics
        .iter()
        .map(|id| json!({ "id": id.as_str(), "properties": { "primary": true, "deleteOption": "Delete" } }));
    let data_disks = vm.data_disks.iter().enumerate().map(|(lun, id)| {
        json!({ "lun": lun, "name": id.name(), "createOption": "Attach", "managedDisk": { "id": id.as_str() } })
    });
    let mut storage = json!({ "dataDisks": data_disks.collect::<Vec<_>>() });
    if let Some(disk) = &vm.os_disk {
        storage["osDisk"] = os_disk(disk);
    }
    let mut properties = json!({
        "vmId": &*resource.incarnation,
        "hardwareProfile": { "vmSize": vm.size.as_str() },
        "networkProfile": { "networkInterfaces": nics.collect::<Vec<_>>() },
        "storageProfile": storage,
        "priority": "Regular",
    });
    if vm.capacity_type == CapacityType::Spot {
        properties["priority"] = "Spot".into();
        properties["evictionPolicy"] = "Delete".into();
    }
    put_created(&mut properties, resource);
    properties
}

fn os_disk(id: &ArmId) -> Value {
    json!({
        "name": id.name(),
        "osType": "Linux",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "managedDisk": { "id": id.as_str() },
    })
}

/// Azure gives it the id of a managed disk, for which it answers 404.
fn ephemeral_os_disk(disk: &EphemeralOsDisk) -> Value {
    let mut all = os_disk(&disk.id);
    all["caching"] = "ReadOnly".into();
    all["diffDiskSettings"] = json!({ "option": "Local", "placement": disk.placement.as_str() });
    all
}

fn nic_properties(cloud: &Cloud, resource: &CloudResource, nic: &Nic) -> Value {
    let addresses = (1..=nic.addresses).map(|n| {
        let given = cloud.address_name(&resource.id).filter(|_| n == 1);
        let name = given.map_or_else(|| format!("ipconfig{n}"), ToOwned::to_owned);
        let mut properties = json!({ "primary": n == 1 });
        if let Some(subnet) = &nic.subnet {
            properties["subnet"] = json!({ "id": subnet.as_str() });
        }
        json!({ "name": name, "properties": properties })
    });
    let mut properties = json!({
        "resourceGuid": &*resource.incarnation,
        "ipConfigurations": addresses.collect::<Vec<_>>(),
    });
    if let Some(vm) = &nic.vm {
        properties["virtualMachine"] = json!({ "id": vm.as_str() });
    }
    if let Some(workload) = &nic.serves {
        properties["hostedWorkloads"] = json!([&**workload]);
    }
    properties
}

fn disk_properties(resource: &CloudResource, disk: &Disk) -> Value {
    let disk_state = match &disk.state {
        DiskState::Unattached => "Unattached",
        DiskState::Attached => "Attached",
        DiskState::Reserved => "Reserved",
        DiskState::Other(state) => state,
    };
    let mut properties = json!({
        "uniqueId": &*resource.incarnation,
        "diskSizeGB": disk.size_gib,
        "diskState": disk_state,
        "creationData": { "createOption": if disk.is_os { "FromImage" } else { "Empty" } },
    });
    if disk.is_os {
        properties["osType"] = "Linux".into();
    }
    if let Some(at) = disk.last_ownership_update {
        // Spelt with a capital, unlike every other property.
        properties["LastOwnershipUpdateTime"] = at.to_string().into();
    }
    put_created(&mut properties, resource);
    properties
}

fn put_created(properties: &mut Value, resource: &CloudResource) {
    if let Some(at) = resource.created_at {
        properties["timeCreated"] = at.to_string().into();
    }
}

fn holders(disk_json: &mut Map<String, Value>, disk: &Disk) {
    if let Some(first) = disk.managed_by.first() {
        disk_json.insert("managedBy".to_owned(), first.as_str().into());
    }
    if disk.managed_by.len() > 1 {
        let all: Vec<&str> = disk.managed_by.iter().map(ArmId::as_str).collect();
        disk_json.insert("managedByExtended".to_owned(), json!(all));
    }
}
