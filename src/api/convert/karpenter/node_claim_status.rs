//! Updates of the status of a NodeClaim.
//!
//! Conditions have upstream's names. `Ready` summarizes them, so that kstatus tools can wait for a NodeClaim.
//! Conditions of other controllers are kept.

use crate::convert::common;
use crate::types::karpenter::{ClaimCondition, NodeClaim, NodeClaimStatus};
use jiff::Timestamp;
use napkeeper_core::model::cluster::claim::{TerminationCondition, TerminationConditions};
use napkeeper_core::model::cluster::status::StatusCondition;
use napkeeper_core::plan::ClaimUpdate;
use std::sync::Arc;

/// The steps until a node runs pods.
const LIFECYCLE_CONDITIONS: [&str; 3] = ["Launched", "Registered", "Initialized"];
/// The steps of its end, in the order of [`TerminationConditions`].
const TERMINATION_CONDITIONS: [&str; 3] = ["Drained", "VolumesDetached", "InstanceTerminating"];
/// How it differs from its NodePool and AKSNodeClass: the condition of that name in Karpenter.
pub(super) const DRIFTED: &str = "Drifted";
/// Why it is being disrupted: the condition of that name in Karpenter.
pub(super) const DISRUPTION_REASON: &str = "DisruptionReason";
/// Its pods have not changed for `consolidateAfter`: the condition of that name in Karpenter, which is never False.
pub(super) const CONSOLIDATABLE: &str = "Consolidatable";
/// Its node has the resources that it was launched for: the condition of that name in Karpenter.
const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
/// Longest reason that a condition may have.
const MAX_REASON: usize = 1024;

/// The status of a NodeClaim after a step that was done at `now`. Doing a step twice changes nothing.
#[must_use]
pub fn apply_claim_update(claim: &NodeClaim, update: &ClaimUpdate, now: Timestamp) -> NodeClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.take().unwrap_or_default();
    let generation = claim.metadata.generation;
    let mut set = |mut condition: ClaimCondition| {
        condition.observed_generation = generation;
        upsert_condition(&mut conditions, condition);
    };
    match update {
        ClaimUpdate::Launched { provider_id, offering: _, image, capacity, allocatable } => {
            set(condition("Launched", "True", "Launched", now));
            status.provider_id = Some(provider_id.to_string());
            status.image_id = image.as_deref().map(str::to_owned).or(status.image_id);
            status.capacity = common::resource_list(capacity);
            status.allocatable = common::resource_list(allocatable);
        }
        ClaimUpdate::LaunchFailed(failure) => {
            let failed = condition("Launched", "False", &reason(&failure.code), failure.at);
            let message: String = failure.message.chars().take(common::MAX_MESSAGE).collect();
            set(ClaimCondition { message: Some(message), ..failed });
        }
        ClaimUpdate::Registered { node } => {
            set(condition("Registered", "True", "Registered", now));
            status.node_name = Some(node.as_str().to_owned());
        }
        ClaimUpdate::Initialized => set(condition("Initialized", "True", "Initialized", now)),
        ClaimUpdate::BillingExtensionInstalled => set(condition("Billed", "True", "Billed", now)),
        ClaimUpdate::Drifted { reason, message } => {
            let message: String = message.chars().take(common::MAX_MESSAGE).collect();
            set(ClaimCondition { message: Some(message), ..condition(DRIFTED, "True", reason, now) });
        }
        ClaimUpdate::NotDrifted => conditions.retain(|condition| condition.kind != DRIFTED),
        ClaimUpdate::Disrupted(reason) => set(condition(DISRUPTION_REASON, "True", reason.as_str(), now)),
        ClaimUpdate::Forced(reason) => set(condition(DISRUPTION_REASON, "True", reason.as_str(), now)),
        ClaimUpdate::NotDisrupted => conditions.retain(|condition| condition.kind != DISRUPTION_REASON),
        ClaimUpdate::Terminating(new) => termination_conditions(new, now).into_iter().for_each(set),
        ClaimUpdate::Report(report) => {
            if report.consolidatable {
                set(condition(CONSOLIDATABLE, "True", CONSOLIDATABLE, now));
            }
            set(consistent_state(&report.consistent_state, now));
            if !report.consolidatable {
                conditions.retain(|condition| condition.kind != CONSOLIDATABLE);
            }
            if let Some(at) = report.last_pod_event {
                status.last_pod_event_time = Some(at.to_string());
            }
        }
    }
    if !matches!(update, ClaimUpdate::Report(_) | ClaimUpdate::Terminating(_)) {
        let ready = ready(&conditions, now);
        upsert_condition(&mut conditions, ClaimCondition { observed_generation: generation, ..ready });
    }
    status.conditions = (!conditions.is_empty()).then_some(conditions);
    status
}

