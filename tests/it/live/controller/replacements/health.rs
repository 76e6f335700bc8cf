//! Nodes that are sick, or that Azure is about to take away.

use super::{BATCH, STEP, all_stay, claims_of, events, names_of};
use anyhow::{Context, Result, ensure};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::running;
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::time::{Duration, Instant};

/// What Azure gives a spot VM.
const NOTICE: Duration = Duration::from_secs(30);

/// Sets a condition of a Node, as an agent on it does. Its times are those of the API server, behind the controller's.
async fn set_condition(env: &Environment, node: &str, kind: &str, status: &str, message: &str) -> Result<()> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": kind, "status": status, "reason": kind, "message": message,
        "lastTransitionTime": now, "lastHeartbeatTime": now,
    });
    let patch = format!("--patch={}", json!({ "status": { "conditions": [condition] } }));
    env.plane.kubectl(&["patch", "node", node, "--subresource=status", "--type=strategic", &patch]).await.map(drop)
}

/// The Nodes of a NodePool's NodeClaims.
async fn nodes_of(env: &Environment, pool: &str) -> Result<Vec<String>> {
    let node = |claim: &DynamicObject| claim.data["status"]["nodeName"].as_str().map(ToOwned::to_owned);
    Ok(claims_of(env, pool).await?.iter().filter_map(node).collect())
}

pub(super) async fn pods_leave_before_azure_takes_the_node(env: &Environment) -> Result<()> {
    let nodes = nodes_of(env, "spot").await?;
    let [node] = &nodes[..] else { anyhow::bail!("{nodes:?}") };
    let ends = Timestamp::now() + SignedDuration::try_from(NOTICE)?;
    let at = DateTimePrinter::new().timestamp_to_rfc9110_string(&ends)?;
    let start = Instant::now();
    let message = format!("Preempt Scheduled: {at}. DurationInSeconds: -1.");
    set_condition(env, node, "PreemptionScheduled", "True", &message).await?;
    let api: Api<Pod> = Api::namespaced(env.plane.client().await?, "default");
    eventually("pods that serve on another node", NOTICE, async || {
        let pods = api.list(&ListParams::default().labels("app=spot")).await?.items;
        let is_there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node.as_str());
        let is_running = |pod: &&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        let moved = pods.iter().filter(|pod| !is_there(pod)).filter(is_running).count();
        Ok((moved == 2 && !pods.iter().any(is_there)).then_some(()))
    })
    .await?;
    eprintln!("moved {:?} after the notice", start.elapsed());
    running(env, "spot", 2).await
}

pub(super) async fn a_sick_node_is_replaced(env: &mut Environment) -> Result<()> {
    let before = names_of(env, "batch").await?;
    ensure!(before.len() == BATCH, "{before:?}");
    let node = nodes_of(env, "batch").await?.pop().context("no node")?;
    set_condition(env, &node, "kubernetes.azure.com/NodeHealthy", "False", "the disk is full").await?;
    eventually("deletion of the sick node", STEP, async || {
        let is_going = |claim: &DynamicObject| claim.metadata.deletion_timestamp.is_some();
        Ok(claims_of(env, "batch").await?.iter().any(is_going).then_some(()))
    })
    .await?;
    // Its VM is deleted a minute later.
    env.jump(SignedDuration::from_secs(61))?;
    eventually("replacement of the sick node", STEP, async || {
        let now = names_of(env, "batch").await?;
        let kept = before.intersection(&now).count();
        Ok((now.len() == BATCH && kept == BATCH - 1 && !nodes_of(env, "batch").await?.contains(&node)).then_some(()))
    })
    .await?;
    running(env, "batch", BATCH).await
}

/// AKS's remediator has ten minutes to heal a node; one that was repaired counts for half an hour.
pub(super) async fn too_many_sick_nodes_are_kept(env: &mut Environment) -> Result<()> {
    const TAINT: &str = "remediator.kubernetes.azure.com/unschedulable";
    env.jump(SignedDuration::from_mins(31))?;
    let before = names_of(env, "batch").await?;
    let sick: Vec<String> = nodes_of(env, "batch").await?.into_iter().take(BATCH / 2).collect();
    let taint = async |env: &Environment, taint: &str| {
        let nodes = sick.iter().map(String::as_str);
        let args: Vec<&str> = ["taint", "node"].into_iter().chain(nodes).chain([taint]).collect();
        env.plane.kubectl(&args).await.map(drop)
    };
    taint(env, &format!("{TAINT}=true:NoSchedule")).await?;
    env.jump(SignedDuration::from_mins(11))?;
    all_stay(env, "batch", &before).await?;
    let told = events(env, "Node", "NodeRepairBlocked").await?;
    ensure!(!told.is_empty(), "nobody is told");
    taint(env, &format!("{TAINT}-")).await?;
    all_stay(env, "batch", &before).await
}
