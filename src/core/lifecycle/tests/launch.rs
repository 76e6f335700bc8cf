//! Tests of launches that are interrupted, refused late, or meet unexpected state.

use super::*;
use crate::model::cluster::claim::LaunchIntent;
use crate::model::errors::ClusterError;
use crate::plan::{CloudRequest, ClusterRead, ClusterWrite, CommandReport, LaunchReport};

/// Steps a script to its end: the words, and its report.
pub(super) fn play_whole(
    script: &mut dyn Script,
    mut answer: impl FnMut(&Effect) -> Result<Reply, EffectError>,
) -> (Vec<&'static str>, CommandReport) {
    let (mut words, mut seconds, mut reply) = (Vec::new(), 0, None);
    for _ in 0..500 {
        match script.step(reply.take(), at(seconds)) {
            Step::Perform(effect) => {
                reply = Some(answer(&effect));
                words.push(word(&effect));
            }
            Step::Wait(time) => seconds += time.as_secs().max(1),
            Step::End(report) => return (words, report),
        }
    }
    panic!("no end: {words:?}");
}

/// A claim whose launch was interrupted after Azure had accepted its VM.
pub(super) fn cut_short() -> Claim {
    let mut claim = a_claim();
    let operation = Some(OperationId(Arc::from("op-of-an-earlier-run")));
    claim.intent = Some(LaunchIntent { operation, ..intent(&claim, offering(SMALL, 1, Spot)) });
    claim
}

#[test]
fn w05_a_late_failure_is_learnt_after_a_crash() {
    let claim = cut_short();
    for (state, expected) in [
        (Some(ProvisioningState::Failed), &["poll", "get", "read node", "delete vm", "poll", "get nic", "intent"][..]),
        (None, &["poll", "get", "intent", "nic", "vm"][..]),
    ] {
        let mut polled = false;
        let (words, report) = play_whole(&mut script(&claim), |effect| match effect {
            Effect::Cloud(CloudRequest::Poll(_)) if !std::mem::replace(&mut polled, true) => {
                Err(ended(CloudErrorCode::ZonalAllocationFailed))
            }
            Effect::Cloud(CloudRequest::Get(id)) if *id == resource_ids(&group(), &claim.name).vm => {
                Ok(Reply::Resource(state.map(|s| vm(&claim, s, tags(&claim)))))
            }
            other => fine(other),
        });
        assert_eq!(words[..expected.len()], *expected);
        assert_eq!(words.last(), Some(&"launched"));
        let refused: Vec<_> = report.launch_refusals.iter().map(|r| (r.offering.clone(), r.error.code)).collect();
        assert_eq!(refused, [(offering(SMALL, 1, Spot).key, CloudErrorCode::ZonalAllocationFailed)], "its offering");
    }
}

#[test]
fn the_image_of_a_vm_that_an_earlier_run_created_is_its_own() {
    let claim = cut_short();
    let [now, before] =
        ["/CommunityGalleries/g/images/i/versions/2.0.0", "/CommunityGalleries/g/images/i/versions/1.0.0"];
    for (found, image) in [(Some(before), before), (None, now)] {
        let mut vm = CloudResource::clone(&vm(&claim, ProvisioningState::Succeeded, tags(&claim)));
        let ResourceDetail::Vm(detail) = &mut vm.detail else { panic!("{vm:?}") };
        detail.image = found.map(Arc::from);
        let vm = Arc::new(vm);
        let mut script = script(&claim);
        script.progress.launch.image = Some(Arc::from(now));
        let mut written = None;
        play_whole(&mut script, |effect| match effect {
            Effect::Cloud(CloudRequest::Get(_)) => Ok(Reply::Resource(Some(Arc::clone(&vm)))),
            Effect::Cluster(ClusterWrite::UpdateClaim(_, ClaimUpdate::Launched { image, .. })) => {
                written.clone_from(image);
                fine(effect)
            }
            other => fine(other),
        });
        assert_eq!(written.as_deref(), Some(image));
    }
}

