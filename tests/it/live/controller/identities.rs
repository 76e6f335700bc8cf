//! A second cluster with the configuration of the first, and another Karpenter in the cluster: nothing is launched.

use anyhow::{Result, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DynamicObject, ListParams};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, objects, phases, running, scale, sweep_status, vms_created};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(120);
/// A pending pod gets a NodeClaim within a second or two: after this time launches are held.
const HELD: Duration = Duration::from_secs(8);
/// The Node of the system pool that every environment has.
const SYSTEM_NODE: &str = "aks-system-00000000-vmss000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_cluster_with_the_first_ones_configuration_launches_and_deletes_nothing() -> Result<()> {
    let (mut first, second) = tokio::try_join!(Environment::start("provisioner"), Environment::start("provisioner"))?;
    first.plane.apply(&quickstart()?).await?;
    second.plane.apply(&quickstart()?).await?;
    let own = first.controller()?;
    running(&first, "inflate", 10).await?;
    own.terminate()?;
    ensure!(own.exited(STEP).await?.success(), "{}", own.tail(20));
    let (vms, resources) = (vms_created(&first).await?, first.resources().await?);

    let node = system_node(&second).await?;
    replace_system_node(&second, &node.replace(&first.group, &format!("{}_second", first.group))).await?;
    let stranger = second.replica_configured_as(&first, "stranger")?;
    stranger.line("nothing is launched", STEP).await?;
    ensure!(stranger.tail(200).contains("no ready Node of an agent pool is in"), "{}", stranger.tail(50));
    let seen = async || Ok(has_event(&second, "LaunchesHeld").await?.then_some(()));
    eventually("event on the NodePool", STEP, seen).await?;
    // For the second cluster all VMs of the first are orphans, by everything but the Node.
    for _ in 0..60 {
        first.jump(SignedDuration::from_secs(60))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let status = sweep_status(&second).await?;
    let vms_refused = status["findings"].as_array().into_iter().flatten().filter(|finding| {
        let refusals = finding["refusals"].as_array();
        finding["kind"] == "Vm" && refusals.is_some_and(|all| all.iter().any(|refusal| refusal == "other_cluster"))
    });
    ensure!(vms_refused.count() == vms, "not every VM is kept for the first cluster: {status}");
    ensure!(claims(&second).await?.is_empty(), "the second cluster has NodeClaims");
    ensure!(vms_created(&first).await? == vms, "VMs of the second cluster are in the group of the first");
    ensure!(first.resources().await? == resources, "the second cluster deleted resources of the first");

    // With a Node of its own in the group it is the cluster of the group. Its VMs join the first one, as the simulated
    // Azure was told.
    replace_system_node(&second, &node).await?;
    eventually("VM", STEP, async || Ok((vms_created(&first).await? > vms).then_some(()))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_another_karpenter_nothing_is_launched() -> Result<()> {
    let env = Environment::start("provisioner").await?;
    env.plane.apply(&quickstart()?).await?;
    env.plane.apply(FOREIGN_CLAIM).await?;
    let controller = env.controller()?;
    controller.line("nothing is launched", STEP).await?;
    ensure!(controller.tail(200).contains("NodeClaim theirs-x7k2p was created by another Karpenter"));
    has_condition(&env, "False").await?;
    tokio::time::sleep(HELD).await;
    ensure!(vms_created(&env).await? == 0, "launched beside a NodeClaim of another Karpenter");
    let release = ["patch", "nodeclaim", "theirs-x7k2p", "--type=merge", "--patch={\"metadata\":{\"finalizers\":[]}}"];
    env.plane.kubectl(&release).await?;
    env.plane.kubectl(&["delete", "nodeclaim", "theirs-x7k2p"]).await?;
    running(&env, "inflate", 10).await?;
    has_condition(&env, "True").await?;

    // Another Karpenter installs its CRDs: what is launched from then on is held, at once.
    let before = claims(&env).await?.len();
    label_definition(&env, "karpenter").await?;
    // An answer of the API server holds for five seconds.
    tokio::time::sleep(Duration::from_secs(6)).await;
    scale(&env, "inflate", 40).await?;
    tokio::time::sleep(HELD).await;
    ensure!(claims(&env).await?.len() == before, "NodeClaims were created under CRDs of another Karpenter");
    controller.line("no decisions are made", STEP).await?;
    ensure!(phases(&env, "inflate").await?.contains_key("Pending"), "all pods run without new nodes");
    label_definition(&env, "napkeeper").await?;
    running(&env, "inflate", 40).await
}

async fn system_node(env: &Environment) -> Result<String> {
    env.plane.kubectl(&["get", "node", SYSTEM_NODE, "--output=json"]).await
}

/// Replaces the Node of the system pool by this object, under a new UID.
async fn replace_system_node(env: &Environment, node: &str) -> Result<()> {
    let mut object: serde_json::Value = serde_json::from_str(node)?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        object["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    env.plane.kubectl(&["delete", "node", SYSTEM_NODE]).await?;
    env.plane.apply(&object.to_string()).await?;
    let ready = format!("node/{SYSTEM_NODE}");
    env.plane.kubectl(&["wait", "--for=condition=Ready", &ready, "--timeout=60s"]).await.map(drop)
}

async fn has_event(env: &Environment, reason: &str) -> Result<bool> {
    let events: Api<Event> = Api::all(env.plane.client().await?);
    let all = events.list(&ListParams::default()).await?;
    Ok(all.items.iter().any(|event| event.reason.as_deref() == Some(reason)))
}

/// Waits until the condition LaunchesAllowed of every NodePool has this status.
async fn has_condition(env: &Environment, status: &str) -> Result<()> {
    eventually("condition LaunchesAllowed", STEP, async || {
        let pools = objects(env, "karpenter.sh", "v1", "NodePool").await?;
        let has = |pool: &DynamicObject| {
            let conditions = pool.data["status"]["conditions"].as_array();
            let is = |c: &serde_json::Value| c["type"] == "LaunchesAllowed" && c["status"] == status;
            conditions.is_some_and(|all| all.iter().any(is))
        };
        Ok((!pools.is_empty() && pools.iter().all(has)).then_some(()))
    })
    .await
}

/// Says who has installed the CRD of NodePools.
async fn label_definition(env: &Environment, part_of: &str) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { "app.kubernetes.io/part-of": part_of } } });
    let patch = format!("--patch={patch}");
    env.plane.kubectl(&["patch", "crd", "nodepools.karpenter.sh", "--type=merge", &patch]).await.map(drop)
}

/// As Karpenter creates it: with its finalizer, and without a plan of napkeeper.
const FOREIGN_CLAIM: &str = "\
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: theirs-x7k2p, finalizers: [karpenter.sh/termination]}
spec:
  nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
  requirements:
  - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
";
