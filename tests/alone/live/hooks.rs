//! A real API server calls the webhook, and proceeds without it.
//!
//! The hooks are those that kustomize ships, but for the address; the webhook has the rights that kustomize gives it.

use crate::alone;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install};
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, certificate, claim, hint, hooks, pod, pools};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const STEP: Duration = Duration::from_secs(90);
/// `timeoutSeconds` of the hooks.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest duration of an unblocked request on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

/// An address that counts connections and never responds.
struct Trap {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl Trap {
    fn set() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Self { url, calls })
    }
}

/// A control plane and what the webhook is started with.
struct Hooked {
    plane: ControlPlane,
    folder: TempDir,
    trap: Trap,
    http: reqwest::Client,
}

/// A webhook that runs.
struct Running {
    process: Process,
    /// From its start until it answers, and until it can hint.
    took: (Duration, Duration),
    admission: String,
    metrics: String,
}

impl Hooked {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(Mode::Full).await?;
        install(&plane, "provisioner").await?;
        let http = reqwest::Client::builder().no_proxy().timeout(STEP).build()?;
        Ok(Self { plane, folder: tempfile::Builder::new().prefix("hooks-").tempdir()?, trap: Trap::set()?, http })
    }

    /// Starts the webhook and waits until it answers.
    async fn webhook(&self, bind: &str, region: Option<&str>) -> Result<Running> {
        let start = Instant::now();
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let kubeconfig = self.plane.service_account_kubeconfig(NAMESPACE, "napkeeper-webhook").await?;
        let region = region.map(|region| format!("--region={region}"));
        let mut program = webhook::program(&kubeconfig, bind, Some(self.folder.path()))?.args(region);
        program = program.env("AZURE_CLIENT_ID", "client").env("AZURE_TENANT_ID", "tenant");
        program = program.env("AZURE_FEDERATED_TOKEN_FILE", file("token")).env("IDENTITY_HEADER", "secret");
        for name in ["AZURE_AUTHORITY_HOST", "AZURE_POD_IDENTITY_AUTHORITY_HOST", "IDENTITY_ENDPOINT", "MSI_ENDPOINT"] {
            program = program.env(name, &self.trap.url);
        }
        let Listening { process, admission, health, metrics } = webhook::listening(&program).await?;
        let ready = format!("http://{health}/readyz");
        eventually("readiness", STEP, async || {
            let answer = self.http.get(&ready).send().await;
            Ok(answer.is_ok_and(|a| a.status().is_success()).then_some(()))
        })
        .await?;
        let answers = start.elapsed();
        process.line("initial listing of the cluster complete", STEP).await?;
        Ok(Running { process, took: (answers, start.elapsed()), admission, metrics })
    }

    /// Runs kubectl with manifests in a file.
    async fn kubectl(&self, args: &[&str], manifests: &str) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(self.folder.path())?;
        std::fs::write(file.path(), manifests)?;
        let path = file.path().display().to_string();
        self.plane.kubectl(&[args, &["--filename", &path]].concat()).await
    }

    async fn pods(&self, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.plane.client().await?, namespace);
        Ok(api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items)
    }

    /// The sum of the webhook's counter of answers, over samples whose labels contain this.
    async fn answered(&self, webhook: &Running, labels: &str) -> Result<u64> {
        let text = self.http.get(format!("http://{}/metrics", webhook.metrics)).send().await?.text().await?;
        let samples =
            text.lines().filter(|l| l.starts_with("napkeeper_admission_requests_total") && l.contains(labels));
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    /// Creates a pod and deletes it again; returns the admitted pod and the latency.
    async fn admit(&self, name: &str) -> Result<(Pod, Duration)> {
        let api: Api<Pod> = Api::namespaced(self.plane.client().await?, "default");
        let pod = serde_json::from_value(pod("default", name))?;
        let start = Instant::now();
        let admitted = api.create(&PostParams::default(), &pod).await?;
        let took = start.elapsed();
        api.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok((admitted, took))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hooks_deny_and_hint_without_delaying_requests() -> Result<()> {
    let _turn = alone().await;
    let hooked = Hooked::start().await?;
    let ca = certificate(hooked.folder.path())?;
    hooked.plane.apply(&pools()?).await?;
    // Created before the hook, so it was not denied.
    hooked.plane.apply(&bad_pool("old")?).await?;
    // Too small for the pods that want a hint at a new node.
    hooked.plane.create_node("system-0", "1", "2Gi").await?;

    let webhook = hooked.webhook("127.0.0.1:0", Some("westeurope")).await?;
    let (answers, hints) = webhook.took;
    println!("webhook ready: {} ms, knows the cluster: {} ms", answers.as_millis(), hints.as_millis());
    hooked.plane.apply(&hooks(&webhook.admission, &ca)?).await?;
    println!("{}", a_bad_pool_is_refused(&hooked).await?);
    changes_of_pools(&hooked, &webhook).await?;
    println!("{}", a_pool_with_nodes_is_not_deleted(&hooked).await?);
    println!("{}", a_pod_is_hinted(&hooked).await?);
    pods_of_a_deployment_are_hinted(&hooked).await?;
    others_are_left_alone(&hooked, &webhook).await?;

    new_facts_are_used(&hooked, &webhook).await?;

    let address = webhook.admission.clone();
    webhook.process.terminate()?;
    let exit = webhook.process.exited(STEP).await?;
    ensure!(exit.code() == Some(0), "the webhook ended with {exit}: {}", webhook.process.tail(20));
    let took = without_a_webhook_everything_is_admitted(&hooked).await?;
    println!("pod admitted with the webhook ended: {} ms", took.as_millis());

    let webhook = hooked.webhook(&address, None).await?;
    let lines = webhook.process.lines();
    let unread: Vec<_> = lines.iter().filter(|line| line.contains("cannot be understood")).collect();
    ensure!(unread.is_empty(), "what Kubernetes itself makes, such as a DaemonSet's pod: {unread:?}");
    a_region_comes_with_a_node(&hooked, &webhook).await?;
    webhook.process.signal("STOP")?;
    let (admitted, took) = hooked.admit("frozen").await?;
    println!("pod admitted beside a frozen webhook: {} ms", took.as_millis());
    ensure!(hint(&admitted).is_none(), "a frozen webhook cannot hint");
    ensure!(took < TIMEOUT + SLACK, "a frozen webhook held a pod up for {took:?}");
    webhook.process.kill();
    let took = without_a_webhook_everything_is_admitted(&hooked).await?;
    println!("pod admitted with the webhook killed: {} ms", took.as_millis());
    let calls = hooked.trap.calls.load(Ordering::SeqCst);
    ensure!(calls == 0, "the webhook asked {calls} times for an Azure credential");
    Ok(())
}

/// What the controller publishes reaches the webhook, which may read that one ConfigMap, and leaves with it.
async fn new_facts_are_used(hooked: &Hooked, webhook: &Running) -> Result<()> {
    let prices = json!({ "asOf": jiff::Timestamp::now(), "value": { "Standard_D4s_v5": [192_000_000, null] } });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "napkeeper-facts", "namespace": NAMESPACE },
        "data": { "version": "1", "region": "westeurope", "prices": prices.to_string() },
    });
    webhook.process.line("no published facts", STEP).await?;
    hooked.plane.apply(&map.to_string()).await?;
    let line = webhook.process.line("using published facts", STEP).await?;
    ensure!(line.contains("catalogue: embedded,") && line.contains("prices: live"), "{line}");
    let before = webhook.process.lines().len();
    hooked.plane.kubectl(&["delete", "configmap", "napkeeper-facts", "--namespace", NAMESPACE]).await?;
    eventually("the webhook to go back to what is built in", STEP, async || {
        let lines = webhook.process.lines();
        Ok(lines.iter().skip(before).any(|line| line.contains("no published facts")).then_some(()))
    })
    .await
}

