//! Stands in for the kubelet and the container runtime: the pods of napkeeper's namespace run as processes of this machine.
//!
//! The real controller-manager makes the pods from the Deployments that are applied, and the real scheduler binds them. Here the
//! program starts with the arguments, the environment, the ConfigMaps and the role of the ServiceAccount that the pod names, and
//! the pod is Ready when its probes say so. Only what processes of one machine cannot have is replaced:
//! see `container`.

use super::SimulatedAzure;
use super::container::{Container, Runtime};
use super::probes::Probes;
use super::services::ServiceNetwork;
use crate::control_plane::{ControlPlane, Process};
use crate::environment::NAMESPACE;
use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How often pods are listed.
const SYNC: Duration = Duration::from_millis(250);
/// How often the probes of a running pod are checked.
const TICK: Duration = Duration::from_millis(100);
/// How long a pod may take to end that does not say so: the default of Kubernetes.
const GRACE_SECONDS: i64 = 30;
/// How often a pod is started again when another program has taken one of its ports in between.
const TRIES: usize = 4;

/// Runs pods until it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    node: Arc<Node>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.running().values().for_each(|process| process.kill());
    }
}

/// What the tasks of all pods share.
#[derive(Debug)]
struct Node {
    pods: Api<Pod>,
    runtime: Runtime,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Processes by the names of their pods.
    running: BTreeMap<String, Arc<Process>>,
    /// How many pods have started.
    started: usize,
    /// What went wrong with pods.
    failures: Vec<String>,
}

impl Kubelet {
    /// Begins to run pods, and to lead connections of the API server to their Services. Pods that sign in to Azure sign in to the
    /// simulated one.
    pub(super) async fn start(plane: &ControlPlane, azure: SimulatedAzure, network: ServiceNetwork) -> Result<Self> {
        let client = plane.client().await?;
        let addresses = network.addresses();
        let (server, authority) = (plane.server(), plane.ca_certificate());
        let maps = Api::namespaced(client.clone(), NAMESPACE);
        let accounts = Api::namespaced(client.clone(), NAMESPACE);
        let runtime = Runtime { maps, accounts, server, authority, azure, addresses };
        let pods = Api::namespaced(client.clone(), NAMESPACE);
        let node = Arc::new(Node { pods, runtime, state: Mutex::default() });
        let sync = tokio::spawn(Arc::clone(&node).sync());
        Ok(Self { node, tasks: vec![sync, tokio::spawn(network.serve(client))] })
    }

    /// Checks that all pods run that should, and that those that were ended did so with 0 and in time.
    ///
    /// # Errors
    /// Names those that do not or did not, with the end of their logs.
    pub fn check(&self) -> Result<()> {
        let state = self.node.state();
        ensure!(state.failures.is_empty(), "{}", state.failures.join("\n\n"));
        Ok(())
    }

    /// The processes that run, by the names of their pods.
    #[must_use]
    pub fn running(&self) -> BTreeMap<String, Arc<Process>> {
        self.node.state().running.clone()
    }

    /// The last lines of every process that runs, for the message of an error.
    #[must_use]
    pub fn tails(&self, lines: usize) -> String {
        let running = self.running();
        running.iter().map(|(pod, process)| format!("{pod}:\n{}\n", process.tail(lines))).collect()
    }
}

impl Node {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what is bound, and ends what is deleted.
    async fn sync(self: Arc<Self>) {
        let mut known: BTreeMap<String, watch::Sender<bool>> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            // While the API server does not answer, everything runs on.
            for pod in self.pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
                let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                let Some(uid) = pod.uid().filter(|_| is_bound) else { continue };
                let is_deleted = pod.metadata.deletion_timestamp.is_some();
                let sender = known.entry(uid).or_insert_with(|| {
                    let (sender, deleted) = watch::channel(false);
                    tasks.spawn(Arc::clone(&self).supervise(pod, deleted));
                    sender
                });
                if is_deleted {
                    sender.send_replace(true);
                }
            }
            tokio::time::sleep(SYNC).await;
        }
    }

    /// Runs a pod to its end, and records a failure.
    async fn supervise(self: Arc<Self>, pod: Pod, deleted: watch::Receiver<bool>) {
        let name = pod.name_any();
        let ran = self.run(&pod, deleted).await;
        let mut state = self.state();
        state.running.remove(&name);
        state.failures.extend(ran.err().map(|error| format!("{name}: {error:#}")));
    }

    /// Runs a pod until it is deleted.
    async fn run(&self, pod: &Pod, deleted: watch::Receiver<bool>) -> Result<()> {
        let name = pod.name_any();
        let address = {
            let mut state = self.state();
            state.started += 1;
            // Beside those that kwok gives away.
            format!("10.245.0.{}", state.started)
        };
        let container = Container::of(pod)?;
        for _ in 0..TRIES {
            let started = self.runtime.start(pod, &container, &address).await?;
            let mut probes = Probes::of(&container.spec, &started.ports)?;
            let process = Arc::clone(&started.process);
            self.state().running.insert(name.clone(), Arc::clone(&process));
            while !*deleted.borrow() && process.exit_status().is_none() {
                if let Some(is_ready) = probes.change().await? {
                    self.report(pod, &address, is_ready).await?;
                }
                tokio::time::sleep(TICK).await;
            }
            match process.exit_status() {
                None => return self.end(pod, &process).await,
                Some(_) if process.tail(5).contains("Address already in use") => {}
                Some(exit) => bail!("it ended ({exit}):\n{}", process.tail(30)),
            }
        }
        bail!("each time another program took one of its ports")
    }

    /// Writes the status of a pod that runs.
    async fn report(&self, pod: &Pod, address: &str, is_ready: bool) -> Result<()> {
        let spec = &Container::of(pod)?.spec;
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = if is_ready { "True" } else { "False" };
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": now });
        let status = json!({ "status": {
            "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }], "startTime": now,
            "conditions": [condition("Initialized", "True"), condition("ContainersReady", ready), condition("Ready", ready)],
            "containerStatuses": [{
                "name": spec.name, "image": spec.image, "imageID": "", "ready": is_ready, "started": true,
                "restartCount": 0, "state": { "running": { "startedAt": now } },
            }],
        } });
        let patched = self.pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await;
        patched.map(drop).context("writing the status of the pod")
    }

    /// Ends a process as a kubelet does, and with it the pod.
    async fn end(&self, pod: &Pod, process: &Process) -> Result<()> {
        let spec = pod.spec.as_ref().context("a pod without a spec")?;
        let grace = seconds(spec.termination_grace_period_seconds.unwrap_or(GRACE_SECONDS));
        let container = &Container::of(pod)?.spec;
        let hook =
            container.lifecycle.as_ref().and_then(|all| all.pre_stop.as_ref()).and_then(|hook| hook.sleep.as_ref());
        let waits = hook.map_or(Duration::ZERO, |sleep| seconds(sleep.seconds));
        tokio::time::sleep(waits).await;
        process.terminate()?;
        let exit = process.exited(grace.saturating_sub(waits)).await?;
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        self.pods.delete(&pod.name_any(), &params).await.context("removing the pod that has ended")?;
        ensure!(exit.success(), "it ended with {exit}:\n{}", process.tail(30));
        Ok(())
    }
}

/// Seconds of a manifest.
pub(super) fn seconds(number: i64) -> Duration {
    Duration::from_secs(number.try_into().unwrap_or_default())
}
