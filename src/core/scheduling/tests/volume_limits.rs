//! Volumes as kube-scheduler counts them: each once on a node, by driver, however many pods have it.

use crate::fixtures::{Dice, bound_claim};
use crate::model::cluster::volume::{
    AttachLimits, DISK_DRIVER, ReclaimPolicy, StorageClass, Volume, VolumeClaim, driver,
};
use crate::model::names::{Namespace, NodeName, ObjectKey, ObjectName, Uid};
use crate::scheduling::tests::*;
use crate::snapshot::volume_needs::VolumeTrouble;

/// A driver that is not of Azure's disks.
const OTHER: &str = "other.example.com";
const D2: &str = "Standard_D2s_v5";

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn key(text: &str) -> ObjectKey {
    ObjectKey { namespace: Namespace::new("default").unwrap(), name: name(text) }
}

fn small() -> NodePool {
    NodePool { requirements: requirements_in(&[(labels::INSTANCE_TYPE, &[D2])]), ..pool("small") }
}

/// How many data disks a node of the pool takes.
fn max_disks_of_a_new_node(snapshot: &Snapshot) -> usize {
    let types = &snapshot.instance_types[&crate::fixtures::class().name];
    types.iter().find(|t| t.facts.name.as_str() == D2).unwrap().facts.max_data_disks as usize
}

/// A claim that is still to be made by a class of this driver, or bound to a volume of it that can be used anywhere.
fn put_claim(snapshot: &mut Snapshot, claim: &str, by: &str, bound: bool) {
    let class = StorageClass {
        name: name(by),
        provisioner: driver(by),
        waits_for_pod: true,
        topologies: Vec::new(),
        is_default: false,
    };
    snapshot.put_storage_class(class.name.clone(), class);
    let volume = Volume {
        name: name(claim),
        uid: Uid::new(claim).unwrap(),
        handle: None,
        reclaim: ReclaimPolicy::Delete,
        claim: Some(key(claim)),
        affinity: Vec::new(),
        driver: Some(driver(by)),
        deleting: false,
    };
    snapshot.put_volume(volume.name.clone(), volume);
    let volume = bound.then(|| name(claim));
    let claim = VolumeClaim { volume, bound, class: Some(name(by)), ..bound_claim(&key(claim), &name(claim)) };
    snapshot.put_volume_claim(claim.key.clone(), claim);
}

fn put_limits(snapshot: &mut Snapshot, node: &str, limits: &[(&str, u32)]) {
    let node = NodeName::new(node).unwrap();
    let limits = limits.iter().map(|(by, limit)| (driver(by), *limit)).collect();
    snapshot.put_attach_limits(node.clone(), AttachLimits { node, limits });
}

fn with(pod: Pod, claims: &[&str]) -> Pod {
    Pod { volumes: claims.iter().map(|claim| name(claim)).collect(), ..pod }
}

/// A pending pod with these claims and minimal requests.
fn waiting(pod_name: &str, claims: &[&str]) -> Arc<Pod> {
    Arc::new(with(pod(pod_name, &Arc::new(shape("a", 10, 0))), claims))
}

fn on_node(outcome: &SchedulingResult, node: &str) -> usize {
    let node = Target::Node(NodeName::new(node).unwrap());
    outcome.targets().get(&node).copied().unwrap_or(0)
}

#[test]
fn a_volume_that_several_pods_have_is_attached_once() {
    let mut snapshot = cluster([small()]);
    let most = max_disks_of_a_new_node(&snapshot);
    put_claim(&mut snapshot, "shared", DISK_DRIVER, true);
    let mut all: Vec<Arc<Pod>> = (0..9).map(|n| waiting(&format!("s-{n}"), &["shared"])).collect();
    for n in 1..most {
        put_claim(&mut snapshot, &format!("own-{n}"), DISK_DRIVER, true);
        all.push(waiting(&format!("o-{n}"), &["shared", &format!("own-{n}")]));
    }
    let outcome = solve(&snapshot, &all);
    assert_eq!((outcome.unschedulable_pods(), outcome.new_nodes.len()), (0, 1), "{most} disks in all");
    put_claim(&mut snapshot, "beyond", DISK_DRIVER, true);
    all.push(waiting("beyond", &["beyond"]));
    assert_eq!(solve(&snapshot, &all).new_nodes.len(), 2, "one disk more than a node takes");

    // A node at its limit takes pods whose disk is attached already.
    let old = node("old", 1, 2);
    snapshot.put_node(old.clone());
    put_limits(&mut snapshot, "old", &[(DISK_DRIVER, 1)]);
    snapshot.put_pod(with(running("r", &Arc::new(shape("a", 10, 0)), &old), &["shared"]));
    let outcome = solve(&snapshot, &all);
    assert_eq!(on_node(&outcome, "old"), 9, "{outcome:?}");
    assert_eq!(outcome.unschedulable_pods(), 0);
}

