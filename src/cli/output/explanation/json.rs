//! Explanations as JSON.

use super::{rejected_pools, size};
use napkeeper_core::scheduling::{
    ExplainedResult, Explanation, Explanations, FilterCriterion, NewNodesSummary, PlacementExplanation,
    PlacementSummary, PoolFilterSteps, SuggestedChange, TopologyCause, UnschedulableExplanation,
};
use serde_json::{Map, Value, json};

/// Most names of pods in one explanation.
const MAX_PODS: usize = 20;

/// Explanations, and how many groups and pods are left out.
pub(crate) fn explanations(explained: &Explanations) -> Value {
    json!({
        "groups": explained.explanations.iter().map(explanation).collect::<Vec<_>>(),
        "omitted": { "groups": explained.omitted_groups, "pods": explained.omitted_pods },
    })
}

fn explanation(Explanation { pods, requests, result }: &Explanation) -> Value {
    let names: Vec<String> = pods.iter().take(MAX_PODS).map(ToString::to_string).collect();
    let mut value = json!({
        "pods": names,
        "podCount": pods.len(),
        "requests": requests.to_string(),
        "placed": matches!(result, ExplainedResult::Placed(_)),
    });
    match result {
        ExplainedResult::Placed(placement) => value["placement"] = placed(placement),
        ExplainedResult::Unschedulable(result) => value["unschedulable"] = unschedulable(result),
    }
    value
}

fn placed(placement: &PlacementExplanation) -> Value {
    let node = match &placement.placement {
        PlacementSummary::Existing { nodes, count } => {
            json!({ "kind": "existingNode", "count": count, "nodes": named(nodes) })
        }
        PlacementSummary::InFlight { claims, count, planned_pods } => {
            json!({ "kind": "nodeInFlight", "count": count, "claims": named(claims), "plannedPods": planned_pods })
        }
        PlacementSummary::New(nodes) => new_nodes(nodes),
    };
    let decisions = placement.topology_decisions.iter().map(|decision| {
        let cause = match decision.cause {
            TopologyCause::TopologySpread => "spread",
            TopologyCause::PodAffinity => "affinity",
            TopologyCause::PodAntiAffinity => "antiAffinity",
            TopologyCause::Volume => "volume",
        };
        json!({ "cause": cause, "label": decision.key, "values": decision.values })
    });
    json!({
        "node": node,
        "topologyDecisions": decisions.collect::<Vec<_>>(),
        "relaxedPreferences": placement.relaxed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "satisfiedPreferences": placement.satisfied_preferences,
    })
}

fn named<T: ToString>(names: &[(T, usize)]) -> Vec<Value> {
    names.iter().map(|(name, pods)| json!({ "name": name.to_string(), "pods": pods })).collect()
}

fn new_nodes(nodes: &NewNodesSummary) -> Value {
    let skipped = nodes.skipped_pools.iter();
    let skipped = skipped.map(|(pool, reason)| json!({ "pool": pool.as_str(), "reason": reason.to_string() }));
    json!({
        "kind": "newNode",
        "count": nodes.node_count,
        "pool": nodes.pool.as_str(),
        "size": nodes.first_offering.key.size.as_str(),
        "zone": nodes.first_offering.key.zone.as_str(),
        "zones": nodes.zones.iter().map(|(zone, nodes)| (zone.to_string(), json!(nodes))).collect::<Map<_, _>>(),
        "capacityType": nodes.first_offering.key.capacity_type.as_str(),
        "price": nodes.first_offering.price.nanos(),
        "cost": format!("{}/h", nodes.first_offering.price),
        "offerings": nodes.offering_count,
        "pods": nodes.own_pods,
        "otherPods": nodes.other_pods,
        "requests": nodes.requests.to_string(),
        "sizeChoice": size::json(&nodes.size),
        "sizeWithoutThesePods": nodes.size_without_own.as_ref().map(size::of),
        "sizeForOnePod": nodes.size_for_one_pod.as_ref().map(size::of),
        "skippedPools": skipped.collect::<Vec<_>>(),
    })
}

fn unschedulable(result: &UnschedulableExplanation) -> Value {
    let (pools, more) = rejected_pools(result);
    let each = pools.iter().map(|of| {
        json!({
            "pool": of.pool.map(|pool| pool.as_str()),
            "reason": of.reason.map(ToString::to_string),
            "filterSteps": of.filter_steps.map(steps),
        })
    });
    let suggestion = result.suggestion.as_ref().map(|suggestion| {
        json!({
            "pool": suggestion.pool.as_str(),
            "changes": suggestion.changes.iter().map(change).collect::<Vec<_>>(),
        })
    });
    json!({ "pools": each.collect::<Vec<_>>(), "omittedPools": more, "suggestion": suggestion })
}

/// What each filter step leaves of a pool.
fn steps(filter_steps: &PoolFilterSteps) -> Vec<Value> {
    let step = |criterion: &FilterCriterion| match criterion {
        FilterCriterion::Available => "available",
        FilterCriterion::Taint(_) => "taint",
        FilterCriterion::Label(..) => "label",
        FilterCriterion::Alternatives(_) => "alternatives",
        FilterCriterion::Resources => "resources",
        FilterCriterion::Limits => "limits",
        FilterCriterion::Quota => "quota",
        FilterCriterion::Reservation => "reservation",
        FilterCriterion::Subnet => "subnet",
        FilterCriterion::MinValues => "minValues",
        FilterCriterion::Topology(_) => "topology",
    };
    let all = filter_steps.steps.iter();
    all.map(
        |s| json!({ "after": step(&s.criterion), "text": s.criterion.to_string(), "sizes": s.sizes, "offerings": s.offerings }),
    )
    .collect()
}

fn change(change: &SuggestedChange) -> Value {
    let (kind, of) = match change {
        SuggestedChange::AddToleration(taint) => ("addToleration", Some(taint.key.to_string())),
        SuggestedChange::DropRequirement(key) => ("dropRequirement", Some(key.to_string())),
        SuggestedChange::DropNodeAffinity => ("dropNodeAffinity", None),
        SuggestedChange::LowerRequest(name, _) => ("lowerRequest", Some(name.to_string())),
        SuggestedChange::RaiseLimit(name, _) => ("raiseLimit", Some(name.to_string())),
        SuggestedChange::RaiseQuota(short) => ("raiseQuota", Some(short.usage.name.to_string())),
        SuggestedChange::RaiseReservation(short) => ("raiseReservation", Some(short.reservation.group.to_string())),
        SuggestedChange::WidenSubnet(short) => ("widenSubnet", Some(short.subnet.id.to_string())),
        SuggestedChange::AllowLabel(key, _) => ("allowLabel", Some(key.to_string())),
        SuggestedChange::MakePreferred(_) => ("makePreferred", None),
    };
    json!({ "kind": kind, "of": of, "text": change.to_string() })
}
