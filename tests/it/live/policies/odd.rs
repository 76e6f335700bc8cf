//! Unusual policies that use every field: the API server agrees.

use super::{Denial, IN_FORCE, comparable, online};
use anyhow::{Result, ensure};
use napkeeper_api::manifests::load_text;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use napkeeper_verdict::policy::{Action, Inputs, Outcome, Policies, User};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A policy on some kinds with its binding.
struct Odd {
    name: String,
    /// More of the policy's spec, and all of the binding's but for what every binding has.
    policy: Value,
    binding: Value,
}

/// The policies under a key of `odd.yaml`. That they are read when the test runs makes trying one more a matter of
/// seconds.
fn odd(key: &str) -> Result<Vec<Odd>> {
    let text = std::fs::read_to_string(repository("tests/it/live/policies/odd.yaml"))?;
    let source = load_text("odd.yaml", text);
    let reading = source.parsed();
    ensure!(reading.problems.is_empty(), "{:?}", reading.problems);
    let list = reading.documents[0].value[key].as_array().cloned().unwrap_or_default();
    ensure!(list.len() > 20, "{key} has only {} policies", list.len());
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    Ok(list
        .iter()
        .map(|v| Odd { name: text(&v["name"]), policy: v["policy"].clone(), binding: v["binding"].clone() })
        .collect())
}

impl Odd {
    /// The policy and its binding as manifests: the policy matches objects with its name as a label.
    fn manifests(&self) -> [Value; 2] {
        let Self { name, policy, binding } = self;
        let rule = json!({
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
            "resources": ["configmaps", "priorityclasses"],
        });
        let constraints = json!({ "objectSelector": { "matchLabels": { "odd": name } }, "resourceRules": [rule] });
        let manifest = |kind: &str, mut spec: Value, more: &Value| {
            for (key, value) in more.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
                "spec": spec,
            })
        };
        [
            manifest("ValidatingAdmissionPolicy", json!({ "matchConstraints": constraints }), policy),
            manifest(
                "ValidatingAdmissionPolicyBinding",
                json!({ "policyName": name, "validationActions": ["Deny"] }),
                binding,
            ),
        ]
    }

    fn text(&self) -> String {
        self.manifests().iter().map(|m| format!("---\n{m}\n")).collect()
    }
}

/// Objects to judge: small and large, in a gold namespace and another, and one that belongs to no namespace.
fn objects(policy: &str) -> Vec<Value> {
    let config_map = |name: &str, namespace: &str, size: &str, shade: bool| {
        let mut labels = json!({ "odd": policy });
        if shade {
            labels["shade"] = json!("green");
        }
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "size": size, "long": "x".repeat(5119) },
            "metadata": { "name": name, "namespace": namespace, "labels": labels },
        })
    };
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5,
        "metadata": { "name": "odd", "labels": { "odd": policy } },
    });
    vec![
        config_map("small", "odd", "1", false),
        config_map("large", "odd", "7", true),
        config_map("middle", "default", "3", false),
        class,
    ]
}

fn surroundings() -> [Value; 3] {
    let config_map = |name: &str, max: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "max": max },
            "metadata": { "name": name, "namespace": "odd", "labels": { "for": "odd" } },
        })
    };
    let labels = json!({ "tier": "gold" });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "odd", "labels": labels } });
    [namespace, config_map("three", "3"), config_map("five", "5")]
}

/// What would refuse an object without a server.
fn offline(policies: &Policies, object: &Value, inputs: &Inputs) -> Result<BTreeSet<Denial>> {
    let found = policies.evaluate(object, None, inputs);
    let undecided: Vec<_> = found.iter().filter(|f| f.outcome == Outcome::Undecided).collect();
    ensure!(undecided.is_empty(), "all is known, and yet: {undecided:?}");
    let denied = found.into_iter().filter(|f| f.outcome == Outcome::Refused && f.actions.contains(&Action::Deny));
    Ok(denied.map(|f| (f.policy, comparable(&f.message))).collect())
}

#[tokio::test]
async fn odd_policies_agree_with_the_api_server() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let client = plane.client().await?;
    let [namespace, three, five] = surroundings();
    plane.apply(&namespace.to_string()).await?;
    plane.apply(&format!("{three}\n---\n{five}\n")).await?;
    let odd = odd("works")?;
    let text: String = odd.iter().map(Odd::text).collect();
    plane.apply(&text).await?;
    // The last that is installed: when it is in force, all are.
    let refuse = json!({ "validations": [{ "expression": "false" }] });
    plane.apply(&Odd { name: "last".into(), policy: refuse, binding: Value::Null }.text()).await?;
    let probe = objects("last").remove(0);
    eventually("policy that refuses everything", IN_FORCE, async || online(&client, &probe).await).await?;

    let policies = Policies::read(&[load_text("odd.yaml", text)]);
    ensure!(policies.problems().is_empty(), "{:#?}", policies.problems());
    let default = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "default" } });
    let inputs = Inputs::default()
        .with_user(User { name: "admin".into(), groups: vec!["system:masters".into()] })
        .with_namespaces([namespace, default])
        .with_all_params([three, five]);
    let (mut differ, mut compared) = (Vec::new(), [0, 0]);
    for Odd { name, .. } in &odd {
        for object in objects(name) {
            let offline_results = offline(&policies, &object, &inputs)?;
            let online_result = online(&client, &object).await?;
            compared[usize::from(online_result.is_some())] += 1;
            let same =
                online_result.as_ref().map_or(offline_results.is_empty(), |result| offline_results.contains(result));
            if !same {
                differ.push(format!(
                    "{name}, {}: here {offline_results:?}, there {online_result:?}",
                    object["metadata"]["name"]
                ));
            }
        }
    }
    ensure!(differ.is_empty(), "{:#?}", differ);
    ensure!(compared[0] > 50 && compared[1] > 50, "{compared:?} accepted and refused: the objects are too alike");
    Ok(())
}

#[tokio::test]
async fn problems_of_policies_agree_with_the_api_server() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let mut differ = Vec::new();
    for odd in odd("wrong")? {
        let policies = Policies::read(&[load_text("odd.yaml", odd.text())]);
        let problems: Vec<_> = policies.problems().iter().filter(|p| p.rule == "NK7004").map(|p| &p.message).collect();
        let mut errors = Vec::new();
        for manifest in odd.manifests() {
            errors.extend(plane.apply(&manifest.to_string()).await.err().map(|e| format!("{e:#}")));
        }
        if problems.is_empty() || errors.is_empty() {
            differ.push(format!("{}: here {problems:?}, there {errors:?}", odd.name));
        }
    }
    ensure!(differ.is_empty(), "{differ:#?}");
    Ok(())
}
