//! What is written on NodeClaims about their initialized nodes.

use super::*;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::NodePool;
use crate::model::cluster::status::StatusCondition;
use crate::plan::ClaimReport;
use crate::snapshot::CommandKey;
use jiff::Timestamp;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A NodePool whose nodes may be consolidated after so long.
fn pool_after(after: Option<SignedDuration>) -> NodePool {
    let mut pool = pool("general");
    pool.disruption.consolidate_after = after;
    pool
}

/// A cluster with one node of a NodePool, initialized at the start.
struct World {
    snapshot: Snapshot,
    memory: LifecycleMemory,
    node: Node,
}

impl World {
    fn new(pool: NodePool) -> Self {
        let (claim, node) = managed("c00", &pool, offering(SMALL, 1, OnDemand));
        let mut snapshot = cluster([pool]);
        put(&mut snapshot, (claim, node.clone()));
        Self { snapshot, memory: LifecycleMemory::default(), node }
    }

    fn claim(&self) -> Claim {
        Claim::clone(self.snapshot.claims().values().next().unwrap())
    }

    fn change(&mut self, change: impl FnOnce(&mut Claim)) {
        let mut claim = self.claim();
        change(&mut claim);
        self.snapshot.put_claim(claim);
    }

    /// Decides; the report that is to be written, and when to decide again.
    fn decide(&mut self, seconds: i64) -> (Option<ClaimReport>, Option<Timestamp>) {
        let plan = lifecycle(&self.snapshot, &mut self.memory, &ProvisionMemory::default(), &settings(), at(seconds));
        let mut reports = plan.commands.into_iter().filter_map(|planned| match planned.command {
            Command::UpdateClaim { update: ClaimUpdate::Report(report), .. } => Some(*report),
            _ => None,
        });
        let report = reports.next();
        assert_eq!(reports.next(), None, "one write for all of it");
        (report, plan.next)
    }

    /// Decides, and stores what is to be written as an API server does. True if something is.
    fn step(&mut self, seconds: i64) -> bool {
        let (report, _) = self.decide(seconds);
        let is_written = report.is_some();
        if let Some(report) = report {
            self.change(|claim| {
                claim.status.last_pod_event = report.last_pod_event.or(claim.status.last_pod_event);
                claim.status.consolidatable = report.consolidatable;
                claim.status.consistent_state = Some(report.consistent_state);
            });
        }
        is_written
    }

    /// Replaces the pod of the node by another.
    fn new_pod(&mut self, name: &str) {
        let pods: Vec<_> = self.snapshot.pods().values().map(|pod| pod.key.clone()).collect();
        pods.iter().for_each(|key| self.snapshot.remove_pod(key));
        self.snapshot.put_pod(running(name, &Arc::new(shape("a", 100, 1)), &self.node));
    }
}

#[test]
fn pods_that_come_or_leave_are_an_event_and_daemons_are_not() {
    let mut world = World::new(pool("general"));
    let shape = Arc::new(shape("a", 100, 1));
    let node = world.node.clone();
    world.new_pod("first");
    let event = |world: &mut World, seconds| {
        let before = world.claim().status.last_pod_event;
        world.step(seconds);
        let after = world.claim().status.last_pod_event;
        after.filter(|_| before != after)
    };
    assert_eq!(event(&mut world, 0), None, "what is there at the start is no change");
    world.snapshot.put_pod(Pod { owner: PodOwner::DaemonSet, ..running("daemon", &shape, &node) });
    assert_eq!(event(&mut world, 20), None, "a DaemonSet's pod belongs to the node");
    world.new_pod("second");
    assert_eq!(event(&mut world, 40), Some(at(40)), "another pod in place of the first");
    assert_eq!(event(&mut world, 43), None);
    let second = running("second", &shape, &node);
    world.snapshot.put_pod(Pod { deleting_at: Some(at(44)), ..second.clone() });
    assert_eq!(event(&mut world, 44), None, "it is being deleted; one write in ten seconds");
    world.snapshot.remove_pod(&second.key);
    assert_eq!(event(&mut world, 46), None);
    assert_eq!(event(&mut world, 50), Some(at(46)), "when it was gone");
    assert_eq!(event(&mut world, 80), None);
}

