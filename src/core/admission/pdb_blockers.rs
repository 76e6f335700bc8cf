//! Unready AKSNodeClasses and exhausted PodDisruptionBudgets.
//!
//! It is reported when a NodePool or AKSNodeClass is changed; the provisioner does not use it.

use crate::model::cluster::pod::Pod;
use crate::model::names::{Namespace, NodeClassName, ObjectName};
use crate::model::requirements::Requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why an AKSNodeClass is not ready: the condition `Ready` is `False`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClassNotReady {
    /// The condition's reason.
    pub reason: Arc<str>,
    /// For people; may be empty.
    pub message: Arc<str>,
}

/// A PodDisruptionBudget that allows no disruption now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockingPdb {
    /// Its name.
    pub name: ObjectName,
    /// Which pods of its namespace it guards.
    pub selector: Requirements,
}

/// Current blockers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterBlockers {
    /// AKSNodeClasses that are not ready.
    pub unready_classes: BTreeMap<NodeClassName, Arc<NodeClassNotReady>>,
    /// PodDisruptionBudgets that allow no disruption, by namespace.
    pub blocking_pdbs: BTreeMap<Namespace, Vec<BlockingPdb>>,
}

impl ClusterBlockers {
    /// A budget that blocks the eviction of this pod.
    #[must_use]
    pub fn pdb_blocking(&self, pod: &Pod) -> Option<&BlockingPdb> {
        self.blocking_pdbs
            .get(&pod.key.namespace)?
            .iter()
            .find(|budget| budget.selector.satisfied_by(&pod.shape.labels))
    }
}
