//! Tests of the manifests that ship, without a cluster.

use anyhow::{Context, Result, ensure};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use serde_json::Value;

pub(crate) mod argocd;
mod hooks;
mod network;
pub(crate) mod policies;
mod probes;
mod pruning;

/// The objects of a file below `kustomize/`.
fn objects(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(repository("kustomize").join(file))?;
    yaml::read(file, &text).documents.iter().map(|one| Ok(serde_json::to_value(&one.value)?)).collect()
}

/// The NetworkPolicy of pods with these labels.
fn policy_of<'o>(policies: &'o [Value], labels: &Value) -> Result<&'o Value> {
    let selects = |policy: &&Value| {
        let wanted = policy["spec"]["podSelector"]["matchLabels"].as_object();
        wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
    };
    let mut selecting = policies.iter().filter(selects);
    let policy = selecting.next().with_context(|| format!("no NetworkPolicy of {labels}"))?;
    // What one of them allows is allowed.
    ensure!(selecting.next().is_none(), "several NetworkPolicies of {labels}");
    Ok(policy)
}
