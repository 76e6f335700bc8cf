//! Orphans of a world: what was found, what was collected, and why is the rest kept?

use super::World;
use super::timeline::Kind;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::{CloudResource, Detail, DiskState, ResourceKind};
use napkeeper_core::model::orphans::finding::{Refusal, Standing};
use napkeeper_core::orphans::{Links, SignOfLife};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What sweeps have found so far, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Orphans {
    /// Resources of this cluster that were seen without a sign of life at some time.
    pub found: usize,
    /// What sweeps deleted, oldest first.
    pub collected: Vec<Collected>,
    /// What is kept though it is not simply in use, by name.
    pub kept: Vec<Kept>,
    /// Why nothing is swept at all, if so.
    pub halted: Option<String>,
}

/// Something that a sweep deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ResourceKind,
    /// When.
    pub at: Timestamp,
}

/// Something that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ResourceKind,
    /// What it is.
    pub standing: Standing,
    /// Why it is kept, for people.
    pub reasons: Vec<String>,
    /// What a person must do before it may go, if only that is missing.
    pub waits_for: Option<&'static str>,
}

impl World {
    /// What sweeps have found so far.
    #[must_use]
    pub fn orphans(&self) -> Orphans {
        let found: BTreeSet<&str> =
            self.timeline.iter().filter(|e| e.kind == Kind::Suspect).map(|e| e.subject.as_str()).collect();
        let collected = self.truth.sweeps.iter();
        let collected =
            collected.map(|(at, id, kind)| Collected { name: id.name().to_owned(), kind: *kind, at: *at }).collect();
        let mut kept = BTreeMap::new();
        let mut halted = None;
        for sweep in self.cluster.state().sweeps().values() {
            let Some(report) = self.cluster.report(&sweep.name) else { continue };
            halted = halted.or_else(|| report.halted.as_ref().map(ToString::to_string));
            for finding in &report.findings {
                let entry = Kept {
                    name: finding.id.name().to_owned(),
                    kind: finding.kind,
                    standing: finding.standing,
                    reasons: finding.refusals.iter().map(|r| words(*r).to_owned()).collect(),
                    waits_for: finding.refusals.iter().find_map(|r| person(*r)).filter(|_| is_ours(finding.standing)),
                };
                kept.insert((finding.kind, entry.name.clone()), entry);
            }
        }
        for (disk, life) in self.spared() {
            let name = disk.id.name().to_owned();
            let reasons = vec![life.by.to_string()];
            let entry = Kept { name, kind: disk.kind(), standing: life.standing, reasons, waits_for: None };
            kept.insert((entry.kind, entry.name.clone()), entry);
        }
        Orphans { found: found.len(), collected, kept: kept.into_values().collect(), halted }
    }

    /// Tells once which unattached disks are in use all the same.
    pub(super) fn tell_spared(&mut self) {
        for (disk, life) in self.spared() {
            let text = format!("{} in use though unattached: {}", disk.kind(), life.by);
            if self.kept.get(&disk.id) != Some(&text) {
                self.kept.insert(disk.id.clone(), text.clone());
                self.note(Kind::Kept, disk.id.name(), text);
            }
        }
    }

    /// Data disks that no VM has and something alive links to.
    fn spared(&self) -> Vec<(Arc<CloudResource>, SignOfLife)> {
        let snapshot = self.controller.inner.snapshot();
        let Some(inventory) = &snapshot.inventory else { return Vec::new() };
        let loose = |r: &&Arc<CloudResource>| {
            r.kind() == ResourceKind::DataDisk
                && matches!(&r.detail, Detail::Disk(disk) if disk.state == DiskState::Unattached)
        };
        let listed = inventory.cloud.as_deref().unwrap_or(&[]);
        if !listed.iter().any(|r| loose(&r)) {
            return Vec::new();
        }
        let links = Links::of(inventory, &snapshot.records, &self.settings);
        let life = |r: &Arc<CloudResource>| links.life(r).map(|life| (Arc::clone(r), life));
        listed.iter().filter(loose).filter_map(life).collect()
    }
}

/// It would go, if nothing kept it.
fn is_ours(standing: Standing) -> bool {
    matches!(standing, Standing::Suspect | Standing::Orphan)
}

impl Orphans {
    /// How many of those that are kept are suspects or orphans of this cluster.
    #[must_use]
    pub fn left(&self) -> usize {
        self.kept.iter().filter(|k| is_ours(k.standing)).count()
    }
}

/// A refusal, for people.
pub(super) fn words(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::OtherCluster => "the group is not this cluster's, or no live Node lies in it",
        Refusal::NotOwned => "no exact tag says that it is this cluster's",
        Refusal::NoVolumeRecord => "no record that this cluster had a volume on it",
        Refusal::Retained => "the volume's reclaim policy was Retain",
        Refusal::SignOfLife => "something alive links to it",
        Refusal::TakesAlong => "something would go with it that must not",
        Refusal::TooYoung => "not an orphan for long enough",
        Refusal::SeenOnce => "not yet seen twice",
        Refusal::PartialListing => "a listing was not whole",
        Refusal::Breaker => "the breaker has tripped",
        Refusal::Changed => "it changed since it was listed",
        Refusal::Paused => "deleting is paused",
        Refusal::NoLease => "the lease is not held",
        Refusal::Mode => "the sweep's mode or schedule does not collect now",
        Refusal::Companion => "beside managed NAP, VMs are only reported",
        Refusal::Cap => "the cap of 24 h is reached",
        Refusal::Approval => "nobody has approved its deletion",
        Refusal::Excluded => "an exclusion names it",
        Refusal::BackOff => "its last DELETE failed, and the next try is not due",
        Refusal::Denied => "Azure denies such deletes for now",
    }
}

/// What a person must do to lift a refusal.
fn person(refusal: Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::TakesAlong => Some("a part detached by hand"),
        Refusal::Breaker => Some("breaker.clearedAt in Git"),
        Refusal::Approval => Some("an approval in Git"),
        Refusal::Mode => Some("mode Collect in Git"),
        Refusal::Paused => Some("the pause switch"),
        _ => None,
    }
}
