//! What the platform team's policies make of a write, by the mode of each binding.

use crate::tests::{PATIENT, Rig, UID, good_pool, review};
use napkeeper_api::manifests::load_text;
use napkeeper_verdict::policy::Policies;
use serde_json::{Value, json};
use std::sync::Arc;

/// A policy on NodePools, and a binding of it with these actions.
fn policy(name: &str, expression: &str, actions: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {{apiGroups: [karpenter.sh], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [nodepools]}}
  validations:
    - expression: '{expression}'
      message: {name} says no
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}-binding}}
spec: {{policyName: {name}, validationActions: {actions}}}
---
"
    )
}

fn rig(text: String) -> Rig {
    let policies = Policies::read(&[load_text("policies.yaml", text)]);
    assert!(policies.problems().is_empty(), "{:?}", policies.problems());
    Rig::with(None, PATIENT, |webhook| webhook.with_policies(Arc::new(policies)))
}

async fn ask(rig: &Rig, new: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    rig.ask_whole("/validate", &review(operation, "karpenter.sh", new, old)).await
}

#[tokio::test]
async fn each_binding_chooses_its_actions() {
    let never = "object.spec.weight > 100";
    let rig = rig([
        policy("strict", never, "[Deny]"),
        policy("gentle", never, "[Warn]"),
        policy("silent", never, "[Audit]"),
        policy("both", never, "[Warn, Audit]"),
        policy("content", "true", "[Deny]"),
    ]
    .concat());
    let mut pool = good_pool();
    pool["spec"]["weight"] = json!(1);
    let answer = ask(&rig, &pool, &Value::Null).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(
        answer["status"]["message"],
        "NodePool is denied, 1 finding:\nNK7001 spec.weight: policy strict: strict says no\n\
         More: docs/rules/NK7001.md, or napkeeper rules NK7001"
    );
    let warnings: Vec<&str> = answer["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(warnings[0], "NK7002 spec.weight: policy gentle: gentle says no");
    assert_eq!(warnings[1], "NK7002 spec.weight: policy both: both says no");
    assert!(warnings.iter().all(|line| !line.contains("silent") && !line.contains("strict")), "{warnings:?}");
    let audit: Value = serde_json::from_str(answer["auditAnnotations"]["policies"].as_str().unwrap()).unwrap();
    assert_eq!(
        audit,
        json!([
            { "policy": "silent", "binding": "silent-binding", "message": "silent says no" },
            { "policy": "both", "binding": "both-binding", "message": "both says no" },
        ])
    );
}

#[tokio::test]
async fn updates_have_the_old_object_and_the_user() {
    let change = policy("growing", "oldObject == null || object.spec.weight >= oldObject.spec.weight", "[Deny]");
    let named = policy(
        "named",
        "request.userInfo.username == \"kubernetes-admin\" && \"system:masters\" in request.userInfo.groups",
        "[Deny]",
    );
    let rig = rig(change + &named);
    let weigh = |weight: u32| {
        let mut pool = good_pool();
        pool["spec"]["weight"] = json!(weight);
        pool
    };
    assert_eq!(ask(&rig, &weigh(10), &Value::Null).await["allowed"], true);
    assert_eq!(ask(&rig, &weigh(11), &weigh(10)).await["allowed"], true);
    let refused = ask(&rig, &weigh(9), &weigh(10)).await;
    assert!(refused["status"]["message"].as_str().unwrap().contains("policy growing: growing says no"), "{refused}");
    let mut going = weigh(9);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        ask(&rig, &going, &weigh(10)).await,
        json!({ "uid": UID, "allowed": true }),
        "a teardown comes to its end"
    );
}

#[tokio::test]
async fn unknown_inputs_deny_nothing() {
    let rig = rig(policy("curious", "authorizer.group(\"\").resource(\"pods\").check(\"list\").allowed()", "[Deny]"));
    let answer = ask(&rig, &good_pool(), &Value::Null).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let first = answer["warnings"][0].as_str().unwrap();
    assert!(first.starts_with("NK7003: policy curious cannot be evaluated: it needs authorizer"), "{first}");
}
