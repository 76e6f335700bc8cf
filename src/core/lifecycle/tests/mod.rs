//! Tests of the lifecycle: phases as a table, scripts step by step, and draining.

use super::{ClaimPhase, DrainProgress, LaunchScript, LifecycleMemory, TerminateScript, lifecycle};
use crate::catalog::CapacityType::{OnDemand, Reserved, Spot};
use crate::fixtures::{
    at, claim, cluster, group, intent, managed, node, offering, pool, put, reservation_group, running, settings, shape,
    start,
};
use crate::model::azure::cloud::{CloudResource, Nic, ProvisioningState, ResourceDetail, ResourceKind, Tags, Vm};
use crate::model::azure::naming::resource_ids;
use crate::model::cluster::claim::{Claim, LaunchFailure, LaunchIntent};
use crate::model::cluster::pod::{DoNotDisrupt, Pod, PodOwner, PodShape, Taint, Toleration};
use crate::model::errors::{CloudError, CloudErrorCode, EffectError, OperationId};
use crate::model::labels;
use crate::model::names::{ArmId, ClaimName, ProviderId};
use crate::model::settings::{DeletionRules, PauseSwitch};
use crate::plan::{
    ClaimUpdate, CloudRequest, ClusterRead, ClusterWrite, Command, Effect, Launch, NodeUpdate, Plan, Reply, Script,
    Step, Terminate,
};
use crate::provisioning::ProvisionMemory;
use crate::snapshot::Snapshot;
use jiff::SignedDuration;
use std::sync::Arc;

const SMALL: &str = "Standard_D2s_v5";
const LARGE: &str = "Standard_D8s_v5";

fn a_claim() -> Claim {
    claim("general-a", &pool("general"), vec![offering(SMALL, 1, Spot), offering(LARGE, 2, OnDemand)])
}

fn script(claim: &Claim) -> LaunchScript {
    let launch = Launch {
        claim: claim.reference(),
        pool: claim.spec.pool.clone(),
        offerings: claim.spec.planned.clone(),
        intent: claim.intent.clone(),
        group: group(),
        tags: tags(claim),
        os_disk_gb: 128,
        image: None,
        security: Default::default(),
        subnet: None,
        capacity_reservation_group: None,
    };
    let sizes = cluster([pool("general")]).instance_types.values().next().unwrap().clone();
    LaunchScript::new(launch, sizes, DeletionRules::all())
}

fn tags(claim: &Claim) -> Tags {
    [(Arc::from(labels::TAG_CLAIM_UID), claim.uid.text())].into()
}

fn vm(claim: &Claim, state: ProvisioningState, tags: Tags) -> Arc<CloudResource> {
    let planned = &claim.spec.planned[0].key;
    let detail = Vm {
        size: planned.size.clone(),
        capacity_type: planned.capacity_type,
        state,
        nics: Vec::new(),
        os_disk: None,
        data_disks: Vec::new(),
        image: None,
    };
    resource(&resource_ids(&group(), &claim.name).vm, tags, ResourceDetail::Vm(detail))
}

fn nic(claim: &Claim, tags: Tags) -> Arc<CloudResource> {
    resource(
        &resource_ids(&group(), &claim.name).nic,
        tags,
        ResourceDetail::Nic(Nic { vm: None, serves: None, addresses: 1, subnet: None }),
    )
}

fn resource(id: &ArmId, tags: Tags, detail: ResourceDetail) -> Arc<CloudResource> {
    Arc::new(CloudResource { id: id.clone(), incarnation: Arc::from("1"), tags, created_at: None, zone: None, detail })
}

fn refused(code: CloudErrorCode, retry_after: Option<i64>) -> EffectError {
    let retry_after = retry_after.map(SignedDuration::from_secs);
    EffectError::Cloud(CloudError { retry_after, ..CloudError::new(code, "no") })
}

/// The error of a failed operation.
fn ended(code: CloudErrorCode) -> EffectError {
    EffectError::Cloud(CloudError { is_operation_result: true, ..CloudError::new(code, "no") })
}

