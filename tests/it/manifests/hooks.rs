//! The hook configurations that ship.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use serde_json::json;

/// What the admissions enforcer of AKS adds to every hook that lacks it.
const ENFORCED: [(&str, &str); 2] = [("control-plane", "true"), ("kubernetes.azure.com/managedby", "aks")];

/// A hook that fails closed is of no use if the webhook itself allows what it has not checked.
#[test]
fn the_fail_closed_component_refuses_what_it_cannot_check() -> Result<()> {
    let file = "kustomize/components/fail-closed/kustomization.yaml";
    let text = std::fs::read_to_string(repository(file))?;
    let component = &yaml::read(file, &text).documents;
    let patches = component.first().and_then(|one| one.value["patches"].as_array()).context("no patches")?;
    let deployment = patches.iter().find(|patch| patch["target"]["kind"] == "Deployment").context("no Deployment")?;
    let patch = yaml::read(file, deployment["patch"].as_str().context("no patch")?);
    let operations = patch.documents.first().and_then(|one| one.value.as_array()).context("no operations")?;
    let added = operations.iter().filter(|one| one["path"] == "/spec/template/spec/containers/0/args/-");
    let args: Vec<_> = added.filter_map(|one| one["value"].as_str()).collect();
    ensure!(args == ["--when-unable", "refuse"], "{args:?}");
    Ok(())
}

/// An admission enforcer that finds nothing to add causes no conflict.
#[test]
fn the_admissions_enforcer_finds_nothing_to_change() -> Result<()> {
    let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
    let mut hooks = 0;
    for document in &yaml::read("hooks.yaml", &text).documents {
        for hook in document.value["webhooks"].as_array().context("a configuration has hooks")? {
            hooks += 1;
            let expressions = hook["namespaceSelector"]["matchExpressions"].as_array().context("a selector")?;
            for (key, value) in ENFORCED {
                let wanted = json!({ "key": key, "operator": "NotIn", "values": [value] });
                ensure!(expressions.contains(&wanted), "{} lacks {wanted}", hook["name"]);
                let others = expressions.iter().filter(|e| e["key"] == key).count();
                ensure!(others == 1, "{} has another selector of {key}", hook["name"]);
            }
            let policy = (&hook["failurePolicy"], &hook["timeoutSeconds"]);
            ensure!(policy == (&json!("Ignore"), &json!(2)), "{} may hold a cluster up: {policy:?}", hook["name"]);
        }
    }
    ensure!(hooks == 2, "{hooks} hooks");
    Ok(())
}
