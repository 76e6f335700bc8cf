//! A node that is not ready is lost only if that is proven.

use super::terminate::{azure, terminate};
use super::*;
use crate::lifecycle::CheckVmScript;
use crate::model::azure::cloud::PowerState;
use crate::model::cluster::node::Node;
use crate::model::cluster::pod::{Pod, Taint, TaintEffect};
use crate::plan::{CheckVm, IfVmLost};

/// A draining node with a pod, tainted and not ready since the start.
fn silent(change: impl FnOnce(&mut Claim, &mut Node, &mut Pod)) -> Snapshot {
    draining(|claim, node, pod| {
        node.ready = false;
        mark_draining(node);
        change(claim, node, pod);
    })
}

fn out_of_service() -> Taint {
    let value = Arc::from("nodeshutdown");
    Taint { key: Arc::from(labels::TAINT_OUT_OF_SERVICE), value, effect: TaintEffect::NoExecute }
}

/// Every command of the next hours, a decision every 30 s.
fn all_words(snapshot: &Snapshot, hours: i64) -> Vec<&'static str> {
    let mut memory = LifecycleMemory::default();
    let plans = (0..hours * 120).map(|n| decided(snapshot, &mut memory, n * 30));
    plans.flat_map(|plan| words(&plan)).collect()
}

#[test]
fn a_draining_node_that_is_not_ready_keeps_its_vm_and_is_checked_in_azure() {
    let snapshot = silent(|_, _, _| {});
    let mut memory = LifecycleMemory::default();
    let early = decided(&snapshot, &mut memory, 10);
    assert_eq!(words(&early), ["evict"]);
    assert_eq!(words(&decided(&snapshot, &mut memory, 60)), ["evict", "check"], "its pods may run on");
    let found = all_words(&snapshot, 24);
    assert!(found.contains(&"check") && !found.contains(&"terminate"), "{:?}", found.last());
}

#[test]
fn neither_a_budget_nor_do_not_disrupt_is_passed_by_on_a_node_that_is_not_ready() {
    let snapshot = silent(|claim, _, pod| {
        claim.spec.termination_grace_period = Some(SignedDuration::from_mins(90));
        claim.termination_at = Some(at(90 * 60));
        pod.do_not_disrupt = Some(DoNotDisrupt::Always);
    });
    assert!(all_words(&snapshot, 1).iter().all(|word| *word == "check"));
    let mut memory = LifecycleMemory::default();
    let _ = decided(&snapshot, &mut memory, 90 * 60);
    assert_eq!(words(&decided(&snapshot, &mut memory, 91 * 60)), ["terminate"], "its grace period is over");
}

#[test]
fn a_person_declares_a_node_out_of_service() {
    for (ready, found) in [(false, vec!["terminate"]), (true, vec!["evict"])] {
        let snapshot = silent(|_, node, _| {
            node.ready = ready;
            node.taints.push(out_of_service());
        });
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), 10);
        assert_eq!(words(&plan), found, "ready: {ready}; its pods run on while it is ready");
    }
}

#[test]
fn a_node_without_pods_is_terminated_though_it_is_not_ready() {
    let mut snapshot = silent(|_, _, _| {});
    let key = snapshot.pods().values().next().unwrap().key.clone();
    snapshot.remove_pod(&key);
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 10)), ["terminate"]);
}

#[test]
fn a_pod_that_is_stuck_terminating_holds_only_a_node_that_is_not_ready() {
    let stuck = |node_ready: bool, ready_since: i64, seconds: i64| {
        let snapshot = draining(|_, node, pod| {
            (node.ready, node.ready_since) = (node_ready, at(ready_since));
            mark_draining(node);
            (pod.deleting_at, pod.termination_grace) = (Some(at(0)), SignedDuration::from_secs(40));
        });
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), seconds);
        (words(&plan).contains(&"terminate"), plan.next)
    };
    assert_eq!(stuck(true, 0, 99), (false, Some(at(100))), "its grace period, and a minute");
    assert!(stuck(true, 0, 100).0);
    assert!(!stuck(false, 0, 100_000).0, "nobody knows whether it has ended");
    assert!(!stuck(true, 50, 149).0, "the kubelet is back, and has just learnt of its deletion");
    assert!(stuck(true, 50, 150).0);
}

#[test]
fn the_pods_that_are_read_again_count_as_in_the_drain() {
    for (ready, found) in [(true, vec!["read pods", "conditions", "get"]), (false, vec!["read pods"])] {
        let snapshot = draining(|_, node, _| {
            node.ready = ready;
            mark_draining(node);
        });
        let mut stuck = Pod::clone(snapshot.pods().values().next().unwrap());
        stuck.deleting_at = Some(at(-1_000));
        let mut empty = snapshot.clone();
        empty.remove_pod(&stuck.key);
        let plan = decided(&empty, &mut LifecycleMemory::default(), 200);
        let Command::Terminate(command) = &plan.commands[0].command else { panic!("{plan:?}") };
        let mut script = TerminateScript::new(Terminate::clone(command), DeletionRules::all());
        let stuck = Arc::new(stuck);
        let answer = |_, effect: &Effect| match effect {
            Effect::Read(ClusterRead::Pods(_)) => Ok(Reply::Pods(vec![Arc::clone(&stuck)])),
            other => fine(other),
        };
        let (words, _) = play_from(200, &mut script, answer);
        assert_eq!(words[..found.len()], found, "ready: {ready}");
        assert_eq!(words.len() > 1, ready);
    }
}