#[test]
fn a_node_is_consolidatable_once_its_pods_have_not_changed_for_consolidate_after() {
    let mut world = World::new(pool_after(Some(HOUR)));
    assert!(!world.claim().status.consolidatable);
    let (report, next) = world.decide(0);
    assert_eq!((report, next), (None, Some(at(3600))), "it is decided again when that is over");
    assert!(!world.step(3599));
    assert!(world.step(3600) && world.claim().status.consolidatable);
    assert!(!world.step(7200), "it is written once");
    world.new_pod("first");
    assert!(world.step(7201));
    let status = world.claim().status;
    assert_eq!((status.last_pod_event, status.consolidatable), (Some(at(7201)), false), "both by one write");
    assert_eq!(world.decide(7202), (None, Some(at(7201 + 3600))));
    assert!(world.step(7201 + 3600) && world.claim().status.consolidatable);
}

#[test]
fn what_is_told_is_what_consolidation_goes_by() {
    let mut deleted = pool("general");
    deleted.deletion.requested_at = Some(start());
    let fixed = NodePool { replicas: Some(1), ..pool("general") };
    for (now, expected) in [(pool("general"), true), (pool_after(None), false), (fixed, false), (deleted, false)] {
        let mut world = World::new(pool("general"));
        world.snapshot.put_pool(now.name.clone(), now.clone());
        world.step(20);
        let status = world.claim().status;
        assert_eq!(status.consolidatable, expected, "{now:?}");
        let from = now.consolidatable_from(status.quiet_since().unwrap());
        assert_eq!(from.is_some_and(|from| from <= at(20)), expected, "{now:?}");
    }
    let mut world = World::new(pool("general"));
    let name = world.claim().spec.pool.unwrap();
    world.snapshot.remove_pool(&name);
    assert!(
        !world.step(20) && world.claim().status.consolidatable,
        "of a NodePool that is not there nothing new is said"
    );
}

#[test]
fn pods_that_always_change_are_one_write_in_ten_seconds() {
    for after in [SignedDuration::ZERO, SignedDuration::from_secs(1), SignedDuration::from_secs(30), HOUR] {
        let mut world = World::new(pool_after(Some(after)));
        let writes = (0..600).filter(|second| {
            world.new_pod(&format!("p-{second}"));
            world.step(*second)
        });
        let writes = writes.count();
        assert!((55..=61).contains(&writes), "{writes} in ten minutes with {after:?}");
    }
}

#[test]
fn pods_that_often_change_are_at_most_two_writes_in_ten_seconds() {
    for (period, after) in [(7, 0), (7, 3), (11, 1), (12, 6), (15, 10), (20, 12)] {
        let mut world = World::new(pool_after(Some(SignedDuration::from_secs(after))));
        let writes: Vec<i64> = (0..600)
            .filter(|second| {
                if second % period == 0 {
                    world.new_pod(&format!("p-{second}"));
                }
                world.step(*second)
            })
            .collect();
        let most = writes.iter().map(|from| writes.iter().filter(|at| (*from..from + 10).contains(*at)).count()).max();
        assert!(most <= Some(2), "every {period} s, after {after} s: {writes:?}");
    }
}

#[test]
fn a_change_of_pods_does_not_wait_for_what_else_was_written() {
    let mut world = World::new(pool_after(Some(SignedDuration::from_secs(60))));
    world.step(0);
    assert!(world.step(60) && world.claim().status.consolidatable);
    world.new_pod("first");
    assert!(world.step(61));
    assert_eq!(world.claim().status.last_pod_event, Some(at(61)));
    world.new_pod("second");
    assert_eq!(world.decide(64), (None, Some(at(71))), "one event in ten seconds");
}

#[test]
fn a_write_without_effect_is_repeated_less_often_each_time() {
    let mut world = World::new(pool("general"));
    world.change(|claim| claim.status.consistent_state = None);
    let times: Vec<i64> = (0..200).filter(|second| world.decide(*second).0.is_some()).collect();
    assert_eq!(times, [0, 10, 30, 70, 150]);
}

/// Consolidation goes by the event, so that it must not be missing for long after writes work again.
#[test]
fn an_event_that_could_not_be_written_is_tried_again_each_minute() {
    let mut world = World::new(pool_after(Some(HOUR)));
    world.step(0);
    world.new_pod("a");
    let tries: Vec<i64> = (100..1_000).filter(|second| world.decide(*second).0.is_some()).collect();
    let longest = tries.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!((30..=60).contains(&longest) && tries.len() < 60, "{tries:?}");
    // Nothing else is needed for it to be tried.
    let mut world = World::new(pool_after(Some(HOUR)));
    world.step(0);
    world.new_pod("a");
    let mut now = 100;
    for _ in 0..20 {
        // The end of a write wakes.
        while world.decide(now).0.is_some() {}
        let (_, next) = world.decide(now);
        let wait = next.map(|next| next.duration_since(at(now)).as_secs()).unwrap();
        assert!((1..=60).contains(&wait), "{wait} s at {now}");
        now += wait;
    }
}

