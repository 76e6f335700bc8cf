//! Report-only findings: which public IPs and load-balancer frontends serve nobody?
//!
//! They are told to a person and nothing more. They are no [`Finding`](super::Finding), so no command can be made of
//! them. Which Services exist is not listed: the tag that names one is passed on, to be looked up.

use super::index::Index;
use super::links::rows;
use crate::cluster::bystander::{Bystander, Role};
use crate::cluster::inventory::Inventory;
use crate::labels;
use crate::names::ArmId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A public IP or a frontend that a person may want to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportOnly {
    /// The resource.
    pub id: ArmId,
    /// `PublicIp` or `Frontend`.
    pub kind: &'static str,
    /// What it is used for.
    pub usage: Usage,
    /// The Services that it was made for, `namespace/name` with commas between, by the tag of the public IP.
    pub service: Option<Arc<str>>,
    /// When Azure created it, where Azure says so.
    pub created_at: Option<Timestamp>,
    /// By what, for people.
    pub evidence: Vec<Arc<str>>,
}

/// What a public IP or a frontend is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Usage {
    /// Nodes reach the internet by it, or AKS keeps it for that.
    Outbound,
    /// Something uses it: rules, backends, a NIC, a gateway.
    InUse,
    /// Nothing that was listed uses it.
    Unused,
}

impl Usage {
    /// As reports spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outbound => "Outbound",
            Self::InUse => "InUse",
            Self::Unused => "Unused",
        }
    }
}

/// All public IPs and frontends of an inventory, by id. Nothing while a listing is not whole.
#[must_use]
pub fn report_only(inventory: &Inventory) -> Vec<ReportOnly> {
    if inventory.failure().is_some() {
        return Vec::new();
    }
    let others = || rows(&inventory.bystanders).iter().map(|b| &**b);
    let of_role = |wanted: &'static str| others().filter(move |b| b.role.as_str() == wanted);
    let ips = Index::of(of_role("PublicIp").map(|b| (b.id.folded(), b)));
    let frontends = Index::of(of_role("Frontend").map(|b| (b.id.folded(), b)));
    let mut found: Vec<ReportOnly> = others()
        .filter_map(|b| match &b.role {
            Role::PublicIp { address, used_by } => Some(public_ip(b, address.as_deref(), used_by.as_ref(), &frontends)),
            Role::Frontend { public_ip, .. } => {
                let ip = public_ip.as_ref().and_then(|id| ips.find(id.folded()));
                Some(frontend(b, ip.copied()))
            }
            Role::Machine { .. } | Role::ScaleSetInstance { .. } | Role::Snapshot { .. } => None,
        })
        .collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

fn public_ip(
    ip: &Bystander,
    address: Option<&str>,
    used_by: Option<&ArmId>,
    frontends: &Index<'_, &Bystander>,
) -> ReportOnly {
    let by_aks = ip.tags.keys().find(|key| key.to_ascii_lowercase().starts_with("aks-managed-"));
    let gateway = used_by.is_some_and(|by| by.folded().contains("/natgateways/"));
    let frontend = used_by.and_then(|by| frontends.find(by.folded()));
    let (usage, why) = match (by_aks, used_by, frontend) {
        (Some(tag), ..) => (Usage::Outbound, format!("AKS manages it, by its tag {tag}")),
        (_, Some(by), _) if gateway => (Usage::Outbound, format!("NAT gateway {} uses it", parent(by))),
        (_, Some(_), Some(frontend)) => frontend_usage(frontend),
        (_, Some(by), None) => (Usage::InUse, format!("{} uses it", by.name())),
        (_, None, _) => (Usage::Unused, "nothing uses it".to_owned()),
    };
    told(ip, usage, service(ip), [address.map(|a| format!("address {a}")), Some(why)])
}

fn frontend(frontend: &Bystander, ip: Option<&Bystander>) -> ReportOnly {
    let (usage, why) = frontend_usage(frontend);
    let ip_text = ip.map(|ip| format!("public IP {}", ip.id.name()));
    told(frontend, usage, service(frontend).or_else(|| service(ip?)), [ip_text, Some(why)])
}

/// What a frontend is used for. Outbound comes first: without it the nodes lose the internet.
fn frontend_usage(frontend: &Bystander) -> (Usage, String) {
    let Role::Frontend { rules, outbound_rules, backends, .. } = &frontend.role else {
        return (Usage::InUse, format!("{} uses it", frontend.id.name()));
    };
    let name = frontend.id.name();
    if *outbound_rules > 0 {
        (Usage::Outbound, format!("{outbound_rules} outbound rules use frontend {name}"))
    } else if *backends > 0 {
        (Usage::InUse, format!("frontend {name} leads to {backends} backends by {rules} rules"))
    } else if *rules > 0 {
        // A Service without ready nodes looks like this for a while, and a Service with no pods for ever.
        (Usage::InUse, format!("{rules} rules use frontend {name}, though to no backend"))
    } else {
        (Usage::Unused, format!("no rule uses frontend {name}"))
    }
}

fn told(other: &Bystander, usage: Usage, service: Option<Arc<str>>, evidence: [Option<String>; 2]) -> ReportOnly {
    let made_for = service.as_ref().map(|s| format!("made for Service {s}, by the tag {}", labels::TAG_SERVICE));
    let ask = made_for.map(|text| match usage {
        Usage::Unused => format!("{text}: delete it if that Service is gone"),
        Usage::Outbound | Usage::InUse => text,
    });
    let evidence = evidence.into_iter().flatten().chain(ask).map(Arc::from).collect();
    ReportOnly {
        id: other.id.clone(),
        kind: other.role.as_str(),
        usage,
        service,
        created_at: other.created_at,
        evidence,
    }
}

fn service(other: &Bystander) -> Option<Arc<str>> {
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
