//! The simulator's own scheduler, judged like kube-scheduler: where it binds a pod, and where it leaves one pending.
//!
//! It plays what it documents as simulated. Workloads with volumes or with a second profile of kube-scheduler are left
//! out. Namespaces have only the label with their name there, so a `namespaceSelector` by another label is replaced by
//! one that selects the same namespaces by name. Scores are not compared: the simulator has LeastAllocated alone.

use super::emulated::EmulatedScheduler;
use super::judge::{Tally, judge};
use super::scheduler::{Namespaces, Scheduler, Verdict};
use super::spread_owners::{SpreadOwners, is_spreading};
use super::storage::Storage;
use super::workload::{Workload, namespaces};
use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use napkeeper_api::convert;
use napkeeper_core::model::names::{ArmId, ProviderId};
use napkeeper_sim::cluster::{Cluster, NewNode, Timings};
use napkeeper_sim::workload::PodTemplate;
use napkeeper_tests::fixtures;
use std::collections::BTreeMap;

/// Workloads of a plain run; about half of them have neither volumes nor a second profile.
const FEW: u64 = 40;
/// Label of every namespace with its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// The simulated cluster, with nodes and pods as they were added.
struct Simulated {
    seed: u64,
    namespaces: Namespaces,
    admission: EmulatedScheduler,
    nodes: Vec<Node>,
    /// Pods that were added with a node, and the others.
    pods: Vec<Pod>,
    cluster: Cluster,
}

impl Simulated {
    fn new(seed: u64, namespaces: Namespaces) -> Self {
        let admission = EmulatedScheduler::new(seed, namespaces.clone());
        let (nodes, pods) = Default::default();
        Self { seed, namespaces, admission, nodes, pods, cluster: Cluster::new(seed, Timings::default()) }
    }

    fn now() -> Timestamp {
        fixtures::instant()
    }

    /// A new cluster with the remaining objects.
    fn renew(&mut self) -> Result<()> {
        self.cluster = Cluster::new(self.seed, Timings::default());
        for node in &self.nodes {
            self.cluster.add_unmanaged_node(new_node(node)?, Self::now());
        }
        for pod in &self.pods {
            create(&mut self.cluster, pod)?;
        }
        Ok(())
    }

    /// Selects namespaces by name, where a pod selects them by another label.
    fn by_name(&self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        let affinity = pod.spec.as_mut().and_then(|spec| spec.affinity.as_mut());
        let Some(affinity) = affinity else { return pod };
        let near =
            affinity.pod_affinity.iter_mut().flat_map(|a| &mut a.required_during_scheduling_ignored_during_execution);
        let apart = affinity
            .pod_anti_affinity
            .iter_mut()
            .flat_map(|a| &mut a.required_during_scheduling_ignored_during_execution);
        for term in near.chain(apart).flatten() {
            self.name_namespaces(term);
        }
        pod
    }

    fn name_namespaces(&self, term: &mut PodAffinityTerm) {
        let wanted = term.namespace_selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
        let Some(wanted) = wanted else { return };
        let selected =
            |labels: &BTreeMap<String, String>| wanted.iter().all(|(key, value)| labels.get(key) == Some(value));
        let name = self.namespaces.iter().find(|(_, labels)| selected(labels)).map(|(name, _)| name.clone());
        let labels = BTreeMap::from([(NAME.to_owned(), name.unwrap_or_default())]);
        term.namespace_selector = Some(LabelSelector { match_labels: Some(labels), match_expressions: None });
    }

    fn node_of(&self, pod: &Pod) -> Result<Option<String>> {
        let key = read(pod)?.key;
        let pod = self.cluster.state().pods().get(&key).with_context(|| format!("there is no pod {key}"))?;
        Ok(pod.node.as_ref().map(ToString::to_string))
    }
}

fn read(pod: &Pod) -> Result<napkeeper_core::model::cluster::pod::Pod> {
    convert::pod(pod).map_err(|v| anyhow::anyhow!("{v}"))
}