#[test]
fn w16_an_operation_that_has_ended_or_is_forgotten_leads_to_the_vm() {
    let claim = cut_short();
    for reply in [Ok(Reply::Done), Err(refused(CloudErrorCode::NotFound, None))] {
        let (words, report) = play_whole(&mut script(&claim), |effect| match effect {
            Effect::Cloud(CloudRequest::Poll(_)) => reply.clone(),
            Effect::Cloud(CloudRequest::Get(_)) => {
                Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Succeeded, tags(&claim)))))
            }
            other => fine(other),
        });
        assert_eq!(words, ["poll", "get", "launched"], "adopted, with no second VM");
        assert!(report.launch_refusals.is_empty());
    }
    // It may go on for a while, and Azure may not answer for a while.
    let mut replies = vec![
        Ok(Reply::Running),
        Err(refused(CloudErrorCode::Unavailable, None)),
        Ok(Reply::Running),
        Err(refused(CloudErrorCode::Throttled, Some(7))),
        Ok(Reply::Done),
    ];
    replies.reverse();
    let (words, _) = play_whole(&mut script(&claim), |effect| match effect {
        Effect::Cloud(CloudRequest::Poll(_)) => replies.pop().unwrap(),
        Effect::Cloud(CloudRequest::Get(_)) => {
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Succeeded, tags(&claim)))))
        }
        other => fine(other),
    });
    assert_eq!(words, ["poll", "poll", "poll", "poll", "poll", "get", "launched"]);
}

/// A failed poll concerns neither the VM nor the offering.
#[test]
fn w16_a_poll_that_is_refused_never_deletes_a_healthy_vm() {
    for code in [CloudErrorCode::NotFound, CloudErrorCode::Permission, CloudErrorCode::Invalid] {
        for claim in [a_claim(), cut_short()] {
            let (words, report) = play_whole(&mut script(&claim), |effect| match effect {
                Effect::Cloud(CloudRequest::Poll(_)) => Err(refused(code, None)),
                Effect::Cloud(CloudRequest::Get(_)) => {
                    Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Succeeded, tags(&claim)))))
                }
                other => fine(other),
            });
            assert_eq!(words[words.len() - 3..], ["poll", "get", "launched"], "{code:?}");
            assert!(report.launch_refusals.is_empty(), "{code:?}");
        }
    }
}

#[test]
fn a_failed_vm_that_a_node_runs_on_is_not_deleted_by_its_launch() {
    let claim = cut_short();
    let (_, node) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let node = Arc::new(node);
    let (words, _) = play_whole(&mut script(&claim), |effect| match effect {
        Effect::Cloud(CloudRequest::Poll(_)) => Err(refused(CloudErrorCode::NotFound, None)),
        Effect::Cloud(CloudRequest::Get(_)) => {
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Failed, tags(&claim)))))
        }
        Effect::Read(ClusterRead::Node(_)) => Ok(Reply::Node(Some(Arc::clone(&node)))),
        other => fine(other),
    });
    assert_eq!(words, ["poll", "get", "read node", "launched"]);
}

#[test]
fn the_result_of_a_launch_is_retried_until_it_is_written() {
    let mut failures =
        vec![refused(CloudErrorCode::Unavailable, None), EffectError::Cluster(ClusterError::Unavailable)];
    let (words, report) = play_whole(&mut script(&a_claim()), |effect| match effect {
        Effect::Cluster(ClusterWrite::UpdateClaim(..)) => failures.pop().map_or(Ok(Reply::Done), Err),
        other => fine(other),
    });
    assert_eq!(words[4..], ["poll", "launched", "launched", "launched"]);
    assert_eq!(report.error, None);
}

#[test]
fn an_unknown_size_is_never_launched() {
    let unknown = || {
        let mut unknown = offering(SMALL, 1, Spot);
        unknown.key.size = crate::model::names::VmSize::new("Standard_Unheard_of").unwrap();
        unknown
    };
    let bare = claim("general-a", &pool("general"), vec![unknown()]);
    let begun = Claim { intent: Some(intent(&bare, unknown())), ..bare.clone() };
    assert!(play_whole(&mut script(&bare), fine).0.is_empty());
    assert_eq!(play_whole(&mut script(&begun), fine).0, ["get"]);
    let both = claim("general-a", &pool("general"), vec![unknown(), offering(SMALL, 1, Spot)]);
    assert_eq!(play_whole(&mut script(&both), fine).0, ["intent", "nic", "vm", "operation", "poll", "launched"]);
}

