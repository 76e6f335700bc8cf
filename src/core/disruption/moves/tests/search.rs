//! Tests of what is disrupted together, and when.

use super::*;
use crate::scheduling::Target;

#[test]
fn many_nodes_are_replaced_at_once() {
    let mut world = World::new(LARGE, 30);
    let port = HostPort { port: 80, protocol: Arc::from("TCP"), address: None };
    let alone = Arc::new(PodShape { ports: vec![port], ..shape("alone", 500, 1) });
    for n in 0..30 {
        let pod = running(&format!("p{n:02}"), &alone, &world.node(&format!("c{n:02}")));
        world.snapshot.put_pod(pod);
    }
    let done = world.all(60);
    assert_eq!(done.iter().filter(|step| step.starts_with("mark")).count(), 30, "{done:?}");
    let drafts = world.drafts.clone();
    assert_eq!(drafts.len(), 30);
    drafts.iter().for_each(|draft| world.initialize(draft));
    let done = world.all(60);
    assert_eq!(done.iter().filter(|step| step.starts_with("underutilized")).count(), 30, "{done:?}");
}

#[test]
fn nodes_whose_pods_fit_on_others_go_together_within_the_budget() {
    for (budget, expected) in
        [(BudgetNodes::Percent(100), 10), (BudgetNodes::Count(4), 4), (BudgetNodes::Percent(10), 2)]
    {
        let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 20);
        for n in 0..20 {
            world.run_pod(&format!("p{n:02}"), &format!("c{n:02}"), 3_800);
        }
        world.set_budget(budget);
        let done = world.wait(60);
        assert_eq!(done.len(), expected, "{budget:?}: {done:?}");
        assert!(done.iter().all(|step| step.starts_with("underutilized")), "{done:?}");
    }
}

#[test]
fn nodes_that_wait_for_a_budget_are_avoided_until_their_pods_have_no_room_elsewhere() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 6);
    for n in 0..6 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 3_800);
    }
    world.set_budget(BudgetNodes::Count(1));
    assert!(world.wait(10).is_empty());
    assert_eq!(world.soft_tainted().len(), 3, "half of them are needed");
    assert_eq!(world.wait(60).len(), 1, "as the budget allows");
    // Load rises on those that were to stay.
    let kept: Vec<Node> = world.snapshot.nodes().values().map(|node| Node::clone(node)).collect();
    for (n, host) in kept.iter().filter(|node| !node.taints.contains(&Taint::underutilized())).enumerate() {
        world.snapshot.put_pod(running(&format!("more{n}"), &Arc::new(shape("more", 3_800, 1)), host));
    }
    world.wait(120);
    assert!(world.soft_tainted().len() < 2, "{:?}", world.soft_tainted());
}

#[test]
fn nodes_that_have_changed_lately_are_avoided_and_deleted_after_consolidate_after() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 2);
    world.pool.disruption.consolidate_after = Some(SignedDuration::from_mins(30));
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    for n in 0..2 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 2_000);
        let mut claim = world.claim(&format!("c{n:02}"));
        claim.status.last_pod_event = Some(at(0));
        world.snapshot.put_claim(claim);
    }
    assert!(world.wait(1_700).is_empty());
    assert_eq!(world.soft_tainted().len(), 1);
    let soft = world.soft_tainted()[0].to_owned();
    assert!(world.wait(300).iter().any(|step| step.starts_with("underutilized")), "nothing else has changed");
    assert_eq!(world.soft_tainted(), [soft]);
}

#[test]
fn an_avoided_node_remains_so_and_is_kept_while_it_is_nominated_for_pods() {
    for (is_used, expected) in [(true, "underutilized c01"), (false, "empty c01")] {
        let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 2);
        world.snapshot.put_node(Node { do_not_disrupt: true, ..world.node("c00") });
        world.run_pod("p0", "c00", 2_000);
        if is_used {
            world.run_pod("p1", "c01", 2_000);
        }
        world.set_budget(BudgetNodes::Count(0));
        assert!(world.wait(10).is_empty());
        let avoided = world.node("c01").name;
        assert_eq!(world.soft_tainted(), [avoided.as_str()]);
        world.provision.nominated.insert(Target::Node(avoided.clone()), at(60));
        world.set_budget(BudgetNodes::Percent(100));
        assert!(world.wait(50).is_empty());
        assert_eq!(world.soft_tainted(), [avoided.as_str()], "kube-scheduler may still put the pods on the other");
        assert!(world.wait(15).is_empty(), "a watch may show late that they are there");
        assert_eq!(world.wait(15), [expected]);
    }
}

