//! Node selector, node affinity and tolerations of a pod.

use crate::model::cluster::pod::{Labels, PodShape, Spread, Taint, TaintEffect, Toleration};
use crate::model::requirements::Requirements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a filter among [`NodeFilters`].
pub(crate) type NodeFilterId = usize;

/// Labels that the node must have, and taints that it may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeFilter {
    pub(crate) selector: Requirements,
    /// Of each list one must hold: the terms of node affinity, and those of each volume.
    pub(crate) alternatives: Vec<Vec<Requirements>>,
    pub(crate) tolerations: Vec<Toleration>,
    /// Taints with `PreferNoSchedule` keep pods away like any other.
    pub(crate) avoid_prefer_no_schedule: bool,
}

impl NodeFilter {
    /// What a pod asks for; its volumes ask for one of `volumes`, if there are any.
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

    /// The nodes that a spread constraint of a pod counts. `None` is all.
    pub(crate) fn for_spread(shape: &PodShape, spread: &Spread) -> Option<Self> {
        const ANY: Toleration = Toleration { key: None, value: None, effect: None };
        let asks = spread.honors_affinity && !(shape.selector.is_empty() && shape.alternatives.is_empty());
        if !asks && !spread.honors_taints {
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

    /// All that is asked of labels whichever of its alternatives a node has: where there is only one there is no
    /// alternative.
    pub(crate) fn unconditional(&self) -> impl Iterator<Item = &Requirements> {
        let only = self.alternatives.iter().filter_map(|list| match list.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        std::iter::once(&self.selector).chain(only)
    }

    /// True when a node with these labels and taints is let through.
    pub(crate) fn accepts(&self, labels: &Labels, taints: &[Taint]) -> bool {
        self.accepts_labels(labels) && self.untolerated(taints).is_none()
    }

    /// True when a node with these labels has what is asked for.
    pub(crate) fn accepts_labels(&self, labels: &Labels) -> bool {
        self.selector.satisfied_by(labels)
            && self.alternatives.iter().all(|list| list.iter().any(|asked| asked.satisfied_by(labels)))
    }

    /// The first taint that keeps the pod away.
    pub(crate) fn untolerated<'t>(&self, taints: &'t [Taint]) -> Option<&'t Taint> {
        let mut hard = taints
            .iter()
            .filter(|taint| self.avoid_prefer_no_schedule || taint.effect != TaintEffect::PreferNoSchedule);
        hard.find(|taint| !Toleration::any_covers(&self.tolerations, taint))
    }
}

/// Filters by number: equal ones have one.
#[derive(Debug, Default)]
pub(crate) struct NodeFilters {
    numbers: BTreeMap<Arc<NodeFilter>, NodeFilterId>,
    all: Vec<Arc<NodeFilter>>,
}

impl NodeFilters {
    pub(crate) fn intern(&mut self, filter: NodeFilter) -> NodeFilterId {
        if let Some(number) = self.numbers.get(&filter) {
            return *number;
        }
        let (filter, number) = (Arc::new(filter), self.all.len());
        self.all.push(Arc::clone(&filter));
        self.numbers.insert(filter, number);
        number
    }

    pub(crate) fn get(&self, number: NodeFilterId) -> &Arc<NodeFilter> {
        &self.all[number]
    }
}
