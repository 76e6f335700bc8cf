//! The body that creates a VM.

use crate::arm::error::invalid;
use crate::settings::{Image, SettingsError, VmSettings};
use azure_mgmt_compute::package_2024_07_01::models;
use base64::prelude::{BASE64_STANDARD, Engine};
use models::network_interface_reference_properties::DeleteOption as NicDeleteOption;
use napkeeper_core::catalog::{CapacityType, EphemeralDiskPlacement, OsDiskStorage};
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::{ArmId, Region, Zone};
use napkeeper_core::plan::{SecurityProfile, VmSpec};
use serde_json::json;

/// The body that creates a VM. Its NIC and OS disk are deleted with it.
pub(crate) fn body(
    spec: &VmSpec,
    region: &Region,
    settings: &VmSettings,
    custom_data: &str,
) -> Result<models::VirtualMachine, CloudError> {
    let resource = models::Resource {
        id: None,
        name: None,
        type_: None,
        location: region.to_string(),
        tags: Some(json!(spec.tags)),
    };
    let spot = spec.offering.capacity_type == CapacityType::Spot;
    let priority = if spot { models::Priority::Spot } else { models::Priority::Regular };
    let hardware = models::HardwareProfile {
        vm_size: Some(models::hardware_profile::VmSize::UnknownValue(spec.offering.size.to_string())),
        ..models::HardwareProfile::default()
    };
    let properties = models::VirtualMachineProperties {
        hardware_profile: Some(hardware),
        storage_profile: Some(storage(spec, settings)?),
        os_profile: Some(os(spec, settings, custom_data)),
        network_profile: Some(network(spec)),
        security_profile: security(spec.security),
        priority: Some(priority),
        eviction_policy: spot.then_some(models::EvictionPolicy::Delete),
        capacity_reservation: spec.capacity_reservation_group.as_ref().map(reservation),
        // Up to the full price: never evicted for its price.
        billing_profile: spot.then_some(models::BillingProfile { max_price: Some(-1.0) }),
        ..models::VirtualMachineProperties::default()
    };
    let mut vm = models::VirtualMachine::new(resource);
    vm.properties = Some(properties);
    vm.zones = zone_number(&spec.offering.zone).into_iter().collect();
    Ok(vm)
}

/// The number of a zone, for ARM; none for a regional VM.
pub(crate) fn zone_number(zone: &Zone) -> Option<String> {
    let number = zone.as_str().rsplit('-').next()?;
    (!zone.is_regional()).then(|| number.to_owned())
}

/// The VM uses the reserved capacity of the group, of its size and zone.
fn reservation(group: &ArmId) -> models::CapacityReservationProfile {
    let group = models::SubResource { id: Some(group.to_string()) };
    models::CapacityReservationProfile { capacity_reservation_group: Some(group) }
}

/// None where nothing is requested: then Azure's own defaults hold.
fn security(requested: SecurityProfile) -> Option<models::SecurityProfile> {
    let uefi = requested.is_trusted_launch().then_some(models::UefiSettings {
        secure_boot_enabled: Some(requested.secure_boot),
        v_tpm_enabled: Some(requested.vtpm),
    });
    let security_type = uefi.is_some().then_some(models::security_profile::SecurityType::TrustedLaunch);
    (requested != SecurityProfile::default()).then(|| models::SecurityProfile {
        encryption_at_host: requested.encryption_at_host.then_some(true),
        security_type,
        uefi_settings: uefi,
        ..models::SecurityProfile::default()
    })
}