/// The condition `ConsistentStateFound`.
pub(super) fn consistent_state(new: &StatusCondition, at: Timestamp) -> ClaimCondition {
    let status = if new.holds { "True" } else { "False" };
    let message: String = new.message.chars().take(common::MAX_MESSAGE).collect();
    let message = (!message.is_empty()).then_some(message);
    ClaimCondition { message, ..condition(CONSISTENT_STATE_FOUND, status, &new.reason, at) }
}

/// Reads the condition `ConsistentStateFound`; one that is Unknown is none.
pub(super) fn read_consistent_state(conditions: &[ClaimCondition]) -> Option<StatusCondition> {
    let found = conditions.iter().find(|condition| condition.kind == CONSISTENT_STATE_FOUND)?;
    Some(StatusCondition {
        holds: match &*found.status {
            "True" => true,
            "False" => false,
            _ => return None,
        },
        reason: Arc::from(found.reason.as_deref().unwrap_or_default()),
        message: Arc::from(found.message.as_deref().unwrap_or_default()),
    })
}

/// The conditions of a NodeClaim whose node is being drained.
pub(super) fn termination_conditions(new: &TerminationConditions, at: Timestamp) -> Vec<ClaimCondition> {
    let named =
        [&new.drained, &new.volumes_detached, &new.instance_terminating].into_iter().zip(TERMINATION_CONDITIONS);
    let wire = |(new, kind): (&Option<TerminationCondition>, &str)| {
        let new = new.as_ref()?;
        let status = new.holds.map_or("Unknown", |holds| if holds { "True" } else { "False" });
        let message: String = new.message.chars().take(common::MAX_MESSAGE).collect();
        let message = (!message.is_empty()).then_some(message);
        Some(ClaimCondition { message, ..condition(kind, status, &new.reason, at) })
    };
    named.filter_map(wire).collect()
}

/// Reads the conditions of a NodeClaim whose node is being drained.
pub(super) fn read_termination(conditions: &[ClaimCondition]) -> TerminationConditions {
    let read = |kind: &str| {
        let found = conditions.iter().find(|condition| condition.kind == kind)?;
        Some(TerminationCondition {
            holds: match &*found.status {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            reason: Arc::from(found.reason.as_deref().unwrap_or_default()),
            message: Arc::from(found.message.as_deref().unwrap_or_default()),
        })
    };
    let [drained, volumes_detached, instance_terminating] = TERMINATION_CONDITIONS.map(read);
    TerminationConditions { drained, volumes_detached, instance_terminating }
}

/// False when a step failed, True when all are done, Unknown on the way.
fn ready(conditions: &[ClaimCondition], now: Timestamp) -> ClaimCondition {
    let has = |step: &str, status: &str| conditions.iter().find(|c| c.kind == step && c.status == status);
    let waits: Vec<&str> = LIFECYCLE_CONDITIONS.into_iter().filter(|step| has(step, "True").is_none()).collect();
    if let Some(failed) = LIFECYCLE_CONDITIONS.into_iter().find_map(|step| has(step, "False")) {
        let reason = failed.reason.as_deref().unwrap_or(&failed.kind);
        return ClaimCondition { message: failed.message.clone(), ..condition("Ready", "False", reason, now) };
    }
    if waits.is_empty() {
        return condition("Ready", "True", "Ready", now);
    }
    let message = format!("waiting to be {}", waits.join(", ").to_lowercase());
    ClaimCondition { message: Some(message), ..condition("Ready", "Unknown", "InProgress", now) }
}

fn condition(kind: &str, status: &str, reason: &str, at: Timestamp) -> ClaimCondition {
    ClaimCondition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        last_transition_time: at.to_string(),
        ..ClaimCondition::default()
    }
}

