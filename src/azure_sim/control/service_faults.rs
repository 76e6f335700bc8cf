//! Faults of Azure Resource Manager itself: policies, lagging lists, slow and failing operations, page sizes.

use super::faults::{ListLag, lasting, listing_fault_name};
use super::{ControlError, WireDuration};
use jiff::{SignedDuration, Timestamp};
use napkeeper_sim::cloud::{Cloud, FaultDuration, Faults, LateFailure, ListedKind, ListingLag, PolicyAssignment};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyDraft {
    assignment: String,
    of: Option<ListedKind>,
    #[serde(default)]
    deletes: bool,
    times: Option<u32>,
    r#for: Option<WireDuration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slow {
    pub(super) factor: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailLate {
    #[serde(default)]
    deletes: bool,
    times: Option<u32>,
    r#for: Option<WireDuration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageSize {
    pub(super) items: usize,
}

impl PolicyDraft {
    pub(super) fn policy(self, now: Timestamp) -> Result<PolicyAssignment, ControlError> {
        let Self { assignment, of, deletes, times, r#for } = self;
        let duration = lasting("policy", times, r#for, now)?;
        Ok(PolicyAssignment { assignment: Arc::from(assignment), of, deletes, duration })
    }
}

impl FailLate {
    pub(super) fn failing(self, now: Timestamp) -> Result<LateFailure, ControlError> {
        let Self { deletes, times, r#for } = self;
        Ok(LateFailure { deletes, duration: lasting("failLate", times, r#for, now)? })
    }
}

/// Checks the number of resources on a page.
pub(super) fn page_size(items: usize) -> Result<usize, ControlError> {
    if (1..=1_000).contains(&items) {
        return Ok(items);
    }
    Err(ControlError::Value(format!("items {items}: must be from 1 to 1000")))
}

/// Makes lists lag.
pub(super) fn lag(faults: &mut Faults, draft: &ListLag) -> Result<(), ControlError> {
    let ListLag { by, of, hides, keeps } = draft;
    let span = |span: &Option<WireDuration>| span.as_ref().map(|WireDuration(span)| *span);
    match (span(by), of, span(hides), span(keeps)) {
        (Some(by), None, None, None) => faults.list_lag = by,
        (Some(by), Some(of), None, None) => {
            faults.lags.push(ListingLag { of: Some(*of), hides: by, keeps: by });
        }
        (None, _, None, None) | (Some(_), _, _, _) => {
            return Err(ControlError::Value("listLag: needs either by, or hides, keeps or both".to_owned()));
        }
        (None, of, hides, keeps) => {
            faults.lags.push(ListingLag {
                of: *of,
                hides: hides.unwrap_or_default(),
                keeps: keeps.unwrap_or_default(),
            });
        }
    }
    Ok(())
}

/// Adds these faults to the JSON of all faults.
pub(super) fn show(cloud: &Cloud, shown: &mut Value) {
    let faults = &cloud.faults;
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let seconds = |span: &SignedDuration| SignedDuration::as_secs_f64(span);
    shown["lockdownUntil"] = json!(time(faults.lockdown_until));
    shown["forbiddenUntil"] = json!(time(faults.forbidden_until));
    shown["slow"] = json!(faults.slow.max(1));
    shown["raggedPages"] = json!(faults.ragged_pages);
    shown["pageSize"] = json!(cloud.page_size);
    shown["rateLimits"] = json!(cloud.throttling.is_some());
    let kind = |of: Option<ListedKind>| of.map(ListedKind::as_str);
    let lags = faults.lags.iter().map(
        |lag| json!({ "of": kind(lag.of), "hidesSeconds": seconds(&lag.hides), "keepsSeconds": seconds(&lag.keeps) }),
    );
    shown["lags"] = lags.collect();
    let listings = faults.listings.iter().map(
        |(of, (until, how))| json!({ "of": of.as_str(), "how": listing_fault_name(*how), "until": until.to_string() }),
    );
    shown["listings"] = listings.collect();
    let policies = faults.policies.iter().map(|policy| {
        let mut shown = json!({ "assignment": &*policy.assignment, "of": kind(policy.of), "effect": policy.effect() });
        put_lasting(&mut shown, policy.duration);
        shown
    });
    shown["policies"] = policies.collect();
    let failing = faults.failing.iter().map(|failing| {
        let mut shown = json!({ "deletes": failing.deletes });
        put_lasting(&mut shown, failing.duration);
        shown
    });
    shown["failLate"] = failing.collect();
}

/// Adds to the JSON of a fault how long it lasts.
pub(super) fn put_lasting(shown: &mut Value, lasting: FaultDuration) {
    match lasting {
        FaultDuration::Until(end) => shown["until"] = end.to_string().into(),
        FaultDuration::Times(left) => shown["timesLeft"] = left.into(),
    }
}
