//! The Applications and the health checks for Argo CD.

mod karpenter;
mod lua;
mod node_claims;
mod node_pools;
mod orphan_sweeps;

use anyhow::{Context, Result, ensure};
pub(crate) use lua::{Health, health_of};
use napkeeper_api::yaml;
use napkeeper_tests::manifests::repository;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

const FOLDER: &str = "manifests/gitops/argocd";

/// The object in a file of the folder.
pub(crate) fn shipped(file: &str) -> Result<Value> {
    let text = fs::read_to_string(repository(FOLDER).join(file)).with_context(|| format!("reading {file}"))?;
    let read = yaml::read(file, &text);
    ensure!(read.problems.is_empty() && read.documents.len() == 1, "{file}: {:?}", read.problems);
    Ok(serde_json::to_value(&read.documents.first().context("no object")?.value)?)
}

/// Checks the health of an object, and that its message has these words.
fn expect(object: &Value, status: &str, words: &str) -> Result<()> {
    let health = health_of(object)?;
    let state = &object["status"];
    ensure!(health.status == status && health.message.contains(words), "not {status} ({words}): {health:?} of {state}");
    Ok(())
}

#[test]
fn the_config_map_has_the_checks_of_the_files() -> Result<()> {
    let map = shipped("argocd-cm.yaml")?;
    ensure!(
        map["kind"] == "ConfigMap"
            && map["metadata"]["name"] == "argocd-cm"
            && map["metadata"]["namespace"] == "argocd"
    );
    let mut checks = BTreeMap::new();
    for entry in fs::read_dir(repository(FOLDER).join("health"))? {
        let path = entry?.path();
        let kind = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        ensure!(path.extension().is_some_and(|extension| extension == "lua"), "{}", path.display());
        checks.insert(format!("resource.customizations.health.{kind}"), lua::script(&kind)?);
    }
    ensure!(checks.len() == 5, "{:?}", checks.keys());
    ensure!(map["data"] == json!(checks), "argocd-cm.yaml differs from health/: copy the files into it");
    Ok(())
}

/// Without a status, which a controller may never write, nothing is well.
#[test]
fn an_object_without_a_status_is_in_progress_and_so_is_one_that_is_deleted() -> Result<()> {
    for (version, kind) in [
        ("argoproj.io/v1alpha1", "Application"),
        ("karpenter.azure.com/v1beta1", "AKSNodeClass"),
        ("karpenter.sh/v1", "NodeClaim"),
        ("karpenter.sh/v1", "NodePool"),
        ("napkeeper.io/v1alpha1", "OrphanSweep"),
    ] {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "generation": 1 }, "spec": {} });
        expect(&object, "Progressing", "Waiting")?;
        for status in [json!({}), json!({ "conditions": [] })] {
            object["status"] = status;
            expect(&object, "Progressing", "Waiting")?;
        }
        if kind != "Application" {
            object["metadata"]["deletionTimestamp"] = json!("2026-08-03T08:00:00Z");
            expect(&object, "Progressing", "Pending deletion")?;
        }
    }
    Ok(())
}

#[test]
fn an_application_has_the_health_that_argo_cd_has_found() -> Result<()> {
    let application = |health: Value| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {}, "status": { "health": health },
        })
    };
    for status in ["Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"] {
        expect(&application(json!({ "status": status })), status, "")?;
    }
    expect(&application(json!({ "status": "Degraded", "message": "why" })), "Degraded", "why")
}

/// One Application waits for the other, each is compared by a dry run, and none deletes with itself what it has installed.
#[test]
fn applications_have_the_options_that_their_objects_need() -> Result<()> {
    let wave = |application: &Value| -> Result<i64> {
        let wave = &application["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"];
        Ok(wave.as_str().context("no wave")?.parse()?)
    };
    let strings = |list: &Value| serde_json::from_value::<Vec<String>>(list.clone()).context("no list");
    let (napkeeper, pools) = (shipped("applications/napkeeper-system.yaml")?, shipped("applications/nodepools.yaml")?);
    ensure!(wave(&napkeeper)? < wave(&pools)?, "NodePools come before definitions");
    for application in [&napkeeper, &pools, &shipped("root.yaml")?] {
        ensure!(application["apiVersion"] == "argoproj.io/v1alpha1" && application["kind"] == "Application");
        ensure!(application["metadata"]["namespace"] == "argocd" && application["metadata"]["finalizers"].is_null());
    }
    for application in [&napkeeper, &pools] {
        let compared = &application["metadata"]["annotations"]["argocd.argoproj.io/compare-options"];
        ensure!(compared == "ServerSideDiff=true", "{compared}");
        let options = strings(&application["spec"]["syncPolicy"]["syncOptions"])?;
        ensure!(options.contains(&"ServerSideApply=true".to_owned()), "{options:?}");
    }
    // What differs for good is no difference, and a sync does not reset it either.
    let ignored = pools["spec"]["ignoreDifferences"].as_array().context("nothing is ignored")?;
    ensure!(ignored.iter().all(|entry| entry["name"].is_string()), "of every NodePool: {ignored:?}");
    let options = strings(&pools["spec"]["syncPolicy"]["syncOptions"])?;
    ensure!(options.contains(&"RespectIgnoreDifferences=true".to_owned()), "{options:?}");
    ensure!(
        !options.iter().any(|option| option.starts_with("PruneLast")),
        "health would hold up deletions: {options:?}"
    );
    Ok(())
}
