//! Node selector, node affinity and tolerations of a pod.

use crate::model::cluster::pod::{Labels, PodShape, Spread, Taint, TaintEffect, Toleration};
use crate::model::requirements::Requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a filter among [`NodeFilters`].
pub(crate) type NodeFilterId = usize;

/// Labels that a node must have, and taints that it may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeFilter {
    pub(crate) selector: Requirements,
    /// One of each list must hold: the terms of node affinity, and those of the volumes.
    pub(crate) alternatives: Vec<Vec<Requirements>>,
    pub(crate) tolerations: Vec<Toleration>,
    /// `PreferNoSchedule` taints must be tolerated too.
    pub(crate) avoid_prefer_no_schedule: bool,
}

impl NodeFilter {
    /// The filter of a pod; its volumes require one of `volumes`, if there are any.
    pub(crate) fn of(shape: &PodShape, volumes: &[Requirements]) -> Self {
        let lists = [shape.alternatives.as_slice(), volumes];
        let alternatives = lists.into_iter().filter(|list| !list.is_empty()).map(<[_]>::to_vec).collect();
        Self {
            selector: shape.selector.clone(),
            alternatives,
            tolerations: shape.tolerations.clone(),
            avoid_prefer_no_schedule: false,
        }
    }

    /// The filter of a spread constraint by its node inclusion policies. `None` counts all nodes.
    pub(crate) fn for_spread(shape: &PodShape, spread: &Spread) -> Option<Self> {
        const ANY: Toleration = Toleration { key: None, value: None, effect: None };
        let has_affinity = spread.honors_affinity && !(shape.selector.is_empty() && shape.alternatives.is_empty());
        if !has_affinity && !spread.honors_taints {
            return None;
        }
        let mut filter = Self::of(shape, &[]);
        if !spread.honors_affinity {
            filter.selector = Requirements::new();
            filter.alternatives.clear();
        }
        if !spread.honors_taints {
            filter.tolerations = vec![ANY];
        }
        Some(filter)
    }

    /// Requirements that hold regardless of alternatives: the selector, and lists with a single term.
    pub(crate) fn unconditional(&self) -> impl Iterator<Item = &Requirements> {
        let only = self.alternatives.iter().filter_map(|list| match list.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        std::iter::once(&self.selector).chain(only)
    }

    /// True when a node with these labels and taints matches.
    pub(crate) fn accepts(&self, labels: &Labels, taints: &[Taint]) -> bool {
        self.accepts_labels(labels) && self.untolerated(taints).is_none()
    }

    /// True when a node with these labels matches; taints are ignored.
    pub(crate) fn accepts_labels(&self, labels: &Labels) -> bool {
        self.selector.satisfied_by(labels)
            && self.alternatives.iter().all(|list| list.iter().any(|term| term.satisfied_by(labels)))
    }

    /// The first taint that the pod does not tolerate.
    pub(crate) fn untolerated<'t>(&self, taints: &'t [Taint]) -> Option<&'t Taint> {
        let mut hard = taints
            .iter()
            .filter(|taint| self.avoid_prefer_no_schedule || taint.effect != TaintEffect::PreferNoSchedule);
        hard.find(|taint| !Toleration::any_covers(&self.tolerations, taint))
    }
}

/// Interned filters: equal ones have one index.
#[derive(Debug, Default)]
pub(crate) struct NodeFilters {
    ids: BTreeMap<Arc<NodeFilter>, NodeFilterId>,
    all: Vec<Arc<NodeFilter>>,
}

impl NodeFilters {
    pub(crate) fn intern(&mut self, filter: NodeFilter) -> NodeFilterId {
        if let Some(id) = self.ids.get(&filter) {
            return *id;
        }
        let (filter, id) = (Arc::new(filter), self.all.len());
        self.all.push(Arc::clone(&filter));
        self.ids.insert(filter, id);
        id
    }

    pub(crate) fn get(&self, id: NodeFilterId) -> &Arc<NodeFilter> {
        &self.all[id]
    }
}