#[test]
fn one_blocking_budget_does_not_hold_up_the_rest() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 4);
    for n in 0..4 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 3_800);
    }
    let blocking = PodDisruptionBudget { is_fully_blocking: true, ..disruption_budget("p0", 0) };
    world.snapshot.put_disruption_budget(blocking.key.clone(), blocking);
    // A drain that another such budget holds up.
    world.run_pod("stuck", "c03", 100);
    let stuck = PodDisruptionBudget { is_fully_blocking: true, ..disruption_budget("stuck", 0) };
    world.snapshot.put_disruption_budget(stuck.key.clone(), stuck);
    let draining = Claim { deleting_at: Some(start()), ..world.claim("c03") };
    world.snapshot.put_claim(draining);
    world.snapshot.put_node(Node { taints: vec![Taint::disrupted()], ..world.node("c03") });
    let done = world.wait(60);
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(done[0] == "underutilized c01" || done[0] == "underutilized c02", "{done:?}");
}

#[test]
fn pods_that_arrive_at_the_destination_meanwhile_drop_a_move() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 1);
    world.run_pod("p", "c00", 6_000);
    let host = node("unmanaged", 2, 8);
    world.snapshot.put_node(host.clone());
    assert!(world.decide().is_empty(), "found");
    world.now = 10;
    world.snapshot.put_pod(running("other", &Arc::new(shape("other", 6_000, 1)), &host));
    assert!(world.all(60).is_empty());
}

/// Three nodes of 8 cores with a pod each, of which one with 16 cores has room for all.
fn three_that_one_can_replace() -> World {
    let mut world = World::new(MEDIUM, 3);
    for n in 0..3 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 5_000);
    }
    world
}

#[test]
fn nodes_that_none_alone_can_be_replaced_are_replaced_by_one_together() {
    let mut world = three_that_one_can_replace();
    let done = world.all(60);
    assert_eq!(done.iter().filter(|step| step.starts_with("mark")).count(), 3, "{done:?}");
    assert_eq!(done.last().map(String::as_str), Some("create Standard_D16s_v5"), "{done:?}");
    assert_eq!(world.drafts[0].spec.replaces.len(), 3);
    // Whichever offering Azure has, it costs less than the three.
    let paid = offering(MEDIUM, 1, OnDemand).price * 3;
    assert!(world.drafts[0].spec.planned.iter().all(|offering| offering.price < paid));
}

#[test]
fn what_another_node_of_the_same_offering_would_replace_stays() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 3);
    for n in 0..3 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 5_000);
    }
    assert!(world.all(60).is_empty());
}

#[test]
fn nothing_moves_while_pods_wait_for_a_node_to_be_launched() {
    let mut world = oversized();
    let big = Arc::new(shape("big", 15_000, 1));
    let waits = crate::fixtures::pod("waits", &big);
    world.snapshot.put_pod(running("q", &big, &world.node("c00")));
    world.snapshot.remove_pod(&running("p", &big, &world.node("c00")).key);
    world.snapshot.put_pod(waits.clone());
    assert!(world.all(60).is_empty());
}

#[test]
fn what_was_found_is_not_forgotten_while_pods_wait_for_a_node() {
    let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 2);
    for n in 0..2 {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 2_000);
    }
    assert!(world.decide().is_empty(), "found");
    let waits = crate::fixtures::pod("waits", &Arc::new(shape("big", 7_000, 1)));
    world.snapshot.put_pod(waits.clone());
    world.now = 5;
    assert!(world.all(30).is_empty());
    world.snapshot.remove_pod(&waits.key);
    assert_eq!(world.wait(15).len(), 1);
}

