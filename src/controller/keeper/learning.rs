//! Learning: what does the keeper make of news from the cluster, from Azure and of CapacityBuffers?

use super::{AFTER_BREAKING, Keeper, MOST_CHANGES};
use crate::buffers::Buffers;
use crate::facts::Live;
use napkeeper_core::snapshot::delta::Delta;
use napkeeper_kube::watch::WatchEvent;
use std::sync::Arc;
use std::time::Instant;

impl Keeper {
    /// Takes in an event, and all that wait behind it.
    pub(super) fn take_in(&mut self, event: Option<WatchEvent>) {
        let Some(event) = event else {
            tracing::error!("watches ended unexpectedly (a bug); restarting them");
            self.end_term();
            self.hold = Some(Instant::now() + AFTER_BREAKING);
            return;
        };
        self.learn(event);
        for _ in 0..MOST_CHANGES {
            let Some(Ok(event)) = self.term.as_mut().map(|term| term.changes.try_recv()) else { break };
            self.learn(event);
        }
    }

    /// Takes in an event of the watches.
    fn learn(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Synced => {
                self.synced = true;
                tracing::info!("initial listing of the cluster complete");
            }
            WatchEvent::Changed(delta) => {
                self.settling.seen(&delta);
                if let Delta::Pause(pause) = &delta {
                    let before = self.fixed.pause.send_replace(pause.clone());
                    if before != *pause {
                        tracing::warn!(held_back = %pause, "pause switch changed");
                    }
                }
                self.controller.apply(&delta);
                self.changed = true;
            }
            WatchEvent::Failing { kind, error } => {
                tracing::warn!(kind = kind.resource(), error, "watch failed: no decisions until it recovers");
                self.troubled.insert(kind, error);
            }
            WatchEvent::Recovered { kind } => {
                tracing::info!(kind = kind.resource(), "watch recovered");
                self.troubled.remove(&kind);
                self.changed = true;
            }
            WatchEvent::Unreadable { kind, name, why } => self.teller.unreadable(kind.resource(), &name, &why),
        }
        match self.troubled.iter().next() {
            Some((kind, why)) => self.watches.fail(format!("watch of {} failed: {why}", kind.resource())),
            None if self.synced => self.watches.pass(),
            None => {}
        }
    }

    /// Azure offers something else than before. A decision that is under way goes on with what it began with.
    pub(super) fn learn_facts(&mut self, live: &Live) {
        if !Arc::ptr_eq(&self.fixed.catalog, &live.catalog) {
            self.fixed.catalog = Arc::clone(&live.catalog);
            self.controller.invalidate_instance_types();
            tracing::info!(sizes = live.catalog.sizes.len(), "catalogue changed");
        }
        self.controller.set_quota(live.quota.clone());
        self.controller.set_infrastructure(Arc::clone(&live.surroundings));
        self.changed = true;
    }

    /// The CapacityBuffers are others than before, or not known any more.
    pub(super) fn learn_buffers(&mut self, buffers: Option<&Buffers>) {
        match buffers {
            Some(buffers) => {
                tracing::info!(buffers = buffers.len(), "CapacityBuffers read");
                self.controller.sync_buffers(buffers);
            }
            None => self.controller.mark_buffers_unsynced(),
        }
        self.changed = true;
    }
}
