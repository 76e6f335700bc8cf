//! A Node that has lost its NodeClaim is drained when somebody deletes it, and its VM stays.

use anyhow::{Context, Result, ensure};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, nodes, running, scale, vms_created};
use napkeeper_tests::manifests::quickstart;
use napkeeper_tests::wait::eventually;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(90);
/// Without the budget the Node would be gone by then.
const HELD: Duration = Duration::from_secs(15);
const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: inflate, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: inflate}}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_claim_is_drained_when_it_is_deleted() -> Result<()> {
    let env = Environment::start("provisioner").await?;
    env.plane.apply(&quickstart()?).await?;
    scale(&env, "inflate", 1).await?;
    let controller = env.controller()?;
    running(&env, "inflate", 1).await?;
    let name = claims(&env).await?[0].metadata.name.clone().context("a NodeClaim has no name")?;
    let node = format!("aks-{name}");

    // As after a restore of a backup that lacks it.
    let without = r#"{"metadata":{"finalizers":null}}"#;
    env.plane.kubectl(&["patch", "nodeclaim", &name, "--type=merge", "--patch", without]).await?;
    env.plane.kubectl(&["delete", "nodeclaim", &name]).await?;
    let serves = async || Ok(claims(&env).await?.is_empty().then_some(()));
    eventually("end of the NodeClaim", STEP, serves).await?;
    running(&env, "inflate", 1).await?;

    env.plane.apply(BUDGET).await?;
    env.plane.kubectl(&["delete", "node", &node, "--wait=false"]).await?;
    let is_tainted = async || {
        let taints = env.plane.kubectl(&["get", "node", &node, "--output=jsonpath={.spec.taints[*].key}"]).await?;
        Ok(taints.contains("karpenter.sh/disrupted").then_some(()))
    };
    eventually("taint of the Node", STEP, is_tainted).await?;
    tokio::time::sleep(HELD).await;
    env.plane.kubectl(&["get", "node", &node]).await.context("its pod may not be evicted, and it is gone")?;
    env.plane.kubectl(&["delete", "poddisruptionbudget", "inflate"]).await?;
    let is_gone = async || {
        let left = nodes(&env).await?;
        Ok(left.iter().all(|left| left.metadata.name.as_deref() != Some(&node)).then_some(()))
    };
    eventually("end of the Node", STEP, is_gone).await?;
    running(&env, "inflate", 1).await?;
    ensure!(vms_created(&env).await? == 2, "its pod has no new node: {}", controller.tail(20));
    let resources = env.resources().await?;
    let kept = resources.iter().any(|id| id.ends_with(&format!("virtualMachines/{node}")));
    ensure!(kept, "its VM was deleted, and nothing proved whose it is: {resources:?}");
    Ok(())
}
