//! Held by example: one row for each thing that keeps a pod with volumes from a node.

use crate::kube_scheduler::{Cluster, Reason};
use k8s_openapi::serde::de::DeserializeOwned;
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const DISKS: &str = "disk.csi.azure.com";

fn wire<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// Nodes `a` and `b` in the zones 1 and 2, which take two disks each, with classes and claims.
fn two() -> Cluster {
    let mut cluster = Cluster::new(1);
    for (name, zone) in [("a", "1"), ("b", "2")] {
        cluster.add_node(&wire(json!({
            "metadata": { "name": name, "labels": { ZONE: zone } },
            "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } },
        })));
        let drivers = json!([{ "name": DISKS, "nodeID": name, "allocatable": { "count": 2 } }, { "name": "free", "nodeID": name }]);
        cluster.add_csi_node(&wire(json!({ "metadata": { "name": name }, "spec": { "drivers": drivers } })));
    }
    let in_two = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": ["2"] }] }]);
    for (name, mode, provisioner, topologies) in [
        ("disks", "WaitForFirstConsumer", DISKS, json!(null)),
        ("disks-in-2", "WaitForFirstConsumer", DISKS, in_two),
        ("free", "WaitForFirstConsumer", "free", json!(null)),
        ("eager", "Immediate", DISKS, json!(null)),
    ] {
        cluster.add_class(&wire(json!({
            "metadata": { "name": name }, "provisioner": provisioner,
            "volumeBindingMode": mode, "allowedTopologies": topologies,
        })));
    }
    for name in ["v1", "v2", "v3"] {
        let expression = json!({ "key": ZONE, "operator": "In", "values": ["1"] });
        let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [expression] }] } });
        let csi = json!({ "driver": DISKS, "volumeHandle": name });
        cluster.add_volume(&wire(
            json!({ "metadata": { "name": name }, "spec": { "csi": csi, "nodeAffinity": affinity } }),
        ));
        add_claim(&mut cluster, name, json!({ "volumeName": name }));
    }
    for (name, class) in
        [("new", "disks"), ("other", "disks"), ("in-2", "disks-in-2"), ("free", "free"), ("eager", "eager")]
    {
        add_claim(&mut cluster, name, json!({ "storageClassName": class }));
    }
    add_claim(&mut cluster, "one", json!({ "volumeName": "v3", "accessModes": ["ReadWriteOncePod"] }));
    cluster
}

fn add_claim(cluster: &mut Cluster, name: &str, spec: Value) {
    let annotations = json!({ "pv.kubernetes.io/bind-completed": "yes" });
    let metadata = json!({ "name": name, "namespace": "default", "annotations": annotations });
    cluster.add_claim(&wire(json!({ "metadata": metadata, "spec": spec })));
}

/// Claims of pods with the node of each.
type Bound<'r> = &'r [(&'r [&'r str], usize)];

/// Which of the two nodes do for a pod with these claims after pods with others were bound.
fn does(bound: Bound<'_>, claims: &[&str]) -> Vec<usize> {
    let mut cluster = two();
    for (claims, node) in bound {
        cluster.bind(&pod(claims), *node);
    }
    cluster.scores(&pod(claims)).into_iter().map(|(node, _)| node).collect()
}

fn pod(claims: &[&str]) -> k8s_openapi::api::core::v1::Pod {
    let volume = |claim: &&str| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let spec = json!({ "containers": [{ "name": "c" }], "volumes": volumes });
    wire(json!({ "metadata": { "name": "p", "namespace": "default" }, "spec": spec }))
}

#[test]
fn volumes_keep_pods_from_nodes() {
    let rows: [(&str, Bound<'_>, &[&str], &[usize]); 13] = [
        ("a volume of a zone", &[], &["v1"], &[0]),
        ("a disk that is still to be made", &[], &["new"], &[0, 1]),
        ("one that is to be made in some zones", &[], &["in-2"], &[1]),
        ("one of each", &[], &["v1", "in-2"], &[]),
        ("a class that does not wait", &[], &["eager"], &[]),
        ("a claim that is not there", &[], &["gone"], &[]),
        ("a disk that was made for a node", &[(&["new"], 1)], &["new"], &[1]),
        ("what is no disk is made for everywhere", &[(&["free"], 1)], &["free"], &[0, 1]),
        ("as many disks as a node takes", &[(&["v1", "v2"], 0)], &["new"], &[1]),
        ("a disk that is attached already", &[(&["v1", "v2"], 0)], &["v2"], &[0]),
        ("more at once than there is room for", &[], &["v1", "v2", "new"], &[]),
        ("volumes without a limit", &[(&["v1", "v2"], 0)], &["free"], &[0, 1]),
        ("disks that are still to be made count", &[(&["new", "other"], 0)], &["v1"], &[]),
    ];
    for (case, bound, claims, expected) in rows {
        assert_eq!(does(bound, claims), expected, "{case}");
    }
}

#[test]
fn a_claim_for_one_pod_is_for_one_pod() {
    assert_eq!(does(&[], &["one"]), [0]);
    let mut cluster = two();
    cluster.bind(&pod(&["one"]), 0);
    assert_eq!(cluster.schedule(&pod(&["one"])).unwrap_err(), [(Reason::VolumeInUse, 2)].into());
    assert_eq!(
        cluster.schedule(&pod(&["v3", "v1", "v2"])).unwrap_err(),
        [(Reason::VolumeLimit, 1), (Reason::Volume, 1)].into()
    );
}
