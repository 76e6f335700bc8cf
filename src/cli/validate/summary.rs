//! What does the last line say?

use super::super::output;
use super::judge::{Judged, Shown};
use super::suppress::Hidden;
use napkeeper_verdict::Severity;
use serde::Serialize;
use std::collections::BTreeMap;

/// The counts of a run.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) files: usize,
    pub(super) checked: usize,
    pub(super) errors: usize,
    pub(super) warnings: usize,
    /// The definitions that were judged by.
    pub(super) definitions: String,
    /// Paths that could not be read.
    pub(super) unreadable: usize,
    /// Findings hidden by comments.
    pub(super) ignored: usize,
    /// Findings hidden by a baseline.
    pub(super) known: usize,
    /// Findings in files that did not change.
    pub(super) unchanged: usize,
    /// Files that are patches of a kustomization, and no manifests by themselves.
    pub(super) patches: usize,
    /// The revision that was read; absent is what lies on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<String>,
    /// Objects of other kinds, by `apiVersion kind`.
    pub(super) skipped: BTreeMap<String, usize>,
}

impl Summary {
    pub(super) fn of(judged: Judged, files: usize, unreadable: usize, hidden: Hidden) -> (Self, Vec<Shown>) {
        let errors = judged.shown.iter().filter(|s| s.finding.severity == Severity::Error).count();
        let summary = Self {
            files,
            checked: judged.checked,
            errors,
            warnings: judged.shown.len() - errors,
            definitions: judged.definitions,
            unreadable,
            ignored: hidden.ignored,
            known: hidden.known,
            unchanged: hidden.unchanged,
            patches: 0,
            revision: None,
            skipped: judged.skipped,
        };
        (summary, judged.shown)
    }

    /// How bad it is.
    pub(super) fn counts(&self) -> String {
        format!("{}, {}", output::plural(self.errors, "error"), output::plural(self.warnings, "warning"))
    }

    /// What was looked at.
    pub(super) fn extent(&self) -> String {
        let revision = self.revision.as_ref().map(|revision| format!(" of {revision}")).unwrap_or_default();
        format!(
            "{} in {}{revision} checked",
            output::plural(self.checked, "object"),
            output::plural(self.files, "file")
        )
    }

    /// What is not shown, and what was passed over; empty when there is nothing to say.
    pub(super) fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        let mut say = |n: usize, text: String| rest.extend((n > 0).then_some(text));
        say(self.ignored, format!("{} ignored by comments", self.ignored));
        say(self.known, format!("{} in the baseline", self.known));
        say(self.unchanged, format!("{} in unchanged files not shown", self.unchanged));
        let mut say = |n: usize, text: String| rest.extend((n > 0).then_some(text));
        say(self.patches, format!("ignored {} of kustomizations", output::plural_of(self.patches, "patch", "patches")));
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

    /// All of it in one line.
    pub(super) fn text(&self) -> String {
        let rest: String = self.rest().iter().map(|part| format!("; {part}")).collect();
        format!("{}: {}{rest}; CRD schemas: {}", self.extent(), self.counts(), self.definitions)
    }
}
