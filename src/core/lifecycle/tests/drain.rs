//! How pods are evicted, and what ends a drain in time.

use super::*;
use crate::fixtures::{bound_claim, disruption_budget};
use crate::lifecycle::EvictionScript;
use crate::model::cluster::claim::{TerminationCondition, TerminationConditions};
use crate::model::cluster::disruption_budget::PodDisruptionBudget;
use crate::model::cluster::node::Node;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::cluster::volume::Attachment;
use crate::model::errors::ClusterError;
use crate::model::names::{ObjectKey, ObjectName, Uid};
use crate::model::settings::Pause;
use crate::plan::{CommandReport, EvictionReport, IfVmLost};
use crate::snapshot::CommandKey;

const REFUSED: ClusterError = ClusterError::Budget { retry_after: 0 };

/// A draining, tainted node.
fn tainted(change: impl FnOnce(&mut Claim, &mut Pod)) -> Snapshot {
    draining(|claim, node, pod| {
        mark_draining(node);
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
    lifecycle(snapshot, memory, &ProvisionMemory::default(), &settings(), now)
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
    mark_draining(&mut node);
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
fn a_paused_drain_is_that_of_the_node_pool_or_of_the_reason_on_the_node_claim() {
    let drained = |key: &str, reason| {
        let mut snapshot = tainted(|claim, _| claim.status.disrupted = reason);
        snapshot.pause = Pause::read([(key, Some("until 2100-01-01T00:00:00Z"))]).0;
        !evicted(&decided(&snapshot, &mut LifecycleMemory::default(), 0)).is_empty()
    };
    let pool = tainted(|_, _| {}).claims().values().next().and_then(|claim| claim.spec.pool.clone()).unwrap();
    let (drifted, of_pool) = (Some(DisruptionReason::Drifted), format!("disrupt.nodepool.{pool}"));
    assert_eq!([drained(&of_pool, None), drained(&of_pool, drifted)], [false, false]);
    assert_eq!([drained("disrupt.reason.Drifted", None), drained("disrupt.reason.Drifted", drifted)], [true, false]);
    assert!(drained("disrupt.reason.Empty", drifted) && drained("disrupt.nodepool.other", drifted));
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

/// A pod with half a minute to end that refuses to be disrupted, whose node has to be drained within ten minutes.
fn with_deadline(change: impl FnOnce(&mut Claim, &mut Pod)) -> Snapshot {
    tainted(|claim, pod| {
        claim.spec.termination_grace_period = Some(SignedDuration::from_mins(10));
        claim.termination_at = Some(at(600));
        pod.do_not_disrupt = Some(DoNotDisrupt::Always);
        change(claim, pod);
    })
}

/// What becomes of it.
fn near_the_deadline(change: impl FnOnce(&mut Claim, &mut Pod), seconds: i64) -> Plan {
    decided(&with_deadline(change), &mut LifecycleMemory::default(), seconds)
}

/// The time to end that the pods get that are deleted.
fn graces(plan: &Plan) -> Vec<i64> {
    let grace = |command: &Command| match command {
        Command::DeletePod { grace, .. } => Some(grace.as_secs()),
        _ => None,
    };
    plan.commands.iter().filter_map(|planned| grace(&planned.command)).collect()
}

#[test]
fn pods_that_cannot_be_evicted_are_deleted_early_enough_to_end_before_the_deadline() {
    let early = near_the_deadline(|_, _| {}, 569);
    assert_eq!((words(&early), early.next), (vec![], Some(at(570))));
    for (seconds, grace) in [(570, 30), (590, 10), (599, 1), (600, 1), (630, 1)] {
        let plan = near_the_deadline(|_, _| {}, seconds);
        assert_eq!((words(&plan), graces(&plan)), (vec!["delete pod"], vec![grace]), "{seconds}");
    }
    let leaving = near_the_deadline(|_, pod| pod.deleting_at = Some(at(500)), 580);
    assert!(words(&leaving).is_empty(), "it has been asked to end");
    let long = near_the_deadline(|_, pod| pod.termination_grace = SignedDuration::from_hours(1), 1);
    assert_eq!(words(&long), ["delete pod"], "it needs more time than there is");
}

#[test]
fn pods_that_are_ending_get_no_more_time_than_the_deadline_allows() {
    let ending = |since, grace| {
        let plan = near_the_deadline(
            |_, pod| (pod.deleting_at, pod.termination_grace) = (Some(at(since)), SignedDuration::from_mins(grace)),
            300,
        );
        graces(&plan)
    };
    assert_eq!(ending(60, 9), Vec::<i64>::new(), "it ends at the deadline");
    assert_eq!(ending(60, 10), [300], "it would end a minute later");
}

#[test]
fn no_pod_holds_a_node_for_more_than_a_minute_past_its_deadline_once_it_was_asked_to_end() {
    let words_at =
        |snapshot: &Snapshot, memory: &mut LifecycleMemory, seconds| words(&decided(snapshot, memory, seconds));
    let snapshot = with_deadline(|_, _| {});
    let mut memory = LifecycleMemory::default();
    assert_eq!(words_at(&snapshot, &mut memory, 570), ["delete pod"]);
    assert_eq!(words_at(&snapshot, &mut memory, 659), ["delete pod"]);
    assert_eq!(words_at(&snapshot, &mut memory, 660), ["terminate"]);
    // Nothing was decided around the deadline.
    let mut memory = LifecycleMemory::default();
    assert_eq!(words_at(&snapshot, &mut memory, 700), ["delete pod"]);
    assert_eq!(words_at(&snapshot, &mut memory, 759), ["delete pod"]);
    assert_eq!(words_at(&snapshot, &mut memory, 760), ["terminate"]);
    // Nor was a pod to be asked, as long as disruption was paused.
    let mut memory = LifecycleMemory::default();
    let mut paused = snapshot.clone();
    paused.pause = Pause::of([PauseSwitch::Disrupt]);
    for seconds in [570, 660, 3_600] {
        assert!(words_at(&paused, &mut memory, seconds).is_empty(), "{seconds}");
    }
    assert_eq!(words_at(&snapshot, &mut memory, 3_700), ["delete pod"]);
    assert_eq!(words_at(&snapshot, &mut memory, 3_760), ["terminate"]);
}

#[test]
fn a_deletion_waits_for_no_eviction() {
    // The API server has denied the pod's eviction five seconds before it must be asked to end.
    let mut snapshot = with_deadline(|_, pod| pod.do_not_disrupt = None);
    let mut memory = LifecycleMemory::default();
    let pod = first_pod(&snapshot);
    assert_eq!(words(&decided(&snapshot, &mut memory, 565)), ["evict"]);
    let refusal = Some(ClusterError::Overloaded { retry_after: 10 });
    memory.record_eviction(&EvictionReport { pod: pod.uid.clone(), refusal, at: at(565) });
    assert_eq!(words(&decided(&snapshot, &mut memory, 570)), ["delete pod"]);
    // Evictions of as many other pods as may be evicted at once hang.
    let others = (0..32).map(|n| ObjectKey { name: ObjectName::new(format!("other-{n}")).unwrap(), ..pod.key.clone() });
    snapshot.in_progress.extend(others.map(CommandKey::Pod));
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 570)), ["delete pod"]);
}

#[test]
fn a_node_that_cannot_be_tainted_is_drained_by_its_deadline() {
    let mut snapshot = with_deadline(|_, _| {});
    let node = Node { taints: Vec::new(), ..Node::clone(snapshot.nodes().values().next().unwrap()) };
    snapshot.put_node(node);
    let mut memory = LifecycleMemory::default();
    assert!(words(&decided(&snapshot, &mut memory, 570)).contains(&"delete pod"));
    assert_eq!(words(&decided(&snapshot, &mut memory, 660)), ["terminate"]);
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
    let plan = decided(&snapshot, &mut memory, 0);
    assert_eq!(words(&plan), ["evict", "deadline"]);
    // The API server does not answer that write.
    snapshot.in_progress.insert(plan.commands[1].command.key());
    assert_eq!(words(&decided(&snapshot, &mut memory, 2)), ["evict"]);
    let key = first_pod(&snapshot).key.clone();
    snapshot.remove_pod(&key);
    assert_eq!(words(&decided(&snapshot, &mut memory, 5)), ["terminate"]);
}

#[test]
fn a_drain_takes_long_enough_for_load_balancers_to_leave_the_node_out() {
    let mut snapshot = tainted(|_, _| {});
    let key = first_pod(&snapshot).key.clone();
    snapshot.remove_pod(&key);
    let mut memory = LifecycleMemory::default();
    let early = decided_at(&snapshot, &mut memory, ms(0));
    assert_eq!((words(&early), early.next), (vec![], Some(ms(5_000))));
    assert!(words(&decided_at(&snapshot, &mut memory, ms(4_999))).is_empty());
    assert_eq!(words(&decided_at(&snapshot, &mut memory, ms(5_000))), ["terminate"]);
}

#[test]
fn a_node_that_was_tainted_before_is_labelled_and_drained_meanwhile() {
    let snapshot = draining(|_, node, _| node.taints.push(Taint::disrupted()));
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["taint", "evict"]);
    assert!(!words(&decided(&snapshot, &mut memory, 14)).contains(&"taint"), "it has been tried");
    assert!(words(&decided(&snapshot, &mut memory, 15)).contains(&"taint"));
}

