//! Applies watch events, Azure facts and CapacityBuffers to the state of the control loop.

use super::{ControlLoop, MAX_CHANGES_AT_ONCE, PAUSE_AFTER_PANIC};
use crate::capacity_buffers::Buffers;
use crate::facts::CurrentFacts;
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_core::snapshot::delta::Delta;
use napkeeper_kube::watch::WatchEvent;
use std::sync::Arc;
use std::time::Instant;

impl ControlLoop {
    /// Applies an event, and those queued behind it.
    pub(super) fn apply_events(&mut self, event: Option<WatchEvent>) {
        let Some(event) = event else {
            tracing::error!("the watches have ended; starting anew");
            self.end_term();
            self.paused_until = Some(Instant::now() + PAUSE_AFTER_PANIC);
            return;
        };
        self.apply_event(event);
        for _ in 0..MAX_CHANGES_AT_ONCE {
            let Some(Ok(event)) = self.term.as_mut().map(|term| term.changes.try_recv()) else { break };
            self.apply_event(event);
        }
    }

    /// Applies one event of the watches.
    fn apply_event(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Synced => {
                self.synced = true;
                tracing::info!("initial listing of the cluster complete");
            }
            WatchEvent::Changed(delta) => {
                self.expectations.observe(&delta);
                if let Delta::Pause(pause) = &delta {
                    if self.context.holds.borrow().pause != *pause {
                        tracing::warn!(held_back = %pause, "pause switch changed");
                    }
                    self.context.holds.send_modify(|holds| holds.pause = pause.clone());
                }
                if let Delta::UnreadableSweeps(sweeps) = &delta {
                    self.context.holds.send_modify(|holds| holds.unreadable_sweeps = sweeps.clone());
                    match sweeps.iter().next() {
                        Some((name, reason)) => {
                            tracing::warn!(sweep = %name, %reason, unreadable = sweeps.len(), "sweeps halted")
                        }
                        None => tracing::info!("every OrphanSweep can be read again"),
                    }
                }
                self.controller.apply(&delta);
                self.changed = true;
            }
            WatchEvent::Failing { kind, error } => {
                tracing::warn!(kind = kind.resource(), error, "watch failed: no decisions until it recovers");
                self.failed_watches.insert(kind, error);
            }
            WatchEvent::Recovered { kind } => {
                tracing::info!(kind = kind.resource(), "watch recovered");
                self.failed_watches.remove(&kind);
                self.changed = true;
            }
            WatchEvent::Unreadable { kind, name, reason } => {
                self.reporter.invalid_object(kind.resource(), &name, &reason)
            }
        }
        match self.failed_watches.iter().next() {
            Some((kind, message)) => self.watches.fail(format!("watch of {} failed: {message}", kind.resource())),
            None if self.synced => self.watches.pass(),
            None => {}
        }
    }

    /// Uses new Azure facts. A running decision keeps its own.
    pub(super) fn set_facts(&mut self, facts: &CurrentFacts) {
        if !Arc::ptr_eq(&self.context.catalog, &facts.catalog) {
            self.context.catalog = Arc::clone(&facts.catalog);
            self.controller.invalidate_instance_types();
            tracing::info!(sizes = facts.catalog.sizes.len(), "catalogue changed");
        }
        self.controller.set_quota(facts.quota.clone());
        self.controller.set_infrastructure(Arc::clone(&facts.infrastructure));
        self.changed = true;
    }

    /// Uses what nodes are made from now.
    pub(super) fn set_node_base(&mut self, base: Arc<NodeBase>) {
        self.controller.set_node_base(base);
        self.changed = true;
    }

    /// Takes over new CapacityBuffers; `None` while they are not known.
    pub(super) fn set_buffers(&mut self, buffers: Option<&Buffers>) {
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
