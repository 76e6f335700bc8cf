//! Services and ReplicaSets, by which default spread constraints of kube-scheduler select pods.
//!
//! A second profile of kube-scheduler gives spread constraints to pods that have none, with the selector of their
//! owner. In some workloads some apps use that profile: with a Service, a ReplicaSet, both, or no owner.

use super::storage::wire;
use anyhow::Result;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use napkeeper_core::model::labels::{HOSTNAME, ZONE};
use napkeeper_sim::random::Random;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The profile that spreads pods without constraints of their own.
pub(super) const SPREADING: &str = "spreading-scheduler";

/// The profiles of kube-scheduler: the usual one, and [`SPREADING`].
pub(crate) fn profiles() -> Vec<Value> {
    let args = json!({ "defaultingType": "List", "defaultConstraints": constraints() });
    vec![
        json!({ "schedulerName": "default-scheduler" }),
        json!({ "schedulerName": SPREADING, "pluginConfig": [{ "name": "PodTopologySpread", "args": args }] }),
    ]
}

/// What [`SPREADING`] gives.
pub(super) fn constraints() -> Value {
    json!([
        { "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule" },
        { "maxSkew": 2, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway" },
    ])
}

/// Services and sets; none at all in most workloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpreadOwners {
    pub(crate) services: Vec<Service>,
    pub(crate) sets: Vec<ReplicaSet>,
}

impl SpreadOwners {
    /// Gives some apps to [`SPREADING`], with owners.
    pub(super) fn give(seed: u64, waiting: &mut [Pod]) -> Result<Self> {
        let mut chance = Random::of(seed, "kin");
        let mut spread_owners = Self::default();
        if !chance.one_in(3) {
            return Ok(spread_owners);
        }
        let apps: BTreeSet<String> = waiting.iter().map(|pod| label(pod, "app")).collect();
        for app in apps {
            if !chance.one_in(2) {
                continue;
            }
            // 0: the app's Service, 1: one that selects others too, 2: a ReplicaSet, 3: both, 4: none.
            let how = chance.between(0, 4);
            let mut pods: Vec<&mut Pod> = waiting.iter_mut().filter(|pod| label(pod, "app") == app).collect();
            for pod in &mut pods {
                pod.spec.get_or_insert_default().scheduler_name = Some(SPREADING.to_owned());
                if how == 2 || how == 3 {
                    spread_owners.own(pod)?;
                }
            }
            match (how, pods.first()) {
                (0 | 3, Some(pod)) => spread_owners.select(pod, "app")?,
                (1, Some(pod)) => spread_owners.select(pod, "layer")?,
                _ => {}
            }
        }
        Ok(spread_owners)
    }

    /// A Service for pods like this one, by one of its labels.
    fn select(&mut self, pod: &Pod, key: &str) -> Result<()> {
        let metadata =
            json!({ "name": format!("{}-by-{key}", label(pod, "app")), "namespace": pod.metadata.namespace });
        let selector = BTreeMap::from([(key, label(pod, key))]);
        let spec = json!({ "clusterIP": "None", "selector": selector });
        self.services.push(wire(json!({ "metadata": metadata, "spec": spec }))?);
        Ok(())
    }

    /// Makes the ReplicaSet of a pod's release its owner.
    fn own(&mut self, pod: &mut Pod) -> Result<()> {
        let name = format!("{}-{}", label(pod, "app"), label(pod, "release"));
        let owner =
            json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true }]);
        pod.metadata.owner_references = Some(wire(owner)?);
        let (namespace, labels) = (&pod.metadata.namespace, &pod.metadata.labels);
        let same = |set: &ReplicaSet| set.metadata.name.as_ref() == Some(&name) && set.metadata.namespace == *namespace;
        if !self.sets.iter().any(same) {
            let template = json!({
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            });
            let spec = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template });
            let metadata = json!({ "name": name, "namespace": namespace });
            self.sets.push(wire(json!({ "metadata": metadata, "spec": spec }))?);
        }
        Ok(())
    }
}

/// True for a pod of [`SPREADING`] without constraints of its own.
pub(super) fn is_spreading(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        spec.scheduler_name.as_deref() == Some(SPREADING) && spec.topology_spread_constraints.is_none()
    })
}

fn label(pod: &Pod, key: &str) -> String {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
}
