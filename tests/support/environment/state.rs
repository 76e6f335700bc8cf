//! Reads the cluster and the simulated Azure of an environment.

use super::Environment;
use crate::wait::eventually;
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use napkeeper_core::model::labels::MODE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest that a step may take on a busy machine.
const STEP: Duration = Duration::from_secs(120);

/// All objects of a kind.
///
/// # Errors
/// When the API server does not list them.
pub async fn objects(env: &Environment, group: &str, version: &str, kind: &str) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(env.plane.client().await?, &resource);
    Ok(api.list(&ListParams::default()).await?.items)
}

/// All NodeClaims.
///
/// # Errors
/// When the API server does not answer.
pub async fn claims(env: &Environment) -> Result<Vec<DynamicObject>> {
    objects(env, "karpenter.sh", "v1", "NodeClaim").await
}

/// All Nodes but that of the system pool.
///
/// # Errors
/// When the API server does not answer.
pub async fn nodes(env: &Environment) -> Result<Vec<Node>> {
    let others = ListParams::default().labels(&format!("{MODE}!=system"));
    Ok(Api::<Node>::all(env.plane.client().await?).list(&others).await?.items)
}

/// Pods of an app by phase.
///
/// # Errors
/// When the API server does not answer.
pub async fn phases(env: &Environment, app: &str) -> Result<BTreeMap<String, usize>> {
    let api: Api<Pod> = Api::namespaced(env.plane.client().await?, "default");
    let pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    let mut phases = BTreeMap::new();
    for pod in pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let phase = pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
        *phases.entry(phase).or_insert(0) += 1;
    }
    Ok(phases)
}

/// Waits until so many pods of an app run, and none is in another phase.
///
/// # Errors
/// When they do not in time.
pub async fn running(env: &Environment, app: &str, wanted: usize) -> Result<()> {
    eventually(&format!("{wanted} running pods of {app}"), STEP, async || {
        let all = phases(env, app).await?;
        Ok((all.get("Running") == Some(&wanted) && all.len() == 1).then_some(()))
    })
    .await
}

/// Scales a Deployment of the namespace `default`.
///
/// # Errors
/// When the API server does not answer.
pub async fn scale(env: &Environment, app: &str, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    env.plane.kubectl(&["scale", "deployment", app, &replicas]).await?;
    Ok(())
}

/// Waits, in fast time, until nothing of any node is left: no NodeClaim, no Node, and nothing in Azure.
///
/// # Errors
/// When something is left after two minutes.
pub async fn all_deleted(env: &mut Environment) -> Result<()> {
    let end = Instant::now() + STEP;
    loop {
        let (claims, nodes, resources) = (claims(env).await?, nodes(env).await?, env.resources().await?);
        if claims.is_empty() && nodes.is_empty() && resources.is_empty() {
            return Ok(());
        }
        let names = |all: &[DynamicObject]| all.iter().filter_map(|o| o.metadata.name.clone()).collect::<Vec<_>>();
        ensure!(
            Instant::now() < end,
            "still there: NodeClaims {:?}, {} Nodes, in Azure {resources:?}",
            names(&claims),
            nodes.len()
        );
        env.jump(SignedDuration::from_secs(5))?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The number of VMs ever created, by the ledger of the simulated Azure.
///
/// # Errors
/// When it does not answer.
pub async fn vms_created(env: &Environment) -> Result<usize> {
    let ledger = env.azure("ledger").await?;
    let entries = ledger["entries"].as_array().context("the ledger is no list")?;
    let created = |e: &&Value| e["kind"] == "Vm" && e["act"] == "created";
    Ok(entries.iter().filter(created).count())
}

/// The status of the first OrphanSweep.
///
/// # Errors
/// When the API server does not answer.
pub async fn sweep_status(env: &Environment) -> Result<Value> {
    let sweeps = objects(env, "napkeeper.io", "v1alpha1", "OrphanSweep").await?;
    Ok(sweeps.first().map(|s| s.data["status"].clone()).unwrap_or_default())
}
