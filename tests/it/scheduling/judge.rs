//! Compares kube-scheduler with our plan of a workload, and the real one with the emulation.

use super::emulated::{show, show_spread_owners};
use super::offerings::pin;
use super::plan::{Plan, plan};
use super::pod_specs::TIER;
use super::scheduler::{Scheduler, Verdict};
use super::spread_owners::is_spreading;
use super::storage::claims_of;
use super::workload::{WAITING, Workload};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use napkeeper_core::model::labels::{CAPACITY_TYPE, ZONE};
use napkeeper_tests::kube_scheduler::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One in so many pods may be unschedulable if kube-scheduler chooses freely. Measured were 4.7 to 5.8 %, and a fifth
/// more is allowed.
const BY_ORDER: usize = 14;
/// One in so many pods may be stuck. Measured were 0.1 to 0.5 %, and a fifth more is allowed.
const STUCK: usize = 160;

/// Rates of fewer workloads say nothing: one with a full cluster can exceed them alone.
const RATED: usize = 30;

/// The results of some workloads.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(super) workloads: usize,
    pub(super) pods: usize,
    /// Those of them that have volumes.
    pub(super) with_volumes: usize,
    /// Those of them that a profile may give spread constraints.
    pub(super) with_defaults: usize,
    /// Pods of DaemonSets in addition.
    pub(super) daemon_sets: usize,
    pub(super) placed: usize,
    pub(super) unplaced: usize,
    /// Planned nodes that kube-scheduler rejects, and bindings of pods that are unschedulable by our plan.
    pub(super) filter: Vec<String>,
    /// Pods that are unschedulable by our plan, although a new node could run them.
    pub(super) missed: Vec<String>,
    /// Pods with a node in our plan that stayed pending if kube-scheduler chose freely, or the other way round.
    pub(super) by_order: Vec<String>,
    /// Those among them that are unschedulable in a second plan, with the others where kube-scheduler bound them.
    pub(super) stuck: Vec<String>,
    /// Disagreements with the emulation on whether a pod fits.
    pub(super) emulation: Vec<String>,
    /// Pods whose node is not one of the best by the emulation.
    pub(super) scores: Vec<String>,
    /// Pods whose node was compared with the best ones of the emulation.
    pub(crate) scored: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workloads, pods, with_volumes, with_defaults, daemon_sets, placed, unplaced, scored, .. } = self;
        let (filter, order, emulation) = (self.filter.len(), self.by_order.len(), self.emulation.len());
        let (missed, stuck, scores) = (self.missed.len(), self.stuck.len(), self.scores.len());
        write!(
            f,
            "workloads={workloads} pods={pods} with_volumes={with_volumes} with_defaults={with_defaults} daemon_sets={daemon_sets} \
             placed={placed} unplaced={unplaced} filter_disagreements={filter} missed={missed} by_order={order} stuck={stuck} emulation_disagreements={emulation} other_scores={scores} of {scored}"
        )
    }
}

impl Tally {
    /// Prints all results.
    pub(crate) fn tell(&self) {
        let Self { filter, missed, by_order, stuck, emulation, scores, .. } = self;
        let plan_results = [("FILTER", filter), ("MISSED", missed), ("ORDER", by_order), ("STUCK", stuck)];
        for (label, all) in plan_results.into_iter().chain([("EMULATION", emulation), ("SCORES", scores)]) {
            all.iter().for_each(|line| eprintln!("{label}: {line}"));
        }
    }

    /// Fails on a disagreement, and if rates of [`RATED`] workloads or more are out of bounds.
    pub(crate) fn is_good(&self) -> Result<()> {
        let never = [("filter", &self.filter), ("emulation", &self.emulation), ("missed", &self.missed)];
        for (label, all) in never.into_iter().chain([("scores", &self.scores)]) {
            ensure!(all.is_empty(), "{label}: the first of {}: {}", all.len(), all[0]);
        }
        ensure!(self.placed > 0 && self.unplaced > 0, "too easy, or too hard: {self}");
        if self.workloads < RATED {
            return Ok(());
        }
        ensure!(self.placed > self.unplaced, "too hard: {self}");
        ensure!(self.by_order.len() * BY_ORDER <= self.pods, "too many pods without a place: {self}");
        ensure!(self.stuck.len() * STUCK <= self.pods, "too many pods are stuck: {self}");
        Ok(())
    }
}

