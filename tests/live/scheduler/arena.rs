//! The arena: what does the real kube-scheduler do with a pod?

use super::super::eventually;
use crate::scheduling::{Namespaces, SANDBOXED, Stage, URGENT, USEFUL, Verdict, overhead};
use anyhow::{Context, Result, bail};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::serde::Serialize;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// Longest that kube-scheduler may take to say something of a pod.
const SAID_WITHIN: Duration = Duration::from_secs(60);
/// So many requests are under way at once where the order does not matter.
const AT_ONCE: usize = 8;
/// How long pods may wait for another turn: kube-scheduler backs off by a second first.
const ANOTHER_TURN: Duration = Duration::from_millis(2_500);
/// The namespace of pods that only ask how many nodes kube-scheduler sees.
const PROBES: &str = "probes";

/// A control plane with nothing in it but what a round puts there.
pub(super) struct Arena {
    client: Client,
    events: BoxStream<'static, watcher::Result<Event<Pod>>>,
    /// By UID, what was said last.
    said: HashMap<String, Verdict>,
    probes: usize,
    // Ends with the arena.
    _plane: ControlPlane,
}

impl Arena {
    /// A control plane with classes of pods and namespaces.
    pub(super) async fn new(namespaces: Namespaces) -> Result<Self> {
        let plane = ControlPlane::start(Mode::Scheduling).await?;
        let client = plane.client().await?;
        for (name, value) in [URGENT, USEFUL] {
            let class = json!({ "metadata": { "name": name }, "value": value, "preemptionPolicy": "Never" });
            create::<PriorityClass>(&Api::all(client.clone()), class).await?;
        }
        let class =
            json!({ "metadata": { "name": SANDBOXED }, "handler": "none", "overhead": { "podFixed": overhead() } });
        create::<RuntimeClass>(&Api::all(client.clone()), class).await?;
        let api: Api<Namespace> = Api::all(client.clone());
        let all = namespaces.into_iter().chain([(PROBES.to_owned(), BTreeMap::new())]);
        let made = all.map(|(name, labels)| create(&api, json!({ "metadata": { "name": name, "labels": labels } })));
        futures::stream::iter(made).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        let events = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).boxed();
        let mut arena = Self { client, events, said: HashMap::new(), probes: 0, _plane: plane };
        arena.sees(0).await.context("waiting for kube-scheduler")?;
        Ok(arena)
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
        let Ok(event) = tokio::time::timeout_at(until, self.events.next()).await else { return Ok(false) };
        // The watcher tries again by itself.
        let Ok(event) = event.context("the watch of pods has ended")? else { return Ok(true) };
        if let Event::Apply(pod) | Event::InitApply(pod) = event
            && let (Some(uid), Some(said)) = (pod.metadata.uid.clone(), said(&pod))
        {
            self.said.insert(uid, said);
        }
        Ok(true)
    }

    /// Waits until kube-scheduler sees so many nodes.
    async fn sees(&mut self, nodes: usize) -> Result<()> {
        let until = Instant::now() + SAID_WITHIN;
        while Instant::now() < until {
            self.probes += 1;
            let container =
                json!({ "name": "main", "image": "none", "resources": { "requests": { "cpu": "1000000" } } });
            let name = format!("probe-{}", self.probes);
            let probe =
                json!({ "metadata": { "name": name, "namespace": PROBES }, "spec": { "containers": [container] } });
            let pod = self.add_pod(&serde_json::from_value(probe)?).await?;
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            while !self.said.contains_key(&uid) {
                if !self.listen(until).await? {
                    bail!("kube-scheduler says nothing of a pod");
                }
            }
            let said = self.said.remove(&uid);
            self.pods(Some(PROBES)).delete(&name, &DeleteParams::default().grace_period(0)).await?;
            if matches!(&said, Some(Verdict::Waits(why)) if seen(why) == Some(nodes)) {
                return Ok(());
            }
        }
        bail!("kube-scheduler does not see {nodes} nodes within {SAID_WITHIN:?}")
    }
}

impl Stage for Arena {
    const IS_REAL: bool = true;

    async fn add_nodes(&mut self, nodes: &[Node], in_all: usize) -> Result<()> {
        let api = Api::all(self.client.clone());
        let made = nodes.iter().map(|node| post(&api, node, false));
        futures::stream::iter(made).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        self.sees(in_all).await
    }

    async fn admitted(&mut self, pods: &[Pod]) -> Result<Vec<Pod>> {
        let asked =
            pods.iter().map(|pod| async { post(&self.pods(pod.metadata.namespace.as_deref()), pod, true).await });
        futures::stream::iter(asked).buffered(AT_ONCE).try_collect().await
    }

    async fn add_pod(&mut self, pod: &Pod) -> Result<Pod> {
        post(&self.pods(pod.metadata.namespace.as_deref()), pod, false).await
    }

    async fn verdict(&mut self, pod: &Pod, nodes: usize) -> Result<Verdict> {
        let uid = pod.metadata.uid.clone().context("a pod without a UID")?;
        let until = Instant::now() + SAID_WITHIN;
        loop {
            match self.said.get(&uid) {
                Some(Verdict::Waits(why)) if seen(why) != Some(nodes) => {}
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
        for namespace in namespaces {
            let api = self.pods(Some(namespace));
            let selected = ListParams::default().labels(selector);
            api.delete_collection(&DeleteParams::default().grace_period(0), &selected).await?;
            let gone = async || Ok(api.list(&selected).await?.items.is_empty().then_some(()));
            eventually("end of the pods", SAID_WITHIN, gone).await?;
        }
        self.said.clear();
        Ok(())
    }

    async fn remove_nodes(&mut self) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        api.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        self.sees(0).await
    }
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
