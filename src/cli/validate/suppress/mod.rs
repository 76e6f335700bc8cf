//! Suppression of findings: by comments, baselines, and unchanged files.

mod baseline;
mod fingerprint;
mod ignore;

use super::args::Args;
use super::input::{ChangedFiles, Input, SourceOrigin};
use super::locate::locate;
use super::objects::Objects;
use super::targets::{BaselineFile, Targets};
use super::verdicts::{ReportedFinding, Verdicts, validate_again};
use anyhow::Context;
use baseline::Baseline;
use napkeeper_verdict::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The findings that are left to report.
#[derive(Debug)]
pub(super) struct Suppressed {
    pub(super) verdicts: Verdicts,
    pub(super) counts: SuppressedCounts,
}

/// How many findings are not reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SuppressedCounts {
    /// By a comment.
    pub(super) ignored: usize,
    /// By a baseline.
    pub(super) known: usize,
    /// In files that did not change.
    pub(super) unchanged: usize,
}

/// Removes suppressed findings, and adds findings about ignores and baselines themselves.
pub(super) fn suppress(
    args: &Args,
    changed: Option<&ChangedFiles>,
    targets: &Targets,
    mut verdicts: Verdicts,
) -> anyhow::Result<Suppressed> {
    let mut counts = SuppressedCounts { ignored: by_comments(&mut verdicts), ..SuppressedCounts::default() };
    counts.known = match &args.known.write_baseline {
        Some(file) => write_baseline(file, &mut verdicts.findings)?,
        None => {
            let root = targets.config.as_ref().map(|(_, folder)| folder.as_path());
            by_baselines(&targets.baselines(&args.known), root, &mut verdicts)?
        }
    };
    if let Some(changed) = changed {
        let before = || {
            let base = changed.read_base(&verdicts.input.selection)?;
            let mut base = validate_again(args, targets, base)?;
            locate(&mut base);
            let exact = |reported: &ReportedFinding| ExactFinding::of(reported, changed, &base.input.origins);
            Ok(base.findings.iter().filter_map(exact).collect())
        };
        let origins = &verdicts.input.origins;
        counts.unchanged = by_change(changed, origins, &mut verdicts.findings, before)?;
    }
    verdicts.sort();
    fingerprint::set_fingerprints(&mut verdicts.findings);
    Ok(Suppressed { verdicts, counts })
}

/// Removes what comments name, and adds the findings about the comments. Returns how many were removed.
fn by_comments(verdicts: &mut Verdicts) -> usize {
    let mut ignored = 0;
    let mut wrong: Vec<(usize, Finding)> = Vec::new();
    let mut rest = std::mem::take(&mut verdicts.findings).into_iter().peekable();
    for (i, source) in verdicts.input.sources.iter().enumerate() {
        let mut findings = Vec::new();
        while let Some(reported) = rest.next_if(|reported| reported.source == i) {
            findings.push(reported);
        }
        let (count, of_source) = ignore::apply(source, &mut findings);
        ignored += count;
        // A comment that a build keeps is applied, and judged, in its own file.
        if !matches!(verdicts.input.origins.get(i), Some(SourceOrigin::Render { .. })) {
            wrong.extend(of_source.into_iter().map(|finding| (i, finding)));
        }
        verdicts.findings.extend(findings);
    }
    add_of_all_variants(verdicts, wrong);
    ignored
}

/// Adds findings about comments. A file may be several sources, with other values of variables: what holds for one of them only is no
/// finding, and what holds for all is one.
fn add_of_all_variants(verdicts: &mut Verdicts, wrong: Vec<(usize, Finding)>) {
    let mut variants: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for source in &verdicts.input.sources {
        *variants.entry(Arc::clone(&source.file)).or_default() += 1;
    }
    let mut seen: BTreeMap<(String, usize, String), usize> = BTreeMap::new();
    for (i, finding) in wrong {
        let Some(source) = verdicts.input.sources.get(i) else { continue };
        let key = (finding.file.clone(), finding.line, finding.message.clone());
        let times = seen.entry(key).or_default();
        *times += 1;
        if variants.get(&source.file) == Some(times) {
            let mut objects = Objects::of(source);
            verdicts.findings.push(ReportedFinding::new(finding, Vec::new(), i, &mut objects));
        }
    }
    verdicts.sort();
}

