//! Topology spread constraints and pod affinity terms of a pod.
//!
//! A topology key is a node label; nodes with the same value are one domain.

use super::pod::Labels;
use crate::model::names::Namespace;
use crate::model::requirements::Requirements;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A topology spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// Node label whose values are the domains.
    pub topology_key: Arc<str>,
    /// How many more pods a domain may have than the emptiest one.
    pub max_skew: u32,
    /// With fewer domains than this, the emptiest one counts as empty; 1 is the default.
    pub min_domains: u32,
    /// Which pods of the namespace count. `matchLabelKeys` are in it, with the pod's own values.
    pub selector: Requirements,
    /// Only nodes with the labels that the pod requires are domains (`nodeAffinityPolicy: Honor`, the default).
    pub honors_affinity: bool,
    /// Only nodes whose taints the pod tolerates are domains (`nodeTaintsPolicy: Honor`, not the default).
    pub honors_taints: bool,
}

impl Spread {
    /// A constraint with defaults for everything else.
    #[must_use]
    pub fn over(topology_key: &str, max_skew: u32, selector: Requirements) -> Self {
        let topology_key = crate::model::labels::interned(topology_key);
        Self { topology_key, max_skew, min_domains: 1, selector, honors_affinity: true, honors_taints: false }
    }
}

/// Pods that a pod wants to be near to, or apart from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// Node label whose values are the domains.
    pub topology_key: Arc<str>,
    /// The namespaces that count, by name. Without names and selector: the pod's own, which is listed here.
    pub namespaces: BTreeSet<Namespace>,
    /// Namespaces with these labels count too; empty requirements are all namespaces, `None` is no more.
    pub namespace_selector: Option<Requirements>,
    /// Labels of the pods. `matchLabelKeys` and `mismatchLabelKeys` are in it, with the pod's own values.
    pub selector: Requirements,
}

impl PodTerm {
    /// True when it selects pods with these labels in this namespace. `namespace_labels` are those of the namespace.
    #[must_use]
    pub fn means(&self, namespace: &Namespace, namespace_labels: Option<&Labels>, labels: &Labels) -> bool {
        self.selector.satisfied_by(labels) && self.reaches(namespace, namespace_labels)
    }

    /// True when pods of this namespace count.
    #[must_use]
    pub fn reaches(&self, namespace: &Namespace, namespace_labels: Option<&Labels>) -> bool {
        let selected = |selector: &Requirements| match namespace_labels {
            Some(labels) => selector.satisfied_by(labels),
            // An unknown namespace matches only the selector of all.
            None => selector.is_empty(),
        };
        self.namespaces.contains(namespace) || self.namespace_selector.as_ref().is_some_and(selected)
    }
}

/// Required pod affinity and anti-affinity: all of these must hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PodAffinity {
    /// In the domain of such a pod.
    pub near: Vec<PodTerm>,
    /// In no domain of such a pod; and such pods come to none of its domains.
    pub apart: Vec<PodTerm>,
}

/// Preferences of a pod, heaviest first. The weights are 1 to 100.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Preferences {
    /// Labels of nodes.
    pub node: Vec<(i32, Requirements)>,
    /// To be near such pods.
    pub near: Vec<(i32, PodTerm)>,
    /// To be apart from such pods.
    pub apart: Vec<(i32, PodTerm)>,
    /// Spread constraints with `whenUnsatisfiable: ScheduleAnyway`, in the pod's order.
    pub spread: Vec<Spread>,
}

impl Preferences {
    /// True when nothing is preferred.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.node.is_empty() && self.near.is_empty() && self.apart.is_empty() && self.spread.is_empty()
    }
}