#[test]
fn no_wait_is_longer_than_a_launch_may_take() {
    let (words, waited) = play(&mut script(&a_claim()), |_, effect| match effect {
        Effect::Cloud(CloudRequest::PutVm(_)) => Err(refused(CloudErrorCode::Throttled, Some(3600))),
        other => fine(other),
    });
    assert_eq!((words.last(), waited), (Some(&"vm"), 0), "the lifecycle decides again");
}

#[test]
fn a_vm_of_another_is_not_deleted_because_an_old_operation_failed() {
    let claim = cut_short();
    let (words, _) = play_whole(&mut script(&claim), |effect| match effect {
        Effect::Cloud(CloudRequest::Poll(_)) => Err(ended(CloudErrorCode::AllocationFailed)),
        Effect::Cloud(CloudRequest::Get(_)) => {
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Failed, Tags::new()))))
        }
        other => fine(other),
    });
    assert_eq!(words, ["poll", "get", "launch failed"]);
}

/// The hazard of upstream's clean-up: a transient error before the owner of the VM is known must delete nothing.
#[test]
fn w05_no_passing_error_deletes_anything() {
    let passing = [
        CloudErrorCode::Throttled,
        CloudErrorCode::Unavailable,
        CloudErrorCode::Conflict,
        CloudErrorCode::NicReserved,
        CloudErrorCode::InUse,
    ];
    for code in passing {
        for claim in [a_claim(), cut_short()] {
            let (words, _) = play_whole(&mut script(&claim), |effect| match effect {
                Effect::Cluster(ClusterWrite::WriteIntent(..)) | Effect::Cluster(ClusterWrite::UpdateClaim(..)) => {
                    Ok(Reply::Done)
                }
                _ => Err(refused(code, None)),
            });
            assert!(!words.iter().any(|w| w.starts_with("delete")), "{code:?}: {words:?}");
        }
    }
}

#[test]
fn a_put_whose_response_was_lost_finds_its_resource() {
    let claim = a_claim();
    let mut puts = 0;
    let (words, _) = play_whole(&mut script(&claim), |effect| match effect {
        Effect::Cloud(CloudRequest::PutVm(spec)) => {
            assert!(spec.create_only);
            puts += 1;
            let code = if puts == 1 { CloudErrorCode::Unavailable } else { CloudErrorCode::Conflict };
            Err(refused(code, None))
        }
        Effect::Cloud(CloudRequest::Get(_)) => {
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Succeeded, tags(&claim)))))
        }
        other => fine(other),
    });
    assert_eq!(words, ["intent", "nic", "vm", "vm", "get", "launched"]);
    // The NIC likewise; a foreign one is neither used nor changed.
    for (is_foreign, expected) in [
        (false, &["intent", "nic", "get nic", "vm", "operation", "poll", "launched"][..]),
        (true, &["intent", "nic", "get nic", "launch failed"][..]),
    ] {
        let (words, _) = play_whole(&mut script(&claim), |effect| match effect {
            Effect::Cloud(CloudRequest::PutNic(spec)) => {
                assert!(spec.create_only);
                Err(refused(CloudErrorCode::Conflict, None))
            }
            Effect::Cloud(CloudRequest::Get(_)) => {
                let tags = if is_foreign { Tags::new() } else { tags(&claim) };
                Ok(Reply::Resource(Some(nic(&claim, tags))))
            }
            other => fine(other),
        });
        assert_eq!(words, expected);
    }
}

#[test]
fn a_name_that_is_never_free_ends_the_launch() {
    let (words, report) = play_whole(&mut script(&a_claim()), |effect| match effect {
        Effect::Cloud(CloudRequest::PutVm(_)) => Err(refused(CloudErrorCode::Conflict, None)),
        other => fine(other),
    });
    assert!(words.len() < 60 && report.error.is_some(), "{words:?}");
}

