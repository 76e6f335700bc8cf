//! `napkeeper audit`: orphaned resources in the node resource group, and what does it cost?

mod format;
mod input;
mod judge;
mod preflight;
mod remarks;
mod report;
mod saved;
mod shape;
mod words;

use super::{Outcome, output};
use anyhow::bail;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use input::Input;
use jiff::Timestamp;
use judge::ListPrices;
use napkeeper_controller::azure_args::{AzureArgs, ModeArg};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::azure::inventory::ListFailure;
use report::{Report, Row, Standing};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  napkeeper audit                                     the cluster of napkeeper.yaml, live and read-only
  napkeeper audit --save listings && napkeeper audit --from listings -o csv > orphans.csv
  napkeeper audit --subscription 0000… --resource-group MC_shop_shop_westeurope \\
      --cluster-id /subscriptions/0000…/resourceGroups/shop/providers/Microsoft.ContainerService/managedClusters/shop
  napkeeper audit --kind nic --standing orphan,unproven --fail-on never
  napkeeper audit --as-controller                     does this identity have the controller's permissions?
  napkeeper audit --all -o json | jq '.totals'

It deletes nothing. A resource without references that is old enough according to Azure is shown as unproven: only the
controller's records can confirm an orphan.
Exit codes: 0 no orphans, 1 orphans (confirmed or not), 2 error (bad input or I/O), incomplete listing, or
cluster not confirmed.
With --as-controller: 1 if a permission is missing or something blocks, 2 if Azure cannot be reached.";

/// Find orphaned VMs, NICs and disks in the node resource group.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The napkeeper.yaml that identifies the cluster [default: the nearest one here or in a parent folder].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Cluster in the file; required if it has several.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    identity: Identity,
    /// Companion of managed NAP, or provisioner in its place: decides whether VMs may be deleted.
    #[arg(long, value_enum, default_value_t = ModeArg::Companion, value_name = "MODE")]
    mode: ModeArg,
    /// Kubeconfig [default: the pod's service account, else the user's kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the pause switch.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// CSV of prices that override list prices [default: napkeeper.yaml's price sheet]; see docs/facts.md.
    #[arg(long, value_name = "FILE")]
    price_sheet: Option<PathBuf>,
    #[command(flatten)]
    azure: AzureArgs,
    /// Audit saved listings: a folder written by --save, or by az and kubectl. Nothing is sent.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["save", "kubeconfig", "azure_endpoint", "azure_token_file"])]
    from: Option<PathBuf>,
    /// Save the listings of a live run to a new folder.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// When saved listings without a manifest were taken [default: when the first file was written].
    #[arg(long, value_name = "TIME", requires = "from")]
    taken_at: Option<Timestamp>,
    /// Check this identity's permissions in the node resource group, by task, and what blocks it.
    #[arg(long, conflicts_with_all = ["from", "save"])]
    as_controller: bool,
    #[command(flatten)]
    view: View,
}

/// Which cluster it is, in place of napkeeper.yaml.
#[derive(Debug, clap::Args)]
struct Identity {
    /// Subscription id.
    #[arg(long, value_name = "ID", requires_all = ["resource_group", "cluster_id"], conflicts_with = "config")]
    subscription: Option<String>,
    /// Name of the node resource group, MC_….
    #[arg(long, value_name = "NAME", requires_all = ["subscription", "cluster_id"])]
    resource_group: Option<String>,
    /// Resource id of the managed cluster.
    #[arg(long, value_name = "ID", requires_all = ["subscription", "resource_group"])]
    cluster_id: Option<String>,
}

/// What is shown, and how.
#[derive(Debug, clap::Args)]
struct View {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    /// Show only these kinds. Can be repeated.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    kind: Vec<KindArg>,
    /// Show only these standings. Can be repeated.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STANDING")]
    standing: Vec<Standing>,
    /// Also show resources in use.
    #[arg(long)]
    all: bool,
    /// Which findings cause exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Orphans, value_name = "WHAT")]
    fail_on: FailOn,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs: one JSON object. The same input gives the same output.
    Json,
    /// For a comment on a pull request or a ticket.
    Markdown,
    /// For a spreadsheet: one row per finding.
    Csv,
    /// For code scanning: SARIF 2.1.0.
    Sarif,
    /// For Kubernetes: a PolicyReport, to pipe into kubectl apply.
    #[value(name = "policyreport")]
    PolicyReport,
}

