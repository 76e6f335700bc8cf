//! Watching: what does the API server hold now, and what changes?
//!
//! One reflector for each kind lists it in pages and then watches it; all of them feed one table, which says what
//! has changed as [`Delta`]s. An error is said once and retried for ever, with back-off and jitter.

mod feed;
mod kind;
mod reflector;
mod row;
mod shapes;
#[cfg(test)]
mod tests;
mod trouble;

use feed::Feed;
use futures::StreamExt;
use futures::stream::select_all;
pub use kind::Kind;
use kube::Client;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::{Delta, apply_delta};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// How long one watch lasts before it is asked for anew. A dead connection is noticed at the latest 5 s after it.
pub const WATCH_SECONDS: u32 = 120;

/// What is watched, and how times are read.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Turns the API server's times into ours.
    pub clock: Arc<dyn Clock>,
    /// The kinds to watch; [`Kind::ALL`] for all.
    pub kinds: BTreeSet<Kind>,
    /// The namespace of the pause switch, which is ours.
    pub namespace: String,
}

impl WatchOptions {
    /// All kinds.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, namespace: impl Into<String>) -> Self {
        Self { clock, kinds: Kind::ALL.into(), namespace: namespace.into() }
    }
}

/// What watching has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// All kinds have been listed once: the Snapshot is whole.
    Synced,
    /// An object is new, has changed or is gone.
    Changed(Delta),
    /// An object cannot be understood. A pod that runs stays, and is never disrupted; anything else
    /// counts as gone, but for NodeClaims, Nodes and OrphanRecords, whose last good
    /// version stays.
    Unreadable {
        /// Its kind.
        kind: Kind,
        /// Its name, with its namespace if it has one.
        name: String,
        /// All that is wrong with it.
        why: String,
    },
    /// A kind cannot be read for now; what is known of it may be out of date.
    Trouble {
        /// The kind.
        kind: Kind,
        /// What is wrong and what to do, as a sentence.
        error: String,
    },
    /// A kind can be read again.
    Recovered {
        /// The kind.
        kind: Kind,
    },
}

/// Watches until the receiver is dropped. Slow receivers slow it down: nothing piles up.
pub async fn watch(client: Client, options: WatchOptions, sender: Sender<WatchEvent>) {
    let mut feed = Feed::new(options.kinds.iter().copied());
    let kinds = options.kinds.iter();
    let mut steps = select_all(kinds.map(|kind| {
        let kind = *kind;
        reflector::steps(kind, &client, &options).map(move |step| (kind, step)).boxed()
    }));
    loop {
        let next = tokio::select! {
            next = steps.next() => next,
            () = sender.closed() => None,
        };
        let Some((kind, step)) = next else { return };
        for event in feed.take(kind, step) {
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