#[test]
fn each_driver_has_its_limit_on_a_node_that_exists_and_the_least_of_them_on_another() {
    let mut snapshot = cluster([small()]);
    for n in 0..12 {
        put_claim(&mut snapshot, &format!("c-{n}"), OTHER, n % 2 == 0);
    }
    let all: Vec<Arc<Pod>> = (0..12).map(|n| waiting(&format!("p-{n}"), &[&format!("c-{n}")])).collect();
    assert_eq!(solve(&snapshot, &all).new_nodes.len(), 1, "where no node names a limit there is none");
    let old = node("old", 1, 2);
    snapshot.put_node(old.clone());
    put_claim(&mut snapshot, "there", OTHER, true);
    snapshot.put_pod(with(running("r", &Arc::new(shape("a", 10, 0)), &old), &["there"]));
    put_limits(&mut snapshot, "old", &[(OTHER, 4)]);
    put_limits(&mut snapshot, "gone", &[(OTHER, 5), (DISK_DRIVER, 1)]);
    let outcome = solve(&snapshot, &all);
    let sizes: Vec<usize> = outcome.new_nodes.iter().map(|node| node.pods.len()).collect();
    assert_eq!((on_node(&outcome, "old"), outcome.unschedulable_pods(), sizes), (3, 0, vec![4, 4, 1]));
    let six: Vec<String> = (0..6).map(|n| format!("c-{n}")).collect();
    let greedy = waiting("greedy", &six.iter().map(String::as_str).collect::<Vec<_>>());
    let outcome = solve(&snapshot, &[greedy]);
    let too_many = UnschedulableReason::VolumeLimit { driver: driver(OTHER), requested: 6, limit: 4 };
    assert_eq!(outcome.unschedulable[0].reasons, [(None, too_many)]);
}

#[test]
fn a_claim_in_flight_counts_pods_on_its_node() {
    let small = small();
    let mut snapshot = cluster([small.clone()]);
    let most = max_disks_of_a_new_node(&snapshot);
    let (claim, node) = crate::fixtures::managed("small-a", &small, offering(D2, 1, Spot));
    let claim = crate::model::cluster::claim::Claim {
        status: crate::model::cluster::claim::ClaimStatus { initialized: None, ..claim.status.clone() },
        ..claim
    };
    let in_flight = Target::Claim(claim.name.clone());
    snapshot.put_claim(claim);
    snapshot.put_node(node.clone());
    put_claim(&mut snapshot, "there", DISK_DRIVER, true);
    snapshot.put_pod(with(running("r", &Arc::new(shape("a", 10, 0)), &node), &["there"]));
    let mut all = vec![waiting("same", &["there"])];
    for n in 0..most {
        put_claim(&mut snapshot, &format!("c-{n}"), DISK_DRIVER, true);
        all.push(waiting(&format!("p-{n}"), &[&format!("c-{n}")]));
    }
    let outcome = solve(&snapshot, &all);
    assert_eq!((outcome.targets()[&in_flight], outcome.new_nodes.len()), (most, 1), "{outcome:?}");
}

#[test]
fn pods_that_share_a_disk_which_is_still_to_be_made_stay_in_its_zone() {
    let apart =
        crate::model::cluster::pod::PodShape { spread: vec![spread(labels::HOSTNAME, "a", 1)], ..shape("a", 10, 0) };
    let apart = Arc::new(apart);
    let mut snapshot = cluster([small()]);
    put_claim(&mut snapshot, "shared", DISK_DRIVER, false);
    let pods: Vec<Arc<Pod>> = (0..3).map(|n| Arc::new(with(pod(&format!("p-{n}"), &apart), &["shared"]))).collect();
    let mut elsewhere = shape("b", 10, 0);
    elsewhere.selector = requirements_in(&[(labels::ZONE, &[zone(3).as_str()])]);
    elsewhere.priority = 1;
    let first = Arc::new(with(pod("first", &Arc::new(elsewhere)), &["shared"]));
    let outcome = solve(&snapshot, &[pods, vec![Arc::clone(&first)]].concat());
    assert_eq!((outcome.unschedulable_pods(), by_zone(&outcome)), (0, [(zone(3).to_string(), 4)].into()));
    // A pod that is not allowed in that zone remains pending, with the reason.
    let mut astray = shape("c", 10, 0);
    astray.selector = requirements_in(&[(labels::ZONE, &[zone(2).as_str()])]);
    let astray = Arc::new(with(pod("astray", &Arc::new(astray)), &["shared"]));
    let outcome = solve(&snapshot, &[first, astray]);
    assert_eq!(outcome.unschedulable[0].reasons, [(None, UnschedulableReason::SharedVolume)]);
}

