//! Judging an input: what is there to say about each document, and about all of them together?
//!
//! Documents are read and judged one by one, on all cores, and only what is kept to compare them ([`Digest`]) stays. So
//! an input of thousands of objects takes the memory of a few.

use crate::finding::{Finding, Issue};
use crate::parallel;
use crate::remarks;
use crate::rules::structure as rules;
use crate::semantic::{self, Digest, Place, Render};
use crate::verdict::{Report, Verdict};
use crate::written;
use napkeeper_api::manifests::Source;
use napkeeper_api::yaml::{Chunk, Problem, ProblemKind};
use std::sync::Arc;

/// A part of an input that is judged by itself.
struct Part {
    source: usize,
    chunk: Chunk,
}

impl Verdict {
    /// Judges all files of an input: each document by itself, then their objects together. One report a file.
    #[must_use]
    pub fn judge(&self, sources: &[Source]) -> Vec<Report> {
        let parts: Vec<Part> = (sources.iter().enumerate())
            .flat_map(|(source, s)| s.chunks().into_iter().map(move |chunk| Part { source, chunk }))
            .collect();
        let judged = parallel::map(parts, |part| (part.source, self.part(sources, part)));
        let mut reports = vec![Report::default(); sources.len()];
        let files = sources.iter().map(|source| Arc::clone(&source.file)).collect();
        let mut kept = Vec::new();
        for (source, (report, digests)) in judged {
            reports[source].add(report);
            kept.extend(digests);
        }
        let render = Render::new(kept, files);
        for (object, issue) in semantic::render(&render, self.facts()) {
            if let Some(Digest { at, root, .. }) = render.digests.get(object) {
                reports[at.source].findings.extend(locate(sources, at, issue, root));
            }
        }
        reports.iter_mut().for_each(|report| report.findings.sort_by_key(|f| (f.line, f.column, f.rule)));
        reports
    }

    fn part(&self, sources: &[Source], Part { source: index, chunk }: Part) -> (Report, Vec<Digest>) {
        let source = &sources[index];
        let reading = source.read(chunk.clone());
        let mut report = Report::default();
        report.findings.extend(reading.problems.iter().map(|problem| unreadable(source, problem)));
        let mut digests = Vec::new();
        for (nth, document) in reading.documents.iter().enumerate() {
            let at = Place { source: index, chunk: chunk.clone(), nth };
            let mut found = self.objects(document, |root, value, object| {
                digests.push(Digest::of(at.clone(), root, value, object));
            });
            found.findings.iter_mut().for_each(|finding| written::explain(finding, &source.text));
            remarks::check(document, &source.text, &chunk, &mut found.findings);
            report.add(found);
        }
        (report, digests)
    }
}

fn unreadable(source: &Source, problem: &Problem) -> Finding {
    let rule = match problem.kind {
        ProblemKind::Syntax => &rules::SYNTAX,
        ProblemKind::DuplicateKey => &rules::DUPLICATE_KEY,
    };
    Finding {
        rule: rule.id,
        severity: rule.severity,
        file: source.file.to_string(),
        line: problem.at.line,
        column: problem.at.column,
        path: String::new(),
        message: problem.message.clone(),
        fix: None,
    }
}

/// Reads the issue's document again: most have none, so none is kept for it.
fn locate(sources: &[Source], at: &Place, issue: Issue, root: &napkeeper_api::path::Path) -> Option<Finding> {
    let reading = sources.get(at.source)?.read(at.chunk.clone());
    Some(issue.locate(reading.documents.get(at.nth)?, root))
}
