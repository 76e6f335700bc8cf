//! Reads, creates and deletes Machines of AKS.
//!
//! Experimental: only previews of `Microsoft.ContainerService` create Machines and return their tags;
//! [`PREVIEW_VERSION`] is that of the published SDK (armcontainerservice v9.4.0-beta.1). Deleting is stable. A Machine
//! is created and never changed: callers check first whether it exists.

use super::related::{AksMachine, CONTAINER_SERVICE_VERSION};
use super::vm::zone_number;
use crate::arm::error::invalid;
use crate::arm::operation::{absent_if_not_found, reply_to_delete, reply_to_write};
use crate::client::Azure;
use crate::transport::Method;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, AksMachineSpec, Reply};
use serde_json::{Value, json};
use std::sync::Arc;

/// The API version that creates Machines and returns their tags.
pub(crate) const PREVIEW_VERSION: &str = "2026-04-02-preview";

impl Azure {
    pub(super) async fn aks_machine(&self, request: &AksMachineRequest) -> Result<Reply, CloudError> {
        match request {
            AksMachineRequest::Get(id) => self.get_aks_machine(id).await,
            AksMachineRequest::Put(spec) => {
                // Whether the preview honours `create_only` is not documented; so the check before the PUT is
                // essential.
                reply_to_write(&self.arm.put(spec.id.as_str(), Some(PREVIEW_VERSION), &body(spec), true).await?)
            }
            AksMachineRequest::Delete(id) => absent_if_not_found(self.delete_aks_machine(id).await),
        }
    }

    async fn get_aks_machine(&self, id: &ArmId) -> Result<Reply, CloudError> {
        match self.arm.get::<AksMachine>(id.as_str(), Some(PREVIEW_VERSION)).await {
            Ok(machine) => Ok(Reply::AksMachine(Some(Arc::new(machine.related()?)))),
            Err(error) if error.code == CloudErrorCode::NotFound => Ok(Reply::AksMachine(None)),
            Err(error) => Err(error),
        }
    }

    async fn delete_aks_machine(&self, id: &ArmId) -> Result<Reply, CloudError> {
        let (pool, name) = pool_and_name(id).ok_or_else(|| invalid(format!("{id} is not the id of a Machine")))?;
        let url = self.arm.url(&format!("{pool}/deleteMachines"), Some(CONTAINER_SERVICE_VERSION));
        let names = json!({ "machineNames": [name] }).to_string().into_bytes();
        reply_to_delete(&self.arm.call(Method::POST, url, Some(names)).await?)
    }
}

/// The id of a Machine's agent pool, and its name.
fn pool_and_name(id: &ArmId) -> Option<(&str, &str)> {
    let (rest, name) = id.as_str().rsplit_once('/')?;
    let (pool, of) = rest.rsplit_once('/')?;
    (of.eq_ignore_ascii_case("machines") && !name.is_empty()).then_some((pool, name))
}

/// The body that creates a Machine. AKS brings image, bootstrap, NIC and disk; the taint keeps pods off until the
/// claim's own taints are on the Node.
fn body(spec: &AksMachineSpec) -> Value {
    let spot = spec.offering.capacity_type == CapacityType::Spot;
    let disk_type = if spec.ephemeral_os_disk { "Ephemeral" } else { "Managed" };
    let mut body = json!({
        "zones": zone_number(&spec.offering.zone).into_iter().collect::<Vec<_>>(),
        "properties": {
            "mode": "User",
            "priority": if spot { "Spot" } else { "Regular" },
            "hardware": { "vmSize": spec.offering.size.as_str() },
            "operatingSystem": { "osType": "Linux", "osSKU": "Ubuntu", "osDiskSizeGB": spec.os_disk_gb, "osDiskType": disk_type },
            "kubernetes": {
                "maxPods": spec.kubelet.max_pods,
                "nodeLabels": spec.kubelet.labels,
                "nodeInitializationTaints": [format!("{}:NoExecute", labels::TAINT_UNREGISTERED)],
            },
            "security": {
                "enableEncryptionAtHost": spec.security.encryption_at_host,
                "enableSecureBoot": spec.security.secure_boot,
                "enableVTPM": spec.security.vtpm,
            },
            "tags": spec.tags,
        },
    });
    if let Some(subnet) = &spec.subnet {
        body["properties"]["network"] = json!({ "vnetSubnetID": subnet.as_str() });
    }
    body
}
