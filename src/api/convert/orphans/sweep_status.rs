//! The status of an OrphanSweep.
//!
//! `Ready` is False only if a listing failed, never because of findings. `Halted` is True, with the reason, if nothing
//! is swept; `Degraded` if Azure denies what the mode requires, so that the sweep only reports there. A version of a sweep is Ready
//! as soon as it is accepted: what the last observation found stays until the next.

use crate::convert::common::{self, ConditionState};
use crate::types::common::Condition;
use crate::types::orphan_sweep::{
    ApprovalStatus as WireApproval, KeptCount, KindCount, LastRun, MAX_APPROVALS, OrphanSweep, OrphanSweepStatus,
    SweepDiscrepancy, SweepFinding, SweepReportOnly,
};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::errors::CloudErrorCode;
use napkeeper_core::model::orphans::finding::{Classification, Finding};
use napkeeper_core::model::orphans::report::{ApprovalStatus, Denial, Discrepancy, ReportOnlyFinding};
use napkeeper_core::orphans::MAX_REPORTED_FINDINGS;
use napkeeper_core::plan::{SweepReport, one_of_kind};
use std::collections::BTreeSet;

/// Most entries of a finding's lists.
const MAX_LIST_ENTRIES: usize = 20;
/// The period of reported costs.
const MONTH: SignedDuration = SignedDuration::from_hours(730);
/// Longest text from Azure in a message.
const MAX_QUOTE: usize = 1024;

/// The status of a sweep after a report, written at `now`. A condition's time moves only when its status does.
#[must_use]
pub fn sweep_status(sweep: &OrphanSweep, report: &SweepReport, now: Timestamp) -> OrphanSweepStatus {
    let known = sweep.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let generation = report.generation;
    let Some(observed_at) = report.observed_at else { return accepted(sweep, known, generation, now) };
    let orphans = || {
        report
            .totals
            .iter()
            .filter(|((_, classification), _)| *classification == Classification::Orphan)
            .map(|(_, t)| t)
    };
    let observed = observed_at.to_string();
    let summary = &report.summary;
    let cost = orphans().map(|t| t.price).fold(HourlyPrice::ZERO, |sum, price| sum + price);
    let approvals: Vec<_> = summary.approvals.iter().take(MAX_APPROVALS).map(approval).collect();
    let retained = summary.orphans_by_refusal.iter().map(|((kind, refusal), count)| KeptCount {
        count: i64::from(*count),
        kind: kind.as_str().to_owned(),
        refusal: refusal.category().to_owned(),
        ..KeptCount::default()
    });
    OrphanSweepStatus {
        addresses: Some(orphans().map(|t| i64::from(t.addresses)).sum()),
        approvals: (!approvals.is_empty()).then_some(approvals),
        collected_last_day: Some(summary.deletions_in_window.into()),
        conditions: Some(conditions(report, known, generation, now)),
        cost_per_hour_nano_usd: Some(cost.nanos()),
        cost_per_month: Some(cost.over(MONTH).to_string()),
        counts: Some(ResourceKind::ALL.into_iter().map(|kind| count(report, kind)).collect()),
        discrepancies: Some(report.discrepancies.iter().take(MAX_LIST_ENTRIES).map(discrepancy).collect()),
        findings: Some(report.findings.iter().take(MAX_REPORTED_FINDINGS).map(finding).collect()),
        kept: summary.orphans_by_refusal.first_key_value().map(|_| retained.collect()),
        last_run: Some(LastRun { started_at: observed.clone(), finished_at: Some(observed), ..LastRun::default() }),
        last_whole_inventory: summary.last_complete_inventory_at.map(|t| t.to_string()),
        most_per_day: Some(summary.cap.into()),
        next_collection: summary.next_collection.map(|t| t.to_string()),
        next_observation: summary.next_inventory.map(|t| t.to_string()),
        observed_generation: generation,
        orphans: Some(orphans().map(|t| i64::from(t.resources)).sum()),
        report_only: Some(report.report_only.iter().take(MAX_LIST_ENTRIES).map(report_only).collect()),
        ..OrphanSweepStatus::default()
    }
}