#[test]
fn a_claim_for_one_pod_keeps_all_others_waiting() {
    let mut snapshot = cluster([small()]);
    put_claim(&mut snapshot, "one", DISK_DRIVER, true);
    let claim =
        VolumeClaim { for_one_pod: true, ..VolumeClaim::clone(snapshot.volume_claims().get(&key("one")).unwrap()) };
    snapshot.put_volume_claim(claim.key.clone(), claim);
    let prior = Pod {
        shape: Arc::new(crate::model::cluster::pod::PodShape { priority: 1, ..shape("a", 10, 0) }),
        ..Pod::clone(&waiting("z", &["one"]))
    };
    let all = [waiting("a", &["one"]), Arc::new(prior)];
    let refused = |snapshot: &Snapshot| -> Vec<(String, UnschedulableReason)> {
        let outcome = solve(snapshot, &all);
        let all = outcome.unschedulable.iter().flat_map(|u| u.pods.iter().map(|pod| (pod, u.reasons[0].1.clone())));
        let refused = all.map(|(pod, reason)| (pod.key.name.to_string(), reason));
        refused.collect()
    };
    let in_use = |holder: &str| UnschedulableReason::Volume(VolumeTrouble::InUse(key("one"), key(holder)));
    assert_eq!(refused(&snapshot), [("a".to_owned(), in_use("z"))]);
    let old = node("old", 1, 2);
    snapshot.put_pod(with(running("r", &Arc::new(shape("a", 10, 0)), &old), &["one"]));
    assert_eq!(refused(&snapshot), [("a".to_owned(), in_use("r")), ("z".to_owned(), in_use("r"))]);
}

/// Nodes, limits, claims and pods at random.
fn random_cluster(dice: &mut Dice) -> (Snapshot, Vec<Arc<Pod>>) {
    let mut snapshot = cluster([pool("general"), small()]);
    let claims: Vec<String> = (0..2 + dice.roll(12)).map(|n| format!("c-{n}")).collect();
    for claim in &claims {
        let by = [DISK_DRIVER, DISK_DRIVER, OTHER, "free.example.com"][dice.roll(4)];
        put_claim(&mut snapshot, claim, by, dice.roll(3) > 0);
    }
    let draw = |dice: &mut Dice| -> Vec<ObjectName> {
        let drawn: BTreeSet<&String> = (0..dice.roll(4)).map(|_| &claims[dice.roll(claims.len())]).collect();
        drawn.into_iter().map(|claim| name(claim)).collect()
    };
    for n in 0..dice.roll(4) {
        let old = node(&format!("old-{n}"), 1 + n as u8 % 3, 2);
        snapshot.put_node(old.clone());
        put_limits(
            &mut snapshot,
            old.name.as_str(),
            &[(DISK_DRIVER, dice.roll(5) as u32), (OTHER, 1 + dice.roll(4) as u32)],
        );
        for i in 0..dice.roll(3) {
            // Running pods have existing volumes.
            let volumes = draw(dice)
                .into_iter()
                .filter(|claim| snapshot.volume_claims().get(&key(claim.as_str())).unwrap().bound);
            let volumes = volumes.collect();
            snapshot.put_pod(Pod { volumes, ..running(&format!("r-{n}-{i}"), &Arc::new(shape("r", 10, 0)), &old) });
        }
    }
    let pods = (0..1 + dice.roll(20)).map(|n| {
        let minimal = Arc::new(shape("a", [10, 10, 900][dice.roll(3)], 0));
        Arc::new(Pod { volumes: draw(dice), ..pod(&format!("p-{n}"), &minimal) })
    });
    let pods: Vec<Arc<Pod>> = pods.collect();
    pods.iter().for_each(|pod| snapshot.put_pod(Arc::clone(pod)));
    (snapshot, pods)
}

