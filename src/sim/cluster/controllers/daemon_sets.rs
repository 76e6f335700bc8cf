//! The DaemonSet controller.

use crate::cluster::Cluster;
use crate::cluster::pods::{PodOrigin, PodRuntime};
use crate::workload::PodTemplate;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::{PodOwner, PodShape, TaintEffect, Toleration};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeName, ObjectKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// DaemonSets and where their pods are.
#[derive(Debug, Default)]
pub(in crate::cluster) struct DaemonSets {
    templates: BTreeMap<ObjectKey, Arc<PodTemplate>>,
    pods: BTreeMap<(NodeName, ObjectKey), ObjectKey>,
}

impl DaemonSets {
    pub(in crate::cluster) fn put(&mut self, key: ObjectKey, template: &PodTemplate) {
        let template = PodTemplate { shape: Arc::new(with_daemon_tolerations(&template.shape)), ..template.clone() };
        self.templates.insert(key, Arc::new(template));
    }

    pub(in crate::cluster) fn take(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.templates.remove(key);
        let of_set = |((_, set), pod): (&(NodeName, ObjectKey), &ObjectKey)| (set == key).then(|| pod.clone());
        self.pods.iter().filter_map(of_set).collect()
    }

    /// The total requests of DaemonSet pods on a node.
    pub(in crate::cluster) fn requests_on(&self, node: &Node) -> Resources {
        let mut sum = Resources::default();
        let shapes = self.templates.values().map(|t| &t.shape);
        for shape in shapes.filter(|s| s.accepts_labels(&node.labels) && s.untolerated(&node.taints).is_none()) {
            sum.add(&shape.requests);
        }
        sum
    }

    pub(in crate::cluster) fn forget_pod(&mut self, set: ObjectKey, node: NodeName) {
        self.pods.remove(&(node, set));
    }
}

/// The DaemonSet controller adds tolerations, so that its pods run on nodes that are not ready, cannot be reached, or
/// are cordoned (`AddOrUpdateDaemonPodTolerations`). Not-ready is tolerated with every effect here, as the DaemonSets
/// of AKS do.
fn with_daemon_tolerations(shape: &PodShape) -> PodShape {
    let toleration = |key: &str, effect| Toleration { key: Some(Arc::from(key)), value: None, effect };
    let mut shape = shape.clone();
    shape.tolerations.extend([
        toleration(labels::TAINT_NOT_READY, None),
        toleration(labels::TAINT_UNREACHABLE, None),
        toleration("node.kubernetes.io/unschedulable", Some(TaintEffect::NoSchedule)),
    ]);
    shape
}

impl Cluster {
    /// Starts missing pods of DaemonSets on changed nodes that accept them and have the capacity.
    pub(in crate::cluster) fn run_daemon_sets(&mut self) {
        for name in std::mem::take(&mut self.dirty.nodes) {
            let Some(node) = self.store.nodes().get(&name).map(Arc::clone) else {
                continue;
            };
            if node.deleting_at.is_some() || self.kubelets.is_lost(&name) {
                continue;
            }
            for (set, template) in self.daemon_sets.templates.clone() {
                self.start_daemon(&node, set, &template);
            }
        }
    }

    fn start_daemon(&mut self, node: &Node, set: ObjectKey, template: &PodTemplate) {
        let node_and_set = (node.name.clone(), set.clone());
        let used = self.store.node_usage(&node.name);
        let used = used.map_or_else(Resources::default, |u| u.pod_requests.clone());
        let room = node.allocatable.minus(&used);
        if self.daemon_sets.pods.contains_key(&node_and_set)
            || !template.shape.accepts_labels(&node.labels)
            || template.shape.untolerated(&node.taints).is_some()
            || !template.shape.requests.fits(&room)
        {
            return;
        }
        let key = ObjectKey { namespace: set.namespace.clone(), name: self.ids.name(&set.name) };
        let runtime = PodRuntime::of(PodOrigin::DaemonSet(set, node.name.clone()), template);
        self.workloads.runtimes.insert(key.clone(), runtime);
        self.daemon_sets.pods.insert(node_and_set, key.clone());
        let pod = self.new_pod(key, template, PodOwner::DaemonSet, Vec::new());
        self.bind(pod, node.name.clone());
    }
}
