//! Tests of launches as AKS Machines, request by request.

use super::*;
use crate::catalog::CapacityType;
use crate::fixtures::{cluster, offering, pool, start};
use crate::lifecycle::TerminateScript;
use crate::model::azure::cloud::Tags;
use crate::model::azure::naming::{ResourceIds, aks_machine_id};
use crate::model::cluster::claim::{ClaimRef, PlannedOffering};
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
        image: None,
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
    let mut effects = Vec::new();
    let mut next = script.step(None, start());
    for reply in replies {
        for _ in 0..3 {
            if let Step::Wait(_) = next {
                next = script.step(None, start());
            }
        }
        let Step::Perform(effect) = &next else { break };
        effects.push(effect.name());
        next = script.step(Some(reply), start());
    }
    match &next {
        Step::Perform(effect) => effects.push(effect.name()),
        Step::Wait(_) => effects.push("wait"),
        Step::End(_) => effects.push("end"),
    }
    effects
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
    let effects = play(
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
    assert_eq!(effects, ["get_machine", "write_intent", "put_machine", "poll", "get_machine", "advance_claim", "end"]);
}

/// A failed create never deletes: not a Machine of another claim, and nothing on a transient error.
#[test]
fn foreign_machines_are_never_deleted_whatever_fails() {
    for state in [ProvisioningState::Failed, ProvisioningState::Succeeded, ProvisioningState::Creating] {
        let effects =
            play(&mut script(vec![sold()]), vec![Ok(Reply::AksMachine(machine("uid-2", state))), Ok(Reply::Done)]);
        assert_eq!(effects, ["get_machine", "advance_claim", "end"], "{state:?}");
    }
    for code in [CloudErrorCode::Conflict, CloudErrorCode::Unavailable, CloudErrorCode::Throttled] {
        let effects = play(
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
            effects,
            ["get_machine", "write_intent", "put_machine", "get_machine", "advance_claim", "end"],
            "{code:?}"
        );
    }
    let effects = play(&mut script(vec![sold()]), vec![refusal(CloudErrorCode::Permission)]);
    assert_eq!(effects, ["get_machine", "end"]);
}

#[test]
fn a_failed_machine_of_ours_is_deleted_before_its_name_is_reused() {
    let effects = play(
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
    assert_eq!(effects, expected, "there is no other offering: the claim says so");
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
    // A denied GET does not concern the offering.
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
fn an_unknown_size_is_never_launched() {
    let mut unknown = sold();
    unknown.key.size = crate::model::names::VmSize::new("Standard_Unheard_of").unwrap();
    let effects = play(&mut script(vec![unknown]), vec![Ok(Reply::AksMachine(None))]);
    assert_eq!(effects, ["get_machine", "end"]);
}

#[test]
fn terminating_deletes_the_machine_of_this_claim_and_of_no_other() {
    let ids = ResourceIds {
        vm: ArmId::new("/subscriptions/s/v").unwrap(),
        nic: ArmId::new("/subscriptions/s/n").unwrap(),
        os_disk: ArmId::new("/subscriptions/s/d").unwrap(),
    };
    let id = aks_machine_id(&ArmId::new(POOL).unwrap(), &claim().name);
    let script = || {
        let (ids, machine) = (ids.clone(), Some(id.clone()));
        let command = Terminate {
            claim: claim(),
            ids,
            machine,
            drained_node: None,
            held: Default::default(),
            look_again: None,
            conditions: None,
        };
        TerminateScript::new(command, DeletionRules::all())
    };
    let none = || Ok(Reply::Resource(None));
    let own = machine("uid-1", ProvisioningState::Succeeded);
    let effects = play(
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
    assert_eq!(effects, expected, "only a 404 from Azure counts");
    for other in ["uid-2", "UID-1", "uid-11", ""] {
        let effects = play(&mut script(), vec![Ok(Reply::AksMachine(machine(other, ProvisioningState::Succeeded)))]);
        assert_eq!(effects, ["get_machine", "get"], "{other:?} is another's");
    }
}

#[test]
fn after_an_interrupted_launch_the_machine_is_read_again_too() {
    let id = |name: &str| ArmId::new(format!("/subscriptions/s/{name}")).unwrap();
    let command = Terminate {
        claim: claim(),
        ids: ResourceIds { vm: id("v"), nic: id("n"), os_disk: id("d") },
        machine: Some(aks_machine_id(&ArmId::new(POOL).unwrap(), &claim().name)),
        drained_node: None,
        held: Default::default(),
        look_again: Some(jiff::SignedDuration::from_secs(120)),
        conditions: None,
    };
    let absent = || {
        let none = || Ok(Reply::Resource(None));
        [Ok(Reply::AksMachine(None)), none(), none(), none()]
    };
    let effects = play(
        &mut TerminateScript::new(command, DeletionRules::all()),
        absent().into_iter().chain(absent()).chain([Ok(Reply::Node(None)), Ok(Reply::Done)]).collect(),
    );
    let look = ["get_machine", "get", "get", "get"];
    assert_eq!(effects, [&look[..], &look, &["read_node", "release_claim", "end"]].concat());
}
