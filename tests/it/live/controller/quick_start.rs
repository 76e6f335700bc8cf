//! Pods get nodes on a real API server, and everything is deleted again.

use crate::webhook::alerts::{ensure_exported, queried};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use napkeeper_tests::azure_roles::Granted;
use napkeeper_tests::control_plane::{Process, word};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{
    all_deleted, claims, objects, phases, running, scale, sweep_status, vms_created,
};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest that a step of a story may take on a busy machine.
const STEP: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_get_nodes_and_nothing_of_them_is_left_behind() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let start = Instant::now();
    let controller = env.controller()?;
    controller.line("initial listing of the cluster complete", STEP).await?;
    eprintln!("controller start to first decision: {} ms", start.elapsed().as_millis());

    env.plane.apply(&quickstart()?).await?;
    running(&env, "inflate", 10).await?;
    tell_launch_time(&env).await?;
    let made = claims(&env).await?;
    ensure!(!made.is_empty(), "pods run, but without NodeClaims");
    ensure!(vms_created(&env).await? == made.len(), "not one VM for each NodeClaim: {:?}", env.azure("ledger").await?);
    all_registered(&env).await?;
    dashboards_of_karpenter_find_its_metrics(&controller, &made).await?;

    scale(&env, "inflate", 0).await?;
    all_deleted(&mut env).await?;
    ends_are_measured(&controller, made.len()).await?;
    events_have_the_reasons_of_karpenter(&env, &["Nominated", "DisruptionTerminating"]).await?;

    a_failed_launch_leaves_nothing(&mut env).await?;
    events_have_the_reasons_of_karpenter(&env, &["InsufficientCapacityError"]).await?;
    a_leaked_nic_is_swept(&mut env).await?;
    alerts_query_existing_metrics(&controller).await?;

    env.ensure_permitted(Granted::Provisioner).await?;
    controller.terminate()?;
    let status = controller.exited(Duration::from_secs(30)).await?;
    ensure!(status.success(), "the controller ended with {status}: {}", controller.tail(20));
    Ok(())
}

/// Names and labels that dashboards of Karpenter query, with what they say about the nodes that were made.
async fn dashboards_of_karpenter_find_its_metrics(controller: &Process, made: &[DynamicObject]) -> Result<()> {
    let pool = made[0].metadata.labels.as_ref().and_then(|labels| labels.get("karpenter.sh/nodepool"));
    let pool = &format!("nodepool=\"{}\"", pool.context("a NodeClaim without a NodePool")?);
    let cores = ["resource_type=\"cpu\"", "managed=\"true\"", "node_name="];
    let count = f64::from(u32::try_from(made.len())?);
    let exported = async || {
        let text = metrics_of(controller).await?;
        let created = total(&text, "karpenter_nodeclaims_created_total", &["reason=\"provisioned\"", "nodepool="]);
        ensure!(created == count, "{created} NodeClaims were created, not {count}");
        let nodes = total(&text, "karpenter_nodes_created_total", &["nodepool=", "zone=\"westeurope-"]);
        let allocatable = total(&text, "karpenter_nodes_allocatable", &cores);
        let requested = total(&text, "karpenter_nodes_total_pod_requests", &cores);
        let used = total(&text, "karpenter_nodepools_usage", &[pool, "resource_type=\"cpu\""]);
        let allowed = total(&text, "karpenter_nodepools_allowed_disruptions", &[pool, "reason=\"Drifted\""]);
        let running = total(&text, "karpenter_pods_state", &[pool, "phase=\"Running\"", "owner=\"/apis/apps/v1/"]);
        let ready = total(&text, "operator_nodeclaim_status_condition_count", &["type=\"Ready\"", "status=\"True\""]);
        let launched = total(&text, "karpenter_instance_vm_create_start_total", &[pool]);
        let is_whole = nodes == count && allocatable > 0.0 && used > 0.0 && allowed >= 1.0;
        let is_whole = is_whole && running == 10.0 && ready == count && launched == count;
        let is_right = is_whole && requested > 0.0 && requested <= allocatable;
        if !is_right {
            eprintln!(
                "nodes {nodes}, allocatable {allocatable}, requested {requested}, used {used}, allowed {allowed}, pods \
                 {running}, ready {ready}, VMs {launched}"
            );
        }
        Ok(is_right.then_some(()))
    };
    eventually("Karpenter's metrics of these nodes", STEP, exported).await
}

