//! NodePools and AKSNodeClasses in the Snapshot.

use super::Snapshot;
use super::table::Table;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::{NodeClass, NodePool};
use crate::model::cluster::status::{InvalidClass, InvalidPool};
use crate::model::labels::NODEPOOL;
use crate::model::names::{NodeClassName, NodePoolName};
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
        let pool = pool.into();
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

    /// Adds or replaces a NodePool that cannot be read. The last version that could be stays in use.
    pub fn put_invalid_pool(&mut self, pool: impl Into<Arc<InvalidPool>>) {
        let pool = pool.into();
        self.invalid_pools.put(pool.name.clone(), pool);
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
}
