//! The table of all watched objects: turns the events of reflectors into changes of the Snapshot.

use super::object::{ObjectId, ObjectState, ReflectorEvent, WatchedObject};
use super::pod_interner::PodInterner;
use super::{WatchEvent, WatchedKind};
use napkeeper_api::convert;
use napkeeper_core::model::orphans::record::OrphanRecords;
use napkeeper_core::model::orphans::sweep::UnreadableSweeps;
use napkeeper_core::model::settings::{Pause, PauseSwitch};
use napkeeper_core::snapshot::delta::Delta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The objects of all kinds.
#[derive(Debug, Default)]
pub(super) struct ObjectTable {
    kinds: BTreeMap<WatchedKind, KindState>,
    interner: PodInterner,
    records: Arc<OrphanRecords>,
    unreadable_sweeps: UnreadableSweeps,
    pause: Pause,
    pause_switch_seen: Arc<AtomicBool>,
    synced: bool,
}

/// The objects of a kind.
#[derive(Debug, Default)]
struct KindState {
    objects: BTreeMap<ObjectId, ObjectState>,
    /// The objects of the listing in progress.
    listing: Option<BTreeSet<ObjectId>>,
    /// It has been listed once.
    listed: bool,
    failure: Option<String>,
}

impl ObjectTable {
    pub(super) fn new(kinds: impl IntoIterator<Item = WatchedKind>, pause_switch_seen: Arc<AtomicBool>) -> Self {
        let kinds = kinds.into_iter().map(|kind| (kind, KindState::default())).collect();
        Self { kinds, pause_switch_seen, ..Self::default() }
    }

    /// Applies an event of a kind, and returns the changes.
    pub(super) fn apply(&mut self, kind: WatchedKind, event: ReflectorEvent) -> Vec<WatchEvent> {
        let mut events = Vec::new();
        match event {
            ReflectorEvent::ListStarted => self.state(kind).listing = Some(BTreeSet::new()),
            ReflectorEvent::Seen(id, seen) => {
                if let Some(listing) = &mut self.state(kind).listing {
                    listing.insert(id.clone());
                } else {
                    self.recovered(kind, &mut events);
                }
                self.put(kind, id, seen, &mut events);
            }
            ReflectorEvent::Gone(id) => {
                self.recovered(kind, &mut events);
                self.remove(kind, &id, &mut events);
                self.aggregate(kind, &mut events);
            }
            ReflectorEvent::ListDone => self.listed(kind, &mut events),
            ReflectorEvent::Absent => {
                self.state(kind).listing = Some(BTreeSet::new());
                self.listed(kind, &mut events);
            }
            ReflectorEvent::WatchStarted => self.recovered(kind, &mut events),
            ReflectorEvent::Failed(message) => self.failed(kind, message, &mut events),
        }
        events
    }

    fn state(&mut self, kind: WatchedKind) -> &mut KindState {
        self.kinds.entry(kind).or_default()
    }

    fn put(&mut self, kind: WatchedKind, mut id: ObjectId, mut seen: ObjectState, events: &mut Vec<WatchEvent>) {
        let objects = &mut self.state(kind).objects;
        if objects.get(&id).is_some_and(|old| old.version == seen.version) {
            return;
        }
        let old = objects.remove(&id);
        if let Some(WatchedObject::Put(Delta::Pod(pod))) = &mut seen.object {
            self.interner.share(pod);
            id = ObjectId::of(&pod.key);
        }
        if let Some(reason) = &seen.wrong {
            events.push(WatchEvent::Unreadable { kind, name: id.to_string(), reason: reason.to_string() });
        }
        let old = old.and_then(|old| old.object);
        if seen.object.is_none() && kind.keeps_last_good() {
            seen.object = old.clone().map(WatchedObject::unreadable_now);
        }
        let row = seen.object.clone();
        self.state(kind).objects.insert(id, seen);
        match (old, row) {
            (Some(old), Some(row)) if old == row => {}
            (_, Some(WatchedObject::Put(put))) => events.push(WatchEvent::Changed(put)),
            (Some(old), None) => Self::push_deleted(&old, events),
            _ => {}
        }
        self.aggregate(kind, events);
    }

    fn remove(&mut self, kind: WatchedKind, id: &ObjectId, events: &mut Vec<WatchEvent>) {
        if let Some(row) = self.state(kind).objects.remove(id).and_then(|old| old.object) {
            Self::push_deleted(&row, events);
        }
    }

    fn listed(&mut self, kind: WatchedKind, events: &mut Vec<WatchEvent>) {
        let state = self.state(kind);
        let listing = state.listing.take().unwrap_or_default();
        let deleted: Vec<ObjectId> = state.objects.keys().filter(|id| !listing.contains(id)).cloned().collect();
        state.listed = true;
        for id in &deleted {
            self.remove(kind, id, events);
        }
        self.aggregate(kind, events);
        self.recovered(kind, events);
        if !self.synced && self.kinds.values().all(|state| state.listed) {
            self.synced = true;
            events.push(WatchEvent::Synced);
        }
    }

    fn failed(&mut self, kind: WatchedKind, message: Option<String>, events: &mut Vec<WatchEvent>) {
        let state = self.state(kind);
        if let Some(message) = message.filter(|message| state.failure.as_ref() != Some(message)) {
            state.failure = Some(message.clone());
            events.push(WatchEvent::Failing { kind, error: message });
        }
    }

    fn recovered(&mut self, kind: WatchedKind, events: &mut Vec<WatchEvent>) {
        if self.state(kind).failure.take().is_some() {
            events.push(WatchEvent::Recovered { kind });
        }
    }

