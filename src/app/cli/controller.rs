//! `napkeeper controller`: look after a cluster.

use super::Outcome;
use crate::controller::{self, Options};
use anyhow::{Context, ensure};
use napkeeper_azure::AzureCloud;
use napkeeper_core::settings::Mode;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper controller --mode companion --config napkeeper.yaml      beside managed NAP: sweeps and reports
  napkeeper controller --mode provisioner --config napkeeper.yaml \\
      --azure-endpoint http://127.0.0.1:8085 --azure-token-file token --kubeconfig kind.kubeconfig
                                                                     instead of it: against `napkeeper azure-sim`

One replica acts at a time, by a Lease; others wait. SIGTERM lets what is under way finish.
Exit codes: 0 stopped as asked, 2 it could not be done.";

/// Look after a cluster: launch, replace and remove its nodes, and sweep what belongs to nobody.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What to do: beside managed NAP, or instead of it.
    #[arg(long, value_enum, value_name = "MODE")]
    mode: ModeArg,
    /// The napkeeper.yaml that says which cluster this is.
    #[arg(long, value_name = "FILE", default_value = "napkeeper.yaml")]
    config: PathBuf,
    /// The cluster of the file; needed where it has several.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Kubeconfig; absent is the pod's own account, else the user's default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease and of the pause switch.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// Address of /healthz, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    health_bind: SocketAddr,
    /// Name in the Lease; absent is the host's name and a random part.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Launch NodeClaims as Machines of this agent pool of AKS (a pool of mode Machines). Experimental: by a preview
    /// of Azure's API, and only in provisioner mode.
    #[arg(long, value_name = "POOL", value_parser = pool)]
    experimental_machines: Option<String>,
    #[command(flatten)]
    azure: AzureArgs,
    #[command(flatten)]
    logs: super::logs::LogArgs,
}

/// Where Azure is, for clouds of one's own and for tests.
#[derive(Debug, clap::Args)]
struct AzureArgs {
    /// Which Azure: public, us-government or china; absent is what napkeeper.yaml says, else public.
    #[arg(long, value_name = "NAME", value_parser = cloud)]
    azure_cloud: Option<AzureCloud>,
    /// Azure Resource Manager, where it is another than the cloud's own.
    #[arg(long, value_name = "URL")]
    azure_endpoint: Option<String>,
    /// File with a fixed token; only for an endpoint on this machine.
    #[arg(long, value_name = "FILE")]
    azure_token_file: Option<PathBuf>,
    /// File that moves this process's clock ahead; only for an endpoint on this machine.
    #[arg(long, value_name = "FILE")]
    time_offset_file: Option<PathBuf>,
}

/// Beside managed NAP, or instead of it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    /// Beside managed NAP: report on VMs, sweep NICs and disks, launch nothing.
    Companion,
    /// Instead of it: all that Karpenter does.
    Provisioner,
}

/// The name of an agent pool, as AKS allows it on Linux.
fn pool(text: &str) -> Result<String, String> {
    let fits = (1..=12).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    fits.then(|| text.to_owned())
        .ok_or_else(|| "must be 1 to 12 lower-case letters and digits, a letter first".to_owned())
}

/// A cloud by its name.
pub(super) fn cloud(name: &str) -> Result<AzureCloud, String> {
    AzureCloud::named(name).ok_or_else(|| {
        let names: Vec<&str> = AzureCloud::ALL.iter().map(|cloud| cloud.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    let AzureArgs { azure_cloud, azure_endpoint, azure_token_file, time_offset_file } = &args.azure;
    let is_here = azure_endpoint.as_deref().is_some_and(napkeeper_azure::on_this_machine);
    let only_here = azure_token_file.is_some() || time_offset_file.is_some();
    ensure!(
        !only_here || is_here,
        "--azure-token-file and --time-offset-file are for tests: they need an --azure-endpoint on this machine"
    );
    let mode = match args.mode {
        ModeArg::Companion => Mode::Companion,
        ModeArg::Provisioner => Mode::Provisioner,
    };
    ensure!(
        mode == Mode::Provisioner || args.experimental_machines.is_none(),
        "--experimental-machines needs --mode provisioner: beside managed NAP nothing is launched"
    );
    let options = Options {
        mode,
        config: args.config.clone(),
        cluster: args.cluster.clone(),
        kubeconfig: args.kubeconfig.clone(),
        namespace: args.namespace.clone(),
        health_bind: args.health_bind,
        identity: args.identity.clone(),
        machines: args.experimental_machines.clone(),
        azure_cloud: *azure_cloud,
        azure_endpoint: azure_endpoint.clone(),
        azure_token_file: azure_token_file.clone(),
        time_offset_file: time_offset_file.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(controller::run(options))?;
    Ok(Outcome::Fine)
}
