//! Arguments of `napkeeper validate`.

use super::crds::CrdSource;
use crate::policy_args::PolicyArgs;
use crate::repository::ReadingArgs;
use clap::ValueEnum;
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_verdict::Severity;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper validate                          all manifests in the current directory
  napkeeper validate clusters/prod apps/pool.yaml
  napkeeper validate overlays/prod            with what its kustomization builds
  kustomize build overlays/prod | napkeeper validate -
  napkeeper validate --changed-since origin/main
  napkeeper validate --policies policies clusters/prod
  napkeeper validate -o sarif > napkeeper.sarif
  napkeeper validate -o json | jq '.findings[].rule'

Checks NodePool, NodeClaim, AKSNodeClass, OrphanSweep, workloads, Scenario and napkeeper.yaml; other kinds are
ignored.
Exit codes: 0 no findings, 1 findings at or above --fail-on, 2 error (bad input or I/O).";

/// Validate manifests: syntax, schemas, Azure constraints, disruption, cost and policies.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files and directories (.yaml, .yml, .json; hidden directories, target and `node_modules` are skipped); - is stdin.
    /// Defaults to the current directory, or with --cluster to that cluster's paths.
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    pub(super) output: OutputFormat,
    /// Lowest severity that results in exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(super) fail_on: FailOn,
    /// Exit with code 0 even if there are no supported manifests.
    #[arg(long)]
    pub(super) allow_empty: bool,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) facts: FactArgs,
    /// CustomResourceDefinitions to validate against: embedded (of this build), embedded:VERSION (fails if the build
    /// has another), cluster (from the current kubeconfig context), or a file or directory.
    #[arg(long, default_value = "embedded", value_name = "WHICH")]
    pub(super) crds: CrdSource,
    #[command(flatten)]
    pub(super) policies: PolicyArgs,
    #[command(flatten)]
    pub(super) known: KnownArgs,
}

/// Where the manifests come from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(super) struct SourceArgs {
    #[command(flatten)]
    pub(super) reading: ReadingArgs,
    /// Read the files of this Git revision instead of the working tree.
    #[arg(long, value_name = "REV")]
    pub(super) rev: Option<String>,
    /// Report only findings in files that changed since the merge base with this Git revision.
    #[arg(long, value_name = "REV")]
    pub(super) changed_since: Option<String>,
}

/// Facts about the cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct FactArgs {
    /// Cluster of napkeeper.yaml to validate for. Defaults to each of them, with its own paths.
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Option<String>,
    /// Azure region. Overrides napkeeper.yaml.
    #[arg(long, value_name = "REGION")]
    pub(super) region: Option<String>,
    /// Kubernetes version such as 1.33. Overrides napkeeper.yaml.
    #[arg(long, value_name = "VERSION", value_parser = kubernetes_version)]
    pub(super) kubernetes_version: Option<String>,
    /// File with the ConfigMap napkeeper-facts: sizes, restrictions and prices of the subscription.
    #[arg(long, value_name = "FILE")]
    pub(super) facts: Option<PathBuf>,
    /// Who launches nodes: managed NAP (companion), or napkeeper itself (provisioner), which refuses some fields.
    #[arg(long, value_enum, default_value_t = ModeArg::Companion, value_name = "MODE")]
    pub(super) mode: ModeArg,
}

/// Findings that are known and not reported again.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Known findings")]
pub(super) struct KnownArgs {
    /// Baseline file with known findings. Overrides napkeeper.yaml.
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// Write all findings to this baseline file instead of reporting them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["baseline", "changed_since"])]
    pub(super) write_baseline: Option<PathBuf>,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Human-readable text.
    Text,
    /// One JSON object.
    Json,
    /// One JSON object per finding and line.
    Jsonl,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for test reports.
    Junit,
    /// GitHub Actions annotations.
    Github,
    /// GitLab code quality report.
    Gitlab,
    /// Markdown for a pull request comment.
    Markdown,
}

/// The lowest severity that results in exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    /// Errors.
    Error,
    /// Errors and warnings.
    Warning,
    /// Nothing.
    Never,
}

impl FailOn {
    /// True when a finding of this severity results in exit code 1.
    pub(super) fn counts(self, severity: Severity) -> bool {
        match self {
            Self::Error => severity == Severity::Error,
            Self::Warning => true,
            Self::Never => false,
        }
    }
}

fn kubernetes_version(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.len() < 6 && part.bytes().all(|b| b.is_ascii_digit());
    let fits = (2..=3).contains(&parts.len()) && parts.iter().all(number);
    fits.then(|| parts.join(".")).ok_or_else(|| "must be a version such as 1.33 or 1.33.2".to_owned())
}
