//! Pod classes: pods with equal scheduling constraints, one class for each relaxation step.
//!
//! A pod class is all that matters about a pod's place. What a pod prefers makes further classes of it, one for each
//! step of relaxation: the first asks for all that is preferred, the last for nothing that is not required.

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

/// What pods that are placed alike ask for.
#[derive(Debug)]
pub(crate) struct PodClass {
    /// With what is asked for; what is preferred and asked for here stands with what is required.
    pub(crate) shape: Arc<PodShape>,
    pub(crate) filter: NodeFilterId,
    /// Data disks that are attached to its node.
    pub(crate) disks: u32,
    /// What more there is to say of its volumes.
    pub(crate) tracked_volumes: Option<Arc<TrackedVolumes>>,
}

/// What pods have in common that are placed alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodClassKey {
    pub(crate) shape: Arc<PodShape>,
    pub(crate) volumes: PodVolumes,
}

/// Pod classes by number.
#[derive(Debug, Default)]
pub(crate) struct PodClasses {
    classes: Vec<PodClass>,
    by_key: BTreeMap<PodClassKey, Relaxation>,
}

/// The pod classes of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relaxation {
    /// What is required and nothing else: for nodes that exist, where kube-scheduler asks for no more.
    pub(crate) required_only: PodClassId,
    /// For new nodes, in the order in which they are tried; the last is the bare one.
    pub(crate) steps: Arc<[PodClassId]>,
}

/// What a pod class was made of.
pub(crate) struct ClassOrigin<'k> {
    /// With all that is preferred.
    pub(crate) shape: &'k PodShape,
    pub(crate) volumes: &'k PodVolumes,
    pub(crate) relaxation: &'k Relaxation,
}

/// Waiting pods of one shape.
#[derive(Debug)]
pub(crate) struct PodGroup {
    pub(crate) relaxation: Relaxation,
    pub(crate) pods: Vec<Arc<Pod>>,
}

impl PodClasses {
    pub(crate) fn get(&self, class: PodClassId) -> &PodClass {
        &self.classes[class]
    }

    /// What a pod class was made of. One look at each shape: for those who tell of a plan, not for those who make it.
    pub(crate) fn origin(&self, class: PodClassId) -> Option<ClassOrigin<'_>> {
        let mut known = self.by_key.iter();
        let (PodClassKey { shape, volumes }, relaxation) = known.find(|(_, known)| known.steps.contains(&class))?;
        Some(ClassOrigin { shape, volumes, relaxation })
    }

    pub(crate) fn requests(&self, class: PodClassId) -> &Resources {
        &self.classes[class].shape.requests
    }

    /// The classes of pods with one key; `avoids` says that some pool has a PreferNoSchedule taint that they do not
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
        let mut numbers = Vec::new();
        for RelaxationStep { shape: step, avoid_prefer_no_schedule: avoids } in relaxation_steps(shape, avoids) {
            register(&step, shape);
            numbers.push(self.classes.len());
            let filter =
                NodeFilter { avoid_prefer_no_schedule: avoids, ..NodeFilter::of(&step, &volumes.alternatives) };
            let (disks, more) = (volumes.disks, volumes.tracked.clone());
            self.classes.push(PodClass { shape: step, filter: filters.intern(filter), disks, tracked_volumes: more });
        }
        let required_class = numbers.last().copied().unwrap_or_default();
        let relaxation = Relaxation { required_only: required_class, steps: numbers.into() };
        self.by_key.insert(key, relaxation.clone());
        relaxation
    }
}

/// By what larger pods come first; of equals it is told by what they ask for, never by where in memory that is.
pub(crate) fn largest_first(shape: &Arc<PodShape>) -> impl Ord + use<> {
    let r = &shape.requests;
    (Reverse(r.extended.len()), Reverse(r.cpu_millis), Reverse(r.memory), Arc::clone(shape))
}
