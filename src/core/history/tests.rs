//! Tests of what is recorded, and when it is written.

use super::*;
use crate::catalog::CapacityType::{OnDemand, Spot};
use crate::fixtures::{Dice, at, claim, cluster, managed, offering, pod, pool, put, running, settings, shape, start};
use crate::model::cluster::claim::{DriftedCondition, ForcefulReason};
use crate::model::cluster::node_record::{RemovedBy, with_removals};
use crate::model::cluster::pod::{Pod, PodOwner, PodPhase};
use crate::model::cluster::pool::DisruptionReason;
use crate::model::errors::{ClusterError, EffectError};
use crate::model::names::ClaimName;
use crate::plan::{ClusterWrite, Effect, PlannedCommand, Reply};

/// A cluster with a node of the NodePool `general`.
fn one_node() -> Snapshot {
    let mut snapshot = cluster([pool("general")]);
    put(&mut snapshot, managed("general-old", &pool("general"), offering("Standard_D4s_v5", 1, OnDemand)));
    snapshot
}

fn claim_named(snapshot: &Snapshot, name: &str) -> Claim {
    Claim::clone(snapshot.claims().get(&ClaimName::new(name).unwrap()).unwrap())
}

fn change(snapshot: &mut Snapshot, change: impl FnOnce(&mut Claim)) {
    let mut claim = claim_named(snapshot, "general-old");
    change(&mut claim);
    snapshot.put_claim(claim);
}

/// Decides at some second.
fn decide(snapshot: &Snapshot, memory: &mut HistoryMemory, seconds: i64) -> Vec<NodeRemoval> {
    let plan = record_removals(snapshot, memory, &settings(), at(seconds));
    let removals = plan.commands.into_iter().flat_map(|planned| match planned.command {
        Command::RecordRemovals(change) => change.removals,
        other => panic!("{}", other.name()),
    });
    removals.collect()
}

fn succeed(memory: &mut HistoryMemory) {
    for shard in NodeRecordShard::all() {
        memory.record(&CommandReport { recorded: Some(shard), ..CommandReport::default() });
    }
}

fn one(removals: Vec<NodeRemoval>) -> NodeRemoval {
    assert_eq!(removals.len(), 1);
    removals.into_iter().next().unwrap()
}

/// The request to delete the node, as a command of this category.
fn deleted_by(snapshot: &Snapshot, category: &'static str, reply: &Result<Reply, EffectError>) -> HistoryMemory {
    let claim = claim_named(snapshot, "general-old").reference();
    let key = CommandKey::Claim(claim.name.clone());
    let command = Command::delete_claim(claim.clone(), category);
    let planned = PlannedCommand { command, reason: Arc::from("because of that"), preconditions: None };
    let mut memory = HistoryMemory::default();
    assert!(decide(snapshot, &mut memory, 1).is_empty());
    memory.own_deletions.effect_started(&Effect::Cluster(ClusterWrite::DeleteClaim(claim)), Some(&planned), snapshot);
    memory.own_deletions.effect_replied(&key, reply);
    memory
}

#[test]
fn a_drifted_node_is_recorded_with_its_replacement_and_the_pods_that_must_leave() {
    let mut snapshot = one_node();
    let node = Arc::clone(snapshot.nodes().values().next().unwrap());
    let (mut new, new_node) = managed("general-new", &pool("general"), offering("Standard_D2s_v5", 2, Spot));
    new.spec.replaces = vec![ClaimName::new("general-old").unwrap()];
    put(&mut snapshot, (new, new_node));
    let web = Arc::new(shape("web", 100, 1));
    for (name, owner) in [("web", PodOwner::Controller), ("log", PodOwner::DaemonSet), ("bare", PodOwner::Nobody)] {
        snapshot.put_pod(Pod { owner, ..running(name, &web, &node) });
    }
    snapshot.put_pod(Pod { phase: PodPhase::Succeeded, ..running("job", &web, &node) });
    snapshot.put_pod(pod("elsewhere", &web));
    let mut memory = HistoryMemory::default();
    assert!(decide(&snapshot, &mut memory, 1).is_empty());
    change(&mut snapshot, |claim| {
        claim.status.disrupted = Some(DisruptionReason::Drifted);
        let message = Arc::from("label team: b (was a)");
        claim.status.drifted = Some(DriftedCondition { since: start(), reason: Arc::from("NodePoolDrifted"), message });
        claim.deleting_at = Some(at(5));
    });
    // After a restart: the condition tells that it was replaced.
    let entry = one(decide(&snapshot, &mut HistoryMemory::default(), 6));
    assert_eq!((entry.by, &*entry.reason), (RemovedBy::Napkeeper, "Drifted"));
    assert_eq!(&*entry.cause, "NodePoolDrifted: label team: b (was a)");
    assert_eq!((entry.started, entry.ended, entry.pods), (at(5), None, 2));
    assert_eq!(entry.removed.node, Some(node.name.clone()));
    assert_eq!(entry.removed.offering.unwrap().to_string(), "Standard_D4s_v5 westeurope-1 on-demand");
    let replacement = &entry.replacements[0];
    assert_eq!((entry.replacements.len(), replacement.claim.as_str()), (1, "general-new"));
    assert_eq!(replacement.offering.as_ref().unwrap().to_string(), "Standard_D2s_v5 westeurope-2 spot");
    assert!(replacement.price < entry.removed.price);
}

