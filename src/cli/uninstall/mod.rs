//! `napkeeper uninstall`: takes napkeeper out of a cluster, in an order in which nothing waits for what is gone.

mod apply;
mod cluster;
mod left;
mod ours;
mod report;
mod steps;

use super::Outcome;
use super::explain::cluster::runtime;
use super::output::{self, OutputFormat};
use anyhow::{Context, bail};
use apply::{Applied, Patience, apply};
use cluster::Cluster;
use napkeeper_api::types::duration::parse_with_days;
use report::{Report, TakenStep};
use std::path::PathBuf;
use std::time::Duration;
use steps::{Removal, Step};

const EXAMPLES: &str = "\
Examples:
  napkeeper uninstall --dry-run                      print what would be done, and what stays
  napkeeper uninstall --apply                        keep nodes, and hand NodePools over
  napkeeper uninstall --apply --drain                delete NodePools first, and with them their nodes
  napkeeper uninstall --apply --delete-records       with OrphanSweeps, PlacementPolicies and records

It runs with the rights of the user, and may be repeated after an interruption. CustomResourceDefinitions of Karpenter are
deleted only if napkeeper installed them and they hold nothing.
Exit codes: 0 printed, or removed; 1 something is left that was to be removed; 2 error.";

/// Take napkeeper out of a cluster.
///
/// First go the webhook configurations, then the workloads, the finalizers, permissions and configuration, and at last
/// definitions without objects. Nodes, NodePools and NodeClaims stay, unless --drain is given.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Print what would be done, in order, and what stays. Changes nothing.
    #[arg(long, conflicts_with = "apply")]
    dry_run: bool,
    /// Do it.
    #[arg(long)]
    apply: bool,
    /// Delete the NodePools that a provisioner manages first, and wait until the controller has drained their nodes.
    #[arg(long, conflicts_with = "release_nodes")]
    drain: bool,
    /// No Karpenter takes over: also take karpenter.sh/termination off NodeClaims of napkeeper and their Nodes.
    #[arg(long)]
    release_nodes: bool,
    /// Delete OrphanSweeps, PlacementPolicies, OrphanRecords and NodeRecords with their definitions.
    #[arg(long)]
    delete_records: bool,
    /// Namespace of napkeeper.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// Kubeconfig [default: the pod's service account, else the user's kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How long to wait for what is deleted, for each step.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// How long to wait for --drain.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    drain_timeout: Duration,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = parse_with_days(text).map_err(|error| error.to_string())?;
    Duration::try_from(parsed).map_err(|_| "must not be negative".to_owned())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if !args.dry_run && !args.apply {
        bail!("choose --dry-run, which prints what would be removed and what stays, or --apply, which removes it");
    }
    let report = runtime()?.block_on(remove(args))?;
    output::print(args.output, &report)?;
    Ok(if args.dry_run || report.is_complete() { Outcome::Fine } else { Outcome::Findings })
}

async fn remove(args: &Args) -> anyhow::Result<Report> {
    let client = napkeeper_kube::connect(args.kubeconfig.as_deref()).await.context("cannot reach a cluster")?;
    let removal = Removal {
        cluster: Cluster { client, namespace: args.namespace.clone() },
        drains: args.drain,
        releases_nodes: args.release_nodes,
        deletes_records: args.delete_records,
    };
    if let Some(git) = removal.git().await? {
        output::warning(&format!("napkeeper is applied again by {git}, before --apply"));
    }
    let Applied { steps, stopped } = if args.apply {
        apply(&removal, Patience { drain: args.drain_timeout, other: args.timeout }).await?
    } else {
        Applied { steps: plan(&removal).await?, stopped: None }
    };
    Ok(Report { dry_run: args.dry_run, steps, stopped, left: removal.left().await? })
}

/// The steps as they would be taken now.
async fn plan(removal: &Removal) -> anyhow::Result<Vec<TakenStep>> {
    let (mut steps, mut gone) = (Vec::new(), Vec::new());
    for step in Step::ALL {
        let mut actions = removal.actions(step).await?;
        actions.retain(|action| !gone.contains(action.object()));
        gone.extend(actions.iter().map(|action| action.object().clone()));
        steps.push(TakenStep::new(step, actions));
    }
    Ok(steps)
}
