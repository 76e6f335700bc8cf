//! Follows PodDisruptionBudgets and the state of AKSNodeClasses, which may block a write.

use super::{Followed, follow_both};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use napkeeper_api::convert::disruption_budget_state;
use napkeeper_api::types::aks_node_class::AKSNodeClass;
use napkeeper_core::admission::pdb_blockers::{BlockingPdb, ClusterBlockers, NodeClassNotReady};
use napkeeper_core::model::names::{Namespace, NodeClassName};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Follows both kinds until the receivers are dropped. A kind counts as empty until it is listed.
pub async fn follow_blockers(client: Client, sender: watch::Sender<Arc<ClusterBlockers>>) {
    let budgets = Followed::all(&client, "PodDisruptionBudgets", blocking);
    let classes = Followed::all(&client, "the state of AKSNodeClasses", not_ready);
    follow_both(budgets, classes, sender, |budgets, classes| {
        let mut blocking_pdbs: BTreeMap<Namespace, Vec<BlockingPdb>> = BTreeMap::new();
        for budget in budgets.values() {
            blocking_pdbs.entry(budget.0.clone()).or_default().push(budget.1.clone());
        }
        let unready_classes = classes.values().map(|class| (class.0.clone(), Arc::clone(&class.1))).collect();
        ClusterBlockers { unready_classes, blocking_pdbs }
    })
    .await;
}

/// A budget that allows no disruption now. One without a status will allow some, so it does not count.
fn blocking(object: &PodDisruptionBudget) -> Option<(Namespace, BlockingPdb)> {
    let status = object.status.as_ref()?;
    if status.disruptions_allowed > 0 {
        return None;
    }
    let budget = disruption_budget_state(object).ok()?;
    Some((budget.key.namespace, BlockingPdb { name: budget.key.name, selector: budget.selector? }))
}

fn not_ready(object: &AKSNodeClass) -> Option<(NodeClassName, Arc<NodeClassNotReady>)> {
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
        let (namespace, budget_of) = blocking(&budget(status(0))).unwrap();
        assert_eq!((namespace.as_str(), budget_of.name.as_str()), ("shop", "web"));
        let labels = |app: &str| Labels::from([(Arc::from("app"), Arc::from(app))]);
        assert!(budget_of.selector.satisfied_by(&labels("web")) && !budget_of.selector.satisfied_by(&labels("db")));
        assert!(blocking(&budget(status(1))).is_none());
        assert!(blocking(&budget(Value::Null)).is_none());
    }

    #[test]
    fn a_class_blocks_when_it_is_not_ready() {
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
        let (name, state) = not_ready(&class("False")).unwrap();
        assert_eq!(
            (name.as_str(), &*state.reason, &*state.message),
            ("default", "UnhealthyDependents", "SubnetsReady=False")
        );
        assert!(not_ready(&class("True")).is_none() && not_ready(&class("Unknown")).is_none());
    }
}