/// Removes what baselines hold, and adds their stale entries. Returns how many were removed.
fn by_baselines(files: &[BaselineFile], root: Option<&Path>, verdicts: &mut Verdicts) -> anyhow::Result<usize> {
    if files.is_empty() {
        // The objects of all sources are only needed for baselines.
        return Ok(0);
    }
    let validated = ValidatedFiles::of(&verdicts.input);
    let mut clusters_of: BTreeMap<&PathBuf, Vec<Option<&Arc<str>>>> = BTreeMap::new();
    for BaselineFile { cluster, path } in files {
        clusters_of.entry(path).or_default().push(cluster.as_ref());
    }
    let (mut known, mut stale) = (0, Vec::new());
    for (path, clusters) in clusters_of {
        let mut baseline = Baseline::read(path, root)?;
        let before = verdicts.findings.len();
        // What is in the file of an entry is that before what has moved.
        for moved in [false, true] {
            verdicts.findings.retain_mut(|reported| !is_known(&mut baseline, &clusters, moved, reported));
        }
        known += before - verdicts.findings.len();
        let findings = baseline.stale(|name, file| validated.covers(name, file));
        stale.push((baseline.source, findings));
    }
    for (source, findings) in stale.into_iter().filter(|(_, findings)| !findings.is_empty()) {
        verdicts.add(source, findings);
    }
    Ok(known)
}

/// True when a finding is in a baseline for all clusters that it is about. What is known for some is reported for the others.
fn is_known(
    baseline: &mut Baseline,
    clusters: &[Option<&Arc<str>>],
    moved: bool,
    reported: &mut ReportedFinding,
) -> bool {
    let is_for_all = clusters.contains(&None);
    let is_for = |cluster: &Arc<str>| clusters.contains(&Some(cluster));
    if !is_for_all && !reported.clusters.iter().any(is_for) || !baseline.takes(reported, moved) {
        return false;
    }
    reported.clusters.retain(|cluster| !is_for(cluster));
    is_for_all || reported.clusters.is_empty()
}

/// A finding with its position, for files whose lines did not move.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExactFinding {
    file: String,
    line: usize,
    column: usize,
    rule: &'static str,
    path: String,
    message: String,
    /// What is wrong for another cluster as well is new there.
    clusters: Vec<Arc<str>>,
}

impl ExactFinding {
    /// The finding, if it is in a file of the repository.
    fn of(reported: &ReportedFinding, changed: &ChangedFiles, origins: &[SourceOrigin]) -> Option<Self> {
        let Finding { line, column, rule, path, message, .. } = &reported.finding;
        let file = changed.path_of(origins.get(reported.source)?)?;
        let (path, message, clusters) = (path.clone(), message.clone(), reported.clusters.clone());
        Some(Self { file, line: *line, column: *column, rule, path, message, clusters })
    }
}

/// Removes findings in unchanged files that existed before. New ones are due to a change elsewhere, such as a deleted
/// node class. Returns how many were removed.
fn by_change(
    changed: &ChangedFiles,
    origins: &[SourceOrigin],
    findings: &mut Vec<ReportedFinding>,
    before: impl FnOnce() -> anyhow::Result<BTreeSet<ExactFinding>>,
) -> anyhow::Result<usize> {
    let has_changed: Vec<bool> = origins.iter().map(|origin| changed.contains(origin)).collect();
    let in_changed = |reported: &ReportedFinding| has_changed.get(reported.source).copied().unwrap_or(true);
    if findings.iter().all(in_changed) {
        return Ok(0);
    }
    let before = before()?;
    let count = findings.len();
    // Findings about ignores and baselines belong to their own file.
    let is_new = |reported: &ReportedFinding| {
        !is_about_suppression(reported)
            && ExactFinding::of(reported, changed, origins).is_some_and(|exact| !before.contains(&exact))
    };
    findings.retain(|reported| in_changed(reported) || is_new(reported));
    Ok(count - findings.len())
}

/// True for a finding about an ignore or a baseline.
fn is_about_suppression(reported: &ReportedFinding) -> bool {
    reported.finding.rule.starts_with("NK8")
}

/// Writes all findings to a baseline, except those about suppression. Returns how many were written.
fn write_baseline(file: &Path, findings: &mut Vec<ReportedFinding>) -> anyhow::Result<usize> {
    let (own, known): (Vec<_>, Vec<_>) = std::mem::take(findings).into_iter().partition(is_about_suppression);
    std::fs::write(file, baseline::text(&known)?)
        .with_context(|| format!("cannot write the baseline {}", file.display()))?;
    *findings = own;
    Ok(known.len())
}

/// What this run has validated.
struct ValidatedFiles {
    /// As findings name it.
    names: BTreeSet<Arc<str>>,
    /// Without symbolic links.
    files: BTreeSet<PathBuf>,
}

impl ValidatedFiles {
    fn of(input: &Input) -> Self {
        let parts = input.origins.iter().flat_map(|origin| match origin {
            SourceOrigin::Render { parts, .. } => &parts[..],
            SourceOrigin::File(_) | SourceOrigin::Stdin => &[],
        });
        let names: BTreeSet<Arc<str>> =
            input.sources.iter().chain(parts).map(|source| Arc::clone(&source.file)).collect();
        let files = names.iter().filter_map(|name| std::fs::canonicalize(&**name).ok()).collect();
        Self { names, files }
    }

    fn covers(&self, name: &str, file: &Path) -> bool {
        self.names.contains(name) || self.files.contains(file)
    }
}
