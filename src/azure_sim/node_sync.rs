//! Creates and deletes the Nodes of simulated VMs in a real cluster.
//!
//! A VM's kubelet creates its Node, and AKS's cloud-node-lifecycle controller deletes the Node of a deleted VM. Here
//! both is done with the identity of a kubeconfig. What else a kubelet does is simulated by others (kwok). Each change
//! of a VM waits for the previous one, so that a deletion never overtakes a creation.

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use napkeeper_core::catalog::{SizeFacts, capacity, overhead};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ProviderId};
use napkeeper_core::plan::KubeletSpec;
use napkeeper_sim::cloud::{Cloud, CloudEvent};
use napkeeper_sim::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// From a running VM to the registration of its Node.
const REGISTRATION_DELAY: Duration = Duration::from_secs(1);
/// From the deletion of a VM to that of its Node by the cloud-node-lifecycle controller, which runs every 5 s.
const NODE_DELETION_DELAY: Duration = Duration::from_secs(2);
/// Longest duration of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest wait between two attempts.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// After this time a change is given up.
const RETRY_TIME: Duration = Duration::from_secs(1800);
/// Most pods, if the VM's custom data does not set it.
const DEFAULT_MAX_PODS: u32 = 110;
/// Scale set of the system pool.
const SYSTEM_POOL: &str = "aks-system-00000000-vmss";
/// Cores of the Node of the system pool.
const SYSTEM_NODE_VCPUS: u32 = 4;
/// By this annotation a kubelet leaves it to kube-controller-manager to attach volumes, as it does unless it is configured
/// otherwise.
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// OS disk in GB, if the VM has none.
const DEFAULT_OS_DISK_GB: u32 = 128;

/// A change of the Node of a VM.
#[derive(Debug)]
pub(super) struct NodeChange {
    vm: ArmId,
    action: NodeAction,
}

#[derive(Debug)]
enum NodeAction {
    /// The kubelet registers this Node.
    Create(Box<Node>),
    /// The VM has been deleted.
    Delete,
}

/// The change of a Node that follows from an event in Azure; none for a VM that is not a node.
pub(super) fn node_change(cloud: &Cloud, event: &CloudEvent) -> Option<NodeChange> {
    match event {
        CloudEvent::VmRunning { vm, claim: Some(_), kubelet, offering, .. } => {
            let facts = cloud.settings().sizes.get(&offering.size)?;
            let action = NodeAction::Create(Box::new(node(
                vm,
                facts,
                kubelet,
                cloud.os_disk_gib(vm).unwrap_or(DEFAULT_OS_DISK_GB),
            )));
            Some(NodeChange { vm: vm.clone(), action })
        }
        CloudEvent::VmGone { vm, .. } => Some(NodeChange { vm: vm.clone(), action: NodeAction::Delete }),
        // The Node of a stopped VM stays.
        CloudEvent::VmRunning { .. } | CloudEvent::VmStopped { .. } => None,
    }
}

