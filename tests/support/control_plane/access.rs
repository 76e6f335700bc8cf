//! Clients, kubeconfigs and kubectl of a control plane.

use super::kubeconfig::Credential;
use super::{Binaries, ControlPlane, Identity, RARE_COLLECTIONS};
use crate::manifests::definitions;
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const KUBECTL_WITHIN: Duration = Duration::from_secs(120);
const FAIL_OPEN_COUNT: &str = "apiserver_admission_webhook_fail_open_count{";
/// Who the tests are as a writer of fields.
const FIELD_MANAGER: &str = "napkeeper-tests";

impl ControlPlane {
    /// A client with all rights.
    ///
    /// # Errors
    /// When the client cannot be made; it need not reach the server for that.
    pub async fn client(&self) -> Result<kube::Client> {
        client(&self.admin_kubeconfig()).await
    }

    /// A client with the rights of an identity.
    ///
    /// # Errors
    /// When its certificate cannot be made.
    pub async fn client_of(&self, identity: &Identity) -> Result<kube::Client> {
        client(&self.kubeconfig(identity)?).await
    }

    /// The kubeconfig of a cluster admin.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    /// A kubeconfig with a client certificate of this identity, with the permissions of RBAC.
    ///
    /// # Errors
    /// When the certificate or the file cannot be made.
    pub fn kubeconfig(&self, identity: &Identity) -> Result<PathBuf> {
        let readable = identity.user.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        self.write_identity(&format!("{readable}-{}", uuid()?), identity)
    }