#[test]
fn the_nic_of_a_failed_vm_is_retained() {
    let claim = a_claim();
    let mut failed = false;
    let (words, report) = play_whole(&mut script(&claim), |effect| match effect {
        Effect::Cloud(CloudRequest::Poll(_)) if !std::mem::replace(&mut failed, true) => {
            Err(ended(CloudErrorCode::AllocationFailed))
        }
        Effect::Cloud(CloudRequest::Get(id)) if *id == resource_ids(&group(), &claim.name).vm => {
            Ok(Reply::Resource(Some(vm(&claim, ProvisioningState::Failed, tags(&claim)))))
        }
        Effect::Cloud(CloudRequest::Get(_)) => Ok(Reply::Resource(Some(nic(&claim, tags(&claim))))),
        other => fine(other),
    });
    assert_eq!(words[5..10], ["get", "read node", "delete vm", "poll", "get nic"]);
    assert_eq!(words[10..], ["intent", "vm", "operation", "poll", "launched"], "no second NIC is requested");
    assert_eq!(report.launch_refusals.len(), 1);
}

#[test]
fn a_launch_continues_if_only_the_url_of_its_operation_could_not_be_written() {
    for (error, last) in [(ClusterError::Unavailable, "launched"), (ClusterError::Conflict, "operation")] {
        let (words, _) = play_whole(&mut script(&a_claim()), |effect| match effect {
            Effect::Cluster(ClusterWrite::WriteIntent(_, intent)) if intent.operation.is_some() => {
                Err(EffectError::Cluster(error))
            }
            other => fine(other),
        });
        assert_eq!(words.last(), Some(&last), "{error:?}");
    }
}

#[test]
fn a_refusal_excludes_its_scope_and_no_more() {
    let general = pool("general");
    let planned = [(LARGE, 1, OnDemand), (LARGE, 2, OnDemand), (SMALL, 1, OnDemand), ("Standard_E4s_v5", 1, OnDemand)];
    let planned: Vec<_> = planned.into_iter().map(|(size, zone, kind)| offering(size, zone, kind)).collect();
    let claim = claim("general-a", &general, planned);
    let sizes = cluster([general]).instance_types.values().next().unwrap().clone();
    let tried = |quota: Option<(u32, u32)>, code| {
        let mut script = script(&claim);
        script.progress.instance_types = Arc::clone(&sizes);
        let mut tried = Vec::new();
        play_whole(&mut script, |effect| match effect {
            Effect::Cloud(CloudRequest::PutVm(spec)) => {
                tried.push((spec.offering.size.to_string(), spec.offering.zone.to_string()));
                let quota = quota.map(|(limit, usage)| crate::model::errors::QuotaDetails { limit, usage });
                Err(EffectError::Cloud(CloudError { quota, ..CloudError::new(code, "no") }))
            }
            other => fine(other),
        });
        tried.into_iter().map(|(size, zone)| format!("{size} {zone}")).collect::<Vec<_>>()
    };
    let [large_1, large_2] = ["westeurope-1", "westeurope-2"].map(|zone| format!("{LARGE} {zone}"));
    let [small, other] = [SMALL, "Standard_E4s_v5"].map(|size| format!("{size} westeurope-1"));
    let all = vec![large_1.clone(), large_2.clone(), small.clone(), other.clone()];
    assert_eq!(tried(None, CloudErrorCode::ZonalAllocationFailed), all, "each in its zone");
    assert_eq!(tried(None, CloudErrorCode::AllocationFailed), [large_1.clone(), small.clone(), other.clone()]);
    assert_eq!(tried(None, CloudErrorCode::Policy), [large_1.clone(), small.clone(), other.clone()]);
    assert_eq!(tried(Some((100, 97)), CloudErrorCode::RegionalQuota), [large_1.clone(), small.clone()]);
    assert_eq!(tried(Some((0, 0)), CloudErrorCode::FamilyQuota), [large_1.clone(), other]);
    assert_eq!(tried(Some((0, 0)), CloudErrorCode::RegionalQuota), [large_1]);
}

#[test]
fn nics_are_accelerated_where_every_size_can_use_it() {
    let general = pool("general");
    let sizes = cluster([general.clone()]).instance_types.values().next().unwrap().clone();
    let plain = |mut size: Arc<crate::catalog::InstanceType>| {
        Arc::make_mut(&mut Arc::make_mut(&mut size).facts).accelerated_networking = false;
        size
    };
    let slow: Vec<_> = sizes.iter().cloned().map(plain).collect();
    for (sizes, expected) in [(sizes, true), (Arc::new(slow), false)] {
        let claim = claim("general-a", &general, vec![offering(SMALL, 1, Spot), offering(LARGE, 1, Spot)]);
        let mut script = script(&claim);
        script.progress.instance_types = sizes;
        play_whole(&mut script, |effect| {
            if let Effect::Cloud(CloudRequest::PutNic(spec)) = effect {
                assert_eq!(spec.accelerated, expected);
            }
            fine(effect)
        });
    }
}

