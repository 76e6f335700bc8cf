//! `napkeeper controller`: look after a cluster.

use super::Outcome;
use crate::azure::{AzureArgs, ModeArg};
use crate::controller::{self, Options};
use anyhow::{Context, ensure};
use napkeeper_core::model::settings::ControllerMode;
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

/// The name of an agent pool, as AKS allows it on Linux.
fn pool(text: &str) -> Result<String, String> {
    let fits = (1..=12).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    fits.then(|| text.to_owned())
        .ok_or_else(|| "must be 1 to 12 lower-case letters and digits, a letter first".to_owned())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    args.azure.check()?;
    let mode = args.mode.into();
    ensure!(
        mode == ControllerMode::Provisioner || args.experimental_machines.is_none(),
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
        azure: args.azure.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(controller::run(options))?;
    Ok(Outcome::Fine)
}
