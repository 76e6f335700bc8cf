//! The extension of a VM by which AKS bills it.
//!
//! AKS counts Linux nodes for its bill by `computeAksLinuxBilling` (karpenter-provider-azure installs the same on its
//! VMs).

use crate::client::Azure;
use crate::transport::Method;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::Reply;
use serde_json::json;

/// Name of the extension by which AKS counts Linux nodes.
const BILLING: &str = "computeAksLinuxBilling";

impl Azure {
    /// PUTs the extension by which AKS counts a Linux node. It may be repeated. Azure accepts it and installs it later.
    pub(super) async fn put_billing_extension(&self, vm: &ArmId) -> Result<Reply, CloudError> {
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
        self.write(Method::PUT, &billing_path(vm), &body).await
    }
}

/// The path of a VM's extension.
pub(super) fn billing_path(vm: &ArmId) -> String {
    format!("{vm}/extensions/{BILLING}")
}
