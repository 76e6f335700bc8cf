//! Explanations as JSON.

use super::{rejected_pools, size};
use napkeeper_core::scheduling::{
    ExplainedResult, Explanation, Explanations, FilterCriterion, NewNodesSummary, PlacementExplanation,
    PlacementSummary, PoolFilterSteps, SuggestedChange, TopologyCause, UnschedulableExplanation,
};
use serde_json::{Value, json};

/// Most names of pods in one explanation.
const MAX_PODS: usize = 20;

/// Explanations, and how many groups and pods are left out.
pub(crate) fn explanations(explained: &Explanations) -> Value {
    json!({
        "groups": explained.explanations.iter().map(explanation).collect::<Vec<_>>(),
        "more": { "groups": explained.omitted_groups, "pods": explained.omitted_pods },
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
        ExplainedResult::Placed(placement) => value["because"] = placed(placement),
        ExplainedResult::Unschedulable(result) => value["nowhere"] = unschedulable(result),
    }
    value
}

fn placed(placement: &PlacementExplanation) -> Value {
    let node = match &placement.placement {
        PlacementSummary::Existing { nodes, count } => {
            json!({ "kind": "existingNode", "count": count, "nodes": named(nodes) })
        }
        PlacementSummary::InFlight { claims, count, planned_pods } => {
            json!({ "kind": "nodeInFlight", "count": count, "claims": named(claims), "madeForThem": planned_pods })
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
        json!({ "by": cause, "label": decision.key, "values": decision.values })
    });
    json!({
        "place": node,
        "bonds": decisions.collect::<Vec<_>>(),
        "preferencesGivenUp": placement.relaxed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "preferencesKept": placement.satisfied_preferences,
    })
}

fn named<T: ToString>(names: &[(T, usize)]) -> Vec<Value> {
    names.iter().map(|(name, pods)| json!({ "name": name.to_string(), "pods": pods })).collect()
}

fn new_nodes(nodes: &NewNodesSummary) -> Value {
    let skipped = nodes.skipped_pools.iter();
    let skipped = skipped.map(|(pool, why)| json!({ "pool": pool.as_str(), "why": why.to_string() }));
    json!({
        "kind": "newNode",
        "count": nodes.node_count,
        "pool": nodes.pool.as_str(),
        "size": nodes.first_offering.key.size.as_str(),
        "zone": nodes.first_offering.key.zone.as_str(),
        "capacityType": nodes.first_offering.key.capacity_type.as_str(),
        "price": nodes.first_offering.price.nanos(),
        "cost": format!("{}/h", nodes.first_offering.price),
        "offerings": nodes.offering_count,
        "pods": nodes.own_pods,
        "otherPods": nodes.other_pods,
        "requests": nodes.requests.to_string(),
        "why": size::json(&nodes.size),
        "without": nodes.size_without_own.as_ref().map(size::of),
        "alone": nodes.size_for_one_pod.as_ref().map(size::of),
        "passedOver": skipped.collect::<Vec<_>>(),
    })
}

fn unschedulable(result: &UnschedulableExplanation) -> Value {
    let (pools, more) = rejected_pools(result);
    let each = pools.iter().map(|of| {
        json!({
            "pool": of.pool.map(|pool| pool.as_str()),
            "why": of.why.map(ToString::to_string),
            "left": of.filter_steps.map(steps),
        })
    });
    let remedy = result.suggestion.as_ref().map(|remedy| {
        json!({
            "pool": remedy.pool.as_str(),
            "changes": remedy.changes.iter().map(change).collect::<Vec<_>>(),
        })
    });
    json!({ "pools": each.collect::<Vec<_>>(), "morePools": more, "remedy": remedy })
}

/// What each filter step leaves of a pool.
fn steps(filter_steps: &PoolFilterSteps) -> Vec<Value> {
    let step = |what: &FilterCriterion| match what {
        FilterCriterion::Available => "offered",
        FilterCriterion::Taint(_) => "taint",
        FilterCriterion::Label(..) => "label",
        FilterCriterion::Alternatives(_) => "alternatives",
        FilterCriterion::Resources => "room",
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
        SuggestedChange::AddToleration(taint) => ("tolerate", Some(taint.key.to_string())),
        SuggestedChange::DropRequirement(key) => ("dropLabel", Some(key.to_string())),
        SuggestedChange::DropNodeAffinity => ("dropNodeAffinity", None),
        SuggestedChange::LowerRequest(name, _) => ("askAtMost", Some(name.to_string())),
        SuggestedChange::RaiseLimit(name, _) => ("raiseLimit", Some(name.to_string())),
        SuggestedChange::RaiseQuota(short) => ("raiseQuota", Some(short.usage.name.to_string())),
        SuggestedChange::RaiseReservation(short) => ("raiseReservation", Some(short.reservation.group.to_string())),
        SuggestedChange::WidenSubnet(short) => ("widenSubnet", Some(short.subnet.id.to_string())),
        SuggestedChange::AllowLabel(key, _) => ("offerLabel", Some(key.to_string())),
        SuggestedChange::MakePreferred(_) => ("soften", None),
    };
    json!({ "kind": kind, "of": of, "text": change.to_string() })
}
