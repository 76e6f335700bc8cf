//! Detects whether the CRDs of Karpenter's kinds belong to napkeeper or to another Karpenter.
//!
//! Two controllers for the same NodeClaims conflict, and the user pays for the VMs of both.

use crate::error::{ApiRequest, call};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use napkeeper_core::model::errors::ClusterError;

/// CRDs that every Karpenter installs.
const DEFINITIONS: [&str; 3] =
    ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "aksnodeclasses.karpenter.azure.com"];
/// The label that our definitions carry.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "napkeeper");

/// CRDs of Karpenter's kinds that are not napkeeper's, joined by commas; `None` if there is none. Missing ones do not
/// count.
///
/// # Errors
/// [`ClusterError`] when one cannot be read.
pub async fn foreign_definitions(client: &Client) -> Result<Option<String>, ClusterError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut foreign = Vec::new();
    for name in DEFINITIONS {
        let request = ApiRequest { verb: "get", kind: "CustomResourceDefinition", name };
        let Some(definition) = call(request, api.get_opt(name)).await? else { continue };
        let label = definition.metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF.0));
        if label.is_none_or(|value| value != PART_OF.1) {
            foreign.push(name);
        }
    }
    Ok((!foreign.is_empty()).then(|| foreign.join(", ")))
}
