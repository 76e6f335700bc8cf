//! Joining: which Node does a VM become in a real cluster, and when does it go?
//!
//! A VM's kubelet creates its Node, and AKS's cloud-node-lifecycle controller deletes the Node of a VM that is gone.
//! Here both are done with the identity of a kubeconfig. What a kubelet goes on to do is another simulator's part
//! (kwok). Each change of a VM waits for the one before it, so that a deletion never overtakes a creation.

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use napkeeper_core::catalog::{SizeFacts, capacity, overhead};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::azure::cloud::ResourceDetail;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ProviderId};
use napkeeper_core::plan::KubeletSpec;
use napkeeper_sim::cloud::{Cloud, CloudEvent};
use napkeeper_sim::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// From a VM that runs to a kubelet that announces its Node.
const JOINS_AFTER: Duration = Duration::from_secs(1);
/// From a VM that is gone to the look of the cloud-node-lifecycle controller, which looks every 5 s.
const REAPED_AFTER: Duration = Duration::from_secs(2);
/// The longest that one request may take.
const REQUEST: Duration = Duration::from_secs(10);
/// First and longest wait between two tries.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// When it is no longer tried.
const BUDGET: Duration = Duration::from_secs(1800);
/// Most pods, where the VM's custom data does not say.
const MAX_PODS: u32 = 110;
/// OS disk in GB, where the VM has none.
const OS_DISK_GB: u32 = 128;

/// What the cluster should notice of a VM.
#[derive(Debug)]
pub(super) struct Change {
    vm: ArmId,
    node: Wanted,
}

#[derive(Debug)]
enum Wanted {
    /// Its kubelet announces this Node.
    Joined(Box<Node>),
    /// It is gone.
    Gone,
}

/// What the cluster should notice of an event in Azure; nothing of a VM that is no node.
pub(super) fn change(cloud: &Cloud, event: &CloudEvent) -> Option<Change> {
    match event {
        CloudEvent::VmRunning { vm, claim: Some(_), kubelet, offering, .. } => {
            let facts = cloud.settings().sizes.get(&offering.size)?;
            let node = Wanted::Joined(Box::new(node(vm, facts, kubelet, os_disk_gb(cloud, vm))));
            Some(Change { vm: vm.clone(), node })
        }
        CloudEvent::VmGone { vm, .. } => Some(Change { vm: vm.clone(), node: Wanted::Gone }),
        CloudEvent::VmRunning { .. } => None,
    }
}

fn os_disk_gb(cloud: &Cloud, vm: &ArmId) -> u32 {
    let detail = |id: &ArmId| cloud.resources().get(id).map(|resource| &resource.detail);
    let Some(ResourceDetail::Vm(vm)) = detail(vm) else { return OS_DISK_GB };
    match vm.os_disk.as_ref().and_then(detail) {
        Some(ResourceDetail::Disk(disk)) => disk.size_gib,
        _ => OS_DISK_GB,
    }
}

