//! A webhook that is dead, hangs, is slow, or answers nonsense holds a pod up for its timeout at most.
//!
//! Each case is the hook for pods that kustomize ships, under a name of its own and for pods with its label, so that
//! all are in force at once. Each is tried at the loopback address, to which the API server speaks HTTP/2, and at
//! another one of this machine, to which it speaks HTTP/1.1, as it does to every Service.

use crate::alone;
use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use napkeeper_api::yaml;
use napkeeper_serve::{Certificates, Lifecycle, Limits, bind, serve_tls};
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::manifests::repository;
use napkeeper_tests::wait::eventually;
use napkeeper_tests::webhook::hooks::{HTTP1_ADDRESS, certificate, pod};
use napkeeper_tests::webhook::{self, Listening};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

const STEP: Duration = Duration::from_secs(60);
/// `timeoutSeconds` of the hooks.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How much longer than it has to a pod may take on a machine with much else to do.
const SLACK: Duration = Duration::from_secs(1);
/// What a hook may cost at the median that fails at once.
const AT_ONCE: Duration = Duration::from_millis(100);
const SLOW: Duration = Duration::from_millis(500);

/// A fault of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// No hook matches these pods.
    NoHook,
    Good,
    Killed,
    /// Stopped as by a debugger: the kernel accepts connections, but there is no response.
    Frozen,
    /// Accepts connections and sends nothing, not even the handshake.
    Deaf,
    /// Reads the request and never answers.
    Mute,
    Slow,
    WrongCertificate,
    /// Speaks no TLS.
    Garbage,
    /// Answers with a page.
    Page,
    /// Responds to another request.
    Stranger,
}

const CASES: [Case; 11] = [
    Case::NoHook,
    Case::Good,
    Case::Killed,
    Case::WrongCertificate,
    Case::Garbage,
    Case::Page,
    Case::Stranger,
    Case::Slow,
    Case::Frozen,
    Case::Deaf,
    Case::Mute,
];

impl Case {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn hangs(self) -> bool {
        matches!(self, Self::Frozen | Self::Deaf | Self::Mute)
    }

    fn pods(self) -> usize {
        match self {
            Self::Slow => 5,
            case if case.hangs() => 2,
            _ => 30,
        }
    }

    /// True if the API server proceeds without a response.
    fn fails_open(self) -> bool {
        !matches!(self, Self::NoHook | Self::Good | Self::Slow)
    }

    /// What the median may be.
    fn most(self) -> Duration {
        match self {
            Self::Slow => SLOW + SLACK,
            case if case.hangs() => TIMEOUT + SLACK,
            _ => AT_ONCE,
        }
    }
}

async fn answer(State(case): State<Case>, body: axum::body::Bytes) -> Response {
    let uid = serde_json::from_slice::<Value>(&body).ok().map(|review| review["request"]["uid"].clone());
    let allowed = |uid: Value| {
        let response = json!({ "uid": uid, "allowed": true });
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        axum::Json(review).into_response()
    };
    match case {
        Case::Mute => std::future::pending().await,
        Case::Page => axum::response::Html("<h1>It works!</h1>").into_response(),
        Case::Stranger => allowed(json!("another")),
        Case::Slow => {
            tokio::time::sleep(SLOW).await;
            allowed(uid.unwrap_or_default())
        }
        _ => allowed(uid.unwrap_or_default()),
    }
}

/// Everything that answers, or does not.
struct Rig {
    plane: ControlPlane,
    pods: Api<Pod>,
    folder: tempfile::TempDir,
    other: tempfile::TempDir,
    ca: String,
    processes: Vec<Process>,
    /// Bound and not listening: connections to them are refused, and nobody else gets their ports.
    refusing: Vec<TcpSocket>,
}

impl Rig {
    async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("bad-hooks-").tempdir()?;
        let other = tempfile::Builder::new().prefix("bad-hooks-").tempdir()?;
        let ca = certificate(folder.path())?;
        certificate(other.path())?;
        let plane = ControlPlane::start(Mode::Api).await?;
        let pods = Api::namespaced(plane.client().await?, "default");
        Ok(Self { plane, pods, folder, other, ca, processes: Vec::new(), refusing: Vec::new() })
    }

    /// The webhook that ships, without a cluster.
    async fn shipped(&mut self, ip: IpAddr) -> Result<(SocketAddr, usize)> {
        let program = webhook::program("/nonexistent".as_ref(), &format!("{ip}:0"), Some(self.folder.path()))?;
        let Listening { process, admission, .. } = webhook::listening(&program).await?;
        self.processes.push(process);
        Ok((admission.parse()?, self.processes.len() - 1))
    }

    /// Something at an address that behaves as the case has it.
    async fn behave(&mut self, case: Case, ip: IpAddr) -> Result<SocketAddr> {
        match case {
            Case::Good => Ok(self.shipped(ip).await?.0),
            Case::Killed => {
                let (address, process) = self.shipped(ip).await?;
                self.processes[process].kill();
                let socket = if ip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                socket.bind(address).context("keeping the port of the killed webhook")?;
                self.refusing.push(socket);
                Ok(address)
            }
            Case::Frozen => {
                let (address, process) = self.shipped(ip).await?;
                self.processes[process].signal("STOP")?;
                Ok(address)
            }
            Case::Deaf | Case::Garbage => raw(ip, case == Case::Garbage).await,
            Case::WrongCertificate => tls(ip, case, self.other.path()),
            _ => tls(ip, case, self.folder.path()),
        }
    }

    async fn create(&self, label: &str, name: &str) -> Result<Duration> {
        let mut object = pod("default", name);
        object["metadata"]["labels"]["case"] = json!(label);
        let object = serde_json::from_value(object)?;
        let start = Instant::now();
        self.pods.create(&PostParams::default(), &object).await.with_context(|| format!("a pod beside {label}"))?;
        Ok(start.elapsed())
    }

    /// Creates the pods of a case one after the other and prints how long they took; returns what was not as expected.
    async fn judge(&self, way: &str, case: Case, label: &str) -> Result<Option<String>> {
        let name = format!("{label}.napkeeper.io");
        let before = self.plane.failed_open(&name).await?;
        let mut took = Vec::new();
        for n in 0..case.pods() {
            took.push(self.create(label, &format!("{label}-{n}")).await?);
        }
        let unanswered = self.plane.failed_open(&name).await? - before;
        let half = median(&mut took);
        let [half_ms, most_ms] = [half, took[took.len() - 1]].map(|took| took.as_secs_f64() * 1000.0);
        eprintln!("{way:<10} {:<18} {:>5} {half_ms:>10.1} {most_ms:>10.1} {unanswered:>10}", case.name(), took.len());
        let expected = if case.fails_open() { took.len() } else { 0 };
        let is_wrong = unanswered != expected || half > case.most() || (case.hangs() && half < TIMEOUT - SLACK / 10);
        Ok(is_wrong.then(|| format!("{way} {case:?}: {half:?} at the median, {unanswered} unanswered")))
    }
}