/// The effect as one word, for tables.
fn word(effect: &Effect) -> &'static str {
    match effect {
        Effect::Cluster(ClusterWrite::WriteIntent(_, intent)) if intent.operation.is_some() => "operation",
        Effect::Cluster(ClusterWrite::WriteIntent(..)) => "intent",
        Effect::Cloud(CloudRequest::PutNic(_)) => "nic",
        Effect::Cloud(CloudRequest::PutVm(_)) => "vm",
        Effect::Cloud(CloudRequest::Poll(_)) => "poll",
        Effect::Cloud(CloudRequest::Get(id)) if id.folded().contains("/networkinterfaces/") => "get nic",
        Effect::Cloud(CloudRequest::Get(_)) => "get",
        Effect::Cloud(CloudRequest::GetPowerState(_)) => "get power state",
        Effect::Cloud(CloudRequest::Delete(_, ResourceKind::Vm)) => "delete vm",
        Effect::Cloud(CloudRequest::Delete(_, ResourceKind::Nic)) => "delete nic",
        Effect::Cloud(CloudRequest::Delete(..)) => "delete disk",
        Effect::Cluster(ClusterWrite::UpdateClaim(_, ClaimUpdate::Launched { .. })) => "launched",
        Effect::Cluster(ClusterWrite::UpdateClaim(_, ClaimUpdate::LaunchFailed(_))) => "launch failed",
        Effect::Cluster(ClusterWrite::UpdateClaim(_, ClaimUpdate::Terminating(_))) => "conditions",
        Effect::Read(ClusterRead::Claim(_)) => "read claim",
        Effect::Read(ClusterRead::Pods(_)) => "read pods",
        Effect::Read(ClusterRead::Node(_)) => "read node",
        Effect::Cluster(ClusterWrite::DeleteNode(..)) => "delete node",
        Effect::Cluster(ClusterWrite::DeleteClaim(_)) => "delete claim",
        Effect::Cluster(ClusterWrite::RemoveFinalizer(_)) => "release",
        other => panic!("unexpected {other:?}"),
    }
}

/// Steps a script to its end, each effect answered by `answer`; returns the words, and all the time waited.
fn play(
    script: &mut dyn Script,
    answer: impl FnMut(usize, &Effect) -> Result<Reply, EffectError>,
) -> (Vec<&'static str>, i64) {
    play_from(0, script, answer)
}

/// As [`play`], beginning so many seconds after the start.
fn play_from(
    start: i64,
    script: &mut dyn Script,
    mut answer: impl FnMut(usize, &Effect) -> Result<Reply, EffectError>,
) -> (Vec<&'static str>, i64) {
    let (mut words, mut seconds, mut reply) = (Vec::new(), 0, None);
    for _ in 0..200 {
        match script.step(reply.take(), at(start + seconds)) {
            Step::Perform(effect) => {
                let answered = answer(words.len(), &effect);
                words.push(word(&effect));
                reply = Some(answered);
            }
            Step::Wait(time) => seconds += time.as_secs().max(1),
            Step::End(_) => return (words, seconds),
        }
    }
    panic!("no end: {words:?}");
}

/// Azure on a good day.
fn fine(effect: &Effect) -> Result<Reply, EffectError> {
    Ok(match effect {
        Effect::Cloud(CloudRequest::PutVm(_)) | Effect::Cloud(CloudRequest::Delete(..)) => {
            Reply::Accepted(OperationId(Arc::from("op")))
        }
        Effect::Cloud(CloudRequest::Get(_)) => Reply::Resource(None),
        Effect::Read(ClusterRead::Pods(_)) => Reply::Pods(Vec::new()),
        Effect::Read(ClusterRead::Node(_)) => Reply::Node(None),
        _ => Reply::Done,
    })
}

mod claim_report;
mod drain;
mod launch;
mod launch_check;
mod lost_node;
mod node_health;
mod node_outage;
mod pool_failures;
mod slow_creation;
mod terminate;
mod unclaimed_node;

#[test]
fn a_claim_goes_through_its_phases() {
    let (ready, joined) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let changed = |change: fn(&mut Claim)| {
        let mut claim = ready.clone();
        change(&mut claim);
        claim
    };
    let mut leaving = joined.clone();
    leaving.deleting_at = Some(start());
    let failure = LaunchFailure { at: start(), code: Arc::from("c"), message: Arc::from("m") };
    let mut failed = a_claim();
    failed.status.launch_failed = Some(failure);
    let mut begun = a_claim();
    begun.intent = Some(intent(&begun, offering(SMALL, 1, Spot)));
    let unregistered = changed(|c| (c.status.registered, c.status.initialized) = (None, None));
    let deleted = changed(|c| c.deleting_at = Some(start()));
    for (claim, node, phase) in [
        (&a_claim(), None, ClaimPhase::Created),
        (&begun, None, ClaimPhase::Launching),
        (&failed, None, ClaimPhase::LaunchFailed),
        (&unregistered, None, ClaimPhase::Launched),
        (&unregistered, Some(&joined), ClaimPhase::Joined),
        (&changed(|c| c.status.initialized = None), Some(&joined), ClaimPhase::Registered),
        (&ready, Some(&joined), ClaimPhase::Initialized),
        (&ready, None, ClaimPhase::NodeMissing),
        (&ready, Some(&leaving), ClaimPhase::NodeMissing),
        (&deleted, Some(&joined), ClaimPhase::Draining),
        (&deleted, None, ClaimPhase::Draining),
    ] {
        assert_eq!(ClaimPhase::of(claim, node), phase);
    }
}

