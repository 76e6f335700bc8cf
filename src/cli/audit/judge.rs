//! Judging: what does the law of deleting say of an inventory that is looked at once?
//!
//! The verdicts are the engine's own. What is added here is for people: a suspect that is old enough by Azure's own
//! times is called an orphan that is not proven yet, since one look proves nothing and deletes nothing.

use super::input::Input;
use super::remarks::{self, remarks};
use super::report::{Failed, Remark, Report, Row, Standing, seconds};
use super::words::{self, About};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::live::InfrastructureFacts;
use napkeeper_core::catalog::{CapacityType, RegionCatalog};
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::{CloudResource, ResourceDetail, ResourceKind, Vm};
use napkeeper_core::model::names::{ArmId, ObjectName, Uid};
use napkeeper_core::model::orphans::finding::{DeletionRefusal, Finding};
use napkeeper_core::model::orphans::sweep::{Sweep, SweepMode};
use napkeeper_core::orphans::{Assessment, DeletionBudget, SweepContext, VmPrices, breaker, findings_for};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long an approval that we propose is valid: long enough for a review, half of the longest that counts.
const APPROVAL: SignedDuration = SignedDuration::from_hours(7 * 24);

/// List prices of a region.
pub(super) struct ListPrices(pub(super) Option<RegionCatalog>);

impl VmPrices for ListPrices {
    fn vm(&self, _resource: &CloudResource, vm: &Vm) -> Option<HourlyPrice> {
        let size = self.0.as_ref()?.size(&vm.size)?;
        match vm.capacity_type {
            CapacityType::Spot => size.spot.or(size.on_demand),
            _ => size.on_demand,
        }
    }
}

/// A verdict with the sweep that it is of, if any sweep looks at that kind.
struct Judged<'a> {
    finding: Finding,
    sweep: &'a Sweep,
    is_of_git: bool,
}

/// What rows have in common.
struct Context<'a> {
    case: &'a SweepContext<'a>,
    cluster_missing: &'a str,
    pause_is_known: bool,
}

/// Judges, and puts it into words. All rows, dearest and surest first.
pub(super) fn rows(input: &Input, prices: &ListPrices) -> anyhow::Result<(Vec<Row>, Vec<Remark>)> {
    // One look does not ask what only the order of deleting rests on.
    let surroundings = InfrastructureFacts::default();
    let case = SweepContext {
        inventory: &input.inventory,
        records: &input.records,
        settings: &input.settings,
        prices,
        infrastructure: &surroundings,
        cleared_at: breaker::cleared_at(&input.sweeps, &input.records, input.now),
        paused: input.paused,
        now: input.now,
    };
    let assessed = case.assess();
    let fallback = default_sweep()?;
    let judged = verdicts(input, &case, &assessed, &fallback);
    let missing = case.cluster_mismatch();
    let resources: BTreeMap<&ArmId, &Arc<CloudResource>> =
        assessed.iter().map(|a| (&a.resource.id, a.resource)).collect();
    let context = Context {
        case: &case,
        cluster_missing: missing.as_deref().unwrap_or_default(),
        pause_is_known: input.pause_is_known(),
    };
    let row = |(id, judged): (ArmId, Judged<'_>)| Some(row(&context, judged, resources.get(&id)?));
    let mut rows: Vec<Row> = judged.into_iter().filter_map(row).collect();
    // Without the records nobody knows what has been seen: then nothing is called an orphan either.
    for row in rows.iter_mut().filter(|row| !input.unread.is_empty() && row.standing.counts()) {
        row.standing = Standing::Unknown;
        row.would = would(Standing::Unknown, row.kind, false);
        row.approval = None;
    }
    rows.sort_by(|a, b| {
        let key = |r: &Row| (r.standing, std::cmp::Reverse(r.price), r.kind);
        key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
    });
    Ok((rows, remarks(input, &case, &assessed)))
}

/// The verdict on each resource, of the sweep that would be the first to collect it.
fn verdicts<'a>(
    input: &'a Input,
    case: &SweepContext<'_>,
    assessed: &[Assessment<'_>],
    fallback: &'a Sweep,
) -> BTreeMap<ArmId, Judged<'a>> {
    let owned = assessed.iter().filter(|a| a.ownership.is_ok()).count();
    let mut allowance = DeletionBudget::from_records(case.records, u32::try_from(owned).unwrap_or(u32::MAX), case.now);
    let mut best: BTreeMap<ArmId, Judged<'a>> = BTreeMap::new();
    let covered: BTreeSet<ResourceKind> = input.sweeps.iter().flat_map(|s| s.kinds.iter().copied()).collect();
    let of_git = input.sweeps.iter().map(|sweep| (sweep, true));
    for (sweep, is_of_git) in of_git.chain([(fallback, false)]) {
        for finding in findings_for(case, assessed, sweep, &mut allowance) {
            if !is_of_git && covered.contains(&finding.kind) {
                continue;
            }
            let better =
                best.get(&finding.id).is_none_or(|known| finding.refusals.len() < known.finding.refusals.len());
            if better {
                best.insert(finding.id.clone(), Judged { finding, sweep, is_of_git });
            }
        }
    }
    best
}

