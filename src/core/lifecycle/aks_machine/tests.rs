//! Tests of launches as AKS Machines, request by request.

use super::*;
use crate::catalog::CapacityType;
use crate::fixtures::{cluster, offering, pool, start};
use crate::lifecycle::TerminateScript;
use crate::model::azure::cloud::Tags;
use crate::model::azure::naming::aks_machine_id;
use crate::model::cluster::claim::{ClaimRef, LaunchIntent, PlannedOffering};
use crate::model::labels;
use crate::model::names::{ClaimName, Uid};
use crate::model::settings::DeletionRules;
use crate::plan::Terminate;

const POOL: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c/agentPools/np";

fn claim() -> ClaimRef {
    ClaimRef { name: ClaimName::new("general-abc12").unwrap(), uid: Uid::new("uid-1").unwrap() }
}

fn tags(uid: &str) -> Tags {
    Tags::from([(Arc::from(labels::TAG_CLAIM_UID), Arc::from(uid))])
}

fn script(offerings: Vec<PlannedOffering>) -> AksMachineLaunchScript {
    let launch = Launch {
        claim: claim(),
        pool: None,
        offerings,
        intent: None,
        group: ArmId::new("/subscriptions/s/resourceGroups/MC").unwrap(),
        tags: tags("uid-1"),
        os_disk_gb: 128,
        security: Default::default(),
        subnet: None,
        capacity_reservation_group: None,
    };
    let sizes = cluster([pool("general")]).instance_types.values().next().unwrap().clone();
    AksMachineLaunchScript::new(launch, sizes, aks_machine_id(&ArmId::new(POOL).unwrap(), &claim().name))
}

fn machine(uid: &str, state: ProvisioningState) -> Option<Arc<RelatedResource>> {
    let vm = Some(
        ArmId::new("/subscriptions/s/resourceGroups/MC/providers/Microsoft.Compute/virtualMachines/aks-x").unwrap(),
    );
    let id = aks_machine_id(&ArmId::new(POOL).unwrap(), &claim().name);
    let role = RelatedDetail::AksMachine { vm, state };
    Some(Arc::new(RelatedResource { id, tags: tags(uid), created_at: None, detail: role }))
}

fn refusal(code: CloudErrorCode) -> Result<Reply, EffectError> {
    Err(EffectError::Cloud(CloudError::new(code, "no")))
}

fn outcome(code: CloudErrorCode) -> Result<Reply, EffectError> {
    Err(EffectError::Cloud(CloudError { is_operation_result: true, ..CloudError::new(code, "no") }))
}

/// Answers one after another; the effects that they led to, by name. A wait is passed over.
fn play(script: &mut dyn Script, replies: Vec<Result<Reply, EffectError>>) -> Vec<&'static str> {
    let mut asked = Vec::new();
    let mut next = script.step(None, start());
    for reply in replies {
        for _ in 0..3 {
            if let Step::Wait(_) = next {
                next = script.step(None, start());
            }
        }
        let Step::Perform(effect) = &next else { break };
        asked.push(effect.name());
        next = script.step(Some(reply), start());
    }
    match &next {
        Step::Perform(effect) => asked.push(effect.name()),
        Step::Wait(_) => asked.push("wait"),
        Step::End(_) => asked.push("end"),
    }
    asked
}

fn sold() -> PlannedOffering {
    offering("Standard_D4s_v5", 1, CapacityType::OnDemand)
}

fn op() -> OperationId {
    OperationId(Arc::from("op"))
}

#[test]
fn the_intent_comes_before_the_put_and_the_vm_after_a_look() {
    let mut script = script(vec![sold()]);
    let asked = play(
        &mut script,
        vec![
            Ok(Reply::AksMachine(None)),
            Ok(Reply::Done),
            Ok(Reply::Accepted(op())),
            Ok(Reply::Done),
            Ok(Reply::AksMachine(machine("uid-1", ProvisioningState::Succeeded))),
            Ok(Reply::Done),
        ],
    );
    assert_eq!(asked, ["get_machine", "write_intent", "put_machine", "poll", "get_machine", "advance_claim", "end"]);
}

/// A create that fails never deletes: not a Machine of another claim, and nothing on an error that may pass.
#[test]
fn what_is_not_ours_is_never_deleted_whatever_fails() {
    for state in [ProvisioningState::Failed, ProvisioningState::Succeeded, ProvisioningState::Creating] {
        let asked =
            play(&mut script(vec![sold()]), vec![Ok(Reply::AksMachine(machine("uid-2", state))), Ok(Reply::Done)]);
        assert_eq!(asked, ["get_machine", "advance_claim", "end"], "{state:?}");
    }
    for code in [CloudErrorCode::Conflict, CloudErrorCode::Unavailable, CloudErrorCode::Throttled] {
        let asked = play(
            &mut script(vec![sold()]),
            vec![
                Ok(Reply::AksMachine(None)),
                Ok(Reply::Done),
                refusal(code),
                Ok(Reply::AksMachine(machine("uid-2", ProvisioningState::Succeeded))),
                Ok(Reply::Done),
            ],
        );
        assert_eq!(
            asked,
            ["get_machine", "write_intent", "put_machine", "get_machine", "advance_claim", "end"],
            "{code:?}"
        );
    }
    let asked = play(&mut script(vec![sold()]), vec![refusal(CloudErrorCode::Permission)]);
    assert_eq!(asked, ["get_machine", "end"]);
}

