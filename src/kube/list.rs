//! Listing: what does the API server hold, past every cache?
//!
//! What is deleted rests on these reads. They name no resourceVersion, which makes them quorum reads. One object that
//! cannot be understood makes a listing a failure: it may be the sign of life that is looked for.

use crate::error::{cluster_error, describe, says_absent};
use crate::ours;
use crate::raw::{self, RawObject};
use futures::future::join5;
use k8s_openapi::api::core::v1::{Node as WireNode, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectList};
use kube::{Client, Resource, ResourceExt};
use napkeeper_api::azure::AKSNodeClass;
use napkeeper_api::convert::{self, Violations};
use napkeeper_api::karpenter::NodeClaim;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::volume::{Attachment, DiskUse, Volume};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, NodeName, ObjectName, ProviderId};
use napkeeper_core::plan::{ClusterRead, Reply};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Objects in a page.
const PAGE: u32 = 500;
/// Most pages of a listing: more means that the server never says it is the last.
const MOST_PAGES: usize = 4000;
/// How long a page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a single read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// What Kubernetes knows of machines and disks.
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

/// Lists all that an inventory needs. Each listing is whole, or says why it is not.
pub async fn list_for_inventory(client: &Client, clock: &dyn Clock) -> ClusterListing {
    let claims = objects(client, |o: &NodeClaim| ours::claim(o, clock).map(Some));
    let nodes = objects(client, |o: &WireNode| ours::node(o, clock).map(Some));
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
    named_by_classes(client, most, |class| class.spec.vnet_subnet_id.and_then(|id| ArmId::new(id).ok())).await
}

/// Groups of capacity reservations that AKSNodeClasses name by their annotation, in the same way.
///
/// # Errors
/// [`ListFailure`] where any page cannot be read.
pub async fn reservation_groups_of_classes(client: &Client, most: usize) -> Result<Vec<ArmId>, ListFailure> {
    let group =
        |class: AKSNodeClass| parse_reservation_group(class.metadata.annotations?.get(labels::RESERVATION_GROUP)?).ok();
    named_by_classes(client, most, group).await
}

/// Ids that AKSNodeClasses name, each once, at most this many.
async fn named_by_classes(
    client: &Client,
    most: usize,
    named: impl Fn(AKSNodeClass) -> Option<ArmId>,
) -> Result<Vec<ArmId>, ListFailure> {
    match pages(&raw::all::<AKSNodeClass>(client), |class| Ok(named(read_as(class)?))).await {
        Ok(ids) => Ok(ids.into_iter().collect::<BTreeSet<_>>().into_iter().take(most).collect()),
        Err(Failure::Refused(error)) if is_not_served(&error) => Ok(Vec::new()),
        Err(failure) => Err(failure.of(&AKSNodeClass::plural(&()))),
    }
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
    let what = resource.plural.clone();
    let api = Api::<RawObject>::all_with(client.clone(), &resource);
    match pages(&api, |object| Ok(snapshot_in_progress(&read_as(object)?))).await {
        Ok(uses) => Ok(uses),
        Err(Failure::Refused(error)) if is_not_served(&error) => Ok(Vec::new()),
        Err(failure) => Err(failure.of(&what)),
    }
}

/// True where the kind is not installed.
pub(crate) fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn snapshot_in_progress(object: &DynamicObject) -> Option<DiskUse> {
    if object.data.pointer("/status/readyToUse").and_then(serde_json::Value::as_bool) == Some(true) {
        return None;
    }
    let handle = object.data.pointer("/spec/source/volumeHandle")?.as_str()?;
    let user = Arc::from(format!("VolumeSnapshotContent {}", object.name_any()));
    Some(DiskUse { disk: ArmId::new(handle).ok()?, user })
}

/// Why a listing is not whole.
pub(crate) enum Failure {
    /// A page was refused, or never came.
    Refused(kube::Error),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// The same of a listing, for people.
    pub(crate) fn of(&self, what: &str) -> ListFailure {
        let why = match self {
            Self::Refused(error) => describe(error),
            Self::Other(why) => why.clone(),
        };
        ListFailure { listing: Arc::from(what), reason: Arc::from(why) }
    }
}

/// An object as its kind.
fn read_as<K: DeserializeOwned>(object: RawObject) -> Result<K, Failure> {
    let key = object.key();
    object.read().map_err(|why| Failure::Other(format!("cannot parse {key}: {why}")))
}

/// All objects of a kind, read. `Ok(None)` leaves one out.
pub(crate) async fn objects<K, T>(
    client: &Client,
    read: impl Fn(&K) -> Result<Option<T>, Violations>,
) -> Result<Vec<T>, ListFailure>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    all_of::<K, T>(client, read).await.map_err(|failure| failure.of(&K::plural(&())))
}