    /// Makes a bootstrap token and lets all holders of one register nodes (create, get, list, patch and delete them).
    /// Returns a kubeconfig with the token.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn bootstrap_kubeconfig(&self) -> Result<PathBuf> {
        let client = self.client().await?;
        let random = uuid()?;
        let (id, secret) = (random[..6].to_owned(), random[6..22].to_owned());
        let token = json!({
            "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": id,
                "token-secret": secret,
                "usage-bootstrap-authentication": "true",
            },
        });
        let secrets = Api::<Secret>::namespaced(client.clone(), "kube-system");
        secrets.create(&PostParams::default(), &typed(token)?).await.context("making a bootstrap token")?;

        let name = "node-bootstrapper";
        let verbs = ["create", "get", "list", "patch", "delete"];
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": name },
            "rules": [{ "apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": verbs }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Group",
                "name": "system:bootstrappers",
            }],
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let roles = Api::<ClusterRole>::all(client.clone());
        roles.patch(name, &params, &Patch::Apply(role)).await.context("letting bootstrap tokens register nodes")?;
        let bindings = Api::<ClusterRoleBinding>::all(client);
        bindings.patch(name, &params, &Patch::Apply(binding)).await.context("binding the role of bootstrap tokens")?;
        self.write_kubeconfig(&format!("bootstrap-{id}"), &Credential::Token(&format!("{id}.{secret}")))
    }

    /// A kubeconfig with a token of an existing ServiceAccount, with the permissions of RBAC.
    ///
    /// # Errors
    /// When the API server gives no token.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token = self.kubectl(&["create", "token", name, "--namespace", namespace]).await?;
        self.write_kubeconfig(&format!("{namespace}-{name}"), &Credential::Token(token.trim()))
    }

    /// True once pods of the namespace `default` can be made: they need its ServiceAccount, which the
    /// controller-manager makes.
    pub async fn has_default_account(&self) -> bool {
        let Ok(client) = self.client().await else { return false };
        Api::<ServiceAccount>::namespaced(client, "default").get("default").await.is_ok()
    }

    /// Runs kubectl with all rights and returns what it writes to stdout.
    ///
    /// # Errors
    /// When it fails, with what it writes to stderr, or does not end in time.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut kubectl = tokio::process::Command::new(self.binaries.path("kubectl")?);
        kubectl.arg("--kubeconfig").arg(self.admin_kubeconfig()).args(args);
        // Its cache of kinds is by address, and another control plane may have had this port.
        kubectl
            .env("KUBECACHEDIR", self.folder().join("kubectl"))
            .env("GOGC", RARE_COLLECTIONS)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(KUBECTL_WITHIN, kubectl.output()).await;
        let output = output.with_context(|| format!("kubectl {args:?} did not end within {KUBECTL_WITHIN:?}"))?;
        let output = output.with_context(|| format!("running kubectl {args:?}"))?;
        if !output.status.success() {
            bail!("kubectl {args:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        String::from_utf8(output.stdout).with_context(|| format!("reading the answer of kubectl {args:?} as text"))
    }

    /// Applies manifests by server-side apply, with strict checks of fields.
    ///
    /// # Errors
    /// When the API server refuses one of them.
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(self.folder()).context("making a file for manifests")?;
        std::fs::write(file.path(), manifests).context("writing manifests")?;
        let path = file.path().display().to_string();
        let manager = format!("--field-manager={FIELD_MANAGER}");
        self.kubectl(&["apply", "--server-side", "--validate=strict", &manager, "--filename", &path]).await
    }

    /// Installs all definitions that ship, and waits until they are served.
    ///
    /// # Errors
    /// When the API server refuses one, or does not serve it in time.
    pub async fn install_definitions(&self) -> Result<()> {
        self.apply(&definitions()?).await?;
        self.established().await
    }

    /// Waits until all definitions that the API server holds are served.
    ///
    /// # Errors
    /// When one is not in time.
    pub async fn established(&self) -> Result<()> {
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await.map(drop)
    }

    /// How often the API server has failed open: for this webhook, or for all if empty.
    ///
    /// # Errors
    /// If it does not report that.
    pub async fn failed_open(&self, webhook: &str) -> Result<usize> {
        let text = self.kubectl(&["get", "--raw", "/metrics"]).await?;
        let name = if webhook.is_empty() { String::new() } else { format!("name=\"{webhook}\"") };
        let samples = text.lines().filter(|line| line.starts_with(FAIL_OPEN_COUNT) && line.contains(&name));
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum())
    }

    /// Makes a Node of this size, which kwok makes Ready in [`ControllerMode::Full`](super::Mode::Full).
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn create_node(&self, name: &str, cpu: &str, memory: &str) -> Result<Node> {
        let size = json!({ "cpu": cpu, "memory": memory, "pods": "110" });
        let node = json!({
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                },
            },
            "status": { "capacity": size, "allocatable": size },
        });
        let nodes = Api::<Node>::all(self.client().await?);
        nodes.create(&PostParams::default(), &typed(node)?).await.with_context(|| format!("making the node {name}"))
    }
}

/// What kustomize makes of a folder. No control plane is needed.
///
/// # Errors
/// When it fails, with what it writes to stderr.
pub async fn kustomize(folder: &Path) -> Result<String> {
    let kubectl = Binaries::find().await?.path("kubectl")?;
    let output = tokio::process::Command::new(kubectl).arg("kustomize").arg(folder).kill_on_drop(true).output();
    let output = output.await.with_context(|| format!("running kubectl kustomize {}", folder.display()))?;
    if !output.status.success() {
        bail!("kubectl kustomize {} failed: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("reading what kustomize makes of {}", folder.display()))
}

async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    // Another test of this process may have chosen already, the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    let config = config.with_context(|| format!("reading {}", kubeconfig.display()))?;
    kube::Client::try_from(config).with_context(|| format!("making a client of {}", kubeconfig.display()))
}

fn typed<T: DeserializeOwned>(object: serde_json::Value) -> Result<T> {
    serde_json::from_value(object).context("reading an object of the harness")
}

/// 32 random hexadecimal digits.
fn uuid() -> Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("asking the kernel for a random id")?;
    Ok(text.trim().replace('-', ""))
}