/// What stands in for a sweep where none looks at a kind: the defaults, and no leave to delete.
fn default_sweep() -> anyhow::Result<Sweep> {
    Ok(Sweep {
        name: ObjectName::new("audit")?,
        uid: Uid::new("audit")?,
        inventory_interval: SignedDuration::from_mins(10),
        schedule: None,
        mode: SweepMode::Report,
        kinds: ResourceKind::ALL.into_iter().collect(),
        minimum_age: BTreeMap::new(),
        approval_required: BTreeSet::from([ResourceKind::Vm, ResourceKind::DataDisk]),
        cap: None,
        exclusions: Vec::new(),
        approvals: Vec::new(),
        breaker_cleared_at: None,
    })
}

fn row(context: &Context<'_>, judged: Judged<'_>, resource: &CloudResource) -> Row {
    let case = context.case;
    let Judged { finding, sweep, is_of_git } = judged;
    let unused_since = unused_since(resource);
    let standing = standing(case, &finding, sweep, unused_since);
    let about = About {
        resource,
        sweep: is_of_git.then_some(sweep),
        least: sweep.minimum_age(finding.kind),
        of_age_at: case.eligible_at(resource, sweep),
        seen: case.records.sightings.get(&resource.id).map_or(0, |s| s.times),
        cluster_missing: context.cluster_missing,
        pause_is_known: context.pause_is_known,
        now: case.now,
    };
    let companion = finding.refusals.contains(&DeletionRefusal::Companion);
    let approvable = standing.counts() && !companion && finding.refusals.contains(&DeletionRefusal::Approval);
    Row {
        name: resource.id.name().to_owned(),
        kind: finding.kind,
        standing,
        evidence: evidence(&finding, resource, standing),
        would: would(standing, finding.kind, companion),
        kept_by: said(standing, &finding.refusals).map(|refusal| words::kept(refusal, &about)).collect(),
        approval: approvable.then(|| approval(&finding, case.now)),
        sweep: is_of_git.then(|| sweep.name.to_string()),
        created_at: resource.created_at.map(seconds),
        unused_since: unused_since.filter(|_| idle(standing, finding.kind)).map(seconds),
        orphan_since: finding.first_seen.map(seconds),
        price: finding.price,
        month: finding.price,
        priced: finding.price != HourlyPrice::ZERO || finding.kind == ResourceKind::Nic,
        addresses: finding.addresses,
        tags: resource.tags.clone(),
        id: finding.id,
        incarnation: finding.incarnation,
    }
}

/// The refusals that say something: what is not ours, or in use, is kept by that alone, and a VM that is never deleted
/// needs no leave.
fn said(standing: Standing, refusals: &[DeletionRefusal]) -> impl Iterator<Item = DeletionRefusal> {
    let companion = refusals.contains(&DeletionRefusal::Companion);
    let says = move |refusal: &DeletionRefusal| match standing {
        Standing::Owned | Standing::InFlight => *refusal == DeletionRefusal::SignOfLife,
        Standing::Protected => {
            matches!(refusal, DeletionRefusal::SignOfLife | DeletionRefusal::Excluded | DeletionRefusal::Retained)
        }
        Standing::Foreign => {
            use DeletionRefusal::{NoVolumeRecord, NotOwned, OtherCluster, Retained};
            matches!(refusal, OtherCluster | NotOwned | NoVolumeRecord | Retained)
        }
        Standing::Unknown => *refusal == DeletionRefusal::PartialListing,
        _ => !companion || !matches!(refusal, DeletionRefusal::Mode | DeletionRefusal::Approval | DeletionRefusal::Cap),
    };
    refusals.iter().copied().filter(says)
}

/// True for what nobody uses, by its own word: a VM or NIC of somebody else's may well be at work.
fn idle(standing: Standing, kind: ResourceKind) -> bool {
    match standing {
        Standing::Orphan | Standing::Unproven | Standing::Suspect => true,
        Standing::Foreign => kind == ResourceKind::DataDisk,
        Standing::Unknown | Standing::Protected | Standing::InFlight | Standing::Owned => false,
    }
}

