//! `napkeeper disruption`: which nodes are replaced or removed next, and what each waits for.

mod calendar;
mod report;

use crate::Outcome;
use crate::explain::source::ClusterArgs;
use crate::output::{self, OutputFormat};
use anyhow::{Context, bail, ensure};
use calendar::CalendarReport;
use jiff::{SignedDuration, Timestamp};
use napkeeper_controller::config_file::{self, ClusterConfig};
use napkeeper_core::model::labels::NODEPOOL;
use napkeeper_core::model::names::{ArmId, NodePoolName, Region};
use napkeeper_core::model::settings::{ClusterIdentity, ControllerMode, Settings};
use napkeeper_core::outlook::{OutlookInput, outlook};
use napkeeper_core::provisioning::ProvisionMemory;
use napkeeper_core::snapshot::Snapshot;
use report::DisruptionReport;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  napkeeper disruption                           all nodes of the cluster of your kubeconfig
  napkeeper disruption general                   those of one NodePool
  napkeeper disruption general -o json           as JSON
  napkeeper disruption --config napkeeper.yaml   by the settings of the controller
  napkeeper disruption --calendar 14d            budgets, expiries and drift of the next 14 days
  kubectl get pods,nodes,nodepools,aksnodeclasses,nodeclaims,daemonsets,pv,pvc,storageclasses,csinodes,namespaces,services,pdb \\
      --all-namespaces -o json > cluster.json \\
      && napkeeper disruption --from cluster.json --at 2026-11-28T12:00:00Z

It changes nothing.
Exit codes: 0 shown, 2 error (bad input or I/O).";

/// Show which nodes are replaced or removed next, what that saves, and what each node waits for.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of a NodePool [default: all].
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The napkeeper.yaml of the controller [default: the defaults of its settings].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Cluster in the file; required if it has several.
    #[arg(long = "cluster", value_name = "NAME", requires = "config")]
    cluster_name: Option<String>,
    /// The time of saved listings, such as 2026-11-28T12:00:00Z [default: now].
    #[arg(long, value_name = "TIME", requires = "from", value_parser = time)]
    at: Option<Timestamp>,
    /// Show instead what budgets allow, what expires, and when drifted nodes are replaced within this time, such as 14d; at
    /// most 90d.
    #[arg(long, value_name = "DURATION", value_parser = calendar::length)]
    calendar: Option<SignedDuration>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

/// A time, and not one near the end of all that can be written.
fn time(text: &str) -> Result<Timestamp, String> {
    let time: Timestamp = text.parse().map_err(|error| format!("{error}; write it as 2026-11-28T12:00:00Z"))?;
    let last = "9000-01-01T00:00:00Z".parse().unwrap_or(Timestamp::MAX);
    let is_near = (Timestamp::UNIX_EPOCH..last).contains(&time);
    if is_near { Ok(time) } else { Err("must be after 1970 and before 9000".to_owned()) }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let cluster_name = args.cluster_name.as_deref();
    let config = args.config.as_deref().map(|file| configured(file, cluster_name)).transpose()?;
    let (snapshot, from) = args.cluster.read(config.as_ref())?;
    let settings = config.map_or_else(defaults, |config| Ok(config.settings))?;
    check_claims(&snapshot, &from)?;
    let pool = args.pool.as_deref().map(|name| find(name, &snapshot, &from)).transpose()?;
    // Times are shown in whole seconds.
    let now = args.at.unwrap_or_else(|| Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default());
    if let Some(length) = args.calendar {
        let until = now.checked_add(length).context("--calendar")?;
        output::print(args.output, &CalendarReport::new(&snapshot, &settings, pool.as_ref(), (now, until)))?;
        return Ok(Outcome::Fine);
    }
    let provision = ProvisionMemory::default();
    let input = OutlookInput { snapshot: &snapshot, provision: &provision, settings: &settings, now, seed: 0 };
    let outlook = outlook(input);
    let report = DisruptionReport::new(input, &outlook, pool.as_ref(), args.config.is_some());
    output::print(args.output, &report)?;
    Ok(Outcome::Fine)
}

/// Nodes of NodePools without any NodeClaim were listed without them: nothing could be said of them.
fn check_claims(snapshot: &Snapshot, from: &str) -> anyhow::Result<()> {
    let nodes = snapshot.nodes().values().filter(|node| node.label(NODEPOOL).is_some()).count();
    ensure!(
        nodes == 0 || snapshot.claims().iter().next().is_some(),
        "{from}: {} of NodePools but no NodeClaim; list nodeclaims too, as in the examples of --help",
        output::plural(nodes, "node")
    );
    Ok(())
}

/// The NodePool of a name.
fn find(name: &str, snapshot: &Snapshot, from: &str) -> anyhow::Result<NodePoolName> {
    let known = snapshot.pools().iter().map(|(name, _)| name);
    let pools: Vec<&NodePoolName> = known.chain(snapshot.invalid_pools().iter().map(|(name, _)| name)).collect();
    if let Some(found) = pools.iter().find(|known| known.as_str() == name) {
        return Ok((*found).clone());
    }
    let names: Vec<&str> = pools.iter().map(|name| name.as_str()).collect();
    bail!("{from}: no NodePool {name} found; {}", output::nearest_object(name, &names))
}

/// A `napkeeper.yaml`, as of a provisioner.
fn configured(file: &Path, cluster: Option<&str>) -> anyhow::Result<ClusterConfig> {
    // That of a companion need not say how nodes are made.
    let mut config = config_file::read_cluster(file, cluster, ControllerMode::Companion)?;
    config.settings.mode = ControllerMode::Provisioner;
    config.options.self_managed = true;
    Ok(config)
}

/// The defaults, by which a controller decides unless its `napkeeper.yaml` says otherwise. Which cluster it is plays no part.
fn defaults() -> anyhow::Result<Settings> {
    let group = ArmId::new("/subscriptions/-/resourceGroups/-")?;
    Ok(Settings::new(ClusterIdentity {
        id: group.clone(),
        tag_value: Arc::from("-"),
        node_resource_group: group,
        region: Region::new("westeurope")?,
    }))
}
