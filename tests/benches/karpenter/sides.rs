//! The two sides: a control plane each, and what provisions its nodes.

use crate::manifests::{NodeSource, app, node_class, node_pool, stream};
use crate::sizes::Sizes;
use crate::world::World;
use anyhow::{Context, Result};
use napkeeper_tests::control_plane::{
    ControlPlane, Mode, Options, Process, Program, free_ports, karpenter_kwok, napkeeper_binary,
};
use napkeeper_tests::environment::{NAMESPACE, install, start_azure, write_config};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// How many times faster than in Azure VMs come and go.
const SPEED: &str = "10";
/// From a NodeClaim to its Node of the kwok provider: as long as the simulated Azure takes on average at this speed, which
/// is a tenth of 30 to 90 s until the VM runs, and a second until its kubelet registers.
pub(crate) const REGISTRATION_SECONDS: u64 = 7;
/// As Karpenter's chart for Azure sets them.
const FEATURE_GATES: &str = "NodeRepair=false,ReservedCapacity=false,SpotToSpotConsolidation=false,NodeOverlay=false,\
    StaticCapacity=false,CapacityBuffer=false";
/// Programs start within this time, on a busy machine too.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
/// Else the controller-manager creates 20 pods in a second.
const FAST_CONTROLLERS: [&str; 2] = ["--kube-api-qps=1000", "--kube-api-burst=2000"];

/// Who provisions nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The real Karpenter with its kwok provider.
    Karpenter,
    /// `napkeeper controller` with the simulated Azure.
    Napkeeper,
    /// Karpenter's policy in napkeeper's simulator.
    Simulated,
}

impl Side {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Karpenter, Self::Napkeeper, Self::Simulated];

    /// As it is called on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Karpenter => "karpenter",
            Self::Napkeeper => "napkeeper",
            Self::Simulated => "simulated",
        }
    }
}

/// A control plane with the objects of a world, before anything provisions nodes.
#[derive(Debug)]
pub(crate) struct Prepared {
    program: Program,
    name: &'static str,
    /// A line that the program prints once it works, or nothing where the NodePool becomes Ready instead.
    sign: Option<&'static str>,
    azure: Option<Process>,
    plane: ControlPlane,
    folder: TempDir,
}

/// A side that provisions nodes. All its programs end with the value, or with this process.
#[derive(Debug)]
pub(crate) struct Running {
    /// What provisions nodes.
    pub(crate) provisioner: Process,
    _azure: Option<Process>,
    /// Its control plane.
    pub(crate) plane: ControlPlane,
    _folder: TempDir,
}

impl Prepared {
    /// Starts the control plane of a side.
    pub(crate) async fn new(side: Side, world: &World, sizes: &Sizes) -> Result<Self> {
        let mut options = Options::of(Mode::Full);
        options.controller_manager_flags = FAST_CONTROLLERS.map(str::to_owned).into();
        let plane = ControlPlane::start_with(options).await?;
        let folder = tempfile::Builder::new().prefix("karpenter-bench-").tempdir()?;
        let prepared = match side {
            Side::Karpenter => karpenter(plane, folder, sizes).await?,
            _ => napkeeper(plane, folder).await?,
        };
        let source = if side == Side::Karpenter { NodeSource::Kwok } else { NodeSource::Azure };
        let own = [node_class(source, REGISTRATION_SECONDS), node_pool(world, source)];
        prepared.plane.apply(&stream(own.into_iter().chain(world.apps.iter().flat_map(app)))).await?;
        Ok(prepared)
    }

    /// The control plane.
    pub(crate) fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Starts what provisions nodes.
    pub(crate) fn start(self) -> Result<(Running, Option<&'static str>)> {
        let provisioner = Process::spawn(self.name, &self.program)?;
        let running = Running { provisioner, _azure: self.azure, plane: self.plane, _folder: self.folder };
        Ok((running, self.sign))
    }

    /// Starts what provisions nodes, and waits until it works.
    pub(crate) async fn start_and_wait(self) -> Result<Running> {
        let (running, sign) = self.start()?;
        match sign {
            Some(sign) => drop(running.provisioner.line(sign, STARTS_WITHIN).await?),
            None => {
                let within = format!("--timeout={}s", STARTS_WITHIN.as_secs());
                let ready =
                    running.plane.kubectl(&["wait", "--for=condition=Ready", "nodepool", "--all", &within]).await;
                ready.with_context(|| format!("its last lines:\n{}", running.provisioner.tail(20)))?;
            }
        }
        Ok(running)
    }
}

impl Running {
    /// The most memory that what provisions nodes has had, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.provisioner.pid());
        let status = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in it")?;
        line.split_whitespace().next().unwrap_or_default().parse().with_context(|| format!("reading VmHWM of {path}"))
    }
}

async fn karpenter(plane: ControlPlane, folder: TempDir, sizes: &Sizes) -> Result<Prepared> {
    let karpenter = karpenter_kwok().await?;
    plane.apply(&karpenter.definitions).await?;
    plane.established().await?;
    let types = folder.path().join("instance-types.json");
    std::fs::write(&types, sizes.kwok_file().to_string()).with_context(|| format!("writing {}", types.display()))?;
    let [metrics, health] = free_ports()?;
    let program = Program::new(karpenter.program)
        .env("KUBECONFIG", plane.admin_kubeconfig())
        .env("INSTANCE_TYPES_FILE_PATH", types)
        .env("SYSTEM_NAMESPACE", "kube-system")
        .env("DISABLE_LEADER_ELECTION", "true")
        .env("METRICS_PORT", metrics.to_string())
        .env("HEALTH_PROBE_PORT", health.to_string())
        .env("FEATURE_GATES", FEATURE_GATES)
        .env("LOG_LEVEL", "info");
    Ok(Prepared { program, name: "karpenter", sign: None, azure: None, plane, folder })
}

async fn napkeeper(plane: ControlPlane, folder: TempDir) -> Result<Prepared> {
    let (azure, output) = start_azure(&plane, folder.path(), SPEED).await?;
    let text = |key: &str| output[key].as_str().with_context(|| format!("azure-sim prints no {key}"));
    install(&plane, "provisioner").await?;
    let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "napkeeper-controller").await?;
    write_config(folder.path(), text("group")?, text("cluster")?)?;
    let program = Program::new(napkeeper_binary()?)
        .args(["controller", "--mode=provisioner", "--identity=bench", "--log-format=text", "--log-level=info"])
        .args(["--health-bind=127.0.0.1:0", "--metrics-bind=127.0.0.1:0"])
        .args([
            flag("--config", &folder.path().join("napkeeper.yaml")),
            flag("--azure-token-file", &folder.path().join("token")),
            flag("--kubeconfig", &kubeconfig),
            format!("--azure-endpoint={}", text("url")?),
        ]);
    let sign = Some("initial listing of the cluster complete");
    Ok(Prepared { program, name: "napkeeper", sign, azure: Some(azure), plane, folder })
}

fn flag(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}