#[test]
fn who_removed_a_node_is_told_as_far_as_it_is_known() {
    let seen = || {
        let mut memory = HistoryMemory::default();
        assert!(decide(&one_node(), &mut memory, 1).is_empty());
        memory
    };
    let ours = |category| deleted_by(&one_node(), category, &Ok(Reply::Done));
    let refused = deleted_by(&one_node(), "empty", &Err(EffectError::Cluster(ClusterError::Conflict)));
    let unanswered = deleted_by(&one_node(), "empty", &Err(EffectError::Cluster(ClusterError::Unavailable)));
    let preempted = Some(ForcefulReason::Preempted);
    let unhealthy = Some(ForcefulReason::Unhealthy);
    for (mut memory, forced, by, reason) in [
        (ours("empty"), None, RemovedBy::Napkeeper, "Empty"),
        (ours("scaled_down"), None, RemovedBy::Napkeeper, "ScaledDown"),
        (ours("nodepool_deleted"), None, RemovedBy::Napkeeper, "NodePoolDeleted"),
        (unanswered, None, RemovedBy::Napkeeper, "Empty"),
        (refused, None, RemovedBy::Other, "Deleted"),
        (ours("node_deleted"), None, RemovedBy::Other, "NodeDeleted"),
        (ours("unhealthy"), unhealthy, RemovedBy::Napkeeper, "Unhealthy"),
        (ours("preempted"), preempted, RemovedBy::Azure, "Preempted"),
        (seen(), None, RemovedBy::Other, "Deleted"),
        (HistoryMemory::default(), None, RemovedBy::Unknown, "Deleted"),
        (HistoryMemory::default(), preempted, RemovedBy::Azure, "Preempted"),
    ] {
        let mut snapshot = one_node();
        change(&mut snapshot, |claim| {
            claim.status.forced = forced;
            claim.deleting_at = Some(at(5));
        });
        let entry = one(decide(&snapshot, &mut memory, 6));
        assert_eq!((entry.by, &*entry.reason), (by, reason));
        let is_told = memory.own_deletions.get(&entry.uid).is_some();
        assert_eq!(&*entry.cause == "because of that", is_told);
    }
}

#[test]
fn a_lost_vm_is_azures_doing() {
    let snapshot = one_node();
    let claim = claim_named(&snapshot, "general-old");
    let (reference, vm) = (claim.reference(), claim.intent.as_ref().unwrap().vm.clone());
    let check = crate::plan::CheckVm { claim: reference.clone(), vm, if_lost: crate::plan::IfVmLost::DeleteClaim };
    let planned =
        PlannedCommand { command: Command::CheckVm(Box::new(check)), reason: Arc::from("gone"), preconditions: None };
    let mut memory = HistoryMemory::default();
    let effect = Effect::Cluster(ClusterWrite::DeleteClaim(reference));
    memory.own_deletions.effect_started(&effect, Some(&planned), &snapshot);
    let mut snapshot = snapshot;
    change(&mut snapshot, |claim| claim.deleting_at = Some(at(5)));
    let entry = one(decide(&snapshot, &mut memory, 6));
    assert_eq!((entry.by, &*entry.reason), (RemovedBy::Azure, "VmLost"));
}

#[test]
fn an_entry_is_written_at_its_begin_and_at_its_end_and_never_more_often_than_the_interval() {
    let mut snapshot = one_node();
    let mut memory = HistoryMemory::default();
    change(&mut snapshot, |claim| claim.deleting_at = Some(at(0)));
    let begun = one(decide(&snapshot, &mut memory, 1));
    succeed(&mut memory);
    assert!(decide(&snapshot, &mut memory, 2).is_empty(), "nothing new");
    snapshot.remove_claim(&begun.removed.claim);
    let plan = record_removals(&snapshot, &mut memory, &settings(), at(3));
    assert_eq!((plan.commands.len(), plan.next), (0, Some(at(11))));
    let ended = one(decide(&snapshot, &mut memory, 11));
    assert_eq!(ended, NodeRemoval { ended: Some(at(3)), ..begun });
    succeed(&mut memory);
    assert!(memory.removals.is_empty());
    assert!(decide(&snapshot, &mut memory, 60).is_empty());
}

