//! Network interfaces: the fields that are read, and the body that creates one.
//!
//! The ARM crates in use do not include `Microsoft.Network`; these are the few properties needed.

use crate::settings::VmSettings;
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::names::Region;
use napkeeper_core::plan::NicSpec;
use serde::Deserialize;
use serde_json::{Value, json};

/// A network interface, as read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkInterface {
    pub(crate) id: String,
    pub(crate) location: Option<String>,
    pub(crate) tags: Option<Tags>,
    #[serde(default)]
    pub(crate) properties: NicProperties,
}

/// Its properties.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NicProperties {
    pub(crate) resource_guid: Option<String>,
    pub(crate) ip_configurations: Option<Vec<Value>>,
    pub(crate) virtual_machine: Option<SubResource>,
    pub(crate) private_endpoint: Option<SubResource>,
    pub(crate) private_link_service: Option<SubResource>,
    pub(crate) hosted_workloads: Option<Vec<String>>,
}

/// Another resource.
#[derive(Debug, Deserialize)]
pub(crate) struct SubResource {
    pub(crate) id: Option<String>,
}

impl NicProperties {
    /// Usage of the NIC besides a VM.
    pub(crate) fn serves(&self) -> Option<&str> {
        let workload = self.hosted_workloads.iter().flatten().next();
        let (endpoint, service) = (&self.private_endpoint, &self.private_link_service);
        workload
            .map(String::as_str)
            .or_else(|| endpoint.as_ref().map(|r| r.id.as_deref().unwrap_or("a private endpoint")))
            .or_else(|| service.as_ref().map(|r| r.id.as_deref().unwrap_or("a private link service")))
    }
}

/// The body that creates a NIC: one address of its class's subnet, else of that of all nodes.
pub(crate) fn body(spec: &NicSpec, region: &Region, settings: &VmSettings) -> Value {
    let subnet = spec.subnet.as_ref().unwrap_or(&settings.subnet);
    json!({
        "location": region.as_str(),
        "tags": spec.tags,
        "properties": {
            "enableAcceleratedNetworking": spec.accelerated,
            "ipConfigurations": [{
                "name": spec.id.name(),
                "properties": {
                    "primary": true,
                    "privateIPAllocationMethod": "Dynamic",
                    "subnet": { "id": subnet.as_str() },
                },
            }],
        },
    })
}
