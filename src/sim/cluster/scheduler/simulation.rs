//! Simulated scheduling on a copy of the cluster with nodes added or removed.
//!
//! It uses the scheduler's own filters, on a copy of its cache, so that results are those of the scheduler.

use super::{FeasibleNodes, InterPodAffinity, NodeCache, NodeIndex, PodConstraints, PodSelection};
use crate::cluster::controllers::VolumeTopology;
use crate::cluster::{Cluster, NewNode};
use napkeeper_core::model::cluster::pod::{Pod, Spread};
use napkeeper_core::model::names::NodeName;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A copy of the scheduler's cache; the cluster is not changed.
#[derive(Debug, Clone)]
pub(crate) struct SchedulingSimulation<'c> {
    cluster: &'c Cluster,
    cache: NodeCache,
}

impl Cluster {
    /// A simulation that starts with the current cluster.
    pub(crate) fn simulation(&self) -> SchedulingSimulation<'_> {
        SchedulingSimulation { cluster: self, cache: self.scheduler.cache().clone() }
    }
}

impl SchedulingSimulation<'_> {
    /// Adds a ready node, with a pod of every DaemonSet that it accepts.
    pub(crate) fn add_node(&mut self, node: NewNode) -> NodeIndex {
        let node = node.into_node(self.cluster.ids.clone().uid(), self.cluster.now);
        let daemons = self.cluster.daemon_sets.requests_on(&node);
        let slot = self.cache.put(&Arc::new(node));
        self.cache.occupy(slot, &daemons);
        slot
    }

    /// Removes a node and its pods.
    pub(crate) fn take_node(&mut self, name: &NodeName) {
        self.cache.take(name);
    }

    /// Places a pod on the first of these nodes that can run it (`None`: of all), and returns that node.
    pub(crate) fn place(&mut self, pod: &Pod, among: Option<&BTreeSet<NodeIndex>>) -> Option<NodeIndex> {
        let shape = &*pod.shape;
        let store = &self.cluster.store;
        let volumes = match &*pod.volumes {
            [] => VolumeTopology::default(),
            names => self.cluster.volumes.topology_of(store, &shape.namespace, names)?,
        };
        let all: Vec<&Arc<Pod>> = store.pods().values().collect();
        let like = |spread: &Spread| PodSelection::Spread(shape.namespace.clone(), spread.selector.clone());
        let groups = shape.spread.iter().map(|s| self.cache.group(like(s), all.iter().copied()));
        let spread_groups: Vec<usize> = groups.collect();
        let affinity = &InterPodAffinity::of(&mut self.cache, shape, &all);
        // Other nodes matter only as domains of spread constraints.
        let only = among.filter(|_| spread_groups.is_empty());
        let constraints = PodConstraints { shape, spread_groups: &spread_groups, affinity, volumes: &volumes };
        let feasible = FeasibleNodes::new(constraints, &self.cache, only);
        let slot = feasible.first(shape, &self.cache, |slot| among.is_none_or(|a| a.contains(&slot)))?;
        self.cache.occupy(slot, &shape.requests);
        self.cache.take_ports(slot, &shape.ports);
        let counted = self.cache.groups_of(shape);
        self.cache.count_pod(&counted, slot, true, false);
        Some(slot)
    }
}
