//! NodePools and AKSNodeClasses in the Snapshot.

use super::Snapshot;
use super::table::Table;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::launch_hold::PoolHold;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::{NodeClass, NodePool};
use crate::model::cluster::status::{InvalidClass, InvalidPool, PoolDeletion};
use crate::model::labels::NODEPOOL;
use crate::model::names::{NodeClassName, NodePoolName, Uid};
use crate::model::support::hash::fnv1a;
use std::sync::Arc;

impl Snapshot {
    /// All NodePools, as they could last be read.
    #[must_use]
    pub fn pools(&self) -> &Table<NodePoolName, NodePool> {
        &self.pools
    }

    /// All NodePools that cannot be read as they are now. The last version that could be, if there was one, is among the others.
    #[must_use]
    pub fn invalid_pools(&self) -> &Table<NodePoolName, InvalidPool> {
        &self.invalid_pools
    }

    /// Adds or replaces a NodePool. If only its status is another, what is computed from the NodePools stays.
    pub fn put_pool(&mut self, name: NodePoolName, pool: impl Into<Arc<NodePool>>) {
        let mut pool = pool.into();
        let deletion = self.deletion_of(&name, &pool.uid, pool.deletion);
        if pool.deletion != deletion {
            Arc::make_mut(&mut pool).deletion = deletion;
        }
        self.invalid_pools.remove(&name);
        if self.pools.get(&name).is_some_and(|known| known.has_spec_of(&pool)) {
            self.pools.put_status(&name, pool);
        } else {
            self.pools.put(name, pool);
        }
    }

    /// A NodePool of which nothing is known but that it cannot be read.
    #[must_use]
    pub fn is_unreadable_pool(&self, name: &NodePoolName) -> bool {
        self.pools.get(name).is_none() && self.invalid_pools.get(name).is_some()
    }

    /// The NodePool of a Node: that of its NodeClaim, since a label may have been changed, or else that of its label.
    #[must_use]
    pub fn pool_of(&self, node: &Node) -> Option<NodePoolName> {
        let of_label = || NodePoolName::new(node.label(NODEPOOL)?).ok();
        self.claim_of(node).map_or_else(of_label, |claim| claim.spec.pool.clone())
    }

    /// Adds or replaces a NodePool that cannot be read. The last version that could be stays in use, but for how far its
    /// deletion is.
    pub fn put_invalid_pool(&mut self, pool: impl Into<Arc<InvalidPool>>) {
        let mut pool = pool.into();
        let deletion = self.deletion_of(&pool.name, &pool.uid, pool.deletion);
        if pool.deletion != deletion {
            Arc::make_mut(&mut pool).deletion = deletion;
        }
        if let Some(known) = self.pools.get(&pool.name).filter(|known| known.deletion != deletion).cloned() {
            self.pools.put(pool.name.clone(), Arc::new(NodePool { deletion, ..NodePool::clone(&known) }));
        }
        self.invalid_pools.put(pool.name.clone(), pool);
    }

    /// How far the deletion of a NodePool is, with what is known of it from before.
    fn deletion_of(&self, name: &NodePoolName, uid: &Uid, now: PoolDeletion) -> PoolDeletion {
        let valid = self.pools.get(name).map(|pool| (&pool.uid, pool.deletion));
        let invalid = self.invalid_pools.get(name).map(|pool| (&pool.uid, pool.deletion));
        let known = valid.into_iter().chain(invalid).filter(|(known, _)| *known == uid);
        known.fold(now, |now, (_, earlier)| now.after(earlier))
    }

    /// The NodePool of a NodeClaim, if its deletion takes the nodes away.
    #[must_use]
    pub fn deleted_pool_of(&self, claim: &Claim) -> Option<&Arc<NodePool>> {
        self.pools.get(claim.spec.pool.as_ref()?).filter(|pool| pool.deletion.takes_nodes())
    }

    /// The Nodes of NodePools whose deletion takes them away.
    pub fn nodes_of_deleted_pools(&self) -> impl Iterator<Item = &Arc<Node>> {
        let is_any = self.pools.values().any(|pool| pool.deletion.takes_nodes());
        let claims = self.claims.values().filter(move |claim| is_any && self.deleted_pool_of(claim).is_some());
        claims.filter_map(|claim| self.node_of(claim))
    }

    /// Removes a NodePool.
    pub fn remove_pool(&mut self, name: &NodePoolName) {
        self.pools.remove(name);
        self.invalid_pools.remove(name);
    }

    /// All AKSNodeClasses, as they could last be read.
    #[must_use]
    pub fn classes(&self) -> &Table<NodeClassName, NodeClass> {
        &self.classes
    }

    /// All AKSNodeClasses that cannot be read as they are now. The last version that could be, if there was one, is among the
    /// others.
    #[must_use]
    pub fn invalid_classes(&self) -> &Table<NodeClassName, InvalidClass> {
        &self.invalid_classes
    }

    /// Adds or replaces an AKSNodeClass. If only its status is another, what is computed from the classes stays.
    pub fn put_class(&mut self, name: NodeClassName, class: impl Into<Arc<NodeClass>>) {
        let class = class.into();
        self.invalid_classes.remove(&name);
        if self.classes.get(&name).is_some_and(|known| known.has_spec_of(&class)) {
            self.classes.put_status(&name, class);
        } else {
            self.classes.put(name, class);
        }
    }

    /// Adds or replaces an AKSNodeClass that cannot be read. The last version that could be stays in use.
    pub fn put_invalid_class(&mut self, class: impl Into<Arc<InvalidClass>>) {
        let class = class.into();
        self.invalid_classes.put(class.name.clone(), class);
    }

    /// Removes an AKSNodeClass.
    pub fn remove_class(&mut self, name: &NodeClassName) {
        self.classes.remove(name);
        self.invalid_classes.remove(name);
    }

    /// Why a NodePool launches nothing, if it does not: it is being deleted, or nodes of it did not come up.
    #[must_use]
    pub fn pool_hold(&self, pool: &NodePoolName) -> Option<Arc<str>> {
        if self.pools.get(pool).is_some_and(|pool| pool.deletion.requested_at.is_some()) {
            return Some(Arc::from("it is being deleted"));
        }
        match self.pool_holds.get(pool)? {
            PoolHold::Held { reason } => Some(Arc::clone(reason)),
            PoolHold::OneNode => None,
        }
    }

    /// A hash of which NodePools are held, and how.
    #[must_use]
    pub(crate) fn pool_holds_hash(&self) -> u64 {
        let hold = |(pool, hold): (&NodePoolName, &PoolHold)| {
            let may_try = u8::from(*hold == PoolHold::OneNode);
            pool.as_str().bytes().chain([0, may_try]).collect::<Vec<u8>>()
        };
        fnv1a(self.pool_holds.iter().flat_map(hold))
    }

    /// True when a NodePool may launch only one node, to see whether it comes up.
    #[must_use]
    pub fn tries_one_node(&self, pool: &NodePoolName) -> bool {
        self.pool_holds.get(pool) == Some(&PoolHold::OneNode)
    }
}
