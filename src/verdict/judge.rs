//! Judging an input: what is there to say about each document, and about all of them together?
//!
//! Documents are read and judged one by one, on all cores, and only what is kept to compare them ([`Digest`]) stays. So
//! an input of thousands of objects takes the memory of a few.

use crate::finding::{Finding, Issue};
use crate::rules::structure as rules;
use crate::semantic::{self, Digest, Place, Render};
use crate::verdict::{Report, Verdict};
use crate::{remarks, written};
use napkeeper_api::manifests::{Object, Source};
use napkeeper_api::path::Path;
use napkeeper_api::yaml::{Chunk, Document, Problem, ProblemKind};
use napkeeper_core::model::support::parallel::map_in_order;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

/// Documents that are judged in one go: what is said of them is kept together, also where there are a million.
const RUN: usize = 16;
/// Runs that are worth a thread of their own.
const LEAST_BATCH: usize = 4;
/// Batches of each thread: few enough that starting them costs nothing, enough that no thread ends much later.
const BATCHES: usize = 4;
/// More threads than this gain nothing: reading the files is then what takes time.
const MOST_THREADS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// Neighbouring documents of a file.
struct Run<'c> {
    source: usize,
    chunks: &'c [Chunk],
}

impl Verdict {
    /// Judges all files of an input: each document by itself, then their objects together. One report a file.
    #[must_use]
    pub fn judge(&self, sources: &[Source]) -> Vec<Report> {
        let chunks: Vec<Vec<Chunk>> = sources.iter().map(Source::chunks).collect();
        let runs: Vec<Run<'_>> = (chunks.iter().enumerate())
            .flat_map(|(source, all)| all.chunks(RUN).map(move |chunks| Run { source, chunks }))
            .collect();
        let threads = available_parallelism().map_or(NonZeroUsize::MIN, |cores| cores.min(MOST_THREADS));
        let batch = runs.len().div_ceil(BATCHES * threads.get()).max(LEAST_BATCH);
        let batches: Vec<&[Run<'_>]> = runs.chunks(batch).collect();
        let judge =
            |batch: &&[Run<'_>]| -> Vec<_> { batch.iter().map(|run| (run.source, self.run(sources, run))).collect() };
        let mut reports = vec![Report::default(); sources.len()];
        let files = sources.iter().map(|source| Arc::clone(&source.file)).collect();
        let mut kept = Vec::new();
        for (source, (report, digests)) in map_in_order(threads, &batches, judge).flatten() {
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

    /// Judges an object that comes from no file, beside others that are there already, of which nothing is said. Left out is
    /// what matters for files alone (Git, comments), and what compares all pools or workloads of an input.
    #[must_use]
    pub fn among(&self, document: &Document, others: impl IntoIterator<Item = Object>) -> Report {
        let at = Place { source: 0, chunk: Chunk::default(), nth: 0 };
        let mut digests = Vec::new();
        let mut report = self.objects(document, |root, value, object| {
            digests.push(Digest::of(at.clone(), root, value, object));
        });
        let ours = digests.len();
        digests.extend(others.into_iter().map(|object| Digest::of(at.clone(), Path::root(), &Value::Null, object)));
        let render = Render::new(digests, vec![Arc::clone(&document.file)]);
        for (object, issue) in semantic::among(&render, self.facts()) {
            if let Some(digest) = render.digests.get(object).filter(|_| object < ours) {
                report.findings.push(issue.locate(document, &digest.root));
            }
        }
        report
    }

    fn run(&self, sources: &[Source], run: &Run<'_>) -> (Report, Vec<Digest>) {
        let (mut report, mut digests) = (Report::default(), Vec::new());
        for chunk in run.chunks {
            self.part(&sources[run.source], run.source, chunk, (&mut report, &mut digests));
        }
        (report, digests)
    }

    fn part(&self, source: &Source, index: usize, chunk: &Chunk, (report, digests): (&mut Report, &mut Vec<Digest>)) {
        let reading = source.parse_chunk(chunk.clone());
        report.findings.extend(reading.problems.iter().map(|problem| unreadable(source, problem)));
        for (nth, document) in reading.documents.iter().enumerate() {
            let at = Place { source: index, chunk: chunk.clone(), nth };
            let mut found = self.objects(document, |root, value, object| {
                digests.push(Digest::of(at.clone(), root, value, object));
            });
            found.findings.iter_mut().for_each(|finding| written::explain(finding, &source.text, chunk));
            remarks::check(document, &source.text, chunk, &mut found.findings);
            report.add(found);
        }
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
        line: problem.position.line,
        column: problem.position.column,
        path: String::new(),
        message: problem.message.clone(),
        fix: None,
    }
}

/// Reads the issue's document again: most have none, so none is kept for it.
fn locate(sources: &[Source], at: &Place, issue: Issue, root: &Path) -> Option<Finding> {
    let reading = sources.get(at.source)?.parse_chunk(at.chunk.clone());
    Some(issue.locate(reading.documents.get(at.nth)?, root))
}
