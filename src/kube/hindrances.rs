//! Hindrances: how are PodDisruptionBudgets and the state of AKSNodeClasses followed?
//!
//! By watches of their own: what cannot be listed here holds up nothing else.

use crate::rows::{News, Rows, news};
use futures::{StreamExt, stream};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use napkeeper_api::azure::AKSNodeClass;
use napkeeper_api::convert::disruption_budget;
use napkeeper_core::admission::blockers::{BlockingPdb, ClusterBlockers, NodeClassNotReady};
use napkeeper_core::model::names::{Namespace, NodeClassName};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// A budget that is spent, with its namespace.
type Spent = (Namespace, BlockingPdb);
/// A class that is not ready, with its name.
type Unready = (NodeClassName, Arc<NodeClassNotReady>);

enum Either {
    Budget(News<Spent>),
    Class(News<Unready>),
}

/// Follows both kinds for as long as somebody listens. While one has not been listed it is as if there were none of it.
pub async fn follow_hindrances(client: Client, sender: watch::Sender<Arc<ClusterBlockers>>) {
    let budgets = news(&client, spent).map(Either::Budget);
    let classes = news(&client, unready).map(Either::Class);
    let mut all = pin!(stream::select(budgets, classes));
    let (mut budgets, mut classes) = (Rows::new("PodDisruptionBudgets"), Rows::new("the state of AKSNodeClasses"));
    while let Some(either) = all.next().await {
        let changed = match either {
            Either::Budget(news) => budgets.learn(news),
            Either::Class(news) => classes.learn(news),
        };
        if sender.is_closed() {
            return;
        }
        if changed {
            let mut spent: BTreeMap<Namespace, Vec<BlockingPdb>> = BTreeMap::new();
            for row in budgets.known.values() {
                spent.entry(row.0.clone()).or_default().push(row.1.clone());
            }
            let not_ready = classes.known.values().map(|row| (row.0.clone(), Arc::clone(&row.1))).collect();
            sender.send_replace(Arc::new(ClusterBlockers { unready_classes: not_ready, blocking_pdbs: spent }));
        }
    }
}

/// A budget that allows no disruption now. One whose status nobody has written yet allows none either, but it will.
fn spent(object: &PodDisruptionBudget) -> Option<Spent> {
    let status = object.status.as_ref()?;
    if status.disruptions_allowed > 0 {
        return None;
    }
    let budget = disruption_budget(object).ok()?;
    Some((budget.key.namespace, BlockingPdb { name: budget.key.name, selector: budget.selector? }))
}

fn unready(object: &AKSNodeClass) -> Option<Unready> {
    let conditions = object.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.kind == "Ready" && condition.status == "False")?;
    let name = NodeClassName::new(object.metadata.name.as_deref()?).ok()?;
    let (reason, message) = (Arc::from(ready.reason.as_str()), Arc::from(ready.message.as_str()));
    Some((name, Arc::new(NodeClassNotReady { reason, message })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::cluster::pod::Labels;
    use serde_json::{Value, json};

    fn budget(allowed: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } },
            "status": allowed,
        }))
        .unwrap()
    }

    fn status(allowed: i32) -> Value {
        json!({ "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": allowed, "expectedPods": 1 })
    }

    #[test]
    fn a_budget_counts_while_it_allows_nothing() {
        let (namespace, budget_of) = spent(&budget(status(0))).unwrap();
        assert_eq!((namespace.as_str(), budget_of.name.as_str()), ("shop", "web"));
        let labels = |app: &str| Labels::from([(Arc::from("app"), Arc::from(app))]);
        assert!(budget_of.selector.satisfied_by(&labels("web")) && !budget_of.selector.satisfied_by(&labels("db")));
        assert!(spent(&budget(status(1))).is_none());
        assert!(spent(&budget(Value::Null)).is_none());
    }

    #[test]
    fn a_class_is_in_the_way_when_it_says_that_it_is_not_ready() {
        let class = |status: &str| -> AKSNodeClass {
            let ready = json!({
                "type": "Ready", "status": status, "reason": "UnhealthyDependents", "message": "SubnetsReady=False",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            serde_json::from_value(json!({
                "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "default" },
                "spec": {}, "status": { "conditions": [ready] },
            }))
            .unwrap()
        };
        let (name, why) = unready(&class("False")).unwrap();
        assert_eq!(
            (name.as_str(), &*why.reason, &*why.message),
            ("default", "UnhealthyDependents", "SubnetsReady=False")
        );
        assert!(unready(&class("True")).is_none() && unready(&class("Unknown")).is_none());
    }
}
