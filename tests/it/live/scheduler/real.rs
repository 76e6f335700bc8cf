//! A control plane with the real kube-scheduler, and its verdicts.

use super::provisioner::{Choice, Provisioner};
use crate::scheduling::{
    Namespaces, SANDBOXED, Scheduler, SpreadOwners, Storage, URGENT, USEFUL, Verdict, claims_of, classes, is_ephemeral,
    overhead, profiles,
};
use anyhow::{Context, Result, bail};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use napkeeper_core::model::labels::HOSTNAME;
use napkeeper_tests::control_plane::{ControlPlane, Mode, Options};
use napkeeper_tests::wait::eventually;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// Longest time until the verdict of kube-scheduler on a pod.
const VERDICT_WITHIN: Duration = Duration::from_secs(60);
/// So many requests are under way at once where the order does not matter.
const AT_ONCE: usize = 8;
/// How long pods may wait for another turn: kube-scheduler backs off by a second first.
const ANOTHER_TURN: Duration = Duration::from_millis(2_500);
/// Messages of kube-scheduler on a pod whose claim or volume exists, but has not reached its cache: it retries then.
const NOT_SEEN_YET: [&str; 3] = ["waiting for ephemeral volume controller", "\" not found", "bound to non-existent pv"];
/// The namespace of pods that only probe kube-scheduler's cache.
const PROBES: &str = "probes";
/// How long to wait between probes for deleted pods.
const BETWEEN_PROBES: Duration = Duration::from_millis(50);
/// Why a node does not do that has a pod from which another wants to be apart.
const HAS_POD: &str = "didn't match pod anti-affinity rules";

/// A control plane with nothing in it but what a round puts there.
pub(super) struct RealScheduler {
    client: Client,
    events: BoxStream<'static, watcher::Result<Event<Pod>>>,
    /// The last verdict by UID.
    verdicts: HashMap<String, Verdict>,
    provisioner: Provisioner,
    /// The pod that uses each claim, the last one of several, and the pods whose node is known before they are bound.
    by_claim: HashMap<(String, String), String>,
    early: HashSet<String>,
    probes: usize,
    // Ends with the scheduler.
    _plane: ControlPlane,
}

