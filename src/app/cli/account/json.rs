//! JSON: what does an account hold for programs?

use super::{pools, size};
use napkeeper_core::scheduling::{
    Account, Accounts, Because, Change, Fate, Place, PoolWaterfall, Purchase, StepWhat, Stuck, Tie,
};
use serde_json::{Value, json};

/// Most names of pods of one account.
const PODS: usize = 20;

/// Accounts, and how many groups and pods are left out.
pub(in crate::cli) fn accounts(told: &Accounts) -> Value {
    json!({
        "groups": told.accounts.iter().map(account).collect::<Vec<_>>(),
        "more": { "groups": told.more_groups, "pods": told.more_pods },
    })
}

fn account(Account { pods, requests, fate }: &Account) -> Value {
    let names: Vec<String> = pods.iter().take(PODS).map(ToString::to_string).collect();
    let mut value = json!({
        "pods": names,
        "podCount": pods.len(),
        "requests": requests.to_string(),
        "placed": matches!(fate, Fate::Placed(_)),
    });
    match fate {
        Fate::Placed(because) => value["because"] = placed(because),
        Fate::Nowhere(stuck) => value["nowhere"] = nowhere(stuck),
    }
    value
}

fn placed(because: &Because) -> Value {
    let place = match &because.place {
        Place::Nodes { nodes, count } => json!({ "kind": "existingNode", "count": count, "nodes": named(nodes) }),
        Place::Claims { claims, count, promised } => {
            json!({ "kind": "nodeInFlight", "count": count, "claims": named(claims), "madeForThem": promised })
        }
        Place::New(purchase) => bought(purchase),
    };
    let bonds = because.bonds.iter().map(|bond| {
        let tie = match bond.tie {
            Tie::Spread => "spread",
            Tie::Near => "affinity",
            Tie::Apart => "antiAffinity",
            Tie::Volume => "volume",
        };
        json!({ "by": tie, "label": bond.key, "values": bond.values })
    });
    json!({
        "place": place,
        "bonds": bonds.collect::<Vec<_>>(),
        "preferencesGivenUp": because.given_up.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "preferencesKept": because.granted,
    })
}

fn named<T: ToString>(names: &[(T, usize)]) -> Vec<Value> {
    names.iter().map(|(name, pods)| json!({ "name": name.to_string(), "pods": pods })).collect()
}

fn bought(purchase: &Purchase) -> Value {
    let passed_over = purchase.passed_over.iter();
    let passed_over = passed_over.map(|(pool, why)| json!({ "pool": pool.as_str(), "why": why.to_string() }));
    json!({
        "kind": "newNode",
        "count": purchase.nodes,
        "pool": purchase.pool.as_str(),
        "size": purchase.best.key.size.as_str(),
        "zone": purchase.best.key.zone.as_str(),
        "capacityType": purchase.best.key.capacity_type.as_str(),
        "price": purchase.best.price.nanos(),
        "cost": format!("{}/h", purchase.best.price),
        "offerings": purchase.offerings,
        "pods": purchase.own,
        "otherPods": purchase.others,
        "requests": purchase.requests.to_string(),
        "why": size::json(&purchase.size),
        "without": purchase.without.as_ref().map(size::of),
        "alone": purchase.alone.as_ref().map(size::of),
        "passedOver": passed_over.collect::<Vec<_>>(),
    })
}

fn nowhere(stuck: &Stuck) -> Value {
    let (pools, more) = pools(stuck);
    let each = pools.iter().map(|of| {
        json!({
            "pool": of.pool.map(|pool| pool.as_str()),
            "why": of.why.map(ToString::to_string),
            "left": of.waterfall.map(steps),
        })
    });
    let remedy = stuck.remedy.as_ref().map(|remedy| {
        json!({
            "pool": remedy.pool.as_str(),
            "changes": remedy.changes.iter().map(change).collect::<Vec<_>>(),
        })
    });
    json!({ "pools": each.collect::<Vec<_>>(), "morePools": more, "remedy": remedy })
}

/// What is left of a pool, step by step.
fn steps(waterfall: &PoolWaterfall) -> Vec<Value> {
    let step = |what: &StepWhat| match what {
        StepWhat::Offered => "offered",
        StepWhat::Taint(_) => "taint",
        StepWhat::Label(..) => "label",
        StepWhat::Alternatives(_) => "alternatives",
        StepWhat::Room => "room",
        StepWhat::Limits => "limits",
        StepWhat::Quota => "quota",
        StepWhat::Reservation => "reservation",
        StepWhat::Subnet => "subnet",
        StepWhat::Variety => "minValues",
        StepWhat::Topology(_) => "topology",
    };
    let all = waterfall.steps.iter();
    all.map(
        |s| json!({ "after": step(&s.what), "text": s.what.to_string(), "sizes": s.sizes, "offerings": s.offerings }),
    )
    .collect()
}

fn change(change: &Change) -> Value {
    let (kind, of) = match change {
        Change::Tolerate(taint) => ("tolerate", Some(taint.key.to_string())),
        Change::Drop(key) => ("dropLabel", Some(key.to_string())),
        Change::DropAffinity => ("dropNodeAffinity", None),
        Change::AskAtMost(name, _) => ("askAtMost", Some(name.to_string())),
        Change::RaiseLimit(name, _) => ("raiseLimit", Some(name.to_string())),
        Change::RaiseQuota(short) => ("raiseQuota", Some(short.usage.name.to_string())),
        Change::RaiseReservation(short) => ("raiseReservation", Some(short.room.group.to_string())),
        Change::WidenSubnet(short) => ("widenSubnet", Some(short.room.id.to_string())),
        Change::Offer(key, _) => ("offerLabel", Some(key.to_string())),
        Change::Soften(_) => ("soften", None),
    };
    json!({ "kind": kind, "of": of, "text": change.to_string() })
}