/// The conditions of the NodeClaim that a plan has written.
fn told(plan: &Plan) -> Option<TerminationConditions> {
    plan.commands.iter().find_map(|planned| match &planned.command {
        Command::UpdateClaim { update: ClaimUpdate::Terminating(conditions), .. } => Some((**conditions).clone()),
        _ => None,
    })
}

/// `Drained` of a drain that has not moved for half a minute, whose evictions are refused so, as status, reason and
/// message.
fn blocked(snapshot: &Snapshot, refusal: Option<ClusterError>) -> (Option<bool>, String, String) {
    let mut memory = LifecycleMemory::default();
    let first = told(&decided(snapshot, &mut memory, 0)).unwrap().drained.unwrap();
    assert_eq!((first.holds, &*first.reason), (None, "Draining"), "it has just begun");
    for seconds in 1..30 {
        assert_eq!(told(&decided(snapshot, &mut memory, seconds)), None, "{seconds}");
        if let Some(pod) = snapshot.pods().values().next().filter(|_| refusal.is_some()) {
            memory.record_eviction(&EvictionReport { pod: pod.uid.clone(), refusal, at: at(seconds) });
        }
    }
    let drained = told(&decided(snapshot, &mut memory, 30)).map(|told| told.drained.unwrap()).unwrap_or(first);
    (drained.holds, drained.reason.to_string(), drained.message.to_string())
}