/// Sets a condition. Its time moves only when its status does.
fn upsert_condition(conditions: &mut Vec<ClaimCondition>, mut condition: ClaimCondition) {
    match conditions.iter_mut().find(|c| c.kind == condition.kind) {
        Some(existing) => {
            if existing.status == condition.status {
                condition.last_transition_time.clone_from(&existing.last_transition_time);
            }
            condition.extra.clone_from(&existing.extra);
            *existing = condition;
        }
        None => conditions.push(condition),
    }
}

/// A code as a condition's reason may spell it.
fn reason(code: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':') { c } else { '_' };
    let text: String = code.chars().map(fits).take(MAX_REASON).collect();
    let text = text.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).trim_end_matches([',', ':']);
    if text.is_empty() { "Failed".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::claim;
    use napkeeper_core::catalog::{CapacityType, OfferingKey};
    use napkeeper_core::model::amounts::resources::Resources;
    use napkeeper_core::model::cluster::claim::{ClaimStatus, DriftedCondition, ForcefulReason, LaunchFailure};
    use napkeeper_core::model::cluster::pool::DisruptionReason;
    use napkeeper_core::model::names::{NodeName, ProviderId, VmSize, Zone};
    use napkeeper_core::plan::ClaimReport;
    use serde_json::json;
    use std::sync::Arc;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn bare() -> NodeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "a-1", "uid": "u", "generation": 1 },
            "spec": { "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "c" },
                      "requirements": [] },
            "status": { "conditions": [{ "type": "Drifted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        }))
        .unwrap()
    }

    const IMAGE: &str = "/CommunityGalleries/nodes-1/images/ubuntu/versions/1.0.0";

    fn report(last_pod_event: Option<&str>, consolidatable: bool, consistent_state: StatusCondition) -> ClaimUpdate {
        ClaimUpdate::Report(Box::new(ClaimReport {
            last_pod_event: last_pod_event.map(at),
            consolidatable,
            consistent_state,
        }))
    }

    fn consistent() -> StatusCondition {
        StatusCondition::holding("ConsistentStateFound")
    }

    fn launched() -> (ClaimUpdate, ProviderId, Resources) {
        let vm = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/a-1";
        let provider_id = ProviderId::parse(vm).unwrap();
        let amounts = Resources { cpu_millis: 3860, memory: 7 << 30, pods: 110, ..Resources::default() };
        let offering = OfferingKey {
            size: VmSize::new("Standard_D4s_v5").unwrap(),
            zone: Zone::new("1").unwrap(),
            capacity_type: CapacityType::Spot,
        };
        let step = ClaimUpdate::Launched {
            provider_id: provider_id.clone(),
            offering,
            image: Some(Arc::from(IMAGE)),
            capacity: amounts.clone(),
            allocatable: amounts.clone(),
        };
        (step, provider_id, amounts)
    }

    fn words(object: &NodeClaim) -> Vec<String> {
        let conditions = object.status.as_ref().unwrap().conditions.iter().flatten();
        conditions.map(|c| format!("{}={} {}", c.kind, c.status, c.reason.as_deref().unwrap_or("-"))).collect()
    }

    #[test]
    fn every_step_reads_back_and_time_moves_only_with_the_status() {
        let (step, provider_id, amounts) = launched();
        let mut object = bare();
        let node = NodeName::new("aks-a-1").unwrap();
        let steps = [
            (step, "2026-03-01T00:01:00.5Z"),
            (ClaimUpdate::Registered { node: node.clone() }, "2026-03-01T00:02:00Z"),
            (ClaimUpdate::Initialized, "2026-03-01T00:03:00Z"),
            (report(Some("2026-03-01T00:04:00Z"), true, consistent()), "2026-03-01T00:04:01Z"),
            (ClaimUpdate::BillingExtensionInstalled, "2026-03-01T00:05:00Z"),
        ];
        for (step, time) in &steps {
            object.status = Some(apply_claim_update(&object, step, at(time)));
        }
        let wanted = ClaimStatus {
            launched: Some(at(steps[0].1)),
            billed: Some(at(steps[4].1)),
            launch_failed: None,
            registered: Some(at(steps[1].1)),
            initialized: Some(at(steps[2].1)),
            drifted: Some(DriftedCondition {
                since: at("2026-01-01T00:00:00Z"),
                reason: Arc::from(""),
                message: Arc::from(""),
            }),
            disrupted: None,
            forced: None,
            provider_id: Some(provider_id),
            node_name: Some(node),
            image: Some(Arc::from(IMAGE)),
            capacity: amounts.clone(),
            allocatable: amounts,
            last_pod_event: Some(at("2026-03-01T00:04:00Z")),
            consolidatable: true,
            consistent_state: Some(consistent()),
            termination: Default::default(),
        };
        assert_eq!(claim(&object).unwrap().status, wanted);
        let all = [
            "Billed=True Billed",
            "ConsistentStateFound=True ConsistentStateFound",
            "Consolidatable=True Consolidatable",
            "Drifted=True -",
            "Launched=True Launched",
            "Ready=True Ready",
            "Registered=True Registered",
        ];
        let mut seen = words(&object);
        seen.sort();
        assert_eq!(seen, [&all[..4], &["Initialized=True Initialized"], &all[4..]].concat());
        let again = apply_claim_update(&object, &steps[1].0, at("2026-03-01T09:00:00Z"));
        assert_eq!(object.status, Some(again), "a step that is repeated changes nothing");
    }

    #[test]
    fn what_is_seen_of_a_node_reads_back_and_consolidatable_is_removed_when_it_does_not_hold() {
        let mut object = bare();
        let before = words(&object);
        let failing = StatusCondition::failing("ConsistencyCheckFailed", "expected 8 of resource cpu, but found 4");
        object.status =
            Some(apply_claim_update(&object, &report(None, true, failing.clone()), at("2026-03-01T00:01:00Z")));
        let status = claim(&object).unwrap().status;
        assert_eq!((status.last_pod_event, status.consolidatable), (None, true));
        assert_eq!(status.consistent_state, Some(failing));
        let event = Some("2026-03-01T00:01:30Z");
        object.status =
            Some(apply_claim_update(&object, &report(event, false, consistent()), at("2026-03-01T00:02:00Z")));
        assert_eq!(
            words(&object),
            [&before[..], &["ConsistentStateFound=True ConsistentStateFound".to_owned()]].concat()
        );
        let conditions = object.status.as_ref().unwrap().conditions.clone().unwrap();
        assert_eq!(conditions[1].last_transition_time, "2026-03-01T00:02:00Z");
        let status = claim(&object).unwrap().status;
        assert_eq!((status.last_pod_event, status.consolidatable), (event.map(at), false));
        object.status =
            Some(apply_claim_update(&object, &report(None, false, consistent()), at("2026-03-01T00:03:00Z")));
        assert_eq!(claim(&object).unwrap().status, status, "no event leaves the last one");
    }

    #[test]
    fn an_image_that_is_not_known_is_not_written() {
        let (ClaimUpdate::Launched { provider_id, offering, capacity, allocatable, .. }, ..) = launched() else {
            panic!()
        };
        let step = ClaimUpdate::Launched { provider_id, offering, image: None, capacity, allocatable };
        let status = apply_claim_update(&bare(), &step, at("2026-03-01T00:01:00Z"));
        assert_eq!(status.image_id, None);
    }

    #[test]
    fn a_disruption_is_noted_and_taken_back() {
        let mut object = bare();
        let before = words(&object);
        for reason in DisruptionReason::ALL {
            object.status =
                Some(apply_claim_update(&object, &ClaimUpdate::Disrupted(reason), at("2026-03-01T00:01:00Z")));
            assert_eq!(claim(&object).unwrap().status.disrupted, Some(reason));
        }
        for reason in ForcefulReason::ALL {
            object.status = Some(apply_claim_update(&object, &ClaimUpdate::Forced(reason), at("2026-03-01T00:01:30Z")));
            let status = claim(&object).unwrap().status;
            assert_eq!((status.disrupted, status.forced), (None, Some(reason)), "one condition for both");
        }
        object.status = Some(apply_claim_update(&object, &ClaimUpdate::NotDisrupted, at("2026-03-01T00:02:00Z")));
        let status = claim(&object).unwrap().status;
        assert_eq!((status.disrupted, status.forced), (None, None));
        assert_eq!(words(&object), [&before[..], &["Ready=Unknown InProgress".to_owned()]].concat());
    }

    #[test]
    fn the_conditions_of_a_drain_read_back_and_change_one_by_one() {
        let mut object = bare();
        let mut wanted = TerminationConditions::default();
        let message = Arc::from("pod a/b: PodDisruptionBudget a/c allows no eviction now");
        let steps = [
            TerminationConditions { drained: Some(TerminationCondition::new(None, "Draining")), ..Default::default() },
            TerminationConditions {
                drained: Some(TerminationCondition { message, ..TerminationCondition::new(Some(false), "Blocked") }),
                ..Default::default()
            },
            TerminationConditions {
                volumes_detached: Some(TerminationCondition::new(None, "AwaitingVolumeDetachment")),
                ..Default::default()
            },
            TerminationConditions {
                drained: Some(TerminationCondition::new(Some(true), "Drained")),
                instance_terminating: Some(TerminationCondition::new(Some(true), "InstanceTerminating")),
                ..Default::default()
            },
        ];
        for step in steps {
            wanted.set(&step);
            let update = ClaimUpdate::Terminating(Box::new(step));
            object.status = Some(apply_claim_update(&object, &update, at("2026-03-01T00:01:00Z")));
            assert_eq!(claim(&object).unwrap().status.termination, wanted);
        }
        let drained = words(&object).into_iter().filter(|word| word.starts_with("Drained")).collect::<Vec<_>>();
        assert_eq!(drained, ["Drained=True Drained"], "one condition of a name");
    }

    #[test]
    fn a_failed_launch_has_a_valid_condition_reason() {
        let mut object = bare();
        let failure =
            LaunchFailure { at: at("2026-03-01T00:01:00Z"), code: Arc::from("family_quota"), message: Arc::from("no") };
        object.status =
            Some(apply_claim_update(&object, &ClaimUpdate::LaunchFailed(failure.clone()), at("2026-03-01T00:02:00Z")));
        assert_eq!(claim(&object).unwrap().status.launch_failed, Some(failure));
        assert_eq!(words(&object)[1..], ["Launched=False family_quota", "Ready=False family_quota"]);
        for (code, wanted) in [("Odd code!", "Odd_code_"), ("9", "Failed"), ("", "Failed"), ("-a:b,", "a:b")] {
            assert_eq!(reason(code).trim_start_matches('_'), wanted, "{code:?}");
        }
    }
}
