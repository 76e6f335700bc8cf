//! A control plane with the real kube-scheduler, and what it says of each pod.

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

/// Longest that kube-scheduler may take to say something of a pod.
const SAID_WITHIN: Duration = Duration::from_secs(60);
/// So many requests are under way at once where the order does not matter.
const AT_ONCE: usize = 8;
/// How long pods may wait for another turn: kube-scheduler backs off by a second first.
const ANOTHER_TURN: Duration = Duration::from_millis(2_500);
/// What kube-scheduler says of a pod whose claim or volume has been made, but is not among what it has seen: it looks
/// again once it is.
const NOT_SEEN_YET: [&str; 3] = ["waiting for ephemeral volume controller", "\" not found", "bound to non-existent pv"];
/// The namespace of pods that only ask what kube-scheduler sees.
const PROBES: &str = "probes";
/// How long to wait before asking again whether deleted pods are forgotten.
const BETWEEN_PROBES: Duration = Duration::from_millis(50);
/// Why a node does not do that has a pod from which another wants to be apart.
const HAS_POD: &str = "didn't match pod anti-affinity rules";

/// A control plane with nothing in it but what a round puts there.
pub(super) struct RealScheduler {
    client: Client,
    events: BoxStream<'static, watcher::Result<Event<Pod>>>,
    /// By UID, what was said last.
    said: HashMap<String, Verdict>,
    provisioner: Provisioner,
    /// The pod that uses each claim, the last one where several do, and the pods whose node is known before they are
    /// bound.
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
        let (said, by_claim, early) = Default::default();
        let mut scheduler = Self { client, events, said, provisioner, by_claim, early, probes: 0, _plane: plane };
        scheduler.sees(0).await.context("waiting for kube-scheduler")?;
        Ok(scheduler)
    }

    fn pods(&self, namespace: Option<&str>) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace.unwrap_or("default"))
    }

    async fn bound_until(&mut self, pod: &Pod, until: Instant) -> Result<Option<String>> {
        let uid = pod.metadata.uid.clone().context("a pod without a UID")?;
        loop {
            if let Some(Verdict::Bound(node)) = self.said.get(&uid) {
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
            && let (Some(uid), Some(said)) = (pod.metadata.uid.clone(), said(&pod))
        {
            if matches!(said, Verdict::Bound(_)) {
                self.early.remove(&uid);
            }
            // What was told of its claim is newer.
            if !self.early.contains(&uid) {
                self.said.insert(uid, said);
            }
        }
        Ok(true)
    }

    /// A volume is made for a claim of one pod alone: its node is known.
    fn choose(&mut self, (claim, node): Choice) {
        if let Some(uid) = self.by_claim.get(&claim)
            && !matches!(self.said.get(uid), Some(Verdict::Bound(_)))
        {
            self.early.insert(uid.clone());
            self.said.insert(uid.clone(), Verdict::Bound(node));
        }
    }

    /// Waits until the pods are bound whose nodes are known: until then their bindings may still fail.
    async fn settle(&mut self) -> Result<()> {
        let until = Instant::now() + SAID_WITHIN;
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
        let until = Instant::now() + SAID_WITHIN;
        let container = json!({ "name": "main", "image": "none", "resources": { "requests": { "cpu": "1000000" } } });
        let spec = json!({ "containers": [container] });
        while Instant::now() < until {
            if seen(&self.why_not(&spec, until).await?) == Some(nodes) {
                return Ok(());
            }
        }
        bail!("kube-scheduler does not see {nodes} nodes within {SAID_WITHIN:?}")
    }

    /// Waits until kube-scheduler counts none of these pods on any node; they are gone from the API server.
    ///
    /// While pods are deleted one after another, one that waits can find room. If its deletion reaches kube-scheduler in
    /// the middle of its scheduling cycle, there is nothing to forget yet, and at the end of the cycle the pod is assumed
    /// to be on its node although it is gone. It is forgotten when its binding fails: for a pod with claims that is when
    /// `BindPodVolumes` polls for the first time, a second later. Until then it takes room there, and counts for
    /// affinity and spread constraints.
    ///
    /// The pod that asks wants to be near these pods and apart from them: a node with one of them is refused for the
    /// latter, every other node for the former. Scheduling cycles follow each other, and its own begins after
    /// kube-scheduler has seen the deletions: no pod is assumed later than that.
    async fn forgets(&mut self, namespaces: &[&str], selector: &str) -> Result<()> {
        let until = Instant::now() + SAID_WITHIN;
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
            if !self.why_not(&spec, until).await?.contains(HAS_POD) {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_PROBES).await;
        }
        bail!("kube-scheduler counts pods that were deleted {SAID_WITHIN:?} ago")
    }

    /// What kube-scheduler says of a pod that no node can take.
    async fn why_not(&mut self, spec: &Value, until: Instant) -> Result<String> {
        self.probes += 1;
        let name = format!("probe-{}", self.probes);
        let probe = json!({ "metadata": { "name": name, "namespace": PROBES }, "spec": spec });
        let pod = self.add_pod(&serde_json::from_value(probe)?).await?;
        let uid = pod.metadata.uid.unwrap_or_default();
        let said = loop {
            match self.said.remove(&uid) {
                Some(said) => break said,
                None if self.listen(until).await? => {}
                None => bail!("kube-scheduler says nothing of a pod"),
            }
        };
        self.pods(Some(PROBES)).delete(&name, &DeleteParams::default().grace_period(0)).await?;
        match said {
            Verdict::Waits(why) => Ok(why),
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
        let asked =
            pods.iter().map(|pod| async { post(&self.pods(pod.metadata.namespace.as_deref()), pod, true).await });
        futures::stream::iter(asked).buffered(AT_ONCE).try_collect().await
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
        let until = Instant::now() + SAID_WITHIN;
        loop {
            match self.said.get(&uid) {
                Some(Verdict::Waits(why)) if seen(why) != Some(nodes) || is_behind(why) => {}
                Some(said) => return Ok(said.clone()),
                None => {}
            }
            if !self.listen(until).await? {
                bail!("{:?} within {SAID_WITHIN:?} of {:?}", self.said.get(&uid), pod.metadata.name);
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
            let gone = async || Ok(api.list(&selected).await?.items.is_empty().then_some(()));
            eventually("end of the pods", SAID_WITHIN, gone).await?;
        }
        self.said.clear();
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

/// What is said of a pod in its own words.
fn said(pod: &Pod) -> Option<Verdict> {
    if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.clone()).filter(|n| !n.is_empty()) {
        return Some(Verdict::Bound(node));
    }
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let mut unschedulable = conditions
        .filter(|c| c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable"));
    unschedulable.next().map(|c| Verdict::Waits(c.message.clone().unwrap_or_default()))
}

/// How many nodes kube-scheduler saw when it said why none of them does.
fn seen(why: &str) -> Option<usize> {
    if why.contains("no nodes available to schedule pods") {
        return Some(0);
    }
    why.strip_prefix("0/")?.split(' ').next()?.parse().ok()
}

/// kube-scheduler has not seen a claim or volume that has been made.
fn is_behind(why: &str) -> bool {
    NOT_SEEN_YET.iter().any(|said| why.contains(said))
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let told = object.to_string();
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await.with_context(|| format!("making {told}"))
}

/// Makes an object, or only asks what it would be.
async fn post<K>(api: &Api<K>, object: &K, dry_run: bool) -> Result<K>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let made = api.create(&PostParams { dry_run, ..PostParams::default() }, object).await;
    made.with_context(|| format!("making {}", serde_json::to_string(object).unwrap_or_default()))
}
