//! NodePools and AKSNodeClasses in the Snapshot.

use super::Snapshot;
use super::table::Table;
use crate::model::cluster::pool::{NodeClass, NodePool};
use crate::model::cluster::status::{InvalidClass, InvalidPool};
use crate::model::names::{NodeClassName, NodePoolName};
use std::sync::Arc;

impl Snapshot {
    /// All NodePools that can be used.
    #[must_use]
    pub fn pools(&self) -> &Table<NodePoolName, NodePool> {
        &self.pools
    }

    /// All NodePools that cannot be used.
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

    /// Adds or replaces a NodePool that cannot be used: it is not among the others any more.
    pub fn put_invalid_pool(&mut self, pool: impl Into<Arc<InvalidPool>>) {
        let pool = pool.into();
        self.pools.remove(&pool.name);
        self.invalid_pools.put(pool.name.clone(), pool);
    }

    /// Removes a NodePool.
    pub fn remove_pool(&mut self, name: &NodePoolName) {
        self.pools.remove(name);
        self.invalid_pools.remove(name);
    }

    /// All AKSNodeClasses that can be read.
    #[must_use]
    pub fn classes(&self) -> &Table<NodeClassName, NodeClass> {
        &self.classes
    }

    /// All AKSNodeClasses that cannot be read.
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

    /// Adds or replaces an AKSNodeClass that cannot be read: it is not among the others any more.
    pub fn put_invalid_class(&mut self, class: impl Into<Arc<InvalidClass>>) {
        let class = class.into();
        self.classes.remove(&class.name);
        self.invalid_classes.put(class.name.clone(), class);
    }

    /// Removes an AKSNodeClass.
    pub fn remove_class(&mut self, name: &NodeClassName) {
        self.classes.remove(name);
        self.invalid_classes.remove(name);
    }
}
