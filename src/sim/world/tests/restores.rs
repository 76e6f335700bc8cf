//! Backups of the API server that are restored in part.

use super::*;
use crate::cloud::{Change, LedgerEntry};
use crate::world::{InjectedFault, RestoreFault};

/// A day after a fault in a world with six nodes, which then has six again.
fn a_day_after(fault: RestoreFault, others: Vec<(SignedDuration, Action)>) -> World {
    let restored = after(20, Action::InjectFault(InjectedFault::Restore(fault)));
    let world = run_to(&steady(1, [vec![restored], others].concat()), 60 * 24);
    assert_eq!(nodes(&world, true).len(), 6);
    assert_eq!(world.cluster().state().pending_pods().count(), 0);
    world
}

fn created_vms(world: &World) -> usize {
    let created = |entry: &&LedgerEntry| entry.change == Change::Created && entry.resource.kind() == ResourceKind::Vm;
    world.cloud().ledger().iter().filter(created).count()
}

#[test]
fn nodes_that_are_lost_with_their_claims_are_replaced_and_their_vms_wait_for_approval() {
    let lost = RestoreFault::LoseClaims { nth: 0, count: 2, with_nodes: true };
    let world = a_day_after(lost, vec![]);
    assert_eq!((claims(&world).len(), vms(&world), created_claims(&world)), (6, 8, 8));
    assert_eq!(logged(&world, EventKind::Suspect, "VM: no references found"), 2);
    // The cap allows one deletion a day.
    let approved = a_day_after(lost, vec![after(180, Action::Approve {})]);
    assert_eq!((claims(&approved).len(), vms(&approved)), (6, 7));
}

#[test]
fn a_node_that_has_lost_its_claim_keeps_its_vm_and_its_pods() {
    let lost = RestoreFault::LoseClaims { nth: 0, count: 2, with_nodes: false };
    let world = a_day_after(lost, vec![after(180, Action::Approve {})]);
    assert_eq!((claims(&world).len(), vms(&world), created_claims(&world)), (4, 6, 6));
    assert_eq!(pods(&world), pods(&run_to(&steady(1, vec![]), 19)));
}

#[test]
fn a_node_that_has_lost_its_claim_is_drained_when_it_is_deleted_and_its_vm_waits_for_approval() {
    let lost = RestoreFault::LoseClaims { nth: 0, count: 2, with_nodes: false };
    let deleted = || after(60, Action::DeleteNode { nth: 0 });
    let world = a_day_after(lost, vec![deleted()]);
    // Its pods have moved to a new node.
    assert_eq!((claims(&world).len(), vms(&world), created_claims(&world)), (5, 7, 7));
    let approved = a_day_after(lost, vec![deleted(), after(180, Action::Approve {})]);
    assert_eq!((claims(&approved).len(), vms(&approved)), (5, 6));
}

#[test]
fn a_claim_that_is_restored_under_another_uid_launches_no_second_vm() {
    let with_status = |with_status| RestoreFault::RecreateClaim { nth: 0, with_status };
    let whole = a_day_after(with_status(true), vec![]);
    assert_eq!((claims(&whole).len(), vms(&whole), created_vms(&whole)), (6, 6, 6));
    // Without its status it is launched again, which finds the VM of the one before.
    let empty = a_day_after(with_status(false), vec![]);
    assert_eq!((claims(&empty).len(), vms(&empty), created_vms(&empty)), (5, 6, 6));
    assert_eq!(logged(&empty, EventKind::Disrupt, "exists and is not owned by this NodeClaim"), 1);
}

#[test]
fn deleting_a_restored_claim_keeps_the_vm_that_was_launched_for_another_uid() {
    let restored = RestoreFault::RecreateClaim { nth: 0, with_status: true };
    let at = after(20, Action::InjectFault(InjectedFault::Restore(restored)));
    let others = vec![after(30, Action::DeleteClaim { nth: 0 }), after(180, Action::Approve {})];
    let world = run_to(&steady(1, [vec![at], others].concat()), 60 * 24);
    // Its pods have moved to a new node. Its own one stays with its VM until somebody removes it.
    assert_eq!((claims(&world).len(), vms(&world), created_vms(&world), nodes(&world, true).len()), (6, 7, 7, 7));
    assert_eq!(world.cluster().state().pending_pods().count(), 0);
}