#[test]
fn nothing_is_written_beside_a_report_that_runs_nor_before_the_node_is_initialized() {
    let mut world = World::new(pool("general"));
    world.change(|claim| claim.status.consistent_state = None);
    world.snapshot.in_progress = [CommandKey::ClaimReport(world.claim().name)].into();
    assert_eq!(world.decide(0).0, None);
    world.snapshot.in_progress.clear();
    let mut early = World::new(pool("general"));
    early.change(|claim| (claim.status.consistent_state, claim.status.initialized) = (None, None));
    early.node.ready = false;
    early.snapshot.put_node(early.node.clone());
    assert_eq!(early.decide(0).0, None);
    assert!(world.decide(0).0.is_some());
}

#[test]
fn a_node_with_less_than_nine_tenths_of_what_was_requested_is_not_what_was_launched() {
    let mut world = World::new(pool("general"));
    world.change(|claim| {
        claim.spec.requests = Resources { pods: 3, ..Resources::cpu_memory(500, 1 << 30) };
        claim.spec.requests.set_extended("nvidia.com/gpu", 1);
        claim.status.capacity = Resources { pods: 110, ..Resources::cpu_memory(4000, 16 << 30) };
        claim.status.capacity.set_extended("nvidia.com/gpu", 8);
    });
    let mut consistent = |cpu, memory: i64, gpus, seconds| {
        world.node.capacity = Resources { pods: 110, ..Resources::cpu_memory(cpu, memory) };
        world.node.capacity.set_extended("nvidia.com/gpu", gpus);
        world.snapshot.put_node(world.node.clone());
        world.step(seconds);
        world.claim().status.consistent_state.unwrap()
    };
    let holding = StatusCondition::holding("ConsistentStateFound");
    assert_eq!(consistent(3600, 15 << 30, 8, 0), holding, "nine tenths are enough");
    assert_eq!(consistent(3599, 12 << 30, 8, 599), holding, "it is compared every ten minutes");
    let found = consistent(3599, 12 << 30, 0, 600);
    let message = "expected 4 of resource cpu, but found 3599m (89.9% of expected); expected 16Gi of resource memory, but \
                   found 12Gi (75.0% of expected); expected 8 of resource nvidia.com/gpu, but found 0 (0.0% of expected)";
    assert_eq!(found, StatusCondition::failing("ConsistencyCheckFailed", message));
    assert_eq!(consistent(4000, 16 << 30, 8, 1200), holding);
}

#[test]
fn a_node_that_has_lost_something_is_compared_though_nothing_else_happens() {
    let mut world = World::new(pool("general"));
    world.change(|claim| {
        claim.spec.requests.set_extended("nvidia.com/gpu", 1);
        claim.status.capacity.set_extended("nvidia.com/gpu", 8);
    });
    world.node.capacity.set_extended("nvidia.com/gpu", 8);
    world.snapshot.put_node(world.node.clone());
    world.step(0);
    assert!(!world.step(100));
    world.node.capacity.set_extended("nvidia.com/gpu", 0);
    world.snapshot.put_node(world.node.clone());
    assert_eq!(world.decide(200), (None, Some(at(600))));
    assert!(!world.decide(600).0.unwrap().consistent_state.holds);
}

#[test]
fn resources_that_were_not_requested_or_not_expected_are_not_compared() {
    let mut world = World::new(pool("general"));
    world.change(|claim| {
        claim.spec.requests = Resources::cpu_memory(500, 0);
        claim.spec.requests.set_extended("example.com/fpga", 1);
    });
    world.node.capacity = Resources::cpu_memory(world.node.capacity.cpu_millis, 1);
    world.snapshot.put_node(world.node.clone());
    assert!(!world.step(0), "memory was not requested, and the size has no such device");
}

#[test]
fn what_is_only_told_changes_nothing_that_is_computed_from_claims() {
    let mut world = World::new(pool("general"));
    let generation = world.snapshot.claims().generation();
    world.change(|claim| (claim.status.consolidatable, claim.status.consistent_state) = (false, None));
    assert_eq!((world.snapshot.claims().generation(), world.claim().status.consolidatable), (generation, false));
    world.change(|claim| claim.status.last_pod_event = Some(at(1)));
    assert!(world.snapshot.claims().generation() > generation);
}
