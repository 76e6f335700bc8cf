//! Extensions: what is put on a VM once it is there?
//!
//! One alone: AKS counts Linux nodes for its bill by `computeAksLinuxBilling` (karpenter-provider-azure puts the same on
//! the VMs that it makes).

use crate::azure::Azure;
use crate::wire::Method;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::Reply;
use serde_json::json;

/// Name of the extension by which AKS counts Linux nodes.
const BILLING: &str = "computeAksLinuxBilling";

impl Azure {
    /// PUTs the extension by which AKS counts a Linux node. It may be repeated. Azure accepts it and installs it later.
    pub(crate) async fn put_billing(&self, vm: &ArmId) -> Result<Reply, CloudError> {
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
        self.write(Method::Put, &billing_path(vm), Some(&body)).await
    }
}

/// Where the extension of a VM is put.
pub(crate) fn billing_path(vm: &ArmId) -> String {
    format!("{vm}/extensions/{BILLING}")
}
