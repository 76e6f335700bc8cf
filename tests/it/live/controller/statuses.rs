//! What kubectl and GitOps tools read in the status of NodePools, AKSNodeClasses, NodeClaims and NodeOverlays. The NodePools are
//! synced as Argo CD does it.

use crate::live::manifests::argo_cd::documented;
use crate::manifests::argocd::{health_of, shipped};
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::api::DynamicObject;
use napkeeper_tests::argo_cd::{self, differences, respecting, sync};
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, objects, running};
use napkeeper_tests::manifests::quickstart_file;
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_waits_for_pools_and_classes_and_shows_their_nodes() -> Result<()> {
    let env = Environment::start("provisioner").await?;
    let git = documented(1).await?;
    sync(&env.plane, &git).await?;
    env.plane.apply(&quickstart_file("inflate")?).await?;
    let _controller = env.controller()?;
    for kind in ["nodepools", "aksnodeclasses"] {
        env.plane.kubectl(&["wait", "--for=condition=Ready", kind, "--all", "--timeout=120s"]).await?;
    }
    running(&env, "inflate", 10).await?;
    let made = claims(&env).await?.len();
    env.plane.kubectl(&["wait", "--for=condition=Ready", "nodeclaims", "--all", "--timeout=120s"]).await?;
    eventually("nodes of all NodePools", STEP, async || Ok((nodes_of_pools(&env).await? == made).then_some(())))
        .await?;
    pool_columns(&env).await?;
    claim_columns(&env).await?;
    claims_say_what_is_seen_of_their_nodes(&env).await?;
    overlays_say_whether_they_apply(&env).await?;
    scale_subresource(&env).await?;
    only_our_manager(&env).await?;
    argo_cd_sees_no_difference(&env, &git).await?;
    argo_cd_shows(&env, "Healthy").await?;

    a_broken_class_makes_its_pools_unready(&env).await?;
    a_pool_that_cannot_be_read_says_why(&env).await
}

async fn pools(env: &Environment) -> Result<Vec<DynamicObject>> {
    objects(env, "karpenter.sh", "v1", "NodePool").await
}

async fn nodes_of_pools(env: &Environment) -> Result<usize> {
    let nodes = |pool: &DynamicObject| pool.data["status"]["nodes"].as_u64().unwrap_or_default();
    Ok(pools(env).await?.iter().map(nodes).sum::<u64>() as usize)
}

/// Upstream's columns: name, class, nodes, ready, age, weight if there is one, CPU and memory.
async fn pool_columns(env: &Environment) -> Result<()> {
    let table = env.plane.kubectl(&["get", "nodepools", "--output=wide", "--no-headers"]).await?;
    ensure!(!table.trim().is_empty(), "no NodePools");
    for row in table.lines() {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [_, class, nodes, ready, .., cpu, memory] = cells[..] else { bail!("empty columns: {row}") };
        let nodes: i64 = nodes.parse().with_context(|| row.to_owned())?;
        ensure!((class, ready) == ("default", "True"), "{row}");
        ensure!((cpu == "0") == (nodes == 0) && (memory == "0") == (nodes == 0), "{row}");
    }
    Ok(())
}

/// Upstream's columns: name, type, capacity, zone, node, ready and age.
async fn claim_columns(env: &Environment) -> Result<()> {
    let table = env.plane.kubectl(&["get", "nodeclaims", "--no-headers"]).await?;
    ensure!(!table.trim().is_empty(), "no NodeClaims");
    for row in table.lines() {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [_, size, capacity, zone, _, ready, _] = cells[..] else { bail!("empty columns: {row}") };
        ensure!(size.starts_with("Standard_") && ["spot", "on-demand"].contains(&capacity), "{row}");
        ensure!(zone.contains('-') && ready == "True", "{row}");
    }
    Ok(())
}

/// The image of each VM, and Karpenter's conditions about an initialized node.
async fn claims_say_what_is_seen_of_their_nodes(env: &Environment) -> Result<()> {
    for kind in ["ConsistentStateFound", "Consolidatable"] {
        let wait = format!("--for=condition={kind}");
        env.plane.kubectl(&["wait", &wait, "nodeclaims", "--all", "--timeout=120s"]).await?;
    }
    let images = env.plane.kubectl(&["get", "nodeclaims", "--output=jsonpath={.items[*].status.imageID}"]).await?;
    ensure!(images.split_whitespace().count() == claims(env).await?.len(), "{images}");
    Ok(())
}