/// The Node that a kubelet announces.
fn node(vm: &ArmId, facts: &SizeFacts, kubelet: &KubeletSpec, os_disk_gb: u32) -> Node {
    let name = vm.name().to_ascii_lowercase();
    let max_pods = if kubelet.max_pods == 0 { MAX_PODS } else { kubelet.max_pods };
    let capacity = capacity(facts, os_disk_gb, max_pods);
    let allocatable = capacity.minus(&overhead(facts));
    // What a kubelet knows by itself, unless it is told otherwise.
    let mut node_labels = BTreeMap::from(
        [(labels::HOSTNAME, &*name), (labels::ARCH, facts.arch.as_str()), (labels::OS, "linux")]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    node_labels.extend(kubelet.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())));
    let taint =
        Taint { key: labels::TAINT_UNREGISTERED.to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() };
    Node {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(node_labels),
            annotations: Some(BTreeMap::from([("kwok.x-k8s.io/node".to_owned(), "fake".to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(ProviderId::of_vm(vm).to_string()),
            taints: Some(vec![taint]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(quantities(&capacity)),
            allocatable: Some(quantities(&allocatable)),
            node_info: Some(NodeSystemInfo {
                architecture: facts.arch.as_str().to_owned(),
                operating_system: "linux".to_owned(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

fn quantities(of: &Resources) -> BTreeMap<String, Quantity> {
    let mut all = BTreeMap::from([
        ("cpu".to_owned(), Quantity(format!("{}m", of.cpu_millis))),
        ("memory".to_owned(), Quantity(of.memory.to_string())),
        ("ephemeral-storage".to_owned(), Quantity(of.ephemeral_storage.to_string())),
        ("pods".to_owned(), Quantity(of.pods.to_string())),
    ]);
    all.extend(of.extended.iter().map(|(name, amount)| (name.to_string(), Quantity(amount.to_string()))));
    all
}

/// Carries changes to the cluster.
pub(super) struct Joiner {
    nodes: Api<Node>,
    /// The last change of each VM, while it is being carried.
    running: BTreeMap<ArmId, Carried>,
}

/// A change that is being carried.
struct Carried {
    task: JoinHandle<()>,
    /// Becomes true when a later change makes this one pointless.
    outdated: watch::Sender<bool>,
}

impl Joiner {
    /// A client with the identity of a kubeconfig.
    ///
    /// # Errors
    /// When the file cannot be read, or makes no sense.
    pub(super) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        // The first one stays: whoever chose it before us chose the same.
        drop(rustls::crypto::ring::default_provider().install_default());
        let reading = || format!("reading the kubeconfig {}", kubeconfig.display());
        let file = Kubeconfig::read_from(kubeconfig).with_context(reading)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.with_context(reading)?).context("making a Kubernetes client")?;
        Ok(Self { nodes: Api::all(client), running: BTreeMap::new() })
    }

    /// Begins to carry a change; it begins once the one before it of the same VM has ended.
    pub(super) fn take(&mut self, change: Change) {
        self.running.retain(|_, carried| !carried.task.is_finished());
        let before = self.running.remove(&change.vm);
        let (outdated, seen) = watch::channel(false);
        let nodes = self.nodes.clone();
        let vm = change.vm.clone();
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                before.outdated.send_replace(true);
                drop(before.task.await);
            }
            carry(&nodes, &change, seen).await;
        });
        self.running.insert(vm, Carried { task, outdated });
    }
}

/// Tries until it is done, outdated, or has been tried for long enough.
async fn carry(nodes: &Api<Node>, change: &Change, mut outdated: watch::Receiver<bool>) {
    let began = Instant::now();
    let (mut back_off, longest) = BACK_OFF;
    let mut chance = Random::of(0, change.vm.folded());
    let mut wait = match change.node {
        Wanted::Joined(_) => JOINS_AFTER,
        Wanted::Gone => REAPED_AFTER,
    };
    while began.elapsed() < BUDGET {
        let sleep = tokio::time::sleep(wait);
        let turned = tokio::select! {
            () = sleep => false,
            // A VM that is gone does not join; the end of a VM is never outdated.
            _ = outdated.wait_for(|outdated| *outdated) => true,
        };
        if turned && matches!(change.node, Wanted::Joined(_)) {
            return;
        }
        let attempt = match &change.node {
            Wanted::Joined(node) => tokio::time::timeout(REQUEST, create(nodes, node)).await,
            Wanted::Gone => tokio::time::timeout(REQUEST, delete(nodes, &change.vm)).await,
        };
        match attempt {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                tracing::warn!(vm = change.vm.name(), %error, "the Node could not be changed; again soon")
            }
            Err(_) => tracing::warn!(vm = change.vm.name(), "the API server does not answer; again soon"),
        }
        let jitter = Duration::from_millis(chance.between(0, u64::try_from(back_off.as_millis() / 2).unwrap_or(0)));
        wait = back_off + jitter;
        back_off = (back_off * 2).min(longest);
    }
    tracing::error!(vm = change.vm.name(), "the Node was given up");
}

/// Creates the Node. One of that name that is there stays as it is, unless it is on its way out: then it is tried
/// again.
async fn create(nodes: &Api<Node>, node: &Node) -> Result<(), kube::Error> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let error = match nodes.create(&PostParams::default(), node).await {
        Ok(_) => {
            tracing::info!(node = name, "joined");
            return Ok(());
        }
        Err(kube::Error::Api(status)) if status.code == 409 => kube::Error::Api(status),
        Err(error) => return Err(error),
    };
    match nodes.get_opt(name).await? {
        Some(present) if present.metadata.deletion_timestamp.is_none() => {
            tracing::info!(node = name, "was there already");
            Ok(())
        }
        _ => Err(error),
    }
}

/// Deletes the Node of a VM, if it is still that VM's.
async fn delete(nodes: &Api<Node>, vm: &ArmId) -> Result<(), kube::Error> {
    let name = vm.name().to_ascii_lowercase();
    let Some(node) = nodes.get_opt(&name).await? else { return Ok(()) };
    let provider = node.spec.and_then(|spec| spec.provider_id).and_then(|id| ProviderId::parse(&id).ok());
    if provider != Some(ProviderId::of_vm(vm)) || node.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let this_one = Preconditions { uid: node.metadata.uid, resource_version: None };
    match nodes.delete(&name, &DeleteParams::default().preconditions(this_one)).await {
        Ok(_) => tracing::info!(node = name, "deleted: its VM no longer exists"),
        // Gone, or another one under the same name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
