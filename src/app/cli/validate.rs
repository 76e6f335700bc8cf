//! `napkeeper validate`: what is wrong with these manifests?

use super::Outcome;
use super::output::{self, Format};
use super::policy_args::{self, LoadedPolicies, PolicyArgs};
use anyhow::bail;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, Loaded, STDIN, Source};
use napkeeper_sim::scenario::{KIND, is_scenario, read};
use napkeeper_verdict::rules::{Rule, structure as rules};
use napkeeper_verdict::{Finding, Report, Severity, Verdict};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  napkeeper validate                          every manifest under the current folder
  napkeeper validate clusters/prod apps/pool.yaml
  kustomize build overlays/prod | napkeeper validate -
  napkeeper validate --policies policies clusters/prod
  napkeeper validate -o json | jq '.findings[].rule'

NodePool, NodeClaim, AKSNodeClass, OrphanSweep, Scenario and napkeeper.yaml are checked; other kinds are counted and skipped.
Exit codes: 0 no errors (warnings do not count), 1 errors, 2 something could not be read.";

/// Check manifests: syntax, kinds and versions, schemas.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Files and folders (.yaml, .yml, .json; hidden folders, target and node_modules are skipped); - is stdin.
    #[arg(default_value = ".", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How to print the findings.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    policies: PolicyArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut loaded = manifests::load(&args.paths);
    if loaded.sources.is_empty() && loaded.unreadable.is_empty() {
        let shown: Vec<String> = args.paths.iter().map(|p| p.display().to_string()).collect();
        bail!("no manifests in {}: there is no .yaml, .yml or .json file", shown.join(", "));
    }
    add_config(&mut loaded, &args.paths);
    let policies = args.policies.load(&policy_args::of_the_only_cluster(&loaded.sources))?;
    let broken = policies.problems(&loaded.sources);
    let LoadedPolicies { policies, inputs, .. } = policies;
    let inputs = inputs.with_render(&policies, &loaded.sources);
    let judged = Verdict::embedded()?.with_policies(policies, inputs).judge(&loaded.sources);
    let mut reports: Vec<Report> = loaded.sources.iter().zip(judged).map(|(s, r)| with_scenarios(s, r)).collect();
    for (source, report) in broken {
        loaded.sources.push(source);
        reports.push(report);
    }
    reports.iter_mut().for_each(|report| args.policies.weigh(report));
    let mut out = anstream::stdout().lock();
    let summary = Summary::of(&loaded, &reports);
    match args.output {
        Format::Text => {
            for (source, report) in loaded.sources.iter().zip(&reports) {
                for finding in &report.findings {
                    output::finding(&mut out, finding, &source.text)?;
                    writeln!(out)?;
                }
            }
            writeln!(out, "{}", summary.text())?;
        }
        Format::Json => {
            let findings: Vec<_> = reports.iter().flat_map(|r| &r.findings).collect();
            let result = json!({ "findings": findings, "summary": summary.json() });
            writeln!(out, "{}", serde_json::to_string_pretty(&result)?)?;
        }
    }
    out.flush()?;
    for problem in &loaded.unreadable {
        output::error(&problem.to_string());
    }
    Ok(match summary {
        Summary { unreadable: 1.., .. } => Outcome::Incomplete,
        Summary { errors: 1.., .. } => Outcome::Findings,
        _ => Outcome::Fine,
    })
}

/// Adds what is wrong with scenarios of `simulate`. Whether their steps name something is known only beside manifests.
fn with_scenarios(source: &Source, mut report: Report) -> Report {
    for document in source.reading().documents.iter().filter(|d| is_scenario(d)) {
        report.checked += 1;
        report.skipped.retain(|kind, _| !kind.ends_with(&format!(" {KIND}")));
        for problem in read(document).err().unwrap_or_default() {
            let (line, column) = problem.at.map_or((1, 1), |at| (at.line, at.column));
            let Rule { id: rule, severity, .. } = rules::MEANING;
            let file = problem.file.to_string();
            let (path, message, fix) = (String::new(), problem.message, None);
            report.findings.push(Finding { rule, severity, file, line, column, path, message, fix });
        }
    }
    report.findings.sort_by_key(|f| (f.line, f.column));
    report
}

/// The repository's `napkeeper.yaml` is checked as well, wherever above the paths it is.
fn add_config(loaded: &mut Loaded, paths: &[PathBuf]) {
    if loaded.sources.iter().any(|s| config::is_config(&s.file)) {
        return;
    }
    let from = paths.iter().find(|p| p.as_os_str() != STDIN);
    let folder = match from {
        Some(path) if path.is_dir() => path.as_path(),
        Some(path) => path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new(".")),
        None => Path::new("."),
    };
    let Some(file) = config::find(folder) else {
        return;
    };
    let here = std::env::current_dir().ok();
    let near = here.and_then(|here| file.strip_prefix(here).ok().map(Path::to_path_buf));
    let more = manifests::load(&[near.unwrap_or(file)]);
    loaded.sources.extend(more.sources);
    loaded.unreadable.extend(more.unreadable);
}

/// What the last line says.
struct Summary {
    files: usize,
    checked: usize,
    errors: usize,
    warnings: usize,
    unreadable: usize,
    skipped: BTreeMap<String, usize>,
}

impl Summary {
    fn of(loaded: &Loaded, reports: &[Report]) -> Self {
        let mut all = Report::default();
        reports.iter().for_each(|r| all.add(r.clone()));
        let errors = all.findings.iter().filter(|f| f.severity == Severity::Error).count();
        Self {
            files: loaded.sources.len(),
            checked: all.checked,
            errors,
            warnings: all.findings.len() - errors,
            unreadable: loaded.unreadable.len(),
            skipped: all.skipped,
        }
    }

    fn text(&self) -> String {
        let checked = output::plural(self.checked, "object");
        let files = output::plural(self.files, "file");
        let errors = output::plural(self.errors, "error");
        let warnings = output::plural(self.warnings, "warning");
        let mut text = format!("{checked} in {files} checked: {errors}, {warnings}");
        if !self.skipped.is_empty() {
            let kinds: Vec<String> = self.skipped.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            let total = self.skipped.values().sum::<usize>();
            text += &format!("; {total} of other kinds skipped ({})", kinds.join(", "));
        }
        if self.unreadable > 0 {
            text += &format!("; {} could not be read", output::plural(self.unreadable, "path"));
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "files": self.files,
            "checked": self.checked,
            "errors": self.errors,
            "warnings": self.warnings,
            "unreadable": self.unreadable,
            "skipped": self.skipped,
        })
    }
}
