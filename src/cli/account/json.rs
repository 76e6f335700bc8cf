//! JSON: what does an account hold for programs?

use super::{pools, size};
use napkeeper_core::scheduling::{
    ExplainedResult, Explanation, Explanations, FilterCriterion, NewNodesSummary, PlacementExplanation,
    PlacementSummary, PoolFilterSteps, SuggestedChange, TopologyCause, UnschedulableExplanation,
};
use serde_json::{Value, json};

/// Most names of pods of one account.
const PODS: usize = 20;

/// Accounts, and how many groups and pods are left out.
pub(crate) fn accounts(told: &Explanations) -> Value {
    json!({
        "groups": told.explanations.iter().map(account).collect::<Vec<_>>(),
        "more": { "groups": told.omitted_groups, "pods": told.omitted_pods },
    })
}

fn account(Explanation { pods, requests, result: fate }: &Explanation) -> Value {
    let names: Vec<String> = pods.iter().take(PODS).map(ToString::to_string).collect();
    let mut value = json!({
        "pods": names,
        "podCount": pods.len(),
        "requests": requests.to_string(),
        "placed": matches!(fate, ExplainedResult::Placed(_)),
    });
    match fate {
        ExplainedResult::Placed(because) => value["because"] = placed(because),
        ExplainedResult::Unschedulable(stuck) => value["nowhere"] = nowhere(stuck),
    }
    value
}

fn placed(because: &PlacementExplanation) -> Value {
    let place = match &because.placement {
        PlacementSummary::Existing { nodes, count } => {
            json!({ "kind": "existingNode", "count": count, "nodes": named(nodes) })
        }
        PlacementSummary::InFlight { claims, count, planned_pods: promised } => {
            json!({ "kind": "nodeInFlight", "count": count, "claims": named(claims), "madeForThem": promised })
        }
        PlacementSummary::New(purchase) => bought(purchase),
    };
    let bonds = because.topology_decisions.iter().map(|bond| {
        let tie = match bond.cause {
            TopologyCause::TopologySpread => "spread",
            TopologyCause::PodAffinity => "affinity",
            TopologyCause::PodAntiAffinity => "antiAffinity",
            TopologyCause::Volume => "volume",
        };
        json!({ "by": tie, "label": bond.key, "values": bond.values })
    });
    json!({
        "place": place,
        "bonds": bonds.collect::<Vec<_>>(),
        "preferencesGivenUp": because.relaxed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "preferencesKept": because.satisfied_preferences,
    })
}

fn named<T: ToString>(names: &[(T, usize)]) -> Vec<Value> {
    names.iter().map(|(name, pods)| json!({ "name": name.to_string(), "pods": pods })).collect()
}

fn bought(purchase: &NewNodesSummary) -> Value {
    let passed_over = purchase.skipped_pools.iter();
    let passed_over = passed_over.map(|(pool, why)| json!({ "pool": pool.as_str(), "why": why.to_string() }));
    json!({
        "kind": "newNode",
        "count": purchase.node_count,
        "pool": purchase.pool.as_str(),
        "size": purchase.first_offering.key.size.as_str(),
        "zone": purchase.first_offering.key.zone.as_str(),
        "capacityType": purchase.first_offering.key.capacity_type.as_str(),
        "price": purchase.first_offering.price.nanos(),
        "cost": format!("{}/h", purchase.first_offering.price),
        "offerings": purchase.offering_count,
        "pods": purchase.own_pods,
        "otherPods": purchase.other_pods,
        "requests": purchase.requests.to_string(),
        "why": size::json(&purchase.size),
        "without": purchase.size_without_own.as_ref().map(size::of),
        "alone": purchase.size_for_one_pod.as_ref().map(size::of),
        "passedOver": passed_over.collect::<Vec<_>>(),
    })
}

fn nowhere(stuck: &UnschedulableExplanation) -> Value {
    let (pools, more) = pools(stuck);
    let each = pools.iter().map(|of| {
        json!({
            "pool": of.pool.map(|pool| pool.as_str()),
            "why": of.why.map(ToString::to_string),
            "left": of.waterfall.map(steps),
        })
    });
    let remedy = stuck.suggestion.as_ref().map(|remedy| {
        json!({
            "pool": remedy.pool.as_str(),
            "changes": remedy.changes.iter().map(change).collect::<Vec<_>>(),
        })
    });
    json!({ "pools": each.collect::<Vec<_>>(), "morePools": more, "remedy": remedy })
}

/// What is left of a pool, step by step.
fn steps(waterfall: &PoolFilterSteps) -> Vec<Value> {
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
    let all = waterfall.steps.iter();
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