/// The Node of the system pool, of which every AKS cluster has one: an instance of a scale set in the node resource
/// group, for critical addons only. `None` if no size of the region has 4 cores.
pub(super) fn system_node(cloud: &Cloud) -> Option<NodeChange> {
    let settings = cloud.settings();
    let facts = settings.sizes.values().find(|facts| facts.vcpus == SYSTEM_NODE_VCPUS)?;
    let path = format!("{SYSTEM_POOL}/virtualMachines/0");
    let vm = settings.group.resource("Microsoft.Compute/virtualMachineScaleSets", &path);
    let labels = [(labels::MODE, "system"), (labels::REGION, settings.region.as_str())];
    let labels = labels.map(|(key, value)| (Arc::from(key), Arc::from(value)));
    let kubelet = KubeletSpec { labels: labels.into(), ..KubeletSpec::default() };
    let mut node = node(&vm, facts, &kubelet, DEFAULT_OS_DISK_GB);
    node.metadata.name = Some(format!("{SYSTEM_POOL}000000"));
    let taint = Taint {
        key: "CriticalAddonsOnly".to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if let Some(spec) = &mut node.spec {
        spec.taints = Some(vec![taint]);
    }
    Some(NodeChange { vm, action: NodeAction::Create(Box::new(node)) })
}

/// The Node that a kubelet registers.
fn node(vm: &ArmId, facts: &SizeFacts, kubelet: &KubeletSpec, os_disk_gb: u32) -> Node {
    let name = vm.name().to_ascii_lowercase();
    let max_pods = if kubelet.max_pods == 0 { DEFAULT_MAX_PODS } else { kubelet.max_pods };
    let capacity = capacity(facts, os_disk_gb, max_pods);
    let allocatable = capacity.minus(&overhead(facts));
    // The labels that a kubelet sets on its own, unless it is configured otherwise.
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
            annotations: Some(
                [("kwok.x-k8s.io/node", "fake"), (CONTROLLER_ATTACHES, "true")]
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
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

/// Applies changes of Nodes to the cluster.
pub(super) struct NodeSync {
    nodes: Api<Node>,
    /// The last change of each VM, while it is being applied.
    running: BTreeMap<ArmId, RunningChange>,
}

/// A change that is being applied.
struct RunningChange {
    task: JoinHandle<()>,
    /// True once a later change has replaced this one.
    outdated: watch::Sender<bool>,
}

impl NodeSync {
    /// A client with the identity of a kubeconfig.
    ///
    /// # Errors
    /// When the file cannot be read or is not valid.
    pub(super) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        // A provider that is installed already is the same one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let reading = || format!("reading the kubeconfig {}", kubeconfig.display());
        let file = Kubeconfig::read_from(kubeconfig).with_context(reading)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.with_context(reading)?).context("making a Kubernetes client")?;
        Ok(Self { nodes: Api::all(client), running: BTreeMap::new() })
    }

    /// Starts to apply a change, once the previous one of the same VM has ended.
    pub(super) fn start(&mut self, change: NodeChange) {
        self.running.retain(|_, change| !change.task.is_finished());
        let previous = self.running.remove(&change.vm);
        let (outdated, seen) = watch::channel(false);
        let nodes = self.nodes.clone();
        let vm = change.vm.clone();
        let task = tokio::spawn(async move {
            if let Some(previous) = previous {
                previous.outdated.send_replace(true);
                drop(previous.task.await);
            }
            apply(&nodes, &change, seen).await;
        });
        self.running.insert(vm, RunningChange { task, outdated });
    }
}

/// Tries until the change is applied, replaced, or its time is over.
async fn apply(nodes: &Api<Node>, change: &NodeChange, mut outdated: watch::Receiver<bool>) {
    let began = Instant::now();
    let (mut back_off, longest) = BACK_OFF;
    let mut chance = Random::of(0, change.vm.folded());
    let mut wait = match change.action {
        NodeAction::Create(_) => REGISTRATION_DELAY,
        NodeAction::Delete => NODE_DELETION_DELAY,
    };
    while began.elapsed() < RETRY_TIME {
        let sleep = tokio::time::sleep(wait);
        let replaced = tokio::select! {
            () = sleep => false,
            // A deleted VM does not register; a deletion is never replaced.
            _ = outdated.wait_for(|outdated| *outdated) => true,
        };
        if replaced && matches!(change.action, NodeAction::Create(_)) {
            return;
        }
        let attempt = match &change.action {
            NodeAction::Create(node) => tokio::time::timeout(REQUEST_TIMEOUT, create(nodes, node)).await,
            NodeAction::Delete => tokio::time::timeout(REQUEST_TIMEOUT, delete(nodes, &change.vm)).await,
        };
        match attempt {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                tracing::warn!(vm = change.vm.name(), %error, "cannot change the Node: trying again")
            }
            Err(_) => tracing::warn!(vm = change.vm.name(), "the API server does not answer: trying again"),
        }
        let jitter = Duration::from_millis(chance.between(0, u64::try_from(back_off.as_millis() / 2).unwrap_or(0)));
        wait = back_off + jitter;
        back_off = (back_off * 2).min(longest);
    }
    tracing::error!(vm = change.vm.name(), "giving up on the Node");
}

/// Creates the Node. An existing one of this name is unchanged; if it is being deleted, the creation is retried.
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
            tracing::info!(node = name, "exists already");
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
        // Deleted already, or replaced by another of the same name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
