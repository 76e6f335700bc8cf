//! Orphans that were found, those that sweeps deleted, and why the others are retained.

use super::World;
use super::timeline::EventKind;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::{CloudResource, DiskState, ResourceDetail, ResourceKind};
use napkeeper_core::model::orphans::finding::{Classification, DeletionRefusal};
use napkeeper_core::orphans::{ReferenceGraph, SignOfLife};
use napkeeper_core::plan::kind_label;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What sweeps have found so far, and the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrphanSummary {
    /// Resources of this cluster that were seen without references at some time.
    pub found: usize,
    /// Deleted orphans, oldest first.
    pub collected: Vec<CollectedOrphan>,
    /// Retained resources that are not simply in use, by name.
    pub retained: Vec<RetainedResource>,
    /// Why nothing is swept at all, if so.
    pub halted: Option<String>,
}

/// A deleted orphan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CollectedOrphan {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ResourceKind,
    /// When.
    pub at: Timestamp,
}

/// A retained resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetainedResource {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ResourceKind,
    /// Its status.
    pub status: Classification,
    /// Why it is retained, as text.
    pub reasons: Vec<String>,
    /// The manual action before it may be deleted, if only that is missing.
    pub waits_for: Option<&'static str>,
}

impl World {
    /// What sweeps have found so far.
    #[must_use]
    pub fn orphans(&self) -> OrphanSummary {
        let found: BTreeSet<&str> = self
            .timeline
            .entries()
            .iter()
            .filter(|e| e.kind == EventKind::Suspect)
            .map(|e| e.subject.as_str())
            .collect();
        let collected = self.truth.sweeps.iter();
        let collected = collected
            .map(|(at, id, kind)| CollectedOrphan { name: id.name().to_owned(), kind: *kind, at: *at })
            .collect();
        let mut retained = BTreeMap::new();
        let mut halted = None;
        for sweep in self.cluster.state().sweeps().values() {
            let Some(report) = self.cluster.report(&sweep.name) else { continue };
            halted = halted.or_else(|| report.halted.as_ref().map(ToString::to_string));
            for finding in &report.findings {
                let entry = RetainedResource {
                    name: finding.id.name().to_owned(),
                    kind: finding.kind,
                    status: finding.classification,
                    reasons: finding.refusals.iter().map(|r| refusal_text(*r).to_owned()).collect(),
                    waits_for: finding
                        .refusals
                        .iter()
                        .find_map(|r| manual_action(*r))
                        .filter(|_| is_suspect_or_orphan(finding.classification)),
                };
                retained.insert((finding.kind, entry.name.clone()), entry);
            }
        }
        for (disk, life) in self.unattached_in_use() {
            let name = disk.id.name().to_owned();
            let reasons = vec![life.chain.to_string()];
            let entry =
                RetainedResource { name, kind: disk.kind(), status: life.classification, reasons, waits_for: None };
            retained.insert((entry.kind, entry.name.clone()), entry);
        }
        OrphanSummary { found: found.len(), collected, retained: retained.into_values().collect(), halted }
    }

    /// Logs once which unattached disks are in use.
    pub(super) fn log_unattached_in_use(&mut self) {
        for (disk, life) in self.unattached_in_use() {
            let text = format!("{}: in use although unattached: {}", kind_label(disk.kind()), life.chain);
            self.log_retained(&disk.id, text);
        }
    }

    /// Unattached data disks with references.
    fn unattached_in_use(&self) -> Vec<(Arc<CloudResource>, SignOfLife)> {
        let snapshot = self.controller.inner.snapshot();
        let Some(inventory) = &snapshot.inventory else { return Vec::new() };
        let loose = |r: &&Arc<CloudResource>| {
            r.kind() == ResourceKind::DataDisk
                && matches!(&r.detail, ResourceDetail::Disk(disk) if disk.state == DiskState::Unattached)
        };
        let listed = inventory.resources.as_deref().unwrap_or(&[]);
        if !listed.iter().any(|r| loose(&r)) {
            return Vec::new();
        }
        let links = ReferenceGraph::of(inventory, &snapshot.records, &self.settings);
        let life = |r: &Arc<CloudResource>| links.sign_of_life(r).map(|life| (Arc::clone(r), life));
        listed.iter().filter(loose).filter_map(life).collect()
    }
}

/// It would be deleted, if nothing retained it.
fn is_suspect_or_orphan(status: Classification) -> bool {
    matches!(status, Classification::Suspect | Classification::Orphan)
}

impl OrphanSummary {
    /// How many of the retained ones are suspects or orphans of this cluster.
    #[must_use]
    pub fn left(&self) -> usize {
        self.retained.iter().filter(|k| is_suspect_or_orphan(k.status)).count()
    }
}

/// A refusal, as text.
pub(super) fn refusal_text(refusal: DeletionRefusal) -> &'static str {
    match refusal {
        DeletionRefusal::OtherCluster => "the group does not belong to this cluster, or has no live Node",
        DeletionRefusal::NotOwned => "not owned by this cluster",
        DeletionRefusal::NoVolumeRecord => "no record of a volume of this cluster",
        DeletionRefusal::Retained => "its reclaim policy was Retain",
        DeletionRefusal::SignOfLife => "in use",
        DeletionRefusal::TakesAlong => "a resource to be kept would be deleted with it",
        DeletionRefusal::TooYoung => "grace period not over",
        DeletionRefusal::SeenOnce => "observed only once",
        DeletionRefusal::PartialListing => "a listing was incomplete",
        DeletionRefusal::Breaker => "the breaker has tripped",
        DeletionRefusal::UnreadableSweep => "an OrphanSweep cannot be read, and may exclude it",
        DeletionRefusal::Changed => "it changed since it was listed",
        DeletionRefusal::Paused => "deletions are paused",
        DeletionRefusal::NoLease => "this replica is not the leader",
        DeletionRefusal::Mode => "the sweep's mode or schedule does not allow deletion now",
        DeletionRefusal::Companion => "companion mode only reports VMs",
        DeletionRefusal::Cap => "limit of deletions per 24h reached",
        DeletionRefusal::Approval => "not approved",
        DeletionRefusal::Excluded => "excluded",
        DeletionRefusal::BackOff => "the last deletion failed, retry not due yet",
        DeletionRefusal::Denied => "Azure currently denies such deletions",
    }
}

/// The manual action that lifts a refusal.
fn manual_action(refusal: DeletionRefusal) -> Option<&'static str> {
    match refusal {
        DeletionRefusal::TakesAlong => Some("manual detachment of a NIC or disk"),
        DeletionRefusal::Breaker => Some("breaker.clearedAt in Git"),
        DeletionRefusal::UnreadableSweep => Some("a correction of the OrphanSweep in Git"),
        DeletionRefusal::Approval => Some("an approval in Git"),
        DeletionRefusal::Mode => Some("mode Collect in Git"),
        DeletionRefusal::Paused => Some("the pause switch"),
        _ => None,
    }
}
