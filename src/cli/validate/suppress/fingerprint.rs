//! The identity of a finding, independent of its line.
//!
//! Two findings are the same when rule, object, path and message agree. Lines and columns do not count, not even those
//! in a message.

use super::super::objects::in_item;
use super::super::verdicts::ReportedFinding;
use napkeeper_core::model::support::hash::fnv1a;
use napkeeper_verdict::Finding;
use std::collections::BTreeMap;

/// The identity of a finding: rule, object or else file, path in the object, digest of the message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) rule: String,
    pub(super) object: String,
    pub(super) path: String,
    pub(super) digest: String,
}

/// The key of a finding.
pub(super) fn key(reported: &ReportedFinding) -> Key {
    let Finding { rule, file, path, message, .. } = &reported.finding;
    let (object, path) = match reported.object.is_none() {
        true => (format!("file:{file}"), path.as_str()),
        false => (reported.object.to_string(), in_item(path).map_or(path.as_str(), |(_, rest)| rest)),
    };
    Key { rule: (*rule).to_owned(), object, path: path.to_owned(), digest: digest(&without_positions(message)) }
}

/// Gives each finding a fingerprint that no other finding of the run has.
pub(super) fn set_fingerprints(findings: &mut [ReportedFinding]) {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for one in findings {
        let Key { rule, object, path, digest: message } = key(one);
        let name = format!("{}\n{rule}\n{object}\n{path}\n{message}", one.finding.file);
        let n = times.entry(name.clone()).or_default();
        *n += 1;
        one.fingerprint = digest(&format!("{name}\n{n}"));
    }
}

/// A message without words such as `12:3`.
fn without_positions(message: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_position = |word: &&str| {
        let bare = word.trim_end_matches([',', '.', ';', ')']).trim_start_matches('(');
        bare.split_once(':').is_some_and(|(line, column)| is_number(line) && is_number(column))
    };
    message.split_whitespace().filter(|word| !is_position(word)).collect::<Vec<_>>().join(" ")
}

/// FNV-1a, 64 bits, in hexadecimal. It must never change: baselines hold it.
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
    fn positions_in_messages_do_not_count_and_numbers_do() {
        let cut = without_positions("duplicate key \"a\", first used at 12:3, 4 of 5");
        assert_eq!(cut, "duplicate key \"a\", first used at 4 of 5");
    }
}