#[test]
fn the_intent_is_written_before_nic_and_vm() {
    let (words, _) = play(&mut script(&a_claim()), |_, effect| fine(effect));
    assert_eq!(words, ["intent", "nic", "vm", "operation", "poll", "launched"]);
}

#[test]
fn a_refusal_moves_on_to_the_next_offering_with_a_new_intent() {
    let (words, _) = play(&mut script(&a_claim()), |i, effect| {
        if i == 2 { Err(refused(CloudErrorCode::SkuNotAvailable, None)) } else { fine(effect) }
    });
    assert_eq!(words, ["intent", "nic", "vm", "intent", "vm", "operation", "poll", "launched"]);
}

#[test]
fn a_vm_that_failed_late_is_deleted_before_its_name_is_used_again() {
    let claim = a_claim();
    let (words, _) = play(&mut script(&claim), |i, effect| match i {
        4 => Err(ended(CloudErrorCode::AllocationFailed)),
        5 => Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Failed, tags(&claim))))),
        _ => fine(effect),
    });
    let start = ["intent", "nic", "vm", "operation", "poll", "get", "read node", "delete vm", "poll", "get nic"];
    assert_eq!(words[..10], start);
    assert_eq!(words[10..], ["intent", "nic", "vm", "operation", "poll", "launched"], "the NIC has gone too");
}

#[test]
fn a_launch_that_everything_refuses_fails_and_says_so() {
    for late in [false, true] {
        for code in [CloudErrorCode::SpotQuota, CloudErrorCode::FamilyQuota, CloudErrorCode::Invalid] {
            let mut deleting = false;
            let (words, _) = play(&mut script(&a_claim()), |_, effect| {
                deleting = matches!(effect, Effect::Cloud(CloudRequest::Delete(..)))
                    || (deleting && matches!(effect, Effect::Cloud(CloudRequest::Poll(_))));
                match effect {
                    Effect::Cloud(CloudRequest::PutVm(_)) if !late => Err(refused(code, None)),
                    Effect::Cloud(CloudRequest::Poll(_)) if late && !deleting => Err(ended(code)),
                    other => fine(other),
                }
            });
            assert_eq!(words.last(), Some(&"launch failed"), "{code:?}, late: {late}: {words:?}");
        }
    }
}

#[test]
fn resources_of_an_earlier_run_are_adopted() {
    let mut claim = a_claim();
    claim.intent = Some(intent(&claim, offering(SMALL, 1, Spot)));
    let found = |states: Vec<ProvisioningState>| {
        let mut states = states.into_iter();
        play(&mut script(&claim), |_, effect| match effect {
            Effect::Cloud(CloudRequest::Get(_)) => {
                Ok(Reply::Resource(states.next().map(|s| vm(&claim, s, tags(&claim)))))
            }
            other => fine(other),
        })
        .0
    };
    assert_eq!(found(vec![ProvisioningState::Succeeded]), ["get", "launched"]);
    assert_eq!(found(vec![ProvisioningState::Creating, ProvisioningState::Succeeded]), ["get", "get", "launched"]);
    assert_eq!(found(vec![ProvisioningState::Failed])[..5], ["get", "read node", "delete vm", "poll", "get nic"]);
    assert_eq!(found(vec![]), ["get", "nic", "vm", "operation", "poll", "launched"]);
}

#[test]
fn a_vm_of_the_same_name_that_is_not_ours_is_left_alone() {
    let mut claim = a_claim();
    claim.intent = Some(intent(&claim, offering(SMALL, 1, Spot)));
    let (words, _) = play(&mut script(&claim), |_, effect| match effect {
        Effect::Cloud(CloudRequest::Get(_)) => {
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Succeeded, Tags::new()))))
        }
        other => fine(other),
    });
    assert_eq!(words, ["get", "launch failed"]);
}

