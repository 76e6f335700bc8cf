//! The state of each approval in an OrphanSweep.

use crate::model::azure::cloud::CloudResource;
use crate::model::names::ArmId;
use crate::model::orphans::report::{ApprovalState, ApprovalStatus};
use crate::model::orphans::sweep::{Approval, Sweep};
use crate::orphans::assessment::SweepContext;
use crate::orphans::assessment::ownership::GroupState;
use crate::orphans::references::items;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The statuses of all approvals of a sweep, those that need action first. With an incomplete listing, or of a cluster
/// that is not known to be the configured one, only expiry is evaluated.
#[must_use]
pub fn approval_statuses(case: &SweepContext<'_>, sweep: &Sweep) -> Vec<ApprovalStatus> {
    let listed: BTreeMap<&ArmId, &CloudResource> =
        items(&case.inventory.resources).iter().map(|r| (&r.id, &**r)).collect();
    let finding = |approval: &Approval| {
        let (state, advice) = state(case, sweep, approval, &listed)?;
        Some(ApprovalStatus {
            id: approval.id.clone(),
            incarnation: Arc::clone(&approval.incarnation),
            expires_at: approval.expires_at,
            state,
            advice: Arc::from(advice),
        })
    };
    let mut found: Vec<ApprovalStatus> = sweep.approvals.iter().filter_map(finding).collect();
    found.sort_by(|a, b| (a.state, &a.id).cmp(&(b.state, &b.id)));
    found
}

fn state(
    case: &SweepContext<'_>,
    sweep: &Sweep,
    approval: &Approval,
    listed: &BTreeMap<&ArmId, &CloudResource>,
) -> Option<(ApprovalState, String)> {
    // Absence means nothing in an incomplete listing, or in a group that is not known to be ours.
    let is_conclusive = case.inventory.failure().is_none() && case.group_state() == GroupState::Ours;
    let current = listed.get(&approval.id);
    let same = current.filter(|r| r.incarnation == approval.incarnation);
    let collected = case.records.deletions.iter().any(|d| {
        d.id == approval.id
            && d.incarnation == approval.incarnation
            && d.refused.is_none()
            && is_conclusive
            && same.is_none()
    });
    let remaining = approval.expires_at.duration_since(case.now);
    let remove = |reason: &str| format!("{reason}: remove these lines");
    Some(if collected {
        (ApprovalState::Spent, remove("the resource was deleted"))
    } else if remaining <= SignedDuration::ZERO {
        (ApprovalState::Expired, "expired: remove these lines, or approve again".to_owned())
    } else if remaining > Sweep::MAX_APPROVAL_VALIDITY {
        (ApprovalState::TooFarAhead, "expiresAt is more than 14 days in the future: use an earlier time".to_owned())
    } else if let Some(resource) = same {
        let kind = resource.kind();
        if sweep.kinds.contains(&kind) {
            (ApprovalState::Active, String::new())
        } else {
            (
                ApprovalState::Unmatched,
                format!("this OrphanSweep does not include kind {kind}: move these lines to one that does"),
            )
        }
    } else if !is_conclusive {
        return None;
    } else if let Some(other) = current {
        let reason = format!("the resource of that name has been recreated, with incarnation {}", other.incarnation);
        (ApprovalState::Unmatched, remove(&reason))
    } else if approval.id.is_in(&case.settings.cluster.node_resource_group) {
        (ApprovalState::Spent, remove("the resource no longer exists"))
    } else {
        let reason = format!("no such resource in {}", case.settings.cluster.node_resource_group);
        (ApprovalState::Unmatched, remove(&reason))
    })
}
