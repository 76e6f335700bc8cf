//! Drift of nodes whose VM size Azure does not list any more.
//!
//! Short listings have cost others healthy nodes. So a size counts only once whole listings have lacked it for a day
//! ([`MISSING_SIZE_RETENTION`](crate::catalog::live::MISSING_SIZE_RETENTION)), no VM counts that was launched since, and no
//! listing has more than a tenth of a NodePool replaced.

use super::super::candidate::{may_be_disrupted, passes_blockers};
use super::drift::DriftReason;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::DisruptionReason;
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
        write!(f, "Azure does not list VM size {} in this region any more, since {:.0}", self.size, self.since)
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

/// True if nothing is known of sizes, as after a start, while a NodeClaim says that its own has vanished: what it says stays.
pub(super) fn is_unknown(claim: &Claim, snapshot: &Snapshot) -> bool {
    is_told(claim) && snapshot.infrastructure.vanished_sizes.is_none()
}

/// The nodes that the last listing has replaced. What a process has not seen itself is not known to it: it goes on with the nodes
/// that are told, and chooses others only by a later listing than the first that it sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::disruption) struct VanishedSizes {
    /// When Azure was asked for it.
    listed_at: Option<Timestamp>,
    /// How many more of each NodePool it may have replaced; none of those that are not named.
    left: BTreeMap<NodePoolName, usize>,
    chosen: BTreeSet<ClaimName>,
}

impl VanishedSizes {
    /// Chooses nodes as far as the listing may have them replaced: of each NodePool those first that may be disrupted, the oldest
    /// before others.
    pub(super) fn choose(&mut self, snapshot: &Snapshot, now: Timestamp) {
        let Some(listing) = &snapshot.infrastructure.vanished_sizes else { return };
        if self.listed_at.is_none() {
            self.listed_at = Some(listing.as_of);
        }
        if self.listed_at < Some(listing.as_of) {
            *self = Self { listed_at: Some(listing.as_of), left: shares(snapshot), chosen: BTreeSet::new() };
        }
        if listing.value.is_empty() || self.left.is_empty() {
            return;
        }
        let is_new = |claim: &&Arc<Claim>| !is_told(claim) && !self.chosen.contains(&claim.name);
        let mut found: Vec<&Arc<Claim>> = launched(snapshot)
            .filter(|claim| claim.deleting_at.is_none() && VanishedSize::of(claim, snapshot).is_some())
            .filter(is_new)
            .collect();
        let may_go =
            |claim: &Claim| may_be_disrupted(snapshot, claim, passes_blockers(claim, DisruptionReason::Drifted), now);
        found.sort_by_cached_key(|claim| (!may_go(claim), claim.created_at, claim.name.clone()));
        for claim in found {
            let left = claim.spec.pool.as_ref().and_then(|pool| self.left.get_mut(pool));
            if let Some(left) = left.filter(|left| **left > 0) {
                *left -= 1;
                self.chosen.insert(claim.name.clone());
            }
        }
    }

    /// True if this NodeClaim may be replaced for its size.
    pub(super) fn has_chosen(&self, claim: &Claim) -> bool {
        is_told(claim) || self.chosen.contains(&claim.name)
    }
}

fn launched(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Claim>> {
    snapshot.claims().values().filter(|claim| claim.is_ours() && claim.status.launched.is_some())
}

/// How many nodes of each NodePool one listing may have replaced.
fn shares(snapshot: &Snapshot) -> BTreeMap<NodePoolName, usize> {
    let mut nodes: BTreeMap<NodePoolName, usize> = BTreeMap::new();
    launched(snapshot)
        .filter_map(|claim| claim.spec.pool.clone())
        .for_each(|pool| *nodes.entry(pool).or_default() += 1);
    nodes.into_iter().map(|(pool, nodes)| (pool, (nodes * MAX_PERCENT / 100).max(1))).collect()
}
