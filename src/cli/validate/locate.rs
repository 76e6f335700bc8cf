//! Findings in what kustomizations build, at the files that they come from.
//!
//! A finding is moved to a file where the object has the value that the finding is about. Where none has, such as for a value of an
//! inline patch, it stays in the render.

use super::input::{Input, SourceOrigin};
use super::objects::{Objects, document_at};
use super::verdicts::{ReportedFinding, Verdicts};
use crate::repository::{STDIN_NAME, absolute};
use napkeeper_api::field_path::Path as FieldPath;
use napkeeper_api::manifests::Source;
use napkeeper_api::yaml::{Document, Position};
use napkeeper_verdict::Finding;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Moves the findings in renders to the files that these are built from, which become sources. The same finding about the same part
/// in several renders is one.
pub(super) fn locate(verdicts: &mut Verdicts) {
    name_templates(verdicts);
    let by_render = add_parts(&mut verdicts.input);
    let mut moved: Vec<ReportedFinding> = Vec::new();
    let mut known = BTreeMap::new();
    let sources = &verdicts.input.sources;
    let mut left = Vec::new();
    for mut reported in std::mem::take(&mut verdicts.findings) {
        let parts = by_render.get(&reported.source).map(Vec::as_slice).unwrap_or_default();
        let place = sources.get(reported.source).and_then(|render| origin(&reported.finding, render, parts, sources));
        let Some((Place { source, at }, part)) = place.and_then(|place| Some((place, sources.get(place.source)?)))
        else {
            left.push(reported);
            continue;
        };
        reported.finding =
            Finding { file: part.file.to_string(), line: at.line, column: at.column, ..reported.finding };
        reported.source = source;
        // In each render it may have another name.
        reported.object = Objects::of(part).about(&reported.finding);
        let Finding { rule, path, message, .. } = &reported.finding;
        let key = (Arc::clone(&part.file), at.line, at.column, *rule, path.clone(), message.clone());
        match known.get(&key).and_then(|i: &usize| moved.get_mut(*i)) {
            Some(same) => same.clusters.extend(reported.clusters),
            None => {
                known.insert(key, moved.len());
                moved.push(reported);
            }
        }
    }
    for reported in &mut moved {
        reported.clusters.sort();
        reported.clusters.dedup();
    }
    left.append(&mut moved);
    verdicts.findings = left;
    verdicts.sort();
}

/// Names the template that Helm has rendered on the standard input, as Helm says it in a comment.
fn name_templates(verdicts: &mut Verdicts) {
    for reported in &mut verdicts.findings {
        let source = verdicts.input.sources.get(reported.source).filter(|source| &*source.file == STDIN_NAME);
        if let Some(template) = source.and_then(|source| template(&source.text, reported.finding.line)) {
            reported.finding.file = format!("<stdin {template}>");
        }
    }
}

/// The template of the document that a line is in.
fn template(text: &str, line: usize) -> Option<&str> {
    let before: Vec<&str> = text.lines().take(line).collect();
    let of_document = before.iter().rev().take_while(|line| **line != "---");
    of_document.filter_map(|line| line.strip_prefix("# Source: ")).last().map(str::trim)
}

/// Adds the manifests that renders are built from to the sources. Returns their positions for each render.
fn add_parts(input: &mut Input) -> BTreeMap<usize, Vec<usize>> {
    // With other values of variables a file is another source.
    let key = |source: &Source| (Arc::clone(&source.file), Arc::clone(&source.text));
    let mut known: BTreeMap<(Arc<str>, Arc<str>), usize> =
        input.sources.iter().enumerate().map(|(i, source)| (key(source), i)).collect();
    let mut by_render = BTreeMap::new();
    for render in 0..input.origins.len() {
        let Some(SourceOrigin::Render { parts, .. }) = input.origins.get_mut(render) else { continue };
        let parts = std::mem::take(parts);
        let mut positions = Vec::new();
        for part in parts {
            let position = *known.entry(key(&part)).or_insert(input.sources.len());
            if position == input.sources.len() {
                let path = absolute(Path::new(&*part.file));
                input.push(part, SourceOrigin::File(path));
            }
            positions.push(position);
        }
        by_render.insert(render, positions);
    }
    by_render
}

/// Where a finding is moved to.
#[derive(Clone, Copy)]
struct Place {
    /// Position of the source.
    source: usize,
    at: Position,
}

/// Where the value comes from that a finding in a render is about.
fn origin(finding: &Finding, render: &Source, parts: &[usize], sources: &[Source]) -> Option<Place> {
    let document = document_at(&render.parsed().documents, finding).filter(|_| !parts.is_empty())?;
    let path = FieldPath::parse(&finding.path)?;
    let value = path.value_in(&document.value).filter(|_| !finding.path.is_empty());
    let is_key = document.key_position(&path) == Position { line: finding.line, column: finding.column };
    let of_parts = parts.iter().filter_map(|i| Some((*i, sources.get(*i)?)));
    let documents = of_parts.flat_map(|(i, source)| source.parsed().documents.iter().map(move |d| (i, d)));
    let of_object = documents.filter_map(|(i, part)| Some((rank(&part.value, &document.value)?, i, part)));
    let mut of_object: Vec<(Rank, usize, &Document)> = match value {
        Some(value) => of_object.filter(|(_, _, part)| path.value_in(&part.value) == Some(value)).collect(),
        None => of_object.collect(),
    };
    let best = of_object.iter().map(|(rank, ..)| *rank).max()?;
    of_object.retain(|(rank, ..)| *rank == best);
    // What is absent belongs where most of the object is: patches have little of it.
    of_object.sort_by_key(|(_, _, part)| Reverse(if value.is_none() { part.value.to_string().len() } else { 0 }));
    let (_, source, part) = *of_object.first()?;
    // Two objects that could both be the origin are told apart by nobody.
    let is_same = |(_, _, other): &(Rank, usize, &Document)| identity(&other.value) == identity(&part.value);
    if !of_object.iter().all(is_same) {
        return None;
    }
    let at = if is_key { part.key_position(&path) } else { part.position(&path) };
    Some(Place { source, at })
}

/// How near an object of a file is to one that is built: the longest part of its name, and its namespace.
type Rank = (usize, bool);

/// How near the first object is to the second; `None` if kustomize cannot make the second of the first. It may add to the name, and
/// set the namespace.
fn rank(part: &Value, built: &Value) -> Option<Rank> {
    let is_same = |field: &str| part[field] == built[field];
    let part_name = name(part);
    let may_be = is_same("apiVersion") && is_same("kind") && !part_name.is_empty() && name(built).contains(part_name);
    may_be.then(|| (part_name.len(), part["metadata"]["namespace"] == built["metadata"]["namespace"]))
}

fn identity(object: &Value) -> (&str, &Value) {
    (name(object), &object["metadata"]["namespace"])
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
