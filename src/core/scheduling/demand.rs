//! Demand: waiting pods of one shape, which are placed alike.

use crate::cluster::pod::{Pod, PodShape};
use crate::names::Zone;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Waiting pods of one shape, perhaps pinned to a zone.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    /// What each of them asks for.
    pub(super) shape: Arc<PodShape>,
    /// The pods.
    pub(super) pods: Vec<Arc<Pod>>,
    /// The zone that a spread constraint has chosen for them.
    pub(super) zone: Option<Zone>,
}

impl Demand {
    /// Groups pods by shape: higher priority first, then larger pods, which are harder to place.
    pub(super) fn group<'p>(pods: impl IntoIterator<Item = &'p Arc<Pod>>) -> Vec<Self> {
        let mut by_shape: BTreeMap<&Arc<PodShape>, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            by_shape.entry(&pod.shape).or_default().push(Arc::clone(pod));
        }
        let mut demands: Vec<Self> = by_shape
            .into_iter()
            .map(|(shape, mut pods)| {
                pods.sort_by(|a, b| (a.created_at, &a.key).cmp(&(b.created_at, &b.key)));
                Self { shape: Arc::clone(shape), pods, zone: None }
            })
            .collect();
        demands.sort_by_key(|d| {
            let r = &d.shape.requests;
            (Reverse(d.shape.priority), Reverse(r.extended.len()), Reverse(r.cpu_millis), Reverse(r.memory))
        });
        demands
    }

    /// The same demand for one of its pods.
    pub(super) fn only(&self, pod: &Arc<Pod>) -> Self {
        Self { shape: Arc::clone(&self.shape), pods: vec![Arc::clone(pod)], zone: self.zone.clone() }
    }
}
