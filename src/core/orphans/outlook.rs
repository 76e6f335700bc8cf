//! Outlook: what comes next in a sweep, and what do people have to know besides its findings?

use super::approvals::ApprovalFinding;
use super::denial::Denial;
use super::finding::{Finding, Refusal, Standing};
use crate::cluster::cloud::ResourceKind;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What comes next in a sweep, and what people have to know besides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outlook {
    /// When the last whole inventory was complete; `None` when there has been none.
    pub whole_at: Option<Timestamp>,
    /// When the next inventory is due.
    pub next_observation: Option<Timestamp>,
    /// When orphans may next be collected; `None` when the mode does not collect.
    pub next_collection: Option<Timestamp>,
    /// Deletions of the cluster over the last 24 h that count for the cap.
    pub collected: u32,
    /// Most deletions over 24 h that this sweep may have a part in.
    pub cap: u32,
    /// Why orphans are kept: how many of each kind, by refusal. One may be kept for several reasons.
    pub kept: BTreeMap<(ResourceKind, Refusal), u32>,
    /// The approvals of the spec, and what has become of them.
    pub approvals: Vec<ApprovalFinding>,
    /// What Azure does not let us do: the sweep only reports there.
    pub denials: Vec<Denial>,
}

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
