//! Explains why a resource is retained, with remedies.

use super::report::{ExplainedRefusal, seconds};
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cron::Schedule;
use napkeeper_core::model::orphans::finding::DeletionRefusal;
use napkeeper_core::model::orphans::sweep::{Sweep, SweepMode};
use napkeeper_core::orphans::AuditFinding;

/// What the explanation of refusals depends on, besides the finding.
pub(super) struct RefusalContext<'a> {
    /// Why the inventory is not one of the configured cluster; empty if it is.
    pub(super) cluster_mismatch: &'a str,
    /// The pause switch could be read.
    pub(super) pause_is_known: bool,
    /// When the listings were taken.
    pub(super) now: Timestamp,
}

/// Why a refusal keeps a resource, and what to do.
pub(super) fn explain(
    refusal: DeletionRefusal,
    audited: &AuditFinding<'_>,
    context: &RefusalContext<'_>,
) -> ExplainedRefusal {
    let computed = match refusal {
        DeletionRefusal::OtherCluster => Some((
            context.cluster_mismatch.to_owned(),
            "check clusterId and nodeResourceGroup, and that the kubeconfig is for this cluster".to_owned(),
        )),
        DeletionRefusal::TooYoung => Some(too_young(audited)),
        DeletionRefusal::Mode => Some(mode(audited, context.now)),
        // An approval holds for a week, which may be over before it is an orphan, so its lines are not printed yet.
        DeletionRefusal::Approval if !audited.needs_approval => {
            Some(("not approved".to_owned(), "approve it once it is an orphan: audit prints the lines then".to_owned()))
        }
        _ => None,
    };
    let (reason, remedy) = computed.unwrap_or_else(|| {
        let (reason, remedy) = fixed(refusal, audited.sightings, context.pause_is_known);
        (reason.to_owned(), remedy.to_owned())
    });
    ExplainedRefusal { refusal, reason, remedy }
}

/// The texts that do not name anything.
fn fixed(refusal: DeletionRefusal, sightings: u32, pause_is_known: bool) -> (&'static str, &'static str) {
    match refusal {
        DeletionRefusal::NotOwned => (
            "not owned by this cluster",
            "never deleted by napkeeper; delete it manually if you know that it is unused",
        ),
        DeletionRefusal::NoVolumeRecord => (
            "no record that this cluster used this disk for a volume",
            "the controller records volumes only while it runs; delete older disks manually if you are sure",
        ),
        DeletionRefusal::Retained => {
            ("its volume had reclaim policy Retain", "delete it manually if its data is no longer needed")
        }
        DeletionRefusal::SignOfLife => ("references found: it is in use", "no action needed"),
        DeletionRefusal::SeenOnce => (
            if sightings == 0 { "not observed by the controller yet" } else { "observed only once by the controller" },
            "let the controller observe it: two observations at least 10m apart are required",
        ),
        DeletionRefusal::TakesAlong => (
            "a NIC or disk that must be kept would be deleted with it: see the evidence",
            "detach that NIC or disk, or delete the VM manually",
        ),
        DeletionRefusal::PartialListing => {
            ("a listing is incomplete or too old", "check what could not be listed; a live run lists again")
        }
        DeletionRefusal::Breaker => (
            "the breaker has tripped: too many resources became suspect at once",
            "find out why, then commit the line in the report",
        ),
        DeletionRefusal::UnreadableSweep => {
            ("an OrphanSweep cannot be read, and may exclude it", "correct the OrphanSweep in Git")
        }
        DeletionRefusal::Changed => ("it changed since it was listed", "wait for the next observation"),
        DeletionRefusal::Paused if !pause_is_known => {
            ("unknown whether deletions are paused", "check why ConfigMap napkeeper-pause could not be read")
        }
        DeletionRefusal::Paused => ("deletions are paused", "resume deletions: ConfigMap napkeeper-pause, key delete"),
        DeletionRefusal::NoLease => ("this replica is not the leader", "no action needed: another replica is"),
        DeletionRefusal::Companion => (
            "companion mode only reports VMs, it never deletes them",
            "delete its NodeClaim if it exists, otherwise the VM; its NIC and OS disk are deleted afterwards",
        ),
        DeletionRefusal::Cap => (
            "limit of deletions per 24h reached",
            "wait, or raise caps.deletionsPerDay if that is set: above the default (20, or 5 % of what is owned) it has no effect",
        ),
        DeletionRefusal::Approval => ("not approved", "commit the lines under `approvals` below"),
        DeletionRefusal::BackOff => ("the last deletion failed", "wait: it will be retried"),
        DeletionRefusal::Denied => (
            "Azure currently denies the deletion of such resources",
            "check permissions, locks and policies with `napkeeper audit --as-controller`",
        ),
        DeletionRefusal::Excluded => ("excluded", "remove the exclusion if it is wrong"),
        DeletionRefusal::OtherCluster | DeletionRefusal::TooYoung | DeletionRefusal::Mode => {
            ("not allowed by the deletion rules", "see docs/orphans.md")
        }
    }
}

fn too_young(audited: &AuditFinding<'_>) -> (String, String) {
    let minimum_age = napkeeper_api::types::duration::format(audited.minimum_age);
    match audited.eligible_at.map(seconds) {
        Some(at) => (format!("{minimum_age} grace period ends at {at}"), format!("wait until {at}")),
        None => (
            format!("{minimum_age} grace period not started: not observed by the controller yet"),
            "let the controller observe it".to_owned(),
        ),
    }
}

/// Why no sweep collects it now: none includes its kind, or by its mode or schedule.
fn mode(audited: &AuditFinding<'_>, now: Timestamp) -> (String, String) {
    let Some(Sweep { name, mode, schedule, .. }) = audited.sweep else { return no_sweep(audited.finding.kind) };
    if *mode != SweepMode::Collect {
        return (format!("the OrphanSweep's mode is {mode}"), format!("set mode: Collect in OrphanSweep {name}"));
    }
    let next = schedule.as_ref().and_then(|text| Schedule::parse(text).ok()).and_then(|schedule| schedule.after(now));
    match next.map(seconds) {
        Some(at) => (format!("OrphanSweep {name} runs on a schedule, next at {at}"), format!("wait until {at}")),
        None => (
            format!("OrphanSweep {name} has a schedule that never matches"),
            format!("correct the schedule of OrphanSweep {name}"),
        ),
    }
}

fn no_sweep(kind: ResourceKind) -> (String, String) {
    (
        format!("no OrphanSweep includes kind {kind}, so nothing is deleted"),
        format!("commit an OrphanSweep with kinds: [{kind}]; start with mode: Report"),
    )
}
