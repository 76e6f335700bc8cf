//! Tests of the steps of a move, and of how it ends after failures and restarts.

use super::*;

#[test]
fn a_node_is_marked_before_its_replacement_is_created_and_deleted_after_it_is_ready() {
    let mut world = oversized();
    assert_eq!(world.wait(60), ["mark c00"]);
    assert_eq!(world.now, 20, "found at once, held for 15 s");
    assert_eq!(world.wait(10), ["taint aks-c00"]);
    assert_eq!(world.wait(10), [format!("create {SMALL}")]);
    let draft = world.drafts[0].clone();
    assert_eq!(draft.spec.replaces, [ClaimName::new("c00").unwrap()]);
    assert!(draft.spec.planned.iter().all(|o| o.price < offering(LARGE, 1, OnDemand).price));
    assert!(world.wait(120).is_empty(), "it waits for the replacement");
    world.initialize(&draft);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn a_replacement_that_fails_leaves_the_old_node_as_it_was() {
    for failure in ["it is not created", "its launch fails", "it is deleted", "it is never ready"] {
        let mut world = oversized();
        let steps: Vec<String> = (0..3).flat_map(|_| world.wait(60)).collect();
        assert_eq!(steps.len(), 3, "{steps:?}");
        let name = world.drafts[0].name.clone();
        let claim = world.claim(name.as_str());
        let seconds = match failure {
            "it is not created" => {
                world.snapshot.remove_claim(&name);
                70
            }
            "its launch fails" => {
                let mut failed = claim;
                failed.status.launch_failed =
                    Some(LaunchFailure { at: start(), code: Arc::from("sku_not_available"), message: Arc::from("no") });
                world.snapshot.put_claim(failed);
                10
            }
            "it is deleted" => {
                world.snapshot.put_claim(Claim { deleting_at: Some(start()), ..claim });
                10
            }
            _ => 21 * 60,
        };
        assert_eq!(world.wait(seconds), ["untaint aks-c00"], "{failure}");
        assert!(world.wait(55).is_empty(), "{failure}: a taint may still appear");
        assert_eq!(world.wait(20), ["unmark c00"], "{failure}");
        assert!(world.node("c00").taints.is_empty() && world.claim("c00").deleting_at.is_none());
    }
}

#[test]
fn a_move_goes_on_after_a_restart_at_any_step() {
    for restart_after in 0..4 {
        let mut world = oversized();
        let mut steps = Vec::new();
        for _ in 0..restart_after {
            steps.extend(world.wait(60));
        }
        world.restart();
        while world.drafts.is_empty() || world.now < 300 {
            let done = world.wait(90);
            if done.is_empty() {
                break;
            }
            steps.extend(done);
        }
        let creations = steps.iter().filter(|step| step.starts_with("create")).count();
        assert_eq!(creations, 1, "after {restart_after} steps: {steps:?}");
        let draft = world.drafts[0].clone();
        world.initialize(&draft);
        assert_eq!(world.wait(60), ["underutilized c00"], "after {restart_after} steps: {steps:?}");
    }
}

/// An hour ago a move was taken back after its replacement had become ready, and that has pods by now.
#[test]
fn a_move_is_not_taken_for_an_earlier_one_after_a_restart() {
    let mut world = oversized();
    assert_eq!((0..3).flat_map(|_| world.wait(60)).count(), 3);
    let (mut earlier, node) = managed("a-earlier", &world.pool, offering(SMALL, 1, OnDemand));
    earlier.spec.replaces = world.drafts[0].spec.replaces.clone();
    earlier.created_at = at(world.now - 3_600);
    put(&mut world.snapshot, (earlier, node));
    world.run_pod("other", "a-earlier", 1_500);
    world.restart();
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn a_failed_move_does_not_go_on_with_an_earlier_replacement_after_a_restart() {
    let mut world = oversized();
    assert_eq!((0..3).flat_map(|_| world.wait(60)).count(), 3);
    let (mut earlier, node) = managed("a-earlier", &world.pool, offering(SMALL, 1, OnDemand));
    earlier.spec.replaces = world.drafts[0].spec.replaces.clone();
    earlier.created_at = at(world.now - 300);
    put(&mut world.snapshot, (earlier.clone(), node));
    world.run_pod("other", "a-earlier", 1_500);
    let mut failed = Claim { created_at: at(world.now), ..earlier };
    failed.name = world.drafts[0].name.clone();
    failed.status = ClaimStatus {
        launch_failed: Some(LaunchFailure { at: at(world.now), code: "a".into(), message: "b".into() }),
        ..ClaimStatus::default()
    };
    world.snapshot.put_claim(failed);
    world.restart();
    assert_eq!(world.wait(10), ["untaint aks-c00"]);
}

#[test]
fn marks_without_a_move_are_removed_after_a_restart() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    // The pod may not be moved any more, so that no new move begins.
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    world.restart();
    assert_eq!(world.all(90), ["untaint aks-c00", "unmark c00"]);
}

#[test]
fn a_taint_that_an_earlier_run_has_requested_is_removed_too() {
    let mut world = oversized();
    assert_eq!(world.wait(60), ["mark c00"]);
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    world.restart();
    assert!(world.all(30).is_empty(), "the taint may be on its way");
    let tainted = Node { taints: vec![Taint::disrupted()], ..world.node("c00") };
    world.snapshot.put_node(tainted);
    assert_eq!(world.all(90), ["untaint aks-c00", "unmark c00"]);
}

#[test]
fn marks_that_an_earlier_run_has_removed_late_are_renewed() {
    let mut world = oversized();
    assert_eq!((0..3).flat_map(|_| world.wait(60)).count(), 3);
    let mut claim = world.claim("c00");
    claim.status.disrupted = None;
    world.snapshot.put_claim(claim);
    let untainted = Node { taints: Vec::new(), ..world.node("c00") };
    world.snapshot.put_node(untainted);
    assert_eq!([world.wait(10), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn a_node_that_is_deleted_because_of_its_node_is_not_replaced_as_well() {
    for steps in 0..4 {
        let mut world = oversized();
        (0..steps).for_each(|_| drop(world.wait(60)));
        let mut claim = world.claim("c00");
        (claim.status.disrupted, claim.status.forced) = (None, Some(ForcefulReason::Unhealthy));
        world.snapshot.put_claim(claim);
        let done = world.all(120);
        assert!(done.is_empty(), "after {steps} steps: {done:?}");
    }
}

#[test]
fn a_move_goes_on_when_its_node_is_well_again() {
    let mut world = oversized();
    assert_eq!((0..3).flat_map(|_| world.wait(60)).count(), 3);
    let mut claim = world.claim("c00");
    (claim.status.disrupted, claim.status.forced) = (None, Some(ForcefulReason::Unhealthy));
    world.snapshot.put_claim(claim.clone());
    assert!(world.all(60).is_empty());
    claim.status.forced = None;
    world.snapshot.put_claim(claim);
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert_eq!(world.all(20), ["mark c00", "underutilized c00"]);
    assert_eq!(world.drafts.len(), 1);
}

#[test]
fn what_others_have_tainted_stays_tainted() {
    let mut world = oversized();
    let tainted = Node { taints: vec![Taint::disrupted()], ..world.node("c00") };
    world.snapshot.put_node(tainted);
    let done = world.all(15);
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn a_source_that_must_not_be_disrupted_any_more_waits_for_that() {
    let mut world = oversized();
    (0..3).for_each(|_| drop(world.wait(60)));
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod.clone() });
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert!(world.all(60).is_empty());
    world.snapshot.put_pod(pod);
    assert_eq!(world.wait(10), ["underutilized c00"]);
    assert!(world.snapshot.nodes().get(&NodeName::new("aks-c00").unwrap()).is_some());
}

#[test]
fn replacements_that_a_crash_has_left_incomplete_replace_nothing() {
    let mut world = World::of_sizes(&[MEDIUM, LARGE], MEDIUM, 5);
    for n in 0..10 {
        world.run_pod(&format!("p{n}"), &format!("c{:02}", n / 2), 2_900);
    }
    (0..3).for_each(|_| drop(world.wait(60)));
    let [created, missing] = &world.drafts[..] else { panic!("{:?}", world.drafts) };
    let (created, missing) = (created.clone(), missing.name.clone());
    world.snapshot.remove_claim(&missing);
    world.restart();
    assert!(world.wait(5).is_empty());
    world.initialize(&created);
    let steps = [world.wait(90), world.wait(90), world.wait(90)].concat();
    let verbs: Vec<&str> = steps.iter().filter_map(|step| step.split_once(' ')).map(|(verb, _)| verb).collect();
    assert_eq!(verbs, [vec!["untaint"; 5], vec!["empty"], vec!["unmark"; 5]].concat(), "{steps:?}");
}

#[test]
fn a_replacement_that_an_earlier_run_has_requested_takes_the_place_of_a_new_one() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    let mut late = crate::fixtures::claim("late", &world.pool, vec![offering(SMALL, 1, OnDemand)]);
    (late.created_at, late.spec.replaces) = (at(world.now), vec![ClaimName::new("c00").unwrap()]);
    world.snapshot.put_claim(late.clone());
    assert!(world.all(120).is_empty());
    let (ready, node) = managed("late", &world.pool, offering(SMALL, 1, OnDemand));
    put(&mut world.snapshot, (Claim { spec: late.spec, ..ready }, node));
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn a_replacement_that_is_not_ready_any_more_replaces_nothing() {
    let mut world = oversized();
    (0..3).for_each(|_| drop(world.wait(60)));
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    let ready = world.node(draft.name.as_str());
    for closed in [Node { ready: false, ..ready.clone() }, Node { cordoned: true, ..ready.clone() }] {
        world.snapshot.put_node(closed);
        assert!(world.all(60).is_empty());
    }
    world.snapshot.put_node(ready);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn it_is_looked_at_once_more_when_a_replacement_must_have_been_created() {
    let mut world = oversized();
    (0..3).for_each(|_| drop(world.wait(60)));
    let created = world.now - 5;
    world.snapshot.remove_claim(&world.drafts[0].name.clone());
    // Later than the first decision after its creation, and before the NodeClaim must exist.
    let now = at(created + 15);
    let plan = disrupt(&world.snapshot, &mut world.memory, &ProvisionMemory::default(), &settings(), now, 1);
    assert!(plan.next.is_some_and(|next| next <= at(created + 60)), "{:?}", plan.next);
}

#[test]
fn an_outage_of_nodes_ends_moves() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    for n in 0..5 {
        let (claim, node) = managed(&format!("lost-{n}"), &world.pool, offering(SMALL, 1, OnDemand));
        put(&mut world.snapshot, (claim, Node { ready: false, ready_since: at(-100), ..node }));
    }
    assert_eq!(world.all(120), ["untaint aks-c00", "unmark c00"]);
}

/// Before and after its marks, its replacement and the time that a replacement may take: it stands still, and goes on after.
#[test]
fn a_move_of_a_paused_node_pool_stands_still() {
    for key in ["disrupt", "disrupt.nodepool.general", "disrupt.reason.Underutilized"] {
        for steps in 1..=3 {
            let mut world = oversized();
            (0..steps).for_each(|_| drop(world.wait(60)));
            world.drafts.clone().iter().for_each(|draft| world.initialize(draft));
            world.snapshot.pause = Pause::read([(key, Some("true"))]).0;
            assert_eq!(world.all(30 * 60), Vec::<String>::new(), "{key} after {steps} steps");
            world.snapshot.pause = Pause::default();
            let mut rest = Vec::new();
            for _ in steps..3 {
                rest.extend(world.wait(60));
            }
            world.drafts.clone().iter().for_each(|draft| world.initialize(draft));
            rest.extend(world.wait(60));
            assert_eq!(rest.len(), 4 - steps, "{key} after {steps} steps: {rest:?}");
            assert_eq!(rest.last().unwrap(), "underutilized c00");
        }
        let mut world = oversized();
        (0..2).for_each(|_| drop(world.wait(60)));
        world.snapshot.pause = Pause::read([(key, Some("true"))]).0;
        world.restart();
        assert_eq!(world.all(30 * 60), Vec::<String>::new(), "{key}: nothing is unmarked either, after a restart");
        let mut world = oversized();
        (0..3).for_each(|_| drop(world.wait(60)));
        world.drafts.clone().iter().for_each(|draft| world.initialize(draft));
        world.snapshot.pause = Pause::read([(key, Some("true"))]).0;
        world.restart();
        assert_eq!(world.all(30 * 60), Vec::<String>::new(), "{key}");
        world.snapshot.pause = Pause::default();
        assert_eq!(world.wait(60), ["underutilized c00"], "{key}: it goes on with the replacement that is ready");
    }
    let mut world = oversized();
    world.snapshot.pause = Pause::read([("disrupt.nodepool.other", Some("true"))]).0;
    assert_eq!(world.wait(60), ["mark c00"]);
}

#[test]
fn a_move_ends_if_what_has_been_launched_meanwhile_leaves_no_room_below_a_limit() {
    for (most, expected) in [(3, format!("create {SMALL}")), (2, "untaint aks-c00".to_owned())] {
        let mut world = oversized();
        world.pool.limits.nodes = Some(most);
        world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
        assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
        let (other, node) = managed("other", &world.pool, offering(SMALL, 1, OnDemand));
        put(&mut world.snapshot, (other, node));
        world.run_pod("other", "other", 1_500);
        assert_eq!(world.wait(10), [expected], "at most {most} nodes");
    }
}

#[test]
fn replacements_are_created_once_what_is_being_created_is_seen() {
    let mut world = oversized();
    assert_eq!([world.wait(60), world.wait(10)].concat(), ["mark c00", "taint aks-c00"]);
    let other = CommandKey::Claim(ClaimName::new("other").unwrap());
    world.snapshot.in_progress.insert(other.clone());
    assert!(world.wait(30).is_empty());
    world.snapshot.in_progress.remove(&other);
    assert_eq!(world.wait(10), [format!("create {SMALL}")]);
}
