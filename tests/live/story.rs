//! The story: do pods get nodes, and does all of it go again, on a real API server?

use super::{a_lab, eventually};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use napkeeper_tests::lab::{Lab, repository};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest that a step of a story may take on a busy machine.
const STEP: Duration = Duration::from_secs(120);

/// Manifests of the quickstart, joined, but the scenario, which is for the embedded world.
pub(super) fn quickstart() -> Result<String> {
    let folder = repository("manifests/quickstart");
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let manifests = files.iter().filter(|file| file.file_name() != "scenario.yaml");
    let texts: Vec<String> = manifests.map(|f| std::fs::read_to_string(f.path())).collect::<std::io::Result<_>>()?;
    Ok(texts.join("\n---\n"))
}

/// An object of any kind.
pub(super) async fn objects(lab: &Lab, group: &str, version: &str, kind: &str) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(lab.plane.client().await?, &resource);
    Ok(api.list(&ListParams::default()).await?.items)
}

pub(super) async fn claims(lab: &Lab) -> Result<Vec<DynamicObject>> {
    objects(lab, "karpenter.sh", "v1", "NodeClaim").await
}

pub(super) async fn nodes(lab: &Lab) -> Result<Vec<Node>> {
    Ok(Api::<Node>::all(lab.plane.client().await?).list(&ListParams::default()).await?.items)
}

/// Pods of an app by phase.
pub(super) async fn phases(lab: &Lab, app: &str) -> Result<BTreeMap<String, usize>> {
    let api: Api<Pod> = Api::namespaced(lab.plane.client().await?, "default");
    let pods = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    let mut phases = BTreeMap::new();
    for pod in pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let phase = pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
        *phases.entry(phase).or_insert(0) += 1;
    }
    Ok(phases)
}

pub(super) async fn running(lab: &Lab, app: &str, wanted: usize) -> Result<()> {
    eventually(&format!("{wanted} running pods of {app}"), STEP, async || {
        let all = phases(lab, app).await?;
        Ok((all.get("Running") == Some(&wanted) && all.len() == 1).then_some(()))
    })
    .await
}

pub(super) async fn scale(lab: &Lab, app: &str, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    lab.plane.kubectl(&["scale", "deployment", app, &replicas]).await?;
    Ok(())
}

