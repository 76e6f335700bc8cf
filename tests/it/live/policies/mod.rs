//! Policies and their results agree between a real API server and `validate`.

mod filled;
mod odd;
mod rights;

use crate::manifests::policies::cases;
use anyhow::{Context, Result, bail, ensure};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use napkeeper_api::manifests::{Source, load_text};
use napkeeper_tests::control_plane::{ControlPlane, Mode, kustomize, napkeeper_binary};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use napkeeper_verdict::Validator;
use napkeeper_verdict::policy::{Inputs, Policies};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// New policies are in force after some seconds, on a busy machine after some more.
const IN_FORCE: Duration = Duration::from_secs(90);

/// What `napkeeper policies export` prints of these policies; without names, of those that it prints by default.
pub(crate) fn exported(names: &[&str]) -> Result<String> {
    let output = Command::new(napkeeper_binary()?).args(["policies", "export"]).args(names).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// A denial: the name of the policy and its message.
type Denial = (String, String);

/// All policies that we ship, with bindings that deny, as kustomize builds them.
async fn denying(plane: &ControlPlane) -> Result<String> {
    let overlay = plane.folder().join("deny-all");
    fs::create_dir_all(&overlay)?;
    let policies = from_folder(&fs::canonicalize(&overlay)?, &fs::canonicalize(repository("policies"))?);
    let policies = policies.display();
    let kustomization = format!("resources: [{policies}]\ncomponents: [{policies}/deny]\n");
    fs::write(overlay.join("kustomization.yaml"), kustomization)?;
    kustomize(&overlay).await
}

/// A path as seen from a folder: kustomize takes no absolute ones.
fn from_folder(folder: &Path, path: &Path) -> PathBuf {
    let up = folder.components().filter(|c| matches!(c, Component::Normal(_))).map(|_| "..");
    up.collect::<PathBuf>().join(path.strip_prefix("/").unwrap_or(path))
}

/// The results of the policies for a manifest without a server; undecided ones are an error.
fn offline(validator: &Validator, source: &Source) -> Result<BTreeSet<Denial>> {
    let mut reported = BTreeSet::new();
    for finding in validator.validate_files(std::slice::from_ref(source)).into_iter().flat_map(|report| report.findings)
    {
        match finding.rule {
            "NK7001" => {
                let (policy, message) = finding.message.split_once(": ").context("a message without a policy")?;
                let policy = policy.strip_prefix("policy ").context("a message without a policy")?;
                reported.insert((policy.to_owned(), comparable(message)));
            }
            rule if rule.starts_with("NK7") || rule.starts_with("NK1") => bail!("{}: {finding:?}", source.file),
            _ => {}
        }
    }
    Ok(reported)
}

/// The text of a run-time error is not the same in both.
fn comparable(message: &str) -> String {
    match message.split_once("resulted in error") {
        Some((expression, _)) if expression.starts_with("expression '") => format!("{expression}resulted in error"),
        _ => message.to_owned(),
    }
}

/// The API of an object's kind, in its namespace.
fn api(client: &kube::Client, object: &Value) -> Result<Api<DynamicObject>> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    ensure!(!kind.is_empty(), "no kind: {object}");
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// The result of the API server for a new object, by dry-run.
async fn online(client: &kube::Client, object: &Value) -> Result<Option<Denial>> {
    let params = PostParams { dry_run: true, field_manager: None };
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    refusal(api(client, object)?.create(&params, &typed).await.map(drop))
}

/// The policy that denied a request, and its message.
fn refusal(answer: kube::Result<()>) -> Result<Option<Denial>> {
    let status = match answer {
        Ok(()) => return Ok(None),
        Err(kube::Error::Api(status)) => status,
        Err(other) => return Err(other.into()),
    };
    let message = &status.message;
    let parts = message.split_once("ValidatingAdmissionPolicy '").and_then(|(_, rest)| {
        let (policy, rest) = rest.split_once('\'')?;
        Some((policy.to_owned(), rest.split_once(" denied request: ")?.1))
    });
    let (policy, text) = parts.with_context(|| format!("refused by something else than a policy: {message}"))?;
    Ok(Some((policy, comparable(text.trim()))))
}

#[tokio::test]
async fn every_case_of_every_policy_agrees_with_the_api_server() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let client = plane.client().await?;
    plane.install_definitions().await?;
    let old = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "old" },
        "spec": { "template": { "spec": { "requirements": [],
            "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" } } } },
    });
    let pools = api(&client, &old)?;
    pools.create(&PostParams::default(), &serde_json::from_value(old)?).await?;

    let built = denying(&plane).await?;
    plane.apply(&built).await?;
    let policies = Policies::read(&[load_text("policies.yaml", built)]);
    ensure!(policies.problems().is_empty(), "{:#?}", policies.problems());
    let validator = Validator::embedded()?.with_policies(Arc::new(policies), Inputs::default());

    let mut cases = cases()?;
    ensure!(cases.len() > 50, "only {} cases", cases.len());
    // Denied cases come first: they show when the policies are in force.
    cases.sort_by_key(|(_, name, _)| !name.starts_with("deny-"));
    for (policy, name, file) in &cases {
        let source = load_text(&file.display().to_string(), fs::read_to_string(file)?);
        let object = &source.parsed().documents[0].value;
        let offline_results = offline(&validator, &source)?;
        let named: BTreeSet<_> = offline_results.iter().map(|(policy, _)| policy.as_str()).collect();
        if name.starts_with("deny-") {
            assert_eq!(named, BTreeSet::from([policy.as_str()]), "{policy}/{name} without a server");
            let condition = format!("refusal of {policy}/{name}");
            let online_result = eventually(&condition, IN_FORCE, async || online(&client, object).await).await?;
            assert!(
                offline_results.contains(&online_result),
                "{policy}/{name}: {offline_results:?} here, {online_result:?} there"
            );
        } else {
            assert!(name.starts_with("allow-"), "{policy}/{name} says neither allow nor deny");
            assert_eq!(named, BTreeSet::new(), "{policy}/{name} without a server");
            assert_eq!(online(&client, object).await?, None, "{policy}/{name} on the server");
        }
    }

    // Existing objects are not denied until they are changed.
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": "x" } } }));
    assert_eq!(refusal(pools.patch("old", &params, &note).await.map(drop))?, None);
    let change = Patch::Merge(json!({ "spec": { "weight": 5 } }));
    assert!(refusal(pools.patch("old", &params, &change).await.map(drop))?.is_some());
    Ok(())
}
