//! Policies on a real API server protect objects in use from deletion, without napkeeper running.
//!
//! They are those that `napkeeper policies export` prints.

use crate::live::policies::exported;
use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::{quickstart_file, repository};
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::time::{Duration, Instant};

/// New policies, and new kinds for their parameters, are known after half a minute at most, on a busy machine later.
const IN_FORCE: Duration = Duration::from_secs(120);

/// So many NodeClaims are created at once.
const AT_ONCE: usize = 16;

/// All definitions that are guarded, and an object of each.
const GUARDED: [&str; 6] = [
    "nodepools.karpenter.sh",
    "nodeclaims.karpenter.sh",
    "aksnodeclasses.karpenter.azure.com",
    "orphansweeps.napkeeper.io",
    "orphanrecords.napkeeper.io",
    "placementpolicies.napkeeper.io",
];

fn claim(name: &str, pool: &str) -> String {
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": name, "labels": { "karpenter.sh/nodepool": pool } },
        "spec": {
            "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
            "requirements": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }],
        },
    });
    format!("---\n{claim}\n")
}

/// A plane with the definitions, the quick start's pools, a sweep with a record, and one node of the pool `gpu`.
async fn furnished() -> Result<ControlPlane> {
    let plane = ControlPlane::start(Mode::Api).await?;
    plane.install_definitions().await?;
    for file in ["aksnodeclass", "nodepool-general-purpose", "nodepool-gpu", "orphansweep"] {
        plane.apply(&quickstart_file(file)?).await?;
    }
    plane.apply(&std::fs::read_to_string(repository("manifests/examples/placementpolicy.yaml"))?).await?;
    let record = json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanRecord", "metadata": { "name": "r" }, "spec": {} });
    plane.apply(&record.to_string()).await?;
    plane.apply(&claim("gpu-1", "gpu")).await?;
    plane.apply(&exported(&[])?).await?;
    Ok(plane)
}

/// What a delete that changes nothing is answered with; `None` when it would go.
async fn refused(plane: &ControlPlane, args: &[&str]) -> Option<String> {
    let dry = [&["delete", "--dry-run=server"], args].concat();
    plane.kubectl(&dry).await.err().map(|e| format!("{e:#}"))
}

/// Waits for a denial that names a policy.
async fn refusal_by(plane: &ControlPlane, policy: &str, args: &[&str]) -> Result<String> {
    let named = format!("ValidatingAdmissionPolicy '{policy}' with binding");
    eventually(&format!("refusal by {policy}"), IN_FORCE, async || {
        Ok(refused(plane, args).await.filter(|message| message.contains(&named)))
    })
    .await
}

#[tokio::test]
async fn objects_in_use_are_not_deleted_unless_acknowledged() -> Result<()> {
    let plane = furnished().await?;
    let message = refusal_by(&plane, "nodepool-in-use", &["nodepool", "gpu"]).await?;
    ensure!(message.contains("NodePool gpu still has nodes, NodeClaim gpu-1 among them"), "{message}");
    let message = refusal_by(&plane, "aksnodeclass-in-use", &["aksnodeclass", "default"]).await?;
    ensure!(message.contains("AKSNodeClass default still has nodes"), "{message}");
    // A pool without nodes can be deleted, and the whole collection cannot.
    ensure!(refused(&plane, &["nodepool", "general-purpose"]).await.is_none());
    let all = plane.kubectl(&["delete", "--raw", "/apis/karpenter.sh/v1/nodepools?dryRun=All"]).await;
    ensure!(format!("{all:?}").contains("nodepool-in-use"), "{all:?}");

    let note = "napkeeper.io/delete-acknowledged=1";
    plane.kubectl(&["annotate", "nodepool", "gpu", note]).await?;
    plane.kubectl(&["annotate", "aksnodeclass", "default", note]).await?;
    ensure!(refused(&plane, &["nodepool", "gpu"]).await.is_none());
    ensure!(refused(&plane, &["aksnodeclass", "default"]).await.is_none());
    Ok(())
}

#[tokio::test]
async fn definitions_stay_while_they_have_objects() -> Result<()> {
    let plane = furnished().await?;
    for definition in GUARDED {
        let policy = format!("{}-definition", definition.split_once('.').context("a group")?.0);
        let message = refusal_by(&plane, &policy, &["crd", definition]).await?;
        ensure!(message.contains(" exists: ") && message.contains("delete-acknowledged"), "{message}");
    }
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
    let answer = plane.kubectl(&["delete", "--raw", all]).await;
    ensure!(format!("{answer:?}").contains("-definition' denied request"), "{answer:?}");

    // An acknowledgement lets one go that still has objects; without objects none is needed.
    plane.kubectl(&["annotate", "crd", "nodepools.karpenter.sh", "napkeeper.io/delete-acknowledged=yes"]).await?;
    ensure!(refused(&plane, &["crd", "nodepools.karpenter.sh"]).await.is_none());
    for kind in ["nodeclaims", "aksnodeclasses", "orphansweeps", "orphanrecords", "placementpolicies"] {
        plane.kubectl(&["delete", kind, "--all"]).await?;
    }
    for definition in &GUARDED[1..] {
        eventually(definition, IN_FORCE, async || {
            Ok(refused(&plane, &["crd", definition]).await.is_none().then_some(()))
        })
        .await?;
    }
    plane.kubectl(&["delete", "crd", "orphanrecords.napkeeper.io"]).await?;
    Ok(())
}

#[tokio::test]
async fn a_guard_does_not_slow_a_cluster_of_thousands() -> Result<()> {
    const NODES: usize = 3_000;
    let plane = furnished().await?;
    let client = plane.client().await?;
    let claims: kube::Api<napkeeper_api::types::karpenter::NodeClaim> = kube::Api::all(client);
    let template: napkeeper_api::types::karpenter::NodeClaim =
        serde_json::from_value(serde_json::from_str(claim("x", "general-purpose").trim_start_matches("---\n"))?)?;
    let made = (0..NODES).map(|i| {
        let (mut claim, claims) = (template.clone(), claims.clone());
        claim.metadata.name = Some(format!("general-{i}"));
        async move { claims.create(&kube::api::PostParams::default(), &claim).await.map(drop) }
    });
    stream::iter(made).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    refusal_by(&plane, "nodepool-in-use", &["nodepool", "general-purpose"]).await?;
    plane.kubectl(&["delete", "nodeclaim", "gpu-1"]).await?;
    let start = Instant::now();
    // Every NodeClaim is checked, and none is of this pool.
    eventually("gpu is free", IN_FORCE, async || {
        Ok(refused(&plane, &["nodepool", "gpu"]).await.is_none().then_some(()))
    })
    .await?;
    let took = start.elapsed();
    eprintln!("deleting a pool without nodes beside {NODES} NodeClaims, kubectl included: {took:?}");
    ensure!(took < Duration::from_secs(10), "{took:?}");
    Ok(())
}
