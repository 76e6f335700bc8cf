//! Remarks on problems besides resources: the breaker, approvals, discrepancies, the pause switch.

use super::input::Input;
use super::report::{Remark, RemarkSubject};
use napkeeper_core::model::orphans::report::{ApprovalState, ApprovalStatus, Discrepancy, IpUsage, ReportOnlyFinding};
use napkeeper_core::model::orphans::sweep::Sweep;
use napkeeper_core::orphans::{
    Assessment, SweepContext, breaker, find_discrepancies, look_at_approvals, report_only_findings,
};

fn remark(about: RemarkSubject, message: String, remedy: &str) -> Remark {
    Remark { about, message, remedy: remedy.to_owned() }
}

/// All remarks; that this is not the configured cluster comes first.
pub(super) fn remarks(input: &Input, context: &SweepContext<'_>, assessed: &[Assessment<'_>]) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mismatch = context.cluster_mismatch().filter(|_| context.is_complete());
    let is_known = mismatch.is_none();
    if let Some(mismatch) = mismatch {
        let remedy = "nothing is deleted until this is fixed: check clusterId, nodeResourceGroup and the kubeconfig";
        remarks.push(remark(RemarkSubject::Cluster, mismatch, remedy));
    }
    if context.is_complete() {
        remarks.extend(breaker_remark(context, assessed));
    }
    if !input.pause_is_known() {
        let remedy = "check why ConfigMap napkeeper-pause could not be read; nothing is deleted until then";
        remarks.push(remark(RemarkSubject::Pause, "unknown whether deletions are paused".to_owned(), remedy));
    } else if input.paused {
        let remedy = "resume when the cause is resolved: ConfigMap napkeeper-pause, key delete";
        remarks.push(remark(RemarkSubject::Pause, "deletions are paused".to_owned(), remedy));
    }
    // Objects of one cluster say nothing about the group of another.
    if is_known {
        remarks.extend(find_discrepancies(&input.inventory, None, &input.settings).iter().map(discrepancy_remark));
        let unused = report_only_findings(&input.inventory).into_iter().filter(|found| found.usage == IpUsage::Unused);
        remarks.extend(unused.map(|found| unused_remark(&found)));
    }
    for sweep in &input.sweeps {
        let approvals = look_at_approvals(context, sweep);
        remarks.extend(approvals.iter().filter_map(|approval| approval_remark(sweep, approval)));
        if let Some(at) = sweep.breaker_cleared_at.filter(|at| *at > context.now) {
            let message =
                format!("OrphanSweep {}: breaker.clearedAt {at} is in the future and is rejected", sweep.name);
            remarks.push(remark(RemarkSubject::Breaker, message, "use a time in the past, after the breaker tripped"));
        }
    }
    remarks
}

fn breaker_remark(context: &SweepContext<'_>, assessed: &[Assessment<'_>]) -> Option<Remark> {
    if let Some(trip) = breaker::open_trip(context.records, context.cleared_at) {
        return Some(remark(
            RemarkSubject::Breaker,
            breaker::describe_trip(trip),
            "find out why so many resources became suspect before you commit that line",
        ));
    }
    let trip = breaker::would_trip(context, assessed).into_iter().next()?;
    let remedy = "a controller started now would stop all sweeps; that line resumes them";
    Some(remark(RemarkSubject::Breaker, breaker::describe_possible_trip(&trip), remedy))
}

/// An object that represents nothing in Azure, or cannot be deleted.
fn discrepancy_remark(found: &Discrepancy) -> Remark {
    let message = format!("{}: {}", found.object, found.evidence.join("; "));
    remark(RemarkSubject::Discrepancy(found.kind), message, &found.remedy)
}

/// A public IP or a frontend that nothing uses. Sweeps never touch these.
fn unused_remark(found: &ReportOnlyFinding) -> Remark {
    let message = format!("{} {}: {}", found.kind, found.id, found.evidence.join("; "));
    let remedy =
        "never deleted by napkeeper: delete it manually if its Service no longer exists and nothing else needs it";
    remark(RemarkSubject::Unused, message, remedy)
}

/// An approval that has no effect.
fn approval_remark(sweep: &Sweep, approval: &ApprovalStatus) -> Option<Remark> {
    if approval.state == ApprovalState::Active {
        return None;
    }
    let message =
        format!("OrphanSweep {}: the approval of {} has no effect ({})", sweep.name, approval.id, approval.state);
    Some(remark(RemarkSubject::Approval, message, &approval.advice))
}
