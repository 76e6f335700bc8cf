//! Starts the process of a pod.
//!
//! What is replaced, because processes share their files and ports and reach no Azure:
//!
//! | in a pod | here |
//! |---|---|
//! | `0.0.0.0:8443` | a free port of 127.0.0.1 |
//! | the folder where a ConfigMap is mounted | a folder with its content |
//! | the token of the ServiceAccount, and the address of the API server | `--kubeconfig`, with a token for this pod |
//! | workload identity, which pods with its label get | address, token and clock of the simulated Azure |

use super::SimulatedAzure;
use super::services::Addresses;
use crate::control_plane::kubeconfig::{self, Credential};
use crate::control_plane::{Process, Program, free_ports, napkeeper_binary};
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{self, ConfigMap, Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// The label of pods that sign in to Azure.
const USES_IDENTITY: &str = "azure.workload.identity/use";
/// How an argument names all addresses of a pod.
const ALL_ADDRESSES: &str = "0.0.0.0:";

/// The only container of a pod.
pub(super) struct Container {
    pub(super) spec: v1::Container,
    mounts: Vec<v1::VolumeMount>,
    volumes: Vec<v1::Volume>,
}

impl Container {
    /// That of a pod.
    ///
    /// # Errors
    /// When the pod has another number of containers, or something that is not understood here.
    pub(super) fn of(pod: &Pod) -> Result<Self> {
        let spec = pod.spec.clone().context("a pod without a spec")?;
        ensure!(spec.init_containers.is_none(), "a container that runs before others is not understood");
        let [container] = <[v1::Container; 1]>::try_from(spec.containers)
            .map_err(|containers| anyhow::anyhow!("{} containers are not understood", containers.len()))?;
        ensure!(container.command.is_none() && container.env_from.is_none(), "only arguments and `env` are understood");
        let volumes = spec.volumes.unwrap_or_default();
        // What admission adds: the token, which is replaced.
        let is_added = |name: &str| {
            volumes
                .iter()
                .any(|volume| volume.name == name && volume.projected.is_some() && name.starts_with("kube-api-access-"))
        };
        let mut mounts = container.volume_mounts.clone().unwrap_or_default();
        mounts.retain(|mount| !is_added(&mount.name));
        Ok(Self { spec: container, mounts, volumes })
    }
}

/// A process that stands for a pod.
pub(super) struct Started {
    pub(super) process: Arc<Process>,
    /// The port of this machine for each of the container, by number.
    pub(super) ports: BTreeMap<u16, u16>,
    /// What is mounted.
    _folder: TempDir,
}

/// Starts processes.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) maps: Api<ConfigMap>,
    pub(super) accounts: Api<ServiceAccount>,
    /// The URL of the API server, and the certificate to trust.
    pub(super) server: String,
    pub(super) authority: PathBuf,
    pub(super) azure: SimulatedAzure,
    pub(super) addresses: Addresses,
}

impl Runtime {
    /// Starts the process of a pod with this address.
    pub(super) async fn start(&self, pod: &Pod, container: &Container, address: &str) -> Result<Started> {
        let folder = tempfile::Builder::new().prefix("pod-").tempdir()?;
        let mut mounted = Vec::new();
        for mount in &container.mounts {
            let at = folder.path().join(&mount.name);
            self.fill(&at, container, &mount.name).await?;
            mounted.push((mount.mount_path.clone(), at));
        }
        let numbers: Vec<u16> = container
            .spec
            .ports
            .iter()
            .flatten()
            .map(|port| u16::try_from(port.container_port))
            .collect::<Result<_, _>>()?;
        let free: [u16; 8] = free_ports()?;
        ensure!(numbers.len() <= free.len(), "{} ports are not understood", numbers.len());
        let ports: BTreeMap<u16, u16> = numbers.into_iter().zip(free).collect();
        let mut args: Vec<String> = Vec::new();
        for arg in container.spec.args.iter().flatten() {
            args.push(local(arg, &mounted, &ports)?);
        }
        self.azure_args(pod, &mut args);
        args.push(format!("--kubeconfig={}", self.kubeconfig(pod, folder.path()).await?.display()));
        let mut program = Program::new(napkeeper_binary()?).args(args).env("HOSTNAME", pod.name_any());
        for variable in container.spec.env.iter().flatten() {
            let value = variable.value.clone().with_context(|| format!("{} has no value of its own", variable.name))?;
            program = program.env(&variable.name, value);
        }
        let process = Arc::new(Process::spawn(&container.spec.name, &program)?);
        for (number, port) in &ports {
            self.addresses.insert(address, *number, *port);
        }
        Ok(Started { process, ports, _folder: folder })
    }

    /// Fills the folder of a volume.
    async fn fill(&self, at: &Path, container: &Container, volume: &str) -> Result<()> {
        let volume =
            container.volumes.iter().find(|one| one.name == volume).with_context(|| format!("no volume {volume}"))?;
        let Some(source) = &volume.config_map else {
            bail!("only ConfigMaps are understood as volumes, not {volume:?}")
        };
        let map =
            self.maps.get(&source.name).await.with_context(|| format!("mounting the ConfigMap {}", source.name))?;
        std::fs::create_dir(at)?;
        for (file, text) in map.data.unwrap_or_default() {
            std::fs::write(at.join(file), text)?;
        }
        Ok(())
    }

    /// A kubeconfig with a token of the pod's ServiceAccount that counts as long as the pod exists.
    async fn kubeconfig(&self, pod: &Pod, folder: &Path) -> Result<PathBuf> {
        let account =
            pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).context("no ServiceAccount")?;
        let bound = json!({ "apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "uid": pod.uid() });
        let request: TokenRequest =
            serde_json::from_value(json!({ "metadata": {}, "spec": { "audiences": [], "boundObjectRef": bound } }))?;
        let answer = self.accounts.create_token_request(&account, &PostParams::default(), &request).await;
        let token =
            answer.with_context(|| format!("requesting a token of {account}"))?.status.context("no token")?.token;
        let path = folder.join("kubeconfig");
        kubeconfig::write(&path, &self.server, &self.authority, &Credential::Token(&token))?;
        Ok(path)
    }

    fn azure_args(&self, pod: &Pod, args: &mut Vec<String>) {
        if pod.labels().get(USES_IDENTITY).is_none_or(|uses| uses != "true") {
            return;
        }
        if let Some(at) = args.iter().position(|arg| arg == "--azure-credential") {
            args.drain(at..at + 2);
        }
        let SimulatedAzure { url, token, offset } = &self.azure;
        args.push(format!("--azure-endpoint={url}"));
        args.push(format!("--azure-token-file={}", token.display()));
        args.push(format!("--time-offset-file={}", offset.display()));
    }
}

/// An argument as it is here.
fn local(arg: &str, mounted: &[(String, PathBuf)], ports: &BTreeMap<u16, u16>) -> Result<String> {
    if let Some(number) = arg.strip_prefix(ALL_ADDRESSES) {
        let port =
            ports.get(&number.parse()?).with_context(|| format!("{arg}: the container does not name this port"))?;
        return Ok(format!("127.0.0.1:{port}"));
    }
    let inside = mounted.iter().find_map(|(path, at)| Some(at.join(arg.strip_prefix(path)?.strip_prefix('/')?)));
    Ok(inside.map_or_else(|| arg.to_owned(), |path| path.display().to_string()))
}