#[test]
fn throttled_requests_wait_for_retry_after_a_limited_number_of_times() {
    let (words, waited) = play(&mut script(&a_claim()), |i, effect| {
        if i == 2 { Err(refused(CloudErrorCode::Throttled, Some(42))) } else { fine(effect) }
    });
    assert_eq!(words, ["intent", "nic", "vm", "vm", "operation", "poll", "launched"]);
    assert!((42 + 5..=42 * 5 / 4 + 5).contains(&waited), "{waited}");
    let (words, _) = play(&mut script(&a_claim()), |_, effect| match effect {
        Effect::Cloud(CloudRequest::PutNic(_)) => Err(refused(CloudErrorCode::Throttled, None)),
        other => fine(other),
    });
    assert_eq!(words.iter().filter(|w| **w == "nic").count(), 13);
}

/// A draining node with a pod.
fn draining(
    change: impl FnOnce(&mut Claim, &mut crate::model::cluster::node::Node, &mut crate::model::cluster::pod::Pod),
) -> Snapshot {
    let mut snapshot = cluster([pool("general")]);
    let (mut claim, mut node) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    claim.deleting_at = Some(start());
    let mut pod = running("p", &Arc::new(shape("a", 500, 1)), &node);
    change(&mut claim, &mut node, &mut pod);
    snapshot.put_pod(pod);
    put(&mut snapshot, (claim, node));
    snapshot
}

/// Decides about drains that have begun a minute before.
fn decided(snapshot: &Snapshot, memory: &mut LifecycleMemory, seconds: i64) -> Plan {
    for node in snapshot.nodes().values().filter(|node| node.is_tainted(labels::TAINT_DISRUPTED)) {
        memory.drains.entry(node.name.clone()).or_insert_with(|| DrainProgress::begun(at(seconds - 60)));
    }
    lifecycle(snapshot, memory, &ProvisionMemory::default(), &settings(), at(seconds))
}

fn words(plan: &Plan) -> Vec<&'static str> {
    let word = |c: &Command| match c {
        Command::Evict { .. } => "evict",
        Command::DeletePod { .. } => "delete pod",
        Command::RecordDeadline { .. } => "deadline",
        Command::Terminate(_) => "terminate",
        Command::UpdateNode { update: NodeUpdate::BeginDrain, .. } => "taint",
        Command::UpdateNode { update: NodeUpdate::AddTaint(_), .. } => "no new pods",
        Command::UpdateClaim { update: ClaimUpdate::Forced(_), .. } => "mark",
        Command::UpdateClaim { update: ClaimUpdate::NotDisrupted, .. } => "take back",
        Command::DeleteClaim { category, .. } => category,
        Command::CheckVm(_) => "check",
        Command::Launch(_) => "launch",
        Command::ReleaseNode(_) => "release node",
        other => panic!("unexpected {other:?}"),
    };
    let is_told = |command: &Command| {
        matches!(command, Command::UpdateClaim { update: ClaimUpdate::Terminating(_) | ClaimUpdate::Report(_), .. })
    };
    plan.commands.iter().filter(|p| !is_told(&p.command)).map(|p| word(&p.command)).collect()
}

#[test]
fn a_node_is_drained_before_its_vm_is_deleted() {
    let mut snapshot = draining(|_, _, _| {});
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["taint"], "nothing else before the taint is seen");
    taint(&mut snapshot);
    assert_eq!(words(&decided(&snapshot, &mut memory, 1)), ["evict"]);
    let key = snapshot.pods().values().next().unwrap().key.clone();
    snapshot.remove_pod(&key);
    assert_eq!(words(&decided(&snapshot, &mut memory, 12)), ["terminate"]);
}

fn taint(snapshot: &mut Snapshot) {
    let drains = snapshot.nodes().values().next().unwrap();
    let mut drains = crate::model::cluster::node::Node::clone(drains);
    mark_draining(&mut drains);
    snapshot.put_node(drains);
}

/// What the beginning of a drain does to a Node.
fn mark_draining(node: &mut crate::model::cluster::node::Node) {
    node.taints.push(Taint::disrupted());
    node.labels.insert(Arc::from(labels::EXCLUDE_FROM_LOAD_BALANCERS), Arc::from("karpenter"));
}

#[test]
fn pods_that_tolerate_the_taint_are_neither_evicted_nor_waited_for() {
    let mut snapshot = draining(|_, _, _| {});
    taint(&mut snapshot);
    let pod = Arc::clone(snapshot.pods().values().next().unwrap());
    let tolerating = |key: &str| {
        let mut shape = PodShape::clone(&pod.shape);
        shape.tolerations.push(Toleration { key: Some(Arc::from(key)), value: None, effect: None });
        Pod { shape: Arc::new(shape), ..Pod::clone(&pod) }
    };
    for (key, expected) in [("karpenter.sh/disrupted", "terminate"), ("karpenter.sh/other", "evict")] {
        snapshot.put_pod(tolerating(key));
        assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 0)), [expected], "{key}");
    }
}