/// Without a region pods get no hint, above all not that they are unschedulable.
async fn a_region_comes_with_a_node(hooked: &Hooked, webhook: &Running) -> Result<()> {
    webhook.process.line("unknown region", STEP).await?;
    eventually("question about a pod", STEP, async || {
        let (admitted, _) = hooked.admit("early").await?;
        ensure!(hint(&admitted).is_none(), "a hint without a region: {:?}", hint(&admitted));
        Ok((hooked.answered(webhook, r#"path="/mutate",outcome="passed""#).await? > 0).then_some(()))
    })
    .await?;
    hooked.plane.kubectl(&["label", "node", "system-0", "topology.kubernetes.io/region=westeurope"]).await?;
    eventually("a hint from the second webhook", STEP, async || Ok(hint(&hooked.admit("late").await?.0).map(drop)))
        .await
}

/// The API server notices a new hook within about a second.
async fn a_bad_pool_is_refused(hooked: &Hooked) -> Result<String> {
    let bad = bad_pool("bad")?;
    let error = eventually("refusal", STEP, async || {
        Ok(hooked.kubectl(&["apply", "--dry-run=server"], &bad).await.err().map(|e| format!("{e:#}")))
    })
    .await?;
    for part in ["validate.napkeeper.io", "NK3007 spec.disruption.budgets[0].schedule", "from 0 to 59"] {
        ensure!(error.contains(part), "the refusal does not say {part:?}: {error}");
    }
    for how in [&["create"][..], &["apply"], &["apply", "--server-side"]] {
        let answer = hooked.kubectl(how, &bad).await;
        ensure!(answer.as_ref().is_err_and(|e| format!("{e:#}").contains("NK3007")), "kubectl {how:?}: {answer:?}");
    }
    Ok(error)
}

async fn changes_of_pools(hooked: &Hooked, webhook: &Running) -> Result<()> {
    let good = pools()?.replace("weight: 10", "weight: 11");
    let before = hooked.answered(webhook, r#"path="/validate",outcome="allowed""#).await?;
    hooked.plane.apply(&good).await?;
    let after = hooked.answered(webhook, r#"path="/validate",outcome="allowed""#).await?;
    ensure!(after > before, "nobody asked the webhook about a good change");

    // Metadata and status of a pool that would be refused today.
    let plane = &hooked.plane;
    plane.kubectl(&["annotate", "nodepool", "old", "team=shop"]).await?;
    let status = r#"{"status":{"resources":{"cpu":"2"}}}"#;
    plane.kubectl(&["patch", "nodepool", "old", "--subresource=status", "--type=merge", "--patch", status]).await?;
    let status = plane.kubectl(&["get", "nodepool", "old", "--output=jsonpath={.status.resources.cpu}"]).await?;
    ensure!(status == "2", "the status is {status:?}");
    // Its existing error is allowed, a new one is denied.
    plane.kubectl(&["patch", "nodepool", "old", "--type=merge", "--patch", r#"{"spec":{"weight":12}}"#]).await?;
    let worse = r#"{"spec":{"disruption":{"budgets":[{"nodes":"1","schedule":"0 99 * * *","duration":"1h"}]}}}"#;
    let answer = plane.kubectl(&["patch", "nodepool", "old", "--type=merge", "--patch", worse]).await;
    ensure!(answer.as_ref().is_err_and(|e| format!("{e:#}").contains("NK3007")), "a new mistake: {answer:?}");
    plane.kubectl(&["delete", "nodepool", "old"]).await.map(drop)
}

/// A delete is denied until the number of nodes is acknowledged, and a change warns of the nodes that it replaces.
async fn a_pool_with_nodes_is_not_deleted(hooked: &Hooked) -> Result<String> {
    let claim = claim();
    let plane = &hooked.plane;
    plane.apply(&claim.to_string()).await?;
    let delete = ["delete", "nodepool", "gpu", "--dry-run=server"];
    let refusal = eventually("refusal of a delete", STEP, async || {
        Ok(plane.kubectl(&delete).await.err().map(|e| format!("{e:#}")))
    })
    .await?;
    for part in ["validate.napkeeper.io", "NK9505", "NodePool gpu has 1 node with 0 pods", "delete-acknowledged=1"] {
        ensure!(refusal.contains(part), "the refusal does not say {part:?}: {refusal}");
    }
    let taints = r#"{"spec":{"template":{"spec":{"taints":[{"key":"team","effect":"NoSchedule"}]}}}}"#;
    let change = ["patch", "nodepool", "gpu", "--type=merge", "--dry-run=server", "--patch", taints];
    // kubectl prints warnings to stderr; the request succeeds.
    plane.kubectl(&change).await?;
    plane.kubectl(&["annotate", "nodepool", "gpu", "napkeeper.io/delete-acknowledged=1"]).await?;
    plane.kubectl(&delete).await?;
    plane.kubectl(&["annotate", "nodepool", "gpu", "napkeeper.io/delete-acknowledged-"]).await?;
    plane.kubectl(&["delete", "nodeclaim", "gpu-1"]).await?;
    Ok(refusal)
}

/// A hint may time out on a busy machine; then the pod is created again.
async fn a_pod_is_hinted(hooked: &Hooked) -> Result<Value> {
    let manifest = pod("default", "web").to_string();
    let found = eventually("hint", STEP, async || {
        hooked.kubectl(&["apply"], &manifest).await?;
        let api: Api<Pod> = Api::namespaced(hooked.plane.client().await?, "default");
        let found = hint(&api.get("web").await?);
        if found.is_none() {
            api.delete("web", &DeleteParams::default().grace_period(0)).await?;
        }
        Ok(found)
    })
    .await?;
    ensure!(found["fits"] == "newNode" && found["pool"] == "spot-preferred", "{found}");
    ensure!(found["size"].as_str().is_some_and(|s| s.starts_with("Standard_")), "{found}");
    ensure!(found["zone"].as_str().is_some_and(|z| z.starts_with("westeurope-")), "{found}");
    ensure!(found["capacityType"] == "spot", "{found}");
    ensure!(found["price"].as_u64().is_some_and(|p| p > 0), "{found}");
    ensure!(found["reason"].as_str().is_some_and(|r| r.contains("no node has capacity")), "{found}");

    let whole = [
        "get",
        "pod",
        "web",
        "--namespace=default",
        "--output=jsonpath={.metadata.generation} {.metadata.annotations} {.spec}",
    ];
    let before = hooked.plane.kubectl(&whole).await?;
    let line = hooked.kubectl(&["apply"], &manifest).await?;
    ensure!(line.contains("pod/web unchanged"), "{line}");
    ensure!(hooked.plane.kubectl(&whole).await? == before, "a second apply has changed the pod");
    Ok(found)
}

async fn pods_of_a_deployment_are_hinted(hooked: &Hooked) -> Result<()> {
    let mut template = pod("default", "");
    template["metadata"] = json!({ "labels": { "app": "shop" } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "shop", "namespace": "default" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "shop" } },
            "template": { "metadata": template["metadata"], "spec": template["spec"] },
        },
    });
    hooked.plane.apply(&deployment.to_string()).await?;
    let found = eventually("hint on a Deployment's pod", STEP, async || {
        let pods = hooked.pods("default", "shop").await?;
        let found = pods.iter().find_map(hint);
        if found.is_none() && !pods.is_empty() {
            hooked.plane.kubectl(&["delete", "pod", "--selector=app=shop", "--now"]).await?;
        }
        Ok(found)
    })
    .await?;
    ensure!(found["fits"] == "newNode", "{found}");
    hooked.plane.kubectl(&["delete", "deployment", "shop", "--wait", "--cascade=foreground"]).await.map(drop)
}

async fn others_are_left_alone(hooked: &Hooked, webhook: &Running) -> Result<()> {
    let mut template = pod("default", "");
    template["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "100m" } });
    let daemons = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "agent", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": { "metadata": { "labels": { "app": "agent" } }, "spec": template["spec"] },
        },
    });
    let passed = hooked.answered(webhook, r#"path="/mutate",outcome="passed""#).await?;
    hooked.plane.apply(&daemons.to_string()).await?;
    let agents = eventually("a DaemonSet's pod", STEP, async || {
        Ok(Some(hooked.pods("default", "agent").await?).filter(|pods| !pods.is_empty()))
    })
    .await?;
    ensure!(agents.iter().all(|pod| hint(pod).is_none()), "a DaemonSet's pod has a hint");
    ensure!(hooked.answered(webhook, r#"path="/mutate",outcome="passed""#).await? > passed, "it was not asked");

    let answered = hooked.answered(webhook, r#"path="/mutate""#).await?;
    for namespace in ["kube-system", NAMESPACE] {
        hooked.kubectl(&["apply"], &pod(namespace, "inside").to_string()).await?;
        let pods = hooked.pods(namespace, "inside").await?;
        ensure!(pods.len() == 1 && hint(&pods[0]).is_none(), "a pod in {namespace} has a hint");
    }
    ensure!(
        hooked.answered(webhook, r#"path="/mutate""#).await? == answered,
        "the webhook was asked about system pods"
    );
    Ok(())
}

/// Without a server at the hooks' address, pods and even invalid pools are admitted at once.
async fn without_a_webhook_everything_is_admitted(hooked: &Hooked) -> Result<Duration> {
    let mut fastest = Duration::MAX;
    for n in 0..3 {
        let (admitted, took) = hooked.admit(&format!("alone-{n}")).await?;
        ensure!(hint(&admitted).is_none(), "who has hinted?");
        fastest = fastest.min(took);
    }
    ensure!(fastest < TIMEOUT, "pods wait {fastest:?} for a webhook that is not there");
    hooked.kubectl(&["apply"], &bad_pool("unchecked")?).await?;
    hooked.plane.kubectl(&["delete", "nodepool", "unchecked"]).await?;
    Ok(fastest)
}