#[test]
fn a_failed_machine_of_ours_goes_before_its_name_is_used_again() {
    let asked = play(
        &mut script(vec![sold()]),
        vec![
            Ok(Reply::AksMachine(None)),
            Ok(Reply::Done),
            Ok(Reply::Accepted(op())),
            outcome(CloudErrorCode::AllocationFailed),
            Ok(Reply::AksMachine(machine("uid-1", ProvisioningState::Failed))),
            Ok(Reply::Accepted(op())),
            Ok(Reply::Done),
            Ok(Reply::AksMachine(None)),
            Ok(Reply::Done),
        ],
    );
    let expected = [
        "get_machine",
        "write_intent",
        "put_machine",
        "poll",
        "get_machine",
        "delete_machine",
        "poll",
        "get_machine",
        "advance_claim",
        "end",
    ];
    assert_eq!(asked, expected, "there is no other offering: the claim says so");
}

/// Whatever it is refused for, the offering is reported, or the next claim would be sent after it at once.
#[test]
fn every_refusal_of_a_machine_is_reported() {
    for (code, late) in [
        (CloudErrorCode::Permission, false),
        (CloudErrorCode::Invalid, false),
        (CloudErrorCode::AllocationFailed, false),
        (CloudErrorCode::Image, true),
    ] {
        let mut script = script(vec![sold()]);
        let mut replies = vec![Ok(Reply::AksMachine(None)), Ok(Reply::Done)];
        replies.extend(if late { vec![Ok(Reply::Accepted(op())), outcome(code)] } else { vec![refusal(code)] });
        play(&mut script, replies);
        assert_eq!(script.report.launch_refusals.len(), 1, "{code:?}");
    }
    // That nobody may look says nothing of the offering.
    let mut script = script(vec![sold()]);
    let replies = vec![
        Ok(Reply::AksMachine(None)),
        Ok(Reply::Done),
        Ok(Reply::Accepted(op())),
        refusal(CloudErrorCode::Permission),
    ];
    assert_eq!(play(&mut script, replies).last(), Some(&"wait"));
    assert!(script.report.launch_refusals.is_empty());
}

#[test]
fn a_size_that_nothing_is_known_of_is_never_bought() {
    let mut unknown = sold();
    unknown.key.size = crate::model::names::VmSize::new("Standard_Unheard_of").unwrap();
    let asked = play(&mut script(vec![unknown]), vec![Ok(Reply::AksMachine(None))]);
    assert_eq!(asked, ["get_machine", "end"]);
}

#[test]
fn terminating_deletes_the_machine_of_this_claim_and_of_no_other() {
    let intent = LaunchIntent {
        offering: sold(),
        vm: ArmId::new("/subscriptions/s/v").unwrap(),
        nic: ArmId::new("/subscriptions/s/n").unwrap(),
        os_disk: ArmId::new("/subscriptions/s/d").unwrap(),
        machine: Some(aks_machine_id(&ArmId::new(POOL).unwrap(), &claim().name)),
        reservation: None,
        written_at: start(),
        refused: 0,
        operation: None,
    };
    let script = || {
        TerminateScript::new(
            Terminate { claim: claim(), intent: intent.clone(), drained_node: None },
            DeletionRules::all(),
        )
    };
    let none = || Ok(Reply::Resource(None));
    let own = machine("uid-1", ProvisioningState::Succeeded);
    let asked = play(
        &mut script(),
        vec![
            Ok(Reply::AksMachine(own.clone())),
            Ok(Reply::Accepted(op())),
            Ok(Reply::Done),
            Ok(Reply::AksMachine(own)),
            Ok(Reply::AksMachine(None)),
            none(),
            none(),
            none(),
            Ok(Reply::Node(None)),
            Ok(Reply::Done),
        ],
    );
    let expected = [
        "get_machine",
        "delete_machine",
        "poll",
        "get_machine",
        "get_machine",
        "get",
        "get",
        "get",
        "read_node",
        "release_claim",
        "end",
    ];
    assert_eq!(asked, expected, "only Azure's 404 is believed");
    for other in ["uid-2", "UID-1", "uid-11", ""] {
        let asked = play(&mut script(), vec![Ok(Reply::AksMachine(machine(other, ProvisioningState::Succeeded)))]);
        assert_eq!(asked, ["get_machine", "get"], "{other:?} is another's");
    }
}
