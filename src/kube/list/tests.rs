//! Listings and reads of a fake API server.

use super::inventory::*;
use super::read::*;
use crate::fake::{Fake, Fault, Real};
use napkeeper_core::model::errors::{ClusterError, EffectError};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, ClaimName, ObjectName, ProviderId};
use napkeeper_core::plan::Reply;
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
async fn a_listing_is_complete_and_current() {
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
    assert_eq!(found.iter().map(ArmId::folded).collect::<Vec<_>>(), [format!("{network}/subnets/one").to_lowercase()]);
    assert_eq!(subnets_of_classes(&fake.client(), 0).await.unwrap().len(), 0);
    assert_eq!(subnets_of_classes(&Fake::serving(&[]).client(), 32).await, Ok(vec![]), "the kind is not installed");
}

#[tokio::test]
async fn reservation_groups_come_from_the_annotation() {
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
    let reason = failure(unreadable).await.nodes.unwrap_err();
    assert!(reason.reason.contains("cannot parse bad: spec.providerID"), "{reason}");

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
async fn a_single_read_returns_none_only_on_not_found() {
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
    fake.fail(NODES, None);

    // The Node of a VM's name is read alone.
    fake.put(NODES, node("v7", 7));
    let before = fake.requests().len();
    let Ok(Reply::Node(Some(own))) = read_node(&client, &Real, &id("v7")).await else { panic!("by one request") };
    assert_eq!(own.name.as_str(), "v7");
    assert_eq!(fake.requests()[before..], [format!("{NODES}/v7")]);
    // A Node of another machine may be unreadable, unless that may be the machine.
    let unreadable = |id: &str| json!({ "metadata": { "name": "other", "uid": "" }, "spec": { "providerID": id } });
    fake.put(NODES, unreadable("kind://docker/other"));
    assert_eq!(read_node(&client, &Real, &id("v9")).await, Ok(Reply::Node(None)));
    fake.put(NODES, unreadable("azure:///somewhere"));
    assert!(read_node(&client, &Real, &id("v9")).await.is_err());
}
