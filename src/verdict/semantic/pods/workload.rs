//! The pods that an object creates.

use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::model::cluster::pod::PodShape;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::model::requirements::Requirements;
use std::sync::Arc;

/// An object with pods to schedule. DaemonSets are not included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload<'o> {
    pub(super) key: &'o ObjectKey,
    pub(super) shape: &'o Arc<PodShape>,
    /// How many pods it keeps; `None` for one that ends.
    pub(super) replicas: Option<u32>,
    is_pod: bool,
}

impl<'o> Workload<'o> {
    pub(super) fn of(object: &'o Object) -> Option<Self> {
        let (key, shape, replicas) = match object {
            Object::Deployment(d) => (&d.key, &d.template.shape, Some(d.replicas)),
            Object::StatefulSet(s) => (&s.key, &s.template.shape, Some(s.replicas)),
            Object::Job(j) => (&j.key, &j.template.shape, None),
            Object::Pod(p) if p.node.is_none() && !p.opaque => (&p.key, &p.shape, None),
            _ => return None,
        };
        Some(Self { key, shape, replicas, is_pod: matches!(object, Object::Pod(_)) })
    }

    /// The path of its pods' spec.
    pub(super) fn spec(&self) -> Path {
        Path::from_dotted(if self.is_pod { "spec" } else { "spec.template.spec" })
    }

    /// True if its pods run only on nodes that no NodePool makes: their node affinity demands that the label
    /// `karpenter.sh/nodepool` be absent.
    pub(super) fn avoids_node_pools(&self) -> bool {
        let PodShape { selector, alternatives, .. } = &**self.shape;
        let demands_none = |required: &Requirements| {
            let pool = required.get(labels::NODEPOOL);
            pool.is_some_and(|pool| pool.allows_absent() && pool.values().is_some_and(|values| values.is_empty()))
        };
        demands_none(selector) || !alternatives.is_empty() && alternatives.iter().all(demands_none)
    }

    /// A label key that no node can satisfy, if its requirements contradict each other.
    pub(super) fn contradiction(&self) -> Option<Arc<str>> {
        let PodShape { selector, alternatives, .. } = &**self.shape;
        let own = selector.first_empty().cloned();
        own.or_else(|| {
            let mut clashes = alternatives.iter().map(|a| selector.intersect(a).first_empty().cloned());
            let first = clashes.next()??;
            clashes.all(|clash| clash.is_some()).then_some(first)
        })
    }
}
