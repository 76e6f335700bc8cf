//! The companion leaves managed NAP's objects alone.

use crate::manifests::argocd::health_of;
use anyhow::{Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::azure_roles::Granted;
use napkeeper_tests::control_plane::upstream_crds;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{objects, sweep_status};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::manifests::repository;
use serde_json::json;
use std::time::Duration;

/// Kinds of managed NAP.
const KINDS: [(&str, &str, &str); 3] = [
    ("karpenter.sh", "v1", "NodePool"),
    ("karpenter.sh", "v1", "NodeClaim"),
    ("karpenter.azure.com", "v1beta1", "AKSNodeClass"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_hour_beside_nap_no_field_of_its_objects_is_owned() -> Result<()> {
    let mut env = Environment::start_with_definitions("companion", &definitions().await?).await?;
    env.plane.apply(&quickstart()?).await?;
    env.plane.apply(NODE_CLAIM).await?;
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    env.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;
    env.tell_azure("stage", &json!({ "leakVm": { "name": "leaked-vm", "tags": tags, "size": "Standard_D2s_v5" } }))
        .await?;
    let controller = env.controller()?;
    controller.line("initial listing of the cluster complete", Duration::from_secs(60)).await?;
    // An hour and a third, and longer where a busy machine lets the controller see fewer of the minutes.
    for minute in 0..240 {
        if minute >= 80 && !env.resources().await?.iter().any(|id| id.ends_with("/leaked")) {
            break;
        }
        env.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    ensure!(controller.exit_status().is_none(), "the controller ended: {}", controller.tail(30));
    let status = sweep_status(&env).await?;
    ensure!(status["counts"].as_array().is_some_and(|c| !c.is_empty()), "nothing was reported: {status}");
    for sweep in objects(&env, "napkeeper.io", "v1alpha1", "OrphanSweep").await? {
        let health = health_of(&serde_json::to_value(sweep)?)?;
        ensure!(health.status == "Healthy" && health.message.contains("orphans"), "in Argo CD it is {health:?}");
    }
    for (group, version, kind) in KINDS {
        let found = objects(&env, group, version, kind).await?;
        ensure!(!found.is_empty(), "there is no {kind} to be left alone");
        for object in found {
            let managers = object.metadata.managed_fields.unwrap_or_default();
            let own_fields = managers
                .iter()
                .filter_map(|m| m.manager.as_deref())
                .find(|m| m.starts_with("napkeeper-") && *m != "napkeeper-tests");
            ensure!(own_fields.is_none(), "{kind} {:?} has fields of {own_fields:?}", object.metadata.name);
        }
    }
    let touched: Vec<String> = env.proxy.writes().into_iter().filter(|w| w.contains("/karpenter.")).collect();
    ensure!(touched.is_empty(), "it wrote to NAP's kinds: {touched:?}");
    let left = env.resources().await?;
    ensure!(left.iter().any(|id| id.ends_with("/leaked-vm")), "a VM was deleted beside NAP: {left:?}");
    env.ensure_permitted(Granted::Companion).await?;
    ensure!(!left.iter().any(|id| id.ends_with("/leaked")), "the leaked NIC was not swept: {status}");
    Ok(())
}

/// Karpenter's own definitions as its Go module has them, and that of its Azure provider, which cannot be had so: ours, without the
/// label by which it is.
pub(in crate::live) async fn definitions() -> Result<String> {
    let class = repository("manifests/crds/karpenter/karpenter.azure.com_aksnodeclasses.yaml");
    let ours = std::fs::read_to_string(class)?;
    let class = ours.replace("app.kubernetes.io/part-of: napkeeper", "app.kubernetes.io/part-of: aks");
    ensure!(class != ours, "the definition is not ours");
    Ok(format!("{}\n---\n{class}", upstream_crds().await?))
}

const NODE_CLAIM: &str = "\
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: general-purpose-x7k2p}
spec:
  nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
  requirements:
  - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
";
