//! Replacements that are to be replaced again for the same cause.

use super::*;
use crate::world::{InjectedFault, NodeFault, OtherImage};
use napkeeper_core::catalog::overlay::{Overlay, PriceAdjustment};
use napkeeper_core::model::cluster::status::{ConditionType, StatusCondition};

fn other_image(pool: &str, version: &str, allocatable_permille: i64) -> Action {
    let pool = NodePoolName::new(pool).unwrap();
    let image = OtherImage { pool, kubelet_version: Arc::from(version), allocatable_permille };
    Action::InjectFault(InjectedFault::Nodes(NodeFault::OtherImage(image)))
}

/// A Deployment of so many pods with so many thousandths of a core, which run on the nodes of one NodePool.
fn of_pool(pool: &str, (name, replicas, cpu_millis): (&str, u32, i64)) -> (ObjectKey, Workload) {
    let (key, mut workload) = mk_deployment(name, replicas, cpu_millis, 512);
    let mut shape = PodShape::clone(&workload.template.shape);
    shape.selector.add_entry(labels::NODEPOOL, Operator::In, &[pool]).unwrap();
    workload.template = PodTemplate::new(shape);
    (key, workload)
}

/// After an upgrade the nodes of one NodePool still come up with the old version, as all did in
/// <https://github.com/Azure/AKS/issues/5899>. Those of another of the same AKSNodeClass, which comes and goes every 20 minutes,
/// have the new one: without them nothing would be replaced.
fn version_that_new_nodes_do_not_get(seed: u64) -> WorldSetup {
    let mut setup = mk_start(seed);
    let mut general = mk_pool("general", 10, &["on-demand"], 100);
    general.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D4s_v5"]).unwrap();
    let mut burst = mk_pool("burst", 20, &["on-demand"], 100);
    burst.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &["Standard_D32s_v5"]).unwrap();
    setup.manifests.pools = vec![general, burst];
    setup.manifests.workloads = vec![of_pool("general", ("web", 6, 1500)), of_pool("burst", ("batch", 0, 30_000))];
    setup.actions = vec![
        after(30, other_image("general", "v1.33.0", 1_000)),
        after(60, Action::UpgradeKubernetes { version: Arc::from("v1.34.1"), new_nodes: true }),
    ];
    for n in 0..60 {
        setup.actions.push(after(70 + 20 * n, Action::Scale { workload: key("batch"), replicas: 1 }));
        setup.actions.push(after(78 + 20 * n, Action::Scale { workload: key("batch"), replicas: 0 }));
    }
    setup
}

/// What is cheapest changes every 40 minutes, and nodes of two sizes are replaced by each other, one for one. This is no incident that
/// is known: in those of consolidation nodes were merged, or deleted and launched again for pods.
fn sizes_that_take_turns(seed: u64) -> WorldSetup {
    let mut setup = mk_start(seed);
    let mut general = mk_pool("general", 10, &["on-demand"], 100);
    general.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &SIZES).unwrap();
    setup.manifests.pools = vec![general];
    setup.manifests.workloads = vec![mk_deployment("web", 2, 600, 512)];
    setup
}

const SIZES: [&str; 2] = ["Standard_D4s_v5", "Standard_D4as_v5"];

/// Lets time pass. Without records nobody can know of a loop: then it goes on for ever.
fn advance(world: &mut World, until: Timestamp, with_records: bool) {
    while world.now() < until {
        let minute = if with_records { until } else { until.min(world.now() + SignedDuration::from_mins(1)) };
        if let Err(violation) = world.run_until(minute) {
            print(world);
            panic!("{violation}");
        }
        if !with_records {
            claims(world).iter().for_each(|name| world.cluster.remove_replacement(name, minute));
        }
    }
}

