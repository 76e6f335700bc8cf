//! `napkeeper audit`: lists orphaned resources in the node resource group and their cost.

mod failed_listings;
mod findings;
mod format;
mod input;
mod listing_check;
mod preflight;
mod refusals;
mod remarks;
mod report;
mod saved;

use crate::{Outcome, output};
use anyhow::bail;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use failed_listings::failed_listing;
use indicatif::{ProgressBar, ProgressStyle};
use input::Input;
use jiff::Timestamp;
use napkeeper_controller::azure_args::{AzureArgs, ModeArg};
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::azure::inventory::ListFailure;
use napkeeper_core::orphans::AuditStatus;
use report::{FailedListing, Report, ResourceFinding};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  napkeeper audit                                     the cluster of napkeeper.yaml, live and read-only
  napkeeper audit --save listings && napkeeper audit --from listings -o csv > orphans.csv
  napkeeper audit --subscription 0000… --resource-group MC_shop_shop_westeurope \\
      --cluster-id /subscriptions/0000…/resourceGroups/shop/providers/Microsoft.ContainerService/managedClusters/shop
  napkeeper audit --kind nic --status orphan,unproven --fail-on never
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
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
    /// Show only these kinds. Can be repeated.
    #[arg(long, value_parser = kind_parser(), value_delimiter = ',', value_name = "KIND")]
    kind: Vec<ResourceKind>,
    /// Show only resources of this status. Can be repeated.
    #[arg(long, value_parser = status_parser(), value_delimiter = ',', value_name = "STATUS")]
    status: Vec<AuditStatus>,
    /// Also show resources in use.
    #[arg(long)]
    all: bool,
    /// Which findings cause exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Orphans, value_name = "WHAT")]
    fail_on: FailOn,
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// A table for people.
    #[value(alias = "table")]
    Text,
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

/// Parses one of some values, each with its name and what it means.
fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [(&'static str, T, &'static str)],
) -> impl TypedValueParser<Value = T> + use<T> {
    let possible = values.iter().map(|(name, _, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(possible).try_map(|given: String| {
        let value = values.iter().find(|(name, ..)| *name == given).map(|(_, value, _)| *value);
        value.ok_or_else(|| format!("unknown value {given}"))
    })
}

fn kind_parser() -> impl TypedValueParser<Value = ResourceKind> {
    one_of(&[
        ("nic", ResourceKind::Nic, "Network interfaces"),
        ("os-disk", ResourceKind::OsDisk, "OS disks"),
        ("vm", ResourceKind::Vm, "Virtual machines"),
        ("data-disk", ResourceKind::DataDisk, "Data disks"),
    ])
}

fn status_parser() -> impl TypedValueParser<Value = AuditStatus> {
    one_of(&[
        ("orphan", AuditStatus::Orphan, "Confirmed: an orphan for long enough, according to records"),
        (
            "unproven",
            AuditStatus::Unproven,
            "A probable orphan, old enough according to Azure, but not confirmed: not observed twice by the controller",
        ),
        ("suspect", AuditStatus::Suspect, "No references found, but too young, or of unknown age"),
        ("unknown", AuditStatus::Unknown, "A listing is incomplete"),
        ("foreign", AuditStatus::Foreign, "Not owned by this cluster: reported, never changed"),
        ("protected", AuditStatus::Protected, "Protected by an exclusion, a volume, a snapshot or AKS"),
        ("in-flight", AuditStatus::InFlight, "It is being launched"),
        ("owned", AuditStatus::Owned, "In use by this cluster"),
    ])
}

impl View {
    fn shows(&self, finding: &ResourceFinding) -> bool {
        let of_status = if self.status.is_empty() {
            self.all || !finding.status.is_in_use()
        } else {
            self.status.contains(&finding.status)
        };
        self.has_kind(finding) && of_status
    }

    fn has_kind(&self, finding: &ResourceFinding) -> bool {
        self.kind.is_empty() || self.kind.contains(&finding.kind)
    }

    /// Drops findings that are not shown, and counts them.
    fn filter(&self, mut report: Report) -> Report {
        let (shown, omitted): (Vec<_>, Vec<_>) = report.findings.into_iter().partition(|finding| self.shows(finding));
        let with_all = omitted.iter().filter(|finding| self.status.is_empty() && self.has_kind(finding));
        report.omitted_in_use = with_all.count();
        report.omitted = omitted.len();
        report.findings = shown;
        report
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
    let report = args.view.filter(findings::report(&input)?);
    output::print(args.view.output, &report)?;
    if args.view.output == OutputFormat::Csv {
        // An error of stderr cannot be reported anywhere.
        drop(format::write_remarks(&report, &mut anstream::stderr()));
    }
    Ok(match () {
        () if !report.is_conclusive() => Outcome::Incomplete,
        () if args.view.fail_on == FailOn::Orphans && report.orphans.resources > 0 => Outcome::Findings,
        () => Outcome::Fine,
    })
}

async fn as_controller(args: &Args) -> anyhow::Result<Outcome> {
    preflight::check_format(args.view.output)?;
    let (azure, group) = input::adapter(args)?;
    if let Err(error) = azure.reach().await {
        let failure = ListFailure::of_azure("the node resource group", error);
        let FailedListing { listing, reason, remedy } = failed_listing(&failure);
        bail!("{listing}: {reason}\n  help: {remedy}");
    }
    let report = preflight::PreflightReport::of(&azure.preflight().await, &group, args.mode)?;
    output::print(args.view.output, &report)?;
    let fails = args.view.fail_on == FailOn::Orphans && !report.is_clear();
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
    let calls = output::plural(calls as usize, "time");
    // An error of stderr cannot be reported anywhere.
    drop(writeln!(anstream::stderr(), "{calls} to Azure ({}) in {took:.1}s", each.join(", ")));
    Ok(input)
}
