//! The emulation of kube-scheduler as the scheduler of a workload.

use super::pod_specs::{SANDBOXED, URGENT, USEFUL, overhead};
use super::scheduler::{Namespaces, Scheduler, Verdict};
use super::spread_owners::{SPREADING, SpreadOwners, constraints};
use super::storage::{Storage, classes};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use napkeeper_tests::kube_scheduler::Cluster;
use std::collections::BTreeMap;

/// How often pending pods are retried after others were bound.
const MOST_TURNS: usize = 8;

/// Nodes and pods, and the emulation that binds them.
pub(super) struct EmulatedScheduler {
    seed: u64,
    namespaces: Namespaces,
    nodes: Vec<Node>,
    csi_nodes: Vec<CSINode>,
    storage: Storage,
    spread_owners: SpreadOwners,
    /// Pods with the node of each that has one, in the order of creation.
    pods: Vec<(Pod, Option<String>)>,
    cluster: Cluster,
}

impl EmulatedScheduler {
    /// An empty cluster.
    pub(super) fn new(seed: u64, namespaces: Namespaces) -> Self {
        let (nodes, csi_nodes, pods, storage, spread_owners) = Default::default();
        Self { seed, namespaces, nodes, csi_nodes, storage, spread_owners, pods, cluster: Cluster::new(seed) }
    }

    /// An emulation that has seen just what there is.
    fn renew(&mut self) -> Result<()> {
        self.cluster = Cluster::new(self.seed);
        for (name, labels) in &self.namespaces {
            self.cluster.add_namespace(name, labels.clone());
        }
        show_spread_owners(&mut self.cluster, &self.spread_owners)?;
        show(&mut self.cluster, &self.storage, &self.csi_nodes)?;
        let mut indices = BTreeMap::new();
        for node in &self.nodes {
            indices.insert(node.metadata.name.clone().unwrap_or_default(), self.cluster.add_node(node));
        }
        for (pod, node) in &self.pods {
            if let Some(node) = node {
                self.cluster.bind(pod, *indices.get(node).with_context(|| format!("there is no node {node}"))?);
            }
        }
        Ok(())
    }

