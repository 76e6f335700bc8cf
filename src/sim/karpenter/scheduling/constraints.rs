//! What a pod wants of a node, its preferences included, and how these are given up one by one.

use super::groups::{GroupKind, NodeFilter};
use super::topology::Topology;
use napkeeper_core::model::cluster::pod::{PodShape, PodTerm, Spread, Taint, TaintEffect, Toleration};
use napkeeper_core::model::requirements::Requirements;
use std::sync::Arc;

/// The constraints of a pod as they stand: preferences count as requirements until they are given up.
#[derive(Debug, Clone)]
pub(super) struct Constraints {
    shape: Arc<PodShape>,
    /// Alternatives of required node affinity; the first one counts.
    alternatives: Vec<Requirements>,
    node: Vec<Requirements>,
    near: Vec<PodTerm>,
    apart: Vec<PodTerm>,
    /// Spread constraints, and whether each can be given up.
    spread: Vec<(bool, Spread)>,
    tolerations: Vec<Toleration>,
}

/// Constraints in the form in which nodes are compared with them.
#[derive(Debug, Clone)]
pub(super) struct PodNeeds {
    pub(super) shape: Arc<PodShape>,
    /// Of labels, the heaviest preference included.
    pub(super) requirements: Requirements,
    /// The same without preferences.
    pub(super) strict: Requirements,
    tolerations: Vec<Toleration>,
    /// Topology groups that it must keep.
    pub(super) groups: Vec<usize>,
    /// Groups of its own anti-affinity.
    pub(super) repelling: Vec<usize>,
    /// Only resources, taints, labels and ports decide about it.
    pub(super) is_plain: bool,
}

impl Constraints {
    pub(super) fn of(shape: &Arc<PodShape>) -> Self {
        let hard = shape.spread.iter().map(|spread| (false, spread.clone()));
        let preferences = shape.preferences.as_deref().cloned().unwrap_or_default();
        Self {
            shape: Arc::clone(shape),
            alternatives: shape.alternatives.clone(),
            node: preferences.node.into_iter().map(|(_, wanted)| wanted).collect(),
            near: preferences.near.into_iter().map(|(_, term)| term).collect(),
            apart: preferences.apart.into_iter().map(|(_, term)| term).collect(),
            spread: hard.chain(preferences.spread.into_iter().map(|spread| (true, spread))).collect(),
            tolerations: shape.tolerations.clone(),
        }
    }

    /// Gives up one more preference, in Karpenter's order; false when there is none left. `tolerates` says that pools
    /// have taints which only advise against pods.
    pub(super) fn relax(&mut self, tolerates: bool) -> bool {
        if self.alternatives.len() > 1 {
            self.alternatives.remove(0);
        } else if !self.near.is_empty() {
            self.near.remove(0);
        } else if !self.apart.is_empty() {
            self.apart.remove(0);
        } else if !self.node.is_empty() {
            self.node.remove(0);
        } else if let Some(soft) = self.spread.iter().position(|(soft, _)| *soft) {
            self.spread.swap_remove(soft);
        } else {
            let all = Toleration { key: None, value: None, effect: Some(TaintEffect::PreferNoSchedule) };
            if !tolerates || self.tolerations.contains(&all) {
                return false;
            }
            self.tolerations.push(all);
        }
        true
    }

    /// What nodes are compared with; counts the topology groups that are new.
    pub(super) fn needs(&self, topology: &mut Topology<'_>) -> PodNeeds {
        let shape = &*self.shape;
        let mut strict = shape.selector.clone();
        self.alternatives.first().into_iter().for_each(|first| strict.add_all(first));
        let mut requirements = strict.clone();
        self.node.first().into_iter().for_each(|heaviest| requirements.add_all(heaviest));
        let required = shape.affinity.as_deref();
        let mut groups: Vec<usize> = Vec::new();
        for (_, spread) in &self.spread {
            groups.push(topology.spread_group(shape, spread, self.filter(spread)));
        }
        for term in required.iter().flat_map(|affinity| &affinity.near).chain(&self.near) {
            groups.push(topology.term_group(GroupKind::Near, term));
        }
        for term in required.iter().flat_map(|affinity| &affinity.apart).chain(&self.apart) {
            groups.push(topology.term_group(GroupKind::Apart, term));
        }
        let repelling = topology.repelling_groups(shape);
        let has_choice = self.alternatives.len() > 1 || !self.node.is_empty();
        PodNeeds {
            shape: Arc::clone(&self.shape),
            is_plain: groups.is_empty() && repelling.is_empty() && !has_choice,
            requirements,
            strict,
            tolerations: self.tolerations.clone(),
            groups,
            repelling,
        }
    }

    fn filter(&self, spread: &Spread) -> NodeFilter {
        let selector = &self.shape.selector;
        let accepted = match &*self.alternatives {
            [] if selector.is_empty() => Vec::new(),
            [] => vec![selector.clone()],
            terms => terms.iter().map(|term| selector.intersect(term)).collect(),
        };
        let tolerations = if spread.honors_taints { self.tolerations.clone() } else { Vec::new() };
        NodeFilter {
            honors_affinity: spread.honors_affinity,
            honors_taints: spread.honors_taints,
            accepted,
            tolerations,
        }
    }
}

impl PodNeeds {
    /// True when every taint is tolerated, those that only advise against pods included.
    pub(super) fn tolerates(&self, taints: &[Taint]) -> bool {
        taints.iter().all(|taint| Toleration::any_covers(&self.tolerations, taint))
    }
}