/// A server of TCP alone.
async fn raw(ip: IpAddr, talks: bool) -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind((ip, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if talks {
                stream.write_all(b"220 mail.example.com ready\r\n").await.ok();
            }
            open.push(stream);
        }
    });
    Ok(address)
}

fn tls(ip: IpAddr, case: Case, folder: &Path) -> Result<SocketAddr> {
    let certificates = Certificates::load(&folder.join("tls.crt"), &folder.join("tls.key"), None)?;
    let listener = bind((ip, 0).into())?;
    let address = listener.local_addr()?;
    let router = Router::new().fallback(answer).with_state(case);
    tokio::spawn(
        async move { serve_tls(&Lifecycle::default(), listener, router, Limits::default(), certificates).await },
    );
    Ok(address)
}

/// The hook for pods that kustomize ships, at an address and for pods with a label.
fn hook(label: &str, address: SocketAddr, ca: &str) -> Result<Value> {
    let text = std::fs::read_to_string(repository("kustomize/base/hooks.yaml"))?;
    let read = yaml::read("hooks.yaml", &text);
    let shipped = read.documents.iter().find(|d| d.value["kind"] == "MutatingWebhookConfiguration");
    let mut object = serde_json::to_value(&shipped.context("no hook for pods")?.value)?;
    object["metadata"]["name"] = json!(label);
    let hook = &mut object["webhooks"][0];
    ensure!(hook["failurePolicy"] == "Ignore" && hook["timeoutSeconds"] == TIMEOUT.as_secs(), "{hook}");
    hook["name"] = json!(format!("{label}.napkeeper.io"));
    hook["objectSelector"] = json!({ "matchLabels": { "case": label } });
    let url = format!("https://{address}/mutate");
    hook["clientConfig"] = json!({ "url": url, "caBundle": ByteString(ca.as_bytes().to_vec()) });
    Ok(object)
}

/// In the order of their times: half of the pods took no longer.
fn median(took: &mut [Duration]) -> Duration {
    took.sort();
    took[took.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_broken_webhook_delays_a_pod_for_long() -> Result<()> {
    let _turn = alone().await;
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut rig = Rig::start().await?;
    let ways = [("HTTP/2", IpAddr::V4(Ipv4Addr::LOCALHOST)), ("HTTP/1.1", HTTP1_ADDRESS)];
    let mut all = Vec::new();
    for (way, ip) in &ways {
        for case in CASES {
            let label = format!("{}-{}", case.name(), way.replace(['/', '.'], "").to_lowercase());
            if case != Case::NoHook {
                let address = rig.behave(case, *ip).await?;
                rig.plane.apply(&hook(&label, address, &rig.ca)?.to_string()).await?;
            }
            all.push((*way, case, label));
        }
    }
    // They come into force in their order: when the last one is, all are.
    let mut probes = 0;
    let last = &all.last().context("no case")?.2;
    eventually("the last hook's failure", STEP, async || {
        probes += 1;
        rig.create(last, &format!("probe-{probes}")).await?;
        Ok((rig.plane.failed_open(&format!("{last}.napkeeper.io")).await? > 0).then_some(()))
    })
    .await?;
    eprintln!("{:<10} {:<18} {:>5} {:>10} {:>10} {:>10}", "", "webhook", "pods", "p50 ms", "max ms", "unanswered");
    // Pods beside a webhook that hangs wait and take no CPU: all at once. What fails at once is measured one by one.
    let (hanging, others): (Vec<_>, Vec<_>) = all.iter().partition(|(_, case, _)| case.hangs());
    let mut wrong = join_all(hanging.into_iter().map(|(way, case, label)| rig.judge(way, *case, label))).await;
    for (way, case, label) in others {
        wrong.push(rig.judge(way, *case, label).await);
    }
    let wrong: Vec<String> = wrong.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
