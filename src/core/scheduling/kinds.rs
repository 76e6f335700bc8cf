//! Kinds: which waiting pods are alike, and in which order are they placed?
//!
//! A kind is all that matters about a pod's place. What a pod prefers makes further kinds of it, one for each step of
//! relaxation: the first asks for all that is preferred, the last for nothing that is not required.

use super::axes::{HOST, ZONE};
use super::filter::{FilterId, Filters, NodeFilter};
use super::relax::{Step, steps};
use super::topology::Topology;
use super::volumes::{More, Volumes};
use crate::model::amounts::resources::Resources;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::labels;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a kind.
pub(super) type KindId = usize;

/// What pods that are placed alike ask for.
#[derive(Debug)]
pub(super) struct Kind {
    /// With what is asked for; what is preferred and asked for here stands with what is required.
    pub(super) shape: Arc<PodShape>,
    pub(super) filter: FilterId,
    /// Data disks that are attached to its node.
    pub(super) disks: u32,
    /// What more there is to say of its volumes.
    pub(super) more: Option<Arc<More>>,
}

/// Kinds by number.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    all: Vec<Kind>,
    by_shape: BTreeMap<(Arc<PodShape>, Volumes), Family>,
}

/// The kinds of one shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Family {
    /// What is required and nothing else: for nodes that exist, where kube-scheduler asks for no more.
    pub(super) bare: KindId,
    /// For new nodes, in the order in which they are tried; the last is the bare one.
    pub(super) steps: Arc<[KindId]>,
}

/// What a kind was made of.
pub(super) struct Told<'k> {
    /// With all that is preferred.
    pub(super) shape: &'k PodShape,
    pub(super) volumes: &'k Volumes,
    pub(super) family: &'k Family,
}

/// Waiting pods of one shape.
#[derive(Debug)]
pub(super) struct Demand {
    pub(super) family: Family,
    pub(super) pods: Vec<Arc<Pod>>,
}

impl Kinds {
    pub(super) fn get(&self, kind: KindId) -> &Kind {
        &self.all[kind]
    }

    /// What a kind was made of. One look at each shape: for those who tell of a plan, not for those who make it.
    pub(super) fn told(&self, kind: KindId) -> Option<Told<'_>> {
        let mut known = self.by_shape.iter();
        let ((shape, volumes), family) = known.find(|(_, family)| family.steps.contains(&kind))?;
        Some(Told { shape, volumes, family })
    }

    pub(super) fn requests(&self, kind: KindId) -> &Resources {
        &self.all[kind].shape.requests
    }

    /// The kinds of a shape with such volumes; `avoids` says that its pods had better not come to the nodes of some pool.
    /// `learn` is told of each new one: the shape with what is asked for, and as it is.
    pub(super) fn of(
        &mut self,
        shape: &Arc<PodShape>,
        (volumes, avoids): (Volumes, bool),
        filters: &mut Filters,
        mut learn: impl FnMut(&PodShape, &Arc<PodShape>),
    ) -> Family {
        let key = (Arc::clone(shape), volumes);
        if let Some(known) = self.by_shape.get(&key) {
            return known.clone();
        }
        let mut numbers = Vec::new();
        for Step { shape: step, avoids } in steps(shape, avoids) {
            learn(&step, shape);
            numbers.push(self.all.len());
            let filter = NodeFilter { avoids, ..NodeFilter::of(&step, &key.1.places) };
            let (disks, more) = (key.1.disks, key.1.more.clone());
            self.all.push(Kind { shape: step, filter: filters.number(filter), disks, more });
        }
        let bare = numbers.last().copied().unwrap_or_default();
        let family = Family { bare, steps: numbers.into() };
        self.by_shape.insert(key, family.clone());
        family
    }
}

/// In which order demands are placed: higher priority first; then those that are particular about their host, since they
/// decide how many nodes there are; then those that are particular about their zone; then larger pods, which are harder to
/// place.
pub(super) fn order(demands: &mut [Demand], kinds: &Kinds, topology: &Topology) {
    demands.sort_by_cached_key(|demand| {
        let kind = demand.family.bare;
        let shape = &kinds.get(kind).shape;
        let asked: Vec<usize> = topology.asked_axes(kind).collect();
        let wish = demand.family.steps.iter().flat_map(|kind| topology.asked_axes(*kind)).any(|axis| axis == HOST);
        let host = asked.contains(&HOST) || wish || !shape.ports.is_empty();
        let zone = asked.iter().any(|axis| *axis >= ZONE);
        let zones = shape.selector.get(labels::ZONE).and_then(|r| r.values()).map_or(usize::MAX, |zones| zones.len());
        (Reverse(shape.priority), Reverse(host), Reverse(zone), zones, largest_first(shape))
    });
}

/// By what larger pods come first; of equals it is told by what they ask for, never by where in memory that is.
pub(super) fn largest_first(shape: &Arc<PodShape>) -> impl Ord + use<> {
    let r = &shape.requests;
    (Reverse(r.extended.len()), Reverse(r.cpu_millis), Reverse(r.memory), Arc::clone(shape))
}
