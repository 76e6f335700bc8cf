//! Measures requests and time of one audit of a large group, under ARM's own limits.
//!
//! Azure is `napkeeper azure-sim` over HTTP, with pages of 1,000 and the token buckets of ARM; Kubernetes is a server
//! of lists. Run it with `--ignored`; it prints what it measured.

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use napkeeper_tests::control_plane::{Process, Program, napkeeper_binary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// VMs, each with its NIC and OS disk.
const VMS: usize = 30_000;
/// Data disks beside them.
const DISKS: usize = 10_000;
/// Deleted NodeClaims, whose VMs are orphans.
const ORPHANED_VMS: usize = 25;
const TOKEN: &str = "scale-token";

/// The lists of Kubernetes that an audit reads, by path.
async fn kubernetes(lists: BTreeMap<&'static str, Value>) -> Result<String> {
    async fn answer(State(lists): State<Arc<BTreeMap<&'static str, String>>>, uri: Uri) -> Response {
        match lists.get(uri.path()) {
            Some(list) => ([("content-type", "application/json")], list.clone()).into_response(),
            None => (
                StatusCode::NOT_FOUND,
                axum::Json(json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "reason": "NotFound", "code": 404, "message": "not served" })),
            )
                .into_response(),
        }
    }
    let text = |items: Value| json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }).to_string();
    let lists: BTreeMap<_, _> = lists.into_iter().map(|(path, items)| (path, text(items))).collect();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().fallback(answer).with_state(Arc::new(lists));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

fn vm(n: usize) -> String {
    format!("aks-general-{n:05}")
}

/// The NodeClaims and Nodes of all VMs but the orphans.
fn lists(group: &str) -> BTreeMap<&'static str, Value> {
    let id = |n: usize| format!("azure://{group}/providers/Microsoft.Compute/virtualMachines/{}", vm(n));
    let claim = |n: usize| {
        json!({ "metadata": { "name": format!("general-{n:05}"), "uid": format!("claim-{n}"), "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" }, "requirements": [] },
            "status": { "providerID": id(n) } })
    };
    let node = |n: usize| {
        json!({ "metadata": { "name": vm(n), "uid": format!("node-{n}"), "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "providerID": id(n) }, "status": { "conditions": [{ "type": "Ready", "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }] } })
    };
    BTreeMap::from([
        ("/apis/karpenter.sh/v1/nodeclaims", Value::Array((ORPHANED_VMS..VMS).map(claim).collect())),
        ("/api/v1/nodes", Value::Array((ORPHANED_VMS..VMS).map(node).collect())),
        ("/api/v1/persistentvolumes", json!([])),
        ("/apis/storage.k8s.io/v1/volumeattachments", json!([])),
        ("/api/v1/pods", json!([])),
    ])
}

/// Fills the group by the control endpoint of the simulated Azure.
async fn fill(url: &str, cluster: &str) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let tags = json!({ "napkeeper.io_cluster": cluster });
    let vms = (0..VMS).map(|n| json!({ "leakVm": { "name": vm(n), "tags": tags, "size": "Standard_D2s_v5" } }));
    let disks = (0..DISKS).map(|n| json!({ "dataDisk": { "name": format!("pvc-{n:05}"), "tags": {} } }));
    let acts = vms.chain(disks).map(|act| {
        let request = http.post(format!("{url}/control/stage")).json(&act).send();
        async move {
            let response = request.await?;
            ensure!(response.status().is_success(), "{act}: {}", response.text().await?);
            anyhow::Ok(())
        }
    });
    let mut done = futures::stream::iter(acts).buffer_unordered(8);
    while let Some(one) = done.next().await {
        one?;
    }
    for fault in [json!({ "pageSize": { "items": 1000 } }), json!({ "rateLimits": { "on": true } })] {
        let response = http.post(format!("{url}/control/faults")).json(&fault).send().await?;
        ensure!(response.status().is_success(), "{fault}: {}", response.text().await?);
    }
    Ok(())
}

fn write_kubeconfig(folder: &Path, server: &str) -> Result<()> {
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": server } }], "users": [{ "name": "a", "user": {} }] });
    Ok(std::fs::write(folder.join("kubeconfig"), config.to_string())?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "fills a simulated group with 100,000 resources: minutes; prints what it measured"]
async fn a_group_of_a_hundred_thousand_is_listed_within_arms_limits() -> Result<()> {
    // Another test of this process may have done it before.
    drop(rustls::crypto::ring::default_provider().install_default());
    let folder = tempfile::tempdir()?;
    let args = ["azure-sim", "--output=json", "--bind=127.0.0.1:0", &format!("--token={TOKEN}")];
    let azure = Process::spawn("azure-sim", &Program::new(napkeeper_binary()?).args(args))?;
    let output: Value = serde_json::from_str(&azure.line("\"url\"", Duration::from_secs(60)).await?)?;
    let text = |key: &str| output[key].as_str().map(ToOwned::to_owned).context("azure-sim says too little");
    let (url, group, cluster) = (text("url")?, text("group")?, text("cluster")?);
    let began = Instant::now();
    fill(&url, cluster.rsplit('/').next().unwrap_or_default()).await?;
    eprintln!("filled {VMS} VMs, {VMS} NICs and {} disks in {:.0?}", VMS + DISKS, began.elapsed());
    write_kubeconfig(folder.path(), &kubernetes(lists(&group)).await?)?;
    std::fs::write(folder.path().join("token"), TOKEN)?;

    let part = |id: &str, n: usize| id.split('/').nth(n).unwrap_or_default().to_owned();
    let mut command = Command::new(napkeeper_binary()?);
    command.args(["audit", "--output=json", "--subscription", &part(&group, 2), "--resource-group", &part(&group, 4)]);
    command.args(["--cluster-id", &cluster, "--azure-endpoint", &url, "--azure-token-file"]);
    command.arg(folder.path().join("token")).arg("--kubeconfig").arg(folder.path().join("kubeconfig"));
    let began = Instant::now();
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    eprintln!("audited in {:.1?}: {}", began.elapsed(), message.trim());
    ensure!(output.status.code() == Some(0), "nothing is old enough to be an orphan: {}: {message}", output.status);
    let report: Value = serde_json::from_slice(&output.stdout)?;
    eprintln!("{}", report["totals"]);
    ensure!(report["complete"] == true, "{}", report["failed"]);
    let count = |standing: &str| report["totals"][standing]["resources"].as_u64().unwrap_or(0);
    // An orphaned VM still references its NIC and disk; disks without a record of their volume are never deleted.
    ensure!(count("suspect") == ORPHANED_VMS as u64, "{} suspects", count("suspect"));
    ensure!(count("foreign") == DISKS as u64, "{} foreign", count("foreign"));
    ensure!(count("alive") == (VMS * 3 - ORPHANED_VMS) as u64, "{} alive", count("alive"));
    Ok(())
}
