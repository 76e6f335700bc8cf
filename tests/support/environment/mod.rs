//! Environment: a real control plane, the simulated Azure beside it, and napkeeper between them.
//!
//! Everything runs as the programs that ship. The controller speaks to the API server through a [`FaultProxy`] and as
//! the ServiceAccount that kustomize gives it, so that a test sees every request, and checks the permissions.

use crate::azure_roles::{Granted, Scopes, checks_of_log};
use crate::control_plane::{ControlPlane, Mode, Options, Process, Program, kustomize, napkeeper_binary};
use crate::fault_proxy::FaultProxy;
use crate::manifests::repository;
use crate::wait::eventually;
use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub mod state;

/// Token of the simulated Azure.
const TOKEN: &str = "lab-token";
/// The namespace of napkeeper.
pub const NAMESPACE: &str = "napkeeper-system";
/// Selects the Nodes of system pools.
const SYSTEM_NODES: &str = "kubernetes.azure.com/mode=system";
/// How many times faster than in Azure VMs come and go.
const SPEED: &str = "20";
/// Programs start within this time, on a busy machine too.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// A cluster with the simulated Azure.
#[derive(Debug)]
pub struct Environment {
    /// Stops when it is dropped.
    _azure: Process,
    /// URL of the simulated Azure.
    pub azure_url: String,
    /// The node resource group, as an id.
    pub group: String,
    /// The cluster, as an id.
    cluster: String,
    /// Between the controller and the API server.
    pub proxy: FaultProxy,
    /// The control plane.
    pub plane: ControlPlane,
    folder: TempDir,
    offset: SignedDuration,
    http: reqwest::Client,
    /// Which overlay of kustomize gives the rights.
    mode: &'static str,
}

impl Environment {
    /// Starts an environment with the definitions and rights of an overlay of kustomize, `provisioner` or `companion`.
    /// What runs in the cluster as a pod in earnest runs here as a process, so Deployments and hooks are left out.
    ///
    /// # Errors
    /// When a program is missing or does not start.
    pub async fn start(mode: &'static str) -> Result<Self> {
        Self::start_with_definitions(mode, "").await
    }

    /// As [`Environment::start`], with definitions installed before.
    ///
    /// # Errors
    /// As there, or when the definitions are refused.
    pub async fn start_with_definitions(mode: &'static str, definitions: &str) -> Result<Self> {
        let mut env = Self::empty(Options::of(Mode::Full), environment_folder()?, mode, definitions).await?;
        install(&env.plane, mode).await?;
        let token = env.plane.kubectl(&["create", "token", "napkeeper-controller", "--namespace", NAMESPACE]).await?;
        let ca = std::fs::read(env.plane.ca_certificate())?;
        env.proxy = FaultProxy::start(&env.plane.server(), &ca, token.trim()).await?;
        write_config(env.folder.path(), &env.group, &env.cluster)?;
        env.system_node_is_ready().await?;
        Ok(env)
    }

    /// An environment in which nothing of napkeeper is installed: nobody can speak through its proxy.
    pub(crate) async fn empty(
        options: Options,
        folder: TempDir,
        mode: &'static str,
        definitions: &str,
    ) -> Result<Self> {
        // Another test of this process may have done it before.
        drop(rustls::crypto::ring::default_provider().install_default());
        let plane = ControlPlane::start_with(options).await?;
        if !definitions.is_empty() {
            plane.apply(definitions).await?;
        }
        let http = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
        let (azure, output) = start_azure(&plane, folder.path(), SPEED).await?;
        let text = |key: &str| output[key].as_str().map(ToOwned::to_owned).context("azure-sim says too little");
        let (azure_url, group, cluster) = (text("url")?, text("group")?, text("cluster")?);
        let proxy = FaultProxy::start(&plane.server(), &std::fs::read(plane.ca_certificate())?, "").await?;
        let offset = SignedDuration::ZERO;
        Ok(Self { _azure: azure, azure_url, group, cluster, proxy, plane, folder, offset, http, mode })
    }

    pub(crate) async fn system_node_is_ready(&self) -> Result<()> {
        let ready = ["wait", "--for=condition=Ready", "node", "--selector", SYSTEM_NODES, "--timeout=60s"];
        let is_ready = async || Ok(self.plane.kubectl(&ready).await.ok());
        eventually("ready Node of the system pool", STARTS_WITHIN, is_ready).await.map(drop)
    }

    /// Starts the controller. A restarted one has the same identity: it need not wait for its own Lease to expire.
    ///
    /// # Errors
    /// When the program is missing or old.
    pub fn controller(&self) -> Result<Process> {
        self.replica("lab")
    }

    /// Starts a controller of this identity.
    ///
    /// # Errors
    /// When the program is missing or old.
    pub fn replica(&self, identity: &str) -> Result<Process> {
        self.replica_configured_as(self, identity)
    }

