//! Validation of the input for each cluster.

use super::args::Args;
use super::input::{Input, SourceOrigin};
use super::objects::Objects;
use super::targets::Targets;
use super::targets::sources::{self as target_sources, TargetSources};
use crate::output;
use crate::policy_args::LoadedPolicies;
use crate::repository::{ObjectIdentity, Synced};
use anyhow::bail;
use napkeeper_api::config;
use napkeeper_api::manifests::{self, Source};
use napkeeper_sim::scenario::{KIND, is_scenario, read};
use napkeeper_verdict::rules::{Rule, structure as rules};
use napkeeper_verdict::{Finding, Report, Validator};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A finding with its context.
#[derive(Debug, Clone)]
pub(super) struct ReportedFinding {
    pub(super) finding: Finding,
    /// The clusters that it applies to; empty where none is configured.
    pub(super) clusters: Vec<Arc<str>>,
    /// Position of its source in the input.
    pub(super) source: usize,
    pub(super) object: ObjectIdentity,
    /// Its line may hold a secret, and is not shown.
    pub(super) secret: bool,
    /// The same for the same finding when its lines move; empty until suppression is over.
    pub(super) fingerprint: String,
}

impl ReportedFinding {
    pub(super) fn new(finding: Finding, clusters: Vec<Arc<str>>, source: usize, objects: &mut Objects<'_>) -> Self {
        let object = objects.about(&finding);
        let secret = objects.may_be_secret(&finding);
        Self { finding, clusters, source, object, secret, fingerprint: String::new() }
    }

    /// Its object and the field, such as `NodePool general: spec.weight`; empty for a file as a whole.
    pub(super) fn subject(&self) -> String {
        let parts = [self.object.label(), self.finding.path.clone()];
        let known: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        known.join(": ")
    }
}

/// The input with all that was found in it.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) input: Input,
    /// How many files were validated.
    pub(super) files: usize,
    /// By source, line and column.
    pub(super) findings: Vec<ReportedFinding>,
    /// How many objects were checked.
    pub(super) checked: usize,
    /// Objects of other kinds, by `apiVersion kind`.
    pub(super) skipped: BTreeMap<String, usize>,
    /// Values that depend on variables.
    pub(super) open: usize,
    /// Objects that are in another file too.
    pub(super) repeated: usize,
    /// The origin of the CustomResourceDefinitions.
    pub(super) definitions: String,
}

/// Validates the input with the facts about each cluster.
pub(super) fn validate(args: &Args, targets: &Targets, mut input: Input) -> anyhow::Result<Verdicts> {
    let mut by_target = target_sources::divide(args, targets, &input)?;
    let config_was_added = target_sources::add_config(targets, &mut input, &mut by_target);
    let mut verdicts = validate_each(args, input, &by_target)?;
    for of_target in &by_target {
        // A file of policies that an earlier cluster has too is among the sources by now.
        for (source, findings) in of_target.policies.problems(&verdicts.input.sources) {
            verdicts.add(source, findings);
        }
    }
    if let Some(facts) = targets.unused_facts() {
        for source in manifests::load(std::slice::from_ref(&facts.file)).files {
            verdicts.add(source, vec![facts.finding.clone()]);
        }
    }
    if by_target.iter().all(|of_target| of_target.policies.policies.is_empty()) {
        verdicts.require_supported(args, config_was_added)?;
    }
    Ok(verdicts)
}

/// The findings of another version of the input, such as the merge base, by the facts of today.
pub(super) fn validate_again(args: &Args, targets: &Targets, input: Input) -> anyhow::Result<Verdicts> {
    let by_target = target_sources::divide(args, targets, &input)?;
    validate_each(args, input, &by_target)
}

impl Verdicts {
    /// Adds a source with findings, such as a file of policies.
    pub(super) fn add(&mut self, source: Source, findings: Vec<Finding>) {
        let index = self.input.sources.len();
        let mut objects = Objects::of(&source);
        let reported = |finding| ReportedFinding::new(finding, Vec::new(), index, &mut objects);
        self.findings.extend(findings.into_iter().map(reported));
        let origin = SourceOrigin::File(PathBuf::from(&*source.file));
        self.input.push(source, origin);
    }

    /// Adds a finding in a source of the input.
    pub(super) fn add_to(&mut self, index: usize, finding: Finding, clusters: Vec<Arc<str>>) {
        let Some(source) = self.input.sources.get(index) else { return };
        let reported = ReportedFinding::new(finding, clusters, index, &mut Objects::of(source));
        self.findings.push(reported);
    }

    /// Sorts the findings by source, line and column.
    pub(super) fn sort(&mut self) {
        self.findings.sort_by_key(|one| (one.source, one.finding.line, one.finding.column));
    }

