//! Certificates of replicas without files are issued and renewed by another process, without interruption.
//!
//! The hooks are those that kustomize ships, but for the address, which is that of a simulated Service.
//!
//! The hint's budget is 1 s here, not the 5 ms that it is by default: this machine runs the API server, etcd, the
//! clients and two unoptimised webhooks on its few cores beside other tests, and a hint that is late for lack of CPU
//! says nothing about a certificate.

use super::service::{Service, in_git};
use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install};
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{bad_pool, hint, pod, pools};
use napkeeper_tests::webhook::load::{Load, rate_without_hooks};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_secs(90);
/// Lives in seconds: an authority is due after 60, a leaf after 20. The 10 that remain suffice for what may be between: a
/// new authority propagates for 3, a check of the Secrets is due every 1.5, and of a replica every 5.
const AUTHORITY: u64 = 90;
const LEAF: u64 = 30;
/// How long pods go on being created after the last renewal that is waited for.
const AFTERWARDS: Duration = Duration::from_secs(5);
const CA_SECRET: &str = "napkeeper-webhook-ca";
const TLS_SECRET: &str = "napkeeper-webhook-tls";
const MANAGER: &str = "napkeeper-webhook-ca";
const KINDS: [&str; 2] = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];

struct Replica {
    process: Process,
    admission: SocketAddr,
    health: String,
    metrics: String,
}

struct Rig {
    plane: ControlPlane,
    service: Service,
    http: reqwest::Client,
}

