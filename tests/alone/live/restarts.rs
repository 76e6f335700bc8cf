//! Every pod gets its hint while processes of the webhook follow each other on one port.
//!
//! The hint's budget is 1 s here, not the 5 ms that it is by default: this machine runs the API server, etcd, the
//! clients and two unoptimised webhooks on its few cores, and a hint that is late for lack of CPU says nothing about a
//! restart.

use crate::alone;
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{HTTP1_ADDRESS, certificate, hint, pod, pools};
use napkeeper_tests::webhook::load::{Load, rate_without_hooks};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(60);
/// How often one process takes over from another.
const TURNS: usize = 2;
/// How long both of them run, and then the new one alone.
const TOGETHER: Duration = Duration::from_secs(1);
/// The API server speaks HTTP/2 to a loopback address, and HTTP/1.1 to any other, as to every Service.
const WAYS: [&str; 2] = ["http2", "http1"];

struct Rig {
    plane: ControlPlane,
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
    http: reqwest::Client,
    ca: String,
}

impl Rig {
    async fn start() -> Result<Self> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let folder = tempfile::Builder::new().prefix("turns-").tempdir()?;
        let ca = certificate(folder.path())?;
        let plane = ControlPlane::start(Mode::Api).await?;
        // No controller creates it here.
        plane.kubectl(&["create", "serviceaccount", "default", "--namespace=default"]).await?;
        install(&plane, "provisioner").await?;
        plane.apply(&pools()?).await?;
        let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "napkeeper-webhook").await?;
        let http = reqwest::Client::builder().no_proxy().timeout(STEP).build()?;
        Ok(Self { plane, folder, kubeconfig, http, ca })
    }

    /// A webhook at a port that it shares, once it is ready.
    async fn webhook(&self, address: SocketAddr) -> Result<(Process, SocketAddr)> {
        let more = ["--reuse-port", "--hint-budget=1s", "--region=westeurope"];
        let program = webhook::program(&self.kubeconfig, &address.to_string(), Some(self.folder.path()))?.args(more);
        let Listening { process, admission, health, .. } = webhook::listening(&program).await?;
        eventually("readiness", STEP, async || {
            let answer = self.http.get(format!("http://{health}/readyz")).send().await;
            Ok(answer.is_ok_and(|a| a.status().is_success()).then_some(()))
        })
        .await?;
        Ok((process, admission.parse()?))
    }

    /// The shipped hook for pods, under a name of its own for each way.
    async fn hook(&self, way: &str, address: SocketAddr) -> Result<()> {
        let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
        let read = yaml::read("hooks.yaml", &text);
        let shipped = read.documents.iter().find(|d| d.value["kind"] == "MutatingWebhookConfiguration");
        let mut object: Value = serde_json::to_value(&shipped.context("no hook for pods")?.value)?;
        object["metadata"]["name"] = json!(way);
        object["webhooks"][0]["objectSelector"] = json!({ "matchLabels": { "way": way } });
        let (url, bundle) = (format!("https://{address}/mutate"), ByteString(self.ca.as_bytes().to_vec()));
        object["webhooks"][0]["clientConfig"] = json!({ "url": url, "caBundle": bundle });
        self.plane.apply(&object.to_string()).await?;
        let api: Api<Pod> = Api::namespaced(self.plane.client().await?, "default");
        let mut pod = pod("default", "first");
        pod["metadata"]["labels"]["way"] = json!(way);
        let pod = serde_json::from_value(pod)?;
        let params = PostParams { dry_run: true, ..PostParams::default() };
        eventually("a hint", STEP, async || Ok(hint(&api.create(&params, &pod).await?).map(drop))).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_follow_each_other_on_one_port_and_every_pod_has_its_hint() -> Result<()> {
    let _turn = alone().await;
    let rig = Rig::start().await?;
    let bare = rate_without_hooks(&rig.plane).await?;
    let (mut now, address) = rig.webhook((Ipv4Addr::UNSPECIFIED, 0).into()).await?;
    for (way, ip) in WAYS.iter().zip([IpAddr::V4(Ipv4Addr::LOCALHOST), HTTP1_ADDRESS]) {
        rig.hook(way, (ip, address.port()).into()).await?;
    }
    let before = rig.plane.failed_open("").await?;
    let load = Load::start(&rig.plane, bare / 4.0, "turns", &WAYS).await?;
    tokio::time::sleep(TOGETHER).await;
    for _ in 0..TURNS {
        let (next, _) = rig.webhook(address).await?;
        let last = std::mem::replace(&mut now, next);
        tokio::time::sleep(TOGETHER).await;
        last.terminate()?;
        let exit = last.exited(STEP).await?;
        ensure!(exit.code() == Some(0), "a webhook ended with {exit}: {}", last.tail(20));
        tokio::time::sleep(TOGETHER).await;
    }
    let tally = load.end("turns").await?;
    let failed = rig.plane.failed_open("").await? - before;
    eprintln!(
        "without hooks {bare:.0} pods/s; {} pods at {:.0}/s over {TURNS} restarts: {failed} unanswered, {} without a hint; \
         p50 {:?}, p99 {:?}, max {:?}",
        tally.took.len(),
        bare / 4.0,
        tally.without.len(),
        tally.percentile(50),
        tally.percentile(99),
        tally.percentile(100),
    );
    ensure!(failed == 0, "the API server went on without an answer {failed} times");
    tally.all_hinted()
}