    /// Starts a controller of this identity with the configuration and the Azure of another environment.
    ///
    /// # Errors
    /// When the program is missing or old.
    pub fn replica_configured_as(&self, other: &Self, identity: &str) -> Result<Process> {
        let file = |name: &str| other.folder.path().join(name).display().to_string();
        let kubeconfig = self.proxy.kubeconfig(self.folder.path())?;
        let args = [
            "controller".to_owned(),
            format!("--mode={}", self.mode),
            format!("--config={}", file("napkeeper.yaml")),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--azure-endpoint={}", other.azure_url),
            format!("--azure-token-file={}", file("token")),
            format!("--time-offset-file={}", file("offset")),
            "--health-bind=127.0.0.1:0".to_owned(),
            "--metrics-bind=127.0.0.1:0".to_owned(),
            format!("--identity={identity}"),
            "--log-format=text".to_owned(),
            "--log-level=info,napkeeper=debug".to_owned(),
        ];
        Process::spawn("controller", &Program::new(napkeeper_binary()?).args(args))
    }

    /// Has VMs join the cluster with bootstrap tokens, as on Azure itself, and be billed by AKS. A controller that runs
    /// already does not know of it.
    ///
    /// # Errors
    /// When the configuration cannot be read or written.
    pub fn join_with_tokens(&self) -> Result<()> {
        let subscription = self.group.split('/').nth(2).unwrap_or_default();
        let authority = std::fs::read_to_string(self.plane.ca_certificate())?;
        self.configure(|cluster| {
            let nodes = &mut cluster["nodes"];
            // With AKS's own images no VM would join.
            nodes["image"] = Value::from(format!(
                "/subscriptions/{subscription}/resourceGroups/images/providers/Microsoft.Compute/galleries/own/images/node/versions/1.0.0"
            ));
            nodes["bootstrap"] = serde_json::json!({
                "apiServer": self.plane.server(),
                "clusterDns": "10.0.0.10",
                "certificateAuthority": authority,
            });
        })
    }

    /// Changes the entry of the cluster in `napkeeper.yaml`. A controller that runs already does not know of it.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn configure(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let file = self.folder.path().join("napkeeper.yaml");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
        change(&mut config["clusters"][0]);
        Ok(std::fs::write(file, serde_json::to_vec_pretty(&config)?)?)
    }

    /// The time of the controller and of the simulated Azure.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::now() + self.offset
    }

    /// Moves the time of the controller and of the simulated Azure ahead.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn jump(&mut self, by: SignedDuration) -> Result<()> {
        self.offset += by;
        let mut file = OpenOptions::new().append(true).open(self.folder.path().join("offset"))?;
        // Creation times have whole seconds. What is created right after the jump would look as old as the jump is long.
        let second = Timestamp::from_second(Timestamp::now().as_second())?;
        writeln!(file, "{second} {}", self.offset)?;
        Ok(())
    }

    /// Reads from the control endpoint of the simulated Azure.
    ///
    /// # Errors
    /// If it cannot be reached, or rejects the request.
    pub async fn azure(&self, path: &str) -> Result<Value> {
        let url = format!("{}/control/{path}", self.azure_url);
        let response = self.http.get(&url).send().await.with_context(|| format!("asking {url}"))?;
        read(response).await.with_context(|| format!("asking {url}"))
    }

    /// Checks that the roles that ship for it permit every request so far, of the last ten thousand.
    ///
    /// # Errors
    /// Names what they do not permit; if the simulated Azure cannot be reached.
    pub async fn ensure_permitted(&self, granted: Granted) -> Result<()> {
        let scopes = Scopes { group: self.group.clone(), cluster: self.cluster.clone() };
        granted.permits(&scopes, &checks_of_log(&self.azure("requests").await?)?)
    }

    /// Posts to the control endpoint of the simulated Azure.
    ///
    /// # Errors
    /// If it cannot be reached, or rejects the request.
    pub async fn tell_azure(&self, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}/control/{path}", self.azure_url);
        let response = self.http.post(&url).json(body).send().await.with_context(|| format!("telling {url}"))?;
        read(response).await.with_context(|| format!("telling {url} {body}"))
    }

    /// Lets something go wrong in the simulated Azure; its number.
    ///
    /// # Errors
    /// When the fault is not understood.
    pub async fn fault(&self, fault: &Value) -> Result<u64> {
        self.tell_azure("faults", fault).await?["id"].as_u64().context("the fault has no id")
    }

    /// As [`Environment::fault`], for faults inside Azure, which have no number.
    ///
    /// # Errors
    /// When the fault is not understood.
    pub async fn fault_inside(&self, fault: &Value) -> Result<()> {
        self.tell_azure("faults", fault).await.map(drop)
    }

    /// Clears all faults, and releases held requests.
    ///
    /// # Errors
    /// If the simulated Azure cannot be reached.
    pub async fn cure_azure(&self) -> Result<()> {
        let url = format!("{}/control/faults", self.azure_url);
        read(self.http.delete(&url).send().await?).await?;
        self.tell_azure("release", &Value::Object(serde_json::Map::new())).await?;
        Ok(())
    }

    /// Ids of everything in the node resource group, sorted, the part after `providers/`.
    ///
    /// # Errors
    /// If the simulated Azure cannot be reached.
    pub async fn resources(&self) -> Result<Vec<String>> {
        let state = self.azure("state").await?;
        let resources = state["resources"].as_array().context("the state has no resources")?;
        let short = |r: &Value| r["id"].as_str().and_then(|id| id.split("/providers/").nth(1)).map(ToOwned::to_owned);
        let mut all: Vec<String> = resources.iter().filter_map(short).collect();
        all.sort();
        Ok(all)
    }

    /// The cluster's name, which is the value of its tag.
    #[must_use]
    pub fn cluster(&self) -> &str {
        self.cluster.rsplit('/').next().unwrap_or_default()
    }

    /// The cluster, as an id.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster
    }

    /// A folder for files of the test.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A folder for an environment.
