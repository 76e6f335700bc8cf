//! Counts of orphans that are kept, by refusal.

use crate::model::azure::cloud::ResourceKind;
use crate::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use std::collections::BTreeMap;

/// Why orphans are kept.
pub(in crate::orphans) fn count_kept_orphans(findings: &[Finding]) -> BTreeMap<(ResourceKind, DeletionRefusal), u32> {
    let mut kept = BTreeMap::new();
    for finding in findings.iter().filter(|f| f.classification == Classification::Orphan) {
        for refusal in &finding.refusals {
            *kept.entry((finding.kind, *refusal)).or_default() += 1;
        }
    }
    kept
}