/// Waits, in fast time, until nothing of any node is left: no NodeClaim, no Node, and nothing in Azure.
pub(super) async fn all_gone(lab: &mut Lab) -> Result<()> {
    let end = Instant::now() + STEP;
    loop {
        let (claims, nodes, resources) = (claims(lab).await?, nodes(lab).await?, lab.resources().await?);
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
        lab.jump(SignedDuration::from_secs(5))?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What was launched, as the records of the simulated Azure tell: every VM that was ever created.
pub(super) async fn vms_created(lab: &Lab) -> Result<usize> {
    let ledger = lab.azure("ledger").await?;
    let entries = ledger["entries"].as_array().context("the ledger is no list")?;
    let created = |e: &&Value| e["kind"] == "Vm" && e["act"] == "created";
    Ok(entries.iter().filter(created).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_get_nodes_and_nothing_of_them_is_left_behind() -> Result<()> {
    let _turn = a_lab().await?;
    let mut lab = Lab::start("provisioner").await?;
    let start = Instant::now();
    let controller = lab.controller()?;
    controller.line("initial listing of the cluster complete", STEP).await?;
    eprintln!("controller start to first decision: {} ms", start.elapsed().as_millis());

    lab.plane.apply(&quickstart()?).await?;
    running(&lab, "inflate", 10).await?;
    tell_launch_time(&lab).await?;
    let made = claims(&lab).await?;
    ensure!(!made.is_empty(), "pods run, but without NodeClaims");
    ensure!(vms_created(&lab).await? == made.len(), "not one VM for each NodeClaim: {:?}", lab.azure("ledger").await?);
    all_registered(&lab).await?;

    scale(&lab, "inflate", 0).await?;
    all_gone(&mut lab).await?;

    a_failed_launch_leaves_nothing(&mut lab).await?;
    a_leaked_nic_is_swept(&mut lab).await?;

    controller.terminate()?;
    let status = controller.exited(Duration::from_secs(30)).await?;
    ensure!(status.success(), "the controller ended with {status}: {}", controller.tail(20));
    Ok(())
}

/// Waits until every NodeClaim says that its Node is there: that is written after the taint is taken off the Node, so that
/// pods may run there a little before.
async fn all_registered(lab: &Lab) -> Result<()> {
    let is = |claim: &DynamicObject, kind: &str| {
        let conditions = claim.data["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
    };
    let registered = |claim: &DynamicObject| is(claim, "Launched") && is(claim, "Registered");
    let all = async || Ok(claims(lab).await?.iter().all(registered).then_some(()));
    eventually("registration of all NodeClaims", STEP, all).await
}

/// From a pod's creation to the request that creates its VM.
async fn tell_launch_time(lab: &Lab) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(lab.plane.client().await?, "default");
    let pods = api.list(&ListParams::default().labels("app=inflate")).await?.items;
    let created = pods.iter().filter_map(|p| p.metadata.creation_timestamp.as_ref()).map(|t| t.0).min();
    let log = lab.azure("requests").await?;
    let requests = log["requests"].as_array().context("no requests")?;
    let put = |r: &&Value| {
        r["method"] == "PUT" && r["path"].as_str().is_some_and(|p| p.to_lowercase().contains("virtualmachines"))
    };
    let mut waits: Vec<i64> = requests
        .iter()
        .filter(put)
        .filter_map(|r| r["at"].as_str()?.parse::<jiff::Timestamp>().ok())
        .filter_map(|at| Some(at.duration_since(created?).as_millis() as i64))
        .collect();
    waits.sort_unstable();
    let middle = waits.get(waits.len() / 2).context("no VM was asked for")?;
    eprintln!("pending pod to VM PUT (p50 of {}, creation times are whole seconds): {middle} ms", waits.len());
    Ok(())
}

/// Azure has no capacity at all for a while: what was begun is taken back.
async fn a_failed_launch_leaves_nothing(lab: &mut Lab) -> Result<()> {
    lab.fault_inside(&json!({ "shortage": { "how": "noHardware", "for": "1h" } })).await?;
    scale(lab, "inflate", 1).await?;
    let end = Instant::now() + STEP;
    while lab.resources().await?.is_empty() {
        ensure!(Instant::now() < end, "nothing is launched");
        lab.jump(SignedDuration::from_secs(2))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for _ in 0..20 {
        lab.jump(SignedDuration::from_secs(5))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    ensure!(!phases(lab, "inflate").await?.contains_key("Running"), "a pod runs although Azure has no hardware");
    scale(lab, "inflate", 0).await?;
    all_gone(lab).await?;
    lab.cure_azure().await
}

/// Somebody else leaks a NIC with our cluster's tag: it goes, with its evidence.
async fn a_leaked_nic_is_swept(lab: &mut Lab) -> Result<()> {
    // Something alive must be in the group, else it might be another cluster's.
    scale(lab, "inflate", 1).await?;
    running(lab, "inflate", 1).await?;
    let tags = json!({ "napkeeper.io_cluster": lab.cluster() });
    lab.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;
    let end = Instant::now() + STEP;
    while lab.resources().await?.iter().any(|id| id.ends_with("/leaked")) {
        ensure!(Instant::now() < end, "the leaked NIC stays: {:?}", sweep_status(lab).await?);
        lab.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let records = objects(lab, "napkeeper.io", "v1alpha1", "OrphanRecord").await?;
    let deletion = records
        .iter()
        .filter_map(|r| r.data["spec"]["deletions"].as_array())
        .flatten()
        .find(|d| d["id"].as_str().is_some_and(|id| id.ends_with("/leaked")))
        .context("no record of the deletion")?;
    ensure!(deletion["evidence"].as_array().is_some_and(|e| !e.is_empty()), "no evidence: {deletion}");
    let status = sweep_status(lab).await?;
    ensure!(status["counts"].as_array().is_some_and(|c| !c.is_empty()), "no counts: {status}");
    scale(lab, "inflate", 0).await?;
    all_gone(lab).await
}

pub(super) async fn sweep_status(lab: &Lab) -> Result<Value> {
    let sweeps = objects(lab, "napkeeper.io", "v1alpha1", "OrphanSweep").await?;
    Ok(sweeps.first().map(|s| s.data["status"].clone()).unwrap_or_default())
}