/// One command per claim: its launch and its deletion never run concurrently, nor two of a kind.
#[test]
fn w14_a_claim_is_launched_or_deleted_by_one_command_at_a_time() {
    let snapshot = cluster([pool("general")]);
    let (claim, _) = managed("general-a", &pool("general"), offering(SMALL, 1, Spot));
    let intent = claim.intent.clone().unwrap();
    let commands = || {
        let terminate = super::terminate::command(&claim);
        let launch = Launch {
            claim: claim.reference(),
            pool: None,
            offerings: claim.spec.planned.clone(),
            intent: Some(intent.clone()),
            group: group(),
            tags: tags(&claim),
            os_disk_gb: 128,
            image: None,
            security: Default::default(),
            subnet: None,
            capacity_reservation_group: None,
        };
        [Command::Terminate(Box::new(terminate)), Command::Launch(Box::new(launch))]
    };
    for first in 0..2 {
        let mut executor = crate::engine::executor::Executor::default();
        let mut start_one = |command: &Command| {
            let mut plan = Plan::default();
            plan.push(command.clone(), "a test");
            let planned = plan.commands.remove(0);
            executor.start(planned, &snapshot, &settings(), start())
        };
        assert!(start_one(&commands()[first]));
        assert!(commands().iter().all(|command| !start_one(command)), "the first has not ended");
    }
}

/// A launch continues in the mode in which it began, whatever the settings are now.
#[test]
fn a_launch_continues_in_the_mode_of_its_intent() {
    let mut snapshot = cluster([pool("general")]);
    let id = |text: &str| ArmId::new(format!("/subscriptions/s/resourceGroups/g/{text}")).unwrap();
    let agent_pool = id("providers/Microsoft.ContainerService/managedClusters/c/agentPools/p");
    let machine = crate::model::azure::naming::aks_machine_id(&agent_pool, &a_claim().name);
    for (named, configured, first) in [
        (Some(Some(machine.clone())), None, "get_machine"),
        (Some(None), Some(agent_pool.clone()), "get"),
        (None, Some(agent_pool), "get_machine"),
        (None, None, "write_intent"),
    ] {
        let mut claim = a_claim();
        claim.intent = named.map(|machine| LaunchIntent { machine, ..intent(&a_claim(), offering(SMALL, 1, Spot)) });
        snapshot.put_claim(claim.clone());
        let settings = crate::model::settings::Settings { aks_machine_pool: configured, ..settings() };
        let plan =
            lifecycle(&snapshot, &mut LifecycleMemory::default(), &ProvisionMemory::default(), &settings, start());
        let mut executor = crate::engine::executor::Executor::default();
        let planned = plan.commands.into_iter().next().unwrap();
        assert!(executor.start(planned, &snapshot, &settings, start()));
        let (_, effect) = executor.next_effect(start(), &mut Vec::new()).unwrap();
        assert_eq!(effect.name(), first);
    }
    // Nor does a rewrite of the intent drop anything.
    let mut claim = a_claim();
    claim.intent =
        Some(LaunchIntent { machine: Some(machine.clone()), ..intent(&a_claim(), offering(SMALL, 1, Spot)) });
    play_whole(&mut script(&claim), |effect| {
        if let Effect::Cluster(ClusterWrite::WriteIntent(_, intent)) = effect {
            assert_eq!(intent.machine.as_ref(), Some(&machine));
        }
        fine(effect)
    });
}

