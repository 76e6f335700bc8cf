//! CapacityBuffers: capacity exists before pods need it, is kept, is used by pods, and is removed with the buffer.

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_tests::control_plane::{Process, upstream_crds};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{all_deleted, claims, nodes, objects, running, scale};
use napkeeper_tests::wait::eventually;
use serde_json::Value;
use std::time::Duration;

/// Longest that a step may take on a busy machine; buffers are read every 10 s.
const STEP: Duration = Duration::from_secs(120);

const POOL: &str = "
apiVersion: karpenter.azure.com/v1beta1
kind: AKSNodeClass
metadata: { name: default }
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: general }
spec:
  disruption: { consolidateAfter: 0s, budgets: [{ nodes: 100% }] }
  template:
    spec:
      nodeClassRef: { group: karpenter.azure.com, kind: AKSNodeClass, name: default }
      requirements:
        - { key: node.kubernetes.io/instance-type, operator: In, values: [Standard_D4s_v5] }
        - { key: karpenter.sh/capacity-type, operator: In, values: [on-demand] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: default }
spec:
  replicas: 0
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers:
        - { name: web, image: web, resources: { requests: { cpu: '3', memory: 1Gi } } }
";

const BUFFERS: &str = "
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: { name: spare, namespace: default }
spec:
  scalableRef: { apiGroup: apps, kind: Deployment, name: web }
  replicas: 2
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: { name: lost, namespace: default }
spec:
  podTemplateRef: { name: nowhere }
  replicas: 2
";

/// A condition of a buffer: its status, reason and message.
async fn condition(env: &Environment, name: &str, kind: &str) -> Result<Option<[String; 3]>> {
    let all = objects(env, "autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer").await?;
    let buffer = all.into_iter().find(|o| o.metadata.name.as_deref() == Some(name)).context("no such buffer")?;
    let conditions = buffer.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_kind = conditions.iter().find(|condition| condition["type"] == kind);
    Ok(of_kind.map(|c| [text(&c["status"]), text(&c["reason"]), text(&c["message"])]))
}

async fn has_room(env: &Environment, controller: &Process, nodes_wanted: usize) -> Result<()> {
    let placed = eventually("room for all chunks", STEP, async || {
        let placed = condition(env, "spare", "Provisioning").await?;
        let fits = placed.is_some_and(|[status, reason, _]| status == "True" && reason == "FitsExistingCapacity");
        Ok((fits && nodes(env).await?.len() == nodes_wanted).then_some(()))
    });
    let last = async || {
        let names: Vec<_> = nodes(env).await.into_iter().flatten().filter_map(|node| node.metadata.name).collect();
        let placed = condition(env, "spare", "Provisioning").await;
        format!("{nodes_wanted} nodes are wanted of {names:?}: {placed:?}\n{}", controller.tail(40))
    };
    match placed.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(last().await)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity_exists_before_pods_and_is_removed_with_its_buffer() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let crds = upstream_crds().await?;
    let definition = crds.split("---\n").find(|text| text.contains("capacitybuffers.autoscaling.x-k8s.io"));
    env.plane.apply(definition.context("upstream has no CapacityBuffers")?).await?;
    env.plane.apply(POOL).await?;
    eventually("the kind is served", STEP, async || Ok(env.plane.apply(BUFFERS).await.ok())).await?;
    let controller = env.controller()?;

    // Two chunks of three cores: a node of four each, without a single pod.
    has_room(&env, &controller, 2).await?;
    let [status, reason, message] =
        condition(&env, "lost", "ReadyForProvisioning").await?.context("nothing is told")?;
    ensure!(status == "False" && reason == "PodTemplateNotFound" && message.contains("default/nowhere"), "{message}");
    // It is kept, although the nodes are empty.
    for _ in 0..6 {
        env.jump(SignedDuration::from_secs(30))?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ensure!(claims(&env).await?.len() == 2, "room that is kept has gone");

    // A pod fits at once, and its capacity is replaced.
    scale(&env, "web", 1).await?;
    running(&env, "web", 1).await?;
    has_room(&env, &controller, 3).await?;

    scale(&env, "web", 0).await?;
    env.plane.kubectl(&["delete", "capacitybuffers.autoscaling.x-k8s.io", "--all"]).await?;
    all_deleted(&mut env).await?;
    controller.terminate()?;
    let status = controller.exited(Duration::from_secs(30)).await?;
    ensure!(status.success(), "the controller ended with {status}: {}", controller.tail(20));
    Ok(())
}
