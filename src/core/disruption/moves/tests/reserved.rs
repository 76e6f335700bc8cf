//! Tests of the room that pods of nodes that are being replaced will take.

use super::*;

/// While c00 is being replaced by a small node: of its two pods one goes there, and one to c01. Others are those of c01, of c02
/// and so on.
fn replacing(others: &[(&str, i64)]) -> World {
    let mut world = World::of_sizes(&[SMALL, LARGE], LARGE, 1);
    others.iter().for_each(|(claim, cpu)| add(&mut world, claim, *cpu));
    world.run_pod("a", "c00", 1_500);
    world.run_pod("b", "c00", 1_500);
    keep(&mut world, Some(DoNotDisrupt::Always));
    let steps: Vec<String> = (0..3).flat_map(|_| world.wait(60)).collect();
    assert_eq!(steps[2..], [format!("create {SMALL}")], "{steps:?}");
    keep(&mut world, None);
    world
}

/// A small node with a pod.
fn add(world: &mut World, claim: &str, cpu: i64) {
    let (mut claim, node) = managed(claim, &world.pool, offering(SMALL, 1, OnDemand));
    (claim.created_at, claim.status.initialized) = (at(-86_460), Some(at(-86_400)));
    let name = claim.name.to_string();
    put(&mut world.snapshot, (claim, node));
    world.run_pod(&format!("of-{name}"), &name, cpu);
}

/// Whether the pods of other nodes than c00 may be disrupted.
fn keep(world: &mut World, kept: Option<DoNotDisrupt>) {
    let others = world.snapshot.pods().values().filter(|pod| pod.key.name.as_str().starts_with("of-"));
    let changed: Vec<Pod> = others.map(|pod| Pod { do_not_disrupt: kept, ..Pod::clone(pod) }).collect();
    changed.into_iter().for_each(|pod| world.snapshot.put_pod(pod));
}

fn end_pod(world: &mut World, name: &str) {
    let pod = world.snapshot.pods().values().find(|pod| pod.key.name.as_str() == name).map(|pod| pod.key.clone());
    world.snapshot.remove_pod(&pod.unwrap());
}

/// The replacement is ready, and c00 goes.
fn finish(world: &mut World) {
    let draft = world.drafts[0].clone();
    world.initialize(&draft);
    assert_eq!(world.wait(10), ["underutilized c00"]);
}

#[test]
fn pods_of_other_nodes_do_not_take_it() {
    let mut world = replacing(&[("c01", 100), ("c02", 1_500)]);
    assert!(world.wait(120).is_empty(), "the pod of c02 would take the room on c01");
    finish(&mut world);
}

#[test]
fn it_is_not_taken_either_where_kube_scheduler_prefers_it() {
    // Those of c02 fit on c03, but c01 has more room.
    let mut world = replacing(&[("c01", 100), ("c02", 500), ("c03", 1_200)]);
    assert!(world.wait(120).is_empty());
    finish(&mut world);
}

#[test]
fn what_fits_beside_it_goes() {
    let mut world = replacing(&[("c01", 100)]);
    add(&mut world, "c02", 100);
    assert_eq!(world.all(120).len(), 1, "one of the two small pods fits there too");
    finish(&mut world);
}

#[test]
fn the_same_is_reserved_after_a_restart() {
    let mut world = replacing(&[("c01", 100), ("c02", 1_500)]);
    world.restart();
    assert!(world.wait(120).is_empty());
    finish(&mut world);
}

#[test]
fn nodes_that_have_drifted_are_replaced_meanwhile_but_for_those_that_it_is_on() {
    let mut world = replacing(&[("c01", 100), ("c02", 1_700)]);
    world.set_label("a");
    let done = world.all(120);
    let marked: Vec<_> = done.iter().filter(|step| step.starts_with("mark")).collect();
    assert_eq!(marked, ["mark c02"], "{done:?}");
    world.initialize_all();
    let done = world.all(30);
    assert!(done.contains(&"underutilized c00".to_owned()) && done.contains(&"drifted c02".to_owned()), "{done:?}");
}

#[test]
fn an_empty_node_that_it_is_on_stays() {
    let mut world = replacing(&[("c01", 100)]);
    end_pod(&mut world, "of-c01");
    assert!(world.wait(300).is_empty());
    finish(&mut world);
}
