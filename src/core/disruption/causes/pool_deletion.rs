//! Nodes whose NodePool is being deleted.

use crate::model::names::{ClaimName, NodePoolName};
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;

/// A node of a NodePool that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedPool {
    /// The NodePool.
    pub pool: NodePoolName,
    /// When its deletion was requested.
    pub since: Timestamp,
}

impl fmt::Display for DeletedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, since } = self;
        write!(f, "the deletion of NodePool {pool}, requested at {since:.0}")
    }
}

/// The NodeClaims of NodePools whose deletion takes their nodes away.
pub(in crate::disruption) fn of_deleted_pools(snapshot: &Snapshot) -> BTreeMap<ClaimName, DeletedPool> {
    let found = snapshot.claims().values().filter(|claim| claim.is_ours() && claim.deleting_at.is_none());
    let found = found.filter_map(|claim| {
        let pool = snapshot.deleted_pool_of(claim)?;
        let deleted = DeletedPool { pool: pool.name.clone(), since: pool.deletion.requested_at? };
        Some((claim.name.clone(), deleted))
    });
    found.collect()
}
