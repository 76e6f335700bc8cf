//! The control plane of the tests does what tests take for granted.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use napkeeper_tests::control_plane::{ControlPlane, Identity, Mode};
use napkeeper_tests::wait::eventually;
use serde_json::json;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

fn ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn pod() -> Result<Pod> {
    let containers = json!([{ "name": "main", "image": "none" }]);
    Ok(serde_json::from_value(json!({ "metadata": { "name": "pod" }, "spec": { "containers": containers } }))?)
}

#[tokio::test]
async fn nodes_join_and_pods_run_on_a_full_control_plane() -> Result<()> {
    let start = Instant::now();
    let plane = ControlPlane::start(Mode::Full).await?;
    println!("a full control plane was ready after {:?}", start.elapsed());
    let nodes = Api::<Node>::all(plane.client().await?);
    ensure!(nodes.list(&Default::default()).await?.items.is_empty(), "nobody asked for a node");

    plane.create_node("made", "4", "16Gi").await?;
    let is_ready = async || Ok(nodes.get("made").await.is_ok_and(|node| ready(&node)).then_some(()));
    eventually("readiness of the node", SOON, is_ready).await?;
    let pods = Api::<Pod>::default_namespaced(plane.client().await?);
    pods.create(&PostParams::default(), &pod()?).await?;
    let runs = async || {
        let status = pods.get("pod").await?.status.unwrap_or_default();
        Ok((status.phase.as_deref() == Some("Running")).then_some(()))
    };
    eventually("running pod", SOON, runs).await
}

#[tokio::test]
async fn a_bootstrap_token_registers_nodes_and_nothing_else() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let kubeconfig = Kubeconfig::read_from(plane.bootstrap_kubeconfig().await?)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let node = serde_json::from_value(json!({ "metadata": { "name": "joined" } }))?;
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.context("joining")?;
    nodes.delete("joined", &DeleteParams::default()).await.context("leaving")?;
    let refused = Api::<Pod>::default_namespaced(client).list(&Default::default()).await;
    ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn an_identity_has_the_rights_of_its_group() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let pods_of = async |identity| Ok::<_, anyhow::Error>(Api::<Pod>::all(plane.client_of(&identity).await?));
    let admin = pods_of(Identity::user("ada").in_group("system:masters")).await?;
    admin.list(&Default::default()).await?;
    let refused = pods_of(Identity::user("bob")).await?.list(&Default::default()).await;
    let error = format!("{refused:?}");
    ensure!(error.contains("403") && error.contains("bob"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_was_away_comes_back_with_its_data() -> Result<()> {
    let mut plane = ControlPlane::start(Mode::Api).await?;
    let (server, nodes) = (plane.server(), Api::<Node>::all(plane.client().await?));
    plane.create_node("kept", "4", "16Gi").await?;
    plane.stop_apiserver();
    ensure!(nodes.get("kept").await.is_err(), "nobody should answer");
    plane.start_apiserver().await?;
    ensure!(plane.server() == server);
    nodes.get("kept").await.context("asking the same server again")?;
    Ok(())
}