pub(crate) fn environment_folder() -> Result<TempDir> {
    tempfile::Builder::new().prefix("env-").tempdir().context("making a folder")
}

async fn read(response: reqwest::Response) -> Result<Value> {
    let status = response.status();
    let text = response.text().await?;
    ensure!(status.is_success(), "{status}: {text}");
    Ok(if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? })
}

/// Starts the simulated Azure beside a control plane whose Nodes its VMs become, with VMs that come and go `speed` times
/// faster than in Azure. Its token and the offset of its clock are the files `token` and `offset` of the folder. Returns
/// what it prints: its `url`, and the ids of the `group` and the `cluster`.
///
/// # Errors
/// When the program is missing or does not start.
pub async fn start_azure(plane: &ControlPlane, folder: &Path, speed: &str) -> Result<(Process, Value)> {
    std::fs::write(folder.join("token"), TOKEN)?;
    File::create(folder.join("offset"))?;
    let join = plane.bootstrap_kubeconfig().await?;
    let args = [
        "azure-sim".to_owned(),
        "--output=json".to_owned(),
        format!("--token={TOKEN}"),
        format!("--speed={speed}"),
        format!("--time-offset-file={}", folder.join("offset").display()),
        format!("--join={}", join.display()),
    ];
    let azure = Process::spawn("azure-sim", &Program::new(napkeeper_binary()?).args(args))?;
    let line = azure.line("\"url\"", STARTS_WITHIN).await?;
    Ok((azure, serde_json::from_str(&line)?))
}

/// Installs an overlay of kustomize, without pods and hooks.
///
/// # Errors
/// When the API server refuses an object of it, or is not ready for pods in time.
pub async fn install(plane: &ControlPlane, mode: &str) -> Result<()> {
    install_without_accounts(plane, mode).await?;
    let end = Instant::now() + STARTS_WITHIN;
    // The account of pods without one is made by the controller-manager, a little later than its namespace.
    while !plane.has_default_account().await {
        ensure!(Instant::now() < end, "the default ServiceAccount does not come");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// As [`install`], where no controller-manager makes the account of pods without one.
///
/// # Errors
/// When the API server refuses something.
pub async fn install_without_accounts(plane: &ControlPlane, mode: &str) -> Result<()> {
    plane.apply(&without_pods(mode).await?).await?;
    plane.established().await
}

/// The objects of an overlay that do not run as pods in earnest.
///
/// # Errors
/// When it cannot be built.
pub async fn without_pods(mode: &str) -> Result<String> {
    let text = kustomize(&repository("kustomize/overlays").join(mode)).await?;
    let left_out = ["kind: Deployment\n", "WebhookConfiguration\n", "kind: PodDisruptionBudget\n"];
    let manifests = text.split("\n---\n").filter(|object| !left_out.iter().any(|kind| object.contains(kind)));
    Ok(manifests.collect::<Vec<_>>().join("\n---\n"))
}

/// Writes the `napkeeper.yaml` of a simulated Azure's cluster into a folder.
///
/// # Errors
/// When the file cannot be written.
pub fn write_config(folder: &Path, group: &str, cluster: &str) -> Result<()> {
    let part = |id: &str, n: usize| id.split('/').nth(n).unwrap_or_default().to_owned();
    let (subscription, name) = (part(group, 2), part(group, 4));
    let config = serde_json::json!({ "clusters": [{
        "name": "lab",
        "region": "westeurope",
        "identity": { "subscription": subscription, "clusterId": cluster, "nodeResourceGroup": name },
        "nodes": {
            "subnet": format!("/subscriptions/{subscription}/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/aks-subnet"),
            "image": "/CommunityGalleries/AKSUbuntu-38d80f77/images/2204gen2containerd/versions/latest",
            "sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1vJk9cJm0bT1c3oJz0t4w8i1m0Qm5yJ6b4r7mQ9e3X lab",
        },
    }] });
    std::fs::write(folder.join("napkeeper.yaml"), serde_json::to_vec_pretty(&config)?)?;
    Ok(())
}