    /// Refuses input without supported manifests: the render may be empty, or the path wrong.
    fn require_supported(&self, args: &Args, config_was_added: bool) -> anyhow::Result<()> {
        let named = args.paths.iter().any(|path| config::has_name(&path.to_string_lossy()));
        let configs = self.input.sources.iter().filter(|source| config::is_source(source));
        let configs = configs.map(|source| source.parsed().documents.len()).sum::<usize>();
        let supported = self.checked - if named && !config_was_added { 0 } else { configs.min(self.checked) };
        let is_silent = self.findings.is_empty() && self.input.unreadable.is_empty();
        if supported > 0 || !is_silent || args.allow_empty {
            return Ok(());
        }
        let cluster = args.facts.cluster.as_ref().map(|name| format!(" for cluster {name}")).unwrap_or_default();
        let others = match self.skipped.values().sum::<usize>() {
            0 => String::new(),
            n => format!(" ({} of other kinds)", output::plural(n, "object")),
        };
        let is_file = args.paths.iter().any(|path| path.is_file());
        let remedy = if is_file && self.input.synced.iter().any(Synced::leads_on) {
            "pass the folder of a Kustomization or Application to read what it syncs"
        } else {
            "check the path"
        };
        bail!(
            "no supported manifests found in {}{cluster}{others}: {remedy}, or use --allow-empty to allow this",
            output::path_list(&self.input.selection.paths)
        )
    }
}

/// Validates the sources of each target with the facts about its cluster. The same finding for several clusters is reported once.
fn validate_each(args: &Args, input: Input, by_target: &[TargetSources<'_>]) -> anyhow::Result<Verdicts> {
    let mut validator = Validator::embedded()?.with_variables().with_definitions(args.crds.load()?);
    let definitions = validator.definitions().origin().to_owned();
    let files = input.files();
    let (findings, skipped) = (Vec::new(), BTreeMap::new());
    let mut verdicts = Verdicts { input, files, findings, checked: 0, skipped, open: 0, repeated: 0, definitions };
    let sources = &verdicts.input.sources;
    let mut by_source: Vec<Option<Vec<ReportedFinding>>> = sources.iter().map(|_| None).collect();
    for of_target in by_target {
        let LoadedPolicies { policies, inputs, .. } = of_target.policies.clone();
        let inputs = inputs.with_render(&policies, &sources_of(sources, of_target));
        validator = validator.with_facts(of_target.target.facts.clone()).with_policies(policies, inputs);
        for (index, report) in reports(&validator, sources, of_target) {
            let (Some(source), Some(found)) = (sources.get(index), by_source.get_mut(index)) else { continue };
            let mut report = with_scenarios(source, report);
            report.findings.iter_mut().for_each(|finding| args.policies.weigh(finding));
            if found.is_none() {
                verdicts.checked += report.checked;
                verdicts.open += report.open;
                verdicts.repeated += report.repeated;
                for (kind, n) in report.skipped {
                    *verdicts.skipped.entry(kind).or_default() += n;
                }
            }
            let clusters: Vec<Arc<str>> = of_target.target.name.iter().cloned().collect();
            merge(found, report.findings, &clusters, index, source);
        }
    }
    verdicts.findings = by_source.into_iter().flatten().flatten().collect();
    verdicts.sort();
    Ok(verdicts)
}

/// Adds the findings in a source for some clusters. One that is known for other clusters gets these as well.
fn merge(
    found: &mut Option<Vec<ReportedFinding>>,
    findings: Vec<Finding>,
    clusters: &[Arc<str>],
    index: usize,
    source: &Source,
) {
    let mut objects = Objects::of(source);
    let known = found.as_ref().map_or(0, Vec::len);
    let found = found.get_or_insert_default();
    for finding in findings {
        match found[..known].iter_mut().find(|known| known.finding == finding) {
            Some(known) => known.clusters.extend(clusters.iter().cloned()),
            None => found.push(ReportedFinding::new(finding, clusters.to_vec(), index, &mut objects)),
        }
    }
}

/// One report for each source of a target. Sources are copied only if not all of them belong to it.
fn reports(validator: &Validator, sources: &[Source], of_target: &TargetSources<'_>) -> Vec<(usize, Report)> {
    let reports = if of_target.sources.len() == sources.len() {
        validator.validate_files(sources)
    } else {
        validator.validate_files(&sources_of(sources, of_target))
    };
    of_target.sources.iter().copied().zip(reports).collect()
}

fn sources_of(sources: &[Source], of_target: &TargetSources<'_>) -> Vec<Source> {
    of_target.sources.iter().filter_map(|i| sources.get(*i).cloned()).collect()
}

/// Adds the findings of scenarios of `simulate`. Whether their steps name existing objects is checked by `simulate`.
fn with_scenarios(source: &Source, mut report: Report) -> Report {
    // The whole file is parsed again only if it may hold one.
    let reading = source.text.contains(KIND).then(|| source.parsed());
    for document in reading.iter().flat_map(|r| &r.documents).filter(|d| is_scenario(d)) {
        report.checked += 1;
        report.skipped.retain(|kind, _| !kind.ends_with(&format!(" {KIND}")));
        for problem in read(document).err().unwrap_or_default() {
            let (line, column) = problem.position.map_or((1, 1), |at| (at.line, at.column));
            let Rule { id: rule, severity, .. } = rules::MEANING;
            let file = problem.file.to_string();
            let (path, message, fix) = (String::new(), problem.message, None);
            report.findings.push(Finding { rule, severity, file, line, column, path, message, fix });
        }
    }
    report.findings.sort_by_key(|f| (f.line, f.column));
    report
}