/// The attached volumes of these pods, by driver.
fn attached<'p>(snapshot: &Snapshot, pods: impl Iterator<Item = &'p Arc<Pod>>) -> BTreeMap<String, BTreeSet<String>> {
    let mut attached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for claim in pods.flat_map(|pod| &pod.volumes) {
        let class = snapshot.volume_claims().get(&key(claim.as_str())).unwrap().class.clone().unwrap();
        attached.entry(class.to_string()).or_default().insert(claim.to_string());
    }
    attached
}

/// Volume limits of a target, and its running pods.
struct VolumeCapacity {
    disks: Option<usize>,
    others: Option<usize>,
    zone: Option<String>,
    running: Vec<Arc<Pod>>,
}

fn volume_capacity(snapshot: &Snapshot, outcome: &SchedulingResult, target: &Target) -> VolumeCapacity {
    match target {
        Target::Node(name) => {
            let runs = snapshot.pods().values().filter(|pod| pod.node.as_ref() == Some(name));
            let running: Vec<Arc<Pod>> = runs.cloned().collect();
            let before = attached(snapshot, running.iter());
            // Volumes beyond the limit may remain attached.
            let most = |by: &str| {
                let limit = snapshot.attach_limits().get(name).unwrap().of(by)?;
                Some((limit as usize).max(before.get(by).map_or(0, BTreeSet::len)))
            };
            let zone = snapshot.nodes().get(name).unwrap().labels[labels::ZONE].to_string();
            VolumeCapacity { disks: most(DISK_DRIVER), others: most(OTHER), zone: Some(zone), running }
        }
        Target::New(n) => {
            let types = &snapshot.instance_types[&crate::fixtures::class().name];
            let node = &outcome.new_nodes[*n];
            let sizes = types.iter().filter(|t| node.offerings.iter().any(|o| o.key.size == t.facts.name));
            let disks = sizes.map(|t| t.facts.max_data_disks as usize).min();
            let others = snapshot.attach_limits().values().filter_map(|limits| limits.of(OTHER)).min();
            let zone = node.zone().map(|zone| zone.to_string());
            VolumeCapacity { disks, others: others.map(|most| most as usize), zone, running: Vec::new() }
        }
        Target::Claim(_) => unreachable!(),
    }
}

#[test]
fn no_node_has_more_volumes_than_it_takes() {
    let mut placed_in_all = 0;
    for seed in 0..300 {
        let (snapshot, pods) = random_cluster(&mut Dice(seed * 7 + 1));
        let outcome = solve(&snapshot, &pods);
        placed_in_all += outcome.placements.len();
        let of = |key: &ObjectKey| pods.iter().find(|pod| pod.key == *key).unwrap();
        let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for target in outcome.targets().keys() {
            let capacity = volume_capacity(&snapshot, &outcome, target);
            let placed = outcome.placements.iter().filter(|p| p.target == **target).map(|p| of(&p.pod));
            let found = attached(&snapshot, placed.clone().chain(&capacity.running));
            let count = |by: &str| found.get(by).map_or(0, BTreeSet::len);
            assert!(capacity.disks.is_none_or(|most| count(DISK_DRIVER) <= most), "seed {seed}: {target:?} {found:?}");
            assert!(capacity.others.is_none_or(|most| count(OTHER) <= most), "seed {seed}: {target:?} {found:?}");
            for claim in placed.flat_map(|pod| &pod.volumes) {
                let claim = snapshot.volume_claims().get(&key(claim.as_str())).unwrap();
                let users = pods.iter().filter(|pod| pod.volumes.contains(&claim.key.name)).count();
                if users > 1 && !claim.bound && claim.class == Some(name(DISK_DRIVER)) {
                    let zone = capacity.zone.clone().expect("the zone of a shared disk that is not provisioned");
                    zones.entry(claim.key.to_string()).or_default().insert(zone);
                }
            }
        }
        assert!(zones.values().all(|zones| zones.len() == 1), "seed {seed}: {zones:?}");
        for (_, reason) in outcome.unschedulable.iter().flat_map(|unplaced| &unplaced.reasons) {
            assert!(
                matches!(reason, UnschedulableReason::VolumeLimit { .. } | UnschedulableReason::SharedVolume),
                "seed {seed}: {reason}"
            );
        }
    }
    assert!(placed_in_all > 2_000, "{placed_in_all}");
}
