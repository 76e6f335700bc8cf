//! The report of an inventory: verdicts, prices and texts for every resource.

use super::failed_listings::failed_listings;
use super::input::Input;
use super::refusals::{RefusalContext, explain};
use super::remarks::remarks;
use super::report::{RemarkSubject, Report, ResourceFinding, Total, seconds};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::live::InfrastructureFacts;
use napkeeper_core::catalog::{CapacityType, Catalog, RegionCatalog};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind, Vm};
use napkeeper_core::model::orphans::finding::Finding;
use napkeeper_core::model::orphans::sweep::UnreadableSweeps;
use napkeeper_core::orphans::{AuditFinding, AuditStatus, SweepContext, VmPrices, audit, breaker};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a proposed approval is valid: long enough for a review, half of the longest that is accepted.
const APPROVAL_VALIDITY: SignedDuration = SignedDuration::from_hours(7 * 24);

/// List prices of a region.
struct ListPrices(Option<RegionCatalog>);

impl VmPrices for ListPrices {
    fn vm(&self, _resource: &CloudResource, vm: &Vm) -> Option<HourlyPrice> {
        let size = self.0.as_ref()?.size(&vm.size)?;
        match vm.capacity_type {
            CapacityType::Spot => size.spot.or(size.on_demand),
            _ => size.on_demand,
        }
    }
}

/// The report with all findings: orphans first, and of each status the most expensive.
pub(super) fn report(input: &Input) -> anyhow::Result<Report> {
    let catalog = Catalog::embedded()?.priced_by(input.sheet.clone());
    let prices = ListPrices(catalog.region(&input.settings.cluster.region));
    // They only decide the order of deletions.
    let infrastructure = InfrastructureFacts::default();
    let readable = UnreadableSweeps::default();
    let context = SweepContext {
        inventory: &input.inventory,
        records: &input.records,
        settings: &input.settings,
        prices: &prices,
        infrastructure: &infrastructure,
        cleared_at: breaker::cleared_at(&input.sweeps, &input.records, input.now),
        // An audit reads all OrphanSweeps, or counts them as not listed.
        unreadable_sweeps: &readable,
        paused: input.paused,
        now: input.now,
    };
    let assessed = context.assess();
    let mismatch = context.cluster_mismatch().unwrap_or_default();
    let explained =
        RefusalContext { cluster_mismatch: &mismatch, pause_is_known: input.pause_is_known(), now: input.now };
    let audited = audit(&context, &assessed, &input.sweeps, input.unread.is_empty())?;
    let mut findings: Vec<ResourceFinding> = audited.into_iter().map(|audited| finding(audited, &explained)).collect();
    findings.sort_by(|a, b| {
        let key = |f: &ResourceFinding| (f.status, Reverse(f.price), f.kind);
        key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
    });
    let remarks = remarks(input, &context, &assessed);
    let failed = failed_listings(input);
    let mut report = Report {
        cluster: input.settings.cluster.id.to_string(),
        group: input.settings.cluster.node_resource_group.to_string(),
        taken_at: seconds(input.now),
        prices_of: catalog.as_of().to_string(),
        is_complete: failed.is_empty(),
        of_cluster: failed.is_empty() && remarks.iter().all(|remark| remark.about != RemarkSubject::Cluster),
        failed,
        remarks,
        findings: Vec::new(),
        omitted: 0,
        omitted_in_use: 0,
        totals: BTreeMap::new(),
        orphans: Total::default(),
        savings: Total::default(),
    };
    report.count(&findings);
    report.findings = findings;
    Ok(report)
}

fn finding(audited: AuditFinding<'_>, context: &RefusalContext<'_>) -> ResourceFinding {
    let refusals = audited.refusals.iter().map(|refusal| explain(*refusal, &audited, context)).collect();
    let AuditFinding {
        finding,
        resource,
        sweep,
        status,
        is_unreferenced,
        reported_only,
        needs_approval,
        unused_since,
        ..
    } = audited;
    ResourceFinding {
        name: resource.id.name().to_owned(),
        kind: finding.kind,
        status,
        evidence: evidence(&finding, resource, is_unreferenced),
        action: action(status, finding.kind, reported_only),
        refusals,
        approval: needs_approval.then(|| approval(&finding, context.now)),
        sweep: sweep.map(|sweep| sweep.name.to_string()),
        created_at: resource.created_at.map(seconds),
        unused_since: unused_since.map(seconds),
        orphan_since: finding.first_seen.map(seconds),
        price: finding.price,
        month: finding.price,
        priced: finding.price != HourlyPrice::ZERO || finding.kind == ResourceKind::Nic,
        addresses: finding.addresses,
        tags: resource.tags.clone(),
        id: finding.id,
        incarnation: finding.incarnation,
        reported_only,
    }
}

fn evidence(finding: &Finding, resource: &CloudResource, is_unreferenced: bool) -> Vec<Arc<str>> {
    let mut evidence = finding.evidence.clone();
    if is_unreferenced {
        evidence.push(Arc::from("no references found from any NodeClaim, Node, VM, volume or other user"));
    }
    evidence.push(match resource.created_at {
        Some(at) => Arc::from(format!("created {}", seconds(at))),
        None => Arc::from("creation time unknown"),
    });
    if let ResourceDetail::Disk(disk) = &resource.detail {
        let changed_at = disk.last_ownership_update.map(seconds);
        evidence.extend(changed_at.map(|at| Arc::from(format!("last attached or detached {at}"))));
    }
    evidence
}

fn action(status: AuditStatus, kind: ResourceKind, reported_only: bool) -> String {
    let deletion = match kind {
        ResourceKind::Nic => "delete the NIC, which frees its addresses",
        ResourceKind::OsDisk => "delete the OS disk",
        ResourceKind::Vm => "delete the VM with its NIC and OS disk",
        ResourceKind::DataDisk => "delete the disk and its data",
    };
    match status {
        AuditStatus::Unknown => "none until every listing is complete".to_owned(),
        _ if reported_only => "report only".to_owned(),
        AuditStatus::Orphan | AuditStatus::Unproven => deletion.to_owned(),
        AuditStatus::Suspect => format!("{deletion}, once confirmed as an orphan"),
        AuditStatus::Foreign | AuditStatus::Protected | AuditStatus::InFlight | AuditStatus::Owned => {
            "nothing".to_owned()
        }
    }
}

/// The lines of an OrphanSweep that approve a deletion.
fn approval(finding: &Finding, now: Timestamp) -> String {
    let expires = seconds(now.saturating_add(APPROVAL_VALIDITY).unwrap_or(now));
    format!("    - id: {}\n      incarnation: {}\n      expiresAt: \"{expires}\"\n", finding.id, finding.incarnation)
}