/// Two of one weight that set the same thing, which changes nothing.
async fn overlays_say_whether_they_apply(env: &Environment) -> Result<()> {
    for name in ["first", "second"] {
        env.plane.apply(&OVERLAY.replace("NAME", name)).await?;
    }
    for (name, status) in [("first", "false"), ("second", "true")] {
        let (wait, name) = (format!("--for=condition=Ready={status}"), format!("nodeoverlay/{name}"));
        env.plane.kubectl(&["wait", &wait, &name, "--timeout=120s"]).await?;
    }
    let overlays = objects(env, "karpenter.sh", "v1alpha1", "NodeOverlay").await?;
    let first = overlays.iter().find(|overlay| overlay.metadata.name.as_deref() == Some("first"));
    let ready = condition(first.context("the NodeOverlay")?, "Ready");
    ensure!(
        ready["reason"] == "Conflict" && ready["message"].as_str().is_some_and(|m| m.contains("second")),
        "{ready}"
    );
    Ok(())
}

/// What `kubectl scale` reads: the API server serves it only for NodePools with `replicas`.
async fn scale_subresource(env: &Environment) -> Result<()> {
    env.plane.apply(FIXED_POOL).await?;
    eventually("a node of the NodePool with replicas", STEP, async || {
        let path = "/apis/karpenter.sh/v1/nodepools/fixed/scale";
        let scale: Value = serde_json::from_str(&env.plane.kubectl(&["get", "--raw", path]).await?)?;
        Ok((scale["spec"]["replicas"] == 1 && scale["status"]["replicas"] == 1).then_some(()))
    })
    .await
}

/// Statuses are written by managers of their own, and specs by none of ours.
async fn only_our_manager(env: &Environment) -> Result<()> {
    for (group, version, kind, manager) in [
        ("karpenter.sh", "v1", "NodePool", "napkeeper-pools"),
        ("karpenter.azure.com", "v1beta1", "AKSNodeClass", "napkeeper-classes"),
        ("karpenter.sh", "v1alpha1", "NodeOverlay", "napkeeper-overlays"),
    ] {
        for object in objects(env, group, version, kind).await? {
            let fields = object.metadata.managed_fields.unwrap_or_default();
            let ours = fields.iter().filter(|f| f.manager.as_deref().is_some_and(|m| m.starts_with("napkeeper-")));
            let ours: Vec<_> = ours.filter(|f| f.manager.as_deref() != Some("napkeeper-tests")).collect();
            let names: BTreeSet<_> = ours.iter().filter_map(|f| f.manager.as_deref()).collect();
            ensure!(names == BTreeSet::from([manager]), "{kind}: {names:?}");
            // Beside the status nothing but the finalizer of NodePools: the spec is Git's.
            let is_status = |f: &ManagedFieldsEntry| f.subresource.as_deref() == Some("status");
            let others: Vec<_> = ours.iter().filter(|f| !is_status(f)).filter_map(|f| f.fields_v1.as_ref()).collect();
            let finalizers = |fields: &&FieldsV1| {
                let metadata =
                    fields.0.as_object().filter(|all| all.len() == 1).and_then(|all| all["f:metadata"].as_object());
                metadata.is_some_and(|metadata| metadata.len() == 1 && metadata.contains_key("f:finalizers"))
            };
            ensure!(others.iter().all(finalizers), "{kind}: {ours:?}");
            ensure!(others.len() == usize::from(kind == "NodePool"), "{kind}: {ours:?}");
        }
    }
    Ok(())
}

/// Neither in what the controller writes to, nor in what `kubectl scale` has set and `ignoreDifferences` lists.
async fn argo_cd_sees_no_difference(env: &Environment, git: &[Value]) -> Result<()> {
    let found = differences(&env.plane, git).await?;
    ensure!(found.is_empty(), "Argo CD shows {found:?}");
    for object in git.iter().filter(|object| object["kind"] == "NodePool") {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let finalizers =
            env.plane.kubectl(&["get", "nodepool", name, "--output=jsonpath={.metadata.finalizers}"]).await?;
        ensure!(finalizers.contains("napkeeper.io/nodes"), "{name} has {finalizers:?}, so that nothing is shown");
    }
    let fixed = argo_cd::objects(FIXED_POOL)?;
    sync(&env.plane, &fixed).await?;
    env.plane.kubectl(&["scale", "nodepool", "fixed", "--replicas=2"]).await?;
    let found = differences(&env.plane, &fixed).await?;
    ensure!(
        found.contains(&"NodePool fixed: /spec/replicas".to_owned()),
        "it is no difference without the list: {found:?}"
    );
    let application = shipped("applications/nodepools.yaml")?;
    let respecting = respecting(&env.plane, &application, fixed.first().context("a NodePool")?).await?;
    sync(&env.plane, std::slice::from_ref(&respecting)).await?;
    let found = differences(&env.plane, &[respecting]).await?;
    let size = env.plane.kubectl(&["get", "nodepool", "fixed", "--output=jsonpath={.spec.replicas}"]).await?;
    ensure!(found.is_empty() && size == "2", "Argo CD shows {found:?}, and a sync sets {size}");
    Ok(())
}