impl RealScheduler {
    /// A control plane with classes of pods and namespaces.
    pub(super) async fn new(namespaces: Namespaces) -> Result<Self> {
        let options = Options { scheduler_profiles: profiles(), ..Options::of(Mode::Scheduling) };
        let plane = ControlPlane::start_with(options).await?;
        let client = plane.client().await?;
        for (name, value) in [URGENT, USEFUL] {
            let class = json!({ "metadata": { "name": name }, "value": value, "preemptionPolicy": "Never" });
            create::<PriorityClass>(&Api::all(client.clone()), class).await?;
        }
        let class =
            json!({ "metadata": { "name": SANDBOXED }, "handler": "none", "overhead": { "podFixed": overhead() } });
        create::<RuntimeClass>(&Api::all(client.clone()), class).await?;
        for class in classes()? {
            post::<StorageClass>(&Api::all(client.clone()), &class, false).await?;
        }
        let api: Api<Namespace> = Api::all(client.clone());
        let all = namespaces.into_iter().chain([(PROBES.to_owned(), BTreeMap::new())]);
        let made = all.map(|(name, labels)| create(&api, json!({ "metadata": { "name": name, "labels": labels } })));
        futures::stream::iter(made).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        let events = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).boxed();
        let provisioner = Provisioner::start(client.clone());
        let (verdicts, by_claim, early) = Default::default();
        let mut scheduler = Self { client, events, verdicts, provisioner, by_claim, early, probes: 0, _plane: plane };
        scheduler.sees(0).await.context("waiting for kube-scheduler")?;
        Ok(scheduler)
    }

    fn pods(&self, namespace: Option<&str>) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace.unwrap_or("default"))
    }

    async fn bound_until(&mut self, pod: &Pod, until: Instant) -> Result<Option<String>> {
        let uid = pod.metadata.uid.clone().context("a pod without a UID")?;
        loop {
            if let Some(Verdict::Bound(node)) = self.verdicts.get(&uid) {
                return Ok(Some(node.clone()));
            }
            if !self.listen(until).await? {
                return Ok(None);
            }
        }
    }

    /// Takes in one event; false when the time is over.
    async fn listen(&mut self, until: Instant) -> Result<bool> {
        let event = tokio::select! {
            event = self.events.next() => event,
            Some(choice) = self.provisioner.choices.recv() => {
                self.choose(choice);
                return Ok(true);
            }
            () = tokio::time::sleep_until(until) => return Ok(false),
        };
        // The watcher tries again by itself.
        let Ok(event) = event.context("the watch of pods has ended")? else { return Ok(true) };
        if let Event::Apply(pod) | Event::InitApply(pod) = event
            && let (Some(uid), Some(verdict)) = (pod.metadata.uid.clone(), verdict_of(&pod))
        {
            if matches!(verdict, Verdict::Bound(_)) {
                self.early.remove(&uid);
            }
            // The news of its claim are newer.
            if !self.early.contains(&uid) {
                self.verdicts.insert(uid, verdict);
            }
        }
        Ok(true)
    }

    /// A volume is made for a claim of one pod alone: its node is known.
    fn choose(&mut self, (claim, node): Choice) {
        if let Some(uid) = self.by_claim.get(&claim)
            && !matches!(self.verdicts.get(uid), Some(Verdict::Bound(_)))
        {
            self.early.insert(uid.clone());
            self.verdicts.insert(uid.clone(), Verdict::Bound(node));
        }
    }

    /// Waits until the pods are bound whose nodes are known: until then their bindings may still fail.
    async fn settle(&mut self) -> Result<()> {
        let until = Instant::now() + VERDICT_WITHIN;
        while !self.early.is_empty() {
            if !self.listen(until).await? {
                bail!("{} pods are not bound to the nodes that their volumes were made for", self.early.len());
            }
        }
        Ok(())
    }

    /// Makes the claims of a pod's own volumes, as the controller of ephemeral volumes does.
    async fn add_ephemeral(&self, pod: &Pod) -> Result<()> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace_of(pod));
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
            let Some(template) = template else { continue };
            let (pod_name, uid) = (&pod.metadata.name, &pod.metadata.uid);
            let name = format!("{}-{}", pod_name.as_deref().unwrap_or_default(), volume.name);
            let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": uid, "controller": true });
            let metadata = json!({ "name": name, "ownerReferences": [owner] });
            create(&api, json!({ "metadata": metadata, "spec": template.spec })).await?;
        }
        Ok(())
    }

    /// Waits until kube-scheduler sees so many nodes.
    async fn sees(&mut self, nodes: usize) -> Result<()> {
        let until = Instant::now() + VERDICT_WITHIN;
        let container = json!({ "name": "main", "image": "none", "resources": { "requests": { "cpu": "1000000" } } });
        let spec = json!({ "containers": [container] });
        while Instant::now() < until {
            if seen(&self.unschedulable_message(&spec, until).await?) == Some(nodes) {
                return Ok(());
            }
        }
        bail!("kube-scheduler does not see {nodes} nodes within {VERDICT_WITHIN:?}")
    }

    /// Waits until kube-scheduler counts none of these pods on any node; they are deleted from the API server.
    ///
    /// While pods are deleted one after another, a pending one may fit. If its deletion reaches kube-scheduler
    /// in the middle of its scheduling cycle, there is nothing to forget yet, and at the end of the cycle the pod is
    /// assumed to be on its node although it is deleted. It is forgotten when its binding fails: for a pod with claims
    /// that is when
    /// `BindPodVolumes` polls for the first time, a second later. Until then it uses capacity there, and counts for
    /// affinity and spread constraints.
    ///
    /// The probe has affinity and anti-affinity to these pods: a node with one of them is rejected for the latter,
    /// every other node for the former. Scheduling cycles follow each other, and its own begins after
    /// kube-scheduler has seen the deletions: no pod is assumed later than that.
    async fn forgets(&mut self, namespaces: &[&str], selector: &str) -> Result<()> {
        let until = Instant::now() + VERDICT_WITHIN;
        let labels: BTreeMap<&str, &str> = selector.split_once('=').into_iter().collect();
        let selected = json!({ "matchLabels": labels });
        let term = json!({ "topologyKey": HOSTNAME, "namespaces": namespaces, "labelSelector": selected });
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        let spec = json!({
            "affinity": { "podAffinity": required, "podAntiAffinity": required },
            "containers": [{ "name": "main", "image": "none" }],
            "tolerations": [{ "operator": "Exists" }],
        });
        while Instant::now() < until {
            if !self.unschedulable_message(&spec, until).await?.contains(HAS_POD) {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_PROBES).await;
        }
        bail!("kube-scheduler counts pods that were deleted {VERDICT_WITHIN:?} ago")
    }

    /// The message of kube-scheduler on an unschedulable pod.
    async fn unschedulable_message(&mut self, spec: &Value, until: Instant) -> Result<String> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        let probe = json!({ "metadata": { "name": name, "namespace": PROBES }, "spec": spec });
        let pod = self.add_pod(&serde_json::from_value(probe)?).await?;
        let uid = pod.metadata.uid.unwrap_or_default();
        let verdict = loop {
            match self.verdicts.remove(&uid) {
                Some(verdict) => break verdict,
                None if self.listen(until).await? => {}
                None => bail!("kube-scheduler says nothing of a pod"),
            }
        };
        self.pods(Some(PROBES)).delete(&name, &DeleteParams::default().grace_period(0)).await?;
        match verdict {
            Verdict::Waits(message) => Ok(message),
            Verdict::Bound(node) => bail!("a pod that no node can take is bound to {node}"),
        }
    }
}

