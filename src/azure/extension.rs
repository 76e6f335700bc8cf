//! Extensions: what is put on a VM once it is there?
//!
//! One alone: AKS counts Linux nodes for its bill by `computeAksLinuxBilling` (karpenter-provider-azure puts the same on
//! the VMs that it makes).

use crate::azure::Azure;
use crate::wire::Method;
use napkeeper_core::names::ArmId;
use napkeeper_core::plan::Reply;
use napkeeper_core::ports::PortError;
use serde_json::json;

/// Name of the extension by which AKS counts Linux nodes.
const BILLING: &str = "computeAksLinuxBilling";

impl Azure {
    /// PUTs the extension by which AKS counts a Linux node. It may be repeated. Azure accepts it and installs it later.
    ///
    /// # Errors
    /// What Azure refuses, as the domain sees it.
    pub async fn put_billing(&self, vm: &ArmId) -> Result<Reply, PortError> {
        let body = json!({
            "location": self.settings.region.as_str(),
            "properties": {
                "publisher": "Microsoft.AKS",
                "type": "Compute.AKS.Linux.Billing",
                "typeHandlerVersion": "1.0",
                "autoUpgradeMinorVersion": true,
                "settings": {},
            },
        });
        let path = format!("{vm}/extensions/{BILLING}");
        self.write(Method::Put, &path, Some(&body)).await.map_err(PortError::Cloud)
    }
}
