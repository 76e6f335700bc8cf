//! Tests of volume needs: a small store of claims, classes and volumes, and one row per case.

use super::*;
use crate::fixtures::{bound_claim, node, pod, running, shape};
use crate::model::cluster::volume::{DISK_DRIVER, FILE_DRIVER, ReclaimPolicy, driver};
use crate::model::names::{Namespace, Uid};

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn key(text: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: name(text) }
}

fn zones(values: &[&str]) -> Requirements {
    let mut all = Requirements::new();
    all.add(labels::ZONE, Requirement::any_of(values));
    all
}

fn claim(text: &str) -> VolumeClaim {
    VolumeClaim { volume: None, bound: false, ..bound(text, text) }
}

fn bound(text: &str, volume: &str) -> VolumeClaim {
    bound_claim(&key(text), &name(volume))
}

fn of_class(text: &str, class: &str) -> VolumeClaim {
    VolumeClaim { class: Some(name(class)), ..claim(text) }
}

fn volume(text: &str, affinity: Vec<Requirements>) -> Volume {
    Volume {
        name: name(text),
        uid: Uid::new(text).unwrap(),
        handle: None,
        reclaim: ReclaimPolicy::Delete,
        claim: None,
        affinity,
        driver: Some(driver(DISK_DRIVER)),
        deleting: false,
    }
}

fn class(text: &str, topologies: Vec<Requirements>) -> StorageClass {
    StorageClass {
        name: name(text),
        provisioner: driver(DISK_DRIVER),
        waits_for_pod: true,
        topologies,
        is_default: false,
    }
}

/// Volumes `v1` to `v3` of one zone each, `both` of two alternatives, `share` of anywhere, and classes.
fn store(claims: impl IntoIterator<Item = VolumeClaim>) -> Snapshot {
    let mut store = Snapshot::default();
    for n in ["1", "2", "3"] {
        let volume = volume(&format!("v{n}"), vec![zones(&[n])]);
        store.put_volume(volume.name.clone(), volume);
    }
    let share = Volume { driver: Some(driver(FILE_DRIVER)), ..volume("share", Vec::new()) };
    let path = Volume { driver: None, ..volume("path", Vec::new()) };
    let going = Volume { deleting: true, ..volume("going", Vec::new()) };
    let mut racks = zones(&["1"]);
    racks.add("rack", Requirement::any_of(["a"]));
    for volume in [share, path, going, volume("either", vec![racks, zones(&["2"])])] {
        store.put_volume(volume.name.clone(), volume);
    }
    let mut odd = Requirements::new();
    odd.add("topology.hostpath.csi/node", Requirement::any_of(["n"]));
    let eager = StorageClass { waits_for_pod: false, ..class("eager", Vec::new()) };
    let classes = [class("any", Vec::new()), class("some", vec![zones(&["1", "2"])]), class("odd", vec![odd]), eager];
    for class in classes {
        store.put_storage_class(class.name.clone(), class);
    }
    for claim in claims {
        store.put_volume_claim(claim.key.clone(), claim);
    }
    store.put_node(node("n1", 1, 4));
    store
}

fn with_claims(names: &[&str]) -> Pod {
    let mut pod = pod("p", &Arc::new(shape("a", 100, 1)));
    pod.volumes = names.iter().map(|n| name(n)).collect();
    pod
}

fn needs(claims: &[VolumeClaim]) -> Result<VolumeNeeds, VolumeTrouble> {
    let names: Vec<&str> = claims.iter().map(|c| c.key.name.as_str()).collect();
    volume_needs(&store(claims.iter().cloned()), &with_claims(&names))
}

#[test]
fn a_pod_runs_where_all_of_its_volumes_can_be_used() {
    let zone = "topology.kubernetes.io/zone In";
    let selected =
        |node: &str| VolumeClaim { selected_node: Some(NodeName::new(node).unwrap()), ..of_class("a", "some") };
    let rows = [
        ("no volumes", vec![], vec![]),
        ("a volume of one zone", vec![bound("a", "v1")], vec![format!("{zone} [1]")]),
        ("a volume of anywhere", vec![bound("a", "share")], vec![]),
        ("a volume still to be made, anywhere", vec![of_class("a", "any")], vec![]),
        ("an unprovisioned volume, in some zones", vec![of_class("a", "some")], vec![format!("{zone} [1 2]")]),
        ("what both allow", vec![of_class("a", "some"), bound("b", "v2")], vec![format!("{zone} [2]")]),
        ("alternatives", vec![bound("a", "either")], vec![format!("rack In [a], {zone} [1]"), format!("{zone} [2]")]),
        (
            "alternatives that another volume rules out",
            vec![bound("a", "either"), bound("b", "v2")],
            vec![format!("{zone} [2]")],
        ),
        (
            "a volume that is being made for a node",
            vec![selected("n1")],
            vec!["kubernetes.io/hostname In [n1]".to_owned()],
        ),
        ("a volume selected for a deleted node", vec![selected("gone")], vec![format!("{zone} [1 2]")]),
        (
            "a bound volume, whatever node it was made for",
            vec![VolumeClaim { selected_node: Some(NodeName::new("n1").unwrap()), ..bound("a", "v2") }],
            vec![format!("{zone} [2]")],
        ),
    ];
    for (case, claims, expected) in rows {
        let alternatives = needs(&claims).unwrap().alternatives;
        let alternatives: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
        assert_eq!(alternatives, expected, "{case}");
    }
}

