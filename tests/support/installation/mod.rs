//! A cluster in which napkeeper is installed as a user installs it: its pods run, under their own roles.

mod container;
mod kubelet;
mod probes;
mod services;

use crate::control_plane::{Mode, Options, napkeeper_binary};
use crate::environment::{Environment, NAMESPACE, environment_folder, write_config};
use crate::manifests::repository;
use anyhow::{Context, Result, ensure};
pub use kubelet::Kubelet;
use serde_json::Value;
use services::ServiceNetwork;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::Command;

/// The folder of a cluster in a repository with `kustomize` and `manifests`.
const CLUSTER: &str = "clusters/lab";
/// The overlay that [`Installation::repository`] writes, in its repository.
pub const OVERLAY: &str = "clusters/lab/napkeeper-system";
/// In Azure, of the controller.
const CLIENT_ID: &str = "11111111-2222-3333-4444-555555555555";

/// The address, token and clock of a simulated Azure.
#[derive(Debug, Clone)]
pub struct SimulatedAzure {
    /// Its URL.
    pub url: String,
    /// The file with the token that it takes.
    pub token: PathBuf,
    /// The file with the offset of its clock.
    pub offset: PathBuf,
}

/// A cluster for an installation, in which there is nothing of it at first.
#[derive(Debug)]
pub struct Installation {
    /// Runs its pods.
    pub kubelet: Kubelet,
    /// The control plane and the simulated Azure.
    pub env: Environment,
    mode: &'static str,
}

impl Installation {
    /// Starts a control plane with nothing but these definitions, for an installation in this mode.
    ///
    /// # Errors
    /// When a program is missing or does not start.
    pub async fn start(mode: &'static str, definitions: &str) -> Result<Self> {
        let folder = environment_folder()?;
        let network = ServiceNetwork::listen(folder.path())?;
        let mut options = Options::of(Mode::Full);
        options.apiserver_flags.push(network.flag());
        options.kubelet_elsewhere = Some(NAMESPACE);
        // Five pods, the simulated Azure and kustomize-controller are as many programs again as the control plane has.
        options.turns = 2;
        let env = Environment::empty(options, folder, mode, definitions).await?;
        env.system_node_is_ready().await?;
        let file = |name: &str| env.folder().join(name);
        let azure = SimulatedAzure { url: env.azure_url.clone(), token: file("token"), offset: file("offset") };
        let kubelet = Kubelet::start(&env.plane, azure, network).await?;
        Ok(Self { kubelet, env, mode })
    }

    /// Writes a repository with the overlay as docs/install.md says: copies of two folders, and what `napkeeper init` makes
    /// beside them, for a provisioner with `nodes` completed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn repository(&self) -> Result<PathBuf> {
        let folder = self.env.folder().join("repository");
        let cluster = folder.join(CLUSTER);
        std::fs::create_dir_all(&cluster)?;
        std::fs::create_dir_all(folder.join("manifests"))?;
        for part in ["kustomize", "manifests/crds"] {
            run(Command::new("cp").arg("-R").arg(repository(part)).arg(folder.join(part))).await?;
        }
        let id: Vec<&str> = self.env.cluster_id().split('/').collect();
        let node_group = self.env.group.rsplit('/').next().unwrap_or_default();
        let mut init = Command::new(napkeeper_binary()?);
        init.args(["init", "--region=westeurope", &format!("--client-id={CLIENT_ID}")])
            .args([format!("--mode={}", self.mode), format!("--cluster-name={}", self.env.cluster())])
            .args([format!("--subscription={}", id[2]), format!("--resource-group={}", id[4])])
            .arg(format!("--node-resource-group={node_group}"))
            .arg(format!("--directory={}", cluster.display()))
            .arg(format!("--overlays={}", folder.join("kustomize/overlays").display()));
        run(&mut init).await?;
        if self.mode == "provisioner" {
            self.complete(&[cluster.join("napkeeper.yaml"), folder.join(OVERLAY).join("napkeeper.yaml")])?;
        }
        Ok(folder)
    }

    /// Adds to configurations what nodes are made from.
    fn complete(&self, files: &[PathBuf]) -> Result<()> {
        write_config(self.env.folder(), &self.env.group, self.env.cluster_id())?;
        self.env.join_with_tokens()?;
        let config: Value = serde_json::from_slice(&std::fs::read(self.env.folder().join("napkeeper.yaml"))?)?;
        for file in files {
            let text = std::fs::read_to_string(file)?;
            std::fs::write(file, format!("{text}    nodes: {}\n", config["clusters"][0]["nodes"]))?;
        }
        Ok(())
    }

    /// Names the Deployments of napkeeper of which not all pods are ready. Before they are applied there are none.
    ///
    /// # Errors
    /// When the API server does not answer, or a pod does not run that should.
    pub async fn unready(&self) -> Result<Vec<String>> {
        self.kubelet.check()?;
        let get = ["get", "deployments", "--namespace", NAMESPACE, "--output=json"];
        let listed: Value = serde_json::from_str(&self.env.plane.kubectl(&get).await?)?;
        let all = listed["items"].as_array().context("no items")?.iter();
        let is_ready = |one: &&Value| {
            let (spec, status) = (&one["spec"], &one["status"]);
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let is_available = |one: &Value| one["type"] == "Available" && one["status"] == "True";
            status["observedGeneration"] == one["metadata"]["generation"]
                && status["readyReplicas"] == spec["replicas"]
                && conditions.into_iter().any(is_available)
        };
        let unready = all.filter(|one| !is_ready(one));
        Ok(unready.map(|one| one["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

/// Runs a program that must end with 0.
async fn run(command: &mut Command) -> Result<()> {
    let output =
        command.stdin(Stdio::null()).kill_on_drop(true).output().await.with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