/// A workload with its plan, before a scheduler.
struct Trial<'a, S> {
    scheduler: &'a mut S,
    work: &'a Workload,
    plan: &'a Plan,
    nodes: Vec<Node>,
    running: Vec<Pod>,
    /// The waiting pods as the API server has them.
    waiting: &'a [Pod],
    /// The largest new nodes.
    greatest: Vec<Node>,
    tally: &'a mut Tally,
}

/// Plans a workload and plays it twice, first with every pod tied to its planned node.
pub(crate) async fn judge<S: Scheduler>(scheduler: &mut S, work: &Workload, tally: &mut Tally) -> Result<()> {
    scheduler.add_spread_owners(&work.spread_owners).await?;
    scheduler.add_storage(&work.storage).await?;
    scheduler.add_csi_nodes(&work.storage.csi_nodes(&work.offerings, &work.standing)?).await?;
    scheduler.add_nodes(&work.standing, work.standing.len()).await?;
    let mut running = Vec::new();
    for pod in &work.running {
        running.push(scheduler.add_pod(pod).await?);
    }
    let waiting = scheduler.admitted(&work.waiting).await?;
    let plan = plan((work, &work.storage), &work.standing, &running, &waiting)?;
    let nodes: Vec<Node> = work.standing.iter().chain(&plan.new).cloned().collect();
    scheduler.add_csi_nodes(&work.storage.csi_nodes(&work.offerings, &plan.new)?).await?;
    scheduler.add_nodes(&plan.new, nodes.len()).await?;
    for pod in &work.daemon_sets.pods(&plan.new)? {
        running.push(scheduler.add_pod(pod).await?);
    }
    tally.daemon_sets += running.iter().filter(|pod| pod.metadata.owner_references.is_some()).count();
    tally.workloads += 1;
    tally.pods += work.waiting.len();
    tally.with_volumes += work.waiting.iter().filter(|pod| !claims_of(pod).is_empty()).count();
    tally.with_defaults += work.waiting.iter().filter(|pod| is_spreading(pod)).count();
    tally.placed += plan.goes.len();
    tally.unplaced += plan.unplaced.len();
    let namespaces: Vec<&str> = work.namespaces.iter().map(|(name, _)| name.as_str()).collect();
    let greatest = work.offerings.greatest("greatest")?;
    let mut trial = Trial { scheduler, work, plan: &plan, nodes, running, waiting: &waiting, greatest, tally };
    trial.pinned().await.context("with every pod tied to its planned node")?;
    trial.scheduler.remove_pods(&namespaces, WAITING).await?;
    trial.free().await.context("with every pod free")?;
    scheduler.remove_pods(&namespaces, "").await?;
    scheduler.remove_nodes(&namespaces).await
}

