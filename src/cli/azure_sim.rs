//! `napkeeper azure-sim`: serves a simulated Azure over HTTP.

use super::Outcome;
use super::output::OutputFormat;
use anyhow::Context;
use jiff::Timestamp;
use napkeeper_azure_sim::{self as azure_sim, Settings, SimClock, Token};
use napkeeper_controller::wall_clock::WallClock;
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::names::{ArmId, Region};
use napkeeper_core::model::settings::ClusterIdentity;
use napkeeper_sim::cloud::CloudSettings;
use serde_json::json;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  napkeeper azure-sim                                     on a free local port, in real time
  napkeeper azure-sim --bind 127.0.0.1:8081 --speed 30    VMs start in 1 to 3s instead of 30 to 90
  napkeeper azure-sim --clock virtual -o json             time advances only when a test moves it
  napkeeper azure-sim --join kubeconfig.yaml              VMs of NodeClaims become Nodes of that cluster

Nothing is sent to Azure. It runs until SIGINT or SIGTERM. See docs/azure-sim.md.";

/// Serve a simulated Azure Resource Manager over HTTP, for tests.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Address and port to listen on; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    bind: SocketAddr,
    /// Allow an address that other machines can reach. There is no TLS.
    #[arg(long)]
    allow_remote: bool,
    /// Azure region of the sizes, zones and prices.
    #[arg(long, value_name = "REGION", default_value = "westeurope")]
    region: String,
    /// Name of the managed cluster.
    #[arg(long, value_name = "NAME", default_value = "demo", value_parser = segment)]
    cluster: String,
    /// Subscription id.
    #[arg(long, value_name = "ID", default_value = "00000000-0000-4000-8000-000000000001", value_parser = segment)]
    subscription: String,
    /// Name of the node resource group. Defaults to `MC_<cluster>_<cluster>_<region>`.
    #[arg(long, value_name = "NAME", value_parser = segment)]
    group: Option<String>,
    /// Random seed: how long VMs take, and ids.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = crate::simulate::seed)]
    seed: u64,
    /// Bearer token that callers must send [default: none required].
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Option<Token>,
    /// Real time, or a virtual clock that only the control endpoint moves.
    #[arg(long, value_enum, default_value_t = Clock::Wall, value_name = "CLOCK")]
    clock: Clock,
    /// Start time of a virtual clock [default: now].
    #[arg(long, value_name = "TIME")]
    start: Option<Timestamp>,
    /// File with offsets of the wall clock: each line is a real time and an offset. It may change.
    #[arg(long, value_name = "FILE")]
    time_offset_file: Option<PathBuf>,
    /// How many times faster than in Azure VMs start and stop.
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    speed: u32,
    /// Resources per page of a listing.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    page_size: u16,
    /// Kubeconfig of a cluster that VMs of NodeClaims join as Nodes.
    #[arg(long, value_name = "KUBECONFIG")]
    join: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
    #[command(flatten)]
    logs: super::log_args::LogArgs,
}

/// The clock of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Clock {
    /// Real time.
    Wall,
    /// Moved only by the control endpoint.
    Virtual,
}

fn segment(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.()".contains(c);
    let fits = !text.is_empty() && text.len() <= 90 && text.chars().all(good);
    fits.then(|| text.to_owned()).ok_or_else(|| "must be 1 to 90 letters, digits, '-', '_', '.' or brackets".to_owned())
}

fn token(text: &str) -> Result<Token, String> {
    let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    fits.then(|| Token(text.to_owned())).ok_or_else(|| "must be visible ASCII characters without spaces".to_owned())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.check()?;
    args.logs.init()?;
    let identity = args.identity()?;
    let settings = args.settings(&identity)?;
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(azure_sim::run(settings, |url| args.print_address(url, &identity)))?;
    Ok(Outcome::Fine)
}

impl Args {
    /// Refuses flags that cannot be combined.
    fn check(&self) -> anyhow::Result<()> {
        if !self.bind.ip().is_loopback() && !self.allow_remote {
            anyhow::bail!(
                "--bind {}: reachable from other machines without TLS; add --allow-remote to allow this",
                self.bind
            );
        }
        match self.clock {
            Clock::Wall if self.start.is_some() => anyhow::bail!("--start requires --clock virtual"),
            Clock::Virtual if self.time_offset_file.is_some() => {
                anyhow::bail!(
                    "--time-offset-file requires --clock wall; a virtual clock is moved by the control endpoint"
                )
            }
            _ => Ok(()),
        }
    }

    fn identity(&self) -> anyhow::Result<ClusterIdentity> {
        let Self { subscription, cluster, region, .. } = self;
        let group = self.group.clone().unwrap_or_else(|| format!("MC_{cluster}_{cluster}_{region}"));
        Ok(ClusterIdentity {
            id: ArmId::new(format!(
                "/subscriptions/{subscription}/resourceGroups/{cluster}/providers/Microsoft.ContainerService/managedClusters/{cluster}"
            ))?,
            tag_value: Arc::from(cluster.as_str()),
            node_resource_group: ArmId::new(format!("/subscriptions/{subscription}/resourceGroups/{group}"))?,
            region: Region::new(region)?,
        })
    }

    fn settings(&self, identity: &ClusterIdentity) -> anyhow::Result<Settings> {
        let catalog = Catalog::embedded()?;
        let region = catalog.find_region(&self.region)?;
        let region = catalog.region(&region).context("region missing from the catalogue")?;
        let mut cloud = CloudSettings::of_region(identity, &region, self.seed);
        cloud.timings = cloud.timings.faster(self.speed);
        let clock = match self.clock {
            Clock::Wall => SimClock::Wall(Arc::new(WallClock::new(self.time_offset_file.clone()))),
            Clock::Virtual => SimClock::at(self.start.unwrap_or_else(Timestamp::now)),
        };
        Ok(Settings {
            bind: self.bind,
            cloud,
            page_size: usize::from(self.page_size),
            clock,
            token: self.token.clone(),
            join: self.join.clone(),
        })
    }

    /// Prints the address.
    fn print_address(&self, url: &str, identity: &ClusterIdentity) -> anyhow::Result<()> {
        let mut out = anstream::stdout().lock();
        let (group, cluster) = (identity.node_resource_group.as_str(), identity.id.as_str());
        match self.output {
            OutputFormat::Text => {
                writeln!(out, "url      {url}\ngroup    {group}\ncluster  {cluster}\ncontrol  {url}/control")?;
            }
            OutputFormat::Json => {
                let control = format!("{url}/control");
                writeln!(out, "{}", json!({ "url": url, "group": group, "cluster": cluster, "control": control }))?;
            }
        }
        Ok(out.flush()?)
    }
}
