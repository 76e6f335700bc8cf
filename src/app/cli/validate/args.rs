//! What can `napkeeper validate` be asked for?

use super::super::policy_args::PolicyArgs;
use super::definitions::Choice;
use clap::ValueEnum;
use napkeeper_verdict::Severity;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper validate                          every manifest under the current folder
  napkeeper validate clusters/prod apps/pool.yaml
  napkeeper validate overlays/prod            built by kustomize where it is a kustomization
  kustomize build overlays/prod | napkeeper validate -
  napkeeper validate --changed-since origin/main
  napkeeper validate --policies policies clusters/prod
  napkeeper validate -o sarif > napkeeper.sarif
  napkeeper validate -o json | jq '.findings[].rule'

NodePool, NodeClaim, AKSNodeClass, OrphanSweep, workloads, Scenario and napkeeper.yaml are checked; other kinds are
counted and skipped.
Exit codes: 0 clean, 1 findings at or above --fail-on, 2 it could not be done.";

/// Check manifests: syntax, kinds and versions, schemas, and what they would do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files and folders (.yaml, .yml, .json; hidden folders, target and `node_modules` are skipped); - is stdin.
    /// Absent is the current folder, or with --cluster that cluster's paths.
    #[arg(value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// How to print the findings.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub(super) output: Format,
    /// The least severity that ends in exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(super) fail_on: FailOn,
    /// End in exit code 0 also where there is no manifest of ours.
    #[arg(long)]
    pub(super) allow_empty: bool,
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) facts: FactArgs,
    /// The CustomResourceDefinitions to judge by: embedded (of this build), embedded:VERSION (which must be what they
    /// follow), cluster (as your kubeconfig reaches it), or a folder or file.
    #[arg(long, default_value = "embedded", value_name = "WHICH")]
    pub(super) crds: Choice,
    #[command(flatten)]
    pub(super) policies: PolicyArgs,
    #[command(flatten)]
    pub(super) known: KnownArgs,
}

/// Where the manifests come from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Input")]
pub(super) struct SourceArgs {
    /// Which folders kustomize, or else kubectl, builds: those with a kustomization among PATH (auto), every PATH
    /// (always, or the flag alone), or none (never: their files are read as they are).
    #[arg(long, value_enum, default_value_t = Kustomize::Auto, default_missing_value = "always", num_args = 0..=1)]
    #[arg(require_equals = true, value_name = "WHEN")]
    pub(super) kustomize: Kustomize,
    /// Read the files of this Git revision, not those of the work tree.
    #[arg(long, value_name = "REV")]
    pub(super) rev: Option<String>,
    /// Report only what is found in files that changed since this Git revision (since the merge base with it).
    #[arg(long, value_name = "REV")]
    pub(super) changed_since: Option<String>,
}

/// What is known beside the manifests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct FactArgs {
    /// The cluster of napkeeper.yaml to judge for; absent is each of them, with its own paths.
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Option<String>,
    /// Azure region, in place of napkeeper.yaml's.
    #[arg(long, value_name = "REGION")]
    pub(super) region: Option<String>,
    /// Kubernetes version such as 1.33, in place of napkeeper.yaml's.
    #[arg(long, value_name = "VERSION", value_parser = kubernetes_version)]
    pub(super) kubernetes_version: Option<String>,
    /// The ConfigMap napkeeper-facts as a file: sizes, restrictions and prices of the subscription itself.
    #[arg(long, value_name = "FILE")]
    pub(super) facts: Option<PathBuf>,
}

/// What is known already and not reported again.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Known findings")]
pub(super) struct KnownArgs {
    /// File of known findings, in place of napkeeper.yaml's.
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// Write all that is found to this file, as a baseline, and report none of it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["baseline", "changed_since"])]
    pub(super) write_baseline: Option<PathBuf>,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// One JSON object a finding, each on its line.
    Jsonl,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for test reports.
    Junit,
    /// Annotations of GitHub Actions.
    Github,
    /// Code quality report of GitLab.
    Gitlab,
    /// Markdown for a comment on a pull request.
    Markdown,
}

/// The least severity that counts.
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
    /// True when a finding of this severity counts.
    pub(super) fn counts(self, severity: Severity) -> bool {
        match self {
            Self::Error => severity == Severity::Error,
            Self::Warning => true,
            Self::Never => false,
        }
    }
}

/// Which folders are built by kustomize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kustomize {
    /// Those among PATH that hold a kustomization.
    Auto,
    /// Every PATH.
    Always,
    /// None.
    Never,
}

fn kubernetes_version(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.len() < 6 && part.bytes().all(|b| b.is_ascii_digit());
    let fits = (2..=3).contains(&parts.len()) && parts.iter().all(number);
    fits.then(|| parts.join(".")).ok_or_else(|| "must be a version such as 1.33 or 1.33.2".to_owned())
}
