//! Pod classes: pods with equal scheduling constraints, one class for each relaxation step.
//!
//! A pod class is everything that affects the placement of a pod. Preferences make further classes, one for each
//! relaxation step: the first requires all preferences, the last none.

use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::scheduling::pods::node_filter::{NodeFilter, NodeFilterId, NodeFilters};
use crate::scheduling::pods::preferences::{RelaxationStep, relaxation_steps};
use crate::scheduling::pods::volume_limits::{PodVolumes, TrackedVolumes};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a pod class.
pub(crate) type PodClassId = usize;

/// Requirements of pods that are placed alike.
#[derive(Debug)]
pub(crate) struct PodClass {
    /// The shape, with the preferences of this step as requirements.
    pub(crate) shape: Arc<PodShape>,
    pub(crate) filter: NodeFilterId,
    /// Data disks that are attached to its node.
    pub(crate) disks: u32,
    /// Its other volumes.
    pub(crate) tracked_volumes: Option<Arc<TrackedVolumes>>,
}

/// Pods with equal keys are placed alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodClassKey {
    pub(crate) shape: Arc<PodShape>,
    pub(crate) volumes: PodVolumes,
}

/// Pod classes by index.
#[derive(Debug, Default)]
pub(crate) struct PodClasses {
    classes: Vec<PodClass>,
    by_key: BTreeMap<PodClassKey, Relaxation>,
}

/// The pod classes of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relaxation {
    /// Without preferences: for existing nodes, where only kube-scheduler weighs them.
    pub(crate) required_only: PodClassId,
    /// For new nodes, in the order in which they are tried; the last is `required_only`.
    pub(crate) steps: Arc<[PodClassId]>,
}

/// The pods that a class was created for.
pub(crate) struct ClassOrigin<'k> {
    /// With all preferences.
    pub(crate) shape: &'k PodShape,
    pub(crate) volumes: &'k PodVolumes,
    pub(crate) relaxation: &'k Relaxation,
}

/// Pending pods of one shape.
#[derive(Debug)]
pub(crate) struct PodGroup {
    pub(crate) relaxation: Relaxation,
    pub(crate) pods: Vec<Arc<Pod>>,
}

impl PodClasses {
    pub(crate) fn get(&self, class: PodClassId) -> &PodClass {
        &self.classes[class]
    }

    /// The origin of a pod class. Linear in the number of shapes: only for explanations.
    pub(crate) fn origin(&self, class: PodClassId) -> Option<ClassOrigin<'_>> {
        let mut known = self.by_key.iter();
        let (PodClassKey { shape, volumes }, relaxation) = known.find(|(_, known)| known.steps.contains(&class))?;
        Some(ClassOrigin { shape, volumes, relaxation })
    }

    pub(crate) fn requests(&self, class: PodClassId) -> &Resources {
        &self.classes[class].shape.requests
    }

    /// The classes of pods with one key; `avoids` is true when some pool has a PreferNoSchedule taint that they do not
    /// tolerate. `register` is called for each new class: with its shape at that step of relaxation, and the pod's own.
    pub(crate) fn classes_of(
        &mut self,
        key: PodClassKey,
        avoids: bool,
        filters: &mut NodeFilters,
        mut register: impl FnMut(&PodShape, &Arc<PodShape>),
    ) -> Relaxation {
        if let Some(known) = self.by_key.get(&key) {
            return known.clone();
        }
        let PodClassKey { shape, volumes } = &key;
        let mut steps = Vec::new();
        for RelaxationStep { shape: step, avoid_prefer_no_schedule: avoids } in relaxation_steps(shape, avoids) {
            register(&step, shape);
            steps.push(self.classes.len());
            let filter =
                NodeFilter { avoid_prefer_no_schedule: avoids, ..NodeFilter::of(&step, &volumes.alternatives) };
            let (disks, tracked_volumes) = (volumes.disks, volumes.tracked.clone());
            self.classes.push(PodClass { shape: step, filter: filters.intern(filter), disks, tracked_volumes });
        }
        let required_only = steps.last().copied().unwrap_or_default();
        let relaxation = Relaxation { required_only, steps: steps.into() };
        self.by_key.insert(key, relaxation.clone());
        relaxation
    }
}

/// Sort key: larger pods first, then by content, never by address.
pub(crate) fn largest_first(shape: &Arc<PodShape>) -> impl Ord + use<> {
    let r = &shape.requests;
    (Reverse(r.extended.len()), Reverse(r.cpu_millis), Reverse(r.memory), Arc::clone(shape))
}
