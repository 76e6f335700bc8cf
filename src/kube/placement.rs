//! PlacementPolicies and Namespaces: how does whoever gives pods their defaults follow them?

use crate::rows::{News, Rows, news};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use napkeeper_api::convert::placement_policy;
use napkeeper_api::placement::PlacementPolicy as WirePolicy;
use napkeeper_core::admission::placement_policy::{
    NamespaceFacts, PLACEMENT_ANNOTATION, PlacementPolicies, PlacementPolicy,
};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// Either of the two.
enum Either {
    Policy(News<PlacementPolicy>),
    Namespace(News<NamespaceFacts>),
}

/// Follows policies and namespaces for as long as somebody listens. While a kind has not been listed it is as if there
/// were none of it.
pub async fn follow_placement(client: Client, sender: watch::Sender<Arc<PlacementPolicies>>) {
    let policies = news(&client, understood).map(Either::Policy);
    let namespaces = news(&client, |object: &PartialObjectMeta<Namespace>| Some(facts(object)));
    let mut all = pin!(stream::select(policies, namespaces.map(Either::Namespace)));
    let (mut policies, mut namespaces) = (Rows::new("PlacementPolicies"), Rows::new("Namespaces"));
    while let Some(either) = all.next().await {
        let changed = match either {
            Either::Policy(news) => policies.learn(news),
            Either::Namespace(news) => namespaces.learn(news),
        };
        if sender.is_closed() {
            return;
        }
        if changed {
            let (policies, namespaces) = (policies.known.clone(), namespaces.known.clone());
            sender.send_replace(Arc::new(PlacementPolicies { policies, namespaces }));
        }
    }
}

fn understood(object: &WirePolicy) -> Option<PlacementPolicy> {
    match placement_policy(object) {
        Ok(policy) => Some(policy),
        Err(violations) => {
            let why = violations.0.first().map(|v| format!("{}: {}", v.path, v.message)).unwrap_or_default();
            tracing::warn!(name = object.name_any(), why, "cannot parse the PlacementPolicy: ignored");
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