/// As [`objects`], with the reason why it failed.
pub(crate) async fn all_of<K, T>(
    client: &Client,
    read: impl Fn(&K) -> Result<Option<T>, Violations>,
) -> Result<Vec<T>, Failure>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    pages(&raw::all::<K>(client), understood(read)).await
}

/// Reads an object as its kind, and says which one cannot be understood.
fn understood<K: DeserializeOwned, T>(
    read: impl Fn(&K) -> Result<Option<T>, Violations>,
) -> impl Fn(RawObject) -> Result<Option<T>, Failure> {
    move |object| {
        let key = object.key();
        read(&read_as(object)?).map_err(|why| Failure::Other(format!("cannot parse {key}: {why}")))
    }
}

/// Reads page after page.
async fn pages<T>(
    api: &Api<RawObject>,
    read: impl Fn(RawObject) -> Result<Option<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    selected(api, ListParams::default(), read).await
}

/// Reads page after page of what a selection leaves.
async fn selected<T>(
    api: &Api<RawObject>,
    selection: ListParams,
    read: impl Fn(RawObject) -> Result<Option<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    let mut params = selection.limit(PAGE);
    for _ in 0..MOST_PAGES {
        let page = page(api, &params).await?;
        for object in page.items {
            all.extend(read(object)?);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
    Err(Failure::Other(format!("not complete after {MOST_PAGES} pages")))
}

async fn page(api: &Api<RawObject>, params: &ListParams) -> Result<ObjectList<RawObject>, Failure> {
    let page = timeout(PAGE_TIMEOUT, api.list(params)).await;
    let page = page.map_err(|_| Failure::Other(format!("no page received within {}s", PAGE_TIMEOUT.as_secs())));
    page?.map_err(Failure::Refused)
}

/// Reads from the API server itself, past the cache.
///
/// # Errors
/// [`EffectError::Cluster`] when it cannot be read or understood.
pub async fn read(client: &Client, clock: &dyn Clock, read: &ClusterRead) -> Result<Reply, EffectError> {
    match read {
        ClusterRead::Claim(name) => read_claim(client, clock, name).await,
        ClusterRead::Node(provider) => read_node(client, clock, provider).await,
        ClusterRead::Pods(node) => read_pods(client, clock, node).await,
        ClusterRead::Volume(name) => read_volume(client, name).await,
    }
}

/// Reads a NodeClaim: [`Reply::Claim`], with none only where the server says that there is none of that name.
///
/// # Errors
/// [`EffectError::Cluster`] when it cannot be read or understood.
async fn read_claim(client: &Client, clock: &dyn Clock, name: &ClaimName) -> Result<Reply, EffectError> {
    single(client, name.as_str(), |o: &NodeClaim| ours::claim(o, clock)).await.map(Reply::Claim)
}

/// Reads a PersistentVolume: [`Reply::Volume`], with none only where the server says that there is none of that name.
///
/// # Errors
/// [`EffectError::Cluster`] when it cannot be read or understood.
async fn read_volume(client: &Client, name: &ObjectName) -> Result<Reply, EffectError> {
    single(client, name.as_str(), |o: &PersistentVolume| convert::volume(o).map(Arc::new)).await.map(Reply::Volume)
}

/// Reads the Node of a provider id, or else the one that has the VM's name, as before its provider id is set:
/// [`Reply::Node`]. The API server finds no Node by its provider id, so this lists them all.
///
/// # Errors
/// [`EffectError::Cluster`] when they cannot all be read and understood.
async fn read_node(client: &Client, clock: &dyn Clock, provider: &ProviderId) -> Result<Reply, EffectError> {
    let vm = provider.vm().name().to_ascii_lowercase();
    let is_it = |node: &Arc<Node>| node.provider_id.as_ref() == Some(provider) || node.name.as_str() == vm;
    match all_of(client, |object: &WireNode| Ok(Some(ours::node(object, clock)?).filter(is_it))).await {
        Ok(nodes) => {
            let exact = nodes.iter().find(|node| node.provider_id.as_ref() == Some(provider));
            Ok(Reply::Node(exact.or_else(|| nodes.first()).cloned()))
        }
        Err(Failure::Refused(error)) => Err(refused(&error)),
        Err(Failure::Other(why)) => Err(unreadable("nodes", &why)),
    }
}

/// Reads the pods of a Node: [`Reply::Pods`], those that cannot be understood as opaque ones.
///
/// # Errors
/// [`EffectError::Cluster`] when they cannot all be read.
async fn read_pods(client: &Client, clock: &dyn Clock, node: &NodeName) -> Result<Reply, EffectError> {
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let read = understood(|object: &Pod| ours::pod(object, clock).map(|(pod, _)| Some(pod)));
    match selected(&raw::all::<Pod>(client), of_node, read).await {
        Ok(pods) => Ok(Reply::Pods(pods)),
        Err(Failure::Refused(error)) => Err(refused(&error)),
        Err(Failure::Other(why)) => Err(unreadable("pods", &why)),
    }
}

async fn single<K, T>(
    client: &Client,
    name: &str,
    read: impl Fn(&K) -> Result<T, Violations>,
) -> Result<Option<T>, EffectError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let api = raw::all::<K>(client);
    match timeout(READ_TIMEOUT, api.get(name)).await {
        Ok(Ok(object)) => {
            let object = object.read().map_err(|why| unreadable(name, &why.to_string()))?;
            read(&object).map(Some).map_err(|why| unreadable(name, &why.to_string()))
        }
        Ok(Err(error)) if says_absent(&error, name) => Ok(None),
        Ok(Err(error)) => Err(refused(&error)),
        Err(_) => Err(EffectError::Cluster(ClusterError::Unavailable)),
    }
}

/// A read that failed. That a kind is not served tells nothing about an object: unknown, not absent.
fn refused(error: &kube::Error) -> EffectError {
    tracing::warn!(error = describe(error), "reading failed");
    EffectError::Cluster(match cluster_error(error) {
        ClusterError::Forbidden => ClusterError::Forbidden,
        _ => ClusterError::Unavailable,
    })
}

fn unreadable(name: &str, why: &str) -> EffectError {
    tracing::warn!(name, why, "cannot parse object");
    EffectError::Cluster(ClusterError::Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Fault, Real};
    use serde_json::{Value, json};

    const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
    const NODES: &str = "/api/v1/nodes";
    const VOLUMES: &str = "/api/v1/persistentvolumes";
    const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
    const PODS: &str = "/api/v1/pods";
    const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
    const DISKS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks";

    fn cluster() -> Fake {
        let fake = Fake::serving(&[CLAIMS, NODES, VOLUMES, ATTACHMENTS, PODS]);
        for i in 0..7 {
            fake.put(NODES, node(&format!("n{i}"), i));
        }
        let inline = json!({ "name": "v", "azureDisk": { "diskName": "d", "diskURI": format!("{DISKS}/inline") } });
        fake.put(PODS, json!({ "metadata": { "name": "p" }, "spec": { "containers": [], "volumes": [inline] } }));
        fake
    }

    fn node(name: &str, vm: u32) -> Value {
        let vm = format!("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v{vm}");
        json!({ "metadata": { "name": name, "uid": name }, "spec": { "providerID": vm } })
    }

    #[tokio::test]
    async fn a_listing_is_whole_and_asks_for_the_latest() {
        let fake = cluster();
        let listing = list_for_inventory(&fake.client(), &Real).await;
        assert_eq!(listing.nodes.unwrap().len(), 7, "of three pages");
        assert_eq!((listing.claims, listing.volumes, listing.attachments), (Ok(vec![]), Ok(vec![]), Ok(vec![])));
        let uses = listing.disk_uses.unwrap();
        assert_eq!(uses.iter().map(|u| u.disk.name()).collect::<Vec<_>>(), ["inline"]);
        assert!(!fake.requests().iter().any(|r| r.contains("resourceVersion")), "{:?}", fake.requests());
    }

    #[tokio::test]
    async fn subnets_of_classes_are_named_once_and_not_without_bound() {
        const CLASSES: &str = "/apis/karpenter.azure.com/v1beta1/aksnodeclasses";
        let network = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v";
        let fake = Fake::serving(&[CLASSES]);
        for (name, subnet) in [("a", Some("subnets/one")), ("b", Some("SUBNETS/One")), ("c", None)] {
            let spec = subnet.map_or(json!({}), |s| json!({ "vnetSubnetID": format!("{network}/{s}") }));
            fake.put(CLASSES, json!({ "metadata": { "name": name }, "spec": spec }));
        }
        let found = subnets_of_classes(&fake.client(), 32).await.unwrap();
        assert_eq!(
            found.iter().map(ArmId::folded).collect::<Vec<_>>(),
            [format!("{network}/subnets/one").to_lowercase()]
        );
        assert_eq!(subnets_of_classes(&fake.client(), 0).await.unwrap().len(), 0);
        assert_eq!(subnets_of_classes(&Fake::serving(&[]).client(), 32).await, Ok(vec![]), "the kind is not installed");
    }

    #[tokio::test]
    async fn groups_of_reservations_are_those_of_the_annotation() {
        const CLASSES: &str = "/apis/karpenter.azure.com/v1beta1/aksnodeclasses";
        let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/paid";
        let fake = Fake::serving(&[CLASSES]);
        for (name, id) in [("a", Some(group)), ("b", Some("paid")), ("c", None)] {
            let annotations = id.map_or(json!({}), |id| json!({ labels::RESERVATION_GROUP: id }));
            fake.put(CLASSES, json!({ "metadata": { "name": name, "annotations": annotations }, "spec": {} }));
        }
        let found = reservation_groups_of_classes(&fake.client(), 9).await.unwrap();
        assert_eq!(found.iter().map(ArmId::as_str).collect::<Vec<_>>(), [group]);
    }

    #[tokio::test]
    async fn whatever_fails_makes_its_listing_a_failure_and_no_other() {
        let failure = |fake: Fake| async move { list_for_inventory(&fake.client(), &Real).await };
        let page = cluster();
        page.fail(NODES, Some(Fault::SecondPage));
        let listing = failure(page).await;
        assert_eq!(listing.nodes.unwrap_err().to_string(), "listing nodes: code 500");
        assert!(listing.claims.is_ok() && listing.disk_uses.is_ok());

        let forbidden = cluster();
        forbidden.fail(VOLUMES, Some(Fault::Status(403)));
        assert!(failure(forbidden).await.volumes.is_err());

        let unserved = Fake::serving(&[NODES, VOLUMES, ATTACHMENTS, PODS]);
        assert!(failure(unserved).await.claims.is_err(), "a missing kind is not an empty one");

        let unreadable = cluster();
        unreadable.put(NODES, json!({ "metadata": { "name": "bad" }, "spec": { "providerID": "azure://x" } }));
        let why = failure(unreadable).await.nodes.unwrap_err();
        assert!(why.reason.contains("cannot parse bad: spec.providerID"), "{why}");

        let attachments = cluster();
        attachments.fail(ATTACHMENTS, Some(Fault::Unreachable));
        let listing = failure(attachments).await;
        assert!(listing.attachments.is_err() && listing.disk_uses.is_err(), "an attachment may name a disk");
    }

    #[tokio::test]
    async fn snapshots_in_progress_use_their_disks_and_must_be_readable_where_they_are_served() {
        let fake = cluster();
        let content = |name: &str, status: Value| {
            let source = json!({ "volumeHandle": format!("{DISKS}/{name}") });
            json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
                "metadata": { "name": name }, "spec": { "source": source }, "status": status })
        };
        fake.put(SNAPSHOTS, content("begun", json!({ "readyToUse": false })));
        fake.put(SNAPSHOTS, content("done", json!({ "readyToUse": true })));
        let uses = list_for_inventory(&fake.client(), &Real).await.disk_uses.unwrap();
        assert_eq!(uses.iter().map(|u| u.disk.name()).collect::<Vec<_>>(), ["inline", "begun"]);
        fake.fail(SNAPSHOTS, Some(Fault::Status(403)));
        assert!(list_for_inventory(&fake.client(), &Real).await.disk_uses.is_err());
    }

    #[tokio::test]
    async fn a_single_read_says_none_only_where_the_server_does() {
        let fake = cluster();
        let client = fake.client();
        let name = ClaimName::new("c").unwrap();
        assert_eq!(read_claim(&client, &Real, &name).await, Ok(Reply::Claim(None)));
        let unavailable = Err(EffectError::Cluster(ClusterError::Unavailable));
        let unserved = Fake::serving(&[NODES]).client();
        assert_eq!(read_claim(&unserved, &Real, &name).await, unavailable, "a missing kind says nothing about a claim");
        fake.put(
            CLAIMS,
            json!({ "metadata": { "name": "c" }, "spec": { "nodeClassRef":
            { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "Not A Name" }, "requirements": [] } }),
        );
        assert_eq!(read_claim(&client, &Real, &name).await, unavailable, "unknown is not absent");
        fake.fail(VOLUMES, Some(Fault::Status(403)));
        let volume = read_volume(&client, &ObjectName::new("p").unwrap()).await;
        assert_eq!(volume, Err(EffectError::Cluster(ClusterError::Forbidden)));
    }

    #[tokio::test]
    async fn a_node_is_found_by_its_provider_id_in_any_case() {
        let fake = cluster();
        let client = fake.client();
        let id = |vm: &str| {
            let text =
                format!("azure:///subscriptions/S/resourcegroups/G/providers/microsoft.compute/virtualmachines/{vm}");
            ProviderId::parse(&text).unwrap()
        };
        let Ok(Reply::Node(Some(found))) = read_node(&client, &Real, &id("V5")).await else { panic!() };
        assert_eq!(found.name.as_str(), "n5");
        assert_eq!(read_node(&client, &Real, &id("v9")).await, Ok(Reply::Node(None)));
        let Ok(Reply::Node(Some(named))) = read_node(&client, &Real, &id("N6")).await else { panic!("by its name") };
        assert_eq!(named.name.as_str(), "n6");
        fake.fail(NODES, Some(Fault::SecondPage));
        assert!(read_node(&client, &Real, &id("v9")).await.is_err());
    }
}
