//! Baselines: files of known findings.

use super::super::verdicts::ReportedFinding;
use super::fingerprint::{Key, key};
use anyhow::{Context, anyhow, bail};
use napkeeper_api::field_path::Path as Field;
use napkeeper_api::manifests::{self, Source};
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::suppression::STALE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Version of the file format.
const VERSION: u32 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `version` and `findings`")]
struct BaselineText {
    version: u32,
    findings: Vec<KnownFinding>,
}

/// A known finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFinding {
    rule: String,
    /// `apiVersion/kind/name`; `file:NAME` for a finding that is about no object.
    object: String,
    path: String,
    /// Digest of the message.
    digest: String,
    /// Where it was when the baseline was written: for people, and to recognise a stale entry.
    file: String,
    /// How often it occurs; absent is once.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    count: usize,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(count: &usize) -> bool {
    *count == 1
}

/// A baseline that has been read.
#[derive(Debug)]
pub(super) struct Baseline {
    /// The file.
    pub(super) source: Source,
    entries: Vec<KnownFinding>,
    /// Where the file of each entry is, if it still exists.
    files: Vec<Option<PathBuf>>,
    /// How many of each entry have been found.
    found: Vec<usize>,
    by_key: BTreeMap<Key, Vec<usize>>,
}

impl Baseline {
    /// Reads a baseline whose entries name files from the root of a repository, or from this folder.
    pub(super) fn read(file: &Path, root: Option<&Path>) -> anyhow::Result<Self> {
        let mut loaded = manifests::load(&[PathBuf::from(file)]);
        if let Some(problem) = loaded.unreadable.first() {
            bail!("{problem} (create a baseline with --write-baseline)");
        }
        let source = loaded.files.pop().ok_or_else(|| anyhow!("{} is not a file", file.display()))?;
        let value = source.parsed().documents.first().map(|document| document.value.clone()).unwrap_or_default();
        let BaselineText { version, findings: entries } = serde_json::from_value(value).with_context(|| {
            format!("cannot read the baseline {}: recreate it with --write-baseline", file.display())
        })?;
        if version != VERSION {
            bail!(
                "the baseline {} has version {version}, expected {VERSION}: recreate it with --write-baseline",
                source.file
            );
        }
        let mut by_key: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (i, entry) in entries.iter().enumerate() {
            by_key.entry(entry.key()).or_default().push(i);
        }
        let files = entries.iter().map(|entry| existing(&entry.file, root)).collect();
        Ok(Self { found: vec![0; entries.len()], source, entries, files, by_key })
    }

    /// True when a finding is known, as often as the baseline says: in the file of its entry, or, where that no longer exists, in
    /// another, if it may have `moved`.
    pub(super) fn takes(&mut self, reported: &ReportedFinding, moved: bool) -> bool {
        let Some(of_key) = self.by_key.get(&key(reported)) else { return false };
        let name = &reported.finding.file;
        let file = existing(name, None);
        for i in of_key {
            let (Some(entry), Some(at), Some(found)) =
                (self.entries.get(*i), self.files.get(*i), self.found.get_mut(*i))
            else {
                continue;
            };
            let is_its_own = entry.file == *name || at.is_some() && *at == file;
            if *found < entry.count && (is_its_own || moved && at.is_none()) {
                *found += 1;
                return true;
            }
        }
        false
    }

    /// Entries that are no longer found, of those whose file was validated or no longer exists.
    pub(super) fn stale(&self, was_validated: impl Fn(&str, &Path) -> bool) -> Vec<Finding> {
        let Some(document) = self.source.parsed().documents.first() else { return Vec::new() };
        let entries = self.entries.iter().zip(&self.found).enumerate();
        let is_covered = |i: usize, file: &str| match self.files.get(i) {
            Some(Some(at)) => was_validated(file, at),
            // Standard input was another one, or none.
            _ => !file.starts_with('<') || file.starts_with(KUSTOMIZE),
        };
        let stale = entries.filter(|(i, (entry, found))| **found < entry.count && is_covered(*i, &entry.file));
        stale
            .map(|(i, (entry, found))| {
                let at = document.position(&Field::from_dotted("findings").index(i));
                let times = if *found == 0 {
                    "no longer found".to_owned()
                } else {
                    format!("found {found} times, not {}", entry.count)
                };
                Finding {
                    rule: STALE.id,
                    severity: STALE.severity,
                    file: self.source.file.to_string(),
                    line: at.line,
                    column: at.column,
                    path: String::new(),
                    message: format!("{} {} of {}: {times}", entry.rule, entry.path, entry.object),
                    fix: Some("recreate the baseline with --write-baseline".to_owned()),
                }
            })
            .collect()
    }
}

/// How the names of what kustomizations build begin.
const KUSTOMIZE: &str = "<kustomize ";

/// Where a file is that an entry or a finding names, or the folder of a kustomization, without symbolic links: from the root, or else
/// from this folder, if it exists.
fn existing(name: &str, root: Option<&Path>) -> Option<PathBuf> {
    let name = name.strip_prefix(KUSTOMIZE).and_then(|rest| rest.strip_suffix('>')).unwrap_or(name);
    root.into_iter().chain([Path::new(".")]).find_map(|folder| std::fs::canonicalize(folder.join(name)).ok())
}

impl KnownFinding {
    fn key(&self) -> Key {
        let Self { rule, object, path, digest, .. } = self.clone();
        Key { rule, object, path, digest }
    }
}

/// The text of a baseline: one line per finding, in an order that does not depend on positions.
pub(super) fn text(findings: &[ReportedFinding]) -> anyhow::Result<String> {
    let mut entries: BTreeMap<(Key, String), KnownFinding> = BTreeMap::new();
    for reported in findings {
        let key = key(reported);
        let Key { rule, object, path, digest } = key.clone();
        let file = reported.finding.file.clone();
        let empty = KnownFinding { rule, object, path, digest, file: file.clone(), count: 0 };
        let entry = entries.entry((key, file)).or_insert(empty);
        entry.count += 1;
    }
    let mut text = format!("{{\n  \"version\": {VERSION},\n  \"findings\": [");
    for (i, entry) in entries.values().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(text, "{comma}\n    {}", serde_json::to_string(entry)?)?;
    }
    text += if entries.is_empty() { "]\n}\n" } else { "\n  ]\n}\n" };
    Ok(text)
}
