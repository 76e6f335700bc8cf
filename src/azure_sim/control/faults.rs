//! Faults: how does a body of `POST /control/faults` become something that goes wrong?

use super::{ControlError, Span, arm};
use crate::faults::{Matching, Mishap};
use crate::server::Inner;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::model::names::{VmSize, Zone};
use napkeeper_sim::cloud::{FaultDuration, Faults, Limits, ListedKind, ListingFault, Shortage, Throttling};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Something that goes wrong from now on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Fault {
    /// 429, with `Retry-After`.
    Throttle(Throttle),
    /// A wrong answer; the request takes no effect.
    Fail(Fail),
    /// The request, or its answer, is held.
    Hang(Hang),
    /// The request takes effect, and the answer is no JSON.
    Garbage(Garbage),
    /// Every request is answered 500 for a while.
    Unavailable(ForAWhile),
    /// Listings are not whole.
    Listing(Listing),
    /// Listings lag behind.
    ListLag(ListLag),
    /// Sizes cannot be had.
    Shortage(ShortageDraft),
    /// A quota of cores.
    Quota(Quota),
    /// Room in the subnet.
    Subnet(Subnet),
    /// A group of capacity reservations has so many VMs.
    Reserve(Reserve),
    /// A lock forbids deletes.
    Lock(ForAWhile),
    /// VMs leave their NIC and OS disk behind.
    KeepChildren(Switch),
    /// Listings spell some ids in capitals.
    ShoutingIds(Switch),
    /// A policy denies requests.
    Policy(arm::PolicyDraft),
    /// The group is locked down.
    Lockdown(ForAWhile),
    /// We have lost the permission to write.
    Forbidden(ForAWhile),
    /// Operations take longer.
    Slow(arm::Slow),
    /// Operations fail at their end.
    FailLate(arm::FailLate),
    /// Pages are of any size.
    RaggedPages(Switch),
    /// Resources on a page.
    PageSize(arm::PageSize),
    /// Azure's own limits of requests are kept.
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
    retry_after: Span,
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
pub(super) struct ForAWhile {
    r#for: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    how: ListingHow,
    of: Option<ListedKind>,
    r#for: Span,
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

/// Late in both directions by the same, or in each by its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListLag {
    pub(super) by: Option<Span>,
    pub(super) of: Option<ListedKind>,
    pub(super) hides: Option<Span>,
    pub(super) keeps: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ShortageDraft {
    how: ShortageHow,
    size: Option<VmSize>,
    zone: Option<Zone>,
    capacity_type: Option<CapacityType>,
    times: Option<u32>,
    r#for: Option<Span>,
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

/// Lets something go wrong; what is in force then, with the number of the new fault if it has one.
pub(super) fn inject(inner: &mut Inner, fault: Fault, now: Timestamp) -> Result<Value, ControlError> {
    let (mishap, on) = match fault {
        Fault::Throttle(t) => (Mishap::Throttle(t.retry_after.0.as_secs()), t.requests),
        Fault::Fail(f) => (failing(&f)?, f.requests),
        Fault::Hang(h) => match h.when {
            When::Before => (Mishap::HangBefore, h.requests),
            When::After => (Mishap::HangAfter, h.requests),
        },
        Fault::Garbage(g) => (Mishap::Garbage, g.requests),
        inside => {
            inject_inside(inner, inside, now)?;
            return Ok(show(inner));
        }
    };
    let path = on.path.as_deref().map(Regex::new).transpose()?;
    let id = inner.mishaps.inject(mishap, Matching { method: on.method, path, times: on.times });
    let mut shown = show(inner);
    shown["id"] = id.into();
    Ok(shown)
}

fn failing(fail: &Fail) -> Result<Mishap, ControlError> {
    if !(400..=599).contains(&fail.status) {
        return Err(ControlError::Value(format!("status {}: must be from 400 to 599", fail.status)));
    }
    Ok(Mishap::Fail { status: fail.status, code: fail.code.clone(), message: fail.message.clone() })
}

/// What goes wrong inside Azure.
fn inject_inside(inner: &mut Inner, fault: Fault, now: Timestamp) -> Result<(), ControlError> {
    let (faults, limits) = (&mut inner.cloud.faults, &mut inner.cloud.limits);
    match fault {
        Fault::Unavailable(lasting) => faults.unavailable_until = Some(end(now, lasting.r#for)?),
        Fault::Lock(lasting) => faults.deletes_locked_until = Some(end(now, lasting.r#for)?),
        Fault::Listing(listing) => {
            let fault = (end(now, listing.r#for)?, listing.how.fault());
            match listing.of {
                None => faults.listing = Some(fault),
                Some(of) => drop(faults.listings.insert(of, fault)),
            }
        }
        Fault::Lockdown(lasting) => faults.lockdown_until = Some(end(now, lasting.r#for)?),
        Fault::Forbidden(lasting) => faults.forbidden_until = Some(end(now, lasting.r#for)?),
        Fault::Policy(draft) => faults.policies.push(draft.policy(now)?),
        Fault::Slow(arm::Slow { factor }) => faults.slow = factor,
        Fault::FailLate(draft) => faults.failing.push(draft.failing(now)?),
        Fault::RaggedPages(Switch { on }) => faults.ragged_pages = on,
        Fault::PageSize(arm::PageSize { items }) => inner.cloud.page_size = arm::page_size(items)?,
        Fault::RateLimits(Switch { on }) => inner.cloud.throttling = on.then(Throttling::default),
        Fault::ListLag(lag) => arm::lag(faults, &lag)?,
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

pub(super) fn end(now: Timestamp, Span(lasting): Span) -> Result<Timestamp, ControlError> {
    now.checked_add(lasting).map_err(|_| ControlError::Value("for: it would end beyond the calendar".to_owned()))
}

/// For so long, or so many times: exactly one of them.
pub(super) fn lasting(
    what: &str,
    times: Option<u32>,
    span: Option<Span>,
    now: Timestamp,
) -> Result<FaultDuration, ControlError> {
    match (times, span) {
        (Some(times), None) => Ok(FaultDuration::Times(times)),
        (None, Some(span)) => Ok(FaultDuration::Until(end(now, span)?)),
        _ => Err(ControlError::Value(format!("{what}: needs either times or for"))),
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

/// Takes everything back: from now on all is well.
pub(super) fn clear(inner: &mut Inner) {
    inner.mishaps.clear_all();
    inner.cloud.faults = Faults::default();
    inner.cloud.limits = Limits::default();
    inner.cloud.throttling = None;
}

/// What is in force.
pub(super) fn show(inner: &Inner) -> Value {
    let (faults, limits) = (&inner.cloud.faults, &inner.cloud.limits);
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let families = limits.families.iter().map(|(family, cores)| (family.to_string(), Value::from(*cores)));
    let mut shown = json!({
        "requests": inner.mishaps.show(),
        "unavailableUntil": time(faults.unavailable_until),
        "deletesLockedUntil": time(faults.deletes_locked_until),
        "listing": faults.listing.map(|(until, how)| json!({
            "how": word(how),
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
    arm::show(&inner.cloud, &mut shown);
    shown
}

/// How a listing fails, as requests spell it.
pub(super) fn word(fault: ListingFault) -> &'static str {
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
    arm::put_lasting(&mut shown, shortage.duration);
    shown
}
