//! `napkeeper controller`: runs the controller of a cluster.

use super::Outcome;
use anyhow::{Context, ensure};
use napkeeper_controller::azure_args::{AzureArgs, ModeArg};
use napkeeper_controller::{self as controller, Options};
use napkeeper_core::model::settings::ControllerMode;
use napkeeper_serve::MonitoringAddresses;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper controller --mode companion --config napkeeper.yaml      companion of managed NAP: finds and deletes orphans
  napkeeper controller --mode provisioner --config napkeeper.yaml \\
      --azure-endpoint http://127.0.0.1:8085 --azure-token-file token --kubeconfig kind.kubeconfig
                                                                     in place of NAP: against `napkeeper azure-sim`

One replica is active at a time, elected by a Lease. SIGTERM lets running commands finish.
Exit codes: 0 stopped by a signal, 2 error (bad input or I/O).";

/// Run the controller: provision, replace and remove nodes, and delete orphaned Azure resources.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Companion of managed NAP, or provisioner in its place.
    #[arg(long, value_enum, value_name = "MODE")]
    mode: ModeArg,
    /// The napkeeper.yaml that identifies the cluster.
    #[arg(long, value_name = "FILE", default_value = "napkeeper.yaml")]
    config: PathBuf,
    /// Cluster in the file; required if it has several.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Kubeconfig [default: the pod's service account, else the user's kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the napkeeper-pause ConfigMap.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// Address to serve /healthz and /readyz on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    health_bind: SocketAddr,
    /// Address to serve /metrics on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    metrics_bind: SocketAddr,
    /// Name in the Lease [default: the host name with a random suffix].
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Launch NodeClaims as Machines of this AKS agent pool (of mode Machines). Experimental: uses a preview API of
    /// Azure, only in provisioner mode.
    #[arg(long, value_name = "POOL", value_parser = pool)]
    experimental_machines: Option<String>,
    #[command(flatten)]
    azure: AzureArgs,
    #[command(flatten)]
    logs: super::log_args::LogArgs,
}

/// The name of an agent pool, as AKS allows it on Linux.
fn pool(text: &str) -> Result<String, String> {
    let fits = (1..=12).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    fits.then(|| text.to_owned())
        .ok_or_else(|| "must be 1 to 12 lowercase letters and digits, starting with a letter".to_owned())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    args.azure.check()?;
    let mode = args.mode.into();
    ensure!(
        mode == ControllerMode::Provisioner || args.experimental_machines.is_none(),
        "--experimental-machines requires --mode provisioner: companion mode launches nothing"
    );
    let options = Options {
        mode,
        config: args.config.clone(),
        cluster: args.cluster.clone(),
        kubeconfig: args.kubeconfig.clone(),
        namespace: args.namespace.clone(),
        monitoring: MonitoringAddresses { health: args.health_bind, metrics: args.metrics_bind },
        identity: args.identity.clone(),
        machines: args.experimental_machines.clone(),
        azure: args.azure.clone(),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(controller::run(options))?;
    Ok(Outcome::Fine)
}
