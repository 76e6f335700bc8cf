//! When are two findings the same, though lines have moved?
//!
//! When rule, object, path and message agree. Lines and columns say nothing, not even those that a message names.

use super::super::judge::Shown;
use napkeeper_api::manifests::Source;
use napkeeper_api::path::Path;
use napkeeper_api::yaml::{Chunk, Document, Reading};
use napkeeper_core::model::support::hash::fnv1a;
use napkeeper_verdict::Finding;
use serde_json::Value;
use std::collections::BTreeMap;

/// What makes a finding the same: rule, object or else file, path in the object, digest of the message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Key {
    pub(super) rule: String,
    pub(super) object: String,
    pub(super) path: String,
    pub(super) digest: String,
}

/// The key of a finding.
pub(super) fn key(shown: &Shown) -> Key {
    let Finding { rule, file, path, message, .. } = &shown.finding;
    let object = if shown.object.is_empty() { format!("file:{file}") } else { shown.object.clone() };
    let path =
        if shown.object.is_empty() { path.as_str() } else { in_item(path).map_or(path.as_str(), |(_, rest)| rest) };
    Key { rule: (*rule).to_owned(), object, path: path.to_owned(), digest: digest(&without_places(message)) }
}

/// Gives each finding a fingerprint that no other finding of the run has.
pub(in super::super) fn fingerprints(shown: &mut [Shown]) {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for one in shown {
        let Key { rule, object, path, digest: message } = key(one);
        let name = format!("{}\n{rule}\n{object}\n{path}\n{message}", one.finding.file);
        let n = times.entry(name.clone()).or_default();
        *n += 1;
        one.fingerprint = digest(&format!("{name}\n{n}"));
    }
}

/// The objects of a file, looked up by the findings about them. Only the document that was asked for last is kept.
pub(in super::super) struct Objects<'s> {
    source: &'s Source,
    chunks: Vec<Chunk>,
    last: Option<(usize, Reading)>,
}

impl<'s> Objects<'s> {
    pub(in super::super) fn of(source: &'s Source) -> Self {
        Self { source, chunks: source.chunks(), last: None }
    }

    /// `apiVersion/kind/name` of the object that a finding is about; empty where there is none.
    pub(in super::super) fn about(&mut self, finding: &Finding) -> String {
        let Some(reading) = self.reading_at(finding.line) else { return String::new() };
        let begins_before = |d: &Document| {
            let at = d.position(&Path::root());
            (at.line, at.column) <= (finding.line, finding.column)
        };
        // A finding without a path may stand anywhere, also in a document that could not be read.
        if finding.path.is_empty() && !reading.problems.is_empty() {
            return String::new();
        }
        let documents = &reading.documents;
        let last = documents.partition_point(begins_before).checked_sub(1);
        let Some(document) = last.and_then(|i| documents.get(i)) else { return String::new() };
        let item = in_item(&finding.path).filter(|_| document.value["kind"] == "List");
        let value = item.map_or(&document.value, |(i, _)| &document.value["items"][i]);
        name(value)
    }

    /// True when the line of a finding is in a document that may be a Secret.
    pub(in super::super) fn may_be_secret(&self, finding: &Finding) -> bool {
        let at = self.chunks.partition_point(|chunk| chunk.lines_before() < finding.line).checked_sub(1);
        let chunk = at.and_then(|at| self.chunks.get(at));
        chunk.is_some_and(|chunk| {
            let says = |line: &str| line.contains("kind") && line.contains("Secret");
            chunk.text_in(&self.source.text).lines().any(says)
        })
    }

    /// What the part of the file says that this line is in.
    fn reading_at(&mut self, line: usize) -> Option<&Reading> {
        let at = self.chunks.partition_point(|chunk| chunk.lines_before() < line).checked_sub(1)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != at) {
            self.last = Some((at, self.source.parse_chunk(self.chunks.get(at)?.clone())));
        }
        self.last.as_ref().map(|(_, reading)| reading)
    }
}

/// The names of all objects of a document, as [`Objects::about`] writes them.
pub(super) fn objects(document: &Document) -> Vec<String> {
    napkeeper_api::manifests::items(document).into_iter().map(|(_, value)| name(value)).collect()
}

fn name(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &value["metadata"];
    let name =
        Some(text(&metadata["name"])).filter(|n| !n.is_empty()).unwrap_or_else(|| text(&metadata["generateName"]));
    let namespace = Some(text(&metadata["namespace"])).filter(|n| !n.is_empty()).map(|n| n + "/").unwrap_or_default();
    match (text(&value["apiVersion"]), text(&value["kind"])) {
        (version, kind) if version.is_empty() && kind.is_empty() => String::new(),
        (version, kind) => format!("{version}/{kind}/{namespace}{name}"),
    }
}

/// The item of a List that a path leads into, and the rest of the path.
fn in_item(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix("items[")?.split_once(']')?;
    Some((index.parse().ok()?, rest.strip_prefix('.').unwrap_or(rest)))
}

/// A message without words such as `12:3`.
fn without_places(message: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_place = |word: &&str| {
        let bare = word.trim_end_matches([',', '.', ';', ')']).trim_start_matches('(');
        bare.split_once(':').is_some_and(|(line, column)| is_number(line) && is_number(column))
    };
    message.split_whitespace().filter(|word| !is_place(word)).collect::<Vec<_>>().join(" ")
}

/// FNV-1a, 64 bits, in hexadecimal. It must never change: files hold it.
fn digest(text: &str) -> String {
    format!("{:016x}", fnv1a(text.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_never_change() {
        assert_eq!(digest(""), "cbf29ce484222325");
        assert_eq!(digest("a"), "af63dc4c8601ec8c");
        assert_eq!(digest("foobar"), "85944171f73967e8");
    }

    #[test]
    fn places_in_messages_do_not_count_and_numbers_do() {
        let cut = without_places("duplicate key \"a\", first used at 12:3, 4 of 5");
        assert_eq!(cut, "duplicate key \"a\", first used at 4 of 5");
        assert_eq!(in_item("items[12].spec.weight"), Some((12, "spec.weight")));
        assert_eq!(in_item("spec.items[1]"), None);
    }
}
