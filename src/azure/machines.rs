//! Machines: how are they read, created and deleted?
//!
//! Experimental: only previews of `Microsoft.ContainerService` create Machines and tell their tags, [`PREVIEW`] is the
//! one of the published SDK (armcontainerservice v9.4.0-beta.1). Deleting is stable. A Machine is created and never
//! changed: whoever asks looks first whether there is one.

use crate::azure::{Azure, parsed};
use crate::bystanders::{MACHINES, Machine};
use crate::error::invalid;
use crate::operation;
use crate::transport::Ask;
use crate::wire::Method;
use crate::write::zone_number;
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{AksMachineRequest, AksMachineSpec, Reply};
use serde_json::{Value, json};
use std::sync::Arc;

/// The API version that creates Machines and tells their tags.
pub(crate) const PREVIEW: &str = "2026-04-02-preview";

impl Azure {
    pub(crate) async fn machine(&self, call: &AksMachineRequest) -> Result<Reply, CloudError> {
        match call {
            AksMachineRequest::Get(id) => self.get_machine(id).await,
            AksMachineRequest::Put(spec) => {
                self.about_machine(Method::Put, spec.id.as_str(), PREVIEW, Some(&body(spec))).await
            }
            AksMachineRequest::Delete(id) => {
                let (pool, name) = place(id).ok_or_else(|| invalid(format!("{id} is not the id of a Machine")))?;
                let path = format!("{pool}/deleteMachines");
                let names = json!({ "machineNames": [name] });
                operation::deleted(self.about_machine(Method::Post, &path, MACHINES, Some(&names)).await)
            }
        }
    }

    async fn get_machine(&self, id: &ArmId) -> Result<Reply, CloudError> {
        let mut url = self.transport.url(id.as_str());
        url.query_pairs_mut().append_pair("api-version", PREVIEW);
        match self.transport.call(Method::Get, url, None).await {
            Ok(response) => Ok(Reply::AksMachine(Some(Arc::new(parsed::<Machine>(&response)?.bystander()?)))),
            Err(error) if error.code == CloudErrorCode::NotFound => Ok(Reply::AksMachine(None)),
            Err(error) => Err(error),
        }
    }

    async fn about_machine(
        &self,
        method: Method,
        path: &str,
        version: &str,
        body: Option<&Value>,
    ) -> Result<Reply, CloudError> {
        let mut url = self.transport.url(path);
        url.query_pairs_mut().append_pair("api-version", version);
        let body = body.map(|body| body.to_string().into_bytes());
        // Whether the preview honours it is not documented; the look before the PUT is what counts.
        let condition = (method == Method::Put).then(|| ("if-none-match", "*".to_owned()));
        let response = self.transport.ask(Ask { method, url, body, condition }).await?;
        let header = |name: &'static str| response.header(name).map(str::to_owned);
        if method == Method::Put {
            return operation::begun(response.status, header);
        }
        operation::begun_delete(response.status, header)
    }
}

/// The pool of a Machine, and its name.
fn place(id: &ArmId) -> Option<(&str, &str)> {
    let (rest, name) = id.as_str().rsplit_once('/')?;
    let (pool, of) = rest.rsplit_once('/')?;
    (of.eq_ignore_ascii_case("machines") && !name.is_empty()).then_some((pool, name))
}

/// The body that creates a Machine. AKS brings image, bootstrap, NIC and disk; the taint keeps pods off until the
/// claim's own taints are on the Node.
fn body(spec: &AksMachineSpec) -> Value {
    let spot = spec.offering.capacity_type == CapacityType::Spot;
    let mut body = json!({
        "zones": zone_number(&spec.offering.zone).into_iter().collect::<Vec<_>>(),
        "properties": {
            "mode": "User",
            "priority": if spot { "Spot" } else { "Regular" },
            "hardware": { "vmSize": spec.offering.size.as_str() },
            "operatingSystem": { "osType": "Linux", "osSKU": "Ubuntu", "osDiskSizeGB": spec.os_disk_gb, "osDiskType": "Managed" },
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
