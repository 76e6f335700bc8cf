//! What is answered where objects cannot be checked, and must not get in unchecked.

use crate::tests::{PATIENT, Rig, UID, class, good_pool, pod, review, world};
use crate::{Limits, WhenUnable};
use napkeeper_api::manifests::load_text;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_verdict::policy::Policies;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A webhook that refuses what it cannot check.
fn strict(snapshot: Option<Snapshot>, limits: Limits, unreadable: Option<&str>) -> Rig {
    let unreadable = watch::channel(unreadable.map(ToOwned::to_owned)).1;
    Rig::with(snapshot, limits, |webhook| {
        webhook.with_when_unable(WhenUnable::Refuse, unreadable).with_policies(Arc::new(slow_policies()))
    })
}

/// With policies, objects are validated on threads, of which there are a few.
fn slow_policies() -> Policies {
    let text = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: weights}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [karpenter.sh], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [nodepools]}
  validations:
    - expression: '!has(object.spec.weight) || object.spec.weight < 100'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: weights}
spec: {policyName: weights, validationActions: [Deny]}
";
    Policies::read(&[load_text("policies.yaml", text.to_owned())])
}

fn bad_pool() -> Value {
    let mut bad = good_pool();
    bad["spec"]["disruption"]["budgets"] = json!([{ "nodes": "1", "schedule": "99 8 * * *", "duration": "1h" }]);
    bad
}

fn message(answer: &Value) -> &str {
    answer["status"]["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_reviews_gets_no_bad_object_in() {
    let rig = Arc::new(strict(Some(world()), Limits { max_concurrency: 2, ..PATIENT }, None));
    let wrong = review("CREATE", "karpenter.sh", &bad_pool(), &Value::Null);
    let asking: Vec<_> = (0..400)
        .map(|_| {
            let (rig, wrong) = (Arc::clone(&rig), wrong.clone());
            tokio::spawn(async move { rig.ask_whole("/validate", &wrong).await })
        })
        .collect();
    let mut codes = BTreeMap::<i64, usize>::new();
    for answer in asking {
        let answer = answer.await.unwrap();
        assert_eq!(answer["allowed"], false, "an object that breaks a rule was admitted: {answer}");
        let code = answer["status"]["code"].as_i64().unwrap();
        let expected = if code == 422 { "NK3007" } else { "--when-unable refuse): too many concurrent requests; " };
        assert!(message(&answer).contains(expected), "{answer}");
        *codes.entry(code).or_default() += 1;
    }
    println!("refused by code: {codes:?}");
    assert!(codes[&422] > 0 && codes[&503] > 0, "{codes:?}");
    let metrics = rig.metrics();
    let counted = format!("outcome=\"failed_closed\"}} {}", codes[&503]);
    assert!(metrics.contains(&counted) && metrics.contains("reason=\"overload\""), "{metrics}");
    // Afterwards a good one is admitted.
    let good = review("CREATE", "karpenter.sh", &good_pool(), &Value::Null);
    assert_eq!(rig.ask("/validate", &good).await["allowed"], true);
}

#[tokio::test]
async fn what_is_not_checked_in_time_is_refused() {
    let rig = strict(Some(world()), Limits { validate_timeout: Duration::ZERO, ..PATIENT }, None);
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.sh", &good_pool(), &Value::Null)).await;
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(503)), "{answer}");
    assert!(message(&answer).contains("timed out"), "{answer}");
}

#[tokio::test]
async fn while_the_cluster_is_not_known_writes_and_deletes_are_refused_and_pods_are_not() {
    for (snapshot, unreadable, expected) in [
        (None, None, "the cluster is not known; "),
        (Some(world()), Some("the watch of nodeclaims fails: forbidden"), "not known: the watch of nodeclaims fails"),
    ] {
        let rig = strict(snapshot, PATIENT, unreadable);
        let (good, null) = (good_pool(), Value::Null);
        for review in [
            review("CREATE", "karpenter.sh", &good, &null),
            review("DELETE", "karpenter.sh", &null, &good),
            review("CREATE", "karpenter.azure.com", &class("v1beta1", &json!({})), &null),
        ] {
            let answer = rig.ask("/validate", &review).await;
            assert!(answer["allowed"] == false && message(&answer).contains(expected), "{answer}");
        }
        let config = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        let answer = rig.ask("/validate", &review("CREATE", "", &config, &null)).await;
        assert_eq!(answer, json!({ "uid": UID, "allowed": true }), "another kind");
        assert_eq!(rig.ask("/mutate", &review("CREATE", "", &pod("1"), &null)).await["allowed"], true);
        assert!(rig.metrics().contains("reason=\"cluster\"} 3"), "{}", rig.metrics());
    }
}

#[tokio::test]
async fn by_default_an_unknown_cluster_refuses_nothing() {
    let unreadable = watch::channel(Some("no watch".to_owned())).1;
    let rig = Rig::with(None, PATIENT, |webhook| webhook.with_when_unable(WhenUnable::Allow, unreadable));
    let answer = rig.ask("/validate", &review("CREATE", "karpenter.sh", &good_pool(), &Value::Null)).await;
    assert_eq!(answer, json!({ "uid": UID, "allowed": true }));
}
