//! What NodeRecords say of the nodes that were removed.

use super::drift::{nodes, relabelled};
use super::*;
use napkeeper_core::model::cluster::node_record::{NodeRemoval, RemovedBy};

fn removals(world: &World) -> Vec<NodeRemoval> {
    world.cluster().removals().cloned().collect()
}

/// Each NodeClaim has one entry.
fn by_claim(world: &World) -> BTreeMap<ClaimName, NodeRemoval> {
    let all = removals(world);
    let by_claim: BTreeMap<_, _> = all.iter().map(|entry| (entry.removed.claim.clone(), entry.clone())).collect();
    assert_eq!(by_claim.len(), all.len());
    by_claim
}

/// The NodeClaims that the controller has deleted, by the timeline.
fn deleted(world: &World) -> BTreeSet<ClaimName> {
    let events = world.timeline().iter().filter(|event| event.kind == EventKind::Disrupt);
    events.filter_map(|event| ClaimName::new(&event.subject).ok()).collect()
}

#[test]
fn a_roll_is_recorded_with_its_cause_and_every_replacement() {
    // The second one crashes in the middle of the roll, several times.
    let crash = |mins| after(mins, Action::Crash { duration: SignedDuration::from_secs(30), write: None });
    for (seed, crashes) in [(0, vec![]), (1, vec![crash(63), crash(68), crash(75)])] {
        let mut setup = relabelled(seed);
        setup.actions.extend(crashes);
        let mut world = World::new(catalog(), setup).unwrap();
        let start = world.now();
        world.run_until(start + SignedDuration::from_mins(60)).unwrap();
        assert_eq!(removals(&world), [], "nothing was removed yet");
        let before: BTreeSet<NodeName> = nodes(&world).iter().map(|node| node.name.clone()).collect();
        world.run_until(start + SignedDuration::from_hours(5)).unwrap();
        let entries = by_claim(&world);
        let drifted: Vec<_> = entries.values().filter(|entry| &*entry.reason == "Drifted").collect();
        let removed: BTreeSet<NodeName> = drifted.iter().filter_map(|entry| entry.removed.node.clone()).collect();
        assert_eq!(removed, before, "seed {seed}");
        let mut replaced_by = BTreeSet::new();
        for entry in drifted {
            assert_eq!((entry.by, entry.pool.as_ref().unwrap().as_str()), (RemovedBy::Napkeeper, "general-purpose"));
            assert!(entry.cause.contains("team"), "{}", entry.cause);
            assert!(entry.started > start + SignedDuration::from_mins(60));
            let ended = entry.ended.expect("it is gone");
            assert!(ended > entry.started && ended < entry.started + SignedDuration::from_mins(30), "{entry:?}");
            assert!(entry.pods <= 2, "{entry:?}");
            assert_eq!(entry.removed.offering.as_ref().unwrap().size.as_str(), "Standard_D4s_v5");
            assert!(entry.removed.price.is_some());
            assert!(!entry.replacements.is_empty() || entry.pods == 0, "{entry:?}");
            for new in &entry.replacements {
                assert!(new.node.is_some() && new.offering.is_some() && new.price.is_some(), "{new:?}");
                replaced_by.insert(new.claim.clone());
            }
        }
        let created: BTreeSet<ClaimName> =
            world.cluster().state().claims().iter().map(|(name, _)| name.clone()).collect();
        assert!(replaced_by.iter().all(|name| created.contains(name) || entries.contains_key(name)), "seed {seed}");
        assert_eq!(entries.keys().cloned().collect::<BTreeSet<_>>(), deleted(&world), "seed {seed}");
    }
}

#[test]
fn who_has_removed_a_node_is_recorded() {
    let mut on_spot = relabelled(3);
    on_spot.manifests.pools = vec![mk_pool("general-purpose", 10, &["spot"], 200)];
    for (base, action, expected) in [
        (relabelled(2), Action::DeleteClaim { nth: 0 }, (RemovedBy::Other, "Deleted")),
        (relabelled(2), Action::DeleteNode { nth: 0 }, (RemovedBy::Other, "NodeDeleted")),
        (on_spot, Action::EvictSpotAnnounced { count: 1 }, (RemovedBy::Azure, "Preempted")),
    ] {
        let text = format!("{action:?}");
        let mut setup = base;
        setup.actions = vec![after(30, action)];
        let world = run_to(&setup, 55);
        let entries = removals(&world);
        let entry = entries.iter().find(|entry| (entry.by, &*entry.reason) == expected);
        if entry.is_none() {
            print(&world);
        }
        let entry = entry.unwrap_or_else(|| panic!("{text}: {entries:?}"));
        assert!(entry.ended.is_some(), "{text}: {entry:?}");
    }
}