#[test]
fn a_blocked_drain_is_told_within_a_minute_with_pod_and_reason() {
    let by_budget = |allowed: &[u32]| {
        let mut snapshot = tainted(|_, _| {});
        for (n, allowed) in allowed.iter().enumerate() {
            with_budget(&mut snapshot, &format!("pdb{n}"), *allowed);
        }
        snapshot
    };
    for (snapshot, refusal, message) in [
        (
            by_budget(&[0]),
            Some(REFUSED),
            "pod default/p: PodDisruptionBudget default/pdb0 allows no eviction now (pdb0: currentHealthy 2, \
             desiredHealthy 1, disruptionsAllowed 0)",
        ),
        (
            by_budget(&[1, 1]),
            Some(ClusterError::SeveralBudgets),
            "pod default/p: PodDisruptionBudgets default/pdb0 and default/pdb1 both select it, so that it cannot be \
             evicted (pdb0: currentHealthy 2, desiredHealthy 1, disruptionsAllowed 1; pdb1: currentHealthy 2, \
             desiredHealthy 1, disruptionsAllowed 1)",
        ),
        (
            tainted(|_, pod| pod.do_not_disrupt = Some(DoNotDisrupt::Always)),
            None,
            "pod default/p: its annotation karpenter.sh/do-not-disrupt forbids it",
        ),
        (
            tainted(|_, _| {}),
            Some(ClusterError::Denied),
            "pod default/p: the API server refuses its eviction: an admission policy or webhook denies it: allow it \
             there, the log has its message",
        ),
    ] {
        assert_eq!(blocked(&snapshot, refusal), (Some(false), "Blocked".to_owned(), message.to_owned()));
    }
    let leaving =
        tainted(|_, pod| (pod.deleting_at, pod.termination_grace) = (Some(at(0)), SignedDuration::from_hours(1)));
    assert_eq!(blocked(&leaving, None).0, None, "it has an hour to end");
}

