//! A cluster of a thousand nodes that changes: an API server that lists and watches, and nothing more.

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use napkeeper_tests::manifests::quickstart_object;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// How large the cluster is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// Pods that are replaced by others, in a second.
    pub(crate) changes: u32,
}

/// The cluster; it ends with the program.
pub(crate) struct Cluster {
    pub(crate) kubeconfig: PathBuf,
}

struct Served {
    /// Texts of objects, by the last part of their path.
    lists: BTreeMap<&'static str, Vec<String>>,
    events: broadcast::Sender<Arc<str>>,
}

impl Cluster {
    /// Starts it.
    pub(crate) async fn start(folder: &Path, size: Size) -> Result<Self> {
        let (events, _) = broadcast::channel(10_000);
        let pods = (0..size.pods).map(|i| running(i, i % size.nodes.max(1), 1).to_string()).collect();
        let nodes = (0..size.nodes).map(|i| node(i).to_string()).collect();
        let (mut pools, mut classes) = (Vec::new(), Vec::new());
        for file in ["nodepool-general-purpose", "nodepool-gpu", "nodepool-spot-preferred"] {
            pools.push(quickstart_object(file)?.to_string());
        }
        classes.push(quickstart_object("aksnodeclass")?.to_string());
        let lists =
            BTreeMap::from([("pods", pods), ("nodes", nodes), ("nodepools", pools), ("aksnodeclasses", classes)]);
        let served = Arc::new(Served { lists, events: events.clone() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer).with_state(served)).await });
        if size.changes > 0 {
            tokio::spawn(change(size, events));
        }
        let kubeconfig = folder.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": {} }],
        });
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { kubeconfig })
    }
}

/// Replaces one pod after the other: the old one is deleted, another one runs on its node.
async fn change(size: Size, events: broadcast::Sender<Arc<str>>) {
    let mut beat = tokio::time::interval(Duration::from_secs(1) / size.changes);
    for i in 0_usize.. {
        beat.tick().await;
        let (slot, generation) = (i / 2 % size.pods, 1 + i / 2 / size.pods);
        let version = 2 + i;
        let (event, object) = match i % 2 {
            0 => ("DELETED", running(slot, slot % size.nodes, generation)),
            _ => ("ADDED", running(slot, slot % size.nodes, generation + 1)),
        };
        let mut object = object;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        // There is no receiver before the first watch.
        drop(events.send(format!("{}\n", json!({ "type": event, "object": object })).into()));
    }
}

async fn answer(
    State(served): State<Arc<Served>>,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let resource = uri.path().rsplit('/').next().unwrap_or_default();
    let json_of = |text: String| ([(CONTENT_TYPE, "application/json")], text).into_response();
    if query.get("watch").is_some_and(|watch| watch == "true" || watch == "1") {
        return watch(&served, resource);
    }
    if !resource.ends_with('s') {
        let status =
            json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "message": "none", "code": 404 });
        return (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "application/json")], status.to_string()).into_response();
    }
    let all: &[String] = served.lists.get(resource).map_or(&[], Vec::as_slice);
    let from: usize = query.get("continue").and_then(|text| text.parse().ok()).unwrap_or(0);
    let most: usize = query.get("limit").and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let to = from.saturating_add(most).min(all.len());
    let next = if to < all.len() { to.to_string() } else { String::new() };
    let metadata = json!({ "resourceVersion": "1", "continue": next });
    let items = all.get(from..to).unwrap_or_default().join(",");
    json_of(format!(r#"{{"apiVersion":"v1","kind":"List","metadata":{metadata},"items":[{items}]}}"#))
}

fn watch(served: &Served, resource: &str) -> Response {
    if resource != "pods" {
        return Body::from_stream(futures::stream::pending::<Result<String, std::io::Error>>()).into_response();
    }
    let events = served.events.subscribe();
    let lines = futures::stream::unfold(events, |mut events| async move {
        // For slow clients the watch ends, and they list again.
        let line = events.recv().await.ok()?;
        Some((Ok::<_, std::io::Error>(line.to_string()), events))
    });
    Body::from_stream(lines).into_response()
}

/// An unmanaged node of 16 cores.
pub(crate) fn node(i: usize) -> Value {
    let name = format!("node-{i:05}");
    let resources = json!({ "cpu": "15740m", "memory": "58Gi", "ephemeral-storage": "100Gi", "pods": "110" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": format!("10000000-0000-4000-8000-{i:012}"), "resourceVersion": "1",
            "creationTimestamp": "2026-08-03T08:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": "westeurope",
                "topology.kubernetes.io/zone": format!("westeurope-{}", i % 3 + 1),
                "node.kubernetes.io/instance-type": "Standard_D16s_v5",
            },
        },
        "spec": {},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-08-03T08:00:00Z" }],
        },
    })
}

/// A running pod. Nine nodes of ten are full.
fn running(i: usize, node: usize, generation: usize) -> Value {
    let mut pod = crate::reviews::pod(i);
    let name = format!("running-{i}-{generation}");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["uid"] = json!(format!("20000000-0000-4000-8000-{:012}", i + generation * 100_000));
    pod["metadata"]["resourceVersion"] = json!("1");
    pod["metadata"]["creationTimestamp"] = json!("2026-08-03T08:00:00Z");
    let cpu = if node % 10 == 9 { "300m" } else { "780m" };
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({ "cpu": cpu, "memory": "2Gi" });
    pod["spec"]["containers"][1]["resources"]["requests"] = json!({});
    pod["spec"]["nodeName"] = json!(format!("node-{node:05}"));
    pod["status"] = json!({
        "phase": "Running", "startTime": "2026-08-03T08:00:00Z",
        "conditions": [{ "type": "PodScheduled", "status": "True" }],
    });
    pod
}
