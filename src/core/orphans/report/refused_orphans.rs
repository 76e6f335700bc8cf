//! Counts of orphans that are not deleted, by refusal.

use crate::model::azure::cloud::ResourceKind;
use crate::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use std::collections::BTreeMap;

/// How many orphans of each kind are not deleted, by refusal.
pub(in crate::orphans) fn count_refused_orphans(
    findings: &[Finding],
) -> BTreeMap<(ResourceKind, DeletionRefusal), u32> {
    let mut counts = BTreeMap::new();
    for finding in findings.iter().filter(|f| f.classification == Classification::Orphan) {
        for refusal in &finding.refusals {
            *counts.entry((finding.kind, *refusal)).or_default() += 1;
        }
    }
    counts
}