#[test]
fn volume_problems_are_reported_with_a_remedy() {
    let a = || key("a");
    let rows = [
        (VolumeClaim { deleting: true, ..bound("a", "v1") }, VolumeTrouble::ClaimDeleting(a()), "then recreate it"),
        (VolumeClaim { lost: true, ..bound("a", "v1") }, VolumeTrouble::ClaimLost(a()), "delete and recreate it"),
        (VolumeClaim { bound: false, ..bound("a", "v1") }, VolumeTrouble::Unbound(a(), name("v1")), "not bound yet"),
        (bound("a", "gone"), VolumeTrouble::VolumeMissing(a(), name("gone")), "recreate the claim"),
        (bound("a", "going"), VolumeTrouble::VolumeDeleting(a(), name("going")), "with another"),
        (claim("a"), VolumeTrouble::NoClass(a()), "set one"),
        (of_class("a", "gone"), VolumeTrouble::ClassMissing(a(), name("gone")), "create it"),
        (of_class("a", "eager"), VolumeTrouble::Immediate(a(), name("eager")), "see the events"),
        (
            of_class("a", "odd"),
            VolumeTrouble::Topology(a(), name("odd"), "topology.hostpath.csi/node".into()),
            "allowedTopologies",
        ),
    ];
    for (claim, trouble, advice) in rows {
        let found = needs(&[claim]).unwrap_err();
        assert_eq!(found, trouble);
        assert!(found.to_string().contains("default/a") && found.to_string().contains(advice), "{found}");
    }
    let missing = volume_needs(&store([]), &with_claims(&["p-scratch"])).unwrap_err();
    assert_eq!(missing, VolumeTrouble::ClaimMissing(key("p-scratch")));
    assert!(missing.to_string().contains("ephemeral"), "{missing}");
    let apart = needs(&[bound("a", "v1"), bound("b", "v2")]).unwrap_err();
    assert_eq!(apart, VolumeTrouble::Apart(key("b")));
}

#[test]
fn alternatives_are_bounded() {
    let mut store = store([]);
    let mut names = Vec::new();
    for n in 0..5 {
        let zone_term = |value: &str| {
            let mut one = Requirements::new();
            one.add(&format!("rack-{n}"), Requirement::any_of([value]));
            one
        };
        let volume = volume(&format!("many-{n}"), ["a", "b", "c"].map(zone_term).to_vec());
        let claim = bound(&format!("claim-{n}"), volume.name.as_str());
        names.push(claim.key.name.to_string());
        store.put_volume(volume.name.clone(), volume);
        store.put_volume_claim(claim.key.clone(), claim);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let needs = volume_needs(&store, &with_claims(&names)).unwrap();
    assert_eq!(needs.alternatives.len(), MOST_ALTERNATIVES);
}

#[test]
fn attachments_are_counted_by_driver_each_volume_once() {
    let claims = [bound("a", "v1"), bound("b", "v1"), of_class("c", "any"), bound("d", "share"), bound("e", "path")];
    let needs = needs(&claims).unwrap();
    let of = |disks: &Disks, driver: &str| {
        let names = disks.get(driver).into_iter().flatten().map(|key| key.name.to_string());
        names.collect::<Vec<_>>()
    };
    assert_eq!(of(&needs.disks, DISK_DRIVER), ["a", "b", "c"]);
    assert_eq!(of(&needs.disks, FILE_DRIVER), ["d"], "shares count, and their driver names no limit");
    assert_eq!(needs.disks.len(), 2, "volumes without a driver are not attached");

    let mut store = store(claims);
    let n1 = store.nodes().values().next().cloned().unwrap();
    for (pod, volumes) in [("one", &["a", "c"][..]), ("two", &["c", "missing", "e"]), ("none", &[])] {
        let volumes = volumes.iter().map(|n| name(n)).collect();
        store.put_pod(Pod { volumes, ..running(pod, &Arc::new(shape("a", 100, 1)), &n1) });
    }
    let disks = disks_on(&store, &n1.name);
    assert_eq!((of(&disks, DISK_DRIVER), disks.len()), (vec!["a".to_owned(), "c".to_owned()], 1));
}

#[test]
fn drivers_keep_one_name_each() {
    assert_eq!(&*driver("kubernetes.io/azure-disk"), DISK_DRIVER);
    assert_eq!(&*driver("kubernetes.io/azure-file"), FILE_DRIVER);
    assert_eq!(&*driver("example.com/own"), "example.com/own");
    assert!(Arc::ptr_eq(&driver(DISK_DRIVER), &driver(DISK_DRIVER)));
}
