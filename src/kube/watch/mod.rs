//! Watches the cluster.
//!
//! One reflector for each kind lists it in pages and then watches it; all of them write to one table, which returns
//! what has changed as [`Delta`]s. An error is reported once and retried indefinitely, with back-off and jitter.

mod failure;
mod invalid;
mod object;
mod pod_interner;
mod reflector;
mod table;
#[cfg(test)]
mod tests;
mod watched_kind;

use futures::StreamExt;
use futures::stream::select_all;
use kube::Client;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::settings::NodeHealthRules;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::{Delta, apply_delta};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use table::ObjectTable;
use tokio::sync::mpsc::Sender;
pub use watched_kind::WatchedKind;

/// How long one watch lasts before it is requested again. A dead connection is noticed at the latest 5 s after it.
pub const WATCH_SECONDS: u32 = 120;

/// The watched kinds, and the clock.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Converts the API server's times.
    pub clock: Arc<dyn Clock>,
    /// The kinds to watch; [`WatchedKind::ALL`] for all.
    pub kinds: BTreeSet<WatchedKind>,
    /// The namespace of the pause switch: napkeeper's own.
    pub namespace: String,
    /// Of the conditions of Nodes only those are kept that one of these rules concerns.
    pub node_health: Arc<NodeHealthRules>,
    /// The pause switch has existed since the start of the process. Shared by all watches with these options.
    pub pause_switch_seen: Arc<AtomicBool>,
}

impl WatchOptions {
    /// All kinds, and no conditions of Nodes but that they are ready.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, namespace: impl Into<String>) -> Self {
        let pause_switch_seen = Arc::default();
        let node_health = Arc::new(NodeHealthRules::new(Vec::new()));
        Self { clock, kinds: WatchedKind::ALL.into(), namespace: namespace.into(), node_health, pause_switch_seen }
    }
}

/// A result of watching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// All kinds have been listed once: the Snapshot is complete.
    Synced,
    /// An object was created, changed or deleted.
    Changed(Delta),
    /// An object is invalid. A running pod is kept, and never disrupted; anything else counts as deleted, except
    /// NodeClaims, Nodes, OrphanRecords, OrphanSweeps and SchedulerConfigurations, whose last valid version is kept.
    /// Which OrphanSweeps are invalid is a change of the Snapshot too.
    Unreadable {
        /// Its kind.
        kind: WatchedKind,
        /// Its name, with its namespace if it has one.
        name: String,
        /// All violations.
        reason: String,
    },
    /// A kind cannot be read for now; its objects may be out of date.
    Failing {
        /// The kind.
        kind: WatchedKind,
        /// The problem and its remedy, as a sentence.
        error: String,
    },
    /// A kind can be read again.
    Recovered {
        /// The kind.
        kind: WatchedKind,
    },
}

/// Watches until the receiver is dropped. Slow receivers slow it down: nothing piles up.
pub async fn watch(client: Client, options: WatchOptions, sender: Sender<WatchEvent>) {
    let mut table = ObjectTable::new(options.kinds.iter().copied(), Arc::clone(&options.pause_switch_seen));
    let kinds = options.kinds.iter();
    let mut changes = select_all(kinds.map(|kind| {
        let kind = *kind;
        reflector::reflect(kind, &client, &options).map(move |event| (kind, event)).boxed()
    }));
    loop {
        let next = tokio::select! {
            next = changes.next() => next,
            () = sender.closed() => None,
        };
        let Some((kind, change)) = next else { return };
        for event in table.apply(kind, change) {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// Brings a Snapshot up to date with an event.
pub fn fold(event: &WatchEvent, to: &mut Snapshot) {
    if let WatchEvent::Changed(delta) = event {
        apply_delta(delta, to);
    }
}
