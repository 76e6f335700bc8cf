//! How pods are evicted, and what ends a drain in time.

use super::*;
use crate::fixtures::disruption_budget;
use crate::lifecycle::EvictionScript;
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::errors::ClusterError;
use crate::model::names::{ObjectKey, ObjectName, Uid};
use crate::model::settings::Pause;
use crate::plan::{CommandReport, EvictionReport};
use crate::snapshot::CommandKey;

const REFUSED: ClusterError = ClusterError::Budget { retry_after: 0 };

/// A draining, tainted node.
fn tainted(change: impl FnOnce(&mut Claim, &mut Pod)) -> Snapshot {
    draining(|claim, node, pod| {
        node.taints.push(Taint::disrupted());
        change(claim, pod);
    })
}

fn first_pod(snapshot: &Snapshot) -> Arc<Pod> {
    Arc::clone(snapshot.pods().values().next().unwrap())
}

/// Milliseconds after the start.
fn ms(n: i64) -> jiff::Timestamp {
    start() + SignedDuration::from_millis(n)
}

fn decided_at(snapshot: &Snapshot, memory: &mut LifecycleMemory, now: jiff::Timestamp) -> Plan {
    lifecycle(snapshot, memory, &settings(), now)
}

/// The moments, in milliseconds, of the attempts of half a minute, which are all answered so.
fn attempts(refusal: Option<ClusterError>) -> Vec<i64> {
    let snapshot = tainted(|_, _| {});
    let pod = first_pod(&snapshot).uid.clone();
    let mut memory = LifecycleMemory::default();
    let moments = (0..30_000).step_by(50).filter(|n| {
        let tried = words(&decided_at(&snapshot, &mut memory, ms(*n))).contains(&"evict");
        if tried {
            memory.record_eviction(&EvictionReport { pod: pod.clone(), refusal, at: ms(*n) });
        }
        tried
    });
    moments.collect()
}

#[test]
fn a_refused_eviction_is_repeated_ever_more_slowly() {
    let budget = [0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700, 22_700];
    assert_eq!(attempts(Some(REFUSED)), budget);
    assert_eq!(attempts(Some(ClusterError::SeveralBudgets)), budget);
    assert_eq!(attempts(Some(ClusterError::Denied)), budget);
    assert_eq!(attempts(Some(ClusterError::Budget { retry_after: 10 })), [0, 10_000, 20_000]);
    assert_eq!(attempts(Some(ClusterError::Overloaded { retry_after: 4 }))[..3], [0, 4_000, 8_000]);
    assert_eq!(attempts(None), [0, 10_000, 20_000], "its deletion should be seen by then");
}

#[test]
fn the_next_decision_is_due_when_the_next_attempt_is() {
    let snapshot = tainted(|_, _| {});
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided_at(&snapshot, &mut memory, ms(0))), ["evict"]);
    memory.record_eviction(&EvictionReport {
        pod: first_pod(&snapshot).uid.clone(),
        refusal: Some(ClusterError::Budget { retry_after: 7 }),
        at: ms(20),
    });
    assert_eq!(decided_at(&snapshot, &mut memory, ms(30)).next, Some(ms(7_020)));
}

fn with_budget(snapshot: &mut Snapshot, name: &str, allowed: u32) {
    let key = ObjectKey { name: ObjectName::new(name).unwrap(), ..first_pod(snapshot).key.clone() };
    let budget = PodDisruptionBudget { key, disruptions_allowed: allowed, ..disruption_budget("a", 1) };
    snapshot.put_disruption_budget(budget.key.clone(), budget);
}

#[test]
fn a_budget_that_allows_evictions_again_ends_the_pause() {
    let mut snapshot = tainted(|_, _| {});
    with_budget(&mut snapshot, "a", 0);
    let pod = first_pod(&snapshot).uid.clone();
    for (refusal, expected) in [(REFUSED, vec!["evict"]), (ClusterError::Budget { retry_after: 10 }, vec![])] {
        let mut memory = LifecycleMemory::default();
        let mut snapshot = snapshot.clone();
        assert_eq!(words(&decided_at(&snapshot, &mut memory, ms(0))), ["evict"]);
        for _ in 0..7 {
            memory.record_eviction(&EvictionReport { pod: pod.clone(), refusal: Some(refusal), at: ms(0) });
        }
        assert!(words(&decided_at(&snapshot, &mut memory, ms(1_000))).is_empty());
        with_budget(&mut snapshot, "a", 1);
        assert_eq!(words(&decided_at(&snapshot, &mut memory, ms(1_050))), expected, "{refusal:?}");
        assert!(words(&decided_at(&snapshot, &mut memory, ms(1_060))).is_empty(), "once");
    }
}