/// The status of a version of which nothing has been observed yet. What is known of this version stays, such as a failed listing;
/// conditions of another one are no longer true of it.
fn accepted(sweep: &OrphanSweep, known: &[Condition], generation: Option<i64>, now: Timestamp) -> OrphanSweepStatus {
    let mut status = sweep.status.clone().unwrap_or_default();
    let mut conditions: Vec<Condition> =
        known.iter().filter(|condition| condition.observed_generation == generation).cloned().collect();
    if !conditions.iter().any(|condition| condition.kind == "Ready") {
        let message = "nothing has been observed yet with this specification";
        let state = ConditionState { name: "Ready", status: "True", reason: "Accepted", message };
        conditions.insert(0, common::condition(known, &state, generation, now));
    }
    status.conditions = Some(conditions);
    OrphanSweepStatus { observed_generation: generation, ..status }
}

fn conditions(report: &SweepReport, known: &[Condition], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let condition = |name: &str, status: &str, reason: &str, message: &str| {
        common::condition(known, &ConditionState { name, status, reason, message }, generation, now)
    };
    // An incomplete listing proves nothing; if nothing was listed, there are no totals.
    let blind = report.totals.is_empty() || report.totals.keys().any(|(_, s)| *s == Classification::Unknown);
    let ready = match &report.halted {
        Some(reason) if blind => condition("Ready", "False", "NotObserved", reason),
        _ => condition("Ready", "True", "Observed", ""),
    };
    let halted = match &report.halted {
        Some(reason) => condition("Halted", "True", "NothingIsSwept", reason),
        None => condition("Halted", "False", "Sweeping", ""),
    };
    let degraded = match report.summary.denials.first() {
        Some(first) => condition("Degraded", "True", reason_of(first.code), &describe_denials(&report.summary.denials)),
        None => condition("Degraded", "False", "NothingIsDenied", ""),
    };
    vec![ready, halted, degraded]
}

fn reason_of(code: CloudErrorCode) -> &'static str {
    match code {
        CloudErrorCode::Locked => "Locked",
        CloudErrorCode::Lockdown => "Lockdown",
        CloudErrorCode::Policy => "PolicyDenied",
        _ => "PermissionDenied",
    }
}

