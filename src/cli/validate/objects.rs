//! The objects that findings are about.

use crate::repository::ObjectIdentity;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Source;
use napkeeper_api::yaml::{Chunk, Document, Reading};
use napkeeper_verdict::Finding;

/// The objects of a file, looked up by the findings about them. Only the last document is kept.
pub(super) struct Objects<'s> {
    source: &'s Source,
    chunks: Vec<Chunk>,
    last: Option<(usize, Reading)>,
}

impl<'s> Objects<'s> {
    pub(super) fn of(source: &'s Source) -> Self {
        Self { source, chunks: source.chunks(), last: None }
    }

    /// The object that a finding is about.
    pub(super) fn about(&mut self, finding: &Finding) -> ObjectIdentity {
        let Some(reading) = self.reading_at(finding.line) else { return ObjectIdentity::default() };
        // A finding without a path may be anywhere, also in a document that could not be parsed.
        if finding.path.is_empty() && !reading.problems.is_empty() {
            return ObjectIdentity::default();
        }
        let Some(document) = document_at(&reading.documents, finding) else { return ObjectIdentity::default() };
        let item = in_item(&finding.path).filter(|_| document.value["kind"] == "List");
        let value = item.map_or(&document.value, |(i, _)| &document.value["items"][i]);
        ObjectIdentity::of(value)
    }

    /// True when the line of a finding is in a document that may be a Secret.
    pub(super) fn may_be_secret(&self, finding: &Finding) -> bool {
        let at = self.chunks.partition_point(|chunk| chunk.lines_before() < finding.line).checked_sub(1);
        let chunk = at.and_then(|at| self.chunks.get(at));
        chunk.is_some_and(|chunk| {
            let says = |line: &str| line.contains("kind") && line.contains("Secret");
            chunk.text_in(&self.source.text).lines().any(says)
        })
    }

    /// The document that a line is in.
    fn reading_at(&mut self, line: usize) -> Option<&Reading> {
        let at = self.chunks.partition_point(|chunk| chunk.lines_before() < line).checked_sub(1)?;
        if self.last.as_ref().is_none_or(|(last, _)| *last != at) {
            self.last = Some((at, self.source.parse_chunk(self.chunks.get(at)?.clone())));
        }
        self.last.as_ref().map(|(_, reading)| reading)
    }
}

/// The document that a finding is in: the last that begins before it.
pub(super) fn document_at<'d>(documents: &'d [Document], finding: &Finding) -> Option<&'d Document> {
    let begins_before = |document: &Document| {
        let at = document.position(&Path::root());
        (at.line, at.column) <= (finding.line, finding.column)
    };
    documents.get(documents.partition_point(begins_before).checked_sub(1)?)
}

/// The item of a List that a path leads into, and the rest of the path.
pub(super) fn in_item(path: &str) -> Option<(usize, &str)> {
    let (index, rest) = path.strip_prefix("items[")?.split_once(']')?;
    Some((index.parse().ok()?, rest.strip_prefix('.').unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_into_a_list_is_one_into_its_item() {
        assert_eq!(in_item("items[12].spec.weight"), Some((12, "spec.weight")));
        assert_eq!(in_item("spec.items[1]"), None);
    }
}
