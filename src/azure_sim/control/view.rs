//! The state of the simulated Azure as JSON: resources, ledger and requests.

use super::related_resources;
use crate::server::ServerState;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_sim::arm;
use napkeeper_sim::cloud::{Change, ChangeCause, Usage};
use serde_json::{Value, json};

/// Everything that exists and is under way.
pub(super) fn state(inner: &ServerState, now: Timestamp) -> Value {
    let cloud = &inner.cloud;
    let resources = cloud.resources().values();
    let counts = ResourceKind::ALL.map(|kind| {
        let count = resources.clone().filter(|resource| resource.kind() == kind).count();
        (kind.as_str().to_owned(), Value::from(count))
    });
    let resources: Value = resources.map(|resource| arm::describe(cloud, resource)).collect();
    let operations = cloud.running().into_iter().map(|operation| {
        json!({
            "id": &*operation.id.0,
            "target": operation.target.as_str(),
            "kind": if operation.deletes { "delete" } else { "create" },
            "endsAt": operation.ends_at.to_string(),
        })
    });
    json!({
        "now": now.to_string(),
        "group": cloud.settings().group.as_str(),
        "counts": counts.into_iter().collect::<serde_json::Map<_, _>>(),
        "requests": inner.requests,
        "usage": usage(&cloud.usage()),
        "operations": operations.collect::<Vec<_>>(),
        "resources": resources,
        "bystanders": related_resources::show(cloud),
    })
}

fn usage(usage: &Usage) -> Value {
    let families = usage.families.iter().map(|(family, cores)| (family.to_string(), Value::from(*cores)));
    json!({
        "cores": usage.regional,
        "lowPriorityCores": usage.spot,
        "families": families.collect::<serde_json::Map<_, _>>(),
        "addresses": usage.addresses,
    })
}

/// The ledger, from this entry on.
pub(super) fn ledger(inner: &ServerState, from: u64) -> Value {
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let entries = inner.cloud.ledger().iter().enumerate().skip(from).map(|(n, entry)| {
        json!({
            "n": n,
            "at": entry.at.to_string(),
            "act": match entry.change {
                Change::Created => "created",
                Change::Tagged => "tagged",
                Change::Deleted => "deleted",
            },
            "by": match entry.cause {
                ChangeCause::Request => "request",
                ChangeCause::Cascade => "cascade",
                ChangeCause::Eviction => "eviction",
                ChangeCause::Outside => "outside",
            },
            "kind": entry.resource.kind().as_str(),
            "id": entry.resource.id.as_str(),
            "incarnation": &*entry.resource.incarnation,
            "tags": entry.resource.tags,
        })
    });
    json!({ "entries": entries.collect::<Vec<_>>() })
}

/// The requests that are remembered, from this number on.
pub(super) fn requests(inner: &ServerState, from: u64) -> Value {
    let shown = inner.log.iter().filter(|logged| logged.id >= from).map(|logged| {
        json!({
            "id": logged.id,
            "at": logged.at.to_string(),
            "method": logged.method,
            "path": logged.path,
            "status": logged.status,
        })
    });
    json!({ "total": inner.requests, "requests": shown.collect::<Vec<_>>() })
}