#[test]
fn a_drain_that_moves_again_is_blocked_no_more() {
    let mut snapshot = tainted(|_, pod| pod.do_not_disrupt = Some(DoNotDisrupt::Always));
    let mut memory = LifecycleMemory::default();
    decided(&snapshot, &mut memory, 0).next.unwrap();
    let conditions = told(&decided(&snapshot, &mut memory, 30)).unwrap();
    assert_eq!(memory.blocked_drains.len(), 1);
    let mut claim = Claim::clone(snapshot.claims().values().next().unwrap());
    claim.status.termination.set(&conditions);
    snapshot.put_claim(claim);
    assert_eq!(told(&decided(&snapshot, &mut memory, 31)), None, "it is written");
    let mut restarted = LifecycleMemory::default();
    assert_eq!(
        told(&lifecycle(&snapshot, &mut restarted, &ProvisionMemory::default(), &settings(), at(32))),
        None,
        "after a restart too"
    );
    let pod = Pod { deleting_at: Some(at(40)), ..Pod::clone(&first_pod(&snapshot)) };
    snapshot.put_pod(pod);
    let drained = told(&decided(&snapshot, &mut memory, 41)).unwrap().drained.unwrap();
    assert_eq!((drained.holds, &*drained.reason, &*drained.message), (None, "Draining", ""));
    assert!(memory.blocked_drains.is_empty());
}

#[test]
fn conditions_that_cannot_be_written_are_tried_again_and_delay_nothing() {
    let snapshot = tainted(|_, _| {});
    let mut memory = LifecycleMemory::default();
    let tells = (0..29).filter(|n| told(&decided(&snapshot, &mut memory, *n)).is_some()).count();
    assert_eq!(tells, 1);
    let mut script = TerminateScript::new(
        Terminate { conditions: Some(Box::default()), ..terminate::command(&a_claim()) },
        DeletionRules::all(),
    );
    let (words, _) = play(&mut script, |_, effect| match effect {
        Effect::Cluster(ClusterWrite::UpdateClaim(..)) => Err(EffectError::Cluster(ClusterError::Denied)),
        other => fine(other),
    });
    assert_eq!(words[..2], ["conditions", "get"]);
    assert_eq!(words.last(), Some(&"release"));
}

/// A volume that is attached to the draining node, of the pods' claim `data`.
fn attach(snapshot: &mut Snapshot) {
    let node = first_pod(snapshot).node.clone().unwrap();
    let (name, volume) = (ObjectName::new("csi-1").unwrap(), ObjectName::new("pv-1").unwrap());
    let key = ObjectKey { name: ObjectName::new("data").unwrap(), ..first_pod(snapshot).key.clone() };
    let claim = bound_claim(&key, &volume);
    snapshot.put_volume_claim(key, claim);
    snapshot.put_attachment(name.clone(), Attachment { name, volume: Some(volume), node });
}

/// What is written about the termination, which is all that is decided.
fn terminating(plan: &Plan) -> TerminationConditions {
    assert_eq!(words(plan), ["terminate"]);
    let Command::Terminate(terminate) = &plan.commands[0].command else { panic!("{plan:?}") };
    *terminate.conditions.clone().unwrap()
}

fn status(condition: &Option<TerminationCondition>) -> Option<(Option<bool>, String)> {
    condition.as_ref().map(|condition| (condition.holds, condition.reason.to_string()))
}

