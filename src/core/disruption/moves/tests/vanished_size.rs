//! Tests of how nodes are replaced whose VM size Azure does not list any more.

use super::*;
use crate::catalog::live::{Fact, InfrastructureFacts};
use crate::model::names::VmSize;
use std::collections::BTreeMap;

/// Azure's first listing without the size.
const MISSED_AT: i64 = -100_000;

/// So many small nodes, older ones first, in a NodePool whose budget allows all of them to be disrupted.
fn world(count: usize) -> World {
    let mut world = World::new(SMALL, count);
    for n in 0..count {
        let name = format!("c{n:02}");
        let mut claim = world.claim(&name);
        (claim.created_at, claim.status.launched) = (at(-200_000 + n as i64), Some(at(-200_000)));
        world.snapshot.put_claim(claim);
        world.run_pod(&format!("p{n}"), &name, 1_500);
    }
    world.pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
    world.set_budget(BudgetNodes::Count(100));
    world.list(false);
    assert_eq!(world.wait(10), [""; 0]);
    world
}

impl World {
    /// A listing of Azure that lacks the small size, or one that has all.
    fn list(&mut self, lacks: bool) {
        let missed = (VmSize::new(SMALL).unwrap(), at(MISSED_AT));
        let value: BTreeMap<_, _> = lacks.then_some(missed).into_iter().collect();
        let vanished_sizes = Some(Fact { as_of: at(self.now), value });
        self.snapshot.set_infrastructure(Arc::new(InfrastructureFacts { vanished_sizes, ..Default::default() }));
    }

    fn deleted(&mut self, seconds: i64) -> Vec<String> {
        let mut done = Vec::new();
        let end = self.now + seconds;
        while self.now < end {
            done.extend(self.wait(60));
            self.initialize_all();
            self.drain();
        }
        done.retain(|step| step.starts_with("drifted"));
        done
    }
}

#[test]
fn each_listing_has_the_oldest_tenth_of_a_pool_replaced() {
    let mut world = world(25);
    world.list(true);
    assert_eq!(world.wait(60), ["note drift of c00", "note drift of c01"]);
    let told = world.claim("c00").status.drifted.unwrap();
    assert_eq!(&*told.reason, "InstanceTypeNotFound");
    let message = "Azure does not list VM size Standard_D2s_v5 in this region any more, since 2026-08-02T04:13:20Z";
    assert_eq!(&*told.message, message);
    assert_eq!(world.wait(60), ["mark c00", "mark c01"]);
    assert_eq!(world.deleted(1_800), ["drifted c00", "drifted c01"]);
    assert_eq!(world.deleted(36_000), [""; 0], "only the next listing has more replaced");
    world.list(true);
    assert_eq!(world.deleted(1_800), ["drifted c02", "drifted c03"]);
}

#[test]
fn one_node_of_a_small_pool_is_replaced_and_no_other_after_restarts() {
    let mut world = world(3);
    world.list(true);
    assert_eq!(world.wait(60), ["note drift of c00"]);
    world.restart();
    assert_eq!(world.deleted(1_800), ["drifted c00"]);
    world.restart();
    assert_eq!(world.deleted(1_800), [""; 0], "the listing is known already");
    world.list(true);
    assert_eq!(world.deleted(1_800), ["drifted c01"]);
}

#[test]
fn a_node_that_must_stay_stops_no_other() {
    let mut world = world(3);
    let kept = Node { do_not_disrupt: true, ..world.node("c00") };
    world.snapshot.put_node(kept);
    world.list(true);
    assert_eq!(world.deleted(1_800), ["drifted c01"]);
    world.list(true);
    assert_eq!(world.deleted(1_800), ["drifted c02"]);
    world.list(true);
    assert_eq!(world.all(120), ["note drift of c00"]);
    assert_eq!(world.deleted(1_800), [""; 0]);
}

#[test]
fn a_vm_that_was_launched_since_does_not_count() {
    let mut world = world(1);
    let mut claim = world.claim("c00");
    claim.status.launched = Some(at(MISSED_AT));
    world.snapshot.put_claim(claim);
    world.list(true);
    assert_eq!(world.all(1_800), [""; 0]);
}

#[test]
fn a_size_that_is_listed_again_is_no_drift_and_one_of_which_nothing_is_known_is_kept() {
    let mut world = world(3);
    world.set_budget(BudgetNodes::Count(0));
    world.list(true);
    assert_eq!(world.all(120), ["note drift of c00"]);
    let known = world.snapshot.infrastructure.clone();
    assert!(known.vanished_sizes.is_some());
    // After a start, until the facts are read.
    world.restart();
    world.snapshot.set_infrastructure(Arc::default());
    world.set_budget(BudgetNodes::Count(100));
    assert_eq!(world.all(120), [""; 0]);
    world.snapshot.set_infrastructure(known);
    world.set_budget(BudgetNodes::Count(0));
    assert_eq!(world.all(120), [""; 0]);
    world.list(false);
    assert_eq!(world.all(120), ["note no drift of c00"]);
}
