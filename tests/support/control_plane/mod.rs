//! Starts a real Kubernetes control plane for a test.
//!
//! [`ControlPlane::start`] runs etcd and kube-apiserver on free loopback ports in a temporary folder, in
//! [`Mode::Scheduling`] the scheduler too, in [`Mode::Full`] the controller-manager, the scheduler and kwok. All of it
//! stops with the value, or with the test process if that is killed.

mod access;
mod backup;
mod binaries;
mod build;
mod flags;
pub(crate) mod kubeconfig;
mod pki;
mod ports;
mod process;
mod stages;

pub use access::kustomize;
use anyhow::{Context, Result, bail};
pub use binaries::{
    Binaries, PeerProgram, karpenter_kwok, kubeconform, kustomize_controller, napkeeper_binary, upstream_crds,
};
use flags::Layout;
use kubeconfig::Credential;
pub use pki::Identity;
use pki::Pki;
pub use ports::free as free_ports;
pub use process::{Process, Program, word};
use serde_json::Value;
pub use stages::{ENDS_AFTER, READY_AFTER, WAITS};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How often fresh ports are tried when one is taken in between.
const TRIES: usize = 4;
/// Seconds are usual; a busy machine may take long.
const READY_WITHIN: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
/// `GOGC` of kube-apiserver and kubectl: collecting garbage later saves a tenth of their CPU time.
const RARE_COLLECTIONS: &str = "400";
/// So many run at once in one process: each is up to seven programs. Tests wait for most of their time, so that two cores
/// serve six of them; with four they were idle for a quarter of it.
static TURNS: Semaphore = Semaphore::const_new(6);

/// How much of a control plane runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// etcd and kube-apiserver: enough for definitions, admission and permissions. Nothing schedules pods or makes
    /// ServiceAccounts.
    Api,
    /// Only the scheduler in addition: Nodes are set by the test, and bound pods do not change.
    Scheduling,
    /// The controller-manager and the scheduler too, and kwok, which plays the kubelet of every Node.
    Full,
}

/// What a control plane is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much runs.
    pub mode: Mode,
    /// Flags of kube-apiserver after those that it gets anyway.
    pub apiserver_flags: Vec<String>,
    /// Flags of kube-controller-manager after those that it gets anyway.
    pub controller_manager_flags: Vec<String>,
    /// Profiles of kube-scheduler (`profiles` of a KubeSchedulerConfiguration); none is the usual one alone.
    pub scheduler_profiles: Vec<Value>,
    /// A namespace whose pods kwok leaves alone, because something else plays their kubelet.
    pub kubelet_elsewhere: Option<&'static str>,
    /// As how many of those that run at once it counts: more if a test runs more programs beside it.
    pub turns: u32,
}

impl Options {
    /// Those that most are started with.
    #[must_use]
    pub fn of(mode: Mode) -> Self {
        Self {
            mode,
            apiserver_flags: Vec::new(),
            controller_manager_flags: Vec::new(),
            scheduler_profiles: Vec::new(),
            kubelet_elsewhere: None,
            turns: 1,
        }
    }
}

/// A running control plane.
pub struct ControlPlane {
    // Dropped in this order: clients before their servers, and the folder last.
    others: Vec<Process>,
    apiserver: Option<Process>,
    etcd: Option<Process>,
    mode: Mode,
    layout: Layout,
    pki: Pki,
    binaries: Binaries,
    folder: TempDir,
    _turn: SemaphorePermit<'static>,
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane")
            .field("server", &self.server())
            .field("folder", &self.folder())
            .finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Waits until fewer than two run, starts one, and waits until it serves. A test that holds one must not start
    /// another.
    ///
    /// # Errors
    /// When a program is missing, cannot be built, or does not become ready; with the end of its log.
    pub async fn start(mode: Mode) -> Result<Self> {
        Self::start_with(Options::of(mode)).await
    }

    /// As [`ControlPlane::start`], with more to choose.
    ///
    /// # Errors
    /// As there.
    pub async fn start_with(options: Options) -> Result<Self> {
        let binaries = Binaries::find().await?;
        let mut last = None;
        for _ in 0..TRIES {
            match Self::attempt(&binaries, &options).await {
                // Retry only if a port was taken in between.
                Err(e) if format!("{e:#}").contains("address already in use") => last = Some(e),
                done => return done,
            }
        }
        Err(last.context("no try was made")?).context("starting a control plane: each time another program took a port")
    }

