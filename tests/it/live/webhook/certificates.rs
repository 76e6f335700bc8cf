//! Replicas without certificates issue and renew them without interruption.
//!
//! The hooks are those that kustomize ships, but for the address: a Service is simulated by a proxy to one replica
//! after the other. It listens at an address that is not the loopback's: only then does the API server
//! speak HTTP/1.1, as it does to every Service.
//!
//! The hint's budget is 1 s here, not the 5 ms that it is by default: this machine runs the API server, etcd, the
//! clients and two unoptimised webhooks on its few cores beside other tests, and a hint that is late for lack of CPU
//! says nothing about a certificate.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use napkeeper_api::yaml;
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{HTTP1_ADDRESS, bad_pool, hint, pod, pools};
use napkeeper_tests::webhook::load::{Load, rate_without_hooks};
use napkeeper_tests::webhook::{self, Listening};
use rustls::server::Acceptor;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

const STEP: Duration = Duration::from_secs(90);
/// Lives in seconds: an authority is due after 40, a leaf after 16.
const AUTHORITY: u64 = 60;
const LEAF: u64 = 24;
/// How long pods go on being created after the last renewal that is waited for.
const AFTERWARDS: Duration = Duration::from_secs(5);
const MANAGER: &str = "napkeeper-webhook-ca";
const KINDS: [&str; 2] = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];

/// Simulates a Service: forwards connections to ready replicas in turn.
#[derive(Clone)]
struct Service {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    /// Connections that offered HTTP/2, and that did not.
    offered: Arc<[AtomicUsize; 2]>,
}

impl Service {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind((HTTP1_ADDRESS, 0)).await?;
        let service = Self {
            address: listener.local_addr()?,
            replicas: Arc::default(),
            offered: Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]),
        };
        let shared = service.clone();
        tokio::spawn(async move {
            let mut turn = 0_usize;
            while let Ok((stream, _)) = listener.accept().await {
                let replicas = shared.replicas.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let Some(to) = replicas.get(turn % replicas.len().max(1)).copied() else { continue };
                turn += 1;
                let offered = Arc::clone(&shared.offered);
                tokio::spawn(async move { pass(stream, to, &offered).await.ok() });
            }
        });
        Ok(service)
    }

    fn lead_to(&self, replicas: &[&Replica]) {
        *self.replicas.lock().unwrap_or_else(PoisonError::into_inner) = replicas.iter().map(|r| r.admission).collect();
    }
}

