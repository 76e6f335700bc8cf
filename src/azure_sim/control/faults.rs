//! `POST /control/faults`: injects faults, and shows those in force.

use super::{ControlError, WireDuration, service_faults};
use crate::request_faults::{RequestFault, RequestMatch};
use crate::server::ServerState;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::model::names::{VmSize, Zone};
use napkeeper_sim::cloud::{FaultDuration, Faults, Limits, ListedKind, ListingFault, Shortage, Throttling};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A fault, as the body of the request spells it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Fault {
    /// 429, with `Retry-After`.
    Throttle(Throttle),
    /// An error response; the request takes no effect.
    Fail(Fail),
    /// The request or its response is held.
    Hang(Hang),
    /// The request takes effect, and the response is not JSON.
    Garbage(Garbage),
    /// Every request gets 500 for a while.
    Unavailable(Temporary),
    /// Lists are incomplete.
    Listing(Listing),
    /// Lists lag behind.
    ListLag(ListLag),
    /// Sizes are sold out.
    Shortage(ShortageDraft),
    /// A quota of cores.
    Quota(Quota),
    /// Free addresses of the subnet.
    Subnet(Subnet),
    /// The number of VMs that a capacity reservation group reserves.
    Reserve(Reserve),
    /// A lock forbids deletes.
    Lock(Temporary),
    /// VMs leave their NIC and OS disk behind.
    KeepChildren(Switch),
    /// Lists have some ids in capitals.
    ShoutingIds(Switch),
    /// A policy denies requests.
    Policy(service_faults::PolicyDraft),
    /// The group is locked down.
    Lockdown(Temporary),
    /// The caller has lost the permission to write.
    Forbidden(Temporary),
    /// Operations take longer.
    Slow(service_faults::Slow),
    /// Operations fail at their end.
    FailLate(service_faults::FailLate),
    /// Pages are of random size.
    RaggedPages(Switch),
    /// Number of resources on a page.
    PageSize(service_faults::PageSize),
    /// Azure's rate limits apply.
    RateLimits(Switch),
}

