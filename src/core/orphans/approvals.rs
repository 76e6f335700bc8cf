//! Approvals: which of them still stand for something, and which are to be removed from Git?

use super::links::rows;
use super::ownership::{Group, lies_in};
use super::verdict::Case;
use crate::cluster::cloud::CloudResource;
use crate::cluster::sweep::{Approval, Sweep};
use crate::names::ArmId;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What has become of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalFinding {
    /// The resource that it names.
    pub id: ArmId,
    /// The incarnation that it names.
    pub incarnation: Arc<str>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// What has become of it.
    pub state: ApprovalState,
    /// What to do about it, for people; empty when nothing.
    pub advice: Arc<str>,
}

/// What has become of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ApprovalState {
    /// It names nothing that this sweep could ever delete.
    Unmatched,
    /// It would be valid for more than 14 days, so it does not count.
    TooFarAhead,
    /// Its time is over.
    Expired,
    /// The resource was collected, or is gone.
    Spent,
    /// It lifts the clause of approval for its resource.
    Active,
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unmatched => "Unmatched",
            Self::TooFarAhead => "TooFarAhead",
            Self::Expired => "Expired",
            Self::Spent => "Spent",
            Self::Active => "Active",
        })
    }
}

/// Looks at all approvals of a sweep, those first that something is to be done about. Of a listing that is not whole,
/// or of a cluster that is not known to be the configured one, nothing follows but what time alone tells.
#[must_use]
pub fn look(case: &Case<'_>, sweep: &Sweep) -> Vec<ApprovalFinding> {
    let listed: BTreeMap<&ArmId, &CloudResource> = rows(&case.inventory.cloud).iter().map(|r| (&r.id, &**r)).collect();
    let finding = |approval: &Approval| {
        let (state, advice) = state(case, sweep, approval, &listed)?;
        Some(ApprovalFinding {
            id: approval.id.clone(),
            incarnation: Arc::clone(&approval.incarnation),
            expires_at: approval.expires_at,
            state,
            advice: Arc::from(advice),
        })
    };
    let mut found: Vec<ApprovalFinding> = sweep.approvals.iter().filter_map(finding).collect();
    found.sort_by(|a, b| (a.state, &a.id).cmp(&(b.state, &b.id)));
    found
}

fn state(
    case: &Case<'_>,
    sweep: &Sweep,
    approval: &Approval,
    listed: &BTreeMap<&ArmId, &CloudResource>,
) -> Option<(ApprovalState, String)> {
    // Nothing follows from what is not in the group of another cluster, or in one that is not known to be ours.
    let whole = case.inventory.failure().is_none() && case.group() == Group::Ours;
    let there = listed.get(&approval.id);
    let same = there.filter(|r| r.incarnation == approval.incarnation);
    let collected = case.records.deletions.iter().any(|d| {
        d.id == approval.id && d.incarnation == approval.incarnation && d.refused.is_none() && whole && same.is_none()
    });
    let ahead = approval.expires_at.duration_since(case.now);
    let remove = |why: &str| format!("{why}: remove these lines");
    Some(if collected {
        (ApprovalState::Spent, remove("the resource was collected"))
    } else if ahead <= SignedDuration::ZERO {
        (ApprovalState::Expired, "it has expired: remove these lines, or approve anew".to_owned())
    } else if ahead > Sweep::LONGEST_APPROVAL {
        (ApprovalState::TooFarAhead, "expiresAt lies more than 14 days ahead: write an earlier time".to_owned())
    } else if let Some(resource) = same {
        let kind = resource.kind();
        if sweep.kinds.contains(&kind) {
            (ApprovalState::Active, String::new())
        } else {
            (ApprovalState::Unmatched, format!("this sweep does not look at {kind}: move these lines to one that does"))
        }
    } else if !whole {
        return None;
    } else if let Some(other) = there {
        let why = format!("the resource of that name is now another one, of incarnation {}", other.incarnation);
        (ApprovalState::Unmatched, remove(&why))
    } else if lies_in(&approval.id, &case.settings.cluster.group) {
        (ApprovalState::Spent, remove("the resource is gone"))
    } else {
        let why = format!("it names nothing in {}", case.settings.cluster.group);
        (ApprovalState::Unmatched, remove(&why))
    })
}