#[test]
fn a_vm_is_deleted_once_the_volumes_of_its_pods_are_detached() {
    let mut snapshot = tainted(|_, _| {});
    attach(&mut snapshot);
    let key = first_pod(&snapshot).key.clone();
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["evict"]);
    snapshot.remove_pod(&key);
    let plan = decided(&snapshot, &mut memory, 10);
    assert!(words(&plan).is_empty());
    let conditions = told(&plan).unwrap();
    assert_eq!(status(&conditions.drained), Some((Some(true), "Drained".to_owned())));
    assert_eq!(status(&conditions.volumes_detached), Some((None, "AwaitingVolumeDetachment".to_owned())));
    let mut given_up = memory.clone();
    assert!(words(&decided(&snapshot, &mut given_up, 369)).is_empty());
    let told = terminating(&decided(&snapshot, &mut given_up, 370));
    assert_eq!(
        status(&told.volumes_detached),
        Some((Some(false), "TimedOut".to_owned())),
        "Kubernetes detaches by force now"
    );
    snapshot.remove_attachment(&ObjectName::new("csi-1").unwrap());
    let conditions = terminating(&decided(&snapshot, &mut memory, 20));
    assert_eq!(status(&conditions.volumes_detached), Some((Some(true), "VolumesDetached".to_owned())));
    assert_eq!(status(&conditions.instance_terminating), Some((Some(true), "InstanceTerminating".to_owned())));
}

#[test]
fn volumes_are_not_waited_for_past_the_deadline_nor_if_a_pod_keeps_them() {
    for (deadline, keeps, expected) in
        [(None, false, vec![]), (None, true, vec!["terminate"]), (Some(90), false, vec![])]
    {
        let mut snapshot = tainted(|claim, pod| {
            claim.termination_at = deadline.map(at);
            pod.volumes = vec![ObjectName::new("data").unwrap()];
            if keeps {
                let mut shape = PodShape::clone(&pod.shape);
                shape.tolerations.push(Toleration { key: None, value: None, effect: None });
                pod.shape = Arc::new(shape);
            }
        });
        attach(&mut snapshot);
        if !keeps {
            let key = first_pod(&snapshot).key.clone();
            snapshot.remove_pod(&key);
        }
        let mut memory = LifecycleMemory::default();
        assert_eq!(words(&decided(&snapshot, &mut memory, 0)), expected, "{deadline:?}, kept: {keeps}");
        if deadline.is_some() {
            assert!(words(&decided(&snapshot, &mut memory, 89)).is_empty());
            let told = terminating(&decided(&snapshot, &mut memory, 90));
            let elapsed = (Some(false), "TerminationGracePeriodElapsed".to_owned());
            assert_eq!(status(&told.volumes_detached), Some(elapsed), "its time is up");
        }
    }
}

#[test]
fn the_node_of_a_lost_vm_is_tainted_out_of_service_while_volumes_are_attached() {
    let lost = |attached: bool| {
        let mut snapshot = draining(|_, node, _| {
            mark_draining(node);
            node.ready = false;
        });
        if attached {
            attach(&mut snapshot);
        }
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), 60);
        plan.commands.into_iter().find_map(|planned| match planned.command {
            Command::CheckVm(check) => Some(check.if_lost),
            _ => None,
        })
    };
    assert!(matches!(lost(false), Some(IfVmLost::DeleteNode { .. })));
    assert!(matches!(lost(true), Some(IfVmLost::TaintOutOfService { .. })));
    let mut snapshot = draining(|_, node, _| {
        mark_draining(node);
        node.ready = false;
        node.taints.push(Taint::out_of_service());
    });
    attach(&mut snapshot);
    let mut memory = LifecycleMemory::default();
    assert!(!words(&decided(&snapshot, &mut memory, 60)).contains(&"terminate"), "Kubernetes detaches them at once");
    snapshot.remove_attachment(&ObjectName::new("csi-1").unwrap());
    assert_eq!(words(&decided(&snapshot, &mut memory, 61)), ["terminate"]);
}
