use super::*;
use crate::cluster::ClusterListing;
use crate::workload::DiskRequest;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::plan::ClusterRead;

/// A StatefulSet of one pod with a disk, on the node `a` of zone 1; `b` in zone 1 is full, `c` is in zone 2.
fn with_database(reclaim: ReclaimPolicy) -> (Cluster, ObjectName) {
    let mut cluster = cluster();
    cluster.add_unmanaged_node(machine("a", 4, 1), at(0));
    let workload = Workload {
        template: PodTemplate::new(shape("db", 1000)),
        kind: WorkloadKind::StatefulSet { replicas: 1, disk: Some(DiskRequest { size_gib: 64, reclaim }) },
    };
    cluster.apply_workload(key("db"), workload, at(0));
    cluster.advance(at(20));
    let wanted = |(_, event): (Timestamp, ClusterEvent)| match event {
        ClusterEvent::DiskWanted { volume, zone, .. } => Some((volume, zone)),
        _ => None,
    };
    let (volume, zone) = cluster.take_events().into_iter().find_map(wanted).unwrap();
    assert_eq!(zone, Some(Zone::new("westeurope-1").unwrap()));
    assert_eq!(pods_of(&cluster, "db")[0].started_at, None, "no disk yet");
    cluster.disk_created(&volume, disk("d"), at(20));
    cluster.advance(at(30));
    assert!(pods_of(&cluster, "db")[0].started_at.is_some());
    (cluster, volume)
}

fn disk_events(cluster: &mut Cluster) -> Vec<&'static str> {
    let word = |(_, event): &(Timestamp, ClusterEvent)| match event {
        ClusterEvent::DiskWanted { .. } => Some("wanted"),
        ClusterEvent::DiskReleased { .. } => Some("released"),
        ClusterEvent::DiskAttached { .. } => Some("attached"),
        ClusterEvent::DiskDetached { .. } => Some("detached"),
        _ => None,
    };
    cluster.take_events().iter().filter_map(word).collect()
}

#[test]
fn a_disk_ties_its_pod_to_its_zone_and_moves_with_it() {
    let (mut cluster, _) = with_database(ReclaimPolicy::Delete);
    assert_eq!(disk_events(&mut cluster), ["attached"]);
    assert_eq!(cluster.list_attachments(at(30)).unwrap().len(), 1);
    cluster.add_unmanaged_node(machine("c", 64, 2), at(30));
    let cordon = |node: &mut napkeeper_core::model::cluster::node::Node| node.cordoned = true;
    cluster.edit_node(&NodeName::new("a").unwrap(), cordon, at(30));
    cluster.delete_pod(&key("db-0"), at(30));
    cluster.advance(at(100));
    assert_eq!(by_node(&cluster, "db"), counts(&[("-", 1)]));
    cluster.add_unmanaged_node(machine("b", 2, 1), at(100));
    cluster.advance(at(110));
    assert_eq!(by_node(&cluster, "db"), counts(&[("b", 1)]));
    assert!(pods_of(&cluster, "db")[0].started_at.is_some());
    assert_eq!(disk_events(&mut cluster), ["detached", "attached"]);
}

#[test]
fn the_disk_of_a_deleted_claim_is_released_once_no_pod_uses_it() {
    let (mut cluster, volume) = with_database(ReclaimPolicy::Delete);
    cluster.delete_volume_claim(&key("db-0-data"), at(30));
    cluster.advance(at(40));
    assert!(cluster.state().volumes().get(&volume).is_some());
    cluster.delete_workload(&key("db"), at(40));
    cluster.advance(at(74));
    assert!(cluster.state().volumes().get(&volume).is_some(), "it is still attached");
    cluster.advance(at(91));
    assert!(cluster.state().volumes().get(&volume).is_none());
    assert_eq!(disk_events(&mut cluster), ["attached", "detached", "released"]);
}

#[test]
fn a_retained_volume_outlives_its_claim() {
    let (mut cluster, volume) = with_database(ReclaimPolicy::Retain);
    cluster.delete_workload(&key("db"), at(40));
    cluster.delete_volume_claim(&key("db-0-data"), at(40));
    cluster.advance(at(91));
    assert!(cluster.state().volumes().get(&volume).is_some());
    assert_eq!(disk_events(&mut cluster), ["attached", "detached"]);
}

#[test]
fn a_lost_volume_or_an_emptied_api_server_releases_no_disk() {
    let (mut cluster, volume) = with_database(ReclaimPolicy::Delete);
    cluster.lose_volume(&volume, at(40));
    cluster.advance(at(100));
    assert_eq!(disk_events(&mut cluster), ["attached"]);
    let (mut cluster, _) = with_database(ReclaimPolicy::Delete);
    cluster.empty(at(40));
    cluster.advance(at(100));
    assert!(cluster.state().volumes().is_empty());
    assert_eq!(disk_events(&mut cluster), ["attached"]);
}

#[test]
fn an_unused_disk_is_released() {
    let mut cluster = cluster();
    cluster.disk_created(&ObjectName::new("pvc-x").unwrap(), disk("d"), at(0));
    assert_eq!(disk_events(&mut cluster), ["released"]);
}

#[test]
fn a_listing_fails_as_a_whole_and_for_its_kind_only() {
    let (mut cluster, volume) = with_database(ReclaimPolicy::Delete);
    cluster.fail_listing(ClusterListing::Volumes, at(60));
    cluster.forbid(ClusterListing::Nodes);
    assert!(cluster.list_volumes(at(59)).is_err());
    assert_eq!(cluster.list_volumes(at(60)).unwrap().len(), 1);
    assert!(cluster.list_nodes(at(60)).is_err());
    assert!(cluster.list_attachments(at(59)).is_ok());
    let node = ClusterRead::Node(ProviderId::of_vm(&vm("a")));
    assert_eq!(cluster.read(&node, at(60)), Err(EffectError::Cluster(ClusterError::Forbidden)));
    let read = cluster.read(&ClusterRead::Volume(volume), at(60)).unwrap();
    assert!(matches!(read, Reply::Volume(Some(_))));
}

#[test]
fn a_pod_waits_until_its_disk_has_left_the_node_of_another() {
    let (mut cluster, _) = with_database(ReclaimPolicy::Delete);
    cluster.add_unmanaged_node(machine("b", 64, 1), at(30));
    let reader = PodTemplate::new(shape("reader", 1000));
    let data = ObjectName::new("db-0-data").unwrap();
    cluster.run_pod(key("reader"), &reader, vec![data], at(30));
    cluster.advance(at(60));
    assert_eq!(by_node(&cluster, "reader"), counts(&[("b", 1)]));
    assert_eq!(pods_of(&cluster, "reader")[0].started_at, None);
    cluster.delete_workload(&key("db"), at(60));
    // Its grace is 30 s, and a disk takes 5 to 20 s to leave.
    cluster.advance(at(95));
    assert_eq!(pods_of(&cluster, "reader")[0].started_at, None);
    cluster.advance(at(116));
    assert!(pods_of(&cluster, "reader")[0].started_at > Some(at(95)));
}
