//! Converts request bodies to operations of the cloud.
//!
//! Unsupported properties are rejected, so that an adapter that forgets a property fails here and not in Azure.

use super::Response;
use super::responses::error_response;
use crate::cloud::{Cloud, Extension};
use base64::prelude::{BASE64_STANDARD, Engine};
use napkeeper_api::bootstrap;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::catalog::{CapacityType, OfferingKey, OsDiskStorage};
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, VmSize, Zone};
use napkeeper_core::plan::{AksMachineSpec, CloudRequest, KubeletSpec, NicSpec, SecurityProfile, VmSpec};
use serde_json::Value;
use std::sync::Arc;

pub(super) fn vm(body: &Value, id: ArmId, cloud: &Cloud) -> Result<VmSpec, Response> {
    check_location(body, cloud)?;
    let properties = &body["properties"];
    let nic = &properties["networkProfile"]["networkInterfaces"][0];
    let disk = &properties["storageProfile"]["osDisk"];
    for (path, option) in [
        ("networkInterfaces[0].properties.deleteOption", &nic["properties"]["deleteOption"]),
        ("storageProfile.osDisk.deleteOption", &disk["deleteOption"]),
    ] {
        must_be(path, option, "Delete")?;
    }
    let tags = tags(&body["tags"])?;
    Ok(VmSpec {
        id,
        offering: offering(body, cloud)?,
        nic: id_at("networkInterfaces[0].id", &nic["id"])?,
        os_disk: cloud.disk_id(text("storageProfile.osDisk.name", &disk["name"])?),
        os_disk_gb: disk["diskSizeGB"]
            .as_u64()
            .and_then(|gb| u32::try_from(gb).ok())
            .ok_or_else(|| invalid("storageProfile.osDisk.diskSizeGB", "must be a size in GB"))?,
        os_disk_storage: os_disk_storage(disk)?,
        claim: claim(&tags, properties)?,
        kubelet: kubelet(&properties["osProfile"]["customData"])?,
        security: security(&properties["securityProfile"])?,
        capacity_reservation_group: reservation(properties)?,
        create_only: false,
        tags,
    })
}

/// A Machine, by `Microsoft.ContainerService` 2026-04-02-preview.
pub(super) fn machine(body: &Value, id: ArmId, cloud: &Cloud) -> Result<AksMachineSpec, Response> {
    let properties = &body["properties"];
    must_be("properties.mode", &properties["mode"], "User")?;
    must_be("properties.operatingSystem.osType", &properties["operatingSystem"]["osType"], "Linux")?;
    let kubernetes = &properties["kubernetes"];
    let pods = kubernetes["maxPods"].as_u64().and_then(|n| u32::try_from(n).ok());
    let gb = properties["operatingSystem"]["osDiskSizeGB"].as_u64().and_then(|gb| u32::try_from(gb).ok());
    let tags = tags(&properties["tags"])?;
    let claim = tags.get(labels::TAG_CLAIM).map_or_else(|| id.name(), |name| &**name);
    let spot = properties["priority"].as_str() == Some("Spot");
    let size = text("properties.hardware.vmSize", &properties["hardware"]["vmSize"])?;
    Ok(AksMachineSpec {
        offering: OfferingKey {
            size: VmSize::new(size).map_err(|e| invalid("properties.hardware.vmSize", e.reason))?,
            zone: zone(body, cloud)?,
            capacity_type: if spot { CapacityType::Spot } else { CapacityType::OnDemand },
        },
        os_disk_gb: gb.ok_or_else(|| invalid("properties.operatingSystem.osDiskSizeGB", "must be a size in GB"))?,
        ephemeral_os_disk: properties["operatingSystem"]["osDiskType"] == "Ephemeral",
        claim: ClaimName::new(claim).map_err(|e| invalid("name", e.reason))?,
        kubelet: KubeletSpec {
            labels: self::tags(&kubernetes["nodeLabels"])?,
            max_pods: pods.ok_or_else(|| invalid("properties.kubernetes.maxPods", "must be a number"))?,
        },
        security: SecurityProfile {
            encryption_at_host: properties["security"]["enableEncryptionAtHost"] == true,
            secure_boot: properties["security"]["enableSecureBoot"] == true,
            vtpm: properties["security"]["enableVTPM"] == true,
        },
        subnet: match &properties["network"]["vnetSubnetID"] {
            Value::Null => None,
            subnet => Some(id_at("properties.network.vnetSubnetID", subnet)?),
        },
        tags,
        id,
    })
}

