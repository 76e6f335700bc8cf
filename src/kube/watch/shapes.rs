//! Shapes: how do thousands of equal pods share one?

use napkeeper_core::cluster::pod::{Pod, PodShape};
use std::collections::BTreeSet;
use std::sync::Arc;

/// As many shapes are kept before it is first looked which of them are still in use.
const FEW: usize = 1_000;

/// The shapes of pods that are watched, each once.
#[derive(Debug)]
pub(super) struct Shapes {
    known: BTreeSet<Arc<PodShape>>,
    /// With so many it is looked which of them are still in use.
    most: usize,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { known: BTreeSet::new(), most: FEW }
    }
}

impl Shapes {
    /// Gives a pod the shape of those that are like it.
    pub(super) fn share(&mut self, pod: &mut Arc<Pod>) {
        if let Some(known) = self.known.get(&pod.shape) {
            if !Arc::ptr_eq(known, &pod.shape) {
                Arc::make_mut(pod).shape = Arc::clone(known);
            }
            return;
        }
        if self.known.len() >= self.most {
            self.known.retain(|shape| Arc::strong_count(shape) > 1);
            self.most = self.known.len().saturating_mul(2).max(FEW);
        }
        self.known.insert(Arc::clone(&pod.shape));
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
        assert!(shapes.known.len() <= FEW, "{} are kept", shapes.known.len());
        let mut three = pod("three", 1);
        shapes.share(&mut three);
        assert!(Arc::ptr_eq(&one.shape, &three.shape));
    }
}
