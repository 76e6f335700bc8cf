//! The deletion of NodePools, with the garbage collector of Kubernetes.

use crate::cluster::{Cluster, Delta};
use jiff::Timestamp;
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::cluster::status::PoolDeletion;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::names::{ClaimName, NodePoolName, Uid};
use napkeeper_core::plan::PoolRelease;
use serde::Deserialize;
use std::sync::Arc;

/// What becomes of what a deleted object owns (`propagationPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Propagation {
    /// It is deleted once the owner is gone, as with kubectl and Flux.
    #[default]
    Background,
    /// It is deleted first, as with Argo CD.
    Foreground,
    /// It is kept.
    Orphan,
}

impl Cluster {
    /// Requests the deletion of a NodePool. Our finalizer holds it; without it the garbage collector deletes what it owns.
    pub fn delete_pool(&mut self, name: &NodePoolName, propagation: Propagation, now: Timestamp) {
        self.advance_clock(now);
        let Some(pool) = self.store.pools().get(name).cloned() else { return };
        if propagation == Propagation::Foreground {
            self.delete_owned_by(name);
        }
        let requested_at = pool.deletion.requested_at.or(Some(now));
        let keeps_nodes = propagation == Propagation::Orphan;
        let deletion = PoolDeletion { requested_at, keeps_nodes, ..pool.deletion };
        if keeps_nodes {
            self.disown_claims_of(name);
            // The garbage collector removes its finalizer at once. Only a watch shows it.
            self.deltas.push(Delta::Pool(Arc::new(NodePool { deletion, ..NodePool::clone(&pool) })));
        }
        self.put_deletion(&pool, PoolDeletion { keeps_nodes: false, ..deletion });
        if !deletion.has_finalizer {
            self.forget_pool(name);
        }
    }

    /// An earlier version has made the NodePool of a NodeClaim its owner.
    pub fn own_claim(&mut self, name: &ClaimName, now: Timestamp) {
        self.advance_clock(now);
        if let Some(claim) = self.store.claims().get(name).cloned() {
            self.put_claim(Claim { owned_by_pool: true, ..Claim::clone(&claim) });
        }
    }

    pub(super) fn hold_pool(&mut self, name: &NodePoolName, uid: &Uid) -> Result<(), ClusterError> {
        let pool = self.pool(name, uid)?;
        if pool.deletion.requested_at.is_some() {
            return Err(ClusterError::NotFound);
        }
        self.put_deletion(&pool, PoolDeletion { has_finalizer: true, ..pool.deletion });
        Ok(())
    }

    pub(super) fn release_pool(&mut self, release: &PoolRelease) -> Result<(), ClusterError> {
        let pool = match self.pool(&release.pool, &release.uid) {
            Err(ClusterError::NotFound) => return Ok(()),
            found => found?,
        };
        let has_claims = self.claims_of(&release.pool).iter().any(|claim| claim.is_ours());
        if pool.deletion.requested_at.is_none() || has_claims && !release.keeps_nodes {
            return Err(ClusterError::Conflict);
        }
        self.forget_pool(&release.pool);
        Ok(())
    }

    /// A NodePool of this name and UID.
    fn pool(&self, name: &NodePoolName, uid: &Uid) -> Result<Arc<NodePool>, ClusterError> {
        let found = self.store.pools().get(name).ok_or(ClusterError::NotFound)?;
        if found.uid == *uid { Ok(Arc::clone(found)) } else { Err(ClusterError::Conflict) }
    }

    fn put_deletion(&mut self, pool: &NodePool, deletion: PoolDeletion) {
        self.put_pool(NodePool { deletion, ..pool.clone() });
    }

    /// It is gone, and with it what it owns.
    fn forget_pool(&mut self, name: &NodePoolName) {
        self.store.remove_pool(name);
        self.deltas.push(Delta::PoolGone(name.clone()));
        self.delete_owned_by(name);
    }

    fn claims_of(&self, pool: &NodePoolName) -> Vec<Arc<Claim>> {
        let of_pool = self.store.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(pool));
        of_pool.cloned().collect()
    }

    fn delete_owned_by(&mut self, pool: &NodePoolName) {
        let owned = self.claims_of(pool).into_iter().filter(|claim| claim.owned_by_pool);
        for claim in owned.collect::<Vec<_>>() {
            // The NodeClaim of this UID has just been read.
            let _ = self.delete_claim_object(&claim.reference());
        }
    }

    fn disown_claims_of(&mut self, pool: &NodePoolName) {
        for claim in self.claims_of(pool).into_iter().filter(|claim| claim.owned_by_pool) {
            self.put_claim(Claim { owned_by_pool: false, ..Claim::clone(&claim) });
        }
    }
}
