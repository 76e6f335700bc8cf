//! Moves: a replacement ends, or is taken back, wherever the controller crashes.

use super::*;
use crate::world::{Crash, CrashPoint, WriteSide};
use napkeeper_core::model::settings::PauseSwitch;

/// Longest time for which a node may be marked without a move after a restart.
const MARKED_ALONE: SignedDuration = SignedDuration::from_mins(2);
const STEP: SignedDuration = SignedDuration::from_secs(5);

/// A large node of which load needs a small part after a quarter of an hour.
fn falling_load() -> WorldSetup {
    let mut start = mk_start(12);
    let mut pool = mk_pool("general-purpose", 10, &["on-demand"], 100);
    pool.disruption.budgets = vec![Budget { nodes: BudgetNodes::Percent(100), reasons: None, window: None }];
    start.manifests.pools = vec![pool];
    start.actions = vec![after(15, Action::Scale { workload: key("inflate"), replicas: 1 })];
    start
}

/// What is seen of moves while a world runs.
#[derive(Default)]
struct Seen {
    /// The writes of the controller before the first node was marked, and when the last marked one had gone.
    writes: Option<(u64, u64)>,
    /// For how long each node has been marked without a move while the controller was up.
    alone: BTreeMap<ClaimName, SignedDuration>,
}

impl Seen {
    fn look(&mut self, world: &World, before: u64) {
        let all = world.cluster().state().claims();
        let marked: Vec<_> = all.values().filter(|claim| claim.status.disrupted.is_some()).collect();
        if !marked.is_empty() {
            let first = self.writes.map_or(before, |(first, _)| first);
            self.writes = Some((first, world.controller.writes));
        }
        let is_up = world.controller.is_up();
        self.alone.retain(|name, _| is_up && marked.iter().any(|claim| claim.name == *name));
        for claim in marked.into_iter().filter(|claim| is_up && claim.deleting_at.is_none()) {
            let replacements = all.values().filter(|other| other.spec.replaces.contains(&claim.name)).count();
            assert!(replacements <= 1, "{} is replaced by {replacements} nodes", claim.name);
            let alone = self.alone.entry(claim.name.clone()).or_default();
            *alone = if replacements == 0 { *alone + STEP } else { SignedDuration::ZERO };
            assert!(*alone <= MARKED_ALONE, "{} is marked, and nothing replaces it", claim.name);
        }
    }
}

/// Runs it for two hours.
fn run_with(crash: Option<Crash>) -> (World, Seen) {
    let mut world = World::new(catalog(), falling_load()).unwrap();
    world.plan_crashes(crash);
    let (end, mut seen) = (world.now() + SignedDuration::from_hours(2), Seen::default());
    while world.now() < end {
        let before = world.controller.writes;
        if let Err(violation) = world.run_until(world.now() + STEP) {
            print(&world);
            panic!("{violation}");
        }
        seen.look(&world, before);
    }
    (world, seen)
}

#[test]
fn a_replacement_ends_wherever_the_controller_crashes() {
    let (whole, seen) = run_with(None);
    let (first, last) = seen.writes.expect("the node is replaced");
    let evictions = whole.summary().disruption.all.voluntary_evictions;
    assert!((1..60).contains(&(last - first)), "{first} to {last}");
    for write in first..=last {
        for side in [WriteSide::Before, WriteSide::After] {
            let down_for = SignedDuration::from_secs(40);
            let (world, _) = run_with(Some(Crash { at: CrashPoint::Write(write), side, down_for }));
            let at = format!("a crash {side:?} write {write}");
            assert_eq!(logged(&world, EventKind::Controller, "crashed"), 1, "{at}");
            assert_eq!((claims(&world).len(), vms(&world)), (claims(&whole).len(), vms(&whole)), "{at}");
            assert!(world.cluster().state().pending().is_empty(), "{at}");
            assert!(
                world.cluster().state().nodes().values().all(|node| !node.is_tainted(labels::TAINT_DISRUPTED)),
                "{at}"
            );
            let more = world.summary().disruption.all.voluntary_evictions;
            assert!(more <= evictions + 1, "{at}: {more} evictions instead of {evictions}");
        }
    }
}

#[test]
fn a_replacement_waits_while_disruption_is_paused_and_goes_on_after_it() {
    let pauses = [(20, true), (21, false), (22, true), (24, false), (25, true), (50, false)];
    let mut start = falling_load();
    start.actions.extend(pauses.map(|(mins, is_paused)| {
        let switches = if is_paused { vec![PauseSwitch::Disrupt] } else { Vec::new() };
        after(mins, Action::Pause { switches })
    }));
    let world = run(start, 2);
    assert_eq!((nodes(&world, true).len(), vms(&world)), (1, 1));
    assert!(world.summary().disruption.all.voluntary_evictions <= 2);
}