#[test]
fn a_node_in_use_that_is_not_ready_is_checked_every_two_minutes() {
    let mut snapshot = cluster([pool("general")]);
    let (claim, mut silent) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    silent.ready = false;
    put(&mut snapshot, (claim, silent));
    snapshot.put_node(node("unmanaged", 1, 4));
    let mut memory = LifecycleMemory::default();
    let checks: Vec<usize> =
        [0, 59, 60, 100, 179, 180].map(|s| words(&decided(&snapshot, &mut memory, s)).len()).into();
    assert_eq!(checks, [0, 0, 1, 0, 0, 1]);
}

#[test]
fn what_is_deleted_for_a_lost_vm_depends_on_the_claim() {
    let (claim, mut unready) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    unready.ready = false;
    let if_lost = |deleting: bool, node: Option<&Node>, memory: &mut LifecycleMemory| {
        let mut snapshot = cluster([pool("general")]);
        let mut claim = claim.clone();
        claim.deleting_at = deleting.then(|| at(70));
        snapshot.put_pod(running("p", &Arc::new(shape("a", 500, 1)), &unready));
        node.into_iter().for_each(|node| snapshot.put_node(node.clone()));
        snapshot.put_claim(claim);
        let plan = decided(&snapshot, memory, if deleting { 71 } else { 60 });
        plan.commands.into_iter().find_map(|planned| match planned.command {
            Command::CheckVm(check) => Some(check.if_lost),
            _ => None,
        })
    };
    let memory = &mut LifecycleMemory::default();
    assert_eq!(if_lost(false, Some(&unready), memory), Some(IfVmLost::DeleteClaim));
    let node = IfVmLost::DeleteNode { name: unready.name.clone(), uid: unready.uid.clone() };
    assert_eq!(if_lost(true, Some(&unready), memory), Some(node), "the check of before does not count for the drain");
    assert_eq!(if_lost(true, Some(&unready), memory), None, "once per two minutes");
    assert_eq!(if_lost(false, None, &mut LifecycleMemory::default()), Some(IfVmLost::DeleteClaim));
}

#[test]
fn a_paused_cluster_deletes_no_node_of_a_lost_vm() {
    let mut snapshot = silent(|_, _, _| {});
    snapshot.pause = crate::model::settings::Pause::of([PauseSwitch::Delete]);
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 60)), ["evict"]);
}

#[test]
fn a_vm_is_lost_only_if_azure_says_so_twice() {
    use PowerState::{Deallocated, Deallocating, Running, Starting, Stopped, Stopping, Unknown};
    let check = |if_lost: IfVmLost, answers: [Result<Option<PowerState>, EffectError>; 2]| {
        let claim = a_claim();
        let vm = resource_ids(&group(), &claim.name).vm;
        let mut answers = answers.into_iter();
        let mut script = CheckVmScript::new(CheckVm { claim: claim.reference(), vm, if_lost });
        play(&mut script, |_, effect| match effect {
            Effect::Cloud(CloudRequest::GetPowerState(_)) => answers.next().unwrap().map(Reply::PowerState),
            other => fine(other),
        })
    };
    for first in [None, Some(Deallocated)] {
        for second in [None, Some(Deallocated)] {
            let (words, waited) = check(IfVmLost::DeleteClaim, [Ok(first), Ok(second)]);
            assert_eq!((words, waited), (vec!["get power state", "get power state", "delete claim"], 15));
        }
    }
    let (_, node) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let of_node = IfVmLost::DeleteNode { name: node.name, uid: node.uid };
    assert_eq!(check(of_node, [Ok(None), Ok(None)]).0.last(), Some(&"delete node"));
    for state in [Running, Starting, Stopping, Stopped, Deallocating, Unknown] {
        assert_eq!(check(IfVmLost::DeleteClaim, [Ok(Some(state)), Ok(None)]).0, ["get power state"], "{state:?}");
        let late = check(IfVmLost::DeleteClaim, [Ok(None), Ok(Some(state))]).0;
        assert_eq!(late, ["get power state", "get power state"], "{state:?}");
    }
    for code in [CloudErrorCode::Permission, CloudErrorCode::Throttled, CloudErrorCode::Unavailable] {
        let failed = || Err(refused(code, None));
        assert_eq!(check(IfVmLost::DeleteClaim, [failed(), Ok(None)]).0, ["get power state"]);
        assert_eq!(check(IfVmLost::DeleteClaim, [Ok(None), failed()]).0, ["get power state", "get power state"]);
    }
}

#[test]
fn a_termination_that_azure_delays_is_decided_again_until_the_vm_is_being_deleted() {
    let (claim, _) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let run = |fails: &dyn Fn(&Effect) -> bool| {
        let mut azure = azure(vec![vm(&claim, ProvisioningState::Succeeded, tags(&claim)), nic(&claim, tags(&claim))]);
        let mut failures = 1;
        play(&mut terminate(&claim), |_, effect| match effect {
            effect if failures > 0 && fails(effect) => {
                failures -= 1;
                Err(refused(CloudErrorCode::Throttled, Some(40)))
            }
            other => azure(other),
        })
    };
    let (words, waited) = run(&|effect| matches!(effect, Effect::Cloud(CloudRequest::Delete(_, ResourceKind::Vm))));
    assert_eq!(words, ["get", "delete vm"], "an outage may have begun meanwhile");
    assert!((40..=50).contains(&waited), "Azure names the time: {waited}");
    assert_eq!(run(&|effect| matches!(effect, Effect::Cloud(CloudRequest::Get(_)))).0, ["get"]);
    let (words, _) = run(&|effect| matches!(effect, Effect::Cloud(CloudRequest::Delete(_, ResourceKind::Nic))));
    assert_eq!(words.iter().filter(|word| **word == "delete nic").count(), 2, "{words:?}");
    assert_eq!(words.last(), Some(&"release"), "its VM is gone: the rest is finished in one run");
}
