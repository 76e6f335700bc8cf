//! The batch window: gathers new pods for a short while, so that pods of one rollout share nodes.

use crate::model::cluster::pod::Pod;
use crate::model::names::Uid;
use crate::model::settings::Settings;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pods that have been considered, and the window for those that have not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BatchWindow {
    /// Waiting pods that an earlier pass has placed, or found to be unschedulable, since they were all tried again.
    considered: BTreeSet<Uid>,
    open: Option<OpenWindow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OpenWindow {
    opened: Timestamp,
    /// When the newest pod arrived.
    newest: Timestamp,
    /// How many pods there were, and when the newest of them was created, to the second.
    pods: usize,
    created: Timestamp,
}

/// Kubernetes tells the time of creation in whole seconds.
const CREATION_PRECISION: SignedDuration = SignedDuration::from_secs(1);

impl BatchWindow {
    /// When the window closes: `batch_idle_duration` after the newest pod, at most `batch_max_duration` after it was
    /// opened. `None` when every pod has been considered.
    pub(super) fn closes_at(&mut self, pods: &[Arc<Pod>], settings: &Settings, now: Timestamp) -> Option<Timestamp> {
        let present: BTreeSet<&Uid> = pods.iter().map(|p| &p.uid).collect();
        self.considered.retain(|uid| present.contains(uid));
        let fresh: Vec<&Arc<Pod>> = pods.iter().filter(|p| !self.considered.contains(&p.uid)).collect();
        if fresh.is_empty() {
            self.open = None;
            return None;
        }
        let created = fresh.iter().map(|p| p.created_at).max().unwrap_or(now);
        // Pods that have been waiting for longer, as at a start, need not wait for others.
        let arrived = created.saturating_add(CREATION_PRECISION).map_or(now, |at| at.min(now));
        let (opened, pods) = (now, fresh.len());
        let window = self.open.get_or_insert(OpenWindow { opened, newest: arrived, pods, created });
        if pods > window.pods || created > window.created {
            (window.newest, window.pods, window.created) = (arrived.max(window.newest), pods, created);
        }
        Some((window.newest + settings.batch_idle_duration).min(window.opened + settings.batch_max_duration))
    }

    /// Closes the window: these pods have been considered. All others have to be, if all are tried again.
    pub(super) fn close(&mut self, pods: &[Arc<Pod>], tries_all_again: bool) {
        if tries_all_again {
            self.considered.clear();
        }
        self.considered.extend(pods.iter().map(|pod| pod.uid.clone()));
        self.open = None;
    }

    /// True for a pod that has been considered.
    pub(super) fn has_considered(&self, pod: &Pod) -> bool {
        self.considered.contains(&pod.uid)
    }
}