#[test]
fn what_may_soon_change_again_is_sat_out() {
    // How long nothing must have changed before a node with one pod of so many thousandths of a core is removed: 3 min of
    // what the pod pays; where it is replaced 35 min of that and 3 min of the replacement's price, in relation to what it
    // saves.
    for (cpu, is_alone, expected) in [(480, false, 44), (1_760, false, 163), (500, true, 102)] {
        let mut world = World::new(if is_alone { LARGE } else { SMALL }, 1);
        world.run_pod("p", "c00", cpu);
        if !is_alone {
            world.snapshot.put_node(node("unmanaged", 2, 4));
        }
        let mut claim = world.claim("c00");
        claim.status.last_pod_event = Some(at(0));
        world.snapshot.put_claim(claim);
        let done = world.wait(600);
        assert_eq!(done.len(), 1, "{done:?}");
        // What is decided every 5 s deletes a node as soon as it is worth it. A replacement must hold for 15 s, and is
        // looked for again when nothing has changed for a quarter longer.
        let (held, delay) = if is_alone { (15, expected / 4 + 5) } else { (0, 5) };
        let found = world.now - 5 - held;
        assert!((expected..expected + delay).contains(&found), "{cpu}m: found after {found} s: {done:?}");
    }
}

#[test]
fn what_saves_little_waits_for_hours() {
    // Of three nodes 64 % is requested, and one saves a third of their price: 35 min of what is requested and 3 min of the new
    // price are 67 min of the saving, which it is expected to last for after six times that.
    let mut world = three_that_one_can_replace();
    for name in ["c00", "c01", "c02"] {
        let mut claim = world.claim(name);
        claim.status.last_pod_event = Some(at(0));
        world.snapshot.put_claim(claim);
    }
    let done = world.wait(10 * 3_600);
    let (least, search) = (6 * 67 * 60, 5 * 60 + 15);
    assert!((least..least + 6 * 60 + search).contains(&world.now), "after {} s: {done:?}", world.now);
    assert_eq!(done.iter().filter(|step| step.starts_with("mark")).count(), 3, "{done:?}");
}

#[test]
fn a_node_stays_where_kube_scheduler_would_leave_one_of_its_pods_without_room() {
    // Each pod fits on one of the hosts. But the small one is likely to go to the emptier host, and then the large one has
    // room only if that host has some left.
    for (free_on_emptier, removed) in [(3_100, false), (3_600, true)] {
        let mut world = World::of_sizes(&[MEDIUM], MEDIUM, 1);
        world.run_pod("large", "c00", 3_000);
        world.run_pod("small", "c00", 500);
        for (name, free) in [("host-a", free_on_emptier), ("host-b", 600)] {
            let host = node(name, 2, 8);
            world.snapshot.put_pod(running(&format!("of-{name}"), &Arc::new(shape("other", 8_000 - free, 1)), &host));
            world.snapshot.put_node(host);
        }
        let done = world.wait(60);
        assert_eq!(!done.is_empty(), removed, "{done:?}");
    }
}

/// A node of 8 cores with these pods, and one of 16 cores that stays, with as many pods as are said; in a pool with a policy.
fn beside_one_that_stays(policy: ConsolidationPolicy, deletion_costs: &[i32], staying: usize) -> World {
    let mut world = World::of_sizes(&[MEDIUM, LARGE], MEDIUM, 1);
    world.pool.disruption.policy = policy;
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    let (mut claim, mut node) = managed("large", &world.pool, offering(LARGE, 1, OnDemand));
    (claim.created_at, claim.status.initialized) = (at(-3660), Some(at(-3600)));
    node.do_not_disrupt = true;
    put(&mut world.snapshot, (claim, node));
    for n in 0..staying {
        world.run_pod(&format!("s{n}"), "large", 100);
    }
    let node = world.node("c00");
    for (n, deletion_cost) in deletion_costs.iter().enumerate() {
        let pod = running(&format!("p{n}"), &Arc::new(shape(&format!("p{n}"), 100, 1)), &node);
        world.snapshot.put_pod(Pod { deletion_cost: *deletion_cost, ..pod });
    }
    world
}