fn storage(spec: &VmSpec, settings: &VmSettings) -> Result<models::StorageProfile, CloudError> {
    let size = i32::try_from(spec.os_disk_gb)
        .map_err(|_| invalid(format!("an OS disk of {} GB is too large", spec.os_disk_gb)))?;
    let mut disk = models::OsDisk::new(models::CreateOption::FromImage);
    disk.name = Some(spec.os_disk.name().to_owned());
    disk.disk_size_gb = Some(size);
    disk.delete_option = Some(models::DeleteOption::Delete);
    let storage_account_type = match spec.os_disk_storage {
        OsDiskStorage::Ephemeral(placement) => {
            disk.caching = Some(models::Caching::ReadOnly);
            disk.diff_disk_settings = Some(models::DiffDiskSettings {
                option: Some(models::DiffDiskOption::Local),
                placement: Some(diff_disk_placement(placement)),
            });
            None
        }
        OsDiskStorage::Premium => Some(models::StorageAccountType::PremiumLrs),
        OsDiskStorage::StandardSsd => Some(models::StorageAccountType::StandardSsdLrs),
    };
    disk.managed_disk = Some(models::ManagedDiskParameters {
        storage_account_type,
        disk_encryption_set: settings.disk_encryption_set.as_ref().map(|set| models::DiskEncryptionSetParameters {
            sub_resource: models::SubResource { id: Some(set.to_string()) },
        }),
        ..models::ManagedDiskParameters::default()
    });
    let mut image = models::ImageReference::default();
    match settings.image().map_err(|e: SettingsError| invalid(e.to_string()))? {
        Image::Resource(id) => image.sub_resource.id = Some(id.to_owned()),
        Image::CommunityGallery(id) => image.community_gallery_image_id = Some(id.to_owned()),
    }
    Ok(models::StorageProfile {
        image_reference: Some(image),
        os_disk: Some(disk),
        ..models::StorageProfile::default()
    })
}

fn diff_disk_placement(placement: EphemeralDiskPlacement) -> models::DiffDiskPlacement {
    match placement {
        EphemeralDiskPlacement::Nvme => models::DiffDiskPlacement::NvmeDisk,
        EphemeralDiskPlacement::Cache => models::DiffDiskPlacement::CacheDisk,
        EphemeralDiskPlacement::Resource => models::DiffDiskPlacement::ResourceDisk,
    }
}

fn os(spec: &VmSpec, settings: &VmSettings, custom_data: &str) -> models::OsProfile {
    let key = models::SshPublicKey {
        path: Some(format!("/home/{}/.ssh/authorized_keys", settings.admin_username)),
        key_data: Some(settings.ssh_public_key.to_string()),
    };
    let linux = models::LinuxConfiguration {
        disable_password_authentication: Some(true),
        ssh: Some(models::SshConfiguration { public_keys: vec![key] }),
        ..models::LinuxConfiguration::default()
    };
    models::OsProfile {
        computer_name: Some(spec.id.name().to_owned()),
        admin_username: Some(settings.admin_username.to_string()),
        custom_data: Some(BASE64_STANDARD.encode(custom_data)),
        linux_configuration: Some(linux),
        ..models::OsProfile::default()
    }
}

