//! Terminations, step by step.

use super::launch::play_whole;
use super::*;
use jiff::SignedDuration;
use std::collections::BTreeSet;

/// Terminates a claim whose node is drained.
pub(super) fn command(claim: &Claim) -> Terminate {
    let (claim, ids) = (claim.reference(), resource_ids(&group(), &claim.name));
    let (machine, drained_node, held) = (None, None, BTreeSet::new());
    Terminate { claim, ids, machine, drained_node, held, look_again: None, conditions: None }
}

pub(super) fn terminate(claim: &Claim) -> TerminateScript {
    TerminateScript::new(command(claim), DeletionRules::all())
}

/// Resources that exist until they are deleted.
pub(super) fn azure<'a>(
    mut existing: Vec<Arc<CloudResource>>,
) -> impl FnMut(&Effect) -> Result<Reply, EffectError> + 'a {
    move |effect| match effect {
        Effect::Cloud(CloudRequest::Get(id)) => Ok(Reply::Resource(existing.iter().find(|r| r.id == *id).cloned())),
        Effect::Cloud(CloudRequest::Delete(id, _)) => {
            existing.retain(|r| r.id != *id);
            Ok(Reply::Done)
        }
        other => fine(other),
    }
}

#[test]
fn terminating_takes_vm_nic_disk_and_node_and_the_finalizer_last() {
    let (claim, node) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let node = Arc::new(node);
    let mut azure = azure(vec![vm(&claim, ProvisioningState::Succeeded, tags(&claim)), nic(&claim, tags(&claim))]);
    let (words, _) = play(&mut terminate(&claim), |_, effect| match effect {
        Effect::Read(ClusterRead::Node(_)) => Ok(Reply::Node(Some(Arc::clone(&node)))),
        other => azure(other),
    });
    let wanted = ["get", "delete vm", "get", "get nic", "delete nic", "get nic", "get"];
    assert_eq!(words[..7], wanted);
    assert_eq!(words[7..], ["read node", "delete node", "release"]);
}

/// A request that was sent before a crash can arrive after the first look.
#[test]
fn after_an_interrupted_launch_everything_is_read_again_before_the_claim_is_released() {
    let claim = a_claim();
    let mut script = TerminateScript::new(
        Terminate { look_again: Some(SignedDuration::from_secs(120)), ..command(&claim) },
        DeletionRules::all(),
    );
    let mut azure = azure(vec![vm(&claim, ProvisioningState::Succeeded, tags(&claim))]);
    let (words, waited) = play(&mut script, |step, effect| match effect {
        // The VM arrives after VM, NIC and OS disk have been read.
        Effect::Cloud(CloudRequest::Get(_)) if step < 3 => Ok(Reply::Resource(None)),
        other => azure(other),
    });
    assert_eq!(words, ["get", "get nic", "get", "get", "delete vm", "get", "get nic", "get", "read node", "release"]);
    assert!(waited >= 120, "{waited}");
}

#[test]
fn what_an_interrupted_or_recent_launch_has_created_may_appear_later() {
    let claim = |change: fn(&mut Claim)| {
        let mut claim = a_claim();
        claim.intent = Some(intent(&claim, offering(SMALL, 1, Spot)));
        claim.deleting_at = Some(start());
        change(&mut claim);
        let mut snapshot = cluster([pool("general")]);
        snapshot.put_claim(claim);
        snapshot
    };
    let looks_again = |snapshot: &Snapshot| {
        let plan =
            lifecycle(snapshot, &mut LifecycleMemory::default(), &ProvisionMemory::default(), &settings(), at(3_600));
        let terminate = plan.commands.into_iter().find_map(|planned| match planned.command {
            Command::Terminate(terminate) => Some(terminate.look_again),
            _ => None,
        });
        terminate.unwrap()
    };
    assert_eq!(looks_again(&claim(|_| ())), Some(SignedDuration::from_secs(120)));
    let failed = claim(|claim| {
        let failure = LaunchFailure { at: start(), code: "x".into(), message: "x".into() };
        claim.status.launch_failed = Some(failure);
    });
    assert_eq!(looks_again(&failed), None, "its launch has ended long ago");
    let failed_now = claim(|claim| {
        let failure = LaunchFailure { at: at(3_590), code: "x".into(), message: "x".into() };
        claim.status.launch_failed = Some(failure);
    });
    assert_eq!(looks_again(&failed_now), Some(SignedDuration::from_secs(60)), "a GET may not show its NIC yet");
    let launched_now = claim(|claim| {
        claim.status.provider_id = claim.intent.as_ref().map(|intent| ProviderId::of_vm(&intent.vm));
        claim.status.launched = Some(at(3_590));
    });
    assert_eq!(looks_again(&launched_now), Some(SignedDuration::from_secs(60)), "a GET may not show its VM yet");
}

