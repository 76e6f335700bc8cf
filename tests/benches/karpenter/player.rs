//! Plays a world to a cluster, and samples its nodes and pods.

use crate::series::{INTERVAL, Observation, Series};
use crate::sizes::{Sizes, offering_name};
use crate::world::{Change, World};
use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use napkeeper_core::model::labels;
use serde_json::json;
use std::time::{Duration, Instant};

/// Longest that one request may take on a busy machine.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

/// A cluster that is played to.
pub(crate) struct Player {
    deployments: Api<Deployment>,
    nodes: Api<Node>,
    pods: Api<Pod>,
}

impl Player {
    /// One with all rights on the cluster of a client.
    pub(crate) fn new(client: kube::Client) -> Self {
        Self {
            deployments: Api::namespaced(client.clone(), "default"),
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client, "default"),
        }
    }

    /// Plays a whole world in real time.
    ///
    /// # Errors
    /// When the API server refuses a change, or does not answer in time.
    pub(crate) async fn play(&self, world: &World, sizes: &Sizes) -> Result<Series> {
        let mut series = Series::default();
        let mut steps = world.steps.iter().peekable();
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(world.seconds.into()) {
            ticks.tick().await;
            while let Some(step) = steps.next_if(|step| start.elapsed() >= Duration::from_secs(step.at.into())) {
                for change in &step.changes {
                    self.apply(world, *change).await?;
                }
            }
            let seen = self.observe().await?;
            series.record(start.elapsed().as_secs_f64(), seen, sizes);
        }
        Ok(series)
    }

    /// Applies a change.
    pub(crate) async fn apply(&self, world: &World, change: Change) -> Result<()> {
        let (app, patch) = match change {
            Change::Scale { app, replicas } => (app, json!({ "spec": { "replicas": replicas } })),
            Change::Rollout { app } => {
                let annotations = json!({ "kubectl.kubernetes.io/restartedAt": jiff::Timestamp::now().to_string() });
                (app, json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }))
            }
        };
        let name = &world.apps.get(app).with_context(|| format!("the world {} has no app {app}", world.name))?.name;
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = tokio::time::timeout(ANSWERED_WITHIN, self.deployments.patch(name, &params, &patch)).await;
        patched.context("the API server did not answer in time")?.with_context(|| format!("changing {name}"))?;
        Ok(())
    }

    /// Looks at all nodes and pods.
    pub(crate) async fn observe(&self) -> Result<Observation> {
        // From the cache of the API server: of thousands of pods it cannot read all from etcd again and again beside its work.
        let params = ListParams::default().match_any();
        let both = async { futures::try_join!(self.nodes.list(&params), self.pods.list(&params)) };
        let (nodes, pods) = tokio::time::timeout(ANSWERED_WITHIN, both)
            .await
            .context("the API server did not list nodes and pods in time")?
            .context("listing nodes and pods")?;
        let mut seen = Observation::default();
        for node in nodes {
            let name = |key| node.metadata.labels.as_ref()?.get(key);
            if let Some((size, capacity_type)) = name(labels::INSTANCE_TYPE).zip(name(labels::CAPACITY_TYPE)) {
                let offering = offering_name(size, capacity_type);
                seen.nodes.insert(node.metadata.uid.unwrap_or_default(), offering);
            }
        }
        seen.pods = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(of_pod).collect();
        Ok(seen)
    }

    /// Pods that kube-scheduler has found no node for.
    pub(crate) async fn unschedulable(&self) -> Result<usize> {
        let pods = tokio::time::timeout(ANSWERED_WITHIN, self.pods.list(&ListParams::default().match_any())).await;
        let pods = pods.context("the API server did not list pods in time")?.context("listing pods")?;
        let reasons = pods.into_iter().filter_map(|pod| pod.status?.conditions);
        Ok(reasons.filter(|all| all.iter().any(|c| c.reason.as_deref() == Some("Unschedulable"))).count())
    }
}

fn of_pod(pod: Pod) -> (String, bool) {
    let bound = pod.spec.is_some_and(|spec| spec.node_name.is_some());
    (pod.metadata.uid.unwrap_or_default(), bound)
}