    fn try_to_bind(&mut self, pod: usize) -> Verdict {
        match self.cluster.schedule(&self.pods[pod].0) {
            Ok(node) => {
                let node = self.cluster.name(node).to_owned();
                self.pods[pod].1 = Some(node.clone());
                Verdict::Bound(node)
            }
            Err(reasons) => {
                let counts = reasons.iter().map(|(reason, nodes)| format!("{nodes} {reason}"));
                Verdict::Waits(counts.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn index_of(&self, pod: &Pod) -> Result<usize> {
        let same = |(known, _): &(Pod, _)| known.metadata.uid == pod.metadata.uid;
        self.pods.iter().position(same).with_context(|| format!("there is no pod {:?}", pod.metadata.name))
    }
}

impl Scheduler for EmulatedScheduler {
    const IS_REAL: bool = false;

    async fn add_spread_owners(&mut self, spread_owners: &SpreadOwners) -> Result<()> {
        self.spread_owners = spread_owners.clone();
        Ok(())
    }

    async fn add_storage(&mut self, storage: &Storage) -> Result<()> {
        self.storage = storage.clone();
        Ok(())
    }

    async fn add_csi_nodes(&mut self, nodes: &[CSINode]) -> Result<()> {
        self.csi_nodes.extend_from_slice(nodes);
        Ok(())
    }

    async fn add_nodes(&mut self, nodes: &[Node], _: usize) -> Result<()> {
        self.nodes.extend_from_slice(nodes);
        self.renew()
    }

    async fn admitted(&mut self, pods: &[Pod]) -> Result<Vec<Pod>> {
        pods.iter().map(admitted).collect()
    }

    async fn add_pod(&mut self, pod: &Pod) -> Result<Pod> {
        let mut made = admitted(pod)?;
        made.metadata.uid = Some(format!("{:?}/{:?}", pod.metadata.namespace, pod.metadata.name));
        let node = made.spec.as_ref().and_then(|spec| spec.node_name.clone());
        self.pods.push((made.clone(), node.clone()));
        match node {
            Some(_) => self.renew()?,
            None => drop(self.try_to_bind(self.pods.len() - 1)),
        }
        Ok(made)
    }

    async fn verdict(&mut self, pod: &Pod, _: usize) -> Result<Verdict> {
        let index = self.index_of(pod)?;
        Ok(match &self.pods[index].1 {
            Some(node) => Verdict::Bound(node.clone()),
            None => self.try_to_bind(index),
        })
    }

    async fn bound_in_the_end(&mut self, pods: &[Pod]) -> Result<Vec<Option<String>>> {
        let indices = pods.iter().map(|pod| self.index_of(pod)).collect::<Result<Vec<_>>>()?;
        for _ in 0..MOST_TURNS {
            let mut found = false;
            for index in &indices {
                found |= self.pods[*index].1.is_none() && matches!(self.try_to_bind(*index), Verdict::Bound(_));
            }
            if !found {
                break;
            }
        }
        Ok(indices.into_iter().map(|index| self.pods[index].1.clone()).collect())
    }

    async fn remove_pods(&mut self, namespaces: &[&str], selector: &str) -> Result<()> {
        let selected = |pod: &Pod| {
            let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
            selector.is_empty() || labels.into_iter().any(|label| label == selector)
        };
        let inside = |pod: &Pod| pod.metadata.namespace.as_deref().is_some_and(|name| namespaces.contains(&name));
        self.pods.retain(|(pod, _)| !(inside(pod) && selected(pod)));
        self.renew()
    }

    async fn remove_nodes(&mut self, _: &[&str]) -> Result<()> {
        self.nodes.clear();
        self.csi_nodes.clear();
        (self.storage, self.spread_owners) = Default::default();
        self.renew()
    }
}

/// Shows volumes, and how many nodes take of them, to an emulation.
pub(super) fn show(cluster: &mut Cluster, storage: &Storage, nodes: &[CSINode]) -> Result<()> {
    for class in classes()?.iter().filter(|_| storage.exists()) {
        cluster.add_class(class);
    }
    storage.volumes.iter().for_each(|volume| cluster.add_volume(volume));
    storage.claims.iter().for_each(|claim| cluster.add_claim(claim));
    nodes.iter().for_each(|node| cluster.add_csi_node(node));
    Ok(())
}

/// Shows an emulation its second profile, and who tells which pods belong together.
pub(super) fn show_spread_owners(cluster: &mut Cluster, spread_owners: &SpreadOwners) -> Result<()> {
    cluster.add_profile(SPREADING, serde_json::from_value(constraints())?);
    spread_owners.services.iter().for_each(|service| cluster.add_service(service));
    spread_owners.sets.iter().for_each(|set| cluster.add_set(set));
    Ok(())
}

/// The pod with what the API server's own admission adds to it, so far as it matters here: priority, overhead, and
/// requests where only limits are given.
fn admitted(pod: &Pod) -> Result<Pod> {
    let mut pod = pod.clone();
    let Some(spec) = &mut pod.spec else { return Ok(pod) };
    let classes = [URGENT, USEFUL].into_iter().find(|(name, _)| spec.priority_class_name.as_deref() == Some(name));
    spec.priority = Some(classes.map_or(0, |(_, value)| value));
    if spec.runtime_class_name.as_deref() == Some(SANDBOXED) {
        spec.overhead = Some(serde_json::from_value(overhead())?);
    }
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = &mut container.resources {
            let limits = resources.limits.clone();
            for (name, amount) in limits.into_iter().flatten() {
                resources.requests.get_or_insert_default().entry(name).or_insert(amount);
            }
        }
    }
    Ok(pod)
}
