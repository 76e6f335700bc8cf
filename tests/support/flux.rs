//! Flux: the real kustomize-controller, which syncs what a test commits.
//!
//! Artifacts come from the test instead of source-controller, so of the kinds of sources there are only the definitions
//! that kustomize-controller watches.

use crate::control_plane::{ControlPlane, Process, Program, kustomize_controller};
use crate::manifests::repository;
use crate::wait::eventually;
use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The name of the source and, unless told otherwise, of the Kustomization, in the namespace `default`.
const NAME: &str = "pools";
/// The kinds of sources that kustomize-controller watches.
const SOURCES: [(&str, &str); 4] = [
    ("GitRepository", "gitrepositories"),
    ("OCIRepository", "ocirepositories"),
    ("Bucket", "buckets"),
    ("ExternalArtifact", "externalartifacts"),
];
/// When a revision that has failed is tried again. Each try waits a minute for kinds that end in `Class`, whatever the timeout of
/// the Kustomization, and the next revision waits for its end.
const RETRY: &str = "2m";
/// How often a Kustomization checks whether those in its `dependsOn` are ready. Flux's default is 30 s.
const DEPENDENCY: &str = "--requeue-dependency=5s";
const PACKED_WITHIN: Duration = Duration::from_secs(30);
const SYNCED_WITHIN: Duration = Duration::from_secs(120);

type Artifacts = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// The fields of a Kustomization that docs/status.md advises.
///
/// # Errors
/// When the page has no such example.
pub fn documented_checks() -> Result<Value> {
    let text = std::fs::read_to_string(repository("docs/status.md"))?;
    let mut examples = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example =
        examples.find(|example| example.contains("healthCheckExprs")).context("docs/status.md has no example")?;
    let mut fields: Value = serde_saphyr::from_str(example)?;
    Ok(fields["spec"].take())
}

/// kustomize-controller beside a control plane, with one source.
#[derive(Debug)]
pub struct Flux {
    /// Stops when it is dropped.
    pub controller: Process,
    artifacts: Artifacts,
    address: SocketAddr,
    server: JoinHandle<()>,
    commits: usize,
}

