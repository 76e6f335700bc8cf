//! Remarks: what is wrong beside resources?

use super::input::Input;
use super::report::Remark;
use napkeeper_core::model::orphans::report::{ApprovalState, ApprovalStatus, Discrepancy, IpUsage, ReportOnlyFinding};
use napkeeper_core::model::orphans::sweep::Sweep;
use napkeeper_core::orphans::{
    Assessment, SweepContext, breaker, find_discrepancies, look_at_approvals, report_only_findings,
};

/// What the remark is about that this is not known to be the configured cluster.
pub(super) const CLUSTER: &str = "cluster";

/// What is wrong beside resources: the breaker, approvals, settings that do nothing.
pub(super) fn remarks(input: &Input, case: &SweepContext<'_>, assessed: &[Assessment<'_>]) -> Vec<Remark> {
    let remark = |about, what: String, remedy: &str| Remark { about, what, remedy: remedy.to_owned() };
    let mut remarks = Vec::new();
    let missing = case.cluster_mismatch().filter(|_| case.is_complete());
    let is_known = missing.is_none();
    if let Some(why) = missing {
        let remedy = "nothing is deleted until this is fixed: check clusterId, nodeResourceGroup and the kubeconfig";
        remarks.push(remark(CLUSTER, why, remedy));
    }
    if case.is_complete() {
        remarks.extend(breaker_remark(case, assessed));
    }
    if !input.pause_is_known() {
        let remedy = "check why ConfigMap napkeeper-pause could not be read; nothing is deleted until then";
        remarks.push(remark("pause", "unknown whether deletions are paused".to_owned(), remedy));
    } else if input.paused {
        let remedy = "resume when the cause is resolved: ConfigMap napkeeper-pause, key delete";
        remarks.push(remark("pause", "deletions are paused".to_owned(), remedy));
    }
    // Objects of one cluster say nothing of the group of another.
    if is_known {
        remarks.extend(find_discrepancies(&input.inventory, None, &input.settings).iter().map(discrepancy_remark));
        let unused = report_only_findings(&input.inventory).into_iter().filter(|found| found.usage == IpUsage::Unused);
        remarks.extend(unused.map(|found| unused_remark(&found)));
    }
    for sweep in &input.sweeps {
        let approvals = look_at_approvals(case, sweep);
        remarks.extend(approvals.iter().filter_map(|approval| approval_remark(sweep, approval)));
        if let Some(at) = sweep.breaker_cleared_at.filter(|at| *at > case.now) {
            let what = format!("OrphanSweep {}: breaker.clearedAt {at} is in the future and is rejected", sweep.name);
            remarks.push(remark("breaker", what, "use a time in the past, after the breaker tripped"));
        }
    }
    remarks
}

fn breaker_remark(case: &SweepContext<'_>, assessed: &[Assessment<'_>]) -> Option<Remark> {
    let remark = |what, remedy: &str| Remark { about: "breaker", what, remedy: remedy.to_owned() };
    if let Some(trip) = breaker::open_trip(case.records, case.cleared_at) {
        return Some(remark(
            breaker::describe_trip(trip),
            "find out why so many resources became suspect before you commit that line",
        ));
    }
    let trip = breaker::would_trip(case, assessed).into_iter().next()?;
    let explained = breaker::describe_trip(&trip).replacen("the breaker tripped at", "the breaker would trip at", 1);
    Some(remark(explained, "a controller started now would stop all sweeps; that line resumes them"))
}

/// An object that stands for nothing in Azure, or cannot go.
fn discrepancy_remark(found: &Discrepancy) -> Remark {
    let what = format!("{}: {}", found.object, found.evidence.join("; "));
    Remark { about: found.kind.as_str(), what, remedy: found.remedy.to_string() }
}

/// A public IP or a frontend that serves nobody. Sweeps never touch these.
fn unused_remark(found: &ReportOnlyFinding) -> Remark {
    let what = format!("{} {}: {}", found.kind, found.id, found.evidence.join("; "));
    let remedy =
        "never deleted by napkeeper: delete it manually if its Service no longer exists and nothing else needs it";
    Remark { about: "unused", what, remedy: remedy.to_owned() }
}

/// An approval that does nothing any more, or never did.
fn approval_remark(sweep: &Sweep, approval: &ApprovalStatus) -> Option<Remark> {
    if approval.state == ApprovalState::Active {
        return None;
    }
    let what =
        format!("OrphanSweep {}: the approval of {} has no effect ({})", sweep.name, approval.id, approval.state);
    Some(Remark { about: "approval", what, remedy: approval.advice.to_string() })
}
