//! Creates the volumes that kube-scheduler requests.
//!
//! It does what a CSI driver and the controller of PersistentVolumes do together: once kube-scheduler has selected a
//! node for a claim, a volume is created for it, and each is bound to the other.
//!
//! kube-scheduler polls once a second whether that is done, and binds the pod only then. To save that second, the node
//! is reported at once if no other pod uses the claim. If others do, it is known only when the pod is bound: until
//! kube-scheduler has seen that the claim is bound, the next pod with that claim can only go to the selected node
//! (`FindPodVolumes` compares the annotation), afterwards to every node on which the volume can be used.

use crate::scheduling::{binding, is_shared, made, zone_of};
use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A claim that one pod alone uses, by namespace and name, and the node that its volume was made for.
pub(super) type Choice = ((String, String), String);

/// Creates volumes until it is dropped.
pub(crate) struct Provisioner {
    pub(super) choices: UnboundedReceiver<Choice>,
    _task: JoinSet<()>,
}

impl Provisioner {
    pub(crate) fn start(client: Client) -> Self {
        let (sender, choices) = unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let claims = Api::<PersistentVolumeClaim>::all(client.clone());
            let mut claims = Box::pin(watcher(claims, watcher::Config::default()).applied_objects());
            loop {
                // The watcher retries.
                let Ok(Some(claim)) = claims.try_next().await else { continue };
                if let Err(error) = provision(&client, &claim, &sender).await {
                    eprintln!("no volume for {:?}: {error:#}", claim.metadata.name);
                }
            }
        });
        Self { choices, _task: task }
    }
}

async fn provision(client: &Client, claim: &PersistentVolumeClaim, sender: &UnboundedSender<Choice>) -> Result<()> {
    let metadata = &claim.metadata;
    let is_bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    let selected = metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
    let Some(node) = selected.filter(|_| !is_bound && metadata.deletion_timestamp.is_none()) else { return Ok(()) };
    let (namespace, name) = metadata.namespace.clone().zip(metadata.name.clone()).context("a claim without a name")?;
    let node_object = Api::<Node>::all(client.clone()).get(node).await?;
    let volume = made(claim, zone_of(&node_object))?;
    match Api::<PersistentVolume>::all(client.clone()).create(&PostParams::default(), &volume).await {
        // The claim changed before it was bound, and its volume was made for what it was before.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made?),
    }
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace);
    claims.patch(&name, &PatchParams::default(), &Patch::Merge(binding(&volume))).await?;
    if !is_shared(claim) {
        // The receiver is dropped at the end of the test.
        drop(sender.send(((namespace, name), node.clone())));
    }
    Ok(())
}
