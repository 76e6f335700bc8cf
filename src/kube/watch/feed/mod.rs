//! The feed: what do the steps of all reflectors together change?

use super::row::{Id, Row, Seen, Step};
use super::shapes::Shapes;
use super::{Kind, WatchEvent};
use crate::pause::SWITCHES;
use napkeeper_api::convert;
use napkeeper_core::model::orphans::record::OrphanRecords;
use napkeeper_core::model::settings::{Pause, PauseSwitch};
use napkeeper_core::snapshot::delta::Delta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of all kinds.
#[derive(Debug, Default)]
pub(super) struct Feed {
    kinds: BTreeMap<Kind, Known>,
    shapes: Shapes,
    records: Arc<OrphanRecords>,
    pause: Pause,
    synced: bool,
}

/// What is known of a kind.
#[derive(Debug, Default)]
struct Known {
    objects: BTreeMap<Id, Seen>,
    /// The objects of the listing that goes on.
    listing: Option<BTreeSet<Id>>,
    /// It has been listed once.
    listed: bool,
    trouble: Option<String>,
}

impl Feed {
    pub(super) fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { kinds: kinds.into_iter().map(|kind| (kind, Known::default())).collect(), ..Self::default() }
    }

    /// Takes a step of a kind; what it changes.
    pub(super) fn take(&mut self, kind: Kind, step: Step) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        match step {
            Step::Listing => self.known(kind).listing = Some(BTreeSet::new()),
            Step::Object(id, seen) => {
                if let Some(listing) = &mut self.known(kind).listing {
                    listing.insert(id.clone());
                } else {
                    self.recovered(kind, &mut events);
                }
                self.put(kind, id, seen, &mut events);
            }
            Step::Gone(id) => {
                self.recovered(kind, &mut events);
                self.remove(kind, &id, &mut events);
                self.together(kind, &mut events);
            }
            Step::Listed => self.listed(kind, &mut events),
            Step::Absent => {
                self.known(kind).listing = Some(BTreeSet::new());
                self.listed(kind, &mut events);
            }
            Step::Watching => self.recovered(kind, &mut events),
            Step::Failed(why) => self.failed(kind, why, &mut events),
        }
        events
    }

    fn known(&mut self, kind: Kind) -> &mut Known {
        self.kinds.entry(kind).or_default()
    }

    fn put(&mut self, kind: Kind, mut id: Id, mut seen: Seen, events: &mut Vec<WatchEvent>) {
        let objects = &mut self.known(kind).objects;
        if objects.get(&id).is_some_and(|old| old.version == seen.version) {
            return;
        }
        let old = objects.remove(&id);
        if let Some(Row::Pod(pod)) = &mut seen.row {
            self.shapes.share(pod);
            id = Id::of(&pod.key);
        }
        if let Some(why) = &seen.wrong {
            events.push(WatchEvent::Unreadable { kind, name: id.to_string(), why: why.to_string() });
        }
        let old = old.and_then(|old| old.row);
        if seen.row.is_none() && kind.keeps_last_good() {
            seen.row = old.clone().map(Row::unreadable_now);
        }
        let row = seen.row.clone();
        self.known(kind).objects.insert(id, seen);
        match (old, row) {
            (old, Some(row)) if old.as_ref() != Some(&row) => Self::changed(&row, events),
            (Some(old), None) => Self::gone(&old, events),
            _ => {}
        }
        self.together(kind, events);
    }

    fn remove(&mut self, kind: Kind, id: &Id, events: &mut Vec<WatchEvent>) {
        if let Some(row) = self.known(kind).objects.remove(id).and_then(|old| old.row) {
            Self::gone(&row, events);
        }
    }

    fn listed(&mut self, kind: Kind, events: &mut Vec<WatchEvent>) {
        let known = self.known(kind);
        let listing = known.listing.take().unwrap_or_default();
        let gone: Vec<Id> = known.objects.keys().filter(|id| !listing.contains(id)).cloned().collect();
        known.listed = true;
        for id in &gone {
            self.remove(kind, id, events);
        }
        self.together(kind, events);
        self.recovered(kind, events);
        if !self.synced && self.kinds.values().all(|known| known.listed) {
            self.synced = true;
            events.push(WatchEvent::Synced);
        }
    }

    fn failed(&mut self, kind: Kind, why: Option<String>, events: &mut Vec<WatchEvent>) {
        let known = self.known(kind);
        if let Some(why) = why.filter(|why| known.trouble.as_ref() != Some(why)) {
            known.trouble = Some(why.clone());
            events.push(WatchEvent::Trouble { kind, error: why });
        }
    }

    fn recovered(&mut self, kind: Kind, events: &mut Vec<WatchEvent>) {
        if self.known(kind).trouble.take().is_some() {
            events.push(WatchEvent::Recovered { kind });
        }
    }

    /// An object is new or has changed.
    fn changed(row: &Row, events: &mut Vec<WatchEvent>) {
        let delta = match row {
            Row::Pod(pod) => Some(Delta::Pod(Arc::clone(pod))),
            Row::Node(node) => Some(Delta::Node(Arc::clone(node))),
            Row::Claim(claim) => Some(Delta::Claim(Arc::clone(claim))),
            Row::Pool(pool) => Some(Delta::Pool(Arc::clone(pool))),
            Row::Class(class) => Some(Delta::Class(Arc::clone(class))),
            Row::Overlay(overlay) => Some(Delta::Overlay(Arc::clone(overlay))),
            Row::DaemonSet(set) => Some(Delta::DaemonSet(set.0.clone(), Arc::clone(&set.1))),
            Row::Sweep(sweep) => Some(Delta::Sweep(Arc::clone(sweep))),
            Row::Volume(volume) => Some(Delta::Volume(Arc::clone(volume))),
            Row::VolumeClaim(claim) => Some(Delta::VolumeClaim(Arc::clone(claim))),
            Row::StorageClass(class) => Some(Delta::StorageClass(Arc::clone(class))),
            Row::AttachLimits(limits) => Some(Delta::AttachLimits(Arc::clone(limits))),
            Row::Service(service) => Some(Delta::Service(service.0.clone(), Arc::clone(&service.1))),
            Row::Scheduler(profiles) => Some(Delta::Scheduler(profiles.0.clone(), Arc::clone(&profiles.1))),
            Row::Namespace(space) => Some(Delta::Namespace(space.0.clone(), Arc::clone(&space.1))),
            Row::Record(_) | Row::Pause(_) => None,
        };
        events.extend(delta.map(WatchEvent::Changed));
    }

    /// An object is gone.
    fn gone(row: &Row, events: &mut Vec<WatchEvent>) {
        let delta = match row {
            Row::Pod(pod) => Some(Delta::PodGone(pod.key.clone())),
            Row::Node(node) => Some(Delta::NodeGone(node.name.clone())),
            Row::Claim(claim) => Some(Delta::ClaimGone(claim.name.clone())),
            Row::Pool(pool) => Some(Delta::PoolGone(pool.name.clone())),
            Row::Class(class) => Some(Delta::ClassGone(class.name.clone())),
            Row::Overlay(overlay) => Some(Delta::OverlayGone(overlay.name.clone())),
            Row::DaemonSet(set) => Some(Delta::DaemonSetGone(set.0.clone())),
            Row::Sweep(sweep) => Some(Delta::SweepGone(sweep.name.clone())),
            Row::Volume(volume) => Some(Delta::VolumeGone(volume.name.clone())),
            Row::VolumeClaim(claim) => Some(Delta::VolumeClaimGone(claim.key.clone())),
            Row::StorageClass(class) => Some(Delta::StorageClassGone(class.name.clone())),
            Row::AttachLimits(limits) => Some(Delta::AttachLimitsGone(limits.node.clone())),
            Row::Service(service) => Some(Delta::ServiceGone(service.0.clone())),
            Row::Scheduler(profiles) => Some(Delta::SchedulerGone(profiles.0.clone())),
            Row::Namespace(space) => Some(Delta::NamespaceGone(space.0.clone())),
            Row::Record(_) | Row::Pause(_) => None,
        };
        events.extend(delta.map(WatchEvent::Changed));
    }

    /// Changes that all objects of a kind make together: durable records, and the pause switch. Nothing is said of
    /// them before their kind has been listed: half the records are no records.
    fn together(&mut self, kind: Kind, events: &mut Vec<WatchEvent>) {
        let known = self.known(kind);
        if !known.listed || known.listing.is_some() {
            return;
        }
        if kind == Kind::OrphanRecords {
            let rows = known.objects.values().filter_map(|seen| match &seen.row {
                Some(Row::Record(record)) => Some(&**record),
                _ => None,
            });
            // Each has been read before by itself, so that all together can be read.
            let records = convert::records(rows).ok().filter(|records| self.records.as_ref() != records);
            if let Some(records) = records.map(Arc::new) {
                self.records = Arc::clone(&records);
                events.push(WatchEvent::Changed(Delta::Records(records)));
            }
        }
        if matches!(kind, Kind::OrphanRecords | Kind::Pause) {
            let pause = self.pause();
            if pause != self.pause {
                self.pause = pause.clone();
                events.push(WatchEvent::Changed(Delta::Pause(pause)));
            }
        }
    }

    /// What the switch holds, and deletions while a record cannot be read: it may be the one that forbids them.
    fn pause(&self) -> Pause {
        let objects = |kind: Kind| self.kinds.get(&kind).into_iter().flat_map(|known| known.objects.values());
        let says = |seen: &Seen, switch| matches!(&seen.row, Some(Row::Pause(pause)) if pause.blocks(switch));
        let held = SWITCHES.map(|(_, switch)| switch).into_iter();
        let held = held.filter(|switch| objects(Kind::Pause).any(|seen| says(seen, *switch)));
        let unread = objects(Kind::OrphanRecords).any(|seen| seen.wrong.is_some());
        Pause::of(held.chain(unread.then_some(PauseSwitch::Delete)))
    }
}

#[cfg(test)]
mod tests;
