//! The statuses of NodePools, AKSNodeClasses and NodeOverlays, and the generations that they are about.

use crate::cluster::{Cluster, Delta};
use napkeeper_core::catalog::overlay::Overlay;
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::plan::{ClassReport, OverlayReport, PoolReport};
use std::sync::Arc;

impl Cluster {
    /// Adds or replaces a NodePool. As with a status subresource, its status stays as it is, and so do finalizers; its
    /// generation grows with its spec.
    pub fn apply_pool(&mut self, mut pool: NodePool) {
        if let Some(known) = self.store.pools().get(&pool.name) {
            (pool.generation, pool.status) = (known.generation, known.status.clone());
            pool.deletion = known.deletion;
            pool.generation += i64::from(!pool.has_spec_of(known));
        }
        self.put_pool(pool);
    }

    /// Adds or replaces an AKSNodeClass; likewise.
    pub fn apply_class(&mut self, mut class: NodeClass) {
        if let Some(known) = self.store.classes().get(&class.name) {
            (class.generation, class.conditions) = (known.generation, known.conditions.clone());
            class.generation += i64::from(!class.has_spec_of(known));
        }
        self.put_class(class);
    }

    /// Adds or replaces a NodeOverlay; likewise.
    pub fn apply_overlay(&mut self, mut overlay: Overlay) {
        if let Some(known) = self.store.overlays().get(&overlay.name) {
            (overlay.generation, overlay.conditions) = (known.generation, known.conditions.clone());
            overlay.generation += i64::from(!overlay.has_spec_of(known));
        }
        self.put_overlay(overlay);
    }

    pub(super) fn report_pool(&mut self, report: &PoolReport) -> Result<(), ClusterError> {
        let known = self.store.pools().get(&report.pool).ok_or(ClusterError::NotFound)?;
        if known.uid != report.uid || !report.status.conditions.may_be_about(Some(known.generation)) {
            return Err(ClusterError::Conflict);
        }
        self.put_pool(NodePool { status: report.status.clone(), ..NodePool::clone(known) });
        Ok(())
    }

    pub(super) fn report_class(&mut self, report: &ClassReport) -> Result<(), ClusterError> {
        let known = self.store.classes().get(&report.class).ok_or(ClusterError::NotFound)?;
        if known.uid != report.uid || !report.conditions.may_be_about(Some(known.generation)) {
            return Err(ClusterError::Conflict);
        }
        self.put_class(NodeClass { conditions: report.conditions.clone(), ..NodeClass::clone(known) });
        Ok(())
    }

    pub(super) fn report_overlay(&mut self, report: &OverlayReport) -> Result<(), ClusterError> {
        let known = self.store.overlays().get(&report.overlay).ok_or(ClusterError::NotFound)?;
        if known.uid != report.uid || !report.conditions.may_be_about(Some(known.generation)) {
            return Err(ClusterError::Conflict);
        }
        self.put_overlay(Overlay { conditions: report.conditions.clone(), ..Overlay::clone(known) });
        Ok(())
    }

    fn put_overlay(&mut self, overlay: Overlay) {
        let overlay = Arc::new(overlay);
        self.store.put_overlay(overlay.name.clone(), Arc::clone(&overlay));
        self.deltas.push(Delta::Overlay(overlay));
    }

    pub(super) fn put_pool(&mut self, pool: NodePool) {
        let pool = Arc::new(pool);
        self.store.put_pool(pool.name.clone(), Arc::clone(&pool));
        self.deltas.push(Delta::Pool(pool));
    }

    fn put_class(&mut self, class: NodeClass) {
        let class = Arc::new(class);
        self.store.put_class(class.name.clone(), Arc::clone(&class));
        self.deltas.push(Delta::Class(class));
    }
}