async fn pass(mut from: TcpStream, to: SocketAddr, offered: &[AtomicUsize; 2]) -> Result<()> {
    let mut to = TcpStream::connect(to).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let (hello, http2) = first_message(&mut from).await?;
    offered[usize::from(!http2)].fetch_add(1, Ordering::SeqCst);
    to.write_all(&hello).await?;
    copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

/// A client's first message, which is not yet encrypted, and whether it offers HTTP/2. It is read as what it is: among
/// the random bytes of thousands of keys, those of `h2` are found too.
async fn first_message(from: &mut TcpStream) -> Result<(Vec<u8>, bool)> {
    let mut acceptor = Acceptor::default();
    let mut hello = Vec::with_capacity(4096);
    loop {
        let start = hello.len();
        ensure!(from.read_buf(&mut hello).await? > 0, "the client ended before its first message did");
        acceptor.read_tls(&mut &hello[start..])?;
        let accepted = acceptor.accept().map_err(|(error, _)| error)?;
        if let Some(accepted) = accepted {
            let http2 = accepted.client_hello().alpn().is_some_and(|mut all| all.any(|protocol| protocol == b"h2"));
            return Ok((hello, http2));
        }
    }
}

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
        let program = webhook::program(&kubeconfig, "127.0.0.1:0", None)?.args([
            "--region=westeurope".to_owned(),
            "--hint-budget=1s".to_owned(),
            format!("--tls-san={}", self.service.address.ip()),
            format!("--authority-life={AUTHORITY}"),
            format!("--certificate-life={LEAF}"),
            "--settle=3".to_owned(),
        ]);
        let Listening { process, admission, health, metrics } = webhook::listening(&program).await?;
        Ok(Replica { admission: admission.parse()?, health, metrics, process })
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

/// What Git has: the hooks that kustomize ships, called at this address instead of a Service, without a bundle.
fn in_git(address: SocketAddr) -> Result<String> {
    let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
    ensure!(!text.contains("caBundle:"), "caBundle is in Git");
    let read = yaml::read("hooks.yaml", &text);
    let mut all = Vec::new();
    for document in &read.documents {
        let mut object = serde_json::to_value(&document.value)?;
        for hook in object["webhooks"].as_array_mut().context("no hooks")? {
            let path = hook["clientConfig"]["service"]["path"].as_str().context("a hook without a path")?;
            hook["clientConfig"] = json!({ "url": format!("https://{address}{path}") });
        }
        all.push(object.to_string());
    }
    Ok(all.join("\n---\n"))
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

/// We own only the bundle, and a sync from Git neither sees nor removes it.
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
    let after = rig.bundles().await?;
    let renewed = after != before && after.iter().all(|bundle| !bundle.is_empty());
    ensure!(after == before || renewed, "a sync took the bundles away");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_issue_and_renew_their_certificates_without_interruption() -> Result<()> {
    let rig = Rig::start().await?;
    let bare = rate_without_hooks(&rig.plane).await?;
    let git = in_git(rig.service.address)?;
    rig.plane.apply(&git).await?;
    let start = Instant::now();
    let (one, two) = (rig.spawn().await?, rig.spawn().await?);
    rig.ready(&one).await?;
    rig.ready(&two).await?;
    eprintln!("two replicas without a certificate were ready after {} ms", start.elapsed().as_millis());
    rig.service.lead_to(&[&one, &two]);
    eventually("a hint", STEP, async || Ok(rig.hinted().await?.then_some(()))).await?;
    git_and_we_share(&rig, &git).await?;
    a_refusal_is_one_line_of_the_log(&rig, &[&one, &two]).await?;

    // From here on nothing may fail open.
    let before = rig.plane.failed_open("").await?;
    let both = renewals(&rig, (one, two), bare).await?;
    a_lost_secret_is_recreated(&rig).await?;
    let failed = rig.plane.failed_open("").await? - before;
    ensure!(failed == 0, "the API server went on without an answer {failed} times");
    let offered = [0, 1].map(|n: usize| rig.service.offered[n].load(Ordering::SeqCst));
    eprintln!("connections that offered HTTP/2: {}, that did not: {}", offered[0], offered[1]);
    ensure!(offered[0] == 0 && offered[1] > 0, "it is not spoken to as a Service is: {offered:?}");
    for replica in both {
        let lines = replica.process.lines().join("\n");
        ensure!(!lines.contains("PRIVATE") && !lines.contains("LS0tLS1CRUdJTi"), "a key is in the log: {lines}");
        replica.process.terminate()?;
        let exit = replica.process.exited(STEP).await?;
        ensure!(exit.code() == Some(0), "a webhook ended with {exit}: {}", replica.process.tail(20));
    }
    Ok(())
}

/// As when the Secret is replaced by the one in Git. The old authority is kept while it may be needed.
async fn a_lost_secret_is_recreated(rig: &Rig) -> Result<()> {
    let read =
        ["get", "secret", "napkeeper-webhook-tls", "--namespace", NAMESPACE, "--output=jsonpath={.data.ca\\.crt}"];
    let before = rig.plane.kubectl(&read).await?;
    let remove = ["--type=json", r#"--patch=[{"op":"remove","path":"/data"}]"#];
    rig.plane.kubectl(&[&["patch"], &read[1..5], &remove].concat()).await?;
    let whole = ["tls\\.crt", "tls\\.key", "ca\\.crt", "ca\\.key"].map(|key| format!("{{.data.{key}}} "));
    let template = format!("--output=jsonpath={}", whole.concat());
    let end = Instant::now() + STEP;
    let (mut created, mut without) = (0, 0);
    loop {
        created += 1;
        without += u64::from(!rig.hinted().await?);
        let now = rig.plane.kubectl(&[&read[..5], &[&template]].concat()).await?;
        let parts: Vec<_> = now.split_whitespace().collect();
        if parts.len() == 4 {
            ensure!(parts[2] != before, "the lost authority is back");
            break;
        }
        ensure!(Instant::now() < end, "the Secret is not filled again");
    }
    // The new leaf is taken up.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        created += 1;
        without += u64::from(!rig.hinted().await?);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eprintln!("{created} pods while the Secret was lost and made anew, {without} without a hint");
    ensure!(without == 0, "{without} of {created} pods have no hint");
    Ok(())
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

/// Pods at a quarter of the rate that the API server has without hooks, over several leaves and two authorities, with
/// one replica replaced by another.
async fn renewals(rig: &Rig, (one, two): (Replica, Replica), bare: f64) -> Result<[Replica; 2]> {
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
            rig.service.lead_to(&[&two, &new]);
            // As a pod's preStop has it.
            tokio::time::sleep(Duration::from_secs(1)).await;
            one.process.terminate()?;
            let exit = one.process.exited(STEP).await?;
            ensure!(exit.code() == Some(0), "the webhook ended with {exit}: {}", one.process.tail(20));
            third = Some(new);
        }
    }
    tokio::time::sleep(AFTERWARDS).await;
    let third = third.context("no replica was replaced")?;
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
    Ok([two, third])
}