#[test]
fn failed_writes_are_repeated_less_and_less_often_and_lose_nothing() {
    let mut snapshot = one_node();
    let mut memory = HistoryMemory::default();
    change(&mut snapshot, |claim| claim.deleting_at = Some(at(0)));
    let mut written = Vec::new();
    for second in 0..3_600 {
        if decide(&snapshot, &mut memory, second).len() == 1 {
            written.push(second);
        }
    }
    assert_eq!(written[..5], [0, 20, 60, 140, 300]);
    assert!(written.windows(2).all(|two| two[1] - two[0] <= 320), "{written:?}");
    snapshot.remove_claim(&ClaimName::new("general-old").unwrap());
    let ended = one((3_600..4_000)
        .find_map(|second| Some(decide(&snapshot, &mut memory, second)).filter(|d| !d.is_empty()))
        .unwrap());
    assert_eq!(ended.ended, Some(at(3_600)));
}

#[test]
fn nodes_without_a_vm_of_karpenter_and_beside_managed_nap_are_not_recorded() {
    let mut snapshot = cluster([pool("general")]);
    let unlaunched = claim("general-a", &pool("general"), vec![offering("Standard_D4s_v5", 1, OnDemand)]);
    snapshot.put_claim(Claim { deleting_at: Some(at(0)), ..unlaunched });
    let (mut foreign, _) = managed("general-b", &pool("general"), offering("Standard_D4s_v5", 1, OnDemand));
    (foreign.intent, foreign.spec.planned) = (None, Vec::new());
    snapshot.put_claim(Claim { deleting_at: Some(at(0)), ..foreign });
    assert!(decide(&snapshot, &mut HistoryMemory::default(), 1).is_empty());
    let mut snapshot = one_node();
    change(&mut snapshot, |claim| claim.deleting_at = Some(at(0)));
    let companion = Settings { mode: ControllerMode::Companion, ..settings() };
    let plan = record_removals(&snapshot, &mut HistoryMemory::default(), &companion, at(1));
    assert!(plan.commands.is_empty());
}

/// A node that leaves for half a minute, and comes back under the same name; crashes, and for even seeds lost writes.
#[test]
fn crashes_lost_writes_and_reused_names_leave_one_entry_of_each_node() {
    let leaves_for = SignedDuration::from_secs(30);
    let name = ClaimName::new("general-old").unwrap();
    for seed in 1..200 {
        let (mut dice, mut snapshot, mut memory) = (Dice(seed), cluster([pool("general")]), HistoryMemory::default());
        let (mut record, mut uids): (Vec<NodeRemoval>, Vec<Uid>) = (Vec::new(), Vec::new());
        for second in 0..400 {
            let known = snapshot.claims().get(&name).map(|claim| Claim::clone(claim));
            match known {
                None => {
                    let (claim, _) = managed("general-old", &pool("general"), offering("Standard_D4s_v5", 1, Spot));
                    snapshot.put_claim(Claim { uid: Uid::new(format!("uid-{second}")).unwrap(), ..claim });
                }
                Some(claim) if claim.deleting_at.is_none() && dice.one_in(5) => {
                    uids.push(claim.uid.clone());
                    snapshot.put_claim(Claim { deleting_at: Some(at(second)), ..claim });
                }
                Some(claim) if claim.deleting_at.is_some_and(|begun| begun + leaves_for < at(second)) => {
                    let is_recorded = record.iter().any(|entry| entry.uid == claim.uid);
                    assert!(is_recorded || seed % 2 == 0, "seed {seed}: lost");
                    snapshot.remove_claim(&name);
                }
                Some(_) => {}
            }
            let crash = dice.one_in(20);
            let removals = decide(&snapshot, &mut memory, second);
            let is_lost = seed % 2 == 0 && dice.one_in(4);
            if !removals.is_empty() && !is_lost {
                record = with_removals(record, removals);
                succeed(&mut memory);
            }
            if crash {
                memory = HistoryMemory::default();
            }
        }
        let recorded: Vec<Uid> = record.iter().map(|entry| entry.uid.clone()).collect();
        assert!(recorded.iter().all(|uid| uids.contains(uid)), "seed {seed}");
        assert_eq!(recorded.iter().collect::<BTreeSet<_>>().len(), recorded.len(), "seed {seed}");
        assert!(record.len() + 2 >= uids.len() * 3 / 4, "seed {seed}: {} of {}", record.len(), uids.len());
        assert!(record.iter().all(|entry| entry.ended.is_none_or(|ended| ended > entry.started)));
    }
}
