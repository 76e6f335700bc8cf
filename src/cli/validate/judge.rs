//! What is found in each file, for whichever cluster?

use super::super::policy_args::LoadedPolicies;
use super::args::Args;
use super::clusters::Scope;
use super::suppress::identity::Objects;
use napkeeper_api::manifests::Source;
use napkeeper_sim::scenario::{KIND, is_scenario, read};
use napkeeper_verdict::rules::{Rule, structure as rules};
use napkeeper_verdict::{Finding, Report, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A finding, and what is known around it.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) finding: Finding,
    /// The clusters that it is true of; empty where none is configured.
    pub(super) clusters: Vec<Arc<str>>,
    /// Which of the sources it stands in.
    pub(super) source: usize,
    /// `apiVersion/kind/name` of its object; empty where there is none.
    pub(super) object: String,
    /// Its line may hold a secret, and is not shown.
    pub(super) secret: bool,
    /// The same for the same fault, wherever its lines move; see [`super::suppress::identity`].
    pub(super) fingerprint: String,
}

impl Shown {
    pub(super) fn new(finding: Finding, clusters: Vec<Arc<str>>, source: usize, objects: &mut Objects<'_>) -> Self {
        let object = objects.about(&finding);
        let secret = objects.may_be_secret(&finding);
        Self { finding, clusters, source, object, secret, fingerprint: String::new() }
    }
}

/// All that is found, and what was looked at.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// By source, line and column.
    pub(super) shown: Vec<Shown>,
    /// How many objects were checked.
    pub(super) checked: usize,
    /// Objects of other kinds, by `apiVersion kind`.
    pub(super) skipped: BTreeMap<String, usize>,
    /// The definitions that were judged by.
    pub(super) definitions: String,
}

/// A part of the sources that belongs together.
pub(super) struct Part<'s> {
    pub(super) scope: &'s Scope,
    pub(super) policies: LoadedPolicies,
    /// Which of the sources.
    pub(super) members: Vec<usize>,
}

/// Judges each part by what is known of its cluster. What is found in a file for several clusters is one finding.
pub(super) fn judge(args: &Args, sources: &[Source], parts: &[Part<'_>]) -> anyhow::Result<Judged> {
    let mut verdict = Verdict::embedded()?.with_definitions(args.crds.load()?);
    let definitions = verdict.definitions().origin().to_owned();
    let mut judged = Judged { definitions, ..Judged::default() };
    let mut all: Vec<Vec<Shown>> = sources.iter().map(|_| Vec::new()).collect();
    let mut counted = vec![false; sources.len()];
    for part in parts {
        let LoadedPolicies { policies, inputs, .. } = part.policies.clone();
        let inputs = inputs.with_render(&policies, &members(sources, &part.members));
        verdict = verdict.with_facts(part.scope.facts.clone()).with_policies(policies, inputs);
        for (source, report) in reports(&verdict, sources, &part.members) {
            let (Some(text), Some(found)) = (sources.get(source), all.get_mut(source)) else { continue };
            let report = with_scenarios(text, report);
            let clusters: Vec<Arc<str>> = part.scope.name.iter().cloned().collect();
            let again = counted.get_mut(source).is_some_and(|counted| std::mem::replace(counted, true));
            let mut objects = Objects::of(text);
            for mut finding in report.findings {
                args.policies.weigh(&mut finding);
                let known = found.iter_mut().filter(|_| again).find(|known| known.finding == finding);
                match known {
                    Some(known) => known.clusters.extend(clusters.iter().cloned()),
                    None => found.push(Shown::new(finding, clusters.clone(), source, &mut objects)),
                }
            }
            if !again {
                judged.checked += report.checked;
                for (kind, n) in report.skipped {
                    *judged.skipped.entry(kind).or_default() += n;
                }
            }
        }
    }
    judged.shown = all.into_iter().flatten().collect();
    sort(&mut judged.shown);
    Ok(judged)
}

/// By source, line and column.
pub(super) fn sort(shown: &mut [Shown]) {
    shown.sort_by_key(|s| (s.source, s.finding.line, s.finding.column));
}

/// One report for each of the members. Only where not all sources belong to the part are they copied.
fn reports(verdict: &Verdict, sources: &[Source], members: &[usize]) -> Vec<(usize, Report)> {
    let reports = if members.len() == sources.len() {
        verdict.judge(sources)
    } else {
        verdict.judge(&self::members(sources, members))
    };
    members.iter().copied().zip(reports).collect()
}

fn members(sources: &[Source], members: &[usize]) -> Vec<Source> {
    members.iter().filter_map(|i| sources.get(*i).cloned()).collect()
}

/// Adds what is wrong with scenarios of `simulate`. Whether their steps name something is known only beside manifests.
fn with_scenarios(source: &Source, mut report: Report) -> Report {
    // Reading a file again, whole, only where it may hold one.
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
