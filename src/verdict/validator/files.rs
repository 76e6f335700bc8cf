//! Validates the files of an input: each document alone, then all objects together.
//!
//! Documents are parsed and validated one by one, on all cores, and only the part that is needed to compare them
//! ([`RetainedObject`]) is kept. So an input of thousands of objects takes the memory of a few.

use super::yaml_scalars::SourceText;
use super::{Report, Validator, comments, variables};
use crate::finding::{Finding, Issue};
use crate::rules::{cost, structure as rules};
use crate::schema::lookup::{SchemaLookup, look_up};
use crate::semantic::{self, DocumentLocation, ManifestSet, RetainedObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::{Object, Source};
use napkeeper_api::yaml::{Chunk, Document, Problem, ProblemKind};
use napkeeper_core::model::support::parallel::map_in_order;
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

/// Documents in a batch: their results are kept together to save memory.
const BATCH_SIZE: usize = 16;
/// Batches that are worth a thread of their own.
const MIN_BATCHES_PER_TASK: usize = 4;
/// Tasks of each thread: few enough that starting them costs nothing, enough that no thread ends much later.
const TASKS_PER_THREAD: usize = 4;
/// More threads than this gain nothing: reading the files is then what takes time.
const MAX_THREADS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// Neighbouring documents of a file.
struct Batch<'c> {
    source: usize,
    chunks: &'c [Chunk],
}

/// The findings and retained objects of a batch.
#[derive(Default)]
struct BatchResult {
    report: Report,
    retained: Vec<RetainedObject>,
}

impl Validator {
    /// Validates all files of an input: each document alone, then their objects together. One report a file.
    #[must_use]
    pub fn validate_files(&self, sources: &[Source]) -> Vec<Report> {
        let chunks: Vec<Vec<Chunk>> = sources.iter().map(Source::chunks).collect();
        let batches: Vec<Batch<'_>> = (chunks.iter().enumerate())
            .flat_map(|(source, all)| all.chunks(BATCH_SIZE).map(move |chunks| Batch { source, chunks }))
            .collect();
        let threads = available_parallelism().map_or(NonZeroUsize::MIN, |cores| cores.min(MAX_THREADS));
        let per_task = batches.len().div_ceil(TASKS_PER_THREAD * threads.get()).max(MIN_BATCHES_PER_TASK);
        let tasks: Vec<&[Batch<'_>]> = batches.chunks(per_task).collect();
        let validate = |task: &&[Batch<'_>]| -> Vec<_> {
            task.iter().map(|batch| (batch.source, self.validate_batch(sources, batch))).collect()
        };
        let mut reports = vec![Report::default(); sources.len()];
        let files = sources.iter().map(|source| Arc::clone(&source.file)).collect();
        let mut retained = Vec::new();
        for (source, result) in map_in_order(threads, &tasks, validate).flatten() {
            reports[source].add(result.report);
            retained.extend(result.retained);
        }
        let set = ManifestSet::new(retained, files);
        set.repeated().iter().for_each(|source| reports[*source].repeated += 1);
        // Of NodePools with variables only a part is known: others may not be like them.
        let has_open = reports.iter().any(|report| report.open > 0);
        let compares_pools =
            |issue: &Issue| [&cost::EQUAL_WEIGHT, &cost::SPOT_LAST, &cost::NO_FALLBACK].contains(&issue.rule);
        let issues = semantic::check_set(&set, self.facts()).into_iter();
        for (object, issue) in issues.filter(|(_, issue)| !(has_open && compares_pools(issue))) {
            if let Some(RetainedObject { at, root, .. }) = set.objects.get(object) {
                reports[at.source].findings.extend(self.locate(sources, at, issue, root));
            }
        }
        reports.iter_mut().for_each(|report| report.findings.sort_by_key(|f| (f.line, f.column, f.rule)));
        reports
    }

    /// Validates an object without a file, beside existing ones that are not validated. Rules for files (Git, comments)
    /// and rules that compare all NodePools or workloads do not apply.
    #[must_use]
    pub fn validate_beside(&self, document: &Document, others: impl IntoIterator<Item = Object>) -> Report {
        let at = DocumentLocation { source: 0, chunk: Chunk::default(), nth: 0 };
        let mut objects = Vec::new();
        let mut report = self.validate_objects(document, None, |root, value, object| {
            objects.push(RetainedObject::of(at.clone(), root, value, object));
        });
        let count = objects.len();
        let retain = |object| RetainedObject::of(at.clone(), Path::root(), &Value::Null, object);
        objects.extend(others.into_iter().map(retain));
        let set = ManifestSet::new(objects, vec![Arc::clone(&document.file)]);
        for (object, issue) in semantic::check_beside(&set, self.facts()) {
            if let Some(retained) = set.objects.get(object).filter(|_| object < count) {
                report.findings.push(issue.locate(document, &retained.root));
            }
        }
        report
    }

    /// Parses the issue's document again: most have no issues, so documents are not kept. A NodePool with variables, or another
    /// object of a CustomResourceDefinition, is not compared with others.
    fn locate(&self, sources: &[Source], at: &DocumentLocation, issue: Issue, root: &Path) -> Option<Finding> {
        let reading = sources.get(at.source)?.parse_chunk(at.chunk.clone());
        let document = reading.documents.get(at.nth)?;
        let value = root.value_in(&document.value);
        let is_custom =
            |value: &Value| matches!(look_up(&self.definitions, value, &mut Vec::new()), SchemaLookup::Crd(..));
        let is_open = self.leaves_open && value.is_some_and(|value| variables::is_open(value) && is_custom(value));
        (!is_open).then(|| issue.locate(document, root))
    }

    fn validate_batch(&self, sources: &[Source], batch: &Batch<'_>) -> BatchResult {
        let mut result = BatchResult::default();
        for chunk in batch.chunks {
            self.validate_chunk(&sources[batch.source], batch.source, chunk, &mut result);
        }
        result
    }

    fn validate_chunk(&self, source: &Source, index: usize, chunk: &Chunk, result: &mut BatchResult) {
        let BatchResult { report, retained } = result;
        let reading = source.parse_chunk(chunk.clone());
        report.findings.extend(reading.problems.iter().map(|problem| unreadable(source, problem)));
        for (nth, document) in reading.documents.iter().enumerate() {
            let at = DocumentLocation { source: index, chunk: chunk.clone(), nth };
            let text = SourceText { file: &source.text, chunk };
            let mut found = self.validate_objects(document, Some(text), |root, value, object| {
                retained.push(RetainedObject::of(at.clone(), root, value, object));
            });
            comments::check(document, &source.text, chunk, &mut found.findings);
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
