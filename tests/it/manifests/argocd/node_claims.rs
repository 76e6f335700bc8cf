//! The health of NodeClaims in each state that napkeeper writes.

use super::expect;
use anyhow::{Context, Result};
use jiff::Timestamp;
use napkeeper_api::convert::apply_claim_update;
use napkeeper_api::types::karpenter::NodeClaim;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::claim::{
    ForcefulReason, LaunchFailure, TerminationCondition, TerminationConditions,
};
use napkeeper_core::model::cluster::pool::DisruptionReason;
use napkeeper_core::model::cluster::status::StatusCondition;
use napkeeper_core::model::names::{NodeName, ProviderId, VmSize, Zone};
use napkeeper_core::plan::{ClaimReport, ClaimUpdate};
use serde_json::{Value, json};
use std::sync::Arc;

const AT: &str = "2026-08-03T08:00:00Z";

/// A NodeClaim of the NodePool `general`, without a status.
fn bare(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "uid": name, "generation": 1, "creationTimestamp": AT,
            "labels": { "karpenter.sh/nodepool": "general" },
        },
        "spec": {
            "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default" },
            "requirements": [],
        },
    })
}

/// It, after an update.
fn updated(mut object: Value, update: &ClaimUpdate) -> Result<Value> {
    let claim: NodeClaim = serde_json::from_value(object.clone())?;
    object["status"] = serde_json::to_value(apply_claim_update(&claim, update, AT.parse()?))?;
    Ok(object)
}

/// A NodeClaim after some updates.
pub(super) fn after(name: &str, updates: &[ClaimUpdate]) -> Result<Value> {
    updates.iter().try_fold(bare(name), updated)
}

pub(super) fn offering() -> Result<OfferingKey> {
    let (size, zone) = (VmSize::new("Standard_D4s_v5")?, Zone::new("1")?);
    Ok(OfferingKey { size, zone, capacity_type: CapacityType::OnDemand })
}

fn launched(name: &str) -> Result<ClaimUpdate> {
    let vm = format!("azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/{name}");
    let amounts = Resources::cpu_memory(3_860, 7 << 30);
    Ok(ClaimUpdate::Launched {
        provider_id: ProviderId::parse(&vm)?,
        offering: offering()?,
        image: None,
        capacity: amounts.clone(),
        allocatable: amounts,
    })
}

/// The updates of a node until it runs pods.
pub(super) fn steps(name: &str) -> Result<[ClaimUpdate; 3]> {
    let registered = ClaimUpdate::Registered { node: NodeName::new(format!("aks-{name}"))? };
    Ok([launched(name)?, registered, ClaimUpdate::Initialized])
}

pub(super) fn drifted() -> ClaimUpdate {
    ClaimUpdate::Drifted { reason: Arc::from("NodePoolDrifted"), message: Arc::from("spec.template.metadata.labels") }
}

/// The health of a node that runs pods, after this update.
fn on_a_running_node(update: &ClaimUpdate) -> (&'static str, String) {
    match update {
        ClaimUpdate::Launched { .. }
        | ClaimUpdate::Registered { .. }
        | ClaimUpdate::Initialized
        | ClaimUpdate::BillingExtensionInstalled
        | ClaimUpdate::NotDrifted
        | ClaimUpdate::NotDisrupted => ("Healthy", String::new()),
        ClaimUpdate::LaunchFailed(failure) => ("Degraded", failure.message.to_string()),
        // A roll is no failure.
        ClaimUpdate::Drifted { message, .. } => ("Healthy", message.to_string()),
        ClaimUpdate::Disrupted(reason) => ("Progressing", reason.as_str().to_owned()),
        ClaimUpdate::Forced(reason) => ("Progressing", reason.as_str().to_owned()),
        // The progress of an end counts once it is being deleted.
        ClaimUpdate::Terminating(_) => ("Healthy", String::new()),
        ClaimUpdate::Report(report) if report.consistent_state.holds => ("Healthy", String::new()),
        ClaimUpdate::Report(report) => ("Degraded", report.consistent_state.message.to_string()),
    }
}

fn report(consistent_state: StatusCondition) -> ClaimUpdate {
    ClaimUpdate::Report(Box::new(ClaimReport { last_pod_event: None, consolidatable: true, consistent_state }))
}

fn drain(drained: TerminationCondition) -> ClaimUpdate {
    ClaimUpdate::Terminating(Box::new(TerminationConditions { drained: Some(drained), ..Default::default() }))
}

#[test]
fn a_node_claim_is_in_progress_until_its_node_runs_pods() -> Result<()> {
    let [first, second, third] = steps("general-a")?;
    let claim = updated(bare("general-a"), &first)?;
    expect(&claim, "Progressing", "Registered")?;
    let claim = updated(claim, &second)?;
    expect(&claim, "Progressing", "Initialized")?;
    let claim = updated(claim, &third)?;
    expect(&claim, "Healthy", "")?;
    let failure = LaunchFailure { at: AT.parse()?, code: Arc::from("family_quota"), message: Arc::from("no quota") };
    expect(&updated(bare("general-b"), &ClaimUpdate::LaunchFailed(failure))?, "Degraded", "Launched: no quota")
}

#[test]
fn each_update_of_a_running_node_has_its_health() -> Result<()> {
    let blocked = TerminationCondition {
        message: Arc::from("pod default/web-0"),
        ..TerminationCondition::new(Some(false), "Blocked")
    };
    let failure = LaunchFailure { at: AT.parse()?, code: Arc::from("quota"), message: Arc::from("no quota") };
    let inconsistent = StatusCondition::failing("ConsistencyCheckFailed", "expected 8 of resource cpu, but found 4");
    let mut updates = vec![
        ClaimUpdate::BillingExtensionInstalled,
        ClaimUpdate::LaunchFailed(failure),
        drifted(),
        ClaimUpdate::NotDrifted,
        ClaimUpdate::NotDisrupted,
        drain(blocked.clone()),
        report(StatusCondition::holding("ConsistentStateFound")),
        report(inconsistent),
    ];
    updates.extend(steps("general-a")?);
    updates.extend(DisruptionReason::ALL.map(ClaimUpdate::Disrupted));
    updates.extend(ForcefulReason::ALL.map(ClaimUpdate::Forced));
    let running = after("general-a", &steps("general-a")?)?;
    for update in &updates {
        let mut claim = updated(running.clone(), update)?;
        let (status, words) = on_a_running_node(update);
        expect(&claim, status, &words).with_context(|| format!("{update:?}"))?;
        // Its conditions are not written again when the generation grows, as it does with a deletion.
        claim["metadata"]["generation"] = json!(2);
        expect(&claim, status, &words)?;
        claim["metadata"]["deletionTimestamp"] = json!(AT);
        expect(&claim, "Progressing", "")?;
    }
    let drifting = updated(running.clone(), &drifted())?;
    expect(&updated(drifting, &ClaimUpdate::NotDrifted)?, "Healthy", "")?;
    let mut leaving = updated(running, &drain(blocked))?;
    leaving["metadata"]["deletionTimestamp"] = json!(AT);
    expect(&leaving, "Progressing", "Drained: pod default/web-0")
}

/// When all of this happens.
pub(super) fn now() -> Result<Timestamp> {
    Ok(AT.parse()?)
}