    /// Reports a deleted object.
    fn push_deleted(row: &WatchedObject, events: &mut Vec<WatchEvent>) {
        let WatchedObject::Put(put) = row else { return };
        events.push(WatchEvent::Changed(match put {
            Delta::Pod(pod) => Delta::PodGone(pod.key.clone()),
            Delta::Node(node) => Delta::NodeGone(node.name.clone()),
            Delta::Claim(claim) => Delta::ClaimGone(claim.name.clone()),
            Delta::Pool(pool) => Delta::PoolGone(pool.name.clone()),
            Delta::InvalidPool(pool) => Delta::PoolGone(pool.name.clone()),
            Delta::Class(class) => Delta::ClassGone(class.name.clone()),
            Delta::InvalidClass(class) => Delta::ClassGone(class.name.clone()),
            Delta::Overlay(overlay) => Delta::OverlayGone(overlay.name.clone()),
            Delta::InvalidOverlay(overlay) => Delta::OverlayGone(overlay.name.clone()),
            Delta::DaemonSet(key, _) => Delta::DaemonSetGone(key.clone()),
            Delta::DisruptionBudget(budget) => Delta::DisruptionBudgetGone(budget.key.clone()),
            Delta::Sweep(sweep) => Delta::SweepGone(sweep.name.clone()),
            Delta::Volume(volume) => Delta::VolumeGone(volume.name.clone()),
            Delta::VolumeClaim(claim) => Delta::VolumeClaimGone(claim.key.clone()),
            Delta::StorageClass(class) => Delta::StorageClassGone(class.name.clone()),
            Delta::AttachLimits(limits) => Delta::AttachLimitsGone(limits.node.clone()),
            Delta::Attachment(attachment) => Delta::AttachmentGone(attachment.name.clone()),
            Delta::Service(key, _) => Delta::ServiceGone(key.clone()),
            Delta::Scheduler(name, _) => Delta::SchedulerGone(name.clone()),
            Delta::Namespace(name, _) => Delta::NamespaceGone(name.clone()),
            // Deletions are not stored, and the last three are not about a single object.
            Delta::PodGone(_)
            | Delta::NodeGone(_)
            | Delta::ClaimGone(_)
            | Delta::PoolGone(_)
            | Delta::ClassGone(_)
            | Delta::OverlayGone(_)
            | Delta::DaemonSetGone(_)
            | Delta::DisruptionBudgetGone(_)
            | Delta::SweepGone(_)
            | Delta::VolumeGone(_)
            | Delta::VolumeClaimGone(_)
            | Delta::StorageClassGone(_)
            | Delta::AttachLimitsGone(_)
            | Delta::AttachmentGone(_)
            | Delta::ServiceGone(_)
            | Delta::SchedulerGone(_)
            | Delta::NamespaceGone(_)
            | Delta::UnreadableSweeps(_)
            | Delta::Records(_)
            | Delta::Pause(_) => return,
        }));
    }

    /// Changes that depend on all objects of a kind: durable records, and the pause switch. They are unknown until the
    /// kind has been listed completely.
    fn aggregate(&mut self, kind: WatchedKind, events: &mut Vec<WatchEvent>) {
        if kind == WatchedKind::OrphanSweeps {
            self.aggregate_unreadable_sweeps(events);
        }
        let state = self.state(kind);
        if !state.listed || state.listing.is_some() {
            return;
        }
        if kind == WatchedKind::OrphanRecords {
            let rows = state.objects.values().filter_map(|seen| match &seen.object {
                Some(WatchedObject::Record(record)) => Some(&**record),
                _ => None,
            });
            // Each has been parsed before on its own, so all together can be parsed.
            let records = convert::records(rows).ok().filter(|records| self.records.as_ref() != records);
            if let Some(records) = records.map(Arc::new) {
                self.records = Arc::clone(&records);
                events.push(WatchEvent::Changed(Delta::Records(records)));
            }
        }
        if matches!(kind, WatchedKind::OrphanRecords | WatchedKind::Pause) {
            let pause = self.pause();
            if pause != self.pause {
                self.pause = pause.clone();
                events.push(WatchEvent::Changed(Delta::Pause(pause)));
            }
        }
    }

    /// Which OrphanSweeps are invalid. One is named at once, during a listing too: what it excludes is not known.
    fn aggregate_unreadable_sweeps(&mut self, events: &mut Vec<WatchEvent>) {
        let seen = self.state(WatchedKind::OrphanSweeps).objects.iter();
        let wrong = seen.filter_map(|(id, seen)| Some((Arc::clone(&id.name), Arc::from(seen.wrong.as_deref()?))));
        let unreadable = UnreadableSweeps::of(wrong);
        if self.unreadable_sweeps != unreadable {
            self.unreadable_sweeps = unreadable.clone();
            events.push(WatchEvent::Changed(Delta::UnreadableSweeps(unreadable)));
        }
    }

    /// The operations paused by the switch, all of them once it has disappeared, and deletions while a record cannot be
    /// parsed: it may forbid them.
    fn pause(&self) -> Pause {
        let objects = |kind: WatchedKind| self.kinds.get(&kind).into_iter().flat_map(|state| state.objects.values());
        let exists = objects(WatchedKind::Pause).next().is_some();
        self.pause_switch_seen.fetch_or(exists, Ordering::Relaxed);
        let is_lost = !exists && self.pause_switch_seen.load(Ordering::Relaxed);
        let unread = objects(WatchedKind::OrphanRecords).any(|seen| seen.wrong.is_some());
        let lost = PauseSwitch::ALL.into_iter().filter(|_| is_lost);
        let mut pause = Pause::of(lost.chain(unread.then_some(PauseSwitch::Delete)));
        for seen in objects(WatchedKind::Pause) {
            if let Some(WatchedObject::Pause(read)) = &seen.object {
                pause.extend(read);
            }
        }
        pause
    }
}

#[cfg(test)]
mod tests;