impl Rig {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(Mode::Api).await?;
        // No controller creates it here.
        plane.kubectl(&["create", "serviceaccount", "default", "--namespace=default"]).await?;
        install(&plane, "provisioner").await?;
        plane.apply(&pools()?).await?;
        plane.create_node("system-0", "1", "2Gi").await?;
        let http = reqwest::Client::builder().no_proxy().timeout(STEP).build()?;
        Ok(Self { plane, service: Service::start().await?, http })
    }

    async fn spawn(&self) -> Result<Replica> {
        let kubeconfig = self.plane.service_account_kubeconfig(NAMESPACE, "napkeeper-webhook").await?;
        let program =
            webhook::program(&kubeconfig, "127.0.0.1:0", None)?.args(["--region=westeurope", "--hint-budget=1s"]);
        let Listening { process, admission, health, metrics } = webhook::listening(&program).await?;
        Ok(Replica { admission: admission.parse()?, health, metrics, process })
    }

    /// Starts `napkeeper certificates`, with the rights that it ships with.
    async fn issuer(&self) -> Result<Process> {
        let kubeconfig = self.plane.service_account_kubeconfig(NAMESPACE, "napkeeper-certificates").await?;
        let program = webhook::certificates(&kubeconfig)?.args([
            format!("--tls-san={}", self.service.address.ip()),
            format!("--authority-life={AUTHORITY}"),
            format!("--certificate-life={LEAF}"),
            "--settle=3".to_owned(),
        ]);
        let process = Process::spawn("certificates", &program)?;
        process.line("maintaining certificates", STEP).await?;
        Ok(process)
    }

    /// The data of a Secret, in base64.
    async fn data(&self, secret: &str) -> Result<BTreeMap<String, String>> {
        let read = ["get", "secret", secret, "--namespace", NAMESPACE, "--output=jsonpath={.data}"];
        let text = self.plane.kubectl(&read).await?;
        Ok(if text.is_empty() { BTreeMap::new() } else { serde_json::from_str(&text)? })
    }

    /// Replaces it.
    async fn set_data(&self, secret: &str, data: &BTreeMap<String, String>) -> Result<()> {
        let patch = json!([{ "op": "add", "path": "/data", "value": data }]).to_string();
        let patch = format!("--patch={patch}");
        let args = ["patch", "secret", secret, "--namespace", NAMESPACE, "--type=json", &patch];
        self.plane.kubectl(&args).await.map(drop)
    }

    async fn ready(&self, replica: &Replica) -> Result<()> {
        let ready = format!("http://{}/readyz", replica.health);
        eventually("readiness", STEP, async || {
            let answer = self.http.get(&ready).send().await;
            Ok(answer.is_ok_and(|a| a.status().is_success()).then_some(()))
        })
        .await
    }

    /// The sum of a replica's samples of a metric whose labels contain this.
    async fn metric(&self, replica: &Replica, name: &str, labels: &str) -> Result<u64> {
        let text = self.http.get(format!("http://{}/metrics", replica.metrics)).send().await?.text().await?;
        let samples = text.lines().filter(|line| line.starts_with(name) && line.contains(labels));
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    async fn configuration(&self, kind: &str) -> Result<Value> {
        let text = self.plane.kubectl(&["get", kind, "napkeeper", "--output=json", "--show-managed-fields"]).await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// How many authorities each hook trusts.
    async fn bundles(&self) -> Result<[String; 2]> {
        let mut found = [String::new(), String::new()];
        for (kind, bundle) in KINDS.iter().zip(&mut found) {
            let hook = &self.configuration(kind).await?["webhooks"][0];
            *bundle = hook["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned();
        }
        Ok(found)
    }

    /// Creates a pod by dry-run; returns whether it got a hint.
    async fn hinted(&self) -> Result<bool> {
        let api: Api<Pod> = Api::namespaced(self.plane.client().await?, "default");
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let admitted = api.create(&params, &serde_json::from_value(pod("default", "web"))?).await?;
        Ok(hint(&admitted).is_some())
    }
}

/// The fields that a manager owns, as paths.
fn owned(object: &Value, manager: &str) -> Vec<String> {
    fn walk(at: &str, fields: &Value, found: &mut Vec<String>) {
        for (key, inside) in fields.as_object().into_iter().flatten() {
            let path = format!("{at}/{key}");
            if inside.as_object().is_none_or(serde_json::Map::is_empty) {
                found.push(path);
            } else {
                walk(&path, inside, found);
            }
        }
    }
    let mut found = Vec::new();
    let all = object["metadata"]["managedFields"].as_array();
    for entry in all.into_iter().flatten().filter(|entry| entry["manager"] == manager) {
        walk("", &entry["fieldsV1"], &mut found);
    }
    found
}

/// We own only the bundle, and a sync from Git neither sees nor removes it; nor the content of the Secrets.
async fn git_and_we_share(rig: &Rig, git: &str) -> Result<()> {
    for kind in KINDS {
        let object = rig.configuration(kind).await?;
        let fields = owned(&object, MANAGER);
        let is_caller = fields.iter().all(|path| {
            let path = path.trim_start_matches("/f:webhooks/k:{\"name\":\"");
            let path = path.split_once("\"}/").map_or(path, |(_, rest)| rest);
            ["f:clientConfig/f:caBundle", "f:name", "."].contains(&path)
        });
        ensure!(is_caller && fields.iter().any(|path| path.ends_with("f:caBundle")), "{kind}: {fields:?}");
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), git)?;
    let file = file.path().display().to_string();
    let before = rig.bundles().await?;
    for manager in ["argocd-controller", "kustomize-controller"] {
        let manager = format!("--field-manager={manager}");
        // Flux takes fields from others, Argo CD may.
        for more in [&[][..], &["--force-conflicts"]] {
            let apply = ["apply", "--server-side", &manager, "--filename", &file];
            rig.plane.kubectl(&[&apply, more].concat()).await?;
        }
        // It fails when there is a difference.
        rig.plane.kubectl(&["diff", "--server-side", &manager, "--filename", &file]).await?;
    }
    rig.plane.kubectl(&["apply", "--filename", &file]).await?;
    rig.plane.kubectl(&["diff", "--filename", &file]).await?;
    for secret in [CA_SECRET, TLS_SECRET] {
        ensure!(rig.data(secret).await?.contains_key("tls.crt"), "a sync took the content of {secret} away");
    }
    let after = rig.bundles().await?;
    let renewed = after != before && after.iter().all(|bundle| !bundle.is_empty());
    ensure!(after == before || renewed, "a sync took the bundles away");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_issued_and_renewed_without_interruption() -> Result<()> {
    let rig = Rig::start().await?;
    let bare = rate_without_hooks(&rig.plane).await?;
    let git = in_git(rig.service.address)?;
    rig.plane.apply(&git).await?;
    let (one, two) = (rig.spawn().await?, rig.spawn().await?);
    one.process.line("is `napkeeper certificates` running?", STEP).await?;
    let unready = rig.http.get(format!("http://{}/readyz", one.health)).send().await?.status();
    ensure!(unready == 503, "it is ready without a certificate: {unready}");
    let start = Instant::now();
    let issuer = rig.issuer().await?;
    rig.ready(&one).await?;
    rig.ready(&two).await?;
    eprintln!("two replicas were ready {} ms after the start of certificates", start.elapsed().as_millis());
    rig.service.lead_to([one.admission, two.admission]);
    eventually("a hint", STEP, async || Ok(rig.hinted().await?.then_some(()))).await?;
    git_and_we_share(&rig, &git).await?;
    a_refusal_is_one_line_of_the_log(&rig, &[&one, &two]).await?;
    ensure!(
        one.process.listening_ports()? >= 3 && issuer.listening_ports()? == 0,
        "the issuer of certificates listens"
    );

    // From here on nothing may fail open.
    let before = rig.plane.failed_open("").await?;
    let Renewed { replicas, issuer } = renewals(&rig, (one, two), issuer, bare).await?;
    lost_secrets_are_filled_again(&rig).await?;
    let (replicas, issuer) = an_older_version_is_updated(&rig, replicas, issuer).await?;
    let failed = rig.plane.failed_open("").await? - before;
    ensure!(failed == 0, "the API server went on without an answer {failed} times");
    let offered = [0, 1].map(|n: usize| rig.service.offered[n].load(Ordering::SeqCst));
    eprintln!("connections that offered HTTP/2: {}, that did not: {}", offered[0], offered[1]);
    ensure!(offered[0] == 0 && offered[1] > 0, "it is not spoken to as a Service is: {offered:?}");
    for process in replicas.into_iter().map(|replica| replica.process).chain([issuer]) {
        ends(&process).await?;
    }
    Ok(())
}

/// The text that some base64 has.
fn pem(base64: &str) -> Result<String> {
    let bytes: ByteString = serde_json::from_value(json!(base64))?;
    Ok(String::from_utf8(bytes.0)?)
}

/// Stops a process and checks its log.
async fn ends(process: &Process) -> Result<()> {
    let lines = process.lines().join("\n");
    ensure!(!lines.contains("PRIVATE") && !lines.contains("LS0tLS1CRUdJTi"), "a key is in the log: {lines}");
    process.terminate()?;
    let exit = process.exited(STEP).await?;
    ensure!(exit.code() == Some(0), "a process ended with {exit}: {}", process.tail(20));
    Ok(())
}

/// Creates pods, all of which must get a hint, until something has come about, and 8 s longer, so that replicas have taken
/// up a new leaf.
async fn hinted_until(rig: &Rig, what: &str, done: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    let (mut created, mut without, mut done_at) = (0, 0, None);
    while done_at.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(8)) {
        created += 1;
        without += u64::from(!rig.hinted().await?);
        if done_at.is_none() && done().await? {
            done_at = Some(Instant::now());
        }
        ensure!(done_at.is_some() || start.elapsed() < STEP, "{what}: it does not come about");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eprintln!("{what}: {created} pods, {without} without a hint");
    ensure!(without == 0, "{what}: {without} of {created} pods have no hint");
    Ok(())
}

/// True if the Secret with the key has all of it, of another authority than this, and the other has its leaf alone.
async fn has_new_authority(rig: &Rig, old: &BTreeMap<String, String>) -> Result<bool> {
    let (all, leaf) = (rig.data(CA_SECRET).await?, rig.data(TLS_SECRET).await?);
    let keys: Vec<_> = all.keys().map(String::as_str).collect();
    if keys != ["ca.crt", "ca.key", "tls.crt", "tls.key"] || leaf.get("tls.crt") != all.get("tls.crt") {
        return Ok(false);
    }
    ensure!(all.get("ca.crt") != old.get("ca.crt"), "the lost authority is back");
    let keys: Vec<_> = leaf.keys().map(String::as_str).collect();
    ensure!(keys == ["tls.crt", "tls.key"], "the webhook may read {keys:?}");
    Ok(true)
}

/// As when Secrets are replaced by those in Git. The old authority is kept while it may be needed.
async fn lost_secrets_are_filled_again(rig: &Rig) -> Result<()> {
    let old = rig.data(CA_SECRET).await?;
    rig.set_data(CA_SECRET, &BTreeMap::new()).await?;
    hinted_until(rig, "the Secret with the CA key is lost", async || has_new_authority(rig, &old).await).await?;
    rig.set_data(TLS_SECRET, &BTreeMap::new()).await?;
    hinted_until(rig, "the Secret of the webhook is lost", async || Ok(rig.data(TLS_SECRET).await?.len() == 2)).await
}

/// An older version has all of it in the Secret that the webhook reads.
async fn an_older_version_is_updated(
    rig: &Rig,
    replicas: [Replica; 2],
    issuer: Process,
) -> Result<([Replica; 2], Process)> {
    ends(&issuer).await?;
    let old = rig.data(CA_SECRET).await?;
    rig.set_data(TLS_SECRET, &old).await?;
    rig.set_data(CA_SECRET, &BTreeMap::new()).await?;
    let [one, two] = replicas;
    let new = rig.spawn().await?;
    rig.ready(&new).await?;
    rig.service.lead_to([new.admission, two.admission]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    ends(&one.process).await?;
    let served = old.get("tls.crt").cloned();
    let issuer = rig.issuer().await?;
    eventually("a Secret without the CA key", STEP, async || {
        let data = rig.data(TLS_SECRET).await?;
        ensure!(data.contains_key("tls.crt"), "the older leaf is lost");
        Ok((!data.contains_key("ca.key") && data.get("tls.crt") == served.as_ref()).then_some(()))
    })
    .await?;
    hinted_until(rig, "the update of an older version", async || has_new_authority(rig, &old).await).await?;
    let authorities = pem(old.get("ca.crt").context("no authority")?)?;
    let newest = authorities.rfind("-----BEGIN").map(|at| authorities[at..].trim()).context("no certificate")?;
    for bundle in rig.bundles().await? {
        let bundle = pem(&bundle)?;
        ensure!(
            bundle.contains(newest) && bundle.trim() != newest,
            "the older authority is not trusted beside the new one"
        );
    }
    Ok(([new, two], issuer))
}

/// Who, what and why, and nothing of the object.
async fn a_refusal_is_one_line_of_the_log(rig: &Rig, replicas: &[&Replica]) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bad_pool("spoiled")?)?;
    let file = file.path().display().to_string();
    let answer = rig.plane.kubectl(&["create", "--filename", &file]).await;
    ensure!(answer.as_ref().is_err_and(|e| format!("{e:#}").contains("NK3007")), "{answer:?}");
    let lines: Vec<_> = replicas.iter().flat_map(|replica| replica.process.lines()).collect();
    let about: Vec<_> = lines.iter().filter(|line| line.contains("spoiled")).collect();
    ensure!(about.len() == 1, "{about:?}");
    for part in ["write denied", "NK3007", "NodePool", "CREATE", "user=\"admin\""] {
        ensure!(about[0].contains(part), "{part} is not in {about:?}");
    }
    ensure!(!about[0].contains("99 8"), "the object is in the log: {about:?}");
    let mut denials = 0;
    for replica in replicas {
        denials += rig.metric(replica, "napkeeper_admission_denials_total", "NK3007").await?;
    }
    ensure!(denials == 1, "{denials} denials are counted");
    Ok(())
}

/// What runs after the renewals.
struct Renewed {
    replicas: [Replica; 2],
    issuer: Process,
}

/// Pods at a quarter of the rate that the API server has without hooks, over several leaves and two authorities, with
/// one replica, and the process that issues, replaced by another.
async fn renewals(rig: &Rig, (one, two): (Replica, Replica), issuer: Process, bare: f64) -> Result<Renewed> {
    let start = Instant::now();
    let (mut leaves, mut seen) = (BTreeSet::new(), Vec::<usize>::new());
    let mut third = None;
    let load = Load::start(&rig.plane, bare / 4.0, "renewals", &[]).await?;
    let grew = |seen: &[usize]| seen.windows(2).any(|pair| pair[1] > pair[0] * 3 / 2);
    let shrank = |seen: &[usize]| seen.windows(2).any(|pair| pair[1] * 3 / 2 < pair[0]);
    while !(leaves.len() >= 3 && grew(&seen) && shrank(&seen) && third.is_some())
        && start.elapsed() < Duration::from_secs(2 * AUTHORITY)
    {
        tokio::time::sleep(Duration::from_millis(500)).await;
        leaves.insert(rig.metric(&two, "napkeeper_tls_certificate_expiry", "").await?);
        let trusted = rig.bundles().await?[0].len();
        if seen.last() != Some(&trusted) {
            seen.push(trusted);
        }
        if third.is_none() && start.elapsed() > Duration::from_secs(AUTHORITY / 3) {
            let new = rig.spawn().await?;
            rig.ready(&new).await?;
            rig.service.lead_to([two.admission, new.admission]);
            // As a pod's preStop has it.
            tokio::time::sleep(Duration::from_secs(1)).await;
            ends(&one.process).await?;
            let next = rig.issuer().await?;
            ends(&issuer).await?;
            third = Some((new, next));
        }
    }
    tokio::time::sleep(AFTERWARDS).await;
    let (third, issuer) = third.context("no replica was replaced")?;
    let tally = load.end("renewals").await?;
    eprintln!(
        "without hooks {bare:.0} pods/s; {} pods at {:.0}/s, {} without a hint; leaves: {}; p50 {:?}, p99 {:?}, max {:?}",
        tally.took.len(),
        bare / 4.0,
        tally.without.len(),
        leaves.len(),
        tally.percentile(50),
        tally.percentile(99),
        tally.percentile(100),
    );
    eprintln!("sizes of the bundle: {seen:?}");
    tally.all_hinted()?;
    ensure!(leaves.len() >= 3, "the leaf was not renewed: {leaves:?}");
    ensure!(grew(&seen) && shrank(&seen), "the authority was not renewed, or the old one not dropped: {seen:?}");
    Ok(Renewed { replicas: [two, third], issuer })
}