/// So many hours of a world in which the price of one size after the other is reduced for 40 minutes.
fn run_with_changing_prices(setup: WorldSetup, hours: i64, with_records: bool) -> World {
    let mut world = World::new(catalog(), setup).unwrap();
    let end = world.now() + SignedDuration::from_hours(hours);
    for size in SIZES.iter().cycle() {
        let mut requirements = Requirements::new();
        requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &[size]).unwrap();
        world.cluster.apply_overlay(Overlay {
            name: ObjectName::new("reduced").unwrap(),
            uid: Uid::new("reduced").unwrap(),
            weight: 1,
            requirements,
            price: Some(PriceAdjustment::parse_adjustment("-70%").unwrap()),
            capacity: BTreeMap::new(),
            generation: 1,
            conditions: Default::default(),
        });
        let until = end.min(world.now() + SignedDuration::from_mins(40));
        advance(&mut world, until, with_records);
        if until == end {
            break;
        }
    }
    world
}

/// The longest row of replacements of any NodeClaim.
fn longest_row(world: &World) -> u32 {
    let claims = world.cluster().state().claims().values();
    claims.filter_map(|claim| Some(claim.spec.replacement.as_ref()?.count(claim))).max().unwrap_or(0)
}

fn condition(world: &World) -> Option<StatusCondition> {
    condition_of(world, "general")
}

fn condition_of(world: &World, pool: &str) -> Option<StatusCondition> {
    let pool = world.cluster().state().pools().get(&NodePoolName::new(pool).unwrap()).unwrap();
    pool.status.conditions.get(ConditionType::ReplacementsEffective).cloned()
}

/// When nodes of `general` were disrupted, for a reason that begins with these words.
fn disruptions(world: &World, words: &str) -> Vec<Timestamp> {
    let is_one = |e: &&crate::world::TimelineEntry| {
        e.kind == EventKind::Disrupt && e.subject.starts_with("general") && e.text.starts_with(words)
    };
    world.timeline().iter().filter(is_one).map(|e| e.at).collect()
}

#[test]
fn a_version_that_new_nodes_do_not_get_is_tried_ever_less_often_until_they_get_it() {
    let mut setup = version_that_new_nodes_do_not_get(0);
    let fixed_after = 14 * 60;
    setup.actions.push(after(fixed_after, other_image("general", "v1.34.1", 1_000)));
    let mut world = World::new(catalog(), setup).unwrap();
    let start = world.now();
    world.run_until(start + SignedDuration::from_mins(fixed_after)).unwrap();
    let tried = disruptions(&world, "drifted");
    if !(4..=8).contains(&tried.len()) {
        print(&world);
    }
    // 30 min, 1 h, 2 h, 4 h after the creation of the one before.
    assert!((4..=8).contains(&tried.len()), "{tried:?}");
    let last = tried.windows(2).map(|pair| pair[1].duration_since(pair[0])).next_back().unwrap();
    assert!(last > SignedDuration::from_hours(3), "{tried:?}");
    let told = condition(&world).unwrap();
    assert_eq!((told.holds, &*told.reason), (false, "ReplacementLoop"));
    let words = " replacements in a row without effect, for the same cause: Drifted";
    assert!(told.message.contains(words), "{told:?}");
    world.run_until(start + SignedDuration::from_hours(44)).unwrap();
    let old = drift::nodes(&world).iter().filter(|node| node.kubelet_version.as_deref() != Some("v1.34.1")).count();
    assert_eq!(old, 0, "the cause is gone, and nodes follow");
    assert_eq!(condition(&world).map(|told| (told.holds, told.reason)), Some((true, Arc::from("LoopEnded"))));
}

#[test]
fn sizes_that_take_turns_are_traded_ever_less_often() {
    let world = run_with_changing_prices(sizes_that_take_turns(0), 14, true);
    let moved = disruptions(&world, "underutilized");
    if !(4..=9).contains(&moved.len()) {
        print(&world);
    }
    assert!((4..=9).contains(&moved.len()), "{moved:?}");
    assert!(condition(&world).is_some_and(|told| !told.holds && &*told.reason == "ReplacementLoop"));
}

#[test]
fn without_records_all_of_this_goes_on_for_ever() {
    let mut world = World::new(catalog(), version_that_new_nodes_do_not_get(0)).unwrap();
    let end = world.now() + SignedDuration::from_hours(14);
    advance(&mut world, end, false);
    let tried = disruptions(&world, "drifted").len();
    let moved = disruptions(&run_with_changing_prices(sizes_that_take_turns(0), 14, false), "underutilized").len();
    assert!(tried > 30 && moved > 15, "{tried} and {moved} replacements");
}