impl<S: Scheduler> Trial<'_, S> {
    /// The emulation before the first pending pod.
    fn emulation(&self) -> Result<Cluster> {
        self.emulation_of(&self.nodes, &self.running)
    }

    /// The emulation with these nodes and these pods that run.
    fn emulation_of(&self, nodes: &[Node], running: &[Pod]) -> Result<Cluster> {
        let mut cluster = Cluster::new(self.work.seed);
        for (name, labels) in &self.work.namespaces {
            cluster.add_namespace(name, labels.clone());
        }
        let storage = &self.work.storage;
        show_spread_owners(&mut cluster, &self.work.spread_owners)?;
        show(&mut cluster, storage, &storage.csi_nodes(&self.work.offerings, nodes)?)?;
        let mut indices = BTreeMap::new();
        for node in nodes {
            indices.insert(node.metadata.name.as_deref(), cluster.add_node(node));
        }
        for pod in running {
            let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).context("a pod that runs nowhere")?;
            let index = indices.get(&Some(node)).with_context(|| format!("there is no node {node}"))?;
            cluster.bind(pod, *index);
        }
        Ok(cluster)
    }

    /// The labels of a new node that could run a pod beside those of this emulation, if there is one.
    fn cure(&self, cluster: &Cluster, pod: &Pod) -> Result<Option<String>> {
        for node in &self.greatest {
            let mut cluster = cluster.clone();
            let csi_nodes = self.work.storage.csi_nodes(&self.work.offerings, [node])?;
            csi_nodes.iter().for_each(|csi_node| cluster.add_csi_node(csi_node));
            let new = cluster.add_node(node);
            self.work.daemon_sets.pods([node])?.iter().for_each(|pod| cluster.bind(pod, new));
            if cluster.scores(pod).iter().any(|(index, _)| *index == new) {
                return Ok(Some(serde_json::to_string(&node.metadata.labels)?));
            }
        }
        Ok(None)
    }

    fn index(&self, name: &str) -> Result<usize> {
        let named = |node: &Node| node.metadata.name.as_deref() == Some(name);
        self.nodes.iter().position(named).with_context(|| format!("there is no node {name}"))
    }

    /// Every pod pinned to its planned node, one after another; then the unplaced ones.
    async fn pinned(&mut self) -> Result<()> {
        let mut cluster = self.emulation()?;
        let (mut found, mut bound) = (Vec::new(), Vec::new());
        for (pod, node) in &self.plan.goes {
            let (made, verdict) = self.turn(pinned(&self.work.waiting[*pod], node)).await?;
            if let Verdict::Waits(reason) = &verdict {
                found.push(format!("{} is planned for {node}: {reason}", self.name(*pod)));
            }
            self.compare(&mut cluster, &made, &verdict)?;
            bound.push(on(made, node.clone()));
        }
        self.look_for_missed(&bound)?;
        for (pod, planned) in &self.plan.unplaced {
            let (made, verdict) = self.turn(self.work.waiting[*pod].clone()).await?;
            if let Verdict::Bound(node) = &verdict {
                found.push(format!("{} has no place ({planned}), and is bound to {node}", self.name(*pod)));
            }
            self.compare(&mut cluster, &made, &verdict)?;
        }
        if !found.is_empty() {
            eprintln!("seed {}, all places of the plan: {}", self.work.seed, self.placements().join(", "));
        }
        self.tally.filter.extend(found);
        Ok(())
    }

    /// Finds new nodes for unplaced pods, after all others are bound to their planned nodes.
    fn look_for_missed(&mut self, bound: &[Pod]) -> Result<()> {
        let cluster = self.emulation_of(&self.nodes, &[&self.running, bound].concat())?;
        let mut known = BTreeSet::new();
        for (pod, planned) in &self.plan.unplaced {
            // Pods of one app and release are identical.
            let wire = &self.waiting[*pod];
            if known.insert(&wire.metadata.labels)
                && let Some(labels) = self.cure(&cluster, wire)?
            {
                let message = format!("{} has no place ({planned}), and would have one on {labels}", self.name(*pod));
                self.tally.missed.push(message);
            }
        }
        Ok(())
    }

    /// Every pod where kube-scheduler binds it, in the order of the plan.
    async fn free(&mut self) -> Result<()> {
        let mut cluster = self.emulation()?;
        let (mut waits, mut bound) = (Vec::new(), self.running.clone());
        let placed = self.plan.goes.iter().map(|(pod, node)| (*pod, Ok(node)));
        let unplaced = self.plan.unplaced.iter().map(|(pod, reason)| (*pod, Err(reason)));
        for (pod, planned) in placed.chain(unplaced) {
            let (made, verdict) = self.turn(self.work.storage.again(&self.work.waiting[pod])).await?;
            // A pending pod may be retried at any time, so later results are not predictable.
            if waits.is_empty() {
                self.compare(&mut cluster, &made, &verdict)?;
            }
            match (verdict, planned) {
                (Verdict::Waits(reason), Ok(node)) => {
                    waits.push((pod, made, format!("is planned for {node}: {reason}")))
                }
                (Verdict::Waits(_), Err(_)) => {}
                (Verdict::Bound(node), planned) => {
                    bound.push(on(made, node.clone()));
                    if let Err(reason) = planned {
                        let message = format!("{} has no place ({reason}), and is bound to {node}", self.name(pod));
                        self.tally.by_order.push(message);
                    }
                }
            }
        }
        let made: Vec<Pod> = waits.iter().map(|(_, made, _)| made.clone()).collect();
        let ends = self.scheduler.bound_in_the_end(&made).await?;
        let mut left = Vec::new();
        for ((pod, made, reason), end) in waits.into_iter().zip(ends) {
            match end {
                Some(node) => bound.push(on(made, node)),
                None => {
                    self.tally.by_order.push(format!("{} {reason}", self.name(pod)));
                    left.push(pod);
                }
            }
        }
        self.plan_again(&bound, &left)
    }

    /// Plans pending pods again with further new nodes. Those that are still unplaced are stuck: bound pods keep them
    /// from every node.
    fn plan_again(&mut self, bound: &[Pod], left: &[usize]) -> Result<()> {
        let storage = &self.work.storage;
        let waiting: Vec<Pod> = left.iter().map(|pod| storage.again(&self.waiting[*pod])).collect();
        let again = plan((self.work, &storage.after(&self.nodes, bound)?), &self.nodes, bound, &waiting)?;
        let nodes = [&self.nodes[..], &again.new].concat();
        let placed = again.goes.iter().map(|(pod, node)| on(waiting[*pod].clone(), node.clone()));
        let daemon_sets = self.work.daemon_sets.pods(&again.new)?;
        let running: Vec<Pod> = bound.iter().cloned().chain(placed).chain(daemon_sets).collect();
        let cluster = self.emulation_of(&nodes, &running)?;
        for (pod, reason) in again.unplaced {
            let message = format!("{} has no place in the second plan: {reason}", self.name(left[pod]));
            match self.cure(&cluster, &waiting[pod])? {
                Some(labels) => self.tally.missed.push(format!("{message}; it would have one on {labels}")),
                None => self.tally.stuck.push(message),
            }
        }
        Ok(())
    }

    /// Creates a pod, and waits for its verdict.
    async fn turn(&mut self, pod: Pod) -> Result<(Pod, Verdict)> {
        let made = self.scheduler.add_pod(&pod).await?;
        let verdict = self.scheduler.verdict(&made, self.nodes.len()).await?;
        Ok((made, verdict))
    }

    /// Compares the emulation with the verdict: whether the pod fits, and whether its node is one of the best.
    fn compare(&mut self, cluster: &mut Cluster, pod: &Pod, verdict: &Verdict) -> Result<()> {
        if !S::IS_REAL {
            return Ok(());
        }
        let scores = cluster.scores(pod);
        let best = scores.iter().map(|(_, score)| *score).max();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let with_seed = |message: String| -> Result<String> {
            let spec = serde_json::to_string(&pod.spec)?;
            Ok(format!("seed {}, {name}: {message}\n  {spec}", self.work.seed))
        };
        match verdict {
            Verdict::Waits(reason) if best.is_some() => {
                let message = with_seed(format!("{reason}, where there are {} places", scores.len()))?;
                self.tally.emulation.push(message);
            }
            Verdict::Waits(_) => {}
            Verdict::Bound(node) => {
                let index = self.index(node)?;
                cluster.bind(pod, index);
                let score = scores.iter().find(|(n, _)| *n == index).map(|(_, score)| *score);
                let message = with_seed(format!("bound to {node}, of score {score:?} where {best:?} is best"))?;
                self.tally.scored += 1;
                match score {
                    None => self.tally.emulation.push(message),
                    Some(_) if score != best => self.tally.scores.push(message),
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }

    /// Every planned placement: pod, namespace and node, with the labels that others may refer to.
    fn placements(&self) -> Vec<String> {
        let of = |labels: &BTreeMap<String, String>| {
            let keys = [ZONE, CAPACITY_TYPE, TIER].map(|key| labels.get(key).map_or("-", String::as_str));
            keys.join("/")
        };
        let node = |name: &str| {
            let node = self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name));
            node.and_then(|node| node.metadata.labels.as_ref()).map(of).unwrap_or_default()
        };
        let placement = |pod: &Pod, name: &str| {
            let (pod, namespace) = (&pod.metadata.name, &pod.metadata.namespace);
            let (pod, namespace) = (pod.as_deref().unwrap_or_default(), namespace.as_deref().unwrap_or_default());
            format!("{namespace}/{pod} on {name} ({})", node(name))
        };
        let running = self.running.iter().map(|pod| {
            let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            format!("{} with {:?}", placement(pod, name), pod.metadata.labels)
        });
        running.chain(self.plan.goes.iter().map(|(pod, name)| placement(&self.waiting[*pod], name))).collect()
    }

    fn name(&self, pod: usize) -> String {
        let pod = &self.work.waiting[pod];
        let spec = serde_json::to_string(&pod.spec).unwrap_or_default();
        let labels = serde_json::to_string(&pod.metadata.labels).unwrap_or_default();
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let name = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        format!("seed {}, {name}\n  {labels}\n  {spec}\n ", self.work.seed)
    }
}

/// The pod, bound to a node.
fn on(mut pod: Pod, node: String) -> Pod {
    pod.spec.get_or_insert_default().node_name = Some(node);
    pod
}

/// The pod, tied to a node by asking for what no other node has.
fn pinned(pod: &Pod, node: &str) -> Pod {
    let mut pod = pod.clone();
    let container = pod.spec.as_mut().and_then(|spec| spec.containers.first_mut());
    if let Some(container) = container {
        let resources = container.resources.get_or_insert_default();
        for list in [&mut resources.requests, &mut resources.limits] {
            list.get_or_insert_default().insert(pin(node), Quantity("1".to_owned()));
        }
    }
    pod
}
