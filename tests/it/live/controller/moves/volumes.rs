//! Pods of a StatefulSet run again soon, with their volumes, after their node was consolidated.

use super::disks::Disks;
use super::{FOUR_CORES, POD, STEP, budget, deployment, node_class, pods, pool, quiet, stream, take_time, template};
use crate::live::scheduler::Provisioner;
use crate::scheduling::classes;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use napkeeper_tests::control_plane::WAITS;
use napkeeper_tests::environment::Environment;
use napkeeper_tests::environment::state::{claims, nodes, running, scale};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest time from a pod's eviction until it runs on its new node.
const RUNS_WITHIN: Duration = Duration::from_secs(90);
const REPLICAS: usize = 2;

/// A StatefulSet with a disk for each pod, which starts only when that is attached.
fn database() -> Value {
    let mut set = take_time(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db", "namespace": "default" },
        "spec": {
            "replicas": REPLICAS, "serviceName": "db", "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": "db" } },
            "template": template("db", "general", POD),
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": {
                    "storageClassName": "disks", "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            }],
        },
    }));
    set["spec"]["template"]["metadata"]["annotations"][WAITS] = json!("true");
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{ "name": "data", "mountPath": "/data" }]);
    set
}

/// A Deployment whose nodes must not be disrupted.
fn anchor() -> Value {
    let mut anchor = deployment("anchor", "general", POD);
    anchor["spec"]["template"]["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "true" });
    anchor
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: .ci/nightly runs it"]
async fn a_stateful_set_runs_on_its_new_node_within_90_s() -> Result<()> {
    let mut env = Environment::start("provisioner").await?;
    let _provisioner = Provisioner::start(env.plane.client().await?);
    let _disks = Disks::start(env.plane.client().await?);
    let mut objects =
        vec![node_class(), pool("general", &[FOUR_CORES]), anchor(), budget("db", "maxUnavailable", json!(1))];
    for class in classes()? {
        objects.push(serde_json::to_value(class)?);
    }
    env.plane.apply(&stream(&objects)).await?;
    let controller = env.controller()?;
    // Three pods fill a node, so that the StatefulSet gets another, for which there is room on the first one later.
    scale(&env, "anchor", 3).await?;
    running(&env, "anchor", 3).await?;
    env.plane.apply(&stream(&[database()])).await?;
    running(&env, "db", REPLICAS).await?;
    let old = one_node_of(&env, "app=db").await?;
    scale(&env, "anchor", 1).await?;
    let gone = async || Ok((pods(&env, "app=anchor").await?.len() == 1).then_some(()));
    eventually("end of two pods", STEP, gone).await?;
    let new = one_node_of(&env, "app=anchor").await?;
    ensure!(old != new, "all pods are on {new}");

    quiet(&mut env).await?;
    let mut moved = Moved { old, kept_until: BTreeMap::new(), took: BTreeMap::new() };
    let done = eventually("move of all pods", STEP + RUNS_WITHIN, async || {
        moved.look(&env).await?;
        let is_alone = nodes(&env).await?.len() == 1 && claims(&env).await?.len() == 1;
        Ok((moved.took.len() == REPLICAS && is_alone).then_some(()))
    });
    done.await.with_context(|| format!("{moved:?}: {}", controller.tail(60)))?;
    eprintln!("from eviction to running elsewhere: {:?}", moved.took);
    ensure!(moved.took.values().all(|time| *time < RUNS_WITHIN), "{moved:?}");
    let attached: BTreeSet<String> = attachments(&env).await?.into_iter().map(|one| one.spec.node_name).collect();
    ensure!(attached == BTreeSet::from([new]), "volumes are attached to {attached:?}");
    Ok(())
}

/// The node on which all pods are that a selector matches.
async fn one_node_of(env: &Environment, selector: &str) -> Result<String> {
    let places: BTreeSet<_> = pods(env, selector).await?.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    let [place] =
        <[String; 1]>::try_from(Vec::from_iter(places)).map_err(|all| anyhow::anyhow!("{selector}: {all:?}"))?;
    Ok(place)
}

async fn attachments(env: &Environment) -> Result<Vec<VolumeAttachment>> {
    let api: Api<VolumeAttachment> = Api::all(env.plane.client().await?);
    Ok(api.list(&ListParams::default()).await?.items)
}

/// How pods move from their old node to another.
#[derive(Debug)]
struct Moved {
    old: String,
    /// When each was last seen there before its eviction.
    kept_until: BTreeMap<String, Instant>,
    /// How long it took from then until each ran elsewhere.
    took: BTreeMap<String, Duration>,
}

impl Moved {
    async fn look(&mut self, env: &Environment) -> Result<()> {
        for pod in pods(env, "app=db").await? {
            let name = pod.name_any();
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            let is_leaving = pod.metadata.deletion_timestamp.is_some();
            if node.as_ref() == Some(&self.old) {
                if !is_leaving {
                    self.kept_until.insert(name, Instant::now());
                }
            } else if let Some(kept_until) = self.kept_until.get(&name).filter(|_| runs && !is_leaving) {
                self.took.entry(name).or_insert_with(|| kept_until.elapsed());
            }
        }
        // The VM outlives all its attachments: nobody could detach them orderly without it.
        let vm = format!("virtualMachines/{}", self.old);
        let has_vm = env.resources().await?.iter().any(|id| id.ends_with(&vm));
        let is_attached = attachments(env).await?.iter().any(|one| one.spec.node_name == self.old);
        ensure!(has_vm || !is_attached, "the VM of {} was deleted with volumes attached", self.old);
        Ok(())
    }
}
