//! Responses have the properties that Azure documents.
//!
//! By the examples `VirtualMachine_Get` (Microsoft.Compute 2024-07-01), `NetworkInterfaceGet` (Microsoft.Network
//! 2024-05-01), `Disk_Get` (Microsoft.Compute disks 2024-03-02), `MachineList` (Microsoft.ContainerService 2025-07-01)
//! of the public repository of Azure's API definitions: their paths and JSON types. Properties of a definition that are
//! not in its example are listed separately.

use super::super::*;
use super::{ask, get, nic_body, nic_path, path, vm_body, vm_path};
use crate::cloud::fixtures::{at, cloud};
use napkeeper_core::model::azure::cloud::{ProvisioningState, ResourceDetail, Tags};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use std::collections::BTreeMap;

const HEAD: &str = "id:s name:s type:s location:s tags:o properties:o";
const VM: &str = "etag:s properties.vmId:s properties.hardwareProfile:o properties.hardwareProfile.vmSize:s \
    properties.storageProfile:o properties.storageProfile.osDisk:o properties.storageProfile.osDisk.osType:s \
    properties.storageProfile.osDisk.name:s properties.storageProfile.osDisk.createOption:s \
    properties.storageProfile.osDisk.managedDisk:o properties.storageProfile.osDisk.managedDisk.id:s \
    properties.storageProfile.dataDisks:a properties.networkProfile:o properties.networkProfile.networkInterfaces:a \
    properties.networkProfile.networkInterfaces.id:s properties.provisioningState:s properties.timeCreated:s";
const VM_DEFINED: &str = "zones:a properties.priority:s properties.evictionPolicy:s properties.storageProfile.osDisk.deleteOption:s \
    properties.networkProfile.networkInterfaces.properties:o \
    properties.networkProfile.networkInterfaces.properties.primary:b \
    properties.networkProfile.networkInterfaces.properties.deleteOption:s";
const NIC: &str = "properties.provisioningState:s properties.ipConfigurations:a properties.ipConfigurations.name:s \
    properties.ipConfigurations.properties:o properties.ipConfigurations.properties.primary:b \
    properties.ipConfigurations.properties.subnet:o properties.ipConfigurations.properties.subnet.id:s \
    properties.virtualMachine:o properties.virtualMachine.id:s";
const NIC_DEFINED: &str = "etag:s properties.resourceGuid:s";
const DISK: &str = "managedBy:s sku:o sku.name:s properties.osType:s properties.creationData:o \
    properties.creationData.createOption:s properties.diskSizeGB:n properties.LastOwnershipUpdateTime:s \
    properties.timeCreated:s properties.provisioningState:s";
const DISK_DEFINED: &str = "zones:a properties.uniqueId:s properties.diskState:s";
const MACHINE: &str = "id:s name:s type:s properties:o properties.network:o properties.network.ipAddresses:a \
    properties.network.ipAddresses.ip:s properties.network.ipAddresses.family:s properties.resourceId:s";

/// Paths with their types. Tags have names of their own; of a list, the items count.
fn paths(value: &Value, at: &str, into: &mut BTreeMap<String, char>) {
    let (kind, children): (char, Vec<(String, &Value)>) = match value {
        Value::Object(map) if at != "tags" => {
            let dot = if at.is_empty() { "" } else { "." };
            ('o', map.iter().map(|(key, value)| (format!("{at}{dot}{key}"), value)).collect())
        }
        Value::Object(_) => ('o', Vec::new()),
        Value::Array(items) => {
            let objects = items.iter().filter(|item| item.is_object());
            for item in objects {
                paths(item, at, into);
            }
            ('a', Vec::new())
        }
        Value::String(_) => ('s', Vec::new()),
        Value::Number(_) => ('n', Vec::new()),
        Value::Bool(_) => ('b', Vec::new()),
        Value::Null => ('0', Vec::new()),
    };
    for (path, child) in children {
        paths(child, &path, into);
    }
    if !at.is_empty() && (kind == 'a' || !into.contains_key(at)) {
        into.insert(at.to_owned(), kind);
    }
}

