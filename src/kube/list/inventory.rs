//! Lists what an inventory of the cluster needs, and what AKSNodeClasses refer to in Azure.

use super::{all_of, list, none_if_not_served};
use crate::objects::controller_time;
use crate::objects::raw_object::RawObject;
use futures::future::join5;
use k8s_openapi::api::core::v1::{Node as WireNode, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, Resource, ResourceExt};
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::types::aks_node_class::AKSNodeClass;
use napkeeper_api::types::karpenter::NodeClaim;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::volume::{Attachment, DiskUse, Volume};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::ArmId;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The machines and disks that Kubernetes knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterListing {
    /// NodeClaims, deleting ones too.
    pub claims: Listing<Claim>,
    /// Nodes.
    pub nodes: Listing<Node>,
    /// PersistentVolumes.
    pub volumes: Listing<Volume>,
    /// VolumeAttachments.
    pub attachments: Listing<Attachment>,
    /// Disks that pods, VolumeAttachments and snapshots in progress name.
    pub disk_uses: Listing<DiskUse>,
}

/// Lists everything for an inventory. Each listing is complete, or has the reason why not.
pub async fn list_for_inventory(client: &Client, clock: &dyn Clock) -> ClusterListing {
    let claims = objects(client, |o: &NodeClaim| controller_time::claim(o, clock).map(Some));
    let nodes = objects(client, |o: &WireNode| controller_time::node(o, clock).map(Some));
    let volumes = objects(client, |o: &PersistentVolume| convert::volume(o).map(|v| Some(Arc::new(v))));
    let attached = objects(client, |o: &VolumeAttachment| convert::attachment(o).map(Some));
    let (claims, nodes, volumes, attached, uses) = join5(claims, nodes, volumes, attached, disk_uses(client)).await;
    let disk_uses = uses.and_then(|mut uses| {
        let named = attached.as_ref().map_err(Clone::clone)?.iter().filter_map(|(_, disk)| disk.clone());
        uses.extend(named);
        Ok(uses.into_iter().map(Arc::new).collect())
    });
    let attachments = attached.map(|list| list.into_iter().map(|(attachment, _)| Arc::new(attachment)).collect());
    ClusterListing { claims, nodes, volumes, attachments, disk_uses }
}

/// Subnets that AKSNodeClasses name (`spec.vnetSubnetID`), each once, at most this many. One that is no id is left out;
/// so are all where the kind is not installed.
///
/// # Errors
/// [`ListFailure`] where any page cannot be read.
pub async fn subnets_of_classes(client: &Client, most: usize) -> Result<Vec<ArmId>, ListFailure> {
    named_by_classes(client, most, |class| ArmId::new(class.spec.vnet_subnet_id.as_deref()?).ok()).await
}

/// Groups of capacity reservations that AKSNodeClasses name by their annotation, in the same way.
///
/// # Errors
/// [`ListFailure`] where any page cannot be read.
pub async fn reservation_groups_of_classes(client: &Client, most: usize) -> Result<Vec<ArmId>, ListFailure> {
    let group =
        |class: &AKSNodeClass| parse_reservation_group(class.annotations().get(labels::RESERVATION_GROUP)?).ok();
    named_by_classes(client, most, group).await
}

/// Ids that AKSNodeClasses name, each once, at most this many.
async fn named_by_classes(
    client: &Client,
    most: usize,
    named: impl Fn(&AKSNodeClass) -> Option<ArmId>,
) -> Result<Vec<ArmId>, ListFailure> {
    let listed = all_of(client, |class| Ok(named(class))).await;
    let ids = none_if_not_served(listed, &AKSNodeClass::plural(&()))?;
    Ok(ids.into_iter().collect::<BTreeSet<_>>().into_iter().take(most).collect())
}

/// All objects of a kind, converted. `Ok(None)` leaves one out.
async fn objects<K, T>(
    client: &Client,
    convert: impl Fn(&K) -> Result<Option<T>, Violations>,
) -> Result<Vec<T>, ListFailure>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    all_of::<K, T>(client, convert).await.map_err(|error| error.of(&K::plural(&())))
}

/// Disks of pods and of snapshots in progress.
async fn disk_uses(client: &Client) -> Result<Vec<DiskUse>, ListFailure> {
    let pods = objects(client, |o: &Pod| {
        let disks = convert::inline_disks(o);
        Ok((!disks.is_empty()).then_some(disks))
    });
    let mut uses: Vec<DiskUse> = pods.await?.into_iter().flatten().collect();
    uses.extend(snapshots(client).await?);
    Ok(uses)
}

/// Disks of which a snapshot is being taken; none where snapshots are not served. A VolumeSnapshot without a content
/// names a PersistentVolumeClaim, which it holds with a finalizer, and with it the PersistentVolume: a sign of life
/// already.
async fn snapshots(client: &Client) -> Result<Vec<DiskUse>, ListFailure> {
    let kind = GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent");
    let resource = ApiResource::from_gvk(&kind);
    let api = Api::<RawObject>::all_with(client.clone(), &resource);
    let listed = list(&api, ListParams::default(), |object| Ok(snapshot_in_progress(object))).await;
    none_if_not_served(listed, &resource.plural)
}

fn snapshot_in_progress(object: &DynamicObject) -> Option<DiskUse> {
    if object.data.pointer("/status/readyToUse").and_then(serde_json::Value::as_bool) == Some(true) {
        return None;
    }
    let handle = object.data.pointer("/spec/source/volumeHandle")?.as_str()?;
    let user = Arc::from(format!("VolumeSnapshotContent {}", object.name_any()));
    Some(DiskUse { disk: ArmId::new(handle).ok()?, user })
}
