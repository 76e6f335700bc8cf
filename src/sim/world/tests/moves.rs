//! Moves: a replacement ends, or is taken back, wherever the controller crashes.

use super::crash_safety::play;
use super::*;
use crate::world::{Crash, CrashPoint, Freeze, WriteSide};
use napkeeper_core::model::settings::{PauseKey, PauseSwitch};

/// A large node of which load needs a small part after a quarter of an hour.
fn falling_load() -> WorldSetup {
    let mut start = mk_start(12);
    let mut pool = mk_pool("general-purpose", 10, &["on-demand"], 100);
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(100), reasons: None, window: None }];
    start.manifests.pools = vec![pool];
    start.actions = vec![after(15, Action::Scale { workload: key("inflate"), replicas: 1 })];
    start
}

#[test]
fn a_replacement_ends_wherever_the_controller_crashes() {
    let mut whole = World::new(catalog(), falling_load()).unwrap();
    let writes = play(&mut whole).unwrap();
    let evictions = whole.summary().disruption.all.voluntary_evictions;
    assert!((1..60).contains(&writes.len()), "{writes:?}");
    for (write, _) in writes {
        for side in [WriteSide::Before, WriteSide::After] {
            let mut world = World::new(catalog(), falling_load()).unwrap();
            let down_for = SignedDuration::from_secs(40);
            world.plan_crashes([Crash { at: CrashPoint::Write(write), side, down_for }]);
            let at = format!("a crash {side:?} write {write}");
            assert_eq!(play(&mut world).err(), None, "{at}");
            assert_eq!(logged(&world, EventKind::Controller, "crashed"), 1, "{at}");
            assert_eq!((claims(&world).len(), vms(&world)), (claims(&whole).len(), vms(&whole)), "{at}");
            let more = world.summary().disruption.all.voluntary_evictions;
            assert!(more <= evictions + 1, "{at}: {more} evictions instead of {evictions}");
        }
    }
}

/// Another replica leads when the write of a frozen one arrives, and load has risen, so that no node is to be replaced.
#[test]
fn what_an_old_leader_has_sent_leaves_no_mark_on_a_node_that_is_needed() {
    let mut whole = World::new(catalog(), falling_load()).unwrap();
    for (write, at) in play(&mut whole).unwrap() {
        let mut world = World::new(catalog(), falling_load()).unwrap();
        let freeze = Freeze { at: CrashPoint::Write(write), lasts: SignedDuration::from_secs(40), is_sent: true };
        world.controller.freezes.planned.push(freeze);
        let rise = Action::Scale { workload: key("inflate"), replicas: 10 };
        world.schedule_action(at + SignedDuration::from_secs(5), rise);
        assert_eq!(play(&mut world).err(), None, "write {write}");
        assert_eq!(logged(&world, EventKind::Controller, "frozen"), 1, "write {write}");
        let mut nodes = world.cluster().state().nodes().values();
        assert!(!nodes.any(|node| node.is_tainted(labels::TAINT_DISRUPTED)), "write {write}");
    }
}

#[test]
fn a_replacement_waits_while_disruption_is_paused_and_goes_on_after_it() {
    let pauses = [(20, true), (21, false), (22, true), (24, false), (25, true), (50, false)];
    let mut start = falling_load();
    start.actions.extend(pauses.map(|(mins, is_paused)| {
        let switches = if is_paused { vec![PauseSwitch::Disrupt.into()] } else { Vec::new() };
        after(mins, Action::Pause { switches, duration: None })
    }));
    let world = run(start, 2);
    assert_eq!((nodes(&world, true).len(), vms(&world)), (1, 1));
    assert!(world.summary().disruption.all.voluntary_evictions <= 2);
}

/// A falling load while the switch holds some disruptions.
fn with_pause(switches: &[&str], duration: Option<SignedDuration>) -> WorldSetup {
    let mut start = falling_load();
    let switches = switches.iter().map(|key| PauseKey::read(key).unwrap()).collect();
    start.actions.push(after(1, Action::Pause { switches, duration }));
    start
}

#[test]
fn a_paused_node_pool_keeps_its_nodes_until_the_pause_ends_by_itself() {
    for (switches, hours, are_kept) in [
        (&["disrupt.nodepool.general-purpose"][..], 8, true),
        (&["disrupt.reason.Underutilized"], 8, true),
        (&["disrupt.nodepool.other", "disrupt.reason.Drifted"], 8, false),
        (&["disrupt.nodepool.general-purpose"], 1, false),
    ] {
        let world = run(with_pause(switches, Some(SignedDuration::from_hours(hours))), 3);
        let evictions = world.summary().disruption.all.voluntary_evictions;
        assert_eq!(evictions == 0, are_kept, "{switches:?} for {hours} h: {evictions} evictions");
    }
}