/// The one Machine that `deleteMachines` names.
pub(super) fn machine_to_delete(body: &Value, pool: &ArmId) -> Result<ArmId, Response> {
    let names = body["machineNames"].as_array().map(Vec::as_slice).unwrap_or_default();
    let [name] = names else { return Err(invalid("machineNames", "must be exactly one here")) };
    let name = text("machineNames", name)?;
    ArmId::new(format!("{pool}/machines/{name}")).map_err(|e| invalid("machineNames", e.reason))
}

pub(super) fn nic(body: &Value, id: ArmId, cloud: &Cloud) -> Result<NicSpec, Response> {
    check_location(body, cloud)?;
    let addresses = &body["properties"]["ipConfigurations"];
    if addresses.as_array().is_none_or(|a| a.len() != 1) {
        return Err(invalid("ipConfigurations", "must be exactly one: NICs of the simulated Azure hold one address"));
    }
    let address = &addresses[0];
    let subnet = id_at("ipConfigurations[0].properties.subnet.id", &address["properties"]["subnet"]["id"])?;
    let tags = tags(&body["tags"])?;
    let accelerated = body["properties"]["enableAcceleratedNetworking"] == true;
    Ok(NicSpec { id, tags, accelerated, subnet: Some(subnet), create_only: false })
}

/// The name of a NIC's address.
pub(super) fn address_name(body: &Value) -> Result<Arc<str>, Response> {
    text("ipConfigurations[0].name", &body["properties"]["ipConfigurations"][0]["name"]).map(Arc::from)
}

pub(super) fn extension(body: &Value, cloud: &Cloud) -> Result<Extension, Response> {
    check_location(body, cloud)?;
    let word = |key: &str| text(key, &body["properties"][key]).map(Arc::from);
    Ok(Extension { publisher: word("publisher")?, of: word("type")?, version: word("typeHandlerVersion")? })
}

/// A PATCH of `Microsoft.Resources/tags`: adds tags, or removes exactly these.
pub(super) fn tags_change(id: ArmId, body: &Value) -> Result<CloudRequest, Response> {
    let tags = tags(&body["properties"]["tags"])?;
    match body["operation"].as_str() {
        Some("Delete") => Ok(CloudRequest::Untag(id, tags)),
        _ => {
            must_be("operation", &body["operation"], "Merge")?;
            Ok(CloudRequest::Tag(id, tags))
        }
    }
}

/// How a VM is protected: Azure takes the settings of UEFI for trusted launch alone.
fn security(profile: &Value) -> Result<SecurityProfile, Response> {
    let uefi = &profile["uefiSettings"];
    let security = SecurityProfile {
        encryption_at_host: profile["encryptionAtHost"] == true,
        secure_boot: uefi["secureBootEnabled"] == true,
        vtpm: uefi["vTpmEnabled"] == true,
    };
    if security.is_trusted_launch() {
        must_be("securityProfile.securityType", &profile["securityType"], "TrustedLaunch")?;
    }
    Ok(security)
}

/// Where an OS disk is stored: Azure takes an ephemeral one with a read-only cache alone.
fn os_disk_storage(disk: &Value) -> Result<OsDiskStorage, Response> {
    let local = &disk["diffDiskSettings"];
    if local.is_null() {
        let premium = disk["managedDisk"]["storageAccountType"] == "Premium_LRS";
        return Ok(if premium { OsDiskStorage::Premium } else { OsDiskStorage::StandardSsd });
    }
    must_be("storageProfile.osDisk.diffDiskSettings.option", &local["option"], "Local")?;
    must_be("storageProfile.osDisk.caching", &disk["caching"], "ReadOnly")?;
    let placement = serde_json::from_value(local["placement"].clone());
    let path = "storageProfile.osDisk.diffDiskSettings.placement";
    placement.map(OsDiskStorage::Ephemeral).map_err(|_| invalid(path, "must be NvmeDisk, CacheDisk or ResourceDisk"))
}