/// What the engine says, and what Azure's own times add to it for a reader who looks once.
fn standing(case: &SweepContext<'_>, finding: &Finding, sweep: &Sweep, unused_since: Option<Timestamp>) -> Standing {
    use napkeeper_core::model::orphans::finding::Classification as Law;
    let ours = !finding.refusals.contains(&DeletionRefusal::OtherCluster);
    let old = unused_since.is_some_and(|at| case.now.duration_since(at) >= sweep.minimum_age(finding.kind));
    let has = |refusal| finding.refusals.contains(&refusal);
    let young = has(DeletionRefusal::TooYoung) || has(DeletionRefusal::SeenOnce);
    let law = match finding.classification {
        // An exclusion keeps it, and what it is stays worth knowing.
        Law::Protected if has(DeletionRefusal::Excluded) && !has(DeletionRefusal::SignOfLife) && young => Law::Suspect,
        Law::Protected if has(DeletionRefusal::Excluded) && !has(DeletionRefusal::SignOfLife) => Law::Orphan,
        law => law,
    };
    match law {
        Law::Unknown => Standing::Unknown,
        Law::Owned => Standing::Owned,
        Law::InFlight => Standing::InFlight,
        Law::Protected => Standing::Protected,
        Law::Foreign => Standing::Foreign,
        Law::Suspect | Law::Orphan if !ours => Standing::Suspect,
        Law::Orphan => Standing::Orphan,
        Law::Suspect if old => Standing::Unproven,
        Law::Suspect => Standing::Suspect,
    }
}

/// Since when nothing can have used a resource at the most: it did not exist before, or was attached until then.
fn unused_since(resource: &CloudResource) -> Option<Timestamp> {
    let created = resource.created_at?;
    match &resource.detail {
        ResourceDetail::Disk(disk) => Some(disk.last_ownership_update.map_or(created, |at| at.max(created))),
        ResourceDetail::Vm(_) | ResourceDetail::Nic(_) => Some(created),
    }
}

fn evidence(finding: &Finding, resource: &CloudResource, standing: Standing) -> Vec<Arc<str>> {
    let mut evidence = finding.evidence.clone();
    if matches!(standing, Standing::Orphan | Standing::Unproven | Standing::Suspect) {
        evidence.push(Arc::from("no references found from any NodeClaim, Node, VM, volume or other user"));
    }
    match resource.created_at {
        Some(at) => evidence.push(Arc::from(format!("created {}", seconds(at)))),
        None => evidence.push(Arc::from("creation time unknown")),
    }
    if let ResourceDetail::Disk(disk) = &resource.detail {
        evidence.extend(disk.last_ownership_update.map(|at| {
            let at = seconds(at);
            Arc::from(format!("last attached or detached {at}"))
        }));
    }
    evidence
}

fn would(standing: Standing, kind: ResourceKind, companion: bool) -> String {
    let what = match kind {
        ResourceKind::Nic => "delete the NIC, which frees its addresses",
        ResourceKind::OsDisk => "delete the OS disk",
        ResourceKind::Vm => "delete the VM with its NIC and OS disk",
        ResourceKind::DataDisk => "delete the disk and its data",
    };
    match standing {
        _ if companion => "report only".to_owned(),
        Standing::Orphan | Standing::Unproven => what.to_owned(),
        Standing::Suspect => format!("{what}, once confirmed as an orphan"),
        Standing::Unknown => "none until every listing is complete".to_owned(),
        Standing::Foreign | Standing::Protected | Standing::InFlight | Standing::Owned => "nothing".to_owned(),
    }
}

/// The lines of an OrphanSweep that approve a deletion.
fn approval(finding: &Finding, now: Timestamp) -> String {
    let expires = seconds(now.saturating_add(APPROVAL).unwrap_or(now));
    format!("    - id: {}\n      incarnation: {}\n      expiresAt: \"{expires}\"\n", finding.id, finding.incarnation)
}

/// What could not be listed, each cause once.
pub(super) fn failures(input: &Input) -> Vec<Failed> {
    let inventory = &input.inventory;
    let all = [
        inventory.group_managed_by.as_ref().err(),
        inventory.resources.as_ref().err(),
        inventory.related.as_ref().err(),
        inventory.claims.as_ref().err(),
        inventory.nodes.as_ref().err(),
        inventory.volumes.as_ref().err(),
        inventory.attachments.as_ref().err(),
        inventory.disk_uses.as_ref().err(),
    ];
    let mut by_cause: Vec<Failed> = Vec::new();
    for failure in all.into_iter().flatten().chain(&input.unread) {
        let failed = words::failed(failure);
        match by_cause.iter_mut().find(|known| known.why == failed.why) {
            Some(known) if known.what.split(", ").any(|what| what == failed.what) => {}
            Some(known) => known.what += &format!(", {}", failed.what),
            None => by_cause.push(failed),
        }
    }
    by_cause
}

/// The report, before filters are put to it.
pub(super) fn report(input: &Input, prices: &ListPrices, prices_of: String) -> anyhow::Result<(Report, Vec<Row>)> {
    let (rows, remarks) = rows(input, prices)?;
    let failed = failures(input);
    let mut report = Report {
        cluster: input.settings.cluster.id.to_string(),
        group: input.settings.cluster.node_resource_group.to_string(),
        taken_at: seconds(input.now),
        prices_of,
        whole: failed.is_empty(),
        of_cluster: failed.is_empty() && remarks.iter().all(|remark| remark.about != remarks::CLUSTER),
        failed,
        remarks,
        findings: Vec::new(),
        left_out: 0,
        totals: BTreeMap::new(),
        orphans: super::report::Total::default(),
        regained: super::report::Total::default(),
    };
    report.count(&rows);
    Ok((report, rows))
}
