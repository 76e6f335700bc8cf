//! Detects whether the CRDs of Karpenter's kinds belong to napkeeper or to another Karpenter.
//!
//! Two controllers for the same NodeClaims conflict, and the user pays for the VMs of both.

use crate::error::{ApiRequest, call};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use napkeeper_core::model::errors::ClusterError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// CRDs that every Karpenter installs.
const DEFINITIONS: [&str; 3] =
    ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "aksnodeclasses.karpenter.azure.com"];
/// The label that our definitions carry.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "napkeeper");

/// How long an answer holds for further launches.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Says whether Karpenter's CRDs are napkeeper's, asking the API server. Cheap to clone; clones share the last answer.
#[derive(Clone)]
pub struct CrdOwner {
    client: Client,
    /// When the API server last said that all of them are napkeeper's.
    own_at: Arc<Mutex<Option<Instant>>>,
}

impl CrdOwner {
    /// Asks this API server.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, own_at: Arc::default() }
    }

    /// As [`CrdOwner::foreign_definitions`]; that there are none may have been answered 5 s ago.
    pub(super) async fn recent_foreign_definitions(&self) -> Result<Option<String>, ClusterError> {
        // Held over the request, so that launches that wait for it do not ask as well.
        let mut own_at = self.own_at.lock().await;
        if own_at.is_some_and(|at| at.elapsed() < MAX_AGE) {
            return Ok(None);
        }
        let (asked_at, answer) = (Instant::now(), self.foreign_definitions().await);
        *own_at = matches!(answer, Ok(None)).then_some(asked_at);
        answer
    }

    /// CRDs of Karpenter's kinds that are not napkeeper's, joined by commas; `None` if there is none. Missing ones do
    /// not count.
    ///
    /// # Errors
    /// [`ClusterError`] when one cannot be read.
    pub async fn foreign_definitions(&self) -> Result<Option<String>, ClusterError> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let mut foreign = Vec::new();
        for name in DEFINITIONS {
            let request = ApiRequest { verb: "get", kind: "CustomResourceDefinition", name };
            let Some(definition) = call(request, api.get_metadata_opt(name)).await? else { continue };
            let label = definition.metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF.0));
            if label.is_none_or(|value| value != PART_OF.1) {
                foreign.push(name);
            }
        }
        Ok((!foreign.is_empty()).then(|| foreign.join(", ")))
    }
}
