//! The pods that a constraint selects.

use napkeeper_core::model::cluster::pod::{Labels, PodShape, PodTerm};
use napkeeper_core::model::labels::NAMESPACE_NAME;
use napkeeper_core::model::names::Namespace;
use napkeeper_core::model::requirements::Requirements;
use std::sync::Arc;

/// Pods that a constraint looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) enum PodSelection {
    /// Those of a namespace that a spread constraint selects.
    Spread(Namespace, Requirements),
    /// Those that all of these terms mean.
    Affinity(Vec<PodTerm>),
    /// Those that have this term of anti-affinity.
    AntiAffinity(PodTerm),
}

impl PodSelection {
    /// True when pods of this shape are among them.
    pub(super) fn holds(&self, shape: &PodShape) -> bool {
        match self {
            Self::Spread(namespace, selector) => shape.namespace == *namespace && selector.satisfied_by(&shape.labels),
            Self::Affinity(terms) => terms.iter().all(|term| means(term, shape)),
            Self::AntiAffinity(term) => shape.affinity.as_ref().is_some_and(|affinity| affinity.apart.contains(term)),
        }
    }

    /// True when pods that are being deleted count: kube-scheduler leaves them out of spread alone.
    pub(super) fn counts_ending(&self) -> bool {
        !matches!(self, Self::Spread(..))
    }

    /// The topology key, if they have anti-affinity against pods of this shape.
    pub(super) fn keeps_away(&self, shape: &PodShape) -> Option<&Arc<str>> {
        match self {
            Self::AntiAffinity(term) if means(term, shape) => Some(&term.topology_key),
            Self::Spread(..) | Self::Affinity(_) | Self::AntiAffinity(_) => None,
        }
    }
}

/// True when the term means pods of this shape. The label with their name is the only one that namespaces have here.
fn means(term: &PodTerm, shape: &PodShape) -> bool {
    let labels = || Labels::from([(Arc::from(NAMESPACE_NAME), shape.namespace.text())]);
    let labels = term.namespace_selector.as_ref().map(|_| labels());
    term.means(&shape.namespace, labels.as_ref(), &shape.labels)
}
