//! Tests of VMs that Azure takes long to create.

use super::launch::{cut_short, play_whole};
use super::*;
use crate::plan::LaunchReport;

const MINUTE: i64 = 60;

#[test]
fn a_launch_that_runs_out_of_time_says_whether_azure_was_still_creating() {
    let claim = cut_short();
    let creating = vm(&claim, ProvisioningState::Creating, tags(&claim));
    for (poll, is_creating) in [
        (Ok(Reply::Running), true),
        (Err(refused(CloudErrorCode::NotFound, None)), true),
        (Err(refused(CloudErrorCode::Throttled, Some(3_600))), true),
        (Err(refused(CloudErrorCode::Permission, None)), true),
    ] {
        let (_, report) = play_whole(&mut script(&claim), |effect| match effect {
            Effect::Cloud(CloudRequest::Poll(_)) => poll.clone(),
            Effect::Cloud(CloudRequest::Get(_)) => Ok(Reply::Resource(Some(Arc::clone(&creating)))),
            other => fine(other),
        });
        let expected = LaunchReport { claim: claim.name.clone(), is_creating };
        assert_eq!(report.launch.as_deref(), Some(&expected), "{poll:?}");
    }
    let (_, report) = play_whole(&mut script(&a_claim()), fine);
    assert_eq!(report.launch.map(|launch| launch.is_creating), Some(false));
}

#[test]
fn a_vm_that_is_being_created_has_an_hour_and_any_other_the_launch_timeout() {
    let claim = cut_short();
    let mut snapshot = cluster([pool("general")]);
    snapshot.put_claim(claim.clone());
    let settings = settings();
    let words = |is_creating: Option<bool>, minutes: i64| {
        let mut memory = LifecycleMemory::default();
        if let Some(is_creating) = is_creating {
            memory.record_launch(&LaunchReport { claim: claim.name.clone(), is_creating });
        }
        let plan = lifecycle(&snapshot, &mut memory, &ProvisionMemory::default(), &settings, at(minutes * MINUTE));
        plan.commands
            .into_iter()
            .filter_map(|planned| match planned.command {
                Command::Launch(_) => Some("launch".to_owned()),
                Command::DeleteClaim { category, .. } => Some(format!("{category}: {}", planned.reason)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(words(Some(false), 6), ["launch_timeout: no VM after 6 minutes"]);
    assert_eq!(words(Some(true), 6), ["launch"]);
    assert_eq!(words(Some(true), 59), ["launch"]);
    assert_eq!(words(Some(true), 60), ["launch_timeout: no VM after 60 minutes"]);
    assert_eq!(words(None, 61), ["launch"], "after a restart Azure is asked first");
}
