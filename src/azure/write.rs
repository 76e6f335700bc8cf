//! Writing: how is a VM described to ARM?

use crate::error::invalid;
use crate::settings::{Image, Machines, SettingsError};
use azure_mgmt_compute::package_2024_07_01::models;
use base64::prelude::{BASE64_STANDARD, Engine};
use models::network_interface_reference_properties::DeleteOption as NicDeleteOption;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::names::{Region, Zone};
use napkeeper_core::plan::VmSpec;
use napkeeper_core::ports::CloudError;
use serde_json::json;

/// The body that creates a VM. Its NIC and OS disk are deleted with it.
pub(crate) fn vm(
    spec: &VmSpec,
    region: &Region,
    machines: &Machines,
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
        storage_profile: Some(storage(spec, machines)?),
        os_profile: Some(os(spec, machines, custom_data)),
        network_profile: Some(network(spec)),
        security_profile: spec
            .encryption_at_host
            .then(|| models::SecurityProfile { encryption_at_host: Some(true), ..models::SecurityProfile::default() }),
        priority: Some(priority),
        eviction_policy: spot.then_some(models::EvictionPolicy::Delete),
        // Up to the full price: never evicted for its price.
        billing_profile: spot.then_some(models::BillingProfile { max_price: Some(-1.0) }),
        ..models::VirtualMachineProperties::default()
    };
    let mut vm = models::VirtualMachine::new(resource);
    vm.properties = Some(properties);
    vm.zones = zone_number(&spec.offering.zone).into_iter().collect();
    Ok(vm)
}

/// The number of a zone, as ARM wants it; none for a regional VM.
pub(crate) fn zone_number(zone: &Zone) -> Option<String> {
    let number = zone.as_str().rsplit('-').next()?;
    (!zone.is_regional()).then(|| number.to_owned())
}

fn storage(spec: &VmSpec, machines: &Machines) -> Result<models::StorageProfile, CloudError> {
    let size = i32::try_from(spec.os_disk_gb)
        .map_err(|_| invalid(format!("an OS disk of {} GB is larger than any", spec.os_disk_gb)))?;
    let mut disk = models::OsDisk::new(models::CreateOption::FromImage);
    disk.name = Some(spec.os_disk.name().to_owned());
    disk.disk_size_gb = Some(size);
    disk.delete_option = Some(models::DeleteOption::Delete);
    let premium = models::StorageAccountType::PremiumLrs;
    disk.managed_disk = Some(models::ManagedDiskParameters {
        storage_account_type: Some(if spec.premium_disk {
            premium
        } else {
            models::StorageAccountType::StandardSsdLrs
        }),
        ..models::ManagedDiskParameters::default()
    });
    let mut image = models::ImageReference::default();
    match machines.image().map_err(|e: SettingsError| invalid(e.to_string()))? {
        Image::Resource(id) => image.sub_resource.id = Some(id.to_owned()),
        Image::CommunityGallery(id) => image.community_gallery_image_id = Some(id.to_owned()),
    }
    Ok(models::StorageProfile {
        image_reference: Some(image),
        os_disk: Some(disk),
        ..models::StorageProfile::default()
    })
}

fn os(spec: &VmSpec, machines: &Machines, custom_data: &str) -> models::OsProfile {
    let key = models::SshPublicKey {
        path: Some(format!("/home/{}/.ssh/authorized_keys", machines.admin_username)),
        key_data: Some(machines.ssh_public_key.to_string()),
    };
    let linux = models::LinuxConfiguration {
        disable_password_authentication: Some(true),
        ssh: Some(models::SshConfiguration { public_keys: vec![key] }),
        ..models::LinuxConfiguration::default()
    };
    models::OsProfile {
        computer_name: Some(spec.id.name().to_owned()),
        admin_username: Some(machines.admin_username.to_string()),
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