#[test]
fn the_policy_balanced_asks_for_a_share_of_the_cost_that_is_worth_the_share_of_pods() {
    use ConsolidationPolicy::{Balanced, WhenEmptyOrUnderutilized};
    let whole = i32::try_from(Pod::EVICTION_COST).unwrap();
    // A node of 8 cores costs a third of it and one of 16 cores. Ten pods and the node are 11 of 13 of what the pool's
    // disruption costs: the ratio is 0.4.
    for (policy, deletion_costs, staying, is_deleted) in [
        (WhenEmptyOrUnderutilized, vec![0; 10], 1, true),
        (Balanced, vec![0; 10], 1, false),
        // 2 of 11: the ratio is 1.9.
        (Balanced, vec![0], 8, true),
        // 2 of 3: the ratio is 0.51. And with a pod whose eviction costs twice as much, 3 of 4: 0.45.
        (Balanced, vec![0], 0, true),
        (Balanced, vec![whole], 0, false),
        // Ten pods that cost a fifth each are 3 of 5: 0.57.
        (Balanced, vec![-whole / 5 * 4; 10], 1, true),
    ] {
        let mut world = beside_one_that_stays(policy, &deletion_costs, staying);
        let expected: &[&str] = if is_deleted { &["underutilized c00"] } else { &[] };
        assert_eq!(world.all(600), expected, "{policy:?} {deletion_costs:?} beside {staying}");
        let is_tainted = !world.soft_tainted().is_empty();
        assert_eq!(is_tainted, is_deleted, "{policy:?} {deletion_costs:?} beside {staying}");
    }
}

#[test]
fn a_node_is_empty_if_evicting_its_pods_costs_nothing() {
    let nothing = -i32::try_from(Pod::EVICTION_COST).unwrap();
    for (deletion_costs, expected) in [(vec![nothing, nothing], &["empty c00"][..]), (vec![nothing, 0], &[])] {
        let mut world = beside_one_that_stays(ConsolidationPolicy::WhenEmpty, &deletion_costs, 1);
        assert_eq!(world.all(60), expected, "{deletion_costs:?}");
    }
}

#[test]
fn all_single_nodes_are_tried_in_turn_while_nothing_changes() {
    // 24 full nodes with a pod that must stay where it is, which also keeps any set from being replaced, come before the only
    // one that a cheaper one can replace.
    let mut world = World::new(MEDIUM, 24);
    for n in 0..24 {
        let node = world.node(&format!("c{n:02}"));
        let mut pinned = shape(&format!("s{n}"), 7_780, 1);
        pinned.selector = requirements_in(&[(labels::HOSTNAME, &[node.name.as_str()])]);
        world.snapshot.put_pod(running(&format!("p{n}"), &Arc::new(pinned), &node));
    }
    let (mut claim, node) = managed("last", &world.pool, offering(LARGE, 1, OnDemand));
    (claim.created_at, claim.status.initialized) = (at(-3660), Some(at(-3600)));
    put(&mut world.snapshot, (claim, node));
    (0..10).for_each(|n| world.run_pod(&format!("small-{n}"), "last", 100));
    assert_eq!(world.wait(60), ["mark last"]);
}

#[test]
fn what_time_alone_allows_is_found_though_nothing_changes() {
    let mut world = oversized();
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    let for_two_hours = Some(DoNotDisrupt::For(SignedDuration::from_hours(2)));
    world.snapshot.put_pod(Pod { do_not_disrupt: for_two_hours, started_at: Some(at(0)), ..pod });
    assert!(world.all(7_200).is_empty());
    assert_eq!(world.wait(330), ["mark c00"]);
}

#[test]
fn what_was_found_before_a_pause_must_be_found_again() {
    let mut world = oversized();
    assert!(world.decide().is_empty(), "found");
    world.snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    world.now = 60;
    assert!(world.all(60).is_empty());
    world.snapshot.pause = Pause::default();
    let lifted = world.now;
    assert_eq!(world.wait(60), ["mark c00"]);
    assert_eq!(world.now - lifted, 20, "found at once, held for 15 s");
}

#[test]
fn after_the_clock_has_been_set_back_it_is_searched_anew() {
    let mut world = oversized();
    world.now = 7_200;
    assert!(world.decide().is_empty(), "found");
    world.now = 0;
    assert_eq!(world.wait(60), ["mark c00"]);
    assert_eq!(world.now, 20, "found at once, held for 15 s");
}