fn describe_denials(denials: &[Denial]) -> String {
    let one = |denial: &Denial| {
        let (word, kind) = (denial.action.as_gerund(), one_of_kind(denial.kind));
        let message: String = denial.message.chars().take(MAX_QUOTE).collect();
        format!(
            "{word} {kind} is denied since {}, orphans are only reported; retry at {}. Azure error: {message}",
            denial.since, denial.retry_at
        )
    };
    denials.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn approval(found: &ApprovalStatus) -> WireApproval {
    WireApproval {
        advice: (!found.advice.is_empty()).then(|| found.advice.to_string()),
        expires_at: found.expires_at.to_string(),
        id: found.id.as_str().to_owned(),
        incarnation: found.incarnation.to_string(),
        state: found.state.to_string(),
        ..WireApproval::default()
    }
}

fn count(report: &SweepReport, kind: ResourceKind) -> KindCount {
    let of =
        |classification| Some(report.totals.get(&(kind, classification)).map_or(0, |total| i64::from(total.resources)));
    KindCount {
        foreign: of(Classification::Foreign),
        in_flight: of(Classification::InFlight),
        kind: kind.as_str().to_owned(),
        orphan: of(Classification::Orphan),
        owned: of(Classification::Owned),
        protected: of(Classification::Protected),
        suspect: of(Classification::Suspect),
        unknown: of(Classification::Unknown),
        ..KindCount::default()
    }
}

fn finding(found: &Finding) -> SweepFinding {
    let evidence = found.evidence.iter().take(MAX_LIST_ENTRIES).map(ToString::to_string).collect();
    let refusals: BTreeSet<_> = found.refusals.iter().copied().collect();
    SweepFinding {
        addresses: Some(found.addresses.into()),
        cost_per_hour_nano_usd: Some(found.price.nanos()),
        evidence: Some(evidence),
        first_seen: found.first_seen.map(|t| t.to_string()),
        id: found.id.as_str().to_owned(),
        incarnation: found.incarnation.to_string(),
        kind: found.kind.as_str().to_owned(),
        refusals: Some(refusals.into_iter().take(MAX_LIST_ENTRIES).map(|r| r.category().to_owned()).collect()),
        standing: found.classification.as_str().to_owned(),
        ..SweepFinding::default()
    }
}

fn discrepancy(found: &Discrepancy) -> SweepDiscrepancy {
    SweepDiscrepancy {
        evidence: Some(found.evidence.iter().take(MAX_LIST_ENTRIES).map(ToString::to_string).collect()),
        kind: found.kind.as_str().to_owned(),
        object: found.object.to_string(),
        remedy: Some(found.remedy.to_string()),
        since: found.since.map(|t| t.to_string()),
        ..SweepDiscrepancy::default()
    }
}

fn report_only(found: &ReportOnlyFinding) -> SweepReportOnly {
    SweepReportOnly {
        evidence: Some(found.evidence.iter().take(MAX_LIST_ENTRIES).map(ToString::to_string).collect()),
        id: found.id.as_str().to_owned(),
        kind: found.kind.to_owned(),
        service: found.service.as_ref().map(ToString::to_string),
        ..SweepReportOnly::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_core::model::amounts::money::HourlyPrice;
    use napkeeper_core::model::names::{ArmId, ObjectName, Uid};
    use napkeeper_core::model::orphans::attempt::SweepAction;
    use napkeeper_core::model::orphans::finding::DeletionRefusal;
    use napkeeper_core::model::orphans::report::{ApprovalState, SweepStatusSummary};
    use napkeeper_core::plan::ResourceTotal;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_772_000_000 + seconds).unwrap()
    }

    fn report(classification: Classification, halted: Option<&str>) -> SweepReport {
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/n";
        let found = Finding {
            id: ArmId::new(id).unwrap(),
            kind: ResourceKind::Nic,
            incarnation: Arc::from("guid"),
            classification,
            evidence: vec![Arc::from("no link")],
            refusals: vec![DeletionRefusal::Mode, DeletionRefusal::TooYoung, DeletionRefusal::Mode],
            price: HourlyPrice::parse_usd("0.004").unwrap(),
            addresses: 1,
            first_seen: Some(at(0)),
        };
        let total = ResourceTotal { resources: 3, price: HourlyPrice::parse_usd("0.012").unwrap(), addresses: 3 };
        SweepReport {
            sweep: ObjectName::new("s").unwrap(),
            uid: Uid::new("u").unwrap(),
            generation: Some(3),
            observed_at: Some(at(60)),
            findings: vec![found; 60],
            totals: [((ResourceKind::Nic, classification), total)].into(),
            report_only: Vec::new(),
            discrepancies: Vec::new(),
            halted: halted.map(Arc::from),
            summary: Default::default(),
        }
    }

    fn sweep() -> OrphanSweep {
        serde_json::from_value(json!({ "metadata": { "name": "s", "generation": 3 }, "spec": {} })).unwrap()
    }

    fn words(status: &OrphanSweepStatus) -> Vec<String> {
        let conditions = status.conditions.iter().flatten();
        conditions.map(|c| format!("{}={} {} {}", c.kind, c.status, c.message, c.last_transition_time)).collect()
    }

    #[test]
    fn a_status_holds_the_sums_of_orphans_and_no_more_findings_than_fit() {
        let status = sweep_status(&sweep(), &report(Classification::Orphan, None), at(61));
        assert_eq!((status.orphans, status.addresses, status.observed_generation), (Some(3), Some(3), Some(3)));
        assert_eq!(status.cost_per_hour_nano_usd, Some(12_000_000));
        let findings = status.findings.unwrap();
        assert_eq!(findings.len(), 50);
        assert_eq!(findings[0].refusals.as_deref().unwrap(), ["too_young", "mode"], "a set");
        let counts: Vec<Value> = status.counts.unwrap().iter().map(|c| json!([c.kind, c.orphan])).collect();
        assert_eq!(counts, [json!(["Nic", 3]), json!(["OsDisk", 0]), json!(["Vm", 0]), json!(["DataDisk", 0])]);
    }

    #[test]
    fn findings_and_the_breaker_leave_ready_true_and_a_failed_listing_does_not() {
        let mut object = sweep();
        let first = sweep_status(&object, &report(Classification::Orphan, None), at(1));
        let all_well = ["Ready=True", "Halted=False", "Degraded=False"].map(|word| format!("{word}  {}", at(1)));
        assert_eq!(words(&first), all_well);
        object.status = Some(first);
        let tripped = sweep_status(&object, &report(Classification::Suspect, Some("tripped")), at(2));
        assert_eq!(words(&tripped)[..2], [format!("Ready=True  {}", at(1)), format!("Halted=True tripped {}", at(2))]);
        let blind = sweep_status(&object, &report(Classification::Unknown, Some("listing disks: 403")), at(3));
        assert_eq!(words(&blind)[0], format!("Ready=False listing disks: 403 {}", at(3)));
    }

    #[test]
    fn a_version_is_ready_once_it_is_accepted_and_keeps_what_was_found() {
        let mut object = sweep();
        let nothing = SweepReport { observed_at: None, ..report(Classification::Orphan, None) };
        let first = sweep_status(&object, &nothing, at(1));
        assert_eq!((words(&first).len(), first.observed_generation, first.orphans), (1, Some(3), None));
        assert_eq!(first.conditions.as_deref().unwrap()[0].reason, "Accepted");
        // The listing of this version has failed: it has not recovered by a restart.
        let blind = sweep_status(&object, &report(Classification::Unknown, Some("listing disks: 403")), at(2));
        object.status = Some(blind.clone());
        assert_eq!(sweep_status(&object, &nothing, at(3)), blind);
        let next = SweepReport { generation: Some(4), ..nothing };
        let next = sweep_status(&object, &next, at(4));
        let ready = &next.conditions.as_deref().unwrap()[0];
        assert_eq!((&*ready.status, ready.observed_generation, next.observed_generation), ("True", Some(4), Some(4)));
        assert_eq!((next.counts, next.last_run), (blind.counts, blind.last_run));
    }

    #[test]
    fn denials_of_azure_set_degraded_but_not_ready() {
        let mut report = report(Classification::Orphan, None);
        report.summary = SweepStatusSummary {
            denials: vec![Denial {
                action: SweepAction::Delete,
                kind: ResourceKind::Nic,
                code: CloudErrorCode::Lockdown,
                message: Arc::from("denied by the system"),
                since: at(0),
                retry_at: at(1200),
            }],
            approvals: vec![ApprovalStatus {
                id: ArmId::new("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d").unwrap(),
                incarnation: Arc::from("i"),
                expires_at: at(0),
                state: ApprovalState::Expired,
                advice: Arc::from("remove these lines"),
            }],
            orphans_by_refusal: [((ResourceKind::Nic, DeletionRefusal::Denied), 3)].into(),
            next_collection: Some(at(600)),
            deletions_in_window: 2,
            cap: 5,
            ..SweepStatusSummary::default()
        };
        let status = sweep_status(&sweep(), &report, at(1));
        let conditions = status.conditions.unwrap();
        let of = |kind: &str| conditions.iter().find(|c| c.kind == kind).unwrap();
        assert_eq!(
            (&*of("Ready").status, &*of("Degraded").status, &*of("Degraded").reason),
            ("True", "True", "Lockdown")
        );
        assert!(
            of("Degraded").message.contains("deleting a NIC is denied") && of("Degraded").message.contains("system")
        );
        let approval = &status.approvals.unwrap()[0];
        assert_eq!((&*approval.state, approval.advice.as_deref()), ("Expired", Some("remove these lines")));
        let kept = &status.kept.unwrap()[0];
        assert_eq!((&*kept.kind, &*kept.refusal, kept.count), ("Nic", "denied", 3));
        assert_eq!((status.collected_last_day, status.most_per_day), (Some(2), Some(5)));
        assert_eq!(status.cost_per_month.as_deref(), Some("$8.76"));
        assert_eq!(status.next_collection, Some(at(600).to_string()));
    }
}
