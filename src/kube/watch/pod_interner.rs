//! Shares equal parts of pods, so that each is stored once.

use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::NodeName;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of entries at which unused ones are first dropped.
const FIRST_CLEANUP: usize = 1_000;

/// Equal values, each stored once.
#[derive(Debug)]
struct Interner<T> {
    known: BTreeSet<T>,
    /// The number of entries at which unused ones are dropped.
    next_cleanup: usize,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), next_cleanup: FIRST_CLEANUP }
    }
}

impl<T: Ord + Clone> Interner<T> {
    /// The shared value. `uses` counts its references, this one among them.
    fn intern(&mut self, value: &T, uses: impl Fn(&T) -> usize) -> T {
        if let Some(known) = self.known.get(value) {
            return known.clone();
        }
        if self.known.len() >= self.next_cleanup {
            self.known.retain(|known| uses(known) > 1);
            self.next_cleanup = self.known.len().saturating_mul(2).max(FIRST_CLEANUP);
        }
        self.known.insert(value.clone());
        value.clone()
    }
}

/// What watched pods have in common.
#[derive(Debug, Default)]
pub(super) struct PodInterner {
    shapes: Interner<Arc<PodShape>>,
    limits: Interner<Arc<Resources>>,
    owners: Interner<Arc<str>>,
    nodes: Interner<NodeName>,
}

impl PodInterner {
    /// Replaces shape, limits, owner, namespace and node name of a pod by shared equal values.
    pub(super) fn share(&mut self, pod: &mut Arc<Pod>) {
        let pod = Arc::make_mut(pod);
        pod.shape = self.shapes.intern(&pod.shape, Arc::strong_count);
        let details = &mut pod.details;
        details.limits = self.limits.intern(&details.limits, Arc::strong_count);
        details.owner = self.owners.intern(&details.owner, Arc::strong_count);
        if pod.key.namespace == pod.shape.namespace {
            pod.key.namespace = pod.shape.namespace.clone();
        }
        if let Some(node) = &mut pod.node {
            // `text()` is itself a reference, for as long as it is counted.
            *node = self.nodes.intern(node, |name| Arc::strong_count(&name.text()) - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod as WirePod;
    use napkeeper_api::convert;
    use serde_json::json;

    fn pod(name: &str, cpu: usize) -> Arc<Pod> {
        let container = json!({ "name": "a", "resources": { "requests": { "cpu": cpu.to_string() } } });
        let wire = json!({ "metadata": { "name": name }, "spec": { "containers": [container] } });
        Arc::new(convert::pod(&serde_json::from_value::<WirePod>(wire).unwrap()).unwrap())
    }

    #[test]
    fn equal_pods_share_a_shape_and_unused_shapes_are_dropped() {
        let mut interner = PodInterner::default();
        let (mut one, mut two, mut other) = (pod("one", 1), pod("two", 1), pod("other", 2));
        [&mut one, &mut two, &mut other].into_iter().for_each(|pod| interner.share(pod));
        assert!(Arc::ptr_eq(&one.shape, &two.shape) && !Arc::ptr_eq(&one.shape, &other.shape));
        assert!(Arc::ptr_eq(&one.details.limits, &two.details.limits));
        for cpu in 3..3 + 5 * FIRST_CLEANUP {
            interner.share(&mut pod("passing", cpu));
        }
        assert!(interner.shapes.known.len() <= FIRST_CLEANUP, "{} are kept", interner.shapes.known.len());
        let mut three = pod("three", 1);
        interner.share(&mut three);
        assert!(Arc::ptr_eq(&one.shape, &three.shape));
    }
}
