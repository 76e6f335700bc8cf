//! Many nodes that are not ready at once.

use super::*;
use crate::lifecycle::NodeOutage;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Taint, TaintEffect};
use crate::model::settings::{ControllerMode, DeletionRule, Settings};

/// Nodes in use, each with a pod; the first ones have not been ready since the start.
fn nodes(count: usize, unready: usize) -> Snapshot {
    let mut snapshot = cluster([pool("general")]);
    for n in 0..count {
        let (claim, mut node) = managed(&format!("general-{n:02}"), &pool("general"), offering(SMALL, 1, Spot));
        node.ready = n >= unready;
        snapshot.put_pod(running(&format!("p-{n}"), &Arc::new(shape("a", 500, 1)), &node));
        put(&mut snapshot, (claim, node));
    }
    snapshot
}

fn outage(snapshot: &Snapshot, seconds: i64) -> Option<(usize, usize)> {
    NodeOutage::of(snapshot, &settings(), at(seconds)).map(|outage| (outage.not_ready, outage.nodes))
}

/// Changes the first nodes of [`nodes`] and their claims.
fn change(snapshot: &mut Snapshot, count: usize, change: impl Fn(&mut Claim, &mut Node)) {
    let claims: Vec<Claim> = snapshot.claims().values().take(count).map(|claim| Claim::clone(claim)).collect();
    for mut claim in claims {
        let node = snapshot.node_by_provider_id(claim.status.provider_id.as_ref().unwrap()).unwrap();
        let mut node = Node::clone(node);
        change(&mut claim, &mut node);
        put(snapshot, (claim, node));
    }
}

#[test]
fn more_than_a_fifth_of_the_nodes_and_at_least_three_are_an_outage() {
    for (count, unready, found) in [
        (2, 2, None),
        (3, 2, None),
        (3, 3, Some((3, 3))),
        (14, 3, Some((3, 14))),
        (15, 3, None),
        (16, 4, Some((4, 16))),
        (20, 4, None),
        (100, 20, None),
        (100, 21, Some((21, 100))),
    ] {
        assert_eq!(outage(&nodes(count, unready), 60), found, "{unready} of {count}");
    }
    assert_eq!(outage(&nodes(10, 10), 59), None, "kubelets may be late for a moment");
}

#[test]
fn nodes_whose_kubelets_are_expected_to_be_silent_do_not_count() {
    type Change = fn(&mut Claim, &mut Node);
    type Case = (&'static str, Change, Option<(usize, usize)>);
    let taint = |node: &mut Node, key: &str| {
        node.taints.push(Taint { key: Arc::from(key), value: Arc::from(""), effect: TaintEffect::NoExecute });
    };
    let cases: [Case; 5] = [
        ("deleted, for their VMs are gone", |_, node| node.deleting_at = Some(at(1)), None),
        ("never initialised", |claim, _| claim.status.initialized = None, None),
        ("draining, with pods", |claim, _| claim.deleting_at = Some(at(1)), Some((4, 10))),
        ("ready again", |_, node| node.ready = true, None),
        ("not ready for a moment", |_, node| node.ready_since = at(30), None),
    ];
    for (name, of_one, found) in cases {
        let mut snapshot = nodes(10, 4);
        change(&mut snapshot, 4, of_one);
        assert_eq!(outage(&snapshot, 60), found, "{name}");
    }
    for key in [labels::TAINT_OUT_OF_SERVICE, labels::TAINT_SHUTDOWN] {
        let mut snapshot = nodes(10, 4);
        change(&mut snapshot, 4, |_, node| taint(node, key));
        assert_eq!(outage(&snapshot, 60), None, "{key}");
    }
    let mut drained = nodes(10, 4);
    change(&mut drained, 4, |claim, _| claim.deleting_at = Some(at(1)));
    let pods: Vec<_> = drained.pods().values().map(|pod| pod.key.clone()).collect();
    pods.iter().for_each(|key| drained.remove_pod(key));
    assert_eq!(outage(&drained, 60), None, "drained: their VMs are being deleted");
}

#[test]
fn unmanaged_nodes_count_unless_they_are_about_to_join() {
    let mut snapshot = nodes(6, 0);
    for n in 0..4 {
        let mut unmanaged = node(&format!("system-{n}"), 1, 4);
        unmanaged.ready = false;
        snapshot.put_node(unmanaged);
    }
    assert_eq!(outage(&snapshot, 599), None);
    assert_eq!(outage(&snapshot, 600), Some((4, 10)));
}

#[test]
fn nothing_depends_on_it_beside_managed_nap() {
    let snapshot = nodes(10, 10);
    let companion = Settings { mode: ControllerMode::Companion, ..settings() };
    let without = DeletionRules::without_in_tests(&[DeletionRule::NodeOutage]);
    let without = Settings { deletion_rules: without, ..settings() };
    for settings in [companion, without] {
        assert_eq!(NodeOutage::of(&snapshot, &settings, at(100)), None);
    }
}

#[test]
fn no_vm_with_a_node_is_terminated_during_an_outage() {
    let mut snapshot = nodes(10, 4);
    let grace = Some(SignedDuration::from_mins(10));
    // One of the nodes that are not ready, past its grace period.
    change(&mut snapshot, 1, |claim, _| {
        (claim.deleting_at, claim.spec.termination_grace_period) = (Some(start()), grace);
    });
    // A drained node that is ready.
    let (mut claim, mut ready) = managed("zz-drained", &pool("general"), offering(SMALL, 1, Spot));
    claim.deleting_at = Some(start());
    mark_draining(&mut ready);
    put(&mut snapshot, (claim, ready));
    // A NodeClaim whose Node is gone.
    let (mut claim, _) = managed("zz-gone", &pool("general"), offering(SMALL, 1, Spot));
    claim.deleting_at = Some(start());
    snapshot.put_claim(claim);

    let terminated = |snapshot: &Snapshot, memory: &mut LifecycleMemory| -> Vec<String> {
        let _ = decided(snapshot, memory, 11 * 60);
        let plan = decided(snapshot, memory, 12 * 60);
        let name = |command: &Command| match command {
            Command::Terminate(terminate) => Some(terminate.claim.name.to_string()),
            _ => None,
        };
        plan.commands.iter().filter_map(|planned| name(&planned.command)).collect()
    };
    let mut memory = LifecycleMemory::default();
    assert_eq!(terminated(&snapshot, &mut memory), ["zz-gone"], "no pod is on a Node that does not exist");
    assert_eq!(memory.outage.map(|outage| outage.to_string()), Some("4 of 10 nodes are not ready".to_owned()));
    change(&mut snapshot, 4, |_, node| node.ready = true);
    let mut memory = LifecycleMemory::default();
    assert_eq!(terminated(&snapshot, &mut memory), ["general-00", "zz-drained", "zz-gone"]);
    assert_eq!(memory.outage, None);
}

#[test]
fn azure_is_asked_for_vms_during_an_outage() {
    let mut snapshot = nodes(10, 4);
    change(&mut snapshot, 1, |claim, _| {
        (claim.deleting_at, claim.termination_at) = (Some(start()), Some(start()));
    });
    let mut memory = LifecycleMemory::default();
    let _ = decided(&snapshot, &mut memory, 0);
    let words = words(&decided(&snapshot, &mut memory, 120));
    assert_eq!(words, ["check"; 4], "its proof stands");
}
