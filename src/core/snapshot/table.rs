//! Rows by key, shared between clones.

use crate::model::names::{Namespace, ObjectKey, ObjectName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows by key. Clones share the rows until one of them changes.
#[derive(Debug, Clone)]
pub struct Table<K, V> {
    rows: Arc<BTreeMap<K, Arc<V>>>,
    generation: u64,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: Arc::new(BTreeMap::new()), generation: 0 }
    }
}

impl<K: Ord + Clone, V> Table<K, V> {
    /// The row with this key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&Arc<V>> {
        self.rows.get(key)
    }

    /// All rows, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<V>)> {
        self.rows.iter()
    }

    /// All rows, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Arc<V>> {
        self.rows.values()
    }

    /// All rows from this key on, in the order of their keys.
    pub fn range_from(&self, key: &K) -> impl Iterator<Item = (&K, &Arc<V>)> {
        self.rows.range(key..)
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Grows with every change but that of a status: an equal generation of the same table means rows that decisions read
    /// alike.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn put(&mut self, key: K, row: Arc<V>) -> Option<Arc<V>> {
        self.generation += 1;
        Arc::make_mut(&mut self.rows).insert(key, row)
    }

    /// Replaces a row by one that differs in its status alone: the generation stays.
    pub(super) fn put_status(&mut self, key: &K, row: Arc<V>) {
        if let Some(known) = Arc::make_mut(&mut self.rows).get_mut(key) {
            *known = row;
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<Arc<V>> {
        if !self.rows.contains_key(key) {
            return None;
        }
        self.generation += 1;
        Arc::make_mut(&mut self.rows).remove(key)
    }
}

impl<V> Table<ObjectKey, V> {
    /// The rows of a namespace, in the order of their names.
    pub fn of_namespace(&self, namespace: &Namespace) -> impl Iterator<Item = &Arc<V>> {
        // No name comes before it.
        let first = ObjectName::new("0").ok().map(|name| ObjectKey { namespace: namespace.clone(), name });
        let from = first.into_iter().flat_map(|first| self.rows.range(first..));
        let namespace = namespace.clone();
        from.take_while(move |(key, _)| key.namespace == namespace).map(|(_, row)| row)
    }
}