    async fn attempt(binaries: &Binaries, options: &Options) -> Result<Self> {
        let turn = TURNS.acquire_many(options.turns).await.context("waiting for other control planes")?;
        let folder = tempfile::Builder::new().prefix("control-plane-").tempdir().context("making a folder")?;
        let pki = Pki::new(&folder.path().join("pki"))?;
        let layout = Layout::new(folder.path(), options)?;
        let binaries = binaries.clone();
        let (others, apiserver, etcd, mode) = (Vec::new(), None, None, options.mode);
        let mut plane = Self { others, apiserver, etcd, mode, layout, pki, binaries, folder, _turn: turn };
        plane.start_etcd()?;
        plane.write_identity("admin", &Identity::user("admin").in_group("system:masters"))?;
        plane.layout.mode_flags(mode);
        plane.start_apiserver().await?;
        plane.start_clients().await?;
        Ok(plane)
    }

    fn start_etcd(&mut self) -> Result<()> {
        let program = Program::new(self.binaries.path("etcd")?).args(self.layout.etcd()).removing(self.folder.path());
        self.etcd = Some(Process::spawn("etcd", &program)?);
        Ok(())
    }

    /// What runs beside kube-apiserver in this mode.
    async fn start_clients(&mut self) -> Result<()> {
        match self.mode {
            Mode::Api => Ok(()),
            Mode::Scheduling => self.start_other("kube-scheduler", &Identity::user("system:kube-scheduler")),
            Mode::Full => self.start_others().await,
        }
    }

    /// Stops kube-apiserver at once; its data stays, and the others run on without it.
    pub fn stop_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts kube-apiserver with the same port and data, and waits until it serves. Nothing happens if it runs.
    ///
    /// # Errors
    /// When it does not become ready; with the end of its log.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        if self.apiserver.is_some() {
            return Ok(());
        }
        let program = Program::new(self.binaries.path("kube-apiserver")?)
            .args(self.layout.apiserver(&self.pki))
            .env("GOGC", RARE_COLLECTIONS);
        let apiserver = Process::spawn("kube-apiserver", &program)?;
        let client = self.client().await?;
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            let processes = self.etcd.iter().map(|etcd| ("etcd", etcd));
            for (name, process) in processes.chain([("kube-apiserver", &apiserver)]) {
                if let Some(exit) = process.exit_status() {
                    bail!("{name} ended ({exit}) before the control plane was ready:\n{}", process.tail(15));
                }
            }
            let request = http::Request::get("/readyz").body(Vec::new()).context("asking for /readyz")?;
            let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await;
            if matches!(answer, Ok(Ok(text)) if text == "ok") {
                self.apiserver = Some(apiserver);
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!("kube-apiserver is not ready after {READY_WITHIN:?}:\n{}", apiserver.tail(15))
    }

    /// The controller-manager, the scheduler and kwok; ready when pods can be made.
    async fn start_others(&mut self) -> Result<()> {
        for (name, identity) in [
            ("kube-controller-manager", Identity::user("system:kube-controller-manager")),
            ("kube-scheduler", Identity::user("system:kube-scheduler")),
            ("kwok", Identity::user("kwok").in_group("system:masters")),
        ] {
            self.start_other(name, &identity)?;
        }
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            for process in &self.others {
                if let Some(exit) = process.exit_status() {
                    bail!("a program ended ({exit}) before the control plane was ready:\n{}", process.tail(15));
                }
            }
            if self.has_default_account().await {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        let logs: Vec<_> = self.others.iter().map(|process| process.tail(5)).collect();
        bail!("there is no default ServiceAccount after {READY_WITHIN:?}:\n{}", logs.join("\n"))
    }

    fn start_other(&mut self, name: &str, identity: &Identity) -> Result<()> {
        let kubeconfig = self.write_identity(name, identity)?;
        let mut flags = vec![format!("--kubeconfig={}", kubeconfig.display())];
        flags.extend(match name {
            "kube-controller-manager" => self.layout.controller_manager(&self.pki),
            "kube-scheduler" => self.layout.scheduler(&kubeconfig)?,
            _ => self.layout.kwok(&self.binaries.path("kwok-stages.yaml")?)?,
        });
        let program = Program::new(self.binaries.path(name)?).args(flags);
        self.others.push(Process::spawn(name, &program)?);
        Ok(())
    }

    /// The folder of this control plane, which is deleted with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address of kube-apiserver.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.layout.port())
    }

    /// The certificate that clients must trust.
    #[must_use]
    pub fn ca_certificate(&self) -> PathBuf {
        self.pki.pair("ca").certificate
    }

    /// Process ids of everything that runs.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let all = self.etcd.iter().chain(&self.apiserver).chain(&self.others);
        all.map(Process::pid).collect()
    }

    fn write_identity(&self, file: &str, identity: &Identity) -> Result<PathBuf> {
        let pair = self.pki.client(file, identity)?;
        self.write_kubeconfig(file, &Credential::Certificate(&pair))
    }

    fn write_kubeconfig(&self, file: &str, credential: &Credential<'_>) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("{file}.kubeconfig"));
        kubeconfig::write(&path, &self.server(), &self.ca_certificate(), credential)?;
        Ok(path)
    }
}
