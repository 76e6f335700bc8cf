//! Random clusters for the checker: small numbers of everything that matters, mixed by a seed.

use crate::catalog::CapacityType;
use crate::fixtures::{
    Dice, GPU, claim, cluster, intent, managed, node, offering, pod, pool, put, requirements_in, running, shape,
    spread, start, zone,
};
use crate::model::cluster::pod::{
    HostPort, Pod, PodAffinity, PodOwner, PodShape, PodTerm, Preferences, Spread, Taint, TaintEffect, Toleration,
};
use crate::model::cluster::pool::{DaemonSet, NodePool};
use crate::model::labels;
use crate::model::names::Namespace;
use crate::snapshot::Snapshot;
use std::sync::Arc;

fn taint(key: &str) -> Taint {
    Taint { key: Arc::from(key), value: Arc::from(""), effect: TaintEffect::NoSchedule }
}

fn random_pool(dice: &mut Dice, name: &str) -> NodePool {
    let mut pool = pool(name);
    pool.weight = dice.pick(&[0, 0, 10]);
    pool.requirements = requirements_in(&[]);
    if dice.one_in(2) {
        pool.requirements.add_all(&requirements_in(&[(labels::ARCH, &["amd64"])]));
    }
    if dice.one_in(2) {
        let capacity_type = dice.pick(&["spot", "on-demand"]);
        pool.requirements.add_all(&requirements_in(&[(labels::CAPACITY_TYPE, &[capacity_type])]));
    }
    if dice.one_in(3) {
        let zone = zone(dice.pick(&[1, 2, 3]));
        pool.requirements.add_all(&requirements_in(&[(labels::ZONE, &[zone.as_str()])]));
    }
    if dice.one_in(4) {
        pool.taints.push(taint("dedicated"));
    }
    if dice.one_in(3) {
        pool.labels.insert(Arc::from("team"), Arc::from("ml"));
    }
    if dice.one_in(3) {
        pool.limits.resources.insert(Arc::from("cpu"), dice.pick(&[2_000, 8_000, 20_000]));
    }
    if dice.one_in(4) {
        pool.limits.resources.insert(Arc::from("memory"), dice.pick(&[16, 64]) << 30);
    }
    if dice.one_in(4) {
        pool.limits.nodes = Some(dice.pick(&[0, 1, 3]));
    }
    pool
}

fn random_shape(dice: &mut Dice, app: &str, alone: usize) -> PodShape {
    let mut shape = shape(app, dice.pick(&[100, 500, 900, 1500, 3000, 6000]), dice.pick(&[1, 2, 4, 12]));
    shape.priority = dice.pick(&[0, 0, 100]);
    if dice.one_in(5) {
        shape.selector.add_all(&requirements_in(&[(labels::ARCH, &[dice.pick(&["amd64", "arm64"])])]));
    }
    if dice.one_in(5) {
        shape.selector.add_all(&requirements_in(&[(labels::ZONE, &[zone(dice.pick(&[1, 2])).as_str()])]));
    }
    if dice.one_in(6) {
        shape.selector.add_all(&requirements_in(&[("team", &["ml"])]));
    }
    if dice.one_in(4) {
        let first = requirements_in(&[(labels::ZONE, &[zone(1).as_str()]), (labels::ARCH, &["arm64"])]);
        let second =
            requirements_in(&[(labels::ZONE, &[zone(2).as_str(), zone(3).as_str()]), (labels::ARCH, &["amd64"])]);
        shape.alternatives = vec![first, second];
    }
    if dice.one_in(3) {
        shape.tolerations.push(Toleration { key: Some(Arc::from("dedicated")), value: None, effect: None });
    }
    if dice.one_in(3) {
        // An app of its own: pods of another shape that are placed later may break its balance, which is no error.
        let app = format!("{app}-zonal-{alone}");
        shape.labels.insert(Arc::from("app"), Arc::from(app.as_str()));
        shape.spread.push(spread(labels::ZONE, &app, dice.pick(&[1, 2])));
    }
    if dice.one_in(4) {
        let app = shape.labels["app"].to_string();
        shape.spread.push(spread(labels::HOSTNAME, &app, dice.pick(&[1, 2])));
    }
    if dice.one_in(6) {
        shape.requests.set_extended(GPU, dice.pick(&[1, 2]));
    }
    if dice.one_in(3) {
        add_pod_constraints(dice, &mut shape);
    }
    shape
}

/// A term for pods of one app, on hosts or zones.
fn term(dice: &mut Dice, app: &str) -> PodTerm {
    let topology_key = labels::interned(dice.pick(&[labels::HOSTNAME, labels::ZONE]));
    let namespaces = [Namespace::new("default").unwrap()].into();
    PodTerm { topology_key, namespaces, namespace_selector: None, selector: requirements_in(&[("app", &[app])]) }
}

