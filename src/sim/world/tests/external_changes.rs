//! What users, other controllers and AKS change while the controller runs.

use super::*;
use crate::world::{ExternalEdit, FaultyNodes, FinalizerFault, InjectedFault, NodeFault};

fn inject(mins: i64, fault: InjectedFault) -> (SignedDuration, Action) {
    after(mins, Action::InjectFault(fault))
}

fn finalizers(mins: i64, fault: FinalizerFault) -> (SignedDuration, Action) {
    inject(mins, InjectedFault::Finalizers(fault))
}

/// Six nodes, of which the first loses its NodeClaim after half an hour, an hour later.
fn an_hour_after_a_deletion(faults: Vec<(SignedDuration, Action)>) -> World {
    let deleted = vec![after(30, Action::DeleteClaim { nth: 0 })];
    let world = run_to(&steady(1, [faults, deleted].concat()), 90);
    assert_eq!(world.cluster().state().pending_pods().count(), 0);
    world
}

#[test]
fn a_claim_that_another_finalizer_holds_leaves_nothing_in_azure() {
    let held = finalizers(20, FinalizerFault::AddOther { nth: 0, to_node: false, then_delete: false });
    let world = an_hour_after_a_deletion(vec![held.clone()]);
    let going = world.cluster().state().claims().values().filter(|claim| claim.deleting_at.is_some()).count();
    assert_eq!((claims(&world).len(), going, vms(&world), created_claims(&world)), (7, 1, 6, 7));
    let released = an_hour_after_a_deletion(vec![held, finalizers(80, FinalizerFault::RemoveOthers)]);
    assert_eq!((claims(&released).len(), vms(&released)), (6, 6));
}

#[test]
fn a_node_that_another_finalizer_holds_does_not_hold_its_claim() {
    let held = finalizers(20, FinalizerFault::AddOther { nth: 0, to_node: true, then_delete: false });
    let world = an_hour_after_a_deletion(vec![held.clone()]);
    assert_eq!(
        (claims(&world).len(), vms(&world), nodes(&world, true).len(), nodes(&world, false).len()),
        (6, 6, 6, 1)
    );
    let released = an_hour_after_a_deletion(vec![held, finalizers(80, FinalizerFault::RemoveOthers)]);
    assert_eq!((nodes(&released, true).len(), nodes(&released, false).len()), (6, 0));
}

#[test]
fn a_claim_without_our_finalizer_takes_no_vm_with_it() {
    let stripped = finalizers(20, FinalizerFault::Strip { nth: 0, from_node: false, then_delete: false });
    let world = an_hour_after_a_deletion(vec![stripped]);
    assert_eq!((claims(&world).len(), vms(&world), nodes(&world, true).len()), (5, 6, 6));
    assert_eq!(pods(&world), pods(&run_to(&steady(1, vec![]), 19)));
}

#[test]
fn the_former_disk_of_a_vm_is_deleted_with_its_claim() {
    let disks = |world: &World| {
        let disks = world.cloud().resources().values().filter(|r| r.kind() == ResourceKind::OsDisk);
        disks.map(|disk| disk.id.name().to_owned()).collect::<BTreeSet<_>>()
    };
    let swapped = inject(20, InjectedFault::External(ExternalEdit::SwapOsDisk { nth: 0 }));
    let before = disks(&run_to(&steady(1, vec![]), 29));
    let between = disks(&run_to(&steady(1, vec![swapped.clone()]), 29));
    assert_eq!(between.difference(&before).count(), 1, "{between:?}");
    assert!(between.is_superset(&before), "{between:?}");
    let world = an_hour_after_a_deletion(vec![swapped]);
    assert_eq!((disks(&world).len(), disks(&world).intersection(&before).count()), (6, 5));
}

#[test]
fn a_cluster_that_is_stopped_and_started_keeps_its_nodes() {
    let stopped = SignedDuration::from_mins(60);
    let world = run_to(
        &steady(
            1,
            vec![
                after(20, Action::ApiServerDown { duration: stopped }),
                after(20, Action::Crash { duration: stopped, write: None }),
                inject(
                    80,
                    InjectedFault::Nodes(NodeFault::Silence(FaultyNodes::Every(1), SignedDuration::from_mins(4))),
                ),
            ],
        ),
        60 * 12,
    );
    assert_eq!((claims(&world).len(), vms(&world), created_claims(&world)), (6, 6, 6));
    assert_eq!(pods(&world), pods(&run_to(&steady(1, vec![]), 19)));
}

#[test]
fn nodes_are_launched_after_an_upgrade_has_replaced_the_system_nodes() {
    let system_nodes = |world: &World| {
        let nodes = world.cluster().state().nodes().values().filter(|node| node.label(labels::MODE) == Some("system"));
        nodes.map(|node| node.name.to_string()).collect::<Vec<_>>()
    };
    let replaced = inject(20, InjectedFault::Nodes(NodeFault::ReplaceSystemNodes));
    let crashed = after(21, Action::Crash { duration: SignedDuration::from_secs(30), write: None });
    let scaled = after(30, Action::Scale { workload: key("inflate"), replicas: 24 });
    let world = run_to(&steady(1, vec![replaced, crashed, scaled]), 60);
    assert_eq!(system_nodes(&world), ["aks-system-00000000-vmss000002", "aks-system-00000000-vmss000003"]);
    assert_eq!((claims(&world).len(), nodes(&world, true).len()), (12, 12));
}