/// Waits until all NodePools and AKSNodeClasses have this health, and with that all NodeClaims.
async fn argo_cd_shows(env: &Environment, wanted: &str) -> Result<()> {
    let mut kinds = vec![("karpenter.sh", "v1", "NodePool"), ("karpenter.azure.com", "v1beta1", "AKSNodeClass")];
    if wanted == "Healthy" {
        kinds.push(("karpenter.sh", "v1", "NodeClaim"));
    }
    for (group, version, kind) in kinds {
        eventually(&format!("{kind}s that are {wanted}"), STEP, async || {
            let all = objects(env, group, version, kind).await?;
            ensure!(!all.is_empty(), "no {kind}s");
            let all = all.iter().map(|object| Ok(health_of(&serde_json::to_value(object)?)?.status == wanted));
            Ok(all.collect::<Result<Vec<_>>>()?.into_iter().all(|is| is).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn a_broken_class_makes_its_pools_unready(env: &Environment) -> Result<()> {
    let patch = |policy: Value| format!("--patch={}", json!({ "spec": { "kubelet": { "cpuManagerPolicy": policy } } }));
    let class = ["patch", "aksnodeclass", "default", "--type=merge"];
    env.plane.kubectl(&[&class[..], &[&patch(json!("static"))]].concat()).await?;
    for kind in ["aksnodeclasses", "nodepools"] {
        env.plane.kubectl(&["wait", "--for=condition=Ready=false", kind, "--all", "--timeout=120s"]).await?;
    }
    argo_cd_shows(env, "Degraded").await?;
    for pool in pools(env).await? {
        let ready = condition(&pool, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(message.contains("spec.kubelet.cpuManagerPolicy"), "{ready}");
        ensure!(condition(&pool, "ValidationSucceeded")["status"] == "True", "{:?}", pool.data["status"]);
    }
    env.plane.kubectl(&[&class[..], &[&patch(Value::Null)]].concat()).await?;
    env.plane.kubectl(&["wait", "--for=condition=Ready", "nodepools", "--all", "--timeout=120s"]).await.map(drop)
}

async fn a_pool_that_cannot_be_read_says_why(env: &Environment) -> Result<()> {
    env.plane.apply(FOREIGN_POOL).await?;
    env.plane.kubectl(&["wait", "--for=condition=Ready=false", "nodepool/foreign", "--timeout=120s"]).await?;
    let all = pools(env).await?;
    let pool = all.iter().find(|pool| pool.metadata.name.as_deref() == Some("foreign")).context("the NodePool")?;
    let failed = condition(pool, "ValidationSucceeded");
    ensure!(failed["status"] == "False" && failed["reason"] == "NodePoolValidationFailed", "{failed}");
    let message = failed["message"].as_str().unwrap_or_default();
    ensure!(message.contains("spec.template.spec.nodeClassRef.group"), "{failed}");
    ensure!(failed["observedGeneration"] == json!(pool.metadata.generation), "{failed}");
    let health = health_of(&serde_json::to_value(pool)?)?;
    ensure!(health.status == "Degraded" && health.message.contains("nodeClassRef.group"), "{health:?}");
    Ok(())
}

fn condition(object: &DynamicObject, kind: &str) -> Value {
    let all = object.data["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|c| c["type"] == kind).cloned().unwrap_or_default()
}

const FIXED_POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: fixed}
spec:
  replicas: 1
  template:
    spec:
      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [Standard_D2s_v5]}
";

const OVERLAY: &str = "\
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: NAME}
spec: {requirements: [], priceAdjustment: '+0%'}
";

const FOREIGN_POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: foreign}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
";
