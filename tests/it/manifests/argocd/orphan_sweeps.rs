//! The health of OrphanSweeps in each state that napkeeper writes.

use super::expect;
use anyhow::Result;
use jiff::Timestamp;
use napkeeper_api::convert::sweep_status;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::errors::CloudErrorCode;
use napkeeper_core::model::names::ObjectName;
use napkeeper_core::model::orphans::attempt::SweepAction;
use napkeeper_core::model::orphans::finding::Classification;
use napkeeper_core::model::orphans::report::{Denial, SweepStatusSummary};
use napkeeper_core::plan::{ResourceTotal, SweepReport};
use serde_json::{Value, json};
use std::sync::Arc;

/// An OrphanSweep after a report, by a spec of this mode.
fn reported(mode: &str, report: &SweepReport) -> Result<Value> {
    let mut object = json!({
        "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanSweep",
        "metadata": { "name": "default", "generation": 3 }, "spec": { "mode": mode },
    });
    let status = sweep_status(&serde_json::from_value(object.clone())?, report, Timestamp::UNIX_EPOCH);
    object["status"] = serde_json::to_value(status)?;
    Ok(object)
}

/// Three NICs of this classification, each a third of 0.012 USD per hour.
fn report(classification: Classification) -> Result<SweepReport> {
    let total = ResourceTotal { resources: 3, price: HourlyPrice::parse_usd("0.012")?, addresses: 3 };
    Ok(SweepReport {
        sweep: ObjectName::new("default")?,
        uid: napkeeper_core::model::names::Uid::new("u")?,
        generation: Some(3),
        observed_at: Some(Timestamp::UNIX_EPOCH),
        findings: Vec::new(),
        totals: [((ResourceKind::Nic, classification), total)].into(),
        report_only: Vec::new(),
        discrepancies: Vec::new(),
        halted: None,
        summary: SweepStatusSummary::default(),
    })
}

fn denial() -> Denial {
    Denial {
        action: SweepAction::Delete,
        kind: ResourceKind::Nic,
        code: CloudErrorCode::Locked,
        message: Arc::from("the scope is locked"),
        since: Timestamp::UNIX_EPOCH,
        retry_at: Timestamp::UNIX_EPOCH,
    }
}

#[test]
fn findings_are_healthy_in_every_mode() -> Result<()> {
    for mode in ["Report", "Mark", "Collect"] {
        expect(&reported(mode, &report(Classification::Orphan)?)?, "Healthy", "3 orphans, $8.76 per month")?;
        expect(&reported(mode, &report(Classification::Owned)?)?, "Healthy", "0 orphans, $0.00 per month")?;
    }
    Ok(())
}

#[test]
fn what_waits_for_a_person_is_suspended_and_what_cannot_work_is_degraded() -> Result<()> {
    let halted = SweepReport { halted: Some(Arc::from("4 of 5 NICs")), ..report(Classification::Suspect)? };
    expect(&reported("Collect", &halted)?, "Suspended", "4 of 5 NICs")?;
    expect(&reported("Report", &halted)?, "Suspended", "4 of 5 NICs")?;
    let blind = SweepReport { halted: Some(Arc::from("listing disks: 403")), ..report(Classification::Unknown)? };
    expect(&reported("Collect", &blind)?, "Degraded", "listing disks: 403")?;
    let summary = SweepStatusSummary { denials: vec![denial()], ..SweepStatusSummary::default() };
    let denied = SweepReport { summary, ..report(Classification::Orphan)? };
    expect(&reported("Collect", &denied)?, "Degraded", "the scope is locked")?;
    let both = SweepReport { halted: halted.halted, ..denied };
    expect(&reported("Collect", &both)?, "Degraded", "the scope is locked")
}

#[test]
fn a_sweep_is_healthy_once_it_is_accepted() -> Result<()> {
    let accepted = SweepReport { observed_at: None, totals: [].into(), ..report(Classification::Owned)? };
    expect(&reported("Collect", &accepted)?, "Healthy", "nothing has been observed yet")
}

#[test]
fn a_changed_sweep_is_in_progress_until_it_is_accepted() -> Result<()> {
    let mut sweep = reported("Collect", &report(Classification::Orphan)?)?;
    sweep["metadata"]["generation"] = json!(4);
    expect(&sweep, "Progressing", "this version")
}