impl Drop for Flux {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Flux {
    /// Installs the definitions and starts the controller.
    ///
    /// # Errors
    /// When it cannot be built, or the API server refuses a definition.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let built = kustomize_controller().await?;
        let sources: Vec<String> = SOURCES.iter().map(|(kind, plural)| definition(kind, plural).to_string()).collect();
        plane.apply(&format!("{}\n---\n{}", built.definitions, sources.join("\n---\n"))).await?;
        plane.established().await?;
        let artifacts = Artifacts::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listening for kustomize-controller")?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/{name}", axum::routing::get(artifact)).with_state(artifacts.clone());
        let server = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        let program = Program::new(built.program)
            .args([
                "--metrics-addr=127.0.0.1:0",
                "--health-addr=127.0.0.1:0",
                "--enable-leader-election=false",
                DEPENDENCY,
            ])
            .env("KUBECONFIG", plane.admin_kubeconfig())
            .env("RUNTIME_NAMESPACE", "default");
        let controller = Process::spawn("kustomize-controller", &program)?;
        Ok(Self { controller, artifacts, address, server, commits: 0 })
    }

    /// Has a revision with these manifests synced, by a Kustomization with these fields beside those that all have; the
    /// revision.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn commit(&mut self, plane: &ControlPlane, manifests: &str, fields: &Value) -> Result<String> {
        let tree = tempfile::Builder::new().prefix("tree-").tempdir_in(plane.folder())?;
        std::fs::write(tree.path().join("manifests.yaml"), manifests)?;
        self.commit_tree(plane, tree.path(), &[(NAME, fields.clone())]).await
    }

    /// As [`Flux::commit`], with all that a folder holds, by Kustomizations of these names.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn commit_tree(
        &mut self,
        plane: &ControlPlane,
        tree: &Path,
        kustomizations: &[(&str, Value)],
    ) -> Result<String> {
        self.commits += 1;
        let revision = format!("main@sha1:{:040x}", self.commits);
        let name = format!("{}.tar.gz", self.commits);
        let (archive, digest) = pack(plane, tree).await?;
        let artifact = json!({
            "path": name, "url": format!("http://{}/{name}", self.address), "revision": revision, "digest": digest,
            "size": archive.len(), "lastUpdateTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        self.artifacts.lock().unwrap_or_else(PoisonError::into_inner).insert(name, archive.into());
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": NAME, "namespace": "default" }, "spec": {},
        });
        plane.apply(&source.to_string()).await?;
        let patch = format!("--patch={}", json!({ "status": { "artifact": artifact } }));
        // The artifact comes first: with new fields the last revision would be tried once more.
        plane.kubectl(&["patch", "gitrepository", NAME, "--subresource=status", "--type=merge", &patch]).await?;
        let all: Vec<String> = kustomizations.iter().map(|(name, fields)| kustomization(name, fields)).collect();
        plane.apply(&all.join("\n---\n")).await?;
        Ok(revision)
    }

    /// Has the last revision synced once more, as after an interval. `n` is another one each time.
    ///
    /// # Errors
    /// When the API server does not answer, or it takes longer than two minutes.
    pub async fn sync_again(&self, plane: &ControlPlane, n: usize) -> Result<()> {
        let request = format!("reconcile.fluxcd.io/requestedAt={n}");
        plane.kubectl(&["annotate", "--overwrite", "kustomization", NAME, &request]).await?;
        let handled = ["get", "kustomization", NAME, "--output=jsonpath={.status.lastHandledReconcileAt}"];
        eventually("another sync", SYNCED_WITHIN, async || {
            Ok((plane.kubectl(&handled).await?.trim() == n.to_string()).then_some(()))
        })
        .await
    }

    /// The condition `Ready` of the Kustomization, if it is about this revision.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn ready(&self, plane: &ControlPlane, revision: &str) -> Result<Option<Value>> {
        self.ready_of(plane, NAME, revision).await
    }

    /// The same of a Kustomization by its name.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn ready_of(&self, plane: &ControlPlane, name: &str, revision: &str) -> Result<Option<Value>> {
        let text = plane.kubectl(&["get", "kustomization", name, "--output=json"]).await?;
        let object: Value = serde_json::from_str(&text)?;
        let status = &object["status"];
        if status["lastAttemptedRevision"] != revision {
            return Ok(None);
        }
        let ready = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "Ready");
        Ok(ready.filter(|ready| ready["status"] != "Unknown").cloned())
    }
}

/// A Kustomization of the source with these fields beside those that all have.
fn kustomization(name: &str, fields: &Value) -> String {
    let mut kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "interval": "10m", "retryInterval": RETRY, "path": "./", "prune": true,
            "sourceRef": { "kind": "GitRepository", "name": NAME },
        },
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        kustomization["spec"][field] = value.clone();
    }
    kustomization.to_string()
}

/// A definition that takes every object of a kind of source.
fn definition(kind: &str, plural: &str) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.source.toolkit.fluxcd.io") },
        "spec": {
            "group": "source.toolkit.fluxcd.io", "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "properties": { "spec": any, "status": any },
                } },
            }],
        },
    })
}

async fn artifact(State(artifacts): State<Artifacts>, UrlPath(name): UrlPath<String>) -> Result<Bytes, StatusCode> {
    let all = artifacts.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(&name).cloned().ok_or(StatusCode::NOT_FOUND)
}

/// An archive with all that a folder holds, and its digest.
async fn pack(plane: &ControlPlane, tree: &Path) -> Result<(Vec<u8>, String)> {
    let folder = tempfile::Builder::new().prefix("artifact-").tempdir_in(plane.folder())?;
    let command = "tar -C \"$0\" -czf archive . && sha256sum archive";
    let program = Program::new("sh").args(["-c", command]).args([tree]).in_folder(folder.path());
    let packing = Process::spawn("tar", &program)?;
    let exit = packing.exited(PACKED_WITHIN).await?;
    ensure!(exit.success(), "packing manifests failed: {}", packing.tail(5));
    let line = packing.lines().into_iter().next().context("sha256sum prints nothing")?;
    let digest = line.split_whitespace().next().context("sha256sum prints no digest")?;
    Ok((std::fs::read(folder.path().join("archive"))?, format!("sha256:{digest}")))
}