/// A draining node with so many more pods of the app.
fn with_pods(number: usize) -> Snapshot {
    let mut snapshot = tainted(|_, _| {});
    let first = first_pod(&snapshot);
    for n in 0..number {
        let key = ObjectKey { name: ObjectName::new(format!("q{n:02}")).unwrap(), ..first.key.clone() };
        snapshot.put_pod(Pod { key, uid: Uid::new(format!("q{n}")).unwrap(), ..Pod::clone(&first) });
    }
    snapshot
}

fn evicted(plan: &Plan) -> Vec<ObjectKey> {
    let pod = |command: &Command| match command {
        Command::Evict { pod, .. } => Some(pod.clone()),
        _ => None,
    };
    plan.commands.iter().filter_map(|planned| pod(&planned.command)).collect()
}

#[test]
fn of_the_pods_of_one_budget_one_is_evicted_at_a_time() {
    let mut snapshot = with_pods(9);
    let all = evicted(&decided_at(&snapshot, &mut LifecycleMemory::default(), ms(0)));
    assert_eq!(all.len(), 10, "without a budget all at once");
    with_budget(&mut snapshot, "a", 3);
    let mut memory = LifecycleMemory::default();
    let first = evicted(&decided_at(&snapshot, &mut memory, ms(0)));
    assert_eq!(first.len(), 1);
    snapshot.in_progress.insert(CommandKey::Pod(first[0].clone()));
    assert!(evicted(&decided_at(&snapshot, &mut memory, ms(500))).is_empty(), "it has not been answered");
    snapshot.in_progress.clear();
    let report =
        EvictionReport { pod: snapshot.pods().get(&first[0]).unwrap().uid.clone(), refusal: None, at: ms(500) };
    memory.record_eviction(&report);
    let second = evicted(&decided_at(&snapshot, &mut memory, ms(510)));
    assert!(second.len() == 1 && second != first, "{second:?}");
}

#[test]
fn a_limited_number_of_evictions_is_under_way_in_the_whole_cluster() {
    let mut snapshot = with_pods(60);
    let (claim, mut node) = managed("general-b", &pool("general"), offering(SMALL, 1, Spot));
    node.taints.push(Taint::disrupted());
    for n in 0..10 {
        snapshot.put_pod(running(&format!("b{n}"), &Arc::new(shape("b", 10, 1)), &node));
    }
    put(&mut snapshot, (Claim { deleting_at: Some(start()), ..claim }, node));
    let mut memory = LifecycleMemory::default();
    let first = evicted(&decided_at(&snapshot, &mut memory, ms(0)));
    assert_eq!(first.len(), 32);
    snapshot.in_progress.extend(first[..20].iter().cloned().map(CommandKey::Pod));
    let second = evicted(&decided_at(&snapshot, &mut memory, ms(50)));
    assert_eq!(second.len(), 12);
    assert!(second.iter().all(|pod| !first.contains(pod)));
}

#[test]
fn nothing_is_evicted_or_deleted_while_disruption_is_paused() {
    let mut snapshot = tainted(|claim, _| claim.termination_at = Some(at(10)));
    snapshot.pause = Pause::of([PauseSwitch::Disrupt]);
    for seconds in [0, 9] {
        assert!(words(&decided(&snapshot, &mut LifecycleMemory::default(), seconds)).is_empty(), "{seconds}");
    }
}

