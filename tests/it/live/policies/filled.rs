//! Policies see a workload as the API server would store it.

use super::api;
use anyhow::{Result, ensure};
use kube::api::{DynamicObject, PostParams};
use napkeeper_api::manifests::load_text;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use napkeeper_verdict::policy::{Inputs, Policies};
use serde_json::{Value, json};

/// What plugins of admission and strategies add, and not the defaults of the kind: who knows them knows the cluster.
fn without_additions(spec: &mut Value) {
    if let Some(map) = spec.as_object_mut() {
        for field in ["priority", "preemptionPolicy", "tolerations", "serviceAccountName", "serviceAccount"] {
            map.remove(field);
        }
        if map.contains_key("completionMode") {
            // Of Jobs: by their uid.
            map.remove("selector");
            map["template"]["metadata"] = json!({});
        }
    }
}

/// The spec that a policy sees, by a policy with it in its message.
fn seen(object: &Value, spec: &Value) -> bool {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "seen" },
        "spec": {
            "paramKind": { "apiVersion": "v1", "kind": "Seen" },
            "matchConstraints": { "resourceRules": [
                { "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] },
            ] },
            "validations": [{ "expression": "object.spec == params.spec" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "seen" },
        "spec": {
            "policyName": "seen", "validationActions": ["Deny"],
            "paramRef": { "name": "seen", "parameterNotFoundAction": "Deny" },
        },
    });
    let policies = Policies::read(&[load_text("seen.yaml", format!("{policy}\n---\n{binding}\n"))]);
    assert_eq!(policies.problems(), []);
    let params = json!({ "apiVersion": "v1", "kind": "Seen", "metadata": { "name": "seen" }, "spec": spec });
    policies.evaluate(object, None, &Inputs::default().with_all_params([params])).is_empty()
}

#[tokio::test]
async fn policies_see_workloads_as_they_would_be_stored() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let client = plane.client().await?;
    let text = std::fs::read_to_string(repository("tests/it/live/policies/filled.yaml"))?;
    let source = load_text("filled.yaml", text);
    let (mut differ, mut compared) = (Vec::new(), 0);
    for document in &source.parsed().documents {
        let mut object = document.value.clone();
        let params = PostParams { dry_run: true, field_manager: None };
        let typed: DynamicObject = serde_json::from_value(object.clone())?;
        let stored = api(&client, &object)?.create(&params, &typed).await?;
        let mut stored = serde_json::to_value(stored)?["spec"].clone();
        without_additions(&mut stored);
        if object["kind"] == "Job" {
            object["spec"]["template"]["metadata"] = json!({});
        }
        compared += 1;
        if !seen(&object, &stored) {
            differ.push(format!("{} {}: {stored}", object["kind"], object["metadata"]["name"]));
        }
        ensure!(!seen(&object, &object["spec"]), "{} has no default", object["kind"]);
    }
    ensure!(differ.is_empty(), "{differ:#?}");
    ensure!(compared > 10, "{compared} workloads");
    Ok(())
}