impl Scheduler for RealScheduler {
    const IS_REAL: bool = true;

    async fn add_spread_owners(&mut self, spread_owners: &SpreadOwners) -> Result<()> {
        let client = || self.client.clone();
        for service in &spread_owners.services {
            post(&Api::namespaced(client(), of_namespace(&service.metadata)), service, false).await?;
        }
        for set in &spread_owners.sets {
            post(&Api::namespaced(client(), of_namespace(&set.metadata)), set, false).await?;
        }
        Ok(())
    }

    async fn add_storage(&mut self, storage: &Storage) -> Result<()> {
        post_all(&Api::all(self.client.clone()), &storage.volumes).await?;
        let mut by_namespace: BTreeMap<Option<&str>, Vec<PersistentVolumeClaim>> = BTreeMap::new();
        for claim in storage.claims.iter().filter(|claim| !is_ephemeral(claim)) {
            by_namespace.entry(claim.metadata.namespace.as_deref()).or_default().push(claim.clone());
        }
        for (namespace, claims) in by_namespace {
            let api = Api::namespaced(self.client.clone(), namespace.unwrap_or("default"));
            post_all(&api, &claims).await?;
        }
        Ok(())
    }

    async fn add_csi_nodes(&mut self, nodes: &[CSINode]) -> Result<()> {
        post_all(&Api::all(self.client.clone()), nodes).await
    }

    async fn add_nodes(&mut self, nodes: &[Node], in_all: usize) -> Result<()> {
        post_all(&Api::all(self.client.clone()), nodes).await?;
        self.sees(in_all).await
    }

    async fn admitted(&mut self, pods: &[Pod]) -> Result<Vec<Pod>> {
        let requests =
            pods.iter().map(|pod| async { post(&self.pods(pod.metadata.namespace.as_deref()), pod, true).await });
        futures::stream::iter(requests).buffered(AT_ONCE).try_collect().await
    }

    async fn add_pod(&mut self, pod: &Pod) -> Result<Pod> {
        let made = post(&self.pods(pod.metadata.namespace.as_deref()), pod, false).await?;
        for claim in claims_of(&made) {
            let uid = made.metadata.uid.clone().unwrap_or_default();
            self.by_claim.insert((namespace_of(&made).to_owned(), claim), uid);
        }
        self.add_ephemeral(&made).await?;
        Ok(made)
    }

