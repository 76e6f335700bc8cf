//! Outlook: what comes next in a sweep, and what do people have to know besides its findings?

use crate::model::azure::cloud::ResourceKind;
use crate::model::orphans::finding::{Finding, Refusal, Standing};
use std::collections::BTreeMap;

/// Why orphans are kept.
pub(super) fn kept(findings: &[Finding]) -> BTreeMap<(ResourceKind, Refusal), u32> {
    let mut kept = BTreeMap::new();
    for finding in findings.iter().filter(|f| f.standing == Standing::Orphan) {
        for refusal in &finding.refusals {
            *kept.entry((finding.kind, *refusal)).or_default() += 1;
        }
    }
    kept
}
