//! Shapes: what do thousands of pods have in common, so that it is kept once?

use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::NodeName;
use std::collections::BTreeSet;
use std::sync::Arc;

/// As many are kept before it is first looked which of them are still in use.
const FEW: usize = 1_000;

/// Equal values, each kept once.
#[derive(Debug)]
struct Once<T> {
    known: BTreeSet<T>,
    /// With so many it is looked which of them are still in use.
    most: usize,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), most: FEW }
    }
}

impl<T: Ord + Clone> Once<T> {
    /// The one that is kept. `uses` counts who has it, this one among them.
    fn of(&mut self, value: &T, uses: impl Fn(&T) -> usize) -> T {
        if let Some(known) = self.known.get(value) {
            return known.clone();
        }
        if self.known.len() >= self.most {
            self.known.retain(|known| uses(known) > 1);
            self.most = self.known.len().saturating_mul(2).max(FEW);
        }
        self.known.insert(value.clone());
        value.clone()
    }
}

/// What pods that are watched have in common.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    shapes: Once<Arc<PodShape>>,
    nodes: Once<NodeName>,
}

impl Shapes {
    /// Gives a pod the shape, and the names of namespace and node, of those that are like it.
    pub(super) fn share(&mut self, pod: &mut Arc<Pod>) {
        let pod = Arc::make_mut(pod);
        pod.shape = self.shapes.of(&pod.shape, Arc::strong_count);
        if pod.key.namespace == pod.shape.namespace {
            pod.key.namespace = pod.shape.namespace.clone();
        }
        if let Some(node) = &mut pod.node {
            // To look is to have it, for as long.
            *node = self.nodes.of(node, |name| Arc::strong_count(&name.text()) - 1);
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
    fn equal_pods_share_a_shape_and_what_nobody_uses_is_forgotten() {
        let mut shapes = Shapes::default();
        let (mut one, mut two, mut other) = (pod("one", 1), pod("two", 1), pod("other", 2));
        [&mut one, &mut two, &mut other].into_iter().for_each(|pod| shapes.share(pod));
        assert!(Arc::ptr_eq(&one.shape, &two.shape) && !Arc::ptr_eq(&one.shape, &other.shape));
        for cpu in 3..3 + 5 * FEW {
            shapes.share(&mut pod("passing", cpu));
        }
        assert!(shapes.shapes.known.len() <= FEW, "{} are kept", shapes.shapes.known.len());
        let mut three = pod("three", 1);
        shapes.share(&mut three);
        assert!(Arc::ptr_eq(&one.shape, &three.shape));
    }
}