#[test]
fn an_intent_is_looked_at_once_after_a_restart_or_a_pause_before_it_is_given_up() {
    let mut snapshot = cluster([pool("general")]);
    let mut begun = a_claim();
    begun.intent = Some(intent(&begun, offering(SMALL, 1, Spot)));
    snapshot.put_claim(begun);
    let decide = |snapshot: &Snapshot, memory: &mut LifecycleMemory, seconds| {
        let plan = lifecycle(snapshot, memory, &ProvisionMemory::default(), &settings(), at(seconds));
        let name = |command: &Command| match command {
            Command::Launch(_) => "launch",
            Command::DeleteClaim { .. } => "delete",
            _ => "other",
        };
        plan.commands.iter().map(|planned| name(&planned.command)).collect::<Vec<_>>()
    };
    let ended = |memory: &mut LifecycleMemory| {
        memory.record_launch(&LaunchReport { claim: a_claim().name, is_creating: false });
    };
    let mut memory = LifecycleMemory::default();
    assert_eq!(decide(&snapshot, &mut memory, 3_600), ["launch"]);
    assert_eq!(decide(&snapshot, &mut memory, 3_620), ["launch"], "nothing was looked at");
    ended(&mut memory);
    assert_eq!(decide(&snapshot, &mut memory, 3_640), ["delete"]);
    snapshot.pause = crate::model::settings::Pause::of([PauseSwitch::Launch]);
    assert_eq!(decide(&snapshot, &mut memory, 3_660), Vec::<&str>::new());
    snapshot.pause = crate::model::settings::Pause::default();
    assert_eq!(decide(&snapshot, &mut memory, 3_680), ["launch"]);
    ended(&mut memory);
    assert_eq!(decide(&snapshot, &mut memory, 3_700), ["delete"]);
    snapshot.put_claim(a_claim());
    assert_eq!(decide(&snapshot, &mut LifecycleMemory::default(), 3_600), ["delete"], "nothing was requested");
}

#[test]
fn the_group_of_a_reserved_vm_is_written_before_its_request_and_remains_that_of_the_intent() {
    let group = |name: &str| {
        let id = reservation_group().as_str().replace("paid", name);
        ArmId::new(id).unwrap()
    };
    let claim = claim("general-a", &pool("general"), vec![offering(SMALL, 1, Reserved), offering(LARGE, 2, OnDemand)]);
    // The group of the class, of an intent that an earlier run has written, and of the requested VM.
    for (class, intended, requested) in [
        (Some("paid"), None, Some("paid")),
        (Some("other"), Some("paid"), Some("paid")),
        (None, Some("paid"), Some("paid")),
        (None, None, None),
    ] {
        let mut claim = claim.clone();
        claim.intent = intended.map(|name| LaunchIntent {
            reservation: Some(group(name)),
            ..intent(&claim, offering(SMALL, 1, Reserved))
        });
        let mut script = script(&claim);
        script.progress.launch.capacity_reservation_group = class.map(group);
        let (mut written, mut put) = (None, None);
        play_whole(&mut script, |effect| {
            match effect {
                Effect::Cluster(ClusterWrite::WriteIntent(_, intent)) => {
                    written = Some((intent.offering.key.clone(), intent.reservation.clone()))
                }
                Effect::Cloud(CloudRequest::PutVm(vm)) => {
                    assert!(written.is_some() || intended.is_some(), "the intent comes first");
                    put = Some((vm.offering.clone(), vm.capacity_reservation_group.clone()));
                }
                _ => {}
            }
            fine(effect)
        });
        let expected = match requested {
            Some(name) => (offering(SMALL, 1, Reserved).key, Some(group(name))),
            // Without its group it would be launched at the full price as reserved.
            None => (offering(LARGE, 2, OnDemand).key, None),
        };
        assert_eq!(put, Some(expected.clone()));
        assert_eq!(written, Some(expected));
    }
}

#[test]
fn a_refused_reservation_falls_back_to_on_demand() {
    let claim = claim("general-a", &pool("general"), vec![offering(SMALL, 1, Reserved), offering(SMALL, 1, OnDemand)]);
    let mut script = script(&claim);
    script.progress.launch.capacity_reservation_group = Some(reservation_group());
    let mut requested = Vec::new();
    let (words, report) = play_whole(&mut script, |effect| match effect {
        Effect::Cloud(CloudRequest::PutVm(vm)) => {
            requested.push((vm.offering.capacity_type, vm.capacity_reservation_group.is_some()));
            if vm.capacity_reservation_group.is_some() {
                Err(refused(CloudErrorCode::Reservation, None))
            } else {
                fine(effect)
            }
        }
        other => fine(other),
    });
    assert_eq!(requested, [(Reserved, true), (OnDemand, false)]);
    assert_eq!(words.last(), Some(&"launched"));
    assert_eq!(report.launch_refusals.len(), 1);
}