/// Preferred and required constraints on other pods, and a host port.
fn add_pod_constraints(dice: &mut Dice, shape: &mut PodShape) {
    let own = shape.labels["app"].to_string();
    let app = dice.pick(&[own.as_str(), own.as_str(), "app-0", "app-1"]);
    match dice.roll(5) {
        0 => shape.affinity = Some(Box::new(PodAffinity { near: vec![term(dice, app)], apart: Vec::new() })),
        1 => shape.affinity = Some(Box::new(PodAffinity { near: Vec::new(), apart: vec![term(dice, app)] })),
        2 => {
            let (near, apart) = (vec![(10, term(dice, app))], vec![(5, term(dice, &own))]);
            let node = vec![(1, requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]))];
            shape.preferences = Some(Box::new(Preferences { node, near, apart, spread: Vec::new() }));
        }
        3 => {
            let soft = Spread { min_domains: 2, ..spread(labels::ZONE, &own, 1) };
            shape.preferences = Some(Box::new(Preferences { spread: vec![soft], ..Preferences::default() }));
        }
        _ => shape.ports.push(HostPort { port: 80, protocol: Arc::from("TCP"), address: None }),
    }
}

fn put_nodes(dice: &mut Dice, snapshot: &mut Snapshot, shapes: &[Arc<PodShape>]) {
    for n in 0..dice.roll(5) {
        let mut node = node(&format!("node-{n}"), dice.pick(&[1, 2, 3]), dice.pick(&[2, 4, 8]));
        match dice.roll(8) {
            0 => node.cordoned = true,
            1 => node.ready = false,
            2 => node.taints.push(taint("dedicated")),
            3 => drop(node.labels.insert(Arc::from("team"), Arc::from("ml"))),
            _ => {}
        }
        for i in 0..dice.roll(3) {
            let shape = dice.pick(shapes);
            let mut pod = running(&format!("run-{n}-{i}"), &shape, &node);
            if dice.one_in(4) {
                pod.owner = PodOwner::DaemonSet;
            }
            snapshot.put_pod(pod);
        }
        snapshot.put_node(node);
    }
}

fn put_claims(dice: &mut Dice, snapshot: &mut Snapshot, pool: &NodePool) {
    const SIZES: [&str; 3] = ["Standard_D2s_v5", "Standard_D4s_v5", "Standard_D8s_v5"];
    for n in 0..dice.roll(4) {
        let capacity_type = dice.pick(&CapacityType::FOR_SALE);
        let (first, second) =
            (offering(dice.pick(&SIZES), 1, capacity_type), offering(dice.pick(&SIZES), 2, capacity_type));
        let name = format!("{}-{n}", pool.name);
        match dice.roll(3) {
            0 => snapshot.put_claim(claim(&name, pool, vec![first, second])),
            1 => {
                let mut claim = claim(&name, pool, vec![first.clone()]);
                claim.intent = Some(intent(&claim, first));
                snapshot.put_claim(claim);
            }
            _ => {
                let (mut claim, mut node) = managed(&name, pool, first);
                node.taints.clone_from(&pool.taints);
                if dice.one_in(4) {
                    claim.deleting_at = Some(start());
                }
                put(snapshot, (claim, node));
            }
        }
    }
}

/// A cluster and its waiting pods.
pub(super) fn random_cluster(seed: u64) -> (Snapshot, Vec<Arc<Pod>>) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let pools: Vec<NodePool> = (0..=dice.roll(3)).map(|n| random_pool(&mut dice, &format!("pool-{n}"))).collect();
    let mut snapshot = cluster(pools.iter().cloned());
    if dice.one_in(2) {
        let daemon = Arc::new(shape("daemon", 150, 1));
        snapshot.put_daemon_set(pod("daemon", &daemon).key, DaemonSet { shape: daemon });
    }
    let shapes: Vec<Arc<PodShape>> =
        (0..=dice.roll(5)).map(|n| Arc::new(random_shape(&mut dice, &format!("app-{}", n / 2), n))).collect();
    put_nodes(&mut dice, &mut snapshot, &shapes);
    put_claims(&mut dice, &mut snapshot, &pools[0]);
    let mut waiting = Vec::new();
    for (s, shape) in shapes.iter().enumerate() {
        for i in 0..dice.roll(8) {
            let pod = Arc::new(pod(&format!("wait-{s}-{i}"), shape));
            snapshot.put_pod(Arc::clone(&pod));
            waiting.push(pod);
        }
    }
    (snapshot, waiting)
}