/// So many nodes have gone, with how long that took.
async fn ends_are_measured(controller: &Process, nodes: usize) -> Result<()> {
    let nodes = f64::from(u32::try_from(nodes)?);
    let names = [
        "karpenter_nodeclaims_termination_duration_seconds_count",
        "karpenter_nodes_termination_duration_seconds_count",
        "karpenter_nodes_lifetime_duration_seconds_count",
        "karpenter_nodes_drained_total",
        "karpenter_voluntary_disruption_decisions_total",
    ];
    let ended = async || {
        let text = metrics_of(controller).await?;
        let found = names.map(|name| total(&text, name, &[]));
        eprintln!("of {nodes} nodes: {found:?}");
        Ok(found.iter().all(|count| *count == nodes).then_some(()))
    };
    eventually("Karpenter's metrics of the ends of these nodes", STEP, ended).await
}

/// What the controller exports.
async fn metrics_of(controller: &Process) -> Result<String> {
    let address = word(&controller.line("metrics=", STEP).await?, "metrics=")?;
    Ok(reqwest::get(format!("http://{address}/metrics")).await?.text().await?)
}

/// The sum of the samples of a metric with these labels.
fn total(text: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    let samples = samples.filter(|line| labels.iter().all(|label| line.contains(label)));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// There are events of these reasons.
async fn events_have_the_reasons_of_karpenter(env: &Environment, reasons: &[&str]) -> Result<()> {
    for reason in reasons {
        let selector = format!("--field-selector=reason={reason}");
        let found = env.plane.kubectl(&["get", "events", "--all-namespaces", "--no-headers", &selector]).await?;
        ensure!(found.contains(reason), "no event has the reason {reason}");
    }
    Ok(())
}

/// What the alerts of the controller query is exported after a sweep and a launch.
async fn alerts_query_existing_metrics(controller: &Process) -> Result<()> {
    let text = metrics_of(controller).await?;
    ensure_exported(&queried("controller")?, &text)
}

/// Waits until every NodeClaim is Registered: this is written after the taint is removed from the Node, so pods may run
/// a little before.
async fn all_registered(env: &Environment) -> Result<()> {
    let is = |claim: &DynamicObject, kind: &str| {
        let conditions = claim.data["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
    };
    let registered = |claim: &DynamicObject| is(claim, "Launched") && is(claim, "Registered");
    let all = async || Ok(claims(env).await?.iter().all(registered).then_some(()));
    eventually("registration of all NodeClaims", STEP, all).await
}

/// From a pod's creation to the request that creates its VM.
async fn tell_launch_time(env: &Environment) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(env.plane.client().await?, "default");
    let pods = api.list(&ListParams::default().labels("app=inflate")).await?.items;
    let created = pods.iter().filter_map(|p| p.metadata.creation_timestamp.as_ref()).map(|t| t.0).min();
    let log = env.azure("requests").await?;
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

/// Azure has no capacity for a while: failed launches are cleaned up.
async fn a_failed_launch_leaves_nothing(env: &mut Environment) -> Result<()> {
    env.fault_inside(&json!({ "shortage": { "how": "noHardware", "for": "1h" } })).await?;
    scale(env, "inflate", 1).await?;
    let end = Instant::now() + STEP;
    while env.resources().await?.is_empty() {
        ensure!(Instant::now() < end, "nothing is launched");
        env.jump(SignedDuration::from_secs(2))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for _ in 0..20 {
        env.jump(SignedDuration::from_secs(5))?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    ensure!(!phases(env, "inflate").await?.contains_key("Running"), "a pod runs although Azure has no hardware");
    scale(env, "inflate", 0).await?;
    all_deleted(env).await?;
    env.cure_azure().await
}

/// A leaked NIC with our cluster's tag is deleted, with its evidence.
async fn a_leaked_nic_is_swept(env: &mut Environment) -> Result<()> {
    // Something alive must be in the group, else it might be another cluster's.
    scale(env, "inflate", 1).await?;
    running(env, "inflate", 1).await?;
    let tags = json!({ "napkeeper.io_cluster": env.cluster() });
    env.tell_azure("stage", &json!({ "leakNic": { "name": "leaked", "tags": tags } })).await?;
    let end = Instant::now() + STEP;
    while env.resources().await?.iter().any(|id| id.ends_with("/leaked")) {
        ensure!(Instant::now() < end, "the leaked NIC stays: {:?}", sweep_status(env).await?);
        env.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let records = objects(env, "napkeeper.io", "v1alpha1", "OrphanRecord").await?;
    let deletion = records
        .iter()
        .filter_map(|r| r.data["spec"]["deletions"].as_array())
        .flatten()
        .find(|d| d["id"].as_str().is_some_and(|id| id.ends_with("/leaked")))
        .context("no record of the deletion")?;
    ensure!(deletion["evidence"].as_array().is_some_and(|e| !e.is_empty()), "no evidence: {deletion}");
    let status = sweep_status(env).await?;
    ensure!(status["counts"].as_array().is_some_and(|c| !c.is_empty()), "no counts: {status}");
    scale(env, "inflate", 0).await?;
    all_deleted(env).await
}