/// Which requests.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Requests {
    method: Option<String>,
    path: Option<String>,
    times: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Throttle {
    retry_after: WireDuration,
    #[serde(default)]
    requests: Requests,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    status: u16,
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    requests: Requests,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hang {
    when: When,
    #[serde(default)]
    requests: Requests,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum When {
    Before,
    After,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reserve {
    group: String,
    size: VmSize,
    #[serde(default)]
    zone: Option<Zone>,
    #[serde(default)]
    capacity: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Garbage {
    #[serde(default)]
    requests: Requests,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Temporary {
    r#for: WireDuration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    how: ListingHow,
    of: Option<ListedKind>,
    r#for: WireDuration,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ListingHow {
    Forbidden,
    BrokenPage,
    Absent,
}

impl ListingHow {
    fn fault(self) -> ListingFault {
        match self {
            Self::Forbidden => ListingFault::Forbidden,
            Self::BrokenPage => ListingFault::BrokenPage,
            Self::Absent => ListingFault::Absent,
        }
    }
}

/// Lag of lists: the same for new and deleted resources (`by`), or one for each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListLag {
    pub(super) by: Option<WireDuration>,
    pub(super) of: Option<ListedKind>,
    pub(super) hides: Option<WireDuration>,
    pub(super) keeps: Option<WireDuration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ShortageDraft {
    how: ShortageHow,
    size: Option<VmSize>,
    zone: Option<Zone>,
    capacity_type: Option<CapacityType>,
    times: Option<u32>,
    r#for: Option<WireDuration>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ShortageHow {
    Refused,
    NoHardware,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quota {
    of: String,
    cores: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subnet {
    addresses: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    on: bool,
}

/// Injects a fault; returns the faults in force, with the number of the new one if it has one.
pub(super) fn inject(inner: &mut ServerState, fault: Fault, now: Timestamp) -> Result<Value, ControlError> {
    let (request_fault, on) = match fault {
        Fault::Throttle(t) => (RequestFault::Throttle(t.retry_after.0.as_secs()), t.requests),
        Fault::Fail(f) => (failing(&f)?, f.requests),
        Fault::Hang(h) => match h.when {
            When::Before => (RequestFault::HangBefore, h.requests),
            When::After => (RequestFault::HangAfter, h.requests),
        },
        Fault::Garbage(g) => (RequestFault::Garbage, g.requests),
        of_service => {
            inject_into_service(inner, of_service, now)?;
            return Ok(show(inner));
        }
    };
    let path = on.path.as_deref().map(Regex::new).transpose()?;
    let id = inner.request_faults.inject(request_fault, RequestMatch { method: on.method, path, times: on.times });
    let mut shown = show(inner);
    shown["id"] = id.into();
    Ok(shown)
}

fn failing(fail: &Fail) -> Result<RequestFault, ControlError> {
    if !(400..=599).contains(&fail.status) {
        return Err(ControlError::Value(format!("status {}: must be from 400 to 599", fail.status)));
    }
    Ok(RequestFault::Fail { status: fail.status, code: fail.code.clone(), message: fail.message.clone() })
}

/// Injects a fault of Azure itself.
fn inject_into_service(inner: &mut ServerState, fault: Fault, now: Timestamp) -> Result<(), ControlError> {
    let (faults, limits) = (&mut inner.cloud.faults, &mut inner.cloud.limits);
    match fault {
        Fault::Unavailable(lasting) => faults.unavailable_until = Some(end_time(now, lasting.r#for)?),
        Fault::Lock(lasting) => faults.deletes_locked_until = Some(end_time(now, lasting.r#for)?),
        Fault::Listing(listing) => {
            let fault = (end_time(now, listing.r#for)?, listing.how.fault());
            match listing.of {
                None => faults.listing = Some(fault),
                Some(of) => drop(faults.listings.insert(of, fault)),
            }
        }
        Fault::Lockdown(lasting) => faults.lockdown_until = Some(end_time(now, lasting.r#for)?),
        Fault::Forbidden(lasting) => faults.forbidden_until = Some(end_time(now, lasting.r#for)?),
        Fault::Policy(draft) => faults.policies.push(draft.policy(now)?),
        Fault::Slow(service_faults::Slow { factor }) => faults.slow = factor,
        Fault::FailLate(draft) => faults.failing.push(draft.failing(now)?),
        Fault::RaggedPages(Switch { on }) => faults.ragged_pages = on,
        Fault::PageSize(service_faults::PageSize { items }) => {
            inner.cloud.page_size = service_faults::page_size(items)?
        }
        Fault::RateLimits(Switch { on }) => inner.cloud.throttling = on.then(Throttling::default),
        Fault::ListLag(lag) => service_faults::lag(faults, &lag)?,
        Fault::Shortage(draft) => add_shortage(faults, draft, now)?,
        Fault::Quota(quota) => set_quota(limits, &quota),
        Fault::Subnet(subnet) => limits.subnet = subnet.addresses,
        Fault::Reserve(Reserve { group, size, zone, capacity }) => {
            let group = parse_reservation_group(&group)
                .map_err(|expected| ControlError::Value(format!("group {group:?}: {expected}")))?;
            inner.cloud.reserve_vms(&group, &size, &zone.unwrap_or_else(Zone::regional), capacity);
        }
        Fault::KeepChildren(Switch { on }) => faults.keep_children = on,
        Fault::ShoutingIds(Switch { on }) => faults.uppercase_ids = on,
        Fault::Throttle(_) | Fault::Fail(_) | Fault::Hang(_) | Fault::Garbage(_) => {}
    }
    Ok(())
}

pub(super) fn end_time(now: Timestamp, WireDuration(lasting): WireDuration) -> Result<Timestamp, ControlError> {
    now.checked_add(lasting).map_err(|_| ControlError::Value("for: it would end beyond the calendar".to_owned()))
}

/// Either a time or a number of times: exactly one must be given.
pub(super) fn lasting(
    fault: &str,
    times: Option<u32>,
    span: Option<WireDuration>,
    now: Timestamp,
) -> Result<FaultDuration, ControlError> {
    match (times, span) {
        (Some(times), None) => Ok(FaultDuration::Times(times)),
        (None, Some(span)) => Ok(FaultDuration::Until(end_time(now, span)?)),
        _ => Err(ControlError::Value(format!("{fault}: needs either times or for"))),
    }
}

fn add_shortage(faults: &mut Faults, draft: ShortageDraft, now: Timestamp) -> Result<(), ControlError> {
    let duration = lasting("shortage", draft.times, draft.r#for, now)?;
    let ShortageDraft { how, size, zone, capacity_type, .. } = draft;
    let shortage = Shortage { size, zone, capacity_type, duration };
    match how {
        ShortageHow::Refused => faults.refused.push(shortage),
        ShortageHow::NoHardware => faults.unallocatable.push(shortage),
    }
    Ok(())
}

fn set_quota(limits: &mut Limits, quota: &Quota) {
    match (&*quota.of, quota.cores) {
        ("cores", cores) => limits.regional = cores,
        ("lowPriorityCores", cores) => limits.spot = cores,
        (family, Some(cores)) => drop(limits.families.insert(Arc::from(family), cores)),
        (family, None) => drop(limits.families.remove(family)),
    }
}

/// Removes all faults.
pub(super) fn clear(inner: &mut ServerState) {
    inner.request_faults.clear_all();
    inner.cloud.faults = Faults::default();
    inner.cloud.limits = Limits::default();
    inner.cloud.throttling = None;
}

/// The faults in force, as JSON.
pub(super) fn show(inner: &ServerState) -> Value {
    let (faults, limits) = (&inner.cloud.faults, &inner.cloud.limits);
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let families = limits.families.iter().map(|(family, cores)| (family.to_string(), Value::from(*cores)));
    let mut shown = json!({
        "requests": inner.request_faults.show(),
        "unavailableUntil": time(faults.unavailable_until),
        "deletesLockedUntil": time(faults.deletes_locked_until),
        "listing": faults.listing.map(|(until, how)| json!({
            "how": listing_fault_name(how),
            "until": until.to_string(),
        })),
        "listLagSeconds": SignedDuration::as_secs_f64(&faults.list_lag),
        "refused": faults.refused.iter().map(shortage).collect::<Vec<_>>(),
        "noHardware": faults.unallocatable.iter().map(shortage).collect::<Vec<_>>(),
        "keepChildren": faults.keep_children,
        "shoutingIds": faults.uppercase_ids,
        "limits": {
            "cores": limits.regional,
            "lowPriorityCores": limits.spot,
            "families": families.collect::<serde_json::Map<_, _>>(),
            "addresses": limits.subnet,
        },
    });
    service_faults::show(&inner.cloud, &mut shown);
    shown
}

/// The name of a fault of lists in requests.
pub(super) fn listing_fault_name(fault: ListingFault) -> &'static str {
    match fault {
        ListingFault::Forbidden => "forbidden",
        ListingFault::BrokenPage => "brokenPage",
        ListingFault::Absent => "absent",
    }
}

fn shortage(shortage: &Shortage) -> Value {
    let mut shown = json!({
        "size": shortage.size,
        "zone": shortage.zone,
        "capacityType": shortage.capacity_type,
    });
    service_faults::put_lasting(&mut shown, shortage.duration);
    shown
}