fn network(spec: &VmSpec) -> models::NetworkProfile {
    let nic = models::NetworkInterfaceReference {
        sub_resource: models::SubResource { id: Some(spec.nic.to_string()) },
        properties: Some(models::NetworkInterfaceReferenceProperties {
            primary: Some(true),
            delete_option: Some(NicDeleteOption::Delete),
        }),
    };
    models::NetworkProfile { network_interfaces: vec![nic], ..models::NetworkProfile::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::nic;
    use napkeeper_core::catalog::OfferingKey;
    use napkeeper_core::model::azure::cloud::Tags;
    use napkeeper_core::model::names::{ClaimName, VmSize};
    use napkeeper_core::plan::{KubeletSpec, NicSpec};
    use serde_json::Value;
    use std::sync::Arc;

    const GROUP: &str = "/subscriptions/s/resourceGroups/g";

    fn settings(set: Option<&str>) -> VmSettings {
        VmSettings {
            subnet: ArmId::new(format!("{GROUP}/subnets/all")).unwrap(),
            image: Arc::from("/subscriptions/s/image"),
            ssh_public_key: Arc::from("ssh-ed25519 AAAA"),
            admin_username: Arc::from("azureuser"),
            disk_encryption_set: set.map(|id| ArmId::new(id).unwrap()),
        }
    }

    fn properties(security: SecurityProfile, set: Option<&str>) -> Value {
        reserved_properties(None, security, set)
    }

    fn reserved_properties(group: Option<&str>, security: SecurityProfile, set: Option<&str>) -> Value {
        let spec = VmSpec { security, ..spec(group) };
        properties_of(&spec, set)
    }

    fn properties_of(spec: &VmSpec, set: Option<&str>) -> Value {
        let region = Region::new("westeurope").unwrap();
        serde_json::to_value(super::body(spec, &region, &settings(set), "").unwrap()).unwrap()["properties"].clone()
    }

    fn spec(group: Option<&str>) -> VmSpec {
        let capacity_type = if group.is_some() { CapacityType::Reserved } else { CapacityType::OnDemand };
        let id = |name: &str| ArmId::new(format!("{GROUP}/{name}")).unwrap();
        let size = VmSize::new("Standard_D2s_v5").unwrap();
        VmSpec {
            id: id("aks-a"),
            offering: OfferingKey { size, zone: Zone::regional(), capacity_type },
            nic: id("nic"),
            os_disk: id("disk"),
            os_disk_gb: 128,
            tags: Tags::new(),
            claim: ClaimName::new("a").unwrap(),
            kubelet: KubeletSpec::default(),
            os_disk_storage: OsDiskStorage::Premium,
            security: SecurityProfile::default(),
            capacity_reservation_group: group.map(|id| ArmId::new(id).unwrap()),
            create_only: true,
        }
    }

    #[test]
    fn a_vm_has_the_security_profile_of_its_class() {
        let none = SecurityProfile::default();
        assert_eq!(properties(none, None).get("securityProfile"), None);
        let host = SecurityProfile { encryption_at_host: true, ..none };
        assert_eq!(properties(host, None)["securityProfile"], json!({ "encryptionAtHost": true }));
        let trusted = SecurityProfile { secure_boot: true, ..none };
        let uefi = json!({ "secureBootEnabled": true, "vTpmEnabled": false });
        let wanted = json!({ "securityType": "TrustedLaunch", "uefiSettings": uefi });
        assert_eq!(properties(trusted, None)["securityProfile"], wanted);
    }

    #[test]
    fn a_reserved_vm_names_its_group_and_is_no_spot_vm() {
        let group = "/subscriptions/o/resourceGroups/r/providers/Microsoft.Compute/capacityReservationGroups/paid";
        let body = |group| reserved_properties(group, SecurityProfile::default(), None);
        let reserved = body(Some(group));
        assert_eq!(reserved["capacityReservation"], json!({ "capacityReservationGroup": { "id": group } }));
        assert_eq!(reserved["priority"], "Regular");
        assert_eq!((reserved.get("evictionPolicy"), reserved.get("billingProfile")), (None, None));
        assert_eq!(body(None).get("capacityReservation"), None);
    }

    #[test]
    fn os_disks_are_encrypted_with_the_key_of_the_cluster() {
        let set = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/des";
        let disk = |set| properties(SecurityProfile::default(), set)["storageProfile"]["osDisk"]["managedDisk"].clone();
        assert_eq!(disk(Some(set))["diskEncryptionSet"], json!({ "id": set }));
        assert_eq!(disk(None).get("diskEncryptionSet"), None);
    }

    #[test]
    fn an_ephemeral_os_disk_is_on_a_local_disk_with_a_read_only_cache() {
        for (placement, spelled) in [
            (EphemeralDiskPlacement::Nvme, "NvmeDisk"),
            (EphemeralDiskPlacement::Cache, "CacheDisk"),
            (EphemeralDiskPlacement::Resource, "ResourceDisk"),
        ] {
            let spec = VmSpec { os_disk_storage: OsDiskStorage::Ephemeral(placement), ..spec(None) };
            let disk = properties_of(&spec, None)["storageProfile"]["osDisk"].clone();
            assert_eq!(disk["diffDiskSettings"], json!({ "option": "Local", "placement": spelled }));
            assert_eq!((&disk["caching"], &disk["deleteOption"]), (&json!("ReadOnly"), &json!("Delete")));
            assert_eq!(disk["managedDisk"].get("storageAccountType"), None);
        }
        let managed = properties_of(&spec(None), None)["storageProfile"]["osDisk"].clone();
        assert_eq!((managed.get("diffDiskSettings"), managed.get("caching")), (None, None));
        assert_eq!(managed["managedDisk"]["storageAccountType"], "Premium_LRS");
    }

    #[test]
    fn a_nic_lies_in_the_subnet_of_its_class() {
        let region = Region::new("westeurope").unwrap();
        let of = |subnet: Option<&str>| {
            let subnet = subnet.map(|id| ArmId::new(id).unwrap());
            let id = ArmId::new(format!("{GROUP}/nic")).unwrap();
            let spec = NicSpec { id, tags: Tags::new(), accelerated: true, subnet, create_only: true };
            let body = nic::body(&spec, &region, &settings(None));
            body["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"].as_str().unwrap().to_owned()
        };
        assert_eq!(of(None), format!("{GROUP}/subnets/all"));
        assert_eq!(of(Some("/subscriptions/s/subnets/own")), "/subscriptions/s/subnets/own");
    }
}