fn offering(body: &Value, cloud: &Cloud) -> Result<OfferingKey, Response> {
    let properties = &body["properties"];
    let size = text("hardwareProfile.vmSize", &properties["hardwareProfile"]["vmSize"])?;
    let reserved = reservation(properties)?.is_some();
    let capacity_type = match properties["priority"].as_str() {
        None | Some("Regular") if reserved => CapacityType::Reserved,
        None | Some("Regular") => CapacityType::OnDemand,
        Some("Spot") if reserved => {
            return Err(invalid("capacityReservation", "must be absent where priority is Spot"));
        }
        Some("Spot") => {
            must_be("evictionPolicy", &properties["evictionPolicy"], "Delete")?;
            CapacityType::Spot
        }
        Some(_) => return Err(invalid("priority", "must be Regular or Spot")),
    };
    let zone = zone(body, cloud)?;
    Ok(OfferingKey {
        size: VmSize::new(size).map_err(|e| invalid("hardwareProfile.vmSize", e.reason))?,
        zone,
        capacity_type,
    })
}

/// The group of capacity reservations that a VM names.
fn reservation(properties: &Value) -> Result<Option<ArmId>, Response> {
    let path = "capacityReservation.capacityReservationGroup.id";
    let group = &properties["capacityReservation"]["capacityReservationGroup"]["id"];
    if group.is_null() {
        return Ok(None);
    }
    parse_reservation_group(text(path, group)?).map(Some).map_err(|reason| invalid(path, reason))
}

fn zone(body: &Value, cloud: &Cloud) -> Result<Zone, Response> {
    let Some(n) = body["zones"][0].as_str() else { return Ok(Zone::regional()) };
    let n = n.parse().map_err(|_| invalid("zones", "must be numbers"))?;
    Ok(Zone::of(&cloud.settings().region, n))
}

/// The NodeClaim of the VM's kubelet. A real VM has it in its custom data; here it is in the tag, else in the computer
/// name, `aks-<claim>`.
fn claim(tags: &Tags, properties: &Value) -> Result<ClaimName, Response> {
    let name = match tags.get(labels::TAG_CLAIM) {
        Some(name) => name,
        None => {
            let computer = text("osProfile.computerName", &properties["osProfile"]["computerName"])?;
            computer.strip_prefix("aks-").unwrap_or(computer)
        }
    };
    ClaimName::new(name).map_err(|e| invalid("osProfile.computerName", e.reason))
}

/// The kubelet's configuration in the custom data; empty for a VM without custom data, which is no node.
fn kubelet(custom_data: &Value) -> Result<KubeletSpec, Response> {
    let path = "osProfile.customData";
    let Some(text) = custom_data.as_str() else { return Ok(KubeletSpec::default()) };
    let bytes = BASE64_STANDARD.decode(text).map_err(|_| invalid(path, "must be Base64"))?;
    let text = String::from_utf8(bytes).map_err(|_| invalid(path, "must be UTF-8 text"))?;
    Ok(bootstrap::parse_custom_data(&text))
}

fn check_location(body: &Value, cloud: &Cloud) -> Result<(), Response> {
    must_be("location", &body["location"], cloud.settings().region.as_str())
}

fn tags(value: &Value) -> Result<Tags, Response> {
    let Some(object) = value.as_object() else {
        return Ok(Tags::new());
    };
    let pairs = object.iter().map(|(key, value)| {
        let value = text("tags", value)?;
        Ok((Arc::from(key.as_str()), Arc::from(value)))
    });
    pairs.collect()
}

fn text<'a>(path: &str, value: &'a Value) -> Result<&'a str, Response> {
    value.as_str().filter(|text| !text.is_empty()).ok_or_else(|| invalid(path, "must be a non-empty string"))
}

fn id_at(path: &str, value: &Value) -> Result<ArmId, Response> {
    ArmId::new(text(path, value)?).map_err(|e| invalid(path, e.reason))
}

fn must_be(path: &str, value: &Value, expected: &str) -> Result<(), Response> {
    if value.as_str() == Some(expected) {
        return Ok(());
    }
    Err(invalid(path, &format!("must be {expected}")))
}

fn invalid(path: &str, reason: &str) -> Response {
    let message = format!("The value of parameter {path} is invalid: {reason}.");
    error_response(400, "InvalidParameter", &message)
}
