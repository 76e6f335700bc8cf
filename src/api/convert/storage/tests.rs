//! Tests of volumes, claims, classes and what nodes take: where each can be used, and by which driver.

use crate::convert::{attach_limits, namespace, storage_class, volume, volume_claim};
use napkeeper_core::model::cluster::volume::{DISK_DRIVER, FILE_DRIVER};
use serde_json::{Value, json};

fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn term(pairs: &[(&str, &[&str])]) -> Value {
    let list: Vec<Value> =
        pairs.iter().map(|(key, values)| json!({ "key": key, "operator": "In", "values": values })).collect();
    json!({ "matchExpressions": list })
}

const DRIVER_ZONE: &str = "topology.disk.csi.azure.com/zone";
const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

#[test]
fn a_volume_can_be_used_where_one_of_its_terms_holds() {
    let rows = [
        ("anywhere", json!({}), vec![], vec![]),
        (
            "the driver's zone",
            json!({}),
            vec![term(&[(DRIVER_ZONE, &["w-1"])])],
            vec!["topology.kubernetes.io/zone In [w-1]"],
        ),
        ("no zone", json!({}), vec![term(&[(DRIVER_ZONE, &[""])])], vec!["topology.kubernetes.io/zone In [0]"]),
        (
            "the zone of old",
            json!({}),
            vec![term(&[(OLD_ZONE, &["w-1"])])],
            vec!["topology.kubernetes.io/zone In [w-1]"],
        ),
        (
            "one of several zones",
            json!({}),
            vec![term(&[(DRIVER_ZONE, &["w-1"])]), term(&[(DRIVER_ZONE, &["w-2"])]), term(&[(DRIVER_ZONE, &[""])])],
            vec!["topology.kubernetes.io/zone In [0 w-1 w-2]"],
        ),
        (
            "alternatives",
            json!({}),
            vec![term(&[("rack", &["a"]), (DRIVER_ZONE, &["w-1"])]), term(&[("rack", &["b"])])],
            vec!["rack In [a], topology.kubernetes.io/zone In [w-1]", "rack In [b]"],
        ),
        ("a path of a node", json!({ "hostPath": { "path": "/a" } }), vec![term(&[(HOST, &["n"])])], vec![]),
        (
            "a disk of a node, in a rack",
            json!({ "local": { "path": "/a" } }),
            vec![term(&[(HOST, &["n"]), ("rack", &["a"])])],
            vec!["rack In [a]"],
        ),
        (
            "tied to a host all the same",
            json!({}),
            vec![term(&[(HOST, &["n"])])],
            vec!["kubernetes.io/hostname In [n]"],
        ),
    ];
    for (case, mut spec, terms, expected) in rows {
        if !terms.is_empty() {
            spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
        }
        let volume = volume(&wire(json!({ "metadata": { "name": "v", "uid": "u" }, "spec": spec }))).unwrap();
        let found: Vec<String> = volume.affinity.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn every_volume_has_its_driver() {
    let rows = [
        (json!({ "csi": { "driver": DISK_DRIVER, "volumeHandle": "h" } }), Some(DISK_DRIVER)),
        (json!({ "csi": { "driver": "example.com/own", "volumeHandle": "h" } }), Some("example.com/own")),
        (json!({ "azureDisk": { "diskName": "d", "diskURI": "u" } }), Some(DISK_DRIVER)),
        (json!({ "azureFile": { "secretName": "s", "shareName": "s" } }), Some(FILE_DRIVER)),
        (json!({ "nfs": { "path": "/", "server": "s" } }), None),
    ];
    for (spec, driver) in rows {
        let volume = volume(&wire(json!({ "metadata": { "name": "v", "uid": "u" }, "spec": spec }))).unwrap();
        assert_eq!((volume.driver.as_deref(), volume.deleting), (driver, false), "{spec}");
    }
    let going = json!({ "name": "v", "uid": "u", "deletionTimestamp": "2026-11-21T08:00:00Z" });
    assert!(volume(&wire(json!({ "metadata": going, "spec": {} }))).unwrap().deleting);
}

#[test]
fn a_claim_has_the_state_of_its_binding() {
    let claim = |annotations: Value, spec: Value, status: Value| {
        let metadata = json!({ "name": "c", "namespace": "x", "uid": "u", "annotations": annotations });
        volume_claim(&wire(json!({ "metadata": metadata, "spec": spec, "status": status })))
    };
    let modes = json!(["ReadWriteOnce"]);
    let free =
        claim(json!({}), json!({ "storageClassName": "fast", "accessModes": modes }), json!({ "phase": "Pending" }))
            .unwrap();
    assert_eq!((free.volume, free.bound, free.lost, free.selected_node), (None, false, false, None));
    assert_eq!((free.class.as_ref().unwrap().as_str(), free.uid.as_str(), free.for_one_pod), ("fast", "u", false));
    let selected = claim(json!({ "volume.kubernetes.io/selected-node": "n" }), json!({}), json!({})).unwrap();
    assert_eq!((selected.selected_node.unwrap().as_str(), selected.class), ("n", None));
    let bound = json!({ "pv.kubernetes.io/bind-completed": "yes" });
    let lost = claim(bound, json!({ "volumeName": "v" }), json!({ "phase": "Lost" })).unwrap();
    assert_eq!((lost.volume.unwrap().as_str(), lost.bound, lost.lost), ("v", true, true));
    let old = json!({ "volume.beta.kubernetes.io/storage-class": "old" });
    let old = claim(old, json!({ "storageClassName": "fast" }), json!({})).unwrap();
    assert_eq!(old.class.unwrap().as_str(), "old");
    let one = claim(json!({}), json!({ "accessModes": ["ReadWriteOncePod"] }), json!({})).unwrap();
    assert!(one.for_one_pod);
    let wrong = claim(json!({ "volume.kubernetes.io/selected-node": "Not OK" }), json!({}), json!({})).unwrap_err();
    assert!(wrong.to_string().contains("selected-node"), "{wrong}");
}

#[test]
fn a_class_has_the_topology_of_its_volumes() {
    let class = |annotations: Value, more: Value| {
        let mut object = json!({ "metadata": { "name": "c", "annotations": annotations }, "provisioner": "kubernetes.io/azure-disk" });
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        storage_class(&wire(object)).unwrap()
    };
    let zone = |key: &str, zone: &str| json!({ "matchLabelExpressions": [{ "key": key, "values": [zone] }] });
    let plain = class(json!({}), json!({}));
    assert_eq!((&*plain.provisioner, plain.waits_for_pod, plain.is_default), (DISK_DRIVER, false, false));
    assert!(plain.topologies.is_empty());
    let default = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    assert!(class(default, json!({ "volumeBindingMode": "Immediate" })).is_default);
    let rows = [
        (vec![zone(DRIVER_ZONE, "w-1"), zone(OLD_ZONE, "w-2")], vec!["topology.kubernetes.io/zone In [w-1 w-2]"]),
        (vec![zone("rack", "a"), zone(OLD_ZONE, "w-2")], vec!["rack In [a]", "topology.kubernetes.io/zone In [w-2]"]),
    ];
    for (terms, expected) in rows {
        let waits = json!({ "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": terms });
        let class = class(json!({}), waits);
        let found: Vec<String> = class.topologies.iter().map(ToString::to_string).collect();
        assert_eq!((class.waits_for_pod, found), (true, expected.iter().map(ToString::to_string).collect()));
    }
}

#[test]
fn a_node_takes_so_many_volumes_of_each_driver_that_names_a_limit() {
    let driver = |name: &str, allocatable: Value| json!({ "name": name, "nodeID": "n", "topologyKeys": [], "allocatable": allocatable });
    let limits =
        |drivers: Value| attach_limits(&wire(json!({ "metadata": { "name": "n" }, "spec": { "drivers": drivers } })));
    let node = limits(json!([driver(FILE_DRIVER, json!(null)), driver(DISK_DRIVER, json!({ "count": 8 }))])).unwrap();
    assert_eq!((node.node.as_str(), node.of(DISK_DRIVER), node.of(FILE_DRIVER)), ("n", Some(8), None));
    let wrong = limits(json!([driver(DISK_DRIVER, json!({ "count": -1 }))])).unwrap_err();
    assert_eq!(wrong.0[0].path.to_string(), "spec.drivers[0].allocatable.count");
}

#[test]
fn a_namespace_is_selected_by_its_labels_and_its_name() {
    let (name, labels) = namespace(&wire(json!({ "name": "x", "labels": { "team": "a" } }))).unwrap();
    assert_eq!(name.as_str(), "x");
    let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(labels, [("kubernetes.io/metadata.name", "x"), ("team", "a")]);
}
