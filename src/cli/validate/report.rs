//! The report of a validation, and its summary.

use super::args::FailOn;
use super::input::{Input, SourceOrigin};
use super::suppress::Suppressed;
use super::verdicts::{ReportedFinding, Verdicts};
use crate::{Outcome, output};
use napkeeper_api::manifests::OtherFile;
use napkeeper_verdict::Severity;
use serde::Serialize;
use std::collections::BTreeMap;

/// All that is printed.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) input: Input,
    pub(super) findings: Vec<ReportedFinding>,
    pub(super) summary: Summary,
    pub(super) fail_on: FailOn,
}

/// The counts of a run.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) files: usize,
    pub(super) checked: usize,
    pub(super) errors: usize,
    pub(super) warnings: usize,
    /// The origin of the CustomResourceDefinitions.
    pub(super) definitions: String,
    /// Paths that could not be read.
    pub(super) unreadable: usize,
    /// Findings suppressed by comments.
    pub(super) ignored: usize,
    /// Findings suppressed by a baseline.
    pub(super) known: usize,
    /// Findings in files that did not change.
    pub(super) unchanged: usize,
    /// Files that are patches of a kustomization.
    pub(super) patches: usize,
    /// Files of Helm charts.
    pub(super) charts: usize,
    /// Files that are templates of other tools.
    pub(super) templates: usize,
    /// Files and folders that are excluded.
    pub(super) excluded: usize,
    /// Kustomizations that were built.
    pub(super) kustomizations: usize,
    /// Why others were not, a sentence for each.
    #[serde(rename = "notBuilt")]
    pub(super) not_built: Vec<String>,
    /// Why what is synced is not read, or not as it is synced, a sentence for each.
    #[serde(rename = "notFollowed")]
    pub(super) not_followed: Vec<String>,
    /// Values that were left open: variables in them are replaced later.
    pub(super) open: usize,
    /// Objects that are in another file too, so that only those of a folder are compared.
    pub(super) repeated: usize,
    /// The Git revision that was read; absent for the working tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<String>,
    /// Objects of other kinds, by `apiVersion kind`.
    pub(super) skipped: BTreeMap<String, usize>,
}

impl Report {
    pub(super) fn new(suppressed: Suppressed, fail_on: FailOn) -> Self {
        let Suppressed { verdicts, counts } = suppressed;
        let Verdicts { input, files, findings, checked, skipped, open, repeated, definitions } = verdicts;
        let errors = findings.iter().filter(|reported| reported.finding.severity == Severity::Error).count();
        let is_render = |origin: &&SourceOrigin| matches!(origin, SourceOrigin::Render { .. });
        let kustomizations = input.origins.iter().filter(is_render).count();
        let others = |what| input.others.get(&what).copied().unwrap_or_default();
        let summary = Summary {
            files,
            checked,
            errors,
            warnings: findings.len() - errors,
            definitions,
            unreadable: input.unreadable.len(),
            ignored: counts.ignored,
            known: counts.known,
            unchanged: counts.unchanged,
            patches: input.patches,
            charts: others(OtherFile::HelmChart),
            templates: others(OtherFile::Template),
            excluded: others(OtherFile::Excluded),
            kustomizations,
            not_built: input.not_built.clone(),
            not_followed: input.not_followed.clone(),
            open,
            repeated,
            revision: input.revision.clone(),
            skipped,
        };
        Self { input, findings, summary, fail_on }
    }

    /// How the command ends.
    pub(super) fn outcome(&self) -> Outcome {
        let fails = |reported: &ReportedFinding| self.fail_on.counts(reported.finding.severity);
        match (self.summary.unreadable, self.findings.iter().any(fails)) {
            (1.., _) => Outcome::Incomplete,
            (0, true) => Outcome::Findings,
            (0, false) => Outcome::Fine,
        }
    }
}

/// So many objects, as the subject of a sentence.
fn are(objects: usize) -> String {
    format!("{} {}", output::plural(objects, "object"), if objects == 1 { "is" } else { "are" })
}

impl Summary {
    /// Errors and warnings.
    pub(super) fn counts(&self) -> String {
        format!("{}, {}", output::plural(self.errors, "error"), output::plural(self.warnings, "warning"))
    }

    /// Objects and files.
    pub(super) fn extent(&self) -> String {
        let revision = self.revision.as_ref().map(|revision| format!(" of {revision}")).unwrap_or_default();
        format!(
            "{} in {}{revision} checked",
            output::plural(self.checked, "object"),
            output::plural(self.files, "file")
        )
    }

    /// What was suppressed, ignored or unreadable, in the parts that apply.
    pub(super) fn omissions(&self) -> Vec<String> {
        let patches = output::plural_of(self.patches, "patch", "patches");
        let counted = [
            (self.kustomizations, format!("built {}", output::plural(self.kustomizations, "kustomization"))),
            (self.ignored, format!("{} ignored by comments", self.ignored)),
            (self.known, format!("{} in the baseline", self.known)),
            (self.unchanged, format!("{} in unchanged files not shown", self.unchanged)),
            (self.patches, format!("ignored {patches} of kustomizations")),
            (self.charts, format!("ignored {} {}", self.charts, OtherFile::HelmChart.noun(self.charts))),
            (self.templates, format!("ignored {} {}", self.templates, OtherFile::Template.noun(self.templates))),
            (self.open, format!("left open {} with variables", output::plural(self.open, "value"))),
            (self.repeated, format!("only objects of one folder compared, as {} in several files", are(self.repeated))),
            (self.excluded, format!("ignored {} {}", self.excluded, OtherFile::Excluded.noun(self.excluded))),
        ];
        let mut rest: Vec<String> = counted.into_iter().filter(|(n, _)| *n > 0).map(|(_, text)| text).collect();
        if !self.skipped.is_empty() {
            let kinds: Vec<String> = self.skipped.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            let total = self.skipped.values().sum::<usize>();
            rest.push(format!("ignored {total} of other kinds ({})", kinds.join(", ")));
        }
        if self.unreadable > 0 {
            rest.push(format!("cannot read {}", output::plural(self.unreadable, "path")));
        }
        rest
    }

    /// Everything in one line.
    pub(super) fn text(&self) -> String {
        let rest: String = self.omissions().iter().map(|part| format!("; {part}")).collect();
        format!("{}: {}{rest}; CRD schemas: {}", self.extent(), self.counts(), self.definitions)
    }
}