/// The controller crashes every half hour.
#[test]
fn a_loop_is_known_after_a_restart() {
    let mut setup = version_that_new_nodes_do_not_get(0);
    setup
        .actions
        .extend((1..28).map(|n| after(30 * n, Action::Crash { duration: SignedDuration::from_secs(20), write: None })));
    let world = run(setup, 14);
    let tried = disruptions(&world, "drifted");
    assert!((4..=8).contains(&tried.len()), "{tried:?}");
}

/// A dozen commits a day roll all nodes, load comes and goes, and nodes expire after six hours.
#[test]
fn rolls_expiry_and_load_are_no_loops() {
    for seed in 0..3 {
        let mut setup = drift::relabelled(seed);
        setup.manifests.pools[0].expire_after = Some(SignedDuration::from_hours(6));
        setup.actions.clear();
        for n in 0..12 {
            let value = Arc::from(format!("commit-{n}"));
            let pool = NodePoolName::new("general-purpose").unwrap();
            setup.actions.push(after(60 + 110 * n, Action::LabelPool { pool, label: Arc::from("team"), value }));
            let replicas = if n % 2 == 0 { 12 } else { 20 };
            setup.actions.push(after(100 + 110 * n, Action::Scale { workload: key("web"), replicas }));
        }
        let mut world = World::new(catalog(), setup).unwrap();
        let start = world.now();
        for quarter in 1..=96 {
            world.run_until(start + SignedDuration::from_mins(15 * quarter)).unwrap();
            assert!(longest_row(&world) < 2, "seed {seed}, quarter {quarter}");
        }
        assert_eq!(condition_of(&world, "general-purpose"), None);
    }
}

/// Nodes of one size that are well filled by small pods and large ones, of which two fit on no node.
fn well_filled(seed: u64) -> WorldSetup {
    let mut setup = mk_start(seed);
    let mut general = mk_pool("general", 10, &["on-demand"], 200);
    let sizes = ["Standard_D4s_v5", "Standard_E8s_v5"];
    general.requirements = Requirements::new();
    general.requirements.add_entry(labels::INSTANCE_TYPE, Operator::In, &sizes).unwrap();
    general.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(100), reasons: None, window: None }];
    setup.manifests.pools = vec![general];
    let of = |name, replicas, cpu_millis| of_pool("general", (name, replicas, cpu_millis));
    setup.manifests.workloads = vec![of("large", 8, 2_100), of("middle", 10, 900), of("small", 30, 300)];
    setup
}

/// As in <https://github.com/aws/karpenter-provider-aws/issues/8536>: pods that need another size come for half an hour, and
/// others that are restarted meanwhile find room beside them. There Karpenter deleted and launched nodes for 14 hours after that.
fn another_size_for_half_an_hour(seed: u64) -> WorldSetup {
    let mut setup = well_filled(seed);
    let (key_of, mut memory) = of_pool("general", ("memory", 0, 1_000));
    let mut shape = PodShape::clone(&memory.template.shape);
    shape.requests = Resources { pods: 1, ..Resources::cpu_memory(1_000, 40 << 30) };
    memory.template = PodTemplate::new(shape);
    setup.manifests.workloads.push((key_of, memory));
    let restart = |name| {
        let rollout = crate::workload::Rollout { requests: None, max_surge: 4, max_unavailable: 2 };
        Action::Rollout { workload: key(name), rollout }
    };
    setup.actions = vec![
        after(60, Action::Scale { workload: key("memory"), replicas: 3 }),
        after(66, restart("small")),
        after(70, restart("middle")),
        after(90, Action::Scale { workload: key("memory"), replicas: 0 }),
    ];
    setup
}

#[test]
fn nodes_settle_when_pods_that_need_another_size_are_gone() {
    for seed in 0..3 {
        let mut world = World::new(catalog(), another_size_for_half_an_hour(seed)).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_hours(2)).unwrap();
        let before = disruptions(&world, "").len();
        assert!(before > 2, "seed {seed}: {before} nodes went after the pods");
        world.run_until(start + SignedDuration::from_hours(16)).unwrap();
        let after = disruptions(&world, "").len() - before;
        assert!(after <= 2, "seed {seed}: {after} nodes went in the 14 hours after that");
    }
}