fn new_node(node: &Node) -> Result<NewNode> {
    let node = convert::node(node).map_err(|v| anyhow::anyhow!("{v}"))?;
    let vm = format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/{}", node.name);
    Ok(NewNode {
        provider_id: ProviderId::of_vm(&ArmId::new(vm)?),
        name: node.name.clone(),
        labels: node.labels.clone(),
        taints: node.taints.clone(),
        kubelet_version: None,
        capacity: node.capacity.clone(),
        allocatable: node.allocatable.clone(),
    })
}

/// Creates a pod, and runs the scheduler.
fn create(cluster: &mut Cluster, pod: &Pod) -> Result<()> {
    let pod = read(pod)?;
    let template = PodTemplate::new(std::sync::Arc::clone(&pod.shape));
    match pod.node {
        Some(node) => cluster.run_static_pod(pod.key, &template, node, Simulated::now()),
        None => cluster.run_pod(pod.key, &template, Vec::new(), Simulated::now()),
    }
    cluster.advance(Simulated::now());
    Ok(())
}

impl Scheduler for Simulated {
    const IS_REAL: bool = true;

    async fn add_spread_owners(&mut self, _: &SpreadOwners) -> Result<()> {
        Ok(())
    }

    async fn add_storage(&mut self, storage: &Storage) -> Result<()> {
        ensure!(!storage.exists(), "volumes are left out here");
        Ok(())
    }

    async fn add_csi_nodes(&mut self, _: &[CSINode]) -> Result<()> {
        Ok(())
    }

    async fn add_nodes(&mut self, nodes: &[Node], _: usize) -> Result<()> {
        self.nodes.extend_from_slice(nodes);
        nodes.iter().try_for_each(|node| {
            self.cluster.add_unmanaged_node(new_node(node)?, Self::now());
            Ok(())
        })
    }

    async fn admitted(&mut self, pods: &[Pod]) -> Result<Vec<Pod>> {
        self.admission.admitted(pods).await
    }

    async fn add_pod(&mut self, pod: &Pod) -> Result<Pod> {
        let made = self.admission.admitted(std::slice::from_ref(pod)).await?;
        let made = made.into_iter().next().context("a pod that is not admitted")?;
        let named = self.by_name(&made);
        create(&mut self.cluster, &named)?;
        self.pods.push(named);
        Ok(made)
    }

    async fn verdict(&mut self, pod: &Pod, _: usize) -> Result<Verdict> {
        let waits = || Verdict::Waits("the simulated scheduler finds no node".to_owned());
        Ok(self.node_of(pod)?.map_or_else(waits, Verdict::Bound))
    }

    async fn bound_in_the_end(&mut self, pods: &[Pod]) -> Result<Vec<Option<String>>> {
        pods.iter().map(|pod| self.node_of(pod)).collect()
    }

    async fn remove_pods(&mut self, namespaces: &[&str], selector: &str) -> Result<()> {
        let selected = |pod: &Pod| {
            let labels = pod.metadata.labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
            selector.is_empty() || labels.into_iter().any(|label| label == selector)
        };
        let inside = |pod: &Pod| pod.metadata.namespace.as_deref().is_some_and(|name| namespaces.contains(&name));
        self.pods.retain(|pod| !(inside(pod) && selected(pod)));
        self.renew()
    }

    async fn remove_nodes(&mut self, _: &[&str]) -> Result<()> {
        self.nodes.clear();
        self.renew()
    }
}

#[tokio::test]
async fn the_simulated_scheduler_binds_where_kube_scheduler_would_and_leaves_nothing_pending_that_fits() -> Result<()> {
    let mut tally = Tally::default();
    for seed in super::seeds(FEW, &[])? {
        let work = Workload::new(seed)?;
        if work.storage.exists() || work.waiting.iter().any(is_spreading) {
            continue;
        }
        let mut scheduler = Simulated::new(seed, namespaces(seed));
        judge(&mut scheduler, &work, &mut tally).await.with_context(|| format!("workload {seed}"))?;
    }
    tally.tell();
    eprintln!("{tally}");
    ensure!(tally.workloads > 0 && tally.placed > tally.unplaced, "too few workloads, or too hard: {tally}");
    for (label, all) in [("a planned place is refused", &tally.filter), ("a binding is wrong", &tally.emulation)] {
        ensure!(all.is_empty(), "{label}: the first of {}: {}", all.len(), all[0]);
    }
    Ok(())
}