#[test]
fn an_eviction_reports_how_it_was_answered() {
    let snapshot = tainted(|_, _| {});
    let pod = first_pod(&snapshot);
    let answered = |answer: Result<Reply, EffectError>| {
        let effect = Effect::Cluster(ClusterWrite::Evict(pod.key.clone(), pod.uid.clone()));
        let mut script = EvictionScript::new(effect.clone(), pod.uid.clone());
        assert_eq!(script.step(None, at(0)), Step::perform(effect));
        let Step::End(report) = script.step(Some(answer), at(1)) else { panic!("one effect") };
        report
    };
    let refused = |refusal| answered(Err(EffectError::Cluster(refusal)));
    let told = |refusal| CommandReport {
        eviction: Some(Box::new(EvictionReport { pod: pod.uid.clone(), refusal, at: at(1) })),
        ..CommandReport::default()
    };
    assert_eq!(answered(Ok(Reply::Done)), told(None));
    assert_eq!(refused(ClusterError::NotFound), told(None), "it has left");
    for normal in [REFUSED, ClusterError::SeveralBudgets, ClusterError::Conflict] {
        assert_eq!(refused(normal), told(Some(normal)));
    }
    for failure in [ClusterError::Denied, ClusterError::Forbidden, ClusterError::Overloaded { retry_after: 1 }] {
        let error = Some(EffectError::Cluster(failure));
        assert_eq!(refused(failure), CommandReport { error, ..told(Some(failure)) });
    }
    let blocked = EffectError::Blocked("the pause switch is set");
    let report = answered(Err(blocked.clone()));
    assert_eq!(report, CommandReport { error: Some(blocked), ..CommandReport::default() }, "nothing was asked");
}

/// What becomes of a pod with half a minute to end, whose node has to be drained within ten minutes.
fn near_the_deadline(change: impl FnOnce(&mut Claim, &mut Pod), seconds: i64) -> Plan {
    let snapshot = tainted(|claim, pod| {
        claim.spec.termination_grace_period = Some(SignedDuration::from_mins(10));
        claim.termination_at = Some(at(600));
        pod.do_not_disrupt = Some(DoNotDisrupt::Always);
        change(claim, pod);
    });
    decided(&snapshot, &mut LifecycleMemory::default(), seconds)
}

#[test]
fn pods_that_cannot_be_evicted_are_deleted_early_enough_to_end_before_the_deadline() {
    let early = near_the_deadline(|_, _| {}, 569);
    assert_eq!((words(&early), early.next), (vec![], Some(at(570))));
    let graces = [(570, 30), (590, 10), (599, 1), (600, 1), (630, 1)];
    for (seconds, grace) in graces {
        let plan = near_the_deadline(|_, _| {}, seconds);
        let [Command::DeletePod { grace: given, .. }] =
            &plan.commands.iter().map(|p| p.command.clone()).collect::<Vec<_>>()[..]
        else {
            panic!("{seconds}: {plan:?}")
        };
        assert_eq!(given.as_secs(), grace, "{seconds}");
    }
    assert_eq!(words(&near_the_deadline(|_, _| {}, 660)), ["terminate"], "no pod holds a node past its grace period");
    let leaving = near_the_deadline(|_, pod| pod.deleting_at = Some(at(500)), 580);
    assert!(words(&leaving).is_empty(), "it has been asked to end");
    let long = near_the_deadline(|_, pod| pod.termination_grace = SignedDuration::from_hours(1), 1);
    assert_eq!(words(&long), ["delete pod"], "it needs more time than there is");
}

#[test]
fn the_deadline_is_recorded_and_only_tightens() {
    let recorded = |known: Option<i64>, grace: Option<i64>| {
        let snapshot = tainted(|claim, pod| {
            claim.spec.termination_grace_period = grace.map(SignedDuration::from_secs);
            claim.termination_at = known.map(at);
            pod.do_not_disrupt = Some(DoNotDisrupt::Always);
        });
        let claim = snapshot.claims().values().next().unwrap();
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), 0);
        let written = plan.commands.iter().find_map(|planned| match &planned.command {
            Command::RecordDeadline { deadline, .. } => Some(*deadline),
            _ => None,
        });
        (claim.drain_deadline(), written)
    };
    assert_eq!(recorded(None, None), (None, None));
    assert_eq!(recorded(None, Some(600)), (Some(at(600)), Some(at(600))));
    assert_eq!(recorded(Some(600), Some(600)), (Some(at(600)), None));
    assert_eq!(recorded(Some(900), Some(600)), (Some(at(600)), Some(at(600))), "a later one does not count");
    assert_eq!(recorded(Some(300), Some(600)), (Some(at(300)), None), "a user has ended it earlier");
    assert_eq!(recorded(Some(300), None), (Some(at(300)), None));
}

#[test]
fn a_deadline_that_cannot_be_written_delays_nothing() {
    let mut snapshot = tainted(|claim, _| claim.spec.termination_grace_period = Some(SignedDuration::from_mins(10)));
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["deadline", "evict"]);
    let key = first_pod(&snapshot).key.clone();
    snapshot.remove_pod(&key);
    assert_eq!(words(&decided(&snapshot, &mut memory, 5)), ["terminate"]);
}
