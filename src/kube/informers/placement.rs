//! Follows PlacementPolicies and Namespaces, from which pods get their placement defaults.

use super::{Followed, follow_both};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use napkeeper_api::convert::placement_policy;
use napkeeper_api::types::placement_policy::PlacementPolicy as WirePolicy;
use napkeeper_core::admission::placement_policy::{
    NamespaceFacts, PLACEMENT_ANNOTATION, PlacementPolicies, PlacementPolicy,
};
use std::sync::Arc;
use tokio::sync::watch;

/// Follows policies and namespaces until the receivers are dropped. A kind counts as empty until it is listed.
pub async fn follow_placement(client: Client, sender: watch::Sender<Arc<PlacementPolicies>>) {
    let policies = Followed::all(&client, "PlacementPolicies", parsed);
    let namespaces = Followed::all(&client, "Namespaces", |o: &PartialObjectMeta<Namespace>| Some(facts(o)));
    follow_both(policies, namespaces, sender, |policies, namespaces| PlacementPolicies {
        policies: policies.clone(),
        namespaces: namespaces.clone(),
    })
    .await;
}

fn parsed(object: &WirePolicy) -> Option<PlacementPolicy> {
    match placement_policy(object) {
        Ok(policy) => Some(policy),
        Err(violations) => {
            let reason = violations.0.first().map(|v| format!("{}: {}", v.path, v.message)).unwrap_or_default();
            tracing::warn!(name = object.name_any(), why = reason, "cannot parse the PlacementPolicy: ignored");
            None
        }
    }
}

fn facts<K: ResourceExt>(object: &K) -> NamespaceFacts {
    let text = |(key, value): (&String, &String)| (Arc::from(key.as_str()), Arc::from(value.as_str()));
    NamespaceFacts {
        labels: object.labels().iter().map(text).collect(),
        placement_annotation: object.annotations().get(PLACEMENT_ANNOTATION).map(|name| Arc::from(name.as_str())),
    }
}
