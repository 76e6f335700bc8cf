//! Whether the CRDs of Karpenter's kinds are napkeeper's, or somebody else runs Karpenter here.
//!
//! Two controllers that act on the same NodeClaims fight, and the user pays for the VMs of both.

use crate::error::{ApiRequest, call};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use napkeeper_core::model::errors::ClusterError;

/// Definitions that whoever runs Karpenter installs.
const DEFINITIONS: [&str; 3] =
    ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "aksnodeclasses.karpenter.azure.com"];
/// The label that our definitions carry.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "napkeeper");

/// Definitions of Karpenter's kinds that are there and not ours, joined by commas; `None` when there is none. One that
/// is not there at all belongs to nobody.
///
/// # Errors
/// [`ClusterError`] when one cannot be read.
pub async fn foreign_definitions(client: &Client) -> Result<Option<String>, ClusterError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut foreign = Vec::new();
    for name in DEFINITIONS {
        let what = ApiRequest { verb: "get", kind: "CustomResourceDefinition", name };
        let Some(definition) = call(what, api.get_opt(name)).await? else { continue };
        let label = definition.metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF.0));
        if label.is_none_or(|value| value != PART_OF.1) {
            foreign.push(name);
        }
    }
    Ok((!foreign.is_empty()).then(|| foreign.join(", ")))
}
