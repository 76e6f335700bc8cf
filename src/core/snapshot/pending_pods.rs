//! Pods that wait for a node, by shape.

use super::Snapshot;
use crate::model::cluster::pod::Pod;
use std::sync::Arc;

impl Snapshot {
    /// The provisionable pods themselves, by shape.
    pub fn pending_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pending().values().flatten().filter_map(|key| self.pods().get(key))
    }
}
