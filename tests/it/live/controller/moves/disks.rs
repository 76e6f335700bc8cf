//! Plays what handles the disks of pods on a node: its kubelet, and the CSI driver's attacher.
//!
//! kube-controller-manager creates a VolumeAttachment for a pod's volume, and deletes it when the kubelet has unmounted
//! the volume, which takes a kubelet, and thus a node. The attacher attaches and detaches it, one node at a time. A pod
//! with the annotation [`WAITS`] starts when all its volumes are attached to its node.

use crate::scheduling::{DRIVER_ZONE, claims_of, zone_of};
use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use napkeeper_core::model::cluster::volume::DISK_DRIVER;
use napkeeper_tests::control_plane::WAITS;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// From the end of a pod until its volumes are unmounted.
const UNMOUNT: Duration = Duration::from_secs(2);
/// How long the attacher takes to attach or to detach a disk: a VM that does not wait for it goes earlier.
const ATTACH: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(100);
const FINALIZER: &str = "external-attacher/disk-csi-azure-com";

/// The kubelets and the attacher, until they are dropped.
pub(super) struct Disks {
    _task: JoinSet<()>,
}

impl Disks {
    pub(super) fn start(client: Client) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut disks = Player::new(client);
            loop {
                if let Err(error) = disks.step().await {
                    eprintln!("disks are handled again: {error:#}");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self { _task: task }
    }
}

struct Player {
    nodes: Api<Node>,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    attachments: Api<VolumeAttachment>,
    /// Since when what takes time is under way.
    begun: BTreeMap<String, Instant>,
}

impl Player {
    fn new(client: Client) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client.clone(), "default"),
            claims: Api::namespaced(client.clone(), "default"),
            attachments: Api::all(client),
            begun: BTreeMap::new(),
        }
    }

    /// True once something is under way for so long.
    fn has_taken(&mut self, time: Duration, what: String) -> bool {
        self.begun.entry(what).or_insert_with(Instant::now).elapsed() >= time
    }

    async fn step(&mut self) -> Result<()> {
        let all = ListParams::default();
        let attachments = self.attachments.list(&all).await?.items;
        for attachment in &attachments {
            self.attach_or_detach(attachment, &attachments).await?;
        }
        let bound = self.claims.list(&all).await?.items.into_iter();
        let bound = bound.filter_map(|claim| Some((claim.name_any(), claim.spec?.volume_name?))).collect();
        let pods = self.pods.list(&all).await?.items;
        let attached: BTreeSet<_> = attachments.iter().filter(|one| is_attached(one)).filter_map(place).collect();
        for node in self.nodes.list(&all).await?.items {
            self.keep(&node, &pods, &bound, &attached).await?;
        }
        Ok(())
    }

    /// What the attacher does.
    async fn attach_or_detach(&mut self, attachment: &VolumeAttachment, all: &[VolumeAttachment]) -> Result<()> {
        let name = attachment.name_any();
        let finalizers = |names: Value| Patch::Merge(json!({ "metadata": { "finalizers": names } }));
        let params = PatchParams::default();
        if attachment.metadata.deletion_timestamp.is_some() {
            if self.has_taken(ATTACH, format!("detach {name}")) {
                self.attachments.patch(&name, &params, &finalizers(Value::Null)).await?;
            }
            return Ok(());
        }
        let volume = &attachment.spec.source.persistent_volume_name;
        let is_elsewhere =
            |one: &VolumeAttachment| one.spec.source.persistent_volume_name == *volume && is_attached(one);
        if !all.iter().any(is_elsewhere) && self.has_taken(ATTACH, format!("attach {name}")) {
            self.attachments.patch(&name, &params, &finalizers(json!([FINALIZER]))).await?;
            let status = Patch::Merge(json!({ "status": { "attached": true } }));
            self.attachments.patch_status(&name, &params, &status).await?;
        }
        Ok(())
    }

    /// What the kubelet of a node does.
    async fn keep(
        &mut self,
        node: &Node,
        pods: &[Pod],
        bound: &BTreeMap<String, String>,
        attached: &BTreeSet<(String, String)>,
    ) -> Result<()> {
        let name = node.name_any();
        let params = PatchParams::default();
        if let Some(zone) = zone_of(node).filter(|_| !node.labels().contains_key(DRIVER_ZONE)) {
            let label = Patch::Merge(json!({ "metadata": { "labels": { DRIVER_ZONE: zone } } }));
            self.nodes.patch(&name, &params, &label).await?;
        }
        let mut used = BTreeSet::new();
        let is_here = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&name);
        for pod in pods.iter().filter(is_here) {
            let volumes: Option<Vec<&String>> = claims_of(pod).iter().map(|claim| bound.get(claim)).collect();
            let Some(volumes) = volumes else { continue };
            let is_there = |volume: &&String| attached.contains(&((*volume).clone(), name.clone()));
            if pod.annotations().get(WAITS).is_some_and(|waits| waits == "true") && volumes.iter().all(is_there) {
                let start = Patch::Merge(json!({ "metadata": { "annotations": { WAITS: "false" } } }));
                self.pods.patch(&pod.name_any(), &params, &start).await?;
            }
            used.extend(volumes.into_iter().map(|volume| format!("kubernetes.io/csi/{DISK_DRIVER}^{volume}")));
        }
        let reported = node.status.as_ref().and_then(|status| status.volumes_in_use.clone()).unwrap_or_default();
        let mut in_use = used.clone();
        for volume in &reported {
            let unmount = format!("unmount {volume} from {name}");
            if used.contains(volume) {
                self.begun.remove(&unmount);
            } else if !self.has_taken(UNMOUNT, unmount) {
                in_use.insert(volume.clone());
            }
        }
        if in_use != reported.into_iter().collect() {
            let status = Patch::Merge(json!({ "status": { "volumesInUse": in_use } }));
            self.nodes.patch_status(&name, &params, &status).await?;
        }
        Ok(())
    }
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

/// The volume and the node of an attachment.
fn place(attachment: &VolumeAttachment) -> Option<(String, String)> {
    Some((attachment.spec.source.persistent_volume_name.clone()?, attachment.spec.node_name.clone()))
}