fn listed(texts: &[&str]) -> BTreeMap<String, char> {
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    words
        .map(|word| word.split_once(':').unwrap())
        .map(|(path, kind)| (path.to_owned(), kind.chars().next().unwrap()))
        .collect()
}

/// The response has exactly the documented properties.
fn assert_shape(answer: &Value, example: &[&str], defined: &str) {
    let mut simulated = BTreeMap::new();
    paths(answer, "", &mut simulated);
    let mut documented = listed(example);
    documented.extend(listed(&[defined]));
    assert_eq!(simulated, documented, "{answer:#}");
}

#[test]
fn resources_have_the_shape_of_azures_examples() {
    let mut cloud = cloud(1);
    assert_eq!(ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 0).status, 201);
    assert_eq!(ask(&mut cloud, "PUT", &vm_path(), &vm_body(), 0).status, 201);
    let vm = get(&mut cloud, &vm_path(), 100).body.unwrap();
    assert_shape(&vm, &[HEAD, VM], VM_DEFINED);
    assert_shape(&get(&mut cloud, &nic_path(), 100).body.unwrap(), &[HEAD, NIC], NIC_DEFINED);
    let disk = vm["properties"]["storageProfile"]["osDisk"]["name"].as_str().unwrap();
    let disk = get(&mut cloud, &path("Microsoft.Compute/disks", disk), 100).body.unwrap();
    assert_shape(&disk, &[HEAD, DISK], DISK_DEFINED);
}

#[test]
fn the_instance_view_of_a_vm_is_returned_only_if_it_is_requested() {
    let mut cloud = cloud(1);
    assert_eq!(ask(&mut cloud, "PUT", &nic_path(), &nic_body(), 0).status, 201);
    assert_eq!(ask(&mut cloud, "PUT", &vm_path(), &vm_body(), 0).status, 201);
    let expanded = vm_path().replace('?', "?$expand=instanceView&");
    let vm = get(&mut cloud, &expanded, 100).body.unwrap();
    let view = "properties.instanceView:o properties.instanceView.statuses:a properties.instanceView.statuses.code:s \
        properties.instanceView.statuses.level:s";
    assert_shape(&vm, &[HEAD, VM, view], VM_DEFINED);
    let codes = |vm: &Value| vm["properties"]["instanceView"]["statuses"].as_array().unwrap()[1]["code"].clone();
    assert_eq!(codes(&vm), "PowerState/running");
    let id = cloud.resources().values().find(|r| matches!(r.detail, ResourceDetail::Vm(_))).unwrap().id.clone();
    cloud.shut_down_vm(&id, true, at(100)).unwrap();
    assert_eq!(codes(&get(&mut cloud, &expanded, 101).body.unwrap()), "PowerState/deallocated");
}

#[test]
fn a_machine_has_the_shape_of_azures_example() {
    let cloud = cloud(1);
    let vm = Some(cloud.vm_id("v"));
    let role = RelatedDetail::AksMachine { vm, state: ProvisioningState::Succeeded };
    let id = ArmId::new("/subscriptions/s/c/agentPools/p/machines/m").unwrap();
    let one = RelatedResource { id, tags: Tags::new(), created_at: Some(at(0)), detail: role };
    assert_shape(&related_resources::machine(&cloud, &one, "2025-07-01").unwrap(), &[MACHINE], "");
}

#[test]
fn an_error_is_an_object_with_code_and_message() {
    let mut cloud = cloud(1);
    let absent = get(&mut cloud, &vm_path(), 0).body.unwrap();
    assert_shape(&absent, &["error:o error.code:s error.message:s"], "");
    let wrong = ask(&mut cloud, "PUT", &vm_path(), &json!({ "location": "westeurope", "properties": {} }), 0);
    assert_shape(&wrong.body.unwrap(), &["error:o error.code:s error.message:s error.target:s"], "");
}