#[test]
fn a_denied_delete_stops_the_termination_and_the_next_one_deletes_what_is_allowed() {
    let (claim, _) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let existing = || vec![vm(&claim, ProvisioningState::Succeeded, tags(&claim)), nic(&claim, tags(&claim))];
    let run = |held: &[ResourceKind], denied: Option<ResourceKind>| {
        let command = Terminate { held: held.iter().copied().collect(), ..command(&claim) };
        let mut azure = azure(existing());
        let mut script = TerminateScript::new(command, DeletionRules::all());
        let (words, report) = play_whole(&mut script, |effect| match effect {
            Effect::Cloud(CloudRequest::Delete(_, kind)) if Some(*kind) == denied => {
                Err(refused(CloudErrorCode::Locked, None))
            }
            other => azure(other),
        });
        let report = report.termination.unwrap();
        (words, report.deleted, report.stopped_at, report.is_denied)
    };
    let (vm, nic) = (ResourceKind::Vm, ResourceKind::Nic);
    assert_eq!(run(&[], Some(vm)), (vec!["get", "delete vm"], vec![], Some(vm), true));
    assert_eq!(run(&[vm], None), (vec!["get"], vec![], Some(vm), false));
    let (words, deleted, stopped_at, is_denied) = run(&[nic], None);
    assert_eq!(words, ["get", "delete vm", "get", "get nic"], "the finalizer stays");
    assert_eq!((deleted, stopped_at, is_denied), (vec![vm], Some(nic), false));
    let (words, deleted, stopped_at, _) = run(&[], None);
    assert_eq!((words.last(), deleted, stopped_at), (Some(&"release"), vec![vm, nic], None));
}

#[test]
fn foreign_resources_and_their_node_are_not_deleted() {
    let (claim, node) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let node = Arc::new(node);
    let mut azure = azure(vec![vm(&claim, ProvisioningState::Succeeded, Tags::new()), nic(&claim, Tags::new())]);
    let (words, _) = play(&mut terminate(&claim), |_, effect| match effect {
        Effect::Read(ClusterRead::Node(_)) => Ok(Reply::Node(Some(Arc::clone(&node)))),
        other => azure(other),
    });
    assert_eq!(words, ["get", "get nic", "get", "release"], "the node belongs to a foreign VM");
}

#[test]
fn a_reserved_nic_is_waited_for() {
    let (claim, _) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let mut azure = azure(vec![nic(&claim, tags(&claim))]);
    let mut refusals = 3;
    let (words, waited) = play(&mut terminate(&claim), |_, effect| match effect {
        Effect::Cloud(CloudRequest::Delete(..)) if refusals > 0 => {
            refusals -= 1;
            Err(refused(CloudErrorCode::NicReserved, None))
        }
        other => azure(other),
    });
    assert_eq!(words.iter().filter(|w| **w == "delete nic").count(), 4);
    assert_eq!(words.last(), Some(&"release"));
    assert!((3 * 45..=3 * 57).contains(&waited), "{waited}");
}

#[test]
fn a_deleted_resource_that_azure_still_shows_is_read_again_after_a_wait() {
    let (claim, _) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let mut sightings = 3;
    let (words, waited) = play(&mut terminate(&claim), |_, effect| match effect {
        Effect::Cloud(CloudRequest::Get(id)) if *id == resource_ids(&group(), &claim.name).vm && sightings > 0 => {
            sightings -= 1;
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Deleting, tags(&claim)))))
        }
        Effect::Cloud(CloudRequest::Delete(..)) => Ok(Reply::Done),
        other => fine(other),
    });
    assert!(waited >= 5 && words.last() == Some(&"release"), "read again at once: {words:?} in {waited} s");
}
