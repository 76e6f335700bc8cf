//! Drift of nodes whose VM size Azure does not list any more.
//!
//! Short listings have cost others healthy nodes. So a size counts only once whole listings have lacked it for a day
//! ([`MISSING_SIZE_RETENTION`](crate::catalog::live::MISSING_SIZE_RETENTION)), no VM counts that was launched since, and no
//! listing has more than a tenth of a NodePool replaced.

use super::drift::DriftReason;
use crate::model::cluster::claim::Claim;
use crate::model::names::{ClaimName, NodePoolName, VmSize};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// How many of a NodePool's nodes one listing may have replaced, in per cent; always one.
const MAX_PERCENT: usize = 10;

/// A VM size that Azure does not list any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VanishedSize {
    /// Its name.
    pub size: VmSize,
    /// The first listing that lacked it.
    pub since: Timestamp,
}

impl fmt::Display for VanishedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Azure does not list VM size {} in this region any more, since {}", self.size, self.since)
    }
}

impl VanishedSize {
    /// The size of a NodeClaim's VM, if it has vanished since the VM was launched.
    pub(super) fn of(claim: &Claim, snapshot: &Snapshot) -> Option<Self> {
        let vanished = &snapshot.infrastructure.vanished_sizes.as_ref()?.value;
        let size = &claim.intent.as_ref()?.offering.key.size;
        let since = *vanished.get(size)?;
        (claim.status.launched? < since).then(|| Self { size: size.clone(), since })
    }
}

/// True if a NodeClaim says that it has drifted for this.
pub(super) fn is_told(claim: &Claim) -> bool {
    let told = claim.status.drifted.as_ref();
    told.is_some_and(|told| *told.reason == *DriftReason::InstanceTypeNotFound.as_str())
}

/// The nodes that the last listing has replaced. After a restart those that have drifted and are still there count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::disruption) struct VanishedSizes {
    /// When Azure was asked for it.
    listed_at: Option<Timestamp>,
    chosen: BTreeMap<NodePoolName, BTreeSet<ClaimName>>,
}

impl VanishedSizes {
    /// Chooses the oldest of these launched NodeClaims as far as the listing may have them replaced.
    pub(super) fn choose<'s>(&mut self, snapshot: &Snapshot, claims: impl Iterator<Item = &'s Arc<Claim>>) {
        let listed_at = snapshot.infrastructure.vanished_sizes.as_ref().map(|fact| fact.as_of);
        if self.listed_at != listed_at {
            *self = Self { listed_at, chosen: BTreeMap::new() };
        }
        if snapshot.infrastructure.vanished_sizes.as_ref().is_none_or(|fact| fact.value.is_empty()) {
            return;
        }
        let mut pools: BTreeMap<&NodePoolName, Vec<&Arc<Claim>>> = BTreeMap::new();
        for claim in claims {
            claim.spec.pool.iter().for_each(|pool| pools.entry(pool).or_default().push(claim));
        }
        for (pool, mut claims) in pools {
            let most = (claims.len() * MAX_PERCENT / 100).max(1);
            claims.retain(|claim| VanishedSize::of(claim, snapshot).is_some());
            claims.sort_by_key(|claim| (!is_told(claim), claim.created_at, claim.name.clone()));
            let chosen = self.chosen.entry(pool.clone()).or_default();
            for claim in claims {
                if is_told(claim) || chosen.len() < most {
                    chosen.insert(claim.name.clone());
                }
            }
        }
    }

    /// True if this NodeClaim may be replaced for its size.
    pub(super) fn has_chosen(&self, claim: &Claim) -> bool {
        let chosen = claim.spec.pool.as_ref().and_then(|pool| self.chosen.get(pool));
        chosen.is_some_and(|chosen| chosen.contains(&claim.name))
    }
}
