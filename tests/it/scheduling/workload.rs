//! Draws a workload from a seed: pending pods, and existing objects.

use super::daemon_sets::DaemonSets;
use super::offerings::{Offerings, PurchasedNode};
use super::pod_specs::{DEDICATED, RACK, SpecBuilder, Surroundings, TIER, resources};
use super::scheduler::Namespaces;
use super::spread_owners::SpreadOwners;
use super::storage::Storage;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node as WireNode, Pod as WirePod};
use napkeeper_core::model::labels::{HOSTNAME, ZONE};
use napkeeper_sim::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Most pending pods.
const MOST_PODS: u64 = 60;
/// Waiting pods have this label, and those that run do not.
pub(super) const WAITING: &str = "waiting=yes";

/// Pods, and the existing nodes.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(super) seed: u64,
    /// Namespaces with their labels.
    pub(super) namespaces: Namespaces,
    pub(super) offerings: Offerings,
    pub(super) standing: Vec<WireNode>,
    /// Pods on those nodes.
    pub(super) running: Vec<WirePod>,
    pub(super) waiting: Vec<WirePod>,
    /// The volumes of those pods.
    pub(super) storage: Storage,
    /// Who tells which of them belong together.
    pub(super) spread_owners: SpreadOwners,
    pub(super) daemon_sets: DaemonSets,
}

/// Namespaces of a seed, with their labels.
pub(crate) fn namespaces(seed: u64) -> Namespaces {
    let labels = |name: &str, team: &str| {
        let all = [("team", team), ("kubernetes.io/metadata.name", name)];
        all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    let names = ["blue", "red", "daemons"].map(|team| (format!("{team}-{seed}"), team));
    names.into_iter().map(|(name, team)| (name.clone(), labels(&name, team))).collect()
}

impl Workload {
    /// The workload of a seed.
    pub(crate) fn new(seed: u64) -> Result<Self> {
        let mut chance = Random::of(seed, "workload");
        let offerings = Offerings::new(&mut chance)?;
        let standing = if chance.one_in(3) { chance.between(1, 3) } else { 0 };
        let names: Vec<String> = (0..standing).map(|n| format!("w{seed}-standing-{n}")).collect();
        let apps = (0..chance.between(4, 12)).map(|n| format!("app-{n}")).collect();
        let namespaces = namespaces(seed);
        let both = [namespaces[0].0.clone(), namespaces[1].0.clone()];
        let scene = Surroundings { apps, namespaces: both, standing: names };
        let standing = standing_nodes(&mut chance, &scene, &offerings)?;
        let mut running = running(&mut chance, &scene)?;
        let mut waiting = waiting(&mut chance, &scene)?;
        let storage = Storage::give(seed, &standing, &mut running, &mut waiting)?;
        let spread_owners = SpreadOwners::give(seed, &mut waiting)?;
        let others: Vec<&WirePod> = running.iter().chain(&waiting).collect();
        let daemon_sets = DaemonSets::draw(seed, &namespaces[2].0, &others)?;
        running.extend(daemon_sets.pods(&standing)?);
        Ok(Self { seed, namespaces, offerings, standing, running, waiting, storage, spread_owners, daemon_sets })
    }
}

fn standing_nodes(chance: &mut Random, scene: &Surroundings, offerings: &Offerings) -> Result<Vec<WireNode>> {
    let mut nodes = Vec::new();
    for (n, name) in scene.standing.iter().enumerate() {
        let (instance, offering) = offerings.any(chance).context("nothing can be bought")?;
        let labels = BTreeMap::from([(RACK.to_owned(), n.to_string())]);
        let taint = json!({ "key": DEDICATED, "value": "gold", "effect": "NoSchedule" });
        let taints = if chance.one_in(4) { vec![taint] } else { Vec::new() };
        nodes.push(PurchasedNode { instance, offering, labels, taints }.node(name)?);
    }
    Ok(nodes)
}

/// Pods of the same apps that run, some of which want to be apart from others.
fn running(chance: &mut Random, scene: &Surroundings) -> Result<Vec<WirePod>> {
    let mut pods = Vec::new();
    for (n, node) in scene.standing.iter().enumerate() {
        for i in 0..chance.between(0, 3) {
            let app = chance.pick(&scene.apps).cloned().unwrap_or_default();
            let other = chance.pick(&scene.apps).cloned().unwrap_or_default();
            let mut spec =
                json!({ "containers": [container(json!({ "requests": { "cpu": "200m" } }))], "nodeName": node });
            if chance.one_in(2) {
                let key = chance.pick(&[HOSTNAME, ZONE, TIER]);
                let term = json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": other } } });
                spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
            }
            let namespace = chance.pick(&scene.namespaces).cloned().unwrap_or_default();
            pods.push(pod(&format!("running-{n}-{i}"), &namespace, &labels(&app, 0), &spec)?);
        }
    }
    Ok(pods)
}

fn waiting(chance: &mut Random, scene: &Surroundings) -> Result<Vec<WirePod>> {
    let mut pods = Vec::new();
    let mut left = chance.between(MOST_PODS / 4, MOST_PODS);
    for app in &scene.apps {
        let replicas = chance.between(1, 10).min(left);
        left -= replicas;
        let namespace = chance.pick(&scene.namespaces).cloned().unwrap_or_default();
        let spec = json!({ "containers": [container(resources(chance))] });
        let spec = SpecBuilder { chance, scene, app, spec }.all();
        // The later half is of another release.
        for replica in 0..replicas {
            let mut labels = labels(app, 2 * replica / replicas);
            labels["waiting"] = json!("yes");
            pods.push(pod(&format!("{app}-{replica}"), &namespace, &labels, &spec)?);
        }
    }
    Ok(pods)
}

fn labels(app: &str, release: u64) -> Value {
    let layer = if app.ends_with(['0', '3', '6']) { "front" } else { "back" };
    json!({ "app": app, "layer": layer, "release": format!("r{release}") })
}

fn container(resources: Value) -> Value {
    json!({ "name": "main", "image": "none", "resources": resources })
}

fn pod(name: &str, namespace: &str, labels: &Value, spec: &Value) -> Result<WirePod> {
    let metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec }))
        .with_context(|| format!("making the pod {name}"))
}
