//! Unused public IPs and load-balancer frontends, reported and never deleted.
//!
//! They are only reported. They are no [`Finding`](crate::model::orphans::finding::Finding), so no command can be made
//! of them. Services are not listed: the tag that names one is passed on, to be looked up.

use crate::model::azure::inventory::Inventory;
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::labels;
use crate::model::names::ArmId;
use crate::model::orphans::report::{IpUsage, ReportOnlyFinding};
use crate::orphans::references::items;
use crate::orphans::references::string_index::Index;
use std::sync::Arc;

/// All public IPs and frontends of an inventory, by id. Empty while a listing is incomplete.
#[must_use]
pub fn report_only_findings(inventory: &Inventory) -> Vec<ReportOnlyFinding> {
    if inventory.failure().is_some() {
        return Vec::new();
    }
    let others = || items(&inventory.related).iter().map(|b| &**b);
    let of_role = |wanted: &'static str| others().filter(move |b| b.detail.as_str() == wanted);
    let ips = Index::of(of_role("PublicIp").map(|b| (b.id.folded(), b)));
    let frontends = Index::of(of_role("Frontend").map(|b| (b.id.folded(), b)));
    let mut found: Vec<ReportOnlyFinding> = others()
        .filter_map(|b| match &b.detail {
            RelatedDetail::PublicIp { address, used_by } => {
                Some(public_ip(b, address.as_deref(), used_by.as_ref(), &frontends))
            }
            RelatedDetail::LoadBalancerFrontend { public_ip, .. } => {
                let ip = public_ip.as_ref().and_then(|id| ips.find(id.folded()));
                Some(frontend(b, ip.copied()))
            }
            RelatedDetail::AksMachine { .. }
            | RelatedDetail::ScaleSetInstance { .. }
            | RelatedDetail::Snapshot { .. } => None,
        })
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

fn public_ip(
    ip: &RelatedResource,
    address: Option<&str>,
    used_by: Option<&ArmId>,
    frontends: &Index<'_, &RelatedResource>,
) -> ReportOnlyFinding {
    let by_aks = ip.tags.keys().find(|key| key.to_ascii_lowercase().starts_with("aks-managed-"));
    let gateway = used_by.is_some_and(|by| by.folded().contains("/natgateways/"));
    let frontend = used_by.and_then(|by| frontends.find(by.folded()));
    let (usage, reason) = match (by_aks, used_by, frontend) {
        (Some(tag), ..) => (IpUsage::Outbound, format!("managed by AKS, according to tag {tag}")),
        (_, Some(by), _) if gateway => (IpUsage::Outbound, format!("NAT gateway {} uses it", parent(by))),
        (_, Some(_), Some(frontend)) => frontend_usage(frontend),
        (_, Some(by), None) => (IpUsage::InUse, format!("{} uses it", by.name())),
        (_, None, _) => (IpUsage::Unused, "nothing uses it".to_owned()),
    };
    finding(ip, usage, service(ip), [address.map(|a| format!("address {a}")), Some(reason)])
}

fn frontend(frontend: &RelatedResource, ip: Option<&RelatedResource>) -> ReportOnlyFinding {
    let (usage, reason) = frontend_usage(frontend);
    let ip_text = ip.map(|ip| format!("public IP {}", ip.id.name()));
    finding(frontend, usage, service(frontend).or_else(|| service(ip?)), [ip_text, Some(reason)])
}

/// The use of a frontend. Outbound comes first: without it nodes lose internet access.
fn frontend_usage(frontend: &RelatedResource) -> (IpUsage, String) {
    let RelatedDetail::LoadBalancerFrontend { rules, outbound_rules, backends, .. } = &frontend.detail else {
        return (IpUsage::InUse, format!("{} uses it", frontend.id.name()));
    };
    let name = frontend.id.name();
    if *outbound_rules > 0 {
        (IpUsage::Outbound, format!("{outbound_rules} outbound rules use frontend {name}"))
    } else if *backends > 0 {
        (IpUsage::InUse, format!("frontend {name} has {rules} rules to {backends} backends"))
    } else if *rules > 0 {
        // A Service without ready nodes looks like this temporarily, and a Service without pods permanently.
        (IpUsage::InUse, format!("{rules} rules use frontend {name}, with no backends"))
    } else {
        (IpUsage::Unused, format!("no rule uses frontend {name}"))
    }
}

fn finding(
    other: &RelatedResource,
    usage: IpUsage,
    service: Option<Arc<str>>,
    evidence: [Option<String>; 2],
) -> ReportOnlyFinding {
    let created_for =
        service.as_ref().map(|s| format!("created for Service {s}, according to tag {}", labels::TAG_SERVICE));
    let service_note = created_for.map(|text| match usage {
        IpUsage::Unused => format!("{text}: delete it if that Service no longer exists"),
        IpUsage::Outbound | IpUsage::InUse => text,
    });
    let evidence = evidence.into_iter().flatten().chain(service_note).map(Arc::from).collect();
    ReportOnlyFinding {
        id: other.id.clone(),
        kind: other.detail.as_str(),
        usage,
        service,
        created_at: other.created_at,
        evidence,
    }
}

fn service(other: &RelatedResource) -> Option<Arc<str>> {
    other.tags.get(labels::TAG_SERVICE).cloned()
}

/// The name of the gateway or load balancer that a configuration belongs to.
fn parent(id: &ArmId) -> &str {
    let mut segments = id.as_str().rsplit('/');
    let last = segments.next().unwrap_or_default();
    match segments.next() {
        Some(kind) if kind.eq_ignore_ascii_case("natGateways") => last,
        _ => segments.next().unwrap_or(last),
    }
}