    async fn verdict(&mut self, pod: &Pod, nodes: usize) -> Result<Verdict> {
        let uid = pod.metadata.uid.clone().context("a pod without a UID")?;
        let until = Instant::now() + VERDICT_WITHIN;
        loop {
            match self.verdicts.get(&uid) {
                Some(Verdict::Waits(message)) if seen(message) != Some(nodes) || is_behind(message) => {}
                Some(verdict) => return Ok(verdict.clone()),
                None => {}
            }
            if !self.listen(until).await? {
                bail!("{:?} within {VERDICT_WITHIN:?} of {:?}", self.verdicts.get(&uid), pod.metadata.name);
            }
        }
    }

    async fn bound_in_the_end(&mut self, pods: &[Pod]) -> Result<Vec<Option<String>>> {
        let until = Instant::now() + ANOTHER_TURN;
        let mut ends = Vec::with_capacity(pods.len());
        for pod in pods {
            ends.push(self.bound_until(pod, until).await?);
        }
        Ok(ends)
    }

    async fn remove_pods(&mut self, namespaces: &[&str], selector: &str) -> Result<()> {
        self.settle().await?;
        for namespace in namespaces {
            let api = self.pods(Some(namespace));
            let selected = ListParams::default().labels(selector);
            api.delete_collection(&DeleteParams::default().grace_period(0), &selected).await?;
            let deleted = async || Ok(api.list(&selected).await?.items.is_empty().then_some(()));
            eventually("end of the pods", VERDICT_WITHIN, deleted).await?;
        }
        self.verdicts.clear();
        self.by_claim.clear();
        self.forgets(namespaces, selector).await
    }

    async fn remove_nodes(&mut self, namespaces: &[&str]) -> Result<()> {
        for namespace in namespaces {
            remove_all::<Service>(&Api::namespaced(self.client.clone(), namespace)).await?;
            remove_all::<ReplicaSet>(&Api::namespaced(self.client.clone(), namespace)).await?;
            remove_all::<PersistentVolumeClaim>(&Api::namespaced(self.client.clone(), namespace)).await?;
        }
        remove_all::<PersistentVolume>(&Api::all(self.client.clone())).await?;
        remove_all::<CSINode>(&Api::all(self.client.clone())).await?;
        remove_all::<Node>(&Api::all(self.client.clone())).await?;
        self.sees(0).await
    }
}

fn namespace_of(pod: &Pod) -> &str {
    of_namespace(&pod.metadata)
}

fn of_namespace(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or("default")
}

async fn post_all<K>(api: &Api<K>, objects: &[K]) -> Result<()>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let made = objects.iter().map(|object| post(api, object, false));
    futures::stream::iter(made).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await.map(drop)
}

async fn remove_all<K>(api: &Api<K>) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let at_once = DeleteParams::default().grace_period(0);
    api.delete_collection(&at_once, &ListParams::default()).await.map(drop).context("deleting what a workload left")
}

/// The verdict in the status of a pod.
fn verdict_of(pod: &Pod) -> Option<Verdict> {
    if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.clone()).filter(|n| !n.is_empty()) {
        return Some(Verdict::Bound(node));
    }
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let mut unschedulable = conditions
        .filter(|c| c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable"));
    unschedulable.next().map(|c| Verdict::Waits(c.message.clone().unwrap_or_default()))
}

/// The number of nodes in kube-scheduler's message.
fn seen(message: &str) -> Option<usize> {
    if message.contains("no nodes available to schedule pods") {
        return Some(0);
    }
    message.strip_prefix("0/")?.split(' ').next()?.parse().ok()
}

/// kube-scheduler has not seen a claim or volume that has been made.
fn is_behind(message: &str) -> bool {
    NOT_SEEN_YET.iter().any(|text| message.contains(text))
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let text = object.to_string();
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await.with_context(|| format!("making {text}"))
}

/// Creates an object, possibly by dry-run.
async fn post<K>(api: &Api<K>, object: &K, dry_run: bool) -> Result<K>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let made = api.create(&PostParams { dry_run, ..PostParams::default() }, object).await;
    made.with_context(|| format!("making {}", serde_json::to_string(object).unwrap_or_default()))
}