#[test]
fn an_empty_node_is_tainted_and_its_pods_are_read_again_before_its_vm_is_deleted() {
    let mut snapshot = draining(|_, _, _| {});
    let pod = Arc::clone(snapshot.pods().values().next().unwrap());
    snapshot.remove_pod(&pod.key);
    let mut memory = LifecycleMemory::default();
    assert_eq!(words(&decided(&snapshot, &mut memory, 0)), ["taint"]);
    taint(&mut snapshot);
    let plan = decided(&snapshot, &mut memory, 1);
    let Command::Terminate(command) = &plan.commands[0].command else { panic!("{plan:?}") };
    assert_eq!(command.drained_node.as_ref().map(|node| node.name.clone()), pod.node);
    let pods = |list: Vec<Arc<crate::model::cluster::pod::Pod>>| {
        let mut script = TerminateScript::new(Terminate::clone(command), DeletionRules::all());
        let (words, _) = play(&mut script, |_, effect| match effect {
            Effect::Read(ClusterRead::Pods(_)) => Ok(Reply::Pods(list.clone())),
            other => fine(other),
        });
        words
    };
    assert_eq!(pods(vec![Arc::clone(&pod)]), ["read pods"], "it arrived after the drain");
    assert_eq!(pods(vec![])[..3], ["read pods", "conditions", "get"]);
}

#[test]
fn a_claim_of_another_launcher_is_left_alone() {
    let foreign = |claim: &mut Claim| (claim.intent, claim.spec.planned) = (None, Vec::new());
    let mut snapshot = draining(|claim, _, _| foreign(claim));
    let mut fresh = claim("general-b", &pool("general"), vec![offering(LARGE, 1, Spot)]);
    foreign(&mut fresh);
    snapshot.put_claim(fresh);
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 86_400)), Vec::<&str>::new());
}

#[test]
fn resources_of_a_launched_claim_are_deleted_by_their_names_whatever_became_of_its_intent() {
    let machine = |name: &str| {
        ArmId::new(format!(
            "/subscriptions/s/resourceGroups/g/providers/p/managedClusters/c/agentPools/p/machines/{name}"
        ))
    };
    let other = resource_ids(&group(), &ClaimName::new("general-other").unwrap());
    let named = |intent: LaunchIntent| LaunchIntent {
        vm: other.vm.clone(),
        nic: other.nic.clone(),
        os_disk: other.os_disk.clone(),
        machine: machine("general-other").ok(),
        ..intent
    };
    let edits: [&dyn Fn(LaunchIntent) -> Option<LaunchIntent>; 2] = [&|_| None, &|intent| Some(named(intent))];
    let mut snapshot = Snapshot::default();
    for edit in edits {
        snapshot = draining(|claim, node, _| {
            claim.intent = claim.intent.clone().and_then(edit);
            mark_draining(node);
        });
        let key = snapshot.pods().values().next().unwrap().key.clone();
        snapshot.remove_pod(&key);
        let plan = decided(&snapshot, &mut LifecycleMemory::default(), 0);
        let [Command::Terminate(terminate)] = &plan.commands.iter().map(|p| p.command.clone()).collect::<Vec<_>>()[..]
        else {
            panic!("{plan:?}")
        };
        assert_eq!(terminate.ids, resource_ids(&group(), &terminate.claim.name));
        assert_eq!(terminate.machine, None);
    }
    // Nothing is decided once our finalizer is removed and another one keeps the NodeClaim.
    let mut released = Claim::clone(snapshot.claims().values().next().unwrap());
    released.has_finalizer = false;
    snapshot.put_claim(released);
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 0)), Vec::<&str>::new());
}

#[test]
fn a_paused_cluster_launches_and_deletes_nothing() {
    let mut snapshot = draining(|_, node, _| mark_draining(node));
    let key = snapshot.pods().values().next().unwrap().key.clone();
    snapshot.remove_pod(&key);
    snapshot.put_claim(claim("general-b", &pool("general"), vec![offering(LARGE, 1, Spot)]));
    snapshot.pause = crate::model::settings::Pause::of([PauseSwitch::Launch, PauseSwitch::Delete]);
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 0)), Vec::<&str>::new());
    snapshot.pause = crate::model::settings::Pause::default();
    assert_eq!(words(&decided(&snapshot, &mut LifecycleMemory::default(), 0)), ["terminate", "launch"]);
}