/// Which findings cause exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Orphans, confirmed or not.
    Orphans,
    /// Nothing.
    Never,
}

/// Kinds of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// Network interfaces.
    Nic,
    /// OS disks.
    OsDisk,
    /// Virtual machines.
    Vm,
    /// Data disks.
    DataDisk,
}

impl KindArg {
    fn is(self, kind: ResourceKind) -> bool {
        matches!(
            (self, kind),
            (Self::Nic, ResourceKind::Nic)
                | (Self::OsDisk, ResourceKind::OsDisk)
                | (Self::Vm, ResourceKind::Vm)
                | (Self::DataDisk, ResourceKind::DataDisk)
        )
    }
}

impl View {
    fn shows(&self, row: &Row) -> bool {
        let of_kind = self.kind.is_empty() || self.kind.iter().any(|kind| kind.is(row.kind));
        let standing = if self.standing.is_empty() {
            self.all || !row.standing.is_in_use()
        } else {
            self.standing.contains(&row.standing)
        };
        of_kind && standing
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.azure.check()?;
    if let Some(folder) = &args.save {
        saved::check_empty(folder)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.as_controller {
        return runtime.block_on(as_controller(args));
    }
    let input = runtime.block_on(read(args))?;
    let report = report(&input, &args.view)?;
    let mut out = anstream::stdout().lock();
    format::write(args.view.output, &report, &mut out)?;
    out.flush()?;
    if args.view.output == Format::Csv {
        // A stderr that cannot be written to is nobody's problem.
        drop(format::beside(&report, &mut anstream::stderr()));
    }
    Ok(match () {
        () if !report.says() => Outcome::Incomplete,
        () if args.view.fail_on == FailOn::Orphans && report.orphans.resources > 0 => Outcome::Findings,
        () => Outcome::Fine,
    })
}

async fn as_controller(args: &Args) -> anyhow::Result<Outcome> {
    preflight::check(args.view.output)?;
    let (azure, group) = input::adapter(args)?;
    if let Err(error) = azure.reach().await {
        let failed =
            words::failed(&ListFailure { listing: Arc::from("the node resource group"), reason: error.message });
        bail!("{}: {}\n  help: {}", failed.what, failed.why, failed.remedy);
    }
    let found = preflight::found(&azure.preflight().await, &group, args.mode);
    let mut out = anstream::stdout().lock();
    preflight::write(args.view.output, &found, &mut out)?;
    out.flush()?;
    let fails = args.view.fail_on == FailOn::Orphans && !found.is_clear();
    Ok(if fails { Outcome::Findings } else { Outcome::Fine })
}

async fn read(args: &Args) -> anyhow::Result<Input> {
    if let Some(folder) = &args.from {
        return input::from_folder(args, folder).await;
    }
    let began = Instant::now();
    let spinner = ProgressBar::new_spinner().with_message("listing Azure and Kubernetes");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(120));
    let input = input::live(args).await;
    spinner.finish_and_clear();
    let input = input?;
    let calls: u32 = input.calls.values().sum();
    let each: Vec<String> = input.calls.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let took = began.elapsed().as_secs_f64();
    let told = format!("{} to Azure ({}) in {took:.1}s", output::plural(calls as usize, "time"), each.join(", "));
    // A stderr that cannot be written to is nobody's problem.
    drop(writeln!(anstream::stderr(), "{told}"));
    Ok(input)
}

fn report(input: &Input, view: &View) -> anyhow::Result<Report> {
    let catalog = Catalog::embedded()?.priced_by(input.sheet.clone());
    let prices = ListPrices(catalog.region(&input.settings.cluster.region));
    let (mut report, rows) = judge::report(input, &prices, catalog.as_of().to_string())?;
    let all = rows.len();
    report.findings = rows.into_iter().filter(|row| view.shows(row)).collect();
    report.left_out = all - report.findings.len();
    Ok(report)
}
