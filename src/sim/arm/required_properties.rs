//! Checks that a body has the properties that the api-version requires, and no unknown ones.
//!
//! By the definitions of `Microsoft.Compute` 2024-07-01 and `Microsoft.Network` 2024-05-01. ARM itself reads the top
//! level and rejects unknown properties there; below `properties`, providers are less strict.

use super::Response;
use super::responses::{error_response, failed_in};
use super::route::ResourceType;
use serde_json::Value;

/// What ARM reads of any resource.
const TOP: [&str; 13] = [
    "id",
    "name",
    "type",
    "location",
    "tags",
    "properties",
    "zones",
    "identity",
    "plan",
    "sku",
    "etag",
    "extendedLocation",
    "managedBy",
];

/// The required properties of a VM.
const OF_VM: [&str; 4] = ["hardwareProfile", "storageProfile", "osProfile", "networkProfile"];

/// What only Compute writes in a VM, null or not.
const READ_ONLY_OF_VM: [&str; 4] = ["provisioningState", "instanceView", "vmId", "timeCreated"];

/// What only Network writes in a NIC.
const READ_ONLY_OF_NIC: [&str; 4] = ["virtualMachine", "privateEndpoint", "macAddress", "hostedWorkloads"];

/// Refuses a body that ARM or the provider would refuse before looking at its values.
pub(super) fn check(body: &Value, of: ResourceType) -> Result<(), Response> {
    let Some(top) = body.as_object() else {
        return Err(not_understood("the body must be an object"));
    };
    if let Some(unknown) = top.keys().find(|key| !TOP.contains(&key.as_str())) {
        let message =
            format!("Could not find member '{unknown}' on object of type 'ResourceDefinition'. Path '{unknown}'");
        return Err(not_understood(&message));
    }
    if body["location"].as_str().is_none_or(str::is_empty) {
        return Err(error_response(400, "LocationRequired", "The location property is required for this definition."));
    }
    let (required, read_only): (&[&str], &[&str]) = match of {
        ResourceType::Vm => (&OF_VM, &READ_ONLY_OF_VM),
        ResourceType::Nic => (&["ipConfigurations"], &READ_ONLY_OF_NIC),
        ResourceType::Disk => (&[], &[]),
    };
    let properties = &body["properties"];
    if let Some(found) = read_only.iter().find(|key| properties.get(key).is_some()) {
        let message = format!("Changing property '{found}' is not allowed: it is read-only; leave it out.");
        return Err(failed_in(400, "InvalidParameter", &message, found));
    }
    match required.iter().find(|key| properties[**key].is_null()) {
        Some(missing) => {
            let message = format!("Required parameter '{missing}' is missing (null).");
            Err(failed_in(400, "InvalidParameter", &message, missing))
        }
        None => Ok(()),
    }
}

fn not_understood(message: &str) -> Response {
    let message = format!("The request content was invalid and could not be deserialized: '{message}'.");
    error_response(400, "InvalidRequestContent", &message)
}
